"""The result of a backtest: decisions and metrics over time, with their files."""

import io
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    chunks,
    divide,
    encode_labels,
    rows_by_code,
)
from transcendent._utils.checks import check_shares
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent._utils.listing import Listing, figure
from transcendent._utils.text import WIDTH, counted, some, visible
from transcendent.decisions import Decisions
from transcendent.metrics.performance import (
    SUBSETS,
    Subset,
    by_subset,
    confusions,
    resample,
    review_metrics,
    subset_metrics,
)
from transcendent.metrics.ranking import RiskCoverage, kept_shares, risk_coverage
from transcendent.metrics.ratios import position_of
from transcendent.metrics.time import AreaUnderTime, area_under_time
from transcendent.monitoring.audit import AuditEstimate, drawn_in_every_period, estimate_error
from transcendent.temporal.watched import Watched

_SHOWN = {
    "rejected of": {"rejection_rate": "all", "positives_rejected": "positives"},
    "F1 of": {"f1_baseline": "all", "f1_kept": "kept"},
    "error of": {"error_baseline": "all", "error_kept": "kept", "error_rejected": "rejected"},
    "errors": {"errors_caught": "caught"},
    "at 15%": {"caught_at_15": "caught", "f1_kept_at_15": "F1 kept"},
    "": {"aurc": "AURC"},
}
_SHORT = {"positives": "pos.", "rejected": "rej.", "F1 kept": "F1"}
_BLOCK_CELLS = 1 << 20
_DAYS = {"year": 365.2425, "quarter": 91.310625, "month": 30.436875, "week": 7.0, "day": 1.0}

