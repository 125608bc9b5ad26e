"""Monitors on real streams: when do they fire, when did answers get worse, and what does an audit say?"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from alarms import OURS
from lightgbm import LGBMClassifier
from river import drift as river
from scipy.stats import binom
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC
from tables import markdown, run_all, save

from transcendent import InductiveEvaluator
from transcendent.datasets import Dataset, load_apigraph, load_trec07p
from transcendent.measures import drift_measure
from transcendent.monitoring import DriftMonitor, HarmMonitor, expected_errors
from transcendent.temporal import cut_periods
from transcendent.temporal.periods import Periods

STREAMS: list[tuple[str, Callable[[], Dataset], str, Literal["month", "week"]]] = [
    ("apigraph", load_apigraph, "2013-01", "month"),
    ("trec07p", load_trec07p, "2007-04-16", "week"),
]
BETWEEN_FALSE_ALARMS = 100_000
LABELS_A_DAY = 16
DAYS = 30
N_WATCHED = 50_000
_BLOCK = 50


def real_streams() -> str:
    """In which period each detector fires first on apigraph and trec07p, and when F1 had fallen by .1."""
    tables = []
    for name, data, train, period in STREAMS:
        rows, periods = later_periods(data(), train, period)
        ice = InductiveEvaluator(LinearSVC(C=0.1), random_state=0, verbose=False)
        ice.fit(rows.X[: -len(periods.codes)], rows.y[: -len(periods.codes)])
        X, y = rows.X[-len(periods.codes) :], rows.y[-len(periods.codes) :]
        fired, labels = first_periods(ice, X, periods.codes)
        calibrated = f1_score(ice.calibration_.actual, ice.calibration_.predicted)
        f1 = [f1_score(y[own], labels[own]) for own in periods.rows]
        fallen = next((p for p, value in enumerate(f1) if value < calibrated - 0.1), None)
        worst = f"F1 {calibrated:.3f} in calibration, lowest {min(f1):.3f}"
        when = "never by .1" if fallen is None else f"lower by .1 first in {periods.labels[fallen]}"
        fired |= {"always fires": 0, "never fires": None}
        cells = [
            [detector, "never" if p is None else periods.labels[p], *_lead(p, fallen)]
            for detector, p in fired.items()
        ]
        head = ["detector", "first alarm", "periods before F1 had fallen"]
        tables.append(f"{name}: {worst}, {when}.\n\n" + markdown(head, cells))
    return "\n\n".join(tables)


def later_periods(data: Dataset, train: str, period: Literal["month", "week"]) -> tuple[Dataset, Periods]:
    """The data in order of time, and the periods of those that are not trained on, which come last."""
    data = data[np.argsort(data.times, kind="stable")]
    return data, cut_periods(data.times[data.times >= np.datetime64(train)], period)


def _lead(fired: int | None, fallen: int | None) -> list[str]:
    if fired is None or fallen is None:
        return ["–"]
    return [f"{fallen - fired:+d}"]


def first_periods(ice: InductiveEvaluator, X: Any, codes: Any) -> tuple[dict[str, int | None], Any]:
    """The period of each detector's first alarm, and the answers."""
    fired: dict[str, int | None] = {}
    for name, (betting, rule) in OURS.items():
        threshold = 100 if rule == "ville" else BETWEEN_FALSE_ALARMS
        monitor = DriftMonitor.of(ice, betting=betting, rule=rule, threshold=threshold)
        decisions = monitor.update(X)
        alarms = {name: monitor.alarm}
        if name == "DriftMonitor":
            alarms["rejection rate"] = monitor.rejections.alarm
        fired |= {what: None if one is None else int(codes[one.at - 1]) for what, one in alarms.items()}
    for name, detector in {
        "ADWIN": river.ADWIN(),  # type: ignore[no-untyped-call]
        "KSWIN": river.KSWIN(seed=0),
        "Page–Hinkley": river.PageHinkley(),
    }.items():
        at = None
        for i, value in enumerate(decisions.credibility.tolist()):
            detector.update(value)
            if detector.drift_detected:
                at = int(codes[i])
                break
        fired[name] = at
    return fired, decisions.labels


