"""A report on a detector's past answers, which needs neither the detector nor features."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import fisher_exact
from sklearn.metrics import f1_score

from transcendent._utils.arrays import IntArray
from transcendent._utils.listing import figure
from transcendent._utils.text import counted
from transcendent.errors import TemporalBiasWarning
from transcendent.experiments.answers import BUDGET, PROMISED, propose_answers
from transcendent.experiments.experiment import Experiment, interpret
from transcendent.experiments.proposing import Proposal
from transcendent.report.page import write_report
from transcendent.report.words import percent, plain, ratio
from transcendent.tables.objects import Objects
from transcendent.temporal.periods import training_rows
from transcendent.temporal.result import Backtest

PER_DAY = 80
"""Objects that one or two people look at in a day."""

_CLEARLY = 0.001
_MOST_GROUPS = 8
_LONGER = {"day": len("2024-09"), "month": len("2024")}  # characters that name the longer period


class Checked(NamedTuple):
    """A detector's past answers, checked.

    ``page`` is the report, ``lead`` has its first headings and sentences, ``proposal`` is the experiment as
    TOML, and ``result`` its backtest.
    """

    page: Path
    lead: list[tuple[str, str]]
    proposal: Proposal
    result: Backtest


def check_answers(
    file: Any,
    page: Any = None,
    *,
    toml: Any = None,
    scores: Sequence[str] = (),
    answer: str | None = None,
    truth: str | None = None,
    time: str | None = None,
) -> Checked:
    """Write a report on a detector's past answers; neither the detector nor features are needed.

    The first third of the answers calibrates, the later ones are decided period by period: the backtest of
    the experiment that `experiments.propose_answers` proposes.

    Parameters
    ----------
    file : path
        A table, Parquet or CSV: scores or probabilities, true labels where known, times and, if there are
        any, answers.
    page : path or None
        The page to write; by default beside the table.
    toml : path or None
        Where the experiment will be written, if at all; paths in it are relative to this.
    scores, answer, truth, time
        The columns, as for `experiments.propose_answers`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, pandas as pd
    >>> from transcendent.report import check_answers
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=3000)
    >>> score = truth - 0.5 + rng.normal(size=3000) * np.linspace(0.2, 0.8, 3000)  # less and less certain
    >>> day = np.datetime64("2024-01-01") + np.arange(3000) // 10
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "answers.csv")
    ...     pd.DataFrame({"day": day, "score": score, "truth": truth}).to_csv(table, index=False)
    ...     checked = check_answers(table)
    >>> checked.lead[0]
    ('Aged', 'The detector has aged: ...')
    """
    file = Path(file)
    path = file.with_suffix(".toml") if toml is None else Path(toml)
    proposal = propose_answers(file, toml=path, scores=scores, answer=answer, truth=truth, time=time)
    experiment = interpret(path, proposal.text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*: left out")  # the notes of the proposal say why
        result = experiment.backtest()
    if bias := result.manifest["biases"].get("class_windows"):
        warnings.warn(f"class_windows: {bias}", TemporalBiasWarning, stacklevel=2)
    lead = _lead(result, experiment)
    target = file.with_suffix(".html") if page is None else Path(page)
    write_report(result, target, title=file.name, lead=lead)
    return Checked(target, lead, proposal, result)


def _lead(result: Backtest, experiment: Experiment) -> list[tuple[str, str]]:
    known, schedule = experiment.objects.with_labels(), experiment.schedule
    before = known.take(training_rows(known.times, schedule.train, schedule.period))
    search = getattr(experiment.rejectors.get("promise"), "search", None)
    return [
        ("Aged", _aged(result, before)),
        ("Budget", _budget(result)),
        ("Alarms", _alarms(result)),
        ("Promise", _promise(result, None if search is None else search.error)),
        ("Features", _features(result)),
    ]


def _aged(result: Backtest, before: Objects) -> str:
    """Compare the share of wrong answers before and after the start of the test."""
    wrong_before, wrong = before.X.labels != before.y, result.answers["budget"].labels != result.y
    names, codes = _groups(result)
    errors, objects = np.bincount(codes, wrong, len(names)), np.bincount(codes, minlength=len(names))
    there = np.flatnonzero(objects)
    counts = [[part.sum(), np.sum(~part)] for part in (wrong, wrong_before)]
    verdict = "There is no clear change"
    if fisher_exact(counts).pvalue < _CLEARLY:
        verdict = "The detector has " + ("aged" if wrong.mean() > wrong_before.mean() else "improved")
    shares = [f"{percent(errors[i] / objects[i], 1)} in {plain(names[i], 24)}" for i in there]
    if len(shares) > _MOST_GROUPS:
        worst = int(np.argmax(errors[there] / objects[there]))
        shares[worst] = f"at worst {shares[worst]}"
        shares = [shares[i] for i in sorted({0, worst, len(shares) - 1})]
    first = f"{percent(wrong_before.mean(), 1)} of its answers were wrong before {_start(result)}"
    return f"{verdict}: {first}, then {', '.join(shares)}. {_f1(result, before)}".strip()


def _start(result: Backtest) -> str:
    return plain(result.manifest["train"], 24)


def _unit(result: Backtest) -> str:
    return result.manifest["period"] or "period"


def _f1(result: Backtest, before: Objects) -> str:
    if result.positive is None:
        return ""
    positive = result.classes[result.positive]
    first = f1_score(before.y == positive, before.X.labels == positive, zero_division=np.nan)
    later = result.summary()["f1_baseline"][0]
    return f"F1 of class {plain(positive)}: {figure(float(first), 2)} before, {figure(later, 2)} since then."


def _groups(result: Backtest) -> tuple[list[str], IntArray]:
    """Return the periods, or longer ones if there are many, and that of each object."""
    longer = _LONGER.get(str(result.manifest["period"]))
    if longer is None or len(result.periods) <= _MOST_GROUPS:
        return list(result.periods), result.period
    names = [period[:longer] for period in result.periods]
    groups = list(dict.fromkeys(names))
    return groups, np.array([groups.index(name) for name in names])[result.period]


def _budget(result: Backtest) -> str:
    """Tell what a share of each period would have caught, and a number a day."""
    row = {key: column[0] for key, column in result.summary().items()}
    wrong = result.answers["budget"].labels != result.y
    if not wrong.any():
        return "None of the later answers was wrong, so there was nothing to catch."
    streamed = result.manifest["rejectors"]["budget"].startswith("StreamingBudget")
    whole = "all answers as they come" if streamed else f"each {_unit(result)}"
    text = (
        f"If people looked at the {percent(BUDGET)} of {whole} that it was least sure of, they would "
        f"have found {percent(row['errors_caught'])} of its {counted(int(wrong.sum()), 'error')}; of the "
        f"other answers {percent(row['error_kept'], 1)} would have been wrong instead of "
        f"{percent(row['error_baseline'], 1)}."
    )
    rejected = _daily(result)
    if rejected is None:
        return text
    if rejected.all():
        return f"{text} {PER_DAY} a day would be all answers."
    found = ratio(np.sum(wrong & rejected), wrong.sum())
    return f"{text} With {PER_DAY} a day, {percent(rejected.mean())} of all, {percent(found)} of the errors."


def _daily(result: Backtest) -> Any:
    """Return which objects would have been looked at, the least trusted of each period first."""
    period = result.manifest["period"]
    if period is None:
        return None
    rejected = np.zeros(len(result.y), dtype=bool)
    for code, name in enumerate(result.periods):
        rows = np.flatnonzero(result.period == code)
        count = PER_DAY * _days(name, period)
        if len(rows) <= count:
            rejected[rows] = True
        else:
            rejected[rows] = result.answers["budget"][rows].within_budget(count=count).rejected
    return rejected


def _days(name: str, period: str) -> int:
    """Return the number of days in a month or day."""
    if period == "day":
        return 1
    month = np.datetime64(name, "M")
    return int(((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(int))


def _alarms(result: Backtest) -> str:
    watched = result.monitors["thresholds"]
    alarm = (
        f"An alarm that needs no labels, ever false with a chance of at most 1 in {watched.threshold:.0f},"
    )
    said = []
    if watched.drift:
        said.append(f"in {plain(watched.drift[0], 24)}: answers unlike those it was calibrated on")
    if watched.more_rejected:
        said.append(f"in {plain(watched.more_rejected[0], 24)}: more to reject than calibration explains")
    return f"{alarm} would {'have sounded ' + '; '.join(said) if said else 'not have sounded'}."


def _promise(result: Backtest, error: float | None) -> str:
    levels = ", ".join(f"{level:.0%}" for level in PROMISED)
    like = f"answers like those before {_start(result)}"
    if error is None:
        return (
            f"None worth making: of the errors tried ({levels}), none can be proven for {like} without "
            "rejecting more than half of them."
        )
    row = {key: column[list(result.answers).index("promise")] for key, column in result.summary().items()}
    rejected = f"{percent(row['rejection_rate'])} were rejected"
    if result.positive is not None:
        name = plain(result.classes[result.positive])
        rejected += f" ({percent(row['positives_rejected'])} of class {name})"
    held = "It held" if row["error_kept"] <= error else "It did not hold"
    return (
        f"On {like}, at most {error:.0%} of the accepted are wrong, with 95% confidence (the strictest of "
        f"{levels}). {held}: later {percent(row['error_kept'], 1)} of the accepted were wrong, and "
        f"{rejected}."
    )


def _features(result: Backtest) -> str:
    left = 1 - result.at_rejection("budget", 0.5)["rejected"]["share_of_errors"]
    beyond = (
        "A score cannot show that an object is like nothing known before. Only features could: on six years "
        'of Android apps, measure = "drift" raised the errors caught at 15% from 60% to 84%.'
    )
    if not left > 0:
        return beyond
    return (
        f"Even with half of each {_unit(result)} rejected, {percent(left)} of the errors would stay. {beyond}"
    )
