"""Requests that are answered together: none waits for ever, and none fails because of another."""

import asyncio
import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import current_thread
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sqlalchemy import text

from transcendent import InductiveEvaluator, save
from transcendent.errors import ArtifactError
from transcendent.gate import features as gate_features
from transcendent.gate import model as gate_model
from transcendent.gate import service as gate_service
from transcendent.gate.bodies import RefusedError
from transcendent.gate.features import Group, read_rows
from transcendent.gate.intake import Draw, register
from transcendent.gate.model import load_model
from transcendent.gate.service import Service
from transcendent.gate.serving import Serving
from transcendent.tables.layout import Layout


class Moody:
    """A slow rejector that fails on rows that begin with 13, and cannot handle 14 or 0 after that."""

    def __init__(self, rejector, seconds=0.0):
        self.rejector, self.seconds, self.calls, self.threads = rejector, seconds, [], []

    def decide(self, rows):
        self.calls.append(len(rows))
        self.threads.append(current_thread().name)
        time.sleep(self.seconds)
        if (rows[:, 0] == 13).any():
            raise RuntimeError("out of luck")
        if (rows[:, 1] == 14).any():
            raise ValueError("14 is too much")
        if (rows[:, 1] == 0).any():
            raise ValueError("0 is too little")
        return self.rejector.decide(rows)


@pytest.fixture
def start(engine, artifact, rejector, monkeypatch):
    """A function that starts a service with a moody rejector."""
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    model = load_model(Path(artifact))
    started = []

    def start_one(seconds_to_decide=0.0, **given):
        moody = replace(model, rejector=Moody(rejector, seconds_to_decide), observer=None)
        limits = {"max_objects": 100, "timeout": 20, "max_waiting": 1 << 20, **given}
        serving = Serving(moody, register(engine, moody), Draw(b"secret", 0))
        started.append(Service(engine, serving, **limits))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def body(name, row):
    """A request of one object, or of several."""
    pairs = [(name, row)] if isinstance(name, str) else zip(name, row, strict=True)
    return json.dumps({"objects": [{"id": f"{one}", "values": list(each)} for one, each in pairs]}).encode()


def answers(service, bodies):
    async def all_at_once():
        return await asyncio.gather(*(service.answer(b, "sensor") for b in bodies), return_exceptions=True)

    return asyncio.run(all_at_once())


def test_requests_that_wait_are_decided_in_one_call(start, problem):
    service = start(0.1)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(problem[0][:30])])
    assert [status for status, _ in found] == [200] * 30
    assert sum(service.serving.model.rejector.calls) == 30
    assert len(service.serving.model.rejector.calls) <= 3


async def idle(service):
    """Wait until the thread that decided is done: until then, requests go to it."""
    while service._deciding.busy:
        await asyncio.sleep(0.001)


def test_a_small_request_to_a_quick_model_is_decided_on_the_event_loop(start, problem, monkeypatch):
    monkeypatch.setattr(gate_service, "_SHORT", 60)  # also on a busy machine
    service = start()
    rows = [body(f"o{i}", row) for i, row in enumerate(problem[0][:20])]

    async def first_then_others():
        first = await service.answer(rows[0], "sensor")
        await idle(service)
        return [first, *await asyncio.gather(*(service.answer(each, "sensor") for each in rows[1:]))]

    found = asyncio.run(first_then_others())
    assert [status for status, _ in found] == [200] * 20
    assert service.serving.model.rejector.threads == ["decide", current_thread().name]
    assert service.serving.model.rejector.calls == [1, 19]


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_slow_model_and_a_large_request_never_hold_up_the_event_loop(start, problem, seconds):
    service = start(seconds)
    n = 2 if seconds else 90
    large = [body([f"{turn}-{i}" for i in range(n)], problem[0][:n]) for turn in range(3)]

    async def one_after_the_other():
        return [await service.answer(each, "sensor") for each in large]

    assert [status for status, _ in asyncio.run(one_after_the_other())] == [200] * 3
    assert service.serving.model.rejector.threads == ["decide"] * 3


def test_small_requests_that_fail_on_the_event_loop_are_handed_to_threads(start, problem, monkeypatch):
    monkeypatch.setattr(gate_service, "_SHORT", 60)  # also on a busy machine
    read = Mock(wraps=gate_service.read_objects)
    monkeypatch.setattr(gate_service, "read_objects", read)
    service = start()
    rows = problem[0][:20].copy()
    rows[7, 0] = 13

    async def first_then_others():
        await service.answer(body("first", problem[0][30]), "sensor")
        await idle(service)
        sent = (service.answer(body(f"o{i}", row), "sensor") for i, row in enumerate(rows))
        return await asyncio.gather(*sent, return_exceptions=True)

    found = asyncio.run(first_then_others())
    assert [i for i, each in enumerate(found) if isinstance(each, RuntimeError)] == [7]
    here = current_thread().name
    assert [thread for thread in service.serving.model.rejector.threads if thread == here] == [here]
    assert read.call_count == 21  # none is parsed twice


