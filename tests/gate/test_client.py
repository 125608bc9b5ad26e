"""The client of a gate: forms of rows, errors, and every method."""

import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import httpx2
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier

from tests.gate.conftest import gate_of, tables_on
from transcendent import InductiveEvaluator, save
from transcendent.artifacts import open_artifact
from transcendent.errors import GateError
from transcendent.gate import GateClient, read_labelled

NAMES = [f"f{i}" for i in range(12)]


@pytest.fixture(scope="module")
def boosted(problem):
    X, y = problem
    detector = LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, random_state=0)
    return InductiveEvaluator(detector, random_state=0).fit(pd.DataFrame(X[:600], columns=NAMES), y[:600])


@pytest.fixture(scope="module")
def gate(server, boosted, tmp_path_factory):
    """A gate whose detector accepts names and missing values."""
    folder = tmp_path_factory.mktemp("client")
    save(boosted, folder / "artifact")
    trusted = " ".join(open_artifact(folder / "artifact").types_to_trust())
    given = {"labels": "grey", "trusted": trusted}
    with tables_on(server) as url, gate_of(url, folder / "artifact", folder, **given) as shared:
        yield shared


@pytest.fixture(scope="module")
def frame(problem):
    frame = pd.DataFrame(problem[0][1000:1050], columns=NAMES)
    frame.iloc[::4, 3] = np.nan
    frame.iloc[::3, 5] = 0
    return frame


def test_all_forms_of_rows_get_the_same_decisions(gate, boosted, frame):
    expected = boosted.decide(frame)
    ids = range(50)  # which need not be texts
    sparse = sp.csr_matrix(frame.to_numpy())
    with gate.client("forms") as client:
        for rows in (
            frame,
            frame[NAMES[::-1]],
            frame.astype("float32").astype("float64").where(frame.isna(), frame),
            pl.from_pandas(frame, nan_to_null=True),
            frame.to_numpy(),
            frame.to_numpy().tolist(),
            sparse,
            sparse.tocoo(),
            sp.csr_array(sparse),
        ):
            got = client.decide(ids, rows)
            assert [each["id"] for each in got] == [str(i) for i in ids]
            assert [each["label"] for each in got] == expected.labels.tolist()
            assert [each["credibility"] for each in got] == expected.credibility.tolist()
        assert client.decide(["one"], frame.to_numpy()[0])[0]["credibility"] == expected.credibility[0]
        assert client.decide([], frame[:0]) == []
        with pytest.raises(ValueError, match="3 ids for 50 rows"):
            client.decide(["a", "b", "c"], frame)
        for missing in (None, np.nan, pd.NA, b"one"):
            with pytest.raises(ValueError, match="the id at position 1 is"):
                client.decide(["one", missing], frame[:2])
        with pytest.raises(ValueError, match="masked array"):
            client.decide(["one"], np.ma.masked_array(frame.to_numpy()[:1], mask=frame.isna()[:1]))


def test_every_method(gate, boosted, frame):
    rejected = frame[boosted.decide(frame).rejected]
    n = len(rejected)
    assert n >= 4
    sender = gate.client("sender")
    sender.decide([f"every {i}" for i in range(n)], rejected)
    model = sender.model()
    types = {"kinds": ["number"] * 12, "dtypes": ["float64"] * 12}
    assert model["features"] == {"count": 12, "names": NAMES, **types}
    assert (model["classes"], model["rejector"]) == (["goodware", "malware"], "InductiveEvaluator")
    ann, root = gate.client("ann", "analyst"), gate.client("root", "operator")
    waiting = ann.counts()["waiting"]
    claimed = ann.claim(3)
    assert (claimed["held"], claimed["next_free"]) == (0, None)
    first, second, third = (each["id"] for each in claimed["items"])
    assert {each["id"] for each in ann.held()} == {first, second, third}
    assert len(ann.release()) == 3
    assert [each["id"] for each in ann.claim(3)["items"]] == [first, second, third]
    assert ann.renew([first]) == [first]
    others = gate.client("bob", "analyst").claim(100)
    assert (len(others["items"]), others["held"]) == (waiting - 3, 3)
    assert sorted(ann.renew()) == sorted([first, second, third])
    written = ann.resolve(first, "grey", reason="seen", note="twice")
    assert (written["action"], written["label"], written["author"]) == ("label", "grey", "ann")
    assert ann.skip(second, reason="hard", note="ask bob")["action"] == "skip"
    assert ann.release([third]) == [third]
    assert ann.undo(second, note="no")["action"] == "undo"
    shown = ann.show(first)
    assert (shown["labelled"], shown["history"][0]["note"], shown["model"]) == (
        True,
        "twice",
        model["digest"],
    )
    counted = ann.counts()
    assert (counted["waiting"], counted["labelled"]) == (waiting - 1, 1)
    labelled = read_labelled(io.BytesIO(root.labelled()))
    headers = {"authorization": f"Bearer {gate.token('resumer', 'operator')}", "range": "bytes=999999999-"}
    whole = httpx2.get(f"{gate.address}/v1/labelled", headers=headers)  # parts of it would not fit together
    assert (whole.status_code, len(whole.content)) == (200, int(whole.headers["content-length"]))
    assert (labelled.y.tolist(), labelled.X.shape) == (["grey"], (1, 12))
    since = {when: read_labelled(io.BytesIO(root.labelled(since=when))) for when in ("2026-01-01", "9999-01")}
    assert [len(found.y) for found in since.values()] == [1, 0]
    with pytest.raises(GateError, match="422"):
        root.labelled(since="soon")
    assert root.undo(first)["author"] == "root"