def audit_months() -> str:
    """The error among accepted answers by year on apigraph: estimated with 16 labels a day, and true."""
    apps, months = later_periods(load_apigraph(), "2013-01", "month")
    n_train = len(apps.y) - len(months.codes)
    ice = InductiveEvaluator(LinearSVC(C=0.1), measure="drift", random_state=0, verbose=False)
    ice.fit(apps.X[:n_train], apps.y[:n_train])
    generator = np.random.default_rng(0)
    whole, whole_plain = (HarmMonitor(promised=_kept_error(ice)) for _ in range(2))
    monitor, alarm, rows = DriftMonitor.of(ice), None, []
    for month, in_month in enumerate(months.rows):
        decisions, y = monitor.update(apps.X[n_train + in_month]), apps.y[n_train + in_month]
        wrong, doubt = decisions.labels != y, expected_errors(ice, decisions)
        plain, helped = HarmMonitor(0.5), HarmMonitor(0.5)
        accepted = np.flatnonzero(decisions.accepted)
        for day in np.array_split(accepted, DAYS):
            drawn = generator.choice(day, min(LABELS_A_DAY, len(day)), replace=False)
            plain.update(wrong[drawn])
            whole_plain.update(wrong[drawn])
            helped.update(wrong[drawn], doubt=doubt[drawn], all_doubt=doubt[day])
            whole.update(wrong[drawn], doubt=doubt[drawn], all_doubt=doubt[day])
            if alarm is None and whole.alarm is not None:
                alarm = months.labels[month]
        rows.append((months.labels[month], wrong[accepted].mean(), plain.kept_error, helped.kept_error))
    save(monitor.plot(whole).figure_, "monitor")
    held = [sum(both[i].low <= true <= both[i].high for _, true, *both in rows) for i in (0, 1)]
    table = [
        [
            label,
            f"{true:.4f}",
            f"{plain.error:.4f}",
            f"{plain.high - plain.low:.4f}",
            f"{helped.error:.4f}",
            f"{helped.high - helped.low:.4f}",
        ]
        for label, true, plain, helped in rows[::6]
    ]
    mean = [np.mean([both[i].high - both[i].low for _, _, *both in rows]) for i in (0, 1)]
    text = (
        f"{len(rows)} months, {LABELS_A_DAY} audited answers a day. The interval of the month held the true "
        f"error in {held[0]} months without, in {held[1]} with what the judge expects; its mean width is "
        f"{mean[0]:.4f} and {mean[1]:.4f}; of all months together {_width(whole_plain):.4f} and "
        f"{_width(whole):.4f}. Harm alarm (promised {whole.promised:.4f}, delta .05): "
        f"{alarm or 'none'}.\n\n"
    )
    head = ["month", "true", "audited", "width", "audited, with doubt", "width"]
    return text + markdown(head, table)


def _width(monitor: HarmMonitor) -> float:
    return monitor.kept_error.high - monitor.kept_error.low


def _kept_error(ice: InductiveEvaluator) -> float:
    """Twice the error among the accepted calibration objects."""
    calibration = ice.calibration_
    accepted = ice.result_.accepts(calibration.predicted, *calibration.credibility_and_confidence())
    return 2 * float(np.mean(calibration.predicted[accepted] != calibration.actual[accepted]))


def coverage_block(seed: int) -> tuple[int, float, float]:
    """Of some audits while the error moves, how many intervals ever failed; mean widths at the end."""
    generator, failed, widths = np.random.default_rng(seed), 0, np.zeros(2)
    for _ in range(_BLOCK):
        plain, helped, truths, held = HarmMonitor(0.5), HarmMonitor(0.5), [], True
        for chance in 0.05 + 0.04 * np.sin(np.arange(60) / 5 + generator.random()):
            doubt = np.clip(generator.beta(0.2, 2, 300) * chance / 0.09, 0, 1)
            wrong = generator.random(300) < doubt
            drawn = generator.choice(300, LABELS_A_DAY, replace=False)
            plain.update(wrong[drawn])
            helped.update(wrong[drawn], doubt=doubt[drawn], all_doubt=doubt)
            truths.append(wrong.mean())
            held &= helped.kept_error.low <= np.mean(truths) <= helped.kept_error.high
        failed += not held
        widths += np.array([_width(plain), _width(helped)]) / _BLOCK
    return failed, float(widths[0]), float(widths[1])


def audit() -> str:
    """Coverage of the interval over 1,000 simulated audits of 60 days, then the months of apigraph."""
    runs = 1000
    blocks = np.array(run_all(coverage_block, [()], range(runs // _BLOCK))[()])
    bound = int(binom.ppf(0.999, runs, 0.05))
    return (
        f"In {blocks[:, 0].sum():.0f} of {runs:,} simulated audits, of an error that moves between 1% and "
        f"9%, the interval failed on any of 60 days (promised: 5%, by chance at most {bound}). With chances "
        f"of an error that are known exactly its mean width after 960 labels is {blocks[:, 2].mean():.4f}, "
        f"without them {blocks[:, 1].mean():.4f}.\n\n{audit_months()}"
    )


def monitor_cost() -> str:
    """What a monitor adds to deciding: the least of five turns each, in one run.

    Timed on the same scores with and without it, since the detector's own time differs by more from turn to
    turn.
    """
    apps = load_apigraph()
    train = apps.times < np.datetime64("2013-01")
    rows = []
    for name, detector, measure in (
        ("LinearSVC, margin", LinearSVC(C=0.1), "auto"),
        ("LightGBM, margin", LGBMClassifier(n_estimators=200, verbose=-1, n_jobs=1), "auto"),
        ("random forest, margin", RandomForestClassifier(random_state=0), "auto"),
        ("LinearSVC, drift_measure()", LinearSVC(C=0.1), drift_measure(random_state=0)),
    ):
        ice = InductiveEvaluator(detector, measure=measure, random_state=0, verbose=False)
        ice.fit(apps.X[train], apps.y[train])
        some = apps.X[~train][:N_WATCHED]
        answers = ice.answer(some)
        seconds = np.full(3, math.inf)
        for _ in range(5):
            for i, call in enumerate(
                (
                    partial(ice.decide, some),
                    partial(ice.judges_[0].decide, answers),
                    partial(DriftMonitor.of(ice).update, answers),
                )
            ):
                began = time.process_time()
                call()
                seconds[i] = min(seconds[i], time.process_time() - began)
        whole, added = seconds[0], seconds[2] - seconds[1]
        rows.append([name, f"{whole:.3f}", f"{added:.3f}", f"{added / whole:+.1%}"])
    size = len(DriftMonitor.of(ice).to_json())
    return (
        markdown(["detector", "decide, s", "the monitor adds, s", "share"], rows)
        + f"\n\nState: {size:,} bytes."
    )