def test_a_request_that_the_model_fails_on_fails_alone(start, problem, engine, rejector):
    service = start(0.05)
    rows = problem[0][1000:1040].copy()
    rows[7, 0] = rows[21, 0] = 13
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(rows)])
    failed = [i for i, each in enumerate(found) if isinstance(each, RuntimeError)]
    assert failed == [7, 21]
    rejected = {f"o{i}" for i in range(40) if i not in failed and not rejector.decide(rows[[i]]).accepted[0]}
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT object_id FROM payload")).scalars().all()
    assert sorted(kept) == sorted(rejected)


def test_a_request_is_answered_in_time_or_refused(start, problem):
    service = start(0.5, timeout=0.1)
    (refused,) = answers(service, [body("o", problem[0][0])])
    assert isinstance(refused, RefusedError)
    assert (refused.status, str(refused)) == (503, "there was no answer within 0.1 seconds: try again.")


def test_requests_are_refused_while_too_many_wait(start, problem):
    service = start(0.3, max_waiting=2000)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(problem[0][:60])])
    refused = [each for each in found if isinstance(each, RefusedError)]
    assert 0 < len(refused) < 60
    assert {each.status for each in refused} == {503}
    assert all(status == 200 for status, _ in (each for each in found if isinstance(each, tuple)))


def test_the_duration_of_a_commit_is_known(start, problem, rejector, monkeypatch):
    service, lasted = start(), []

    def keep_slowly(*_):
        time.sleep(0.05)
        lasted.append(service.committing_for)

    monkeypatch.setattr("transcendent.gate.service.keep", keep_slowly)
    rejected = problem[0][1000:][~rejector.decide(problem[0][1000:]).accepted]
    answers(service, [body("o", rejected[0])])
    assert lasted[0] >= 0.05
    assert service.committing_for == 0


def test_close_answers_waiting_requests(start, problem, engine):
    service = start(0.2)

    async def close_meanwhile():
        asked = [
            asyncio.create_task(service.answer(body(f"o{i}", row), "sensor"))
            for i, row in enumerate(problem[0][1000:1020])
        ]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(service.close)
        return await asyncio.gather(*asked)

    found = asyncio.run(close_meanwhile())
    assert {status for status, _ in found} == {200}
    assert not service.alive


def test_missing_values_that_the_detector_needs_cost_no_call(start, problem, rejector):
    rows = problem[0][np.arange(1000) % 2000].copy()
    generator = np.random.default_rng(0)
    rows[generator.random(rows.shape) < 0.02] = np.nan
    whole = ~np.isnan(rows).any(axis=1)
    objects = [
        {"id": f"o{i}", "values": [None if value != value else value for value in row]}
        for i, row in enumerate(rows.tolist())
    ]
    service = start(max_objects=1000)
    (answer,) = answers(service, [json.dumps({"objects": objects}).encode()])
    assert (answer[0], service.serving.model.rejector.calls) == (422, [int(whole.sum())])
    said = json.loads(answer[1])
    decided = [each["accepted"] for each in said["decisions"] if each is not None]
    assert decided == rejector.decide(rows[whole]).accepted.tolist()
    assert [each["id"] for each in said["errors"]] == [f"o{i}" for i in np.flatnonzero(~whole)]
    first = np.flatnonzero(~whole)[0]
    column = np.flatnonzero(np.isnan(rows[first]))[0]
    expected = f"feature {column} is missing (null), which the detector cannot handle."
    assert said["errors"][0]["message"] == expected


def test_many_bad_rows_cost_a_limited_number_of_calls(start, problem):
    rows = problem[0][np.arange(1000)].copy()
    rows[np.random.default_rng(0).permutation(1000)[:20], 1] = 14
    service = start(max_objects=1000)
    (answer,) = answers(service, [body(*zip(*enumerate(rows), strict=True))])
    calls = service.serving.model.rejector.calls
    assert len(calls) <= 1 + 1 + 4 * 10
    assert sum(calls) <= 8 * 1000
    said = json.loads(answer[1])
    bad = {each["id"]: each["message"] for each in said["errors"]}
    assert {f"{i}" for i in np.flatnonzero(rows[:, 1] == 14)} <= bad.keys()
    assert any(
        "too many objects of this request to find out which: send it again" in message
        for message in bad.values()
    )
    assert [each is None for each in said["decisions"]] == [f"{i}" in bad for i in range(1000)]


