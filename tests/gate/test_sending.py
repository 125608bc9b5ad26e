"""A client sends again and in parts, and never takes silence for an accepted object."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent.errors import GateError
from transcendent.gate import GateClient, client

BUSY = 503, {"retry-after": "2"}, {"detail": "too many requests are waiting"}
LIMITS = {"objects": 1000, "bytes": 8 << 20}


class Scripted:
    """A gate that gives the answers of a script, and then decides; object ids are whole numbers."""

    def __init__(self, script=(), limits=LIMITS, said=LIMITS):
        self.script, self.limits, self.said, self.sent = list(script), limits, said, []

    def answer(self, method, body):
        if method == "GET":
            return 200, {}, {"limits": self.said}
        if self.script:
            return self.script.pop(0)
        objects = json.loads(body)["objects"]
        if len(objects) > self.limits["objects"] or len(body) > self.limits["bytes"]:
            return 413, {}, {"detail": "too large"}
        self.sent.append(len(objects))
        decisions = [{"id": each["id"], "accepted": True} if each["values"] else None for each in objects]
        errors = [
            {"field": f"objects[{i}].values", "id": each["id"], "message": "no."}
            for i, each in enumerate(objects)
            if not each["values"]
        ]
        return (422 if errors else 200), {}, {"decisions": decisions, "errors": errors, "detail": "bad"}

    @contextmanager
    def served(self, **options):
        """A client of this gate."""
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                status, headers, said = gate.answer(self.command, body)
                written = json.dumps(said).encode()
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(written))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(written)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        with HTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                with GateClient(f"http://127.0.0.1:{server.server_port}", **options) as made:
                    yield made
            finally:
                server.shutdown()
                thread.join()


@pytest.fixture
def waits(monkeypatch):
    """The seconds that clients would have waited."""
    found = []
    monkeypatch.setattr(client.time, "sleep", found.append)
    return found


def objects(n):
    return [{"id": str(i), "values": [i + 0.5]} for i in range(n)]


def names(decisions):
    return [each["id"] for each in decisions]


def test_a_busy_gate_is_asked_again_after_the_time_it_names(waits):
    gate = Scripted([BUSY, (502, {}, {}), (504, {"retry-after": "999"}, {})])
    with gate.served() as sender:
        assert names(sender.decide_objects(objects(3))) == ["0", "1", "2"]
    assert waits[0] == 2
    assert 1 <= waits[1] <= 2
    assert waits[2] == 30
    assert gate.sent == [3]


@pytest.mark.parametrize("unanswered", ["raise", "hold", "reject"])
def test_objects_without_an_answer_are_never_accepted(waits, unanswered):
    gate = Scripted([BUSY] * 5)
    with gate.served(unanswered=unanswered) as sender:
        if unanswered == "raise":
            with pytest.raises(GateError, match="503: too many requests"):
                sender.decide_objects(objects(2))
        else:
            got = sender.decide_objects(objects(2))
            rejected = {"accepted": False, "answered": False, "label": None, "credibility": None}
            for name, each in zip("01", got, strict=True):
                assert (
                    each is None if unanswered == "hold" else each.items() >= {"id": name, **rejected}.items()
                )
        assert sender.unanswered_objects == objects(2)
        assert (len(waits), len(gate.script)) == (3, 1)
        gate.script.clear()
        assert names(sender.decide_objects(sender.unanswered_objects)) == ["0", "1"]
        assert sender.unanswered_objects == []


def test_a_gate_that_cannot_be_reached(waits):
    with GateClient("http://127.0.0.1:1", unanswered="hold", retries=1) as sender:
        assert sender.decide_objects(objects(2)) == [None, None]
        assert sender.decide_objects(objects(200)) == [None] * 200  # needs the limits of the gate
        assert len(waits) == 2
        with pytest.raises(GateError):
            sender.model()


def test_refusals_are_not_repeated(waits):
    for status in (400, 401, 403, 500):
        gate = Scripted([(status, {}, {"detail": "no"})])
        with gate.served(unanswered="reject") as sender, pytest.raises(GateError, match=f"^{status}: no"):
            sender.decide_objects(objects(1))
    assert waits == []
    with pytest.raises(ValueError, match="unanswered must be 'raise', 'hold' or 'reject', not 'accept'"):
        GateClient("http://127.0.0.1:1", unanswered="accept")


def test_large_batches_are_split_by_the_limits_of_the_gate():
    limits = {"objects": 300, "bytes": 6000}
    gate = Scripted(limits=limits, said=limits)
    with gate.served() as sender:
        assert names(sender.decide_objects(objects(1000))) == list(map(str, range(1000)))
        assert sender.decide_objects([]) == []
    assert sum(gate.sent) == 1000
    assert min(gate.sent[:-2]) > 120  # as many as fit
    gate = Scripted(limits=limits)  # another, such as a proxy's
    with gate.served() as sender:
        assert names(sender.decide_objects(objects(1000))) == list(map(str, range(1000)))
        with pytest.raises(GateError, match="413: too large"):
            sender.decide_objects([{"id": "0", "values": [0.1] * 5000}])


@pytest.fixture(scope="module")
def unconnected():
    with GateClient("http://127.0.0.1:1") as sender:
        yield sender


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 9), st.integers(60, 200))
def test_each_request_is_within_the_limits_and_no_object_is_lost(unconnected, lengths, most, size):
    texts = ["x" * length for length in lengths] + ["y" * client._SMALL]
    unconnected._again = lambda *_: {"limits": {"objects": most, "bytes": size}}
    sizes = unconnected._sizes(texts)
    assert sum(sizes) == len(texts)
    for n in sizes:
        part, texts = texts[:n], texts[n:]
        body = '{"objects":[' + ",".join(part) + "]}"
        assert 0 < n <= most
        assert len(body) <= size or n == 1


def test_bad_objects_of_all_parts_are_named_and_the_others_are_decided(waits):
    limits = {"objects": 100, "bytes": 8 << 20}
    sent = objects(250)
    sent[7]["values"] = sent[130]["values"] = []
    bad = pytest.raises(GateError, match="422: 2 of 250 objects cannot be decided")
    with Scripted(limits=limits, said=limits).served() as sender, bad as error:
        sender.decide_objects(sent)
    assert [each["field"] for each in error.value.errors] == ["objects[7].values", "objects[130].values"]
    assert [i for i, each in enumerate(error.value.decisions) if each is None] == [7, 130]


def test_answers_before_a_failure_are_not_lost(waits):
    limits = {"objects": 100, "bytes": 8 << 20}
    fine = 200, {}, {"decisions": [{"id": str(i), "accepted": True} for i in range(100)]}
    for unanswered in ("raise", "reject"):
        with Scripted([fine, *[BUSY] * 4], said=limits).served(unanswered=unanswered) as sender:
            try:
                got = sender.decide_objects(objects(250))
            except GateError as error:
                got = error.decisions
            assert names(got[:100]) == list(map(str, range(100)))
            assert not any(each and each["accepted"] for each in got[100:])
            assert sender.unanswered_objects == objects(250)[100:]


@pytest.mark.parametrize(
    "said", [["a page"], {"decisions": []}, {"decisions": [{"id": "9", "accepted": True}] * 3}, {"ok": True}]
)
def test_what_is_not_about_these_objects_is_no_answer(waits, said):
    """A proxy may answer 200 with something else."""
    with Scripted([(200, {}, said)] * 4).served(unanswered="reject") as sender:
        assert not any(each["accepted"] for each in sender.decide_objects(objects(3)))
        assert sender.unanswered_objects == objects(3)
    with Scripted([(200, {}, said)] * 4).served() as sender, pytest.raises(GateError, match="is it a gate"):
        sender.decide_objects(objects(3))