def test_an_error_has_the_status_the_fields_and_the_decisions(gate, frame):
    client = gate.client("wrong")
    objects = [{"id": f"e{i}", "values": row} for i, row in enumerate(frame.to_numpy()[1:4].tolist())]
    objects[1]["values"][2] = "two"
    with pytest.raises(GateError) as error:
        client.decide_objects(objects)
    found = error.value
    assert str(found).startswith(
        "422: 1 of 3 objects cannot be decided; errors says why. objects[1].values[2]: "
    )
    assert (found.status, [each["id"] for each in found.errors]) == (422, ["e1"])
    assert [each and each["id"] for each in found.decisions] == ["e0", None, "e2"]
    with pytest.raises(GateError, match="no such feature") as error:
        client.decide(["a"], frame[:1].rename(columns={"f3": "g3"}))
    assert error.value.errors[0]["field"] == "objects[0].features.g3"
    with pytest.raises(GateError, match="403: the role client may not do this") as error:
        client.claim()
    assert (error.value.status, error.value.errors, error.value.decisions) == (403, [], None)
    with GateClient(gate.address) as nobody, pytest.raises(GateError, match="401: a token is needed"):
        nobody.model()
    ann = gate.client("bea", "analyst")
    for call, status in (
        (lambda: ann.show(1), 404),
        (lambda: ann.skip(1), 404),
        (lambda: ann.resolve(1, "x" * 300), 422),
        (lambda: ann.claim(101), 422),
    ):
        with pytest.raises(GateError) as error:
            call()
        assert error.value.status == status


@pytest.mark.parametrize("body", [b"<h1>Bad Gateway</h1>", b"[]", b"3", b'"no"', json.dumps({}).encode()])
def test_the_answer_of_a_proxy_is_an_error_too(body):
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(502)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with (
                GateClient(f"http://127.0.0.1:{server.server_port}") as client,
                pytest.raises(GateError, match=r"^502: ") as error,
            ):
                client.model()
            assert (error.value.status, error.value.errors) == (502, [])
        finally:
            server.shutdown()
            thread.join()


def test_an_infinite_number_affects_only_its_object(gate, frame):
    rows = frame[:3].copy()
    rows.iloc[1, 2] = np.inf
    with pytest.raises(GateError, match="1 of 3 objects") as error:
        gate.client("infinite").decide(["a", "b", "c"], rows)
    assert error.value.errors[0]["field"] == "objects[1].features.f2"
    assert [each is None for each in error.value.decisions] == [False, True, False]


def test_a_token_may_come_from_a_file_and_must_look_like_one(gate):
    with GateClient(gate.address, gate.token("from a file", "client") + "\n") as client:
        assert client.model()
    for token in ("tg_1 2", "tg_\n1", "tg_\xe9"):
        with pytest.raises(ValueError, match="not a token"):
            GateClient(gate.address, token)
    with pytest.raises(ValueError, match=r"a URL such as http://127\.0\.0\.1:8040, not '127"):
        GateClient("127.0.0.1:8040")


def test_a_gate_that_does_not_answer():
    with (
        GateClient("http://127.0.0.1:1") as client,
        pytest.raises(GateError, match=r"127\.0\.0\.1:1 does not answer: .*refused") as error,
    ):
        client.model()
    assert (error.value.status, error.value.errors, error.value.decisions) == (0, [], None)
