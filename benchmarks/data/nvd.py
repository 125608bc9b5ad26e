"""Build the file of ``load_nvd`` from the yearly feeds of the US National Vulnerability Database.

python benchmarks/data/nvd.py FEEDS TARGET

SOURCE is a folder with the yearly JSON feeds from 2002 to 2018, as they come (``.json.gz``) or unpacked, in
version 2.0 (``nvdcve-2.0-2002.json.gz`` …) or 1.1. Vulnerabilities with a severity by CVSS version 2 that
were published before 2019 are taken, in the order of day and id. The database revises old entries, so that
feeds of another day differ from those that the published results rest on. The sums are of the values of the
latter, which are not kept here: this script was tried on a small source in both layouts only.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sums import run


def build(source: Path, target: Path) -> None:
    files = sorted(source.glob("nvdcve-*-2???.json*"))
    if not files:
        raise SystemExit(f"{source} has no files nvdcve-2.0-YYYY.json or nvdcve-2.0-YYYY.json.gz.")
    rows = sorted(row for file in files for row in entries(file) if row[-1] and row[0] < "2019")
    days, ids, texts, severities = zip(*rows, strict=True)
    columns = {"published": np.array(days, "datetime64[us]"), "cve": ids, "desc": texts, "sev2": severities}
    pq.write_table(pa.table(columns), target / "nvd_cve.parquet")


def entries(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield day of publication, id, English text, and severity by CVSS version 2 (or nothing)."""
    content = file.read_bytes()
    feed: dict[str, Any] = json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)
    for entry in feed.get("vulnerabilities", []):
        cve = entry["cve"]
        graded = cve.get("metrics", {}).get("cvssMetricV2", [])
        first = next((each for each in graded if each.get("type") == "Primary"), graded[0] if graded else {})
        severity = first.get("baseSeverity", "")
        yield cve["published"][:10], cve["id"], english(cve["descriptions"]), severity
    for entry in feed.get("CVE_Items", []):
        cve = entry["cve"]
        severity = entry.get("impact", {}).get("baseMetricV2", {}).get("severity", "")
        text_of = english(cve["description"]["description_data"])
        yield entry["publishedDate"][:10], cve["CVE_data_meta"]["ID"], text_of, severity


def english(texts: list[dict[str, str]]) -> str:
    return next((text["value"] for text in texts if text["lang"] == "en"), "")


if __name__ == "__main__":
    run(str(__doc__), "nvd", build)