@pytest.mark.parametrize("bad", [[0], [999], [17, 18], [3, 600]])
def test_one_or_two_bad_rows_are_found_among_a_thousand(start, problem, bad):
    rows = problem[0][np.arange(1000)].copy()
    rows[bad, 1] = 14
    service = start(max_objects=1000)
    (answer,) = answers(service, [body(*zip(*enumerate(rows), strict=True))])
    errors = json.loads(answer[1])["errors"]
    assert [each["id"] for each in errors] == [f"{i}" for i in bad]
    assert {each["message"] for each in errors} == {"the detector cannot handle it: 14 is too much"}


def test_requests_do_not_wait_for_the_search_in_another(start, problem):
    rows = problem[0][np.arange(1000)].copy()
    rows[::7, 1] = 14
    service = start(0.02, max_objects=1000)

    async def ask():
        searched = asyncio.create_task(service.answer(body(*zip(*enumerate(rows), strict=True)), "sensor"))
        await asyncio.sleep(0.1)
        for i, row in enumerate(problem[0][:5]):
            await service.answer(body(f"o{i}", row), "sensor")
        early = not searched.done()
        return early, await searched

    early, (status, _) = asyncio.run(ask())
    assert (early, status) == (True, 422)


def test_a_bad_request_among_many_costs_them_few_calls(start, problem):
    rows = problem[0][:64].copy()
    rows[40, 1] = 14
    service = start(0.02)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(rows)])
    assert [i for i, (status, _) in enumerate(found) if status != 200] == [40]
    assert len(service.serving.model.rejector.calls) <= 2 * (1 + 2 * 6)  # in two turns at most


@pytest.mark.parametrize(
    ("bad", "calls"),
    [
        (14, 2),  # which stands out
        (0, 2 + 2 * 6),
    ],
)
def test_bad_requests_among_many_cost_them_a_limited_number_of_calls(start, problem, bad, calls):
    rows = problem[0][:64].copy()
    rows[5::7, 1] = bad
    service = start(0.01)
    found = answers(service, [body(f"o{i}", row) for i, row in enumerate(rows)])
    assert [status for status, _ in found] == [422 if i % 7 == 5 else 200 for i in range(64)]
    threads = service.serving.model.rejector.threads
    assert threads.count("decide") <= 3 * calls  # in three turns at most
    assert threads.count("retry") <= 64


def test_good_requests_wait_for_no_search(start, problem):
    bad = problem[0][:100].copy()
    bad[::3, 1] = 0
    service, done = start(0.01), []

    async def ask(name, sent):
        status, _ = await service.answer(sent, "sensor")
        done.append((name, status))

    async def ask_all():
        good = [ask("good", body(f"o{i}", row)) for i, row in enumerate(problem[0][:20])]
        searched = [ask("bad", body(*zip(*enumerate(bad), strict=True))) for _ in range(3)]
        await asyncio.gather(*searched, *good)

    asyncio.run(ask_all())
    assert done == [("good", 200)] * 20 + [("bad", 422)] * 3


def test_imputed_features_may_be_missing_and_others_may_not(problem, tmp_path, monkeypatch):
    X, y = problem
    some = ColumnTransformer([("imputed", SimpleImputer(), [1, 2, 7])], remainder="passthrough")
    for detector, needed in (
        (make_pipeline(some, LinearSVC(random_state=0)), {0, 3, 4, 5, 6, 8, 9, 10, 11}),
        (make_pipeline(SimpleImputer(), LinearSVC(random_state=0)), set()),
        (LinearSVC(random_state=0), set(range(12))),
    ):
        save(InductiveEvaluator(detector, random_state=0).fit(X[:500], y[:500]), tmp_path / "artifact")
        monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
        model = load_model(tmp_path / "artifact")
        rows, problems = X[:13].copy(), {}
        rows[np.arange(12), np.arange(12)] = np.nan
        left = model.refuse_missing(Group(np.arange(13), rows), problems)
        assert problems.keys() == needed
        assert {*left.places.tolist()} == {*range(13)} - needed
        model.decide(left.rows)


def test_an_artifact_is_tried_out_before_it_is_loaded(artifact, monkeypatch):
    def refuse(opened, trusted):
        raise ArtifactError("it may be crafted")

    monkeypatch.setattr(gate_model, "try_out", refuse)
    with pytest.raises(ArtifactError, match="it may be crafted"):
        load_model(Path(artifact))


