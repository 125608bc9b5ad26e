"""The page: what is on it, that it holds together, and that nothing hostile or foreign is in it."""

import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partialmethod
from html import escape
from html.parser import HTMLParser
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from transcendent import CrossConformalEvaluator, InductiveEvaluator, RejectionBudget
from transcendent.decisions import Decisions
from transcendent.errors import MissingExtraError
from transcendent.report import render_report, write_report
from transcendent.temporal import backtest, compare
from transcendent.temporal.result import Backtest

mpl.use("Agg")

pytestmark = pytest.mark.slow

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = "<script>alert('x')</script>&\"$\\frac"


class Page(HTMLParser):
    """Tags with their attributes and the text of the page, whose tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words, self.styles = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.styles if "style" in self.open[-1:] else self.words).append(data)

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def random_backtest(
    n=2000, periods=12, classes=("benign", "malware"), rejectors=("ICE",), pos_label=None, seed=0, **manifest
):
    rng = np.random.default_rng(seed)
    classes = np.array(sorted(classes))
    period = np.sort(rng.integers(periods, size=n))
    actual = rng.integers(len(classes), size=n)
    answers = {}
    for name in rejectors:
        predicted = np.where(rng.random(n) < 0.2, rng.integers(len(classes), size=n), actual)
        credibility = rng.random(n) * np.where(predicted == actual, 1, 0.4)
        answers[name] = Decisions(classes[predicted], credibility > 0.15, credibility, credibility, classes)
    return Backtest(
        periods=tuple(str(np.datetime64("2020-01") + i) for i in range(periods)),
        period=period,
        rows=np.arange(n),
        y=classes[actual],
        answers=answers,
        classes=classes,
        pos_label=pos_label,
        manifest={"period": "month", "biases": {}, "random_state": 7} | manifest,
    )


@pytest.fixture(scope="module")
def result():
    """A real one, with a period that has no objects."""
    rng = np.random.default_rng(0)
    month = np.sort(rng.integers(14, size=3000))
    month = month[month != 9]
    y = rng.integers(2, size=len(month))
    X = np.array([[0.0] * 6, [1.5] * 6])[y] + rng.normal(size=(len(y), 6)) * (1 + month[:, None] / 5)
    rejectors = {
        "ICE": InductiveEvaluator(LogisticRegression()),
        "CCE": CrossConformalEvaluator(LogisticRegression(), cv=5),
    }
    times = np.datetime64("2020-01") + month
    return backtest(rejectors, X, y, times, train="2020-07", allow=("few_positives", "class_windows"))


@pytest.fixture(scope="module")
def page(result):
    return render_report(result)


@pytest.fixture
def undrawn(monkeypatch):
    """Draw no figures, which takes most of the time of a page, for tests of its words."""
    monkeypatch.setattr("transcendent.report.figures._drawn", lambda *_: ("<svg></svg>",) * 2)


def test_the_verdict_comes_first_and_the_rest_in_order(page):
    text = Page(page).text
    order = [
        "ICE would have rejected",
        "objects a month to look at",
        "At 15% rejected in every month",
        "of the errors caught",
        "Staffing",
        "Over time",
        "Error and coverage",
        "In numbers",
        "Checks for bias",
        "What these numbers do not promise",
        "How it was made",
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_the_table_has_the_numbers_of_the_summary(result, page):
    summary = result.summary()
    table = page[: page.index('id="differences-caption"')]
    rows = re.findall(r'<tr><th scope="row">(ICE|CCE)</th>(.*?)</tr>', table)
    assert [name for name, _ in rows] == ["ICE", "CCE"]
    for i, (_, row) in enumerate(rows):
        shown = re.findall(r"<td[^>]*>([^<]*)</td>", row)
        assert shown[0] == f"{summary['rejection_rate'][i]:.1%}"
        assert shown[1] == f"{summary['positives_rejected'][i]:.1%}"
        assert shown[3:5] == [f"{summary[key][i]:.3f}" for key in ("f1_baseline", "f1_kept")]
        assert shown[8] == f"{summary['errors_caught'][i]:.1%}"
        assert shown[-1] == f"{summary['aurc'][i]:.4f}"


def test_nothing_is_asked_for_from_elsewhere(page):
    parsed = Page(page)
    assert not {"script", "iframe", "object", "embed", "img", "base", "form"} & {
        tag for tag, _ in parsed.tags
    }
    assert all(href.startswith(("#", "data:")) for href in parsed.attributes("href"))
    assert not parsed.attributes("src") + parsed.attributes("xlink:href")
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on")]
    for foreign in ("http://", "https://", "url(", "@import", "//"):
        assert foreign not in page.replace("<!doctype html>", "")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in [attrs for _, attrs in parsed.tags]


def test_identifiers_are_unique_and_references_lead_somewhere(page):
    parsed = Page(page)
    identifiers = parsed.attributes("id")
    assert len(identifiers) == len(set(identifiers))
    references = [href[1:] for href in parsed.attributes("href") if href.startswith("#")]
    assert set(references + parsed.attributes("aria-labelledby")) <= set(identifiers)


def test_figures_take_the_colours_and_fonts_of_the_page(page):
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert drawings.count("<svg") == 10  # wide and narrow: staffing, both and each over time, and risk
    assert not re.findall(r"#[0-9a-f]{6}\b|font-family|<metadata|<style|<image", drawings)
    assert "currentColor" in drawings
    assert {f"var({name})" for name in re.findall(r"(--[a-z]+): #", page)} >= set(
        re.findall(r"var\([a-z-]+\)", drawings)
    )


def test_headings_go_down_one_level_at_a_time_and_tables_and_figures_have_captions(page):
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.count("<table") == page.count("<caption") == 5
    assert page.count("<figure") == page.count("<figcaption") == 5
    assert '<html lang="en">' in page
    assert "<title>Backtest of ICE and 1 other rejector</title>" in page


def test_differences_are_those_of_compare_and_need_enough_periods(result, page):
    table = page[page.index('id="differences-caption"') :]
    cells = re.findall(r"<td>([^<]*)<br><small>([^<]*)</small></td>", table)
    found = compare(result, result, rejectors=("ICE", "CCE"), at=0.15)
    shown = ("errors_caught", "f1_kept", "error_kept", "positives_rejected")
    for (middle, ends), metric in zip(cells, shown, strict=True):
        at, scale = found.metrics.index(metric), 1 if metric == "f1_kept" else 100
        values = [float(each.replace("−", "-")) for each in (middle, *ends.strip("()").split(" to "))]
        expected = [scale * column[at] for column in (found.difference, found.low, found.high)]
        np.testing.assert_allclose(values, expected, atol=0.051 if scale == 100 else 0.00051)
    assert "differences-caption" not in render_report(random_backtest(periods=5, rejectors=("a", "b")))


def test_the_same_backtest_gives_the_same_bytes(result, page, tmp_path):
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert render_report(result) == page
    reopened = Backtest.load(result.save(tmp_path))
    assert render_report(reopened) == page


def test_drawing_leaves_no_figures_behind(result):
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums(), dict(mpl.rcParams)
    render_report(result)
    assert (plt.get_fignums(), dict(mpl.rcParams)) == before


def test_the_file_is_written_at_once_or_not_at_all(result, page, tmp_path, monkeypatch):
    path = write_report(result, str(tmp_path / "new" / "page.html"))
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    monkeypatch.setattr("os.replace", _fail)
    with pytest.raises(OSError, match="no space"):
        write_report(result, path, title="Another")
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def _fail(*_):
    raise OSError("no space")


@pytest.mark.usefixtures("undrawn")
def test_writing_the_page_is_shown_to_someone_who_watches(tmp_path, monkeypatch, capsys):
    small = random_backtest(300, 3)
    write_report(small, tmp_path / "page.html")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("transcendent._utils.parallel.progress.DELAY", 0.0)
    write_report(small, tmp_path / "page.html", verbose=False)
    assert capsys.readouterr().err == ""
    write_report(small, tmp_path / "page.html")
    assert "writing the page [" in capsys.readouterr().err


def test_rejectors_and_abbreviations_are_explained_before_the_figures(page):
    text = Page(page).text
    said = [
        "ICE judges the answers of LogisticRegression",
        "CCE judges the answers",
        "Credibility : how well",
    ]
    for words in (*said, "F1 : harmonic mean", "AURC : area under"):
        assert text.index("of the errors caught") < text.index(words) < text.index("Staffing")
    assert "set for the best F1 of calibration objects with at most 15% rejected" in text
    assert "a vote of 5 inductive conformal evaluators" in text
    terms = re.findall(r"<dfn>(.*?)</dfn>: (.*?)\.", render_report(random_backtest(pos_label="malware")))
    assert [term for term, _ in terms] == ["F1", "AURC"]
    assert "for class malware" in terms[0][1]


@pytest.mark.usefixtures("undrawn")
def test_classes_never_seen_in_training_are_marked():
    names = [f"family {i:03}" for i in range(30)]
    result = random_backtest(4000, classes=names, new_classes=[names[3], names[29]])
    (answer,) = result.answers.values()
    y = np.where(np.isin(result.y, names[20:]), names[3], result.y)
    y[: len(names)] = names  # of these, ten are too rare to have a row of their own
    page = render_report(replace(result, y=y, answers={"ICE": answer}))
    assert re.findall(r'<th scope="row">([^<]*) <span class="new">new</span></th>', page) == [names[3]]
    assert "30 classes, 2 of them new after training" in page
    assert "so every answer about it is wrong (2 of 30 classes)." in page
    without = render_report(random_backtest(classes=names))
    assert "new after training" not in without
    assert '<span class="new">' not in without


@pytest.mark.usefixtures("undrawn")
def test_new_classes_of_a_real_backtest_are_marked_as_its_labels_are(tmp_path):
    rng = np.random.default_rng(0)
    month, y = np.repeat(np.arange(8), 150), rng.integers(2, size=1200)
    y[(month > 5) & (rng.random(1200) < 0.3)] = 7
    rows, times = rng.normal(size=(1200, 3)) + y[:, None], np.datetime64("2020-01") + month
    given = {"train": "2020-05", "allow": ("few_positives", "class_windows"), "folder": tmp_path}
    result = backtest(InductiveEvaluator(LogisticRegression()), rows, y, times, **given)
    for one in (result, Backtest.load(tmp_path)):
        assert re.findall(r'<th scope="row">([^<]*) <span class="new">', render_report(one)) == ["7"]


@pytest.mark.usefixtures("undrawn")
def test_a_title_of_ones_own():
    page = render_report(random_backtest(), title="Spam filter, 2020")
    assert "<title>Spam filter, 2020</title>" in page
    assert "<h1>Spam filter, 2020</h1>" in page


def test_hostile_names_are_text_everywhere():
    named = f"_{HOSTILE}"
    result = random_backtest(
        classes=(HOSTILE, f"b{HOSTILE}"),
        rejectors=(named, "{{ 7 * 7 }}", "恶意\n\x00\ud800"),
        biases={HOSTILE: HOSTILE},
        rejectors_={named: HOSTILE},
        train=HOSTILE,
        retrain=HOSTILE,
    )
    result = replace(result, periods=tuple(f"{i:02}{HOSTILE}" for i in range(len(result.periods))))
    page = render_report(result, title=HOSTILE)
    parsed = Page(page)
    page.encode()
    assert "<script" not in page.lower()
    assert f"<title>{escape(HOSTILE, quote=False)}</title>" in page.replace("&#39;", "'").replace(
        "&#34;", '"'
    )
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert all("&lt;" in drawing for drawing in drawings)
    for drawing in (drawings[0], drawings[2], drawings[-1]):  # staffing, all over time, and risk
        assert " _&lt;" in drawing  # in the legend too
    assert "{{ 7 * 7 }}" in parsed.text
    assert "49" not in re.findall(r"<summary>(.*?) over time", page)
    assert "恶意" in parsed.text


@pytest.mark.usefixtures("undrawn")
def test_a_page_about_many_classes():
    names = [f"family {i:03}" for i in range(45)]
    page = Page(render_report(random_backtest(4000, classes=names)))
    assert "accuracy of the kept answers is" in page.text
    assert "The 20 largest of 45 classes are shown; the others share a row." in page.text
    assert "25 other classes" in page.text
    assert "Macro F1 of" in page.text
    assert "Error rate of the answers ICE keeps" in page.text


def test_one_period_and_one_rejector():
    page = Page(render_report(random_backtest(periods=1)))
    assert "objects in 1 month" in page.text
    assert "All 1 month together" in page.text
    assert "Backtest of ICE" in page.text


def test_what_is_undefined_is_a_dash_with_the_reason():
    result = random_backtest()
    (name, answer), *_ = result.answers.items()
    empty = (result.period == 3) | (result.period == 5)
    everything = replace(answer[~empty], accepted=np.zeros((~empty).sum(), dtype=bool))
    result = replace(
        result,
        period=result.period[~empty],
        rows=result.rows[~empty],
        y=result.y[~empty],
        answers={name: everything},
    )
    page = render_report(result)
    assert '<td title="undefined: nothing is kept">–</td>' in page
    assert '<td title="undefined: there are no objects">–</td>' in page
    assert "– is undefined: nothing is kept." in page
    assert "nan" not in Page(page).text.split()
    perfect = replace(
        result, answers={name: replace(everything, labels=result.y, accepted=result.y != "malware")}
    )
    page = render_report(perfect)
    assert "The detector made no error" in page
    assert '<td title="undefined: there are no errors">–</td>' in page
    assert '<td title="undefined: class malware neither occurs nor is predicted">–</td>' in page


def test_a_positive_class_that_never_comes():
    result = random_backtest(classes=("adware", "benign", "malware"), pos_label="malware")
    (answer,) = result.answers.values()
    tame = np.where(result.y == "malware", "benign", result.y)
    labels = np.where(answer.labels == "malware", "adware", answer.labels)
    page = Page(render_report(replace(result, y=tame, answers={"ICE": replace(answer, labels=labels)})))
    assert "F1 is undefined, since class malware neither occurs nor is predicted." in page.text
    assert "of class malware rejected – undefined: there are none" in page.text
    assert "Kept: undefined in every month." in page.text


@pytest.mark.usefixtures("undrawn")
def test_biases_and_runaway_periods_are_said_beside_the_verdict():
    result = random_backtest(biases={"few_positives": "4 periods have fewer than 10."})
    (answer,) = result.answers.values()
    away = replace(answer, accepted=answer.accepted & (result.period != 8))
    page = Page(render_report(replace(result, answers={"ICE": away})))
    assert "Not evenly: in 1 of 12 months" in page.text
    assert page.text.index("A check for bias fired") < page.text.index("Over time")
    assert "Few positives 4 periods have fewer than 10." in page.text
    assert "No check fired" in Page(render_report(random_backtest())).text
    unchecked = random_backtest()
    del unchecked.manifest["biases"]
    assert "does not record whether it was checked" in Page(render_report(unchecked)).text


@pytest.mark.usefixtures("undrawn")
def test_the_manifest_is_there_and_retraining_is_said():
    page = Page(
        render_report(
            random_backtest(
                train="2020",
                retrain="Retraining(labels=50)",
                seconds={"ICE": {"fit": 1.25, "decide": 0.5}},
                data="ab12",
            )
        )
    )
    assert "trained on objects older than 2020 · retrained with Retraining(labels=50)" in page.text
    assert "It learns from labels (Retraining(labels=50))" in page.text
    assert "ICE: fit 1.25 s and decide 0.50 s" in page.text
    assert "ab12" in page.text
    window = Page(render_report(random_backtest(train=["2019", "2020"], retrain="None")))
    assert "trained on 2019 up to 2020" in window.text
    assert "It learns" not in window.text


@pytest.mark.usefixtures("undrawn")
def test_more_rejectors_than_can_be_drawn():
    page = Page(render_report(random_backtest(600, 3, rejectors=[f"rejector {i}" for i in range(60)])))
    assert "52 more rejectors not drawn." in page.text
    assert "The first 8 of 60 rejectors are drawn." in page.text
    assert "10 more rejectors not shown." in page.text


@pytest.mark.usefixtures("undrawn")
def test_many_periods_are_merged_and_this_is_said():
    page = render_report(random_backtest(5000, 400))
    text = Page(page).text
    assert "There are too many months to draw one by one: they are in 134 groups of 3" in text
    assert "The 400 months are shown in 134 groups of 3." in text
    assert "2020-01 to 2020-03" in text
    assert "in 400 months" in text


@pytest.mark.parametrize(
    ("periods", "classes", "rejectors", "svgs"),
    [pytest.param(160, 4, 9, 22, marks=pytest.mark.full), (1_000, 150, 1, 6)],
)
def test_the_page_stays_small_whatever_the_data(periods, classes, rejectors, svgs, monkeypatch):
    """With the most that is drawn in one figure, and the most figures; and with much that is not drawn."""
    rough = partialmethod(Backtest.intervals, n_resamples=20)  # as large when drawn, and quicker
    monkeypatch.setattr(Backtest, "intervals", rough)
    names = [f"<{i:03}" + 'ä&"<' * 60 + f"{i:03}>" for i in range(150)]
    result = random_backtest(3_000, periods, classes=names[:classes], rejectors=names[:rejectors])
    result.manifest.update(rejectors=dict.fromkeys(names, "<" * 10**5), biases={"x": "<" * 10**5})
    result = replace(result, periods=tuple(f"{i:05}" + "long" * 40 for i in range(periods)))
    page = render_report(result)
    assert page.count("<svg") == svgs
    assert len(page.encode()) < 3_000_000


def test_what_is_missing_is_named(monkeypatch):
    for module in ("jinja2", "matplotlib.style"):
        with monkeypatch.context() as patch, warnings.catch_warnings():
            patch.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match=r"transcendent\[report\]"):
                render_report(random_backtest(300, 3))


FRAME = """<!doctype html><body><script>
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 4000px; border: 0";
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const shown = [...page.querySelectorAll("figure svg")].filter(svg => svg.checkVisibility());
  document.title = [root.scrollWidth, shown.length, page.querySelector(".verdict").offsetHeight].join(" ");
};
frame.srcdoc = PAGE;
document.body.append(frame);
</script>"""


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium to open the page in")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_without_scrolling_sideways(width, tmp_path):
    long = "x" * 300
    result = random_backtest(classes=(f"a{long}", f"b{long}"), rejectors=("ICE", long), data=long)
    page = json.dumps(render_report(result, title=long)).replace("</", "<\\/")
    (tmp_path / "frame.html").write_text(FRAME.replace("WIDTH", str(width)).replace("PAGE", page), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    dump = ["--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()]
    done = subprocess.run(
        ["chromium", *options, *dump], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", done.stdout)
    assert found, done.stdout[-500:]
    wide, figures, verdict = map(int, found.groups())
    assert wide <= width
    assert figures == 3  # staffing, both rejectors, and risk; those of each are folded
    assert verdict > 20


@pytest.mark.usefixtures("undrawn")
def test_alarms_are_on_the_page_if_monitors_watched():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    X = rng.normal(size=(3000, 2)) + y[:, None]
    X[2200:] *= 0.3
    times = np.repeat(np.arange("2024-01", "2024-11", dtype="datetime64[M]"), 300)
    ice = {
        HOSTILE: InductiveEvaluator(LogisticRegression()),
        "other": InductiveEvaluator(LogisticRegression(C=0.1)),
    }
    given = {"train": "2024-05", "verbose": False, "allow": ["duplicates"]}
    watched = Page(render_report(backtest(ice, X, y, times, **given, monitor=100)))
    said = " ".join(watched.words)
    assert "Alarms without labels" in said
    assert "2024-08" in said
    assert "at most 1 in 100" in said
    assert "Alarms without labels" not in render_report(backtest(ice, X, y, times, **given))


def test_several_seeds_are_reported_with_their_spread():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    X = rng.normal(size=(3000, 2)) + y[:, None]
    X[2200:] *= 0.3
    times = np.repeat(np.arange("2024-01", "2024-11", dtype="datetime64[M]"), 300)
    ice = InductiveEvaluator(LogisticRegression())
    given = {"train": "2024-05", "verbose": False, "allow": ["duplicates"], "monitor": 100}
    rejectors = {"held": RejectionBudget(ice, rate=0.1), "ICE": ice}
    repeated = backtest(rejectors, X, y, times, **given, random_state=[4, 7], title="Seeds")
    page = render_report(repeated)
    text = Page(page).text
    assert "<title>Seeds</title>" in page
    assert "On average over 2 seeds: held would have rejected 10% of 1,800 objects in 6 months (" in text
    assert "ICE judges" in text
    assert "and rejects of each month the 10% that it trusts least." in text
    assert "The budget fixes how many are rejected" in text
    assert "30 objects a month to look at" in text
    assert re.search(r"2024-0\d( to 2024-\d\d)?, with 2 of 2 seeds", text)
    summary = repeated.summary()
    own = (summary["rejector"] == "ICE") & (summary["metric"] == "errors_caught")
    mean, half = summary["mean"][own].item(), (summary["high"] - summary["low"])[own].item() / 2
    assert f"<td>{mean:.1%}<br><small>± {100 * half:.1f}</small></td>" in page
    assert "Shaded: range over seeds." in text


@pytest.mark.usefixtures("undrawn")
def test_hours_follow_the_minutes_that_are_given():
    result = random_backtest(pos_label="malware")
    assert "hours at 90 minutes each" in render_report(result, minutes=90)
    for minutes in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="time to look at one object"):
            render_report(result, minutes=minutes)
    with pytest.raises(TypeError, match="not dict"):
        render_report({})


@pytest.mark.usefixtures("undrawn")
def test_a_guarantee_that_one_class_pays_for_says_so():
    result = random_backtest(pos_label="malware")
    (answer,) = result.answers.values()
    first = np.cumsum(result.y == "malware") <= 900
    accepted = (result.y != "malware") | ~first
    page = Page(render_report(replace(result, answers={"ICE": replace(answer, accepted=accepted)})))
    share = (~accepted).sum() / (result.y == "malware").sum()
    assert f"Class malware pays for it: {share:.0%} of its objects are rejected" in page.text
