"""Vulnerabilities as a table of text and numbers, with context, for a gate that holds a budget."""

import os
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, RejectionBudget, save

SEED, RATE = 0, 0.15
TEXT, NUMBERS = ["weakness", "access", "complexity", "authentication"], ["length", "references"]
FITTED, SENT = (2006, 2008), (2009, 2010)


def objects_to_send(n: int) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """Return the first vulnerabilities of 2009 as objects of a request, and their rows."""
    table = _table(*SENT)[:n]
    return [_as_object(row) for row in table.itertuples()], table[TEXT + NUMBERS]


def fit(path: Path, seed: int = SEED) -> RejectionBudget:
    """Write the artifact of a pipeline within a budget, fitted on 2006 to 2008; return the rejector."""
    table = _table(*FITTED)
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), TEXT), (StandardScaler(), NUMBERS)
    )
    detector = make_pipeline(encode, LinearSVC(C=0.1, random_state=seed))
    rejector = RejectionBudget(InductiveEvaluator(detector, random_state=seed), rate=RATE)
    rejector.fit(table[TEXT + NUMBERS], table["severe"])
    save(rejector, path)
    return rejector


def _as_object(row: Any) -> dict[str, Any]:
    features = {column: getattr(row, column) for column in TEXT + NUMBERS}
    context = {"name": row.cve, "link": f"/vulnerabilities/{row.cve}", "text": row.desc[:200]}
    return {"features": features, "context": context, "seen_at": row.published.isoformat()}


def _table(first: int, last: int) -> pd.DataFrame:
    found = pd.read_parquet(Path(os.environ["TRANSCENDENT_DATA"]) / "nvd_cve.parquet")
    table = found[found["published"].dt.year.between(first, last) & (found["vec2"] != "")]
    parts = table["vec2"].str.extract("AV:(?P<access>.)/AC:(?P<complexity>.)/Au:(?P<authentication>.)")
    return table.assign(
        **parts,
        weakness=table["cwe"],
        length=table["desc"].str.len().astype(float),
        references=table["exploit_refs"].astype(float),
        severe=table["sev2"] == "HIGH",
    )