class Picky:
    """A rejector that needs some features, and counts its calls."""

    def __init__(self, needed):
        self.needed, self.calls = needed, 0

    def decide(self, rows):
        self.calls += 1
        rows = rows.toarray() if sp.issparse(rows) else rows
        if np.isnan(rows[:, self.needed]).any():
            raise ValueError("NaN")


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("width", [1, 5, 100, 4000])
def test_features_that_objects_must_have_are_found_in_a_limited_number_of_calls(width, is_sparse):
    for needed in (
        slice(None),
        slice(0, 1),
        slice(0, None, 2),
        slice(width // 2, width // 2 + 5),
        slice(0, 0),
    ):
        expected = np.zeros(width, dtype=bool)
        expected[needed] = True
        picky = Picky(needed)
        found = gate_model._needed(picky, Layout(width), is_sparse, False)
        assert picky.calls <= gate_model._TRIALS + 1
        assert not (found & ~expected).any()
        if width <= 100 or expected.sum() <= 5:
            np.testing.assert_array_equal(found, expected)


def test_the_features_found_to_be_needed_do_not_depend_on_time(monkeypatch):
    moment = count(0, 1000)
    monkeypatch.setattr(time, "monotonic", lambda: next(moment))
    found = gate_model._needed(Picky(slice(0, None, 2)), Layout(60), False, False)
    np.testing.assert_array_equal(found, np.arange(60) % 2 == 0)


def some_of(width, step):
    return ColumnTransformer([("some", step, list(range(0, width, 2)))], remainder="passthrough")


@pytest.mark.parametrize(
    ("detector", "needs_all"),
    [
        (LinearSVC(), True),
        (make_pipeline(StandardScaler(), None, LinearSVC()), True),
        (make_pipeline(StandardScaler(), PCA(3), LinearSVC()), True),
        (GradientBoostingClassifier(n_estimators=2), True),
        (FrozenEstimator(LinearSVC()), True),
        (make_pipeline(SimpleImputer(), LinearSVC()), False),
        (make_pipeline(some_of(12, SimpleImputer()), LinearSVC()), False),
        (make_pipeline(FunctionTransformer(np.nan_to_num), LinearSVC()), False),
        (make_pipeline(VarianceThreshold(), LinearSVC()), False),
        (BaggingClassifier(make_pipeline(SimpleImputer(), LinearSVC()), 2), False),
        (CalibratedClassifierCV(make_pipeline(some_of(12, SimpleImputer()), LinearSVC())), False),
        (RandomForestClassifier(2), False),
        (DummyClassifier(), False),
    ],
)
def test_a_detector_that_declares_to_need_all_features_does(problem, detector, needs_all):
    X, y = problem[0][:200], problem[1][:200]
    fitted = getattr(detector, "estimator", detector) if isinstance(detector, FrozenEstimator) else detector
    fitted.fit(X, y)
    assert gate_model._needs_all(detector) == needs_all
    if needs_all:
        for column in range(12):
            row = X[:1].copy()
            row[0, column] = np.nan
            with pytest.raises(ValueError, match="NaN"):
                detector.predict(row)


def test_a_wide_detector_that_needs_all_features_is_recognised_in_few_calls():
    picky = Picky(slice(None))
    assert gate_model._needed(picky, Layout(10**4), False, True).all()
    assert picky.calls == 2
    wrong = Picky(slice(0, 5))
    assert gate_model._needed(wrong, Layout(1000), False, True).tolist() == [True] * 5 + [False] * 995


def test_the_detector_decides_about_features_not_found_to_be_needed(problem, tmp_path, monkeypatch):
    X, y = np.tile(problem[0][:500], 12), problem[1][:500]  # 144 columns
    detector = make_pipeline(some_of(144, SimpleImputer()), LinearSVC(C=1e-4, random_state=0))
    rejector = InductiveEvaluator(detector, random_state=0).fit(X, y)
    save(rejector, tmp_path / "artifact")
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)
    model = load_model(tmp_path / "artifact")
    assert 0 < model.needed[False].sum() < 72
    rows, problems = X[np.zeros(144, dtype=int)].copy(), {}
    rows[np.arange(144), np.arange(144)] = np.nan
    left = model.refuse_missing(Group(np.arange(144), rows), problems)
    assert all(place % 2 for place in problems)
    lacking_imputed = np.flatnonzero(left.places % 2 == 0)
    assert len(lacking_imputed) == 72
    model.decide(left.rows[lacking_imputed])
    last = Group(np.array([0]), rows[[143]])
    assert model.search(model.refuse_missing(last, problems), problems) == []
    assert "NaN" in problems[0].message