FILES = ("table.parquet", "decisions.parquet", "labelled.parquet", "manifest.json")


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """The decisions of rejectors about the test objects, and their metrics over time.

    Attributes
    ----------
    periods : tuple of str
        The test periods, also those without objects.
    period : int array of shape (n,)
        Each test object's period, as a position in ``periods``.
    rows : int array of shape (n,)
        Its row in the data.
    y : array of shape (n,)
        Its true label.
    answers : dict of Decisions
        The decisions of each rejector, without p-values.
    classes : array
        All labels, also those that are not in training.
    pos_label : label or None
        The class of F1, precision, recall, FPR and FNR; None for their mean over classes.
    manifest : dict
        Versions, seeds, parameters, the data's digest, and the seconds of fitting and deciding.
    labelled : dict of dict of arrays
        With retraining, the objects that were labelled for each rejector: ``row``, the row in the data;
        ``label``, the one it was given; ``known``, the position of the first period in which that was known
        (beyond the last one if it never was); ``probability``, its chance of being chosen, given the
        decisions (1 if it was not drawn, NaN if unknown); and ``audited``, whether it was drawn from the
        accepted ones.
    """

    periods: tuple[str, ...]
    period: IntArray
    rows: IntArray
    y: AnyArray
    answers: dict[str, Decisions]
    classes: AnyArray
    pos_label: Any
    manifest: dict[str, Any]
    labelled: dict[str, dict[str, AnyArray]] = field(default_factory=dict)

    @cached_property
    def confusions(self) -> dict[str, IntArray]:
        """Counts of each rejector: (periods, kept or rejected, true classes, predicted classes)."""
        return {name: self._confusions(name, slice(None)) for name in self.answers}

    @property
    def positive(self) -> int | None:
        """Position of the positive class; None if metrics are means over classes."""
        return position_of(self.pos_label, self.classes)

    @property
    def title(self) -> str | None:
        """The title that was given to `backtest`, if any."""
        return self.manifest.get("title")

    @property
    def days(self) -> float | None:
        """Days in all periods, with months of average length; None if they are not of a calendar."""
        length = _DAYS.get(str(self.manifest.get("period")))
        return None if length is None else length * len(self.periods)

    @cached_property
    def table(self) -> dict[str, AnyArray]:
        """Columns of metrics, one row per rejector, period and subset."""
        metrics = list(self._metrics.values())
        columns = self._keys("subset", np.array(SUBSETS))
        for name in metrics[0]:
            column = np.concatenate([m[name].ravel() for m in metrics])
            columns[name] = column.astype(np.intp) if name in ("objects", "errors") else column
        return columns

    @cached_property
    def by_class(self) -> dict[str, AnyArray]:
        """Columns of rejection rates, one row per rejector, period and true class."""
        counts = [c.sum(axis=-1) for c in self.confusions.values()]
        objects = np.concatenate([c.sum(axis=1).ravel() for c in counts])
        rejected = np.concatenate([c[:, 1].ravel() for c in counts])
        return self._keys("class", self.classes) | {
            "objects": objects,
            "rejected": rejected,
            "rejection_rate": divide(rejected, objects),
        }

    @property
    def monitors(self) -> dict[str, Watched]:
        """The evidence and alarms of each monitored rejector, by period."""
        return {
            name: Watched.of(self.manifest["monitor"], by_period)
            for name, by_period in self.manifest.get("monitors", {}).items()
        }

    def answers_of(self, rejector: str) -> Decisions:
        """Return the decisions of a rejector; raise if there is no such rejector."""
        if rejector not in self.answers:
            raise ValueError(f"there is no rejector {rejector!r}; the rejectors are {list(self.answers)}.")
        return self.answers[rejector]

    def series(self, rejector: str, metric: str = "f1", subset: Subset = "kept") -> FloatArray:
        """Return a metric's values, one per period; NaN where it is undefined."""
        self.answers_of(rejector)
        metrics = self._metrics[rejector]
        if metric not in metrics:
            raise ValueError(f"there is no metric {metric!r}; the metrics are {', '.join(metrics)}.")
        if subset not in SUBSETS:
            raise ValueError(f"there is no subset {subset!r}; the subsets are {', '.join(SUBSETS)}.")
        return metrics[metric][:, SUBSETS.index(subset)].copy()

    def aut(self, rejector: str, metric: str = "f1", subset: Subset = "kept") -> AreaUnderTime:
        """Return the area under a metric over time, and the periods in which it is undefined."""
        return area_under_time(self.series(rejector, metric, subset))

    def intervals(
        self,
        rejector: str,
        metric: str = "f1",
        subset: Subset = "kept",
        *,
        level: float = 0.95,
        n_resamples: int = 1000,
        random_state: int = 0,
    ) -> tuple[FloatArray, FloatArray, tuple[float, float]]:
        """Return bootstrap intervals: lower and upper ends per period, and those of the area under time.

        The objects of each period are resampled with their decisions. NaN where the metric is undefined.
        """
        check_shares(ends="excluded", level=level)
        undefined = np.isnan(self.series(rejector, metric, subset))
        generator = np.random.default_rng(random_state)
        position = SUBSETS.index(subset)
        values = np.concatenate(
            [
                subset_metrics(drawn, self.positive)[metric][..., position]
                for drawn in resample(self.confusions[rejector], n_resamples, generator)
            ]
        )
        values[:, undefined] = np.nan
        columns = np.column_stack([values, [area_under_time(row).value for row in values]])
        low, high = np.full((2, columns.shape[1]), np.nan)
        defined = ~np.isnan(columns).all(axis=0)
        if defined.any():
            tail = (1 - level) / 2
            low[defined], high[defined] = np.nanquantile(columns[:, defined], [tail, 1 - tail], axis=0)
        return low[:-1], high[:-1], (float(low[-1]), float(high[-1]))

    def risk_coverage(self, rejector: str) -> list[RiskCoverage]:
        """Return the risk–coverage curve of each period."""
        answer = self.answers_of(rejector)
        wrong, ranking = answer.labels != self.y, answer.ranking
        return [risk_coverage(wrong[rows], ranking[rows]) for rows in self._rows_of_periods]

    def at_rejection(self, rejector: str, rejection_rate: float = 0.15) -> dict[str, dict[str, float]]:
        """Return metrics of all periods together if this share of each were rejected, least trusted first.

        Rejectors can only be compared at the same rejection rate. The metrics are those of
        `rejection_metrics`; objects that tie at the limit count with their chance of being kept.
        """
        return self._pooled(rejector, self.kept_at(rejector, rejection_rate))

    def kept_at(self, rejector: str, rejection_rate: float = 0.15) -> FloatArray:
        """Return each object's chance of being kept if this share of its period were rejected."""
        answer = self.answers_of(rejector)
        kept = np.empty(len(self.y))
        for rows in self._rows_of_periods:
            kept[rows] = kept_shares(answer.ranking[rows], rejection_rate)
        return kept

    def confusions_at(self, rejector: str, rejection_rate: float = 0.15) -> FloatArray:
        """Return counts as in ``confusions``, if this share of each period were rejected."""
        return self._confusions(rejector, slice(None), self.kept_at(rejector, rejection_rate))

    def audit(self, rejector: str) -> AuditEstimate:
        """Estimate the error among accepted answers only from the labels that retraining used.

        Each labelled accepted answer is weighted by one over its chance of being chosen, so the estimate is
        unbiased if these labels are right. It is NaN if no accepted answers were drawn in some period, since
        nothing is known about the others. Labels that come after the last period count, too.
        """
        accepted, columns = self.answers_of(rejector).accepted, self.labelled.get(rejector)
        if columns is None:
            raise ValueError(f"{rejector!r} has no labels to audit: run with retrain=Retraining(...).")
        order = np.argsort(self.rows)
        place = order[np.searchsorted(self.rows, columns["row"], sorter=order)]
        kept = accepted[place]
        seen, chance = place[kept], columns["probability"][kept]
        drawn = place if "choose='random'" in self.manifest["retrain"] else place[columns["audited"]]
        if not drawn_in_every_period(self.period[accepted], self.period[seen], self.period[drawn]):
            return AuditEstimate(np.nan, 0.0, 1.0, len(seen))
        wrong = self.answers[rejector].labels[seen] != columns["label"][kept]
        return estimate_error(wrong, chance, int(accepted.sum()))

    def summary(self) -> dict[str, AnyArray]:
        """Return columns with one row per rejector.

        ``positives_rejected`` is the share of the positive class that is rejected, ``detections_rejected``
        the share that is rejected although it was called positive, ``positives_missed`` the share that is
        kept and called something else, and ``f1_reviewed`` the F1 of all if people give what is rejected its
        true label. ``aut_f1_…`` are areas under time; ``f1_…`` and ``error_…`` are over the
        objects of all periods. ``caught_at_15`` and ``f1_kept_at_15`` are the share of errors caught and the
        F1 of the kept if 15% of every period were rejected. ``aurc``, ``excess_aurc`` and ``augrc`` are means
        over periods, weighted by their objects.
        """
        return {key: column.copy() for key, column in self._summary.items()}

    def to_frame(
        self,
        library: Literal["pandas", "polars"] = "pandas",
        *,
        table: Literal["table", "by_class", "summary"] = "table",
    ) -> Any:
        """Return `table`, `by_class` or `summary` as a pandas or polars DataFrame."""
        if table not in ("table", "by_class", "summary"):
            raise ValueError(f"table must be 'table', 'by_class' or 'summary', not {table!r}.")
        return as_frame(self.summary() if table == "summary" else getattr(self, table), library)

    def save(self, folder: Any) -> Path:
        """Write Parquet tables and ``manifest.json`` into a folder, each file atomically."""
        arrow, parquet = extra("pyarrow", "frames"), extra("pyarrow.parquet", "frames")
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        decisions = [arrow.table(self._decision_columns(name)) for name in self.answers]
        labelled = [
            arrow.table({"rejector": np.full(len(columns["row"]), name), **columns})
            for name, columns in self.labelled.items()
        ]
        tables = {
            "table.parquet": arrow.table(self.table),
            "decisions.parquet": arrow.concat_tables(decisions),
        }
        if labelled:
            tables["labelled.parquet"] = arrow.concat_tables(labelled)
        else:
            (path / "labelled.parquet").unlink(missing_ok=True)
        for name, table in tables.items():
            content = io.BytesIO()
            parquet.write_table(table, content)
            write_whole(path / name, content.getvalue())
        manifest = self.manifest | {
            "periods": list(self.periods),
            "classes": self.classes.tolist(),
            "ranked_by": {name: answer.ranked_by for name, answer in self.answers.items()},
        }
        write_whole(path / "manifest.json", (json.dumps(manifest, indent=2) + "\n").encode())
        return path

    @classmethod
    def load(cls, folder: Any) -> Self:
        """Read a result from the folder that `save` wrote."""
        parquet = extra("pyarrow.parquet", "frames")
        path = Path(folder)
        manifest = json.loads((path / "manifest.json").read_text())
        stored = parquet.read_table(path / "decisions.parquet")
        columns = {name: stored[name].to_numpy() for name in stored.column_names}
        answers, classes = {}, np.array(manifest.pop("classes"))
        for name, ranked_by in manifest["ranked_by"].items():
            own = columns["rejector"] == name
            votes = columns["votes"][own]
            answers[name] = Decisions(
                labels=as_text_array(columns["label"][own]),
                accepted=columns["accepted"][own].astype(bool),
                credibility=columns["credibility"][own],
                confidence=columns["confidence"][own],
                classes=classes,
                votes=None if votes[0] < 0 else votes,
                ranked_by=ranked_by,
            )
        return cls(
            periods=tuple(manifest.pop("periods")),
            period=columns["period"][own],
            rows=columns["row"][own],
            y=as_text_array(columns["y"][own]),
            answers=answers,
            classes=classes,
            pos_label=manifest["pos_label"],
            manifest={key: value for key, value in manifest.items() if key != "ranked_by"},
            labelled=_read_labelled(path / "labelled.parquet", answers),
        )

    def to_latex(self) -> str:
        """Return the summary as a LaTeX table, which needs the package booktabs."""
        return self._listing().as_latex()

    def plot(
        self,
        rejector: str | Sequence[str] | None = None,
        metric: str = "f1",
        *,
        intervals: bool = False,
        ax: Any = None,
    ) -> Any:
        """Draw a metric and the rejections over time; return the `PerformanceDisplay`.

        Parameters
        ----------
        rejector : str, list of str or None
            The rejector; by default the first one. A list gives the `ComparisonDisplay` of these.
        metric : str
            One of the columns of ``table``.
        intervals : bool
            Draw the 95% bootstrap interval of the kept objects' metric.
        ax : matplotlib Axes, sequence of them or None
            Where to draw; by default a new figure. The ``axes_`` of another display: over it.
        """
        plots = extra("transcendent.plots", "plots")
        name = next(iter(self.answers)) if rejector is None else rejector
        display = plots.PerformanceDisplay if isinstance(name, str) else plots.ComparisonDisplay
        return display.from_backtest(self, name, metric, intervals=intervals).plot(ax)

    def __repr__(self) -> str:
        listing = self._listing()
        short = replace(listing, head=[_SHORT.get(text, text) for text in listing.head])
        title, *notes = (textwrap.fill(visible(line), WIDTH) for line in (headline(self), *self._undefined()))
        return "\n".join([title, short.as_text(), *notes])

    def _repr_html_(self) -> str:
        return self._listing().as_html(headline(self), self._undefined())

    def _listing(self) -> Listing:
        groups = shown_groups(self.pos_label)
        keys = [key for keys in groups.values() for key in keys]
        summary = self.summary()
        return Listing(
            head=["rejector", *(text for keys in groups.values() for text in keys.values())],
            rows=[[name, *(figure(summary[key][i]) for key in keys)] for i, name in enumerate(self.answers)],
            groups=[(text, len(keys)) for text, keys in groups.items()],
        )

    def _keys(self, name: str, values: AnyArray) -> dict[str, AnyArray]:
        """Return key columns with a row for each rejector, period and value."""
        n, p, k = len(self.answers), len(self.periods), len(values)
        return {
            "rejector": np.repeat(list(self.answers), p * k),
            "period": np.tile(np.repeat(self.periods, k), n),
            name: np.tile(values, n * p),
        }

    def _decision_columns(self, name: str) -> dict[str, AnyArray]:
        answer = self.answers[name]
        return {
            "rejector": np.full(len(self.y), name),
            "row": self.rows,
            "period": self.period,
            "y": self.y,
            "label": answer.labels,
            "accepted": answer.accepted,
            "credibility": answer.credibility,
            "confidence": answer.confidence,
            "votes": np.full(len(self.y), -1) if answer.votes is None else answer.votes,
        }

    @cached_property
    def _actual(self) -> IntArray:
        return encode_labels(self.y, self.classes, "y")

    @cached_property
    def _predicted(self) -> dict[str, IntArray]:
        return {name: encode_labels(d.labels, self.classes, "labels") for name, d in self.answers.items()}

    @cached_property
    def _metrics(self) -> dict[str, dict[str, FloatArray]]:
        """Metrics of each rejector as (periods, subsets) arrays, computed in blocks to save memory."""
        blocks = list(chunks(len(self.periods), max(1, _BLOCK_CELLS // len(self.classes) ** 2)))
        metrics = {}
        for name in self.answers:
            parts = [subset_metrics(self._confusions(name, block), self.positive) for block in blocks]
            metrics[name] = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return metrics

    def _confusions(self, name: str, periods: slice, kept: AnyArray | None = None) -> AnyArray:
        """Return `confusions` of one rejector in some periods; ``kept`` may be shares of the objects."""
        actual, predicted = self._actual, self._predicted[name]
        kept = self.answers[name].accepted if kept is None else kept
        counts = [
            confusions(actual[rows], predicted[rows], kept[rows], len(self.classes))
            for rows in self._rows_of_periods[periods]
        ]
        return np.array(counts)

    def _pooled(self, name: str, kept: AnyArray) -> dict[str, dict[str, float]]:
        """Return metrics of all periods together by subset; ``kept`` may be shares of the objects."""
        counts = confusions(self._actual, self._predicted[name], kept, len(self.classes))
        return by_subset(subset_metrics(counts, self.positive))

    def _undefined(self) -> list[str]:
        """Return notes on periods with undefined F1, which the area under time leaves out."""
        empty = [i for i, rows in enumerate(self._rows_of_periods) if not len(rows)]
        lines = [f"no objects in {some([self.periods[i] for i in empty], 4)}"] if empty else []
        for name in self.answers:
            for subset in SUBSETS:
                undefined = self.aut(name, "f1", subset).undefined
                if missing := [self.periods[i] for i in undefined if i not in empty]:
                    lines.append(f"{name}: F1 of {subset} is undefined in {some(missing, 4)}")
        return lines

    @cached_property
    def _rows_of_periods(self) -> list[IntArray]:
        return rows_by_code(self.period, len(self.periods))

    @cached_property
    def _summary(self) -> dict[str, AnyArray]:
        rows = [self._summary_row(name) for name in self.answers]
        names: dict[str, AnyArray] = {"rejector": np.array(list(self.answers))}
        return names | {key: np.array([row[key] for row in rows]) for key in rows[0]}

    def _summary_row(self, name: str) -> dict[str, float]:
        answer = self.answers[name]
        overall, at_15 = self._pooled(name, answer.accepted), self.at_rejection(name, 0.15)
        row = {f"aut_f1_{subset}": self.aut(name, "f1", subset).value for subset in SUBSETS}
        row |= {f"{metric}_{s}": overall[s][metric] for metric in ("f1", "error") for s in SUBSETS}
        review = review_metrics(self.confusions[name].sum(axis=0), self.positive)
        row |= {
            "rejection_rate": overall["rejected"]["share"],
            "positives_rejected": float(review.get("positives_rejected", np.nan)),
            "detections_rejected": float(review.get("detections_rejected", np.nan)),
            "positives_missed": float(review.get("positives_missed", np.nan)),
            "f1_reviewed": float(review["f1_reviewed"]),
            "errors_caught": overall["rejected"]["share_of_errors"],
            "caught_at_15": at_15["rejected"]["share_of_errors"],
            "f1_kept_at_15": at_15["kept"]["f1"],
        }
        curves = [curve for curve in self.risk_coverage(name) if len(curve.risk)]
        weights = [len(curve.risk) for curve in curves]
        for key in ("aurc", "excess_aurc", "augrc"):
            row[key] = float(np.average([getattr(curve, key) for curve in curves], weights=weights))
        return row


def headline(result: Backtest) -> str:
    """Return one line with the numbers of objects and periods, and the positive class."""
    span = f"{result.periods[0]} to {result.periods[-1]}"
    title = f"{counted(len(result.y), 'object')} in {counted(len(result.periods), 'period')}, {span}"
    return title if result.pos_label is None else f"{title}; positive is {result.pos_label!r}"


def shown_groups(pos_label: Any) -> dict[str, dict[str, str]]:
    """Return the columns of the summary to show, with headings, by group."""
    return _SHOWN if pos_label is not None else _SHOWN | {"rejected of": {"rejection_rate": "all"}}


def _read_labelled(path: Path, rejectors: Iterable[str]) -> dict[str, dict[str, AnyArray]]:
    """Return the labelled objects of each rejector; an empty dict without the file."""
    if not path.exists():
        return {}
    stored = extra("pyarrow.parquet", "frames").read_table(path)
    keys = ("row", "label", "known", "probability", "audited")
    columns = {key: as_text_array(np.asarray(stored[key])) for key in keys}
    own = {name: np.asarray(stored["rejector"]) == name for name in rejectors}
    return {name: {key: column[rows] for key, column in columns.items()} for name, rows in own.items()}


def as_frame(columns: dict[str, AnyArray], library: str) -> Any:
    """Return columns as a pandas or polars DataFrame."""
    if library not in ("pandas", "polars"):
        raise ValueError(f"library must be 'pandas' or 'polars', not {library!r}.")
    return extra(library, "frames").DataFrame(columns)


def as_text_array(values: AnyArray) -> AnyArray:
    """Return an array of text with a text type instead of objects."""
    return np.array(values.tolist()) if values.dtype == object else values
