"""Explanations of items: true to what was decided, beside labels that the reader may see."""

import asyncio
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sqlalchemy import text

from tests.gate import frames
from tests.gate.test_scores import written
from transcendent import CrossConformalEvaluator, InductiveEvaluator, save
from transcendent.cli.app import app
from transcendent.errors import ArtifactError, GateError, GateSettingsError
from transcendent.gate import explanations, known_items, reference, wire
from transcendent.gate import model as gate_model
from transcendent.gate.bodies import RefusedError
from transcendent.gate.cutoff import Cutoff, decide_by
from transcendent.gate.database import drop_months, month_of
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.explanations import Explanations, ItemExplainer, _bounded
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.known_items import KnownItems
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine
from transcendent.gate.reference import Reference


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Save a rejector and load it as a gate does."""
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)

    def loaded(rejector, **given):
        save(rejector, tmp_path / "artifact", **given)
        return gate_model.load_model(tmp_path / "artifact")

    return loaded


@pytest.fixture
def model(artifact, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    return gate_model.load_model(artifact)


def store(engine, model, X, decisions=None, cutoff=None, prefix="o"):
    """Keep all objects, and return their items by object id."""
    names = [f"{prefix}{i}" for i in range(len(X) if not sp.issparse(X) else X.shape[0])]
    decisions = model.decide(X) if decisions is None else decisions
    draw, senders = Draw(b"key", 1.0), ["sensor"] * len(names)
    keep(engine, list(to_keep(register(engine, model), draw, names, senders, X, decisions, cutoff).values()))
    with engine.connect() as connection:
        found = dict(connection.execute(text("SELECT object_id, id FROM payload")).all())
    return {name: found[name] for name in names}


def label(quarantine, labels, who="ann"):
    """Label items."""
    while claimed := quarantine.claim(who, 100).items:
        for each in claimed:
            if each["id"] in labels:
                quarantine.resolve(who, each["id"], labels[each["id"]])
    quarantine.release(who)


class Setting:
    """An explainer of a database, with a clock that stands still."""

    def __init__(self, engine, model, quarantine=None, file=None, load=None) -> None:
        self.engine, self.clock = engine, Clock()
        self.quarantine = quarantine or Quarantine(engine, labels=["unclear"], max_held=10_000)
        self.known = KnownItems(engine, self.quarantine, file, self.clock)
        given = self.known, lambda: [model], load or (lambda _: pytest.fail("nothing is to be loaded"))
        self.explainer = ItemExplainer(engine, self.quarantine, *given, self.clock)

    def explain(self, item, who=None):
        return self.explainer.explain(item, who)

    def later(self):
        self.clock.now += known_items.REFRESHED


@pytest.fixture
def setting(engine, model):
    return Setting(engine, model)


@pytest.fixture
def filled(engine, model, problem):
    """60 items, in the order of the rows."""
    return list(store(engine, model, problem[0][1000:1060]).values())


@pytest.fixture
def rejected(filled, model, problem):
    """Those of the items that are rejected, which analysts see at once."""
    return [filled[i] for i in np.flatnonzero(model.decide(problem[0][1000:1060]).rejected)]


def near(found):
    return {each["item"] for each in found["nearest"]}


def test_an_explanation_has_what_was_decided_and_the_labelled_items_it_is_like(
    setting, model, problem, filled
):
    X, y = problem[0][1000:1060], problem[1][1000:1060]
    label(setting.quarantine, dict(zip(filled[:40], y[:40].tolist(), strict=True)))
    decisions = model.decide(X)
    for i in (0, 45):
        found = setting.explain(filled[i])
        assert wire.ExplainedItem(**found).model_dump().keys() == found.keys()
        assert (found["label"], found["accepted"]) == (decisions.labels[i], decisions.accepted[i])
        assert list(found["p_values"].values()) == decisions.p_values[i].tolist()
        assert near(found) <= set(filled[:40]) - {filled[i]}
        for each in found["nearest"]:
            place = filled.index(each["item"])
            assert (each["id"], each["label"]) == (f"o{place}", y[place])
        assert found["text"].startswith(found["sentence"][:40])
        assert found["score"]["method"] == "exact"
        assert found["notes"] == [explanations._FEW_KNOWN]
        assert found["score"]["base_of"] == "no values"
        short = [each for each in found["requirements"] if each["has"] < each["needs"]]
        assert bool(short) != found["accepted"]
    with pytest.raises(NoItemError):
        setting.explain(7)


def test_without_labels_it_is_said_that_there_is_nothing_to_compare_with(setting, filled):
    found = setting.explain(filled[0])
    assert found["nearest"] == []
    assert found["notes"] == [explanations._NOTHING_KNOWN]
    assert found["text"].endswith(explanations._NOTHING_KNOWN)


def test_only_labels_by_people_that_stand_and_are_classes_are_known(setting, engine, filled):
    quarantine, (good, bad, unclear, undone, outside, *_) = setting.quarantine, filled
    label(quarantine, {good: "goodware", bad: "malware", unclear: "unclear", undone: "malware"})
    quarantine.undo("ann", undone)
    OutsideLabels(engine).add("sandbox", item=outside, label="malware", source="sandbox", teach=True)
    assert near(setting.explain(filled[-1])) == {good, bad}
    label(quarantine, {filled[9]: "malware"})
    assert near(setting.explain(filled[-1])) == {good, bad}
    setting.later()
    assert near(setting.explain(filled[-1])) == {good, bad, filled[9]}


def test_a_label_that_changes_changes_the_neighbour(setting, filled):
    label(setting.quarantine, {filled[0]: "goodware"})
    assert setting.explain(filled[1])["nearest"][0]["label"] == "goodware"
    setting.quarantine.undo("ann", filled[0])
    label(setting.quarantine, {filled[0]: "malware"})
    setting.later()
    assert setting.explain(filled[1])["nearest"][0]["label"] == "malware"


def test_deleted_objects_do_not_stay_in_memory(setting, engine, filled):
    label(setting.quarantine, dict.fromkeys(filled[:3], "malware"))
    setting.explain(filled[5])
    setting.known.forget()
    assert setting.known._remembered is not None
    delete(engine, ToDelete("object", "o1"), "root", "asked")
    setting.known.forget()
    assert setting.known._remembered is None
    assert near(setting.explain(filled[5])) == {filled[0], filled[2]}
    delete(engine, ToDelete("object", "o0"), "root", "asked")  # and nobody looks for deletions
    setting.later()
    assert near(setting.explain(filled[5])) == {filled[2]}
    setting.clock.now += known_items._UNUSED
    setting.known.forget()
    assert setting.known._remembered is None


def test_examples_of_dropped_months_are_known_and_their_items_are_not_explained(
    setting, engine, model, problem
):
    old = Setting(engine, model)
    items = store(engine, model, problem[0][1000:1003])
    label(old.quarantine, dict.fromkeys(items.values(), "malware"))
    with engine.connect() as connection:
        names = connection.execute(text("SELECT to_char(now() + interval '1 month', 'YYYY-MM')")).scalar_one()
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("transcendent.gate.database.check_over", lambda *_: None)
        drop_months(engine, month_of(names))
    new = store(engine, model, problem[0][1003:1005], prefix="n")
    found = setting.explain(new["n0"])
    assert near(found) == set(items.values())
    with pytest.raises(NoItemError):
        setting.explain(items["o0"])


def test_only_new_features_are_read_and_what_is_prepared_is_kept(setting, model, filled):
    label(setting.quarantine, dict.fromkeys(filled[:5], "malware"))
    before = setting.known.of(model, None)
    assert setting.known.of(model, None) is before
    setting.later()
    assert setting.known.of(model, None) is before
    label(setting.quarantine, {filled[6]: "malware"})
    setting.later()
    assert setting.known.of(model, None).items == [filled[6], *before.items]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [("MAX_KNOWN", 4, 4), ("MAX_CELLS", 36, 3), ("MAX_BYTES", 2 * (1 + 8 * 12), 2), ("_LOOKED_AT", 5, 5)],
)
def test_memory_is_bounded_by_number_and_size_and_the_newest_stay(
    setting, model, filled, monkeypatch, name, value, kept
):
    for item in filled[:8]:
        label(setting.quarantine, {item: "malware"})
    monkeypatch.setattr(known_items, name, value)
    assert setting.known.of(model, None).items == filled[7 : 7 - kept : -1]


def test_items_of_models_with_other_columns_are_not_compared(setting, engine, load, problem, filled):
    X, y = problem
    narrow = load(InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:500, :5], y[:500]))
    other = store(engine, narrow, X[1000:1005, :5], prefix="narrow")
    label(setting.quarantine, dict.fromkeys([*other.values(), *filled[:2]], "malware"))
    assert near(setting.explain(filled[5])) == set(filled[:2])
    (first, *rest) = other.values()
    assert near(Setting(engine, narrow).explain(first)) == set(rest)


def cutoff_of(engine, model, rank, second, share=0.5):
    sql = """INSERT INTO cutoff (model, rank, second, share, decided, rejected)
    VALUES (:model, :rank, :second, :share, 0, 0) RETURNING number"""
    given = {"model": register(engine, model), "rank": rank, "second": second, "share": share}
    with engine.begin() as connection:
        return connection.execute(text(sql), given).scalar_one()


@pytest.mark.parametrize("folds", [None, 3])
def test_what_is_needed_is_what_the_cutoff_of_the_item_needed(engine, load, problem, folds):
    X, y = problem
    kind = InductiveEvaluator if folds is None else CrossConformalEvaluator
    given = {} if folds is None else {"cv": folds}
    model = load(kind(LogisticRegression(), random_state=0, **given).fit(X[:500], y[:500]))
    rows, plain = X[1000:1040], model.decide(X[1000:1040])
    order = np.lexsort((plain.second_ranking, plain.ranking))
    at = order[20]
    rank, second = float(plain.ranking[at]), float(plain.second_ranking[at])
    number = cutoff_of(engine, model, rank, second)
    decisions = decide_by(Cutoff(number, rank, second, 0.5), rows, plain, b"secret")
    items = list(store(engine, model, rows, decisions, number).values())
    setting = Setting(engine, model)
    for i, item in enumerate(items):
        found = setting.explain(item)
        needs = found["requirements"]
        assert found["accepted"] == decisions.accepted[i]
        assert needs[0] == {"what": "credibility", "has": plain.ranking[i], "needs": rank}
        falls_short = any(each["has"] < each["needs"] for each in needs)
        if i == at:
            assert f"It ties with cutoff {number}" in found["notes"][-1]
        else:
            assert falls_short != found["accepted"]
        if not found["accepted"]:
            assert "among the least trusted" in found["sentence"]
        assert "(0 " not in found["sentence"]


def test_a_cutoff_without_a_rank_or_that_is_gone_is_said(engine, model, problem):
    setting, X = Setting(engine, model), problem[0][1000:1001]
    number = cutoff_of(engine, model, None, None, 0.25)
    (item,) = store(engine, model, X, cutoff=number).values()
    found = setting.explain(item)
    assert found["requirements"] == []
    assert found["notes"][-1].startswith(f"Cutoff {number} rejected 25.0% of all objects")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM cutoff"))
    found = setting.explain(item)
    assert found["requirements"] == []
    assert "no longer stored" in found["notes"][-1]


def test_frames_with_text_and_gaps_are_explained(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    _, sent, _ = frames.prepare(0, tmp_path)
    model = gate_model.load_model(tmp_path / "artifact")
    items = list(store(engine, model, sent.X).values())
    setting = Setting(engine, model)
    label(setting.quarantine, dict(zip(items[:20], map(str, sent.y[:20]), strict=True)))
    for item in items[::8]:
        found = setting.explain(item)
        assert found["metric"] == "columns"
        assert len(found["nearest"]) == 5
        assert found["notes"] == [explanations._FEW_KNOWN]
        assert {each["name"] for each in found["strange"]} <= set(sent.X)


def test_texts_are_explained_by_their_words(engine, load):
    texts = np.array(["send me money now", "the minutes of the meeting"] * 60, dtype=object)
    y = np.array(["spam", "ham"] * 60)
    detector = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model = load(InductiveEvaluator(detector, random_state=0).fit(texts, y))
    sent = np.array(["money for the meeting", "the minutes now", "send the minutes"], dtype=object)
    items = list(store(engine, model, sent).values())
    setting = Setting(engine, model)
    label(setting.quarantine, {items[1]: "ham", items[2]: "spam"})
    found = setting.explain(items[0])
    assert near(found) == set(items[1:])
    assert "money" in found["only_here"]


@pytest.mark.parametrize("fitted", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("sent", [sp.csr_matrix, np.asarray])
def test_sparse_and_dense_rows_are_one(engine, load, fitted, sent):
    rng = np.random.default_rng(0)
    X = (rng.random((300, 30)) < 0.2).astype(float)
    y = np.where(X[:, :3].sum(axis=1) > 0, 1, 0)
    model = load(InductiveEvaluator(BernoulliNB(), random_state=0).fit(fitted(X[:200]), y[:200]))
    items = list(store(engine, model, sent(X[200:])).values())
    setting = Setting(engine, model)
    label(setting.quarantine, dict(zip(items[:50], map(str, y[200:250].tolist()), strict=True)))
    found = setting.explain(items[60])
    assert found["metric"] == "Jaccard"
    distances = [1 - np.sum(X[260] * row) / max(1, np.sum(np.maximum(X[260], row))) for row in X[200:250]]
    assert [each["distance"] for each in found["nearest"]] == pytest.approx(sorted(distances)[:5], abs=1e-6)
    assert {type(each["label"]) for each in found["nearest"]} == {int}


def test_a_judge_of_scores_says_what_it_cannot_compare(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    artifact, frame = written("columns", tmp_path)
    model = gate_model.load_model(artifact)
    rows = [
        {"id": str(i), "scores": {"low": a, "high": b}, "label": c} for i, (a, b, c) in frame[:9].iterrows()
    ]
    (group,) = model.read(rows).groups
    items = list(store(engine, model, group.rows).values())
    setting = Setting(engine, model)
    label(setting.quarantine, {items[1]: "benign"})
    found = setting.explain(items[0])
    assert (found["nearest"], found["score"]) == ([], None)
    assert found["p_values"].keys() == {"malicious", "benign"}
    assert found["notes"] == [explanations._SCORES_ONLY]
    wire.ExplainedItem(**found)


@pytest.fixture
def opinions(engine, model):
    return Setting(engine, model, SecondOpinions(engine, max_held=10_000))


def opine(quarantine, who, item, said):
    quarantine.claim(who, 100, opinions=True)
    quarantine.resolve(who, item, said)
    quarantine.release(who)


def test_a_label_on_which_an_opinion_is_wanted_is_not_learnt_from_an_explanation(opinions, rejected):
    wanted, agreed, asked = rejected[:3]
    label(opinions.quarantine, {wanted: "malware", agreed: "goodware"})
    opine(opinions.quarantine, "bob", agreed, "goodware")
    for analyst in ("cid", "bob", "ann"):
        found = opinions.explain(asked, analyst)
        assert near(found) == {agreed}
        assert opinions.explain(wanted, analyst)["nearest"][0]["item"] == agreed
        assert "malware" not in str([found["nearest"], found["text"].partition("nearest known")[2][:200]])
    assert near(opinions.explain(asked)) == {wanted, agreed}
    opine(opinions.quarantine, "bob", wanted, "malware")
    opinions.later()
    assert near(opinions.explain(asked, "cid")) == {wanted, agreed}


def test_a_label_that_becomes_hidden_is_hidden_at_once(opinions, rejected):
    first, second, asked = rejected[:3]
    label(opinions.quarantine, {first: "malware", second: "malware"})
    for item in (first, second):
        opine(opinions.quarantine, "bob", item, "malware")
    assert near(opinions.explain(asked, "cid")) == {first, second}
    opinions.quarantine.undo("bob", first)  # within the minute
    assert near(opinions.explain(asked, "cid")) == {second}


def test_a_label_that_is_undone_is_no_neighbour_at_once(setting, rejected):
    first, second, asked = rejected[:3]
    label(setting.quarantine, {first: "malware", second: "malware"})
    assert near(setting.explain(asked, "bob")) == {first, second}
    setting.quarantine.undo("ann", first)  # within the minute
    assert near(setting.explain(asked, "bob")) == near(setting.explain(asked)) == {second}


def test_a_model_that_is_not_served_is_loaded_if_it_can_be(engine, model, problem, filled):
    other = replace(model, digest="f" * 64)
    loads = []

    def load(number):
        loads.append(number)
        if len(loads) == 1:
            raise ArtifactError("model dddd has no artifact: add it with 'transcendent gate model add'.")
        return model

    setting = Setting(engine, other, load=load)
    with pytest.raises(
        ConflictError, match=r"does not serve and cannot load: .*'transcendent gate model add'"
    ):
        setting.explain(filled[0])
    with pytest.raises(RefusedError) as refused:
        setting.explain(filled[0])
    assert refused.value.status == 503
    setting.clock.now += explanations.LOAD_EVERY
    assert setting.explain(filled[0])["model"] == model.digest
    setting.explain(filled[1])
    assert len(loads) == 2


def test_names_of_columns_that_rows_lack_are_kept_and_shown(engine, load, problem):
    rows = sp.csr_matrix((problem[0][:1060] > 1).astype(float))
    ice = InductiveEvaluator(BernoulliNB(), random_state=0).fit(rows[:1000], problem[1][:1000])
    names = [f"permission {j}" for j in range(12)]
    model = load(ice, feature_names=names)
    setting = Setting(engine, model)
    items = list(store(engine, model, rows[1000:]).values())
    shown = setting.quarantine.show(items[0])
    assert shown["features"] == {names[j]: 1.0 for j in rows[[1000]].indices.tolist()}
    assert shown["positions"] == rows[[1000]].indices.tolist()
    assert {each["name"] for each in setting.explain(items[0])["score"]["speak_for"]} < set(names)
    # A model without names has the same columns.
    nameless = replace(model, digest="f" * 64, layout=replace(model.layout, shown_names=None))
    label(setting.quarantine, {items[1]: "malware"})
    later = store(engine, nameless, rows[1000:1001], prefix="n")["n0"]
    assert near(Setting(engine, nameless).explain(later)) == {items[1]}
    for wrong in (names[:3], ["same"] * 12):
        with pytest.raises(ValueError, match=r"different ones\) for 12 columns: pass a name of its own"):
            load(ice, feature_names=wrong)


def test_a_model_without_a_stored_artifact_is_named_with_the_ways_out(
    shared_database, artifact, model, filled, monkeypatch, capsys
):
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", shared_database)
    command = ["gate", "quarantine", "explain", str(filled[0])]
    with pytest.raises(SystemExit):
        app(command)
    said = " ".join(capsys.readouterr().err.split())
    assert f"decided by model {model.digest[:12]}, whose artifact is not in the database" in said
    assert f"transcendent gate quarantine explain {filled[0]} --artifact FILE" in said
    with pytest.raises(SystemExit):
        app([*command, "--artifact", str(artifact)])
    assert "p-values" in capsys.readouterr().out


def test_an_explanation_waits_for_no_decision_and_no_decision_for_it(engine, model, filled):
    setting = Setting(engine, model)
    done = []
    with model.lock:  # a decision that takes long
        thread = threading.Thread(target=lambda: done.append(setting.explain(filled[0])))
        thread.start()
        thread.join(30)
    assert done
    copy = setting.explainer._models[model.digest]
    assert copy.rejector is not model.rejector
    assert copy.lock is not model.lock


def test_objects_that_the_model_cannot_decide_are_left_out(setting, model, problem, filled, monkeypatch):
    label(setting.quarantine, dict.fromkeys(filled[:9], "malware"))
    asked = filled[9 + model.decide(problem[0][1009:1060]).labels.tolist().index("malware")]
    rows_from = known_items.rows_from

    def with_gap(*given, **more):
        rows = rows_from(*given, **more)
        rows[0, 3] = np.nan
        return rows

    monkeypatch.setattr(known_items, "rows_from", with_gap)
    assert len(setting.known.of(model, None).items) == 8
    assert len(near(setting.explain(asked))) == 5
    setting.known._remembered = None
    monkeypatch.setattr(gate_model.Model, "refuse_missing", lambda _, group, __: group)
    found = setting.explain(asked)
    assert found["nearest"] == []
    assert "not compared with labelled objects" in found["notes"][0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_reference_file_is_compared_with(engine, load, tmp_path, problem, kind):
    X, y = problem
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(12)])
    rejector = InductiveEvaluator(LogisticRegression(), random_state=0).fit(frame[:500], y[:500])
    model = load(rejector, notes={"id": "name"})
    table = frame[500:600].assign(verdict=y[500:600], seen="2013-04-01", name=[f"r{i}" for i in range(100)])
    table.loc[500, "verdict"] = "unclear"
    file = tmp_path / f"known.{kind}"
    table.to_csv(file, index=False) if kind == "csv" else table.to_parquet(file)
    items = list(store(engine, model, frame[1000:1010]).values())
    setting = Setting(engine, model, file=Reference(file, "verdict", "seen"))
    label(setting.quarantine, {items[1]: "malware"})
    compared = setting.known.of(model, None)
    assert compared.items == [items[1], *[None] * 99]
    np.testing.assert_allclose(np.asarray(compared.known.X)[1:], X[501:600])
    assert compared.known.labels[1:].tolist() == y[501:600].tolist()
    found = setting.explain(items[0])
    assert {each["time"][:10] for each in found["nearest"] if each["item"] is None} == {"2013-04-01"}
    assert {each["id"] for each in found["nearest"]} <= {"o1", *table["name"]}


def test_a_reference_file_of_another_kind_of_rows(load, tmp_path, problem, monkeypatch):
    X, y = problem
    model = load(InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:500], y[:500] == "malware"))
    np.savez(tmp_path / "known.npz", X=X[500:600], y=(y[500:600] == "malware").astype(int))
    found = Reference(tmp_path / "known.npz", "y", None).objects(model)
    assert {each.label for each in found} == {"True", "False"}
    monkeypatch.setattr(reference, "MAX_ROWS", 30)
    found = Reference(tmp_path / "known.npz", "y", None).objects(model)
    rows = reference.rows_from(model.layout, [each.encoded for each in found], sparse=False)
    np.testing.assert_array_equal(rows, X[500:600:4])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-10-05T12:33:57.25+00:00", "2026-10-05"),
        ("2026-10-05 00:00:00", "2026-10-05"),
        ("2026-10", "2026-10"),
        ("day 5 12:33", "day 5 12:33"),
        (201310, "201310"),
        (float("nan"), None),
    ],
)
def test_times_of_a_reference_file_are_days(given, shown):
    assert reference._time(given) == shown


def test_a_reference_file_that_does_not_fit_is_refused_at_the_start(
    engine, model, tmp_path, problem, filled, monkeypatch
):
    X, y = problem
    with pytest.raises(GateSettingsError, match="does not exist"):
        Reference(tmp_path / "none.csv", "label", None)
    np.savez(tmp_path / "narrow.npz", X=X[:50, :7], label=y[:50])
    np.savez(tmp_path / "others.npz", X=X[:50], label=np.repeat("spam", 50))
    for name, said in (("narrow", "7 columns, and the model 12"), ("others", "no label is a class")):
        with pytest.raises(GateSettingsError, match=said):
            Reference(tmp_path / f"{name}.npz", "label", None).objects(model)
    with pytest.raises(GateSettingsError, match="verdict"):
        Reference(tmp_path / "others.npz", "verdict", None).objects(model)
    found = Setting(engine, model, file=Reference(tmp_path / "narrow.npz", "label", None)).explain(filled[0])
    assert "narrow.npz cannot be used" in found["notes"][0]
    monkeypatch.setattr(reference, "MAX_FILE", 100)
    with pytest.raises(GateSettingsError, match="write a sample"):
        Reference(tmp_path / "narrow.npz", "label", None)


class Slow:
    """An explainer that waits until it may answer."""

    def __init__(self) -> None:
        self.may, self.seen, self.running, self.most = threading.Event(), [], 0, 0

    def explain(self, item, who):
        self.running += 1
        self.most = max(self.most, self.running)
        self.seen.append(item)
        self.may.wait(10)
        self.running -= 1
        if item == 13:
            raise ZeroDivisionError("quotes an object")
        return {"item": item}


def test_explanations_come_one_at_a_time_and_few_wait():
    slow = Slow()

    async def run():
        explained = Explanations(slow, timeout=10)
        tasks = [asyncio.create_task(explained.of(1, None))]
        while not slow.seen:
            await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(explained.of(item, None)) for item in range(10, 20)]
        await asyncio.sleep(0.05)
        tasks[2].cancel()  # a client that has left
        await asyncio.sleep(0.05)
        slow.may.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert first == {"item": 1}
    answered = [each["item"] for each in others if isinstance(each, dict)]
    assert answered == [10, 12, 14, 15, 16, 17]
    assert isinstance(others[3], ConflictError)
    assert "quotes" not in str(others[3])
    assert [each.status for each in others[8:]] == [503, 503]
    assert (slow.most, slow.seen) == (1, [1, 10, 12, 13, 14, 15, 16, 17])


def test_few_explanations_of_one_analyst_wait():
    slow = Slow()

    async def run():
        explained = Explanations(slow, timeout=10)
        tasks = [asyncio.create_task(explained.of(1, "eve"))]
        while not slow.seen:
            await asyncio.sleep(0.01)
        wanted = [(2, "eve"), (3, "eve"), (4, "eve"), (5, "ann"), (6, None), (7, None), (8, None)]
        tasks += [asyncio.create_task(explained.of(*each)) for each in wanted]
        await asyncio.sleep(0.05)
        slow.may.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert [item for item, each in enumerate(found, 1) if isinstance(each, RefusedError)] == [4]
    assert found[3].detail.startswith("2 explanations for you are waiting")
    assert slow.seen == [1, 2, 3, 5, 6, 7, 8]


def test_a_request_waits_for_a_limited_time():
    slow = Slow()
    with pytest.raises(RefusedError) as refused:
        asyncio.run(Explanations(slow, timeout=0.05).of(1, None))
    assert refused.value.status == 503
    slow.may.set()


def test_over_http_and_from_the_command_line(gate, problem, rejector, run):
    X, y = problem[0][1000:1100], problem[1][1000:1100]
    rejected = np.flatnonzero(rejector.decide(X).rejected)[:6]
    gate.client("sender").decide([f"told {i}" for i in rejected], X[rejected])
    analyst = gate.client("ann", "analyst")
    *claimed, last = analyst.claim(6)["items"]
    for each in claimed:
        analyst.resolve(each["id"], y[int(each["object_id"].partition(" ")[2])])
    found = analyst.explain(last["id"])
    assert near(found) == {each["id"] for each in claimed}
    assert found["sentence"].startswith("Doubted: called")
    for wrong, status in ((7, 404), (-1, 422), (2**63, 422)):
        with pytest.raises(GateError) as error:
            analyst.explain(wrong)
        assert error.value.status == status
    with pytest.raises(GateError, match="may not do this"):
        gate.client("curious").explain(last["id"])
    said = run("gate", "quarantine", "explain", str(last["id"]), "--database", gate.database)
    assert said.output == found["text"] + "\n"


@pytest.fixture
def run(artifact, monkeypatch):
    """Run a command with the gate's artifact."""
    from typer.testing import CliRunner

    from transcendent.cli.app import app

    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    monkeypatch.setenv("TRANSCENDENT_GATE_ARTIFACT", str(artifact))

    def command(*given):
        said = CliRunner().invoke(app, given)
        assert said.exit_code == 0, said.output
        return said

    return command


@pytest.mark.full
def test_decisions_are_answered_while_explanations_are_computed(gate, problem):
    X = problem[0][1000:1100]
    sender, analyst = gate.client("beside"), gate.client("reader", "analyst")
    sender.decide([f"beside {i}" for i in range(100)], X)
    item = analyst.claim(1)["items"][0]["id"]
    stop = threading.Event()

    def keep_explaining():
        while not stop.is_set():
            analyst.explain(item)

    thread = threading.Thread(target=keep_explaining)
    thread.start()
    took = []
    for i in range(200):
        started = time.perf_counter()
        sender.decide([f"timed {i}"], X[:1])
        took.append(time.perf_counter() - started)
    stop.set()
    thread.join()
    assert np.quantile(took, 0.95) < 0.5


def test_a_sentence_is_whole_although_other_texts_are_cut():
    told = _bounded({"sentence": "x" * 900, "notes": ["y" * 900], "nearest": [{"id": "z" * 900}]})
    assert told["sentence"] == "x" * 900
    assert [len(told["notes"][0]), len(told["nearest"][0]["id"])] == [300, 300]