NEARLY_JSON = {
    "NaN": ("NaN", "values[1]", "NaN is not a number."),
    "Infinity": ("-Infinity", "values[1]", "-Infinity is not a number."),
    "1e999": ("1e999", "values[1]", "numbers must be finite."),
    "400 digits": ("9" * 400, "values[1]", "numbers must be finite."),
    "5000 digits": ("-" + "9" * 5000, "values[1]", "numbers must be finite."),
    "half a character": ('"\\ud800"', "values[1]", "'\\ud800' is not a number."),
}


@pytest.mark.parametrize(("value", "field", "message"), NEARLY_JSON.values(), ids=NEARLY_JSON)
def test_deviations_from_json_affect_only_their_object(start, problem, rejector, value, field, message):
    rows = problem[0][:3].tolist()
    rows[1][1] = "@"
    sent = json.dumps({"objects": [{"id": f"o{i}", "values": row} for i, row in enumerate(rows)]})
    (answer,) = answers(start(), [sent.replace('"@"', value).encode()])
    said = json.loads(answer[1])
    assert answer[0] == 422
    assert said["errors"] == [{"field": f"objects[1].{field}", "id": "o1", "message": message}]
    expected = rejector.decide(problem[0][[0, 2]])
    assert [each and each["accepted"] for each in said["decisions"]] == [
        bool(expected.accepted[0]), None, bool(expected.accepted[1]),
    ]  # fmt: skip


def test_halves_of_characters_and_constants_elsewhere(start, problem):
    good = json.dumps({"id": "good", "values": problem[0][0].tolist()})
    objects = (
        '{"id": "\\ud800", "values": []}', '{"id": NaN, "values": []}', "NaN",
        '{"id": "a", "values": Infinity}',
        '{"id": "a", "features": {"\\udfff": 1}}', '{"id": "a", "\\udfff": 1}',
        '{"id": "a", "positions": [NaN, 1e999], "values": [1, 1]}',
    )  # fmt: skip
    (answer,) = answers(start(), [f'{{"objects": [{",".join(objects)}, {good}]}}'.encode()])
    said = json.loads(answer[1])
    assert [each["field"] for each in said["errors"]] == [
        "objects[0].id", "objects[1].id", "objects[2]", "objects[3].values", "objects[4].features",
        "objects[5].\\udfff", "objects[6].positions[0]",
    ]  # fmt: skip
    assert said["errors"][0]["id"] == "\\ud800"
    assert [each and each["id"] for each in said["decisions"]] == [None] * 7 + ["good"]


def test_no_row_is_left_to_decide(start):
    service = start()
    missing = json.dumps({"id": "a", "values": [None] * 12})
    (answer,) = answers(service, [f'{{"objects": [{missing}, NaN]}}'.encode()])
    assert (answer[0], json.loads(answer[1])["decisions"]) == (422, [None, None])
    assert service.serving.model.rejector.calls == []


@pytest.mark.parametrize("sent", [b"{", b'{"objects": [NaN}', b'{"objects": ["\xff"]}', b"[" * 10**5])
def test_bodies_that_are_not_json_are_refused(start, sent):
    (refused,) = answers(start(), [sent])
    assert (refused.status, str(refused)[:22]) == (400, "the body is not JSON: ")


def test_reading_leniently_takes_time_in_proportion_to_the_body(start):
    service = start(max_waiting=1 << 30)

    def seconds(n):
        sent = b'{"objects": [{"id": "a", "values": [NaN' + b", 0" * n + b"]}]}"
        started = time.process_time()
        (answer,) = answers(service, [sent])
        assert answer[0] == 422
        return time.process_time() - started

    assert seconds(2_400_000) < 3 * 8 * seconds(300_000)


@pytest.mark.parametrize(("width", "searches"), [(100, 1), (5000, 0)])
def test_a_misspelt_name_is_searched_once_and_not_among_many(width, searches, monkeypatch):
    searched = []
    monkeypatch.setattr(gate_features, "suggestion", lambda name, _: searched.append(name) or ".")
    layout = Layout(width, [f"feature number {i} of many" for i in range(width)])
    objects = [{"id": str(i), "features": {"feature nmber 7 of many": 1}} for i in range(1000)]
    parsed = read_rows(layout, objects)
    assert len(searched) == searches
    assert len(parsed.problems) == 1000
    assert max(len(each.message) for each in parsed.problems.values()) < 200
