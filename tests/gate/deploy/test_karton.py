"""The example for Karton: its service, with Karton's router, Redis, S3 and a gate."""

import configparser
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from tests.gate.processes import free_port
from transcendent import InductiveEvaluator, save

SCRIPT = Path(__file__).parents[3] / "examples/karton_gate.py"
KEYS = ("karton", "karton-secret")
BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server"),
    # of boto3, which Karton imports
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@contextmanager
def running(log, *command, **environment):
    with log.open("ab") as file:
        given = {"stdout": file, "stderr": file, "env": {**os.environ, **environment}}
        process = subprocess.Popen([str(each) for each in command], **given)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def wait_for(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


@pytest.fixture
def config(tmp_path):
    """A configuration of Karton with a Redis and an S3 of its own."""
    redis, s3, objects = free_port(), free_port(), tmp_path / "s3"
    objects.mkdir()
    parser = configparser.ConfigParser()
    parser["redis"] = {"host": "127.0.0.1", "port": str(redis)}
    parser["s3"] = dict(zip(("access_key", "secret_key"), KEYS, strict=True)) | {
        "address": f"http://127.0.0.1:{s3}",
        "bucket": "karton",
    }
    with (tmp_path / "karton.ini").open("w") as file:
        parser.write(file)
    log, listen = tmp_path / "log", f"127.0.0.1:{s3}"
    serve = ("serve", "s3", "--addr", listen, "--auth-key", ",".join(KEYS), objects)
    with ExitStack() as stack:
        stack.enter_context(
            running(
                log, "redis-server", "--port", redis, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path
            )
        )
        stack.enter_context(running(log, BIN / "rclone", *serve, RCLONE_CONFIG=str(tmp_path / "rclone.conf")))
        wait_for(redis)
        wait_for(s3)
        yield tmp_path / "karton.ini"


def samples(n, seed):
    """Files of bytes below a number, which says of which kind they are; near 180 that is hard to tell."""
    rng = np.random.default_rng(seed)
    tops = rng.integers(100, 257, n)
    return [rng.integers(0, top, 400, np.uint8, endpoint=False).tobytes() for top in tops], tops


def features_of(contents):
    rows = [np.bincount(np.frombuffer(each, np.uint8) >> 4, minlength=16) / len(each) for each in contents]
    return np.array(rows)


@pytest.fixture
def gate(start_gate, tmp_path):
    contents, tops = samples(400, 0)
    y = np.where(tops < 180, "text", "binary")
    save(
        InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(features_of(contents), y),
        tmp_path / "files.transcendent",
    )
    return start_gate(tmp_path / "files.transcendent")


def test_samples_go_on_with_the_decision_of_the_gate(gate, config, tmp_path):
    from karton.core import Producer, Resource, Task
    from karton.core.backend import KartonBackend, KartonBind
    from karton.core.config import Config

    contents, _ = samples(12, 1)
    given = {"GATE_ADDRESS": gate.address, "GATE_TOKEN": gate.token("karton", "client")}
    settings = Config(str(config))
    backend = KartonBackend(settings)
    bind = KartonBind(
        identity="test.reader", info=None, version="5.0.0", persistent=True, service_version=None,
        filters=[{"type": "sample", "stage": "decided"}], is_async=False,
    )  # fmt: skip
    backend.register_bind(bind)
    log = tmp_path / "log"
    with (
        running(log, BIN / "karton-system", "--setup-bucket", "--config-file", config),
        running(log, sys.executable, SCRIPT, "--config-file", config, **given),
    ):
        producer, sent = Producer(settings, "test.sender"), {}
        end = time.monotonic() + 60
        while "karton.transcendent-gate" not in {each.identity for each in backend.get_binds()}:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        for i, content in enumerate(contents):
            sample = Resource(f"sample-{i}.bin", content)
            sent[sample.sha256] = content
            producer.send_task(Task({"type": "sample", "stage": "recognized"}, payload={"sample": sample}))
        found = [backend.consume_routed_task("test.reader", timeout=60) for _ in contents]
        assert None not in found, log.read_text()
        got = {task.get_payload("sample").sha256: task for task in found}
        assert {name: task.get_resource("sample").content for name, task in got.items()} == sent
    assert set(got) == set(sent)
    names = list(sent)
    decisions = gate.client("karton-2").decide(names, features_of(sent.values()))
    for name, decision in zip(names, decisions, strict=True):
        assert got[name].get_payload("decision") == decision
        assert got[name].headers["decision"] == ("accepted" if decision["accepted"] else "rejected")
        assert got[name].headers["label"] == decision["label"]
    rejected = {each["id"] for each in decisions if not each["accepted"]}
    assert 0 < len(rejected) < len(names)
    item = next(iter(gate.client("ann", "analyst").claim(1)["items"]))
    assert item["context"]["name"].startswith("sample-")
