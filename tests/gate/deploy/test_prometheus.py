"""The dashboard and Prometheus' configuration, with the metrics that a gate has."""

import json
import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.gate.processes import free_port
from tests.gate.test_metrics import documented

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
PARTS = ("_bucket", "_sum", "_count")


def metrics_in(query):
    """Return the metrics of a query, and the labels that it chooses by, for each."""
    found = re.findall(r"\b(transcendent_gate_\w+)(?:\{([^}]*)\})?", query)
    return {name: set(re.findall(r"(\w+)\s*=", chosen)) for name, chosen in found}


def test_the_rows_are_those_that_people_look_for():
    rows = [each["title"] for each in DASHBOARD["panels"] if each["type"] == "row"]
    assert rows == ["Decisions", "Quarantine", "Drift", "Harm", "Latency"]
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("query", [each["expr"] for each in TARGETS])
def test_every_metric_and_label_of_the_dashboard_exists(query):
    known = documented()
    grouped = {each.strip() for by in re.findall(r"\bby \(([^)]*)\)", query) for each in by.split(",")}
    metrics = metrics_in(query)
    assert metrics
    for name, chosen in metrics.items():
        whole = name if name in known else re.sub(f"({'|'.join(PARTS)})$", "", name)
        kind, labels = known[whole]
        if whole != name:
            assert kind == "histogram"
            labels |= {"le"}
        assert chosen | grouped <= labels


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each["expr"])
def test_every_legend_names_labels_that_are_left(target):
    by = re.match(r"(?:histogram_quantile\([\d.]+, )?\w+ by \(([^)]*)\)", target["expr"])
    left = {each.strip() for each in by[1].split(",")} if by else set()
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= left


@pytest.fixture
def prometheus(start_gate, tmp_path):
    """A Prometheus with the configuration and the rules, that reads a gate every second."""
    gate, port, folder = start_gate(audit=0.5), free_port(), tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    (tmp_path / "token").write_text(gate.token("prometheus", "metrics"))
    config = yaml.safe_load((folder / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(tmp_path / "token")
    job["static_configs"] = [{"targets": [gate.address.removeprefix("http://")]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{port}"
    options = (f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}", "--log.level=error")
    process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yaml", *options])
    try:
        yield gate, httpx2.Client(base_url=f"http://{address}/api/v1")
    finally:
        process.terminate()
        process.wait(30)


def ask(client, query):
    """Return the samples of a query; None while Prometheus starts."""
    with suppress(httpx2.TransportError):
        answer = client.get("/query", params={"query": query})
        if answer.status_code != 503:
            assert answer.status_code == 200, answer.text
            return answer.json()["data"]["result"]
    return None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
def test_prometheus_answers_every_query_of_the_dashboard(prometheus, problem):
    gate, client = prometheus
    X, _ = problem
    sensor, end = gate.client(), time.monotonic() + 60
    while not ask(client, "sum(rate(transcendent_gate_objects_total[5m])) > 0"):
        assert time.monotonic() < end
        sensor.decide([f"a{time.monotonic()}-{i}" for i in range(20)], X[1000:1020])
        time.sleep(0.2)
    there = set(client.get("/label/__name__/values").json()["data"])
    answered = 0
    for target in TARGETS:
        found = ask(client, target["expr"].replace("$__rate_interval", "5m"))
        if set(metrics_in(target["expr"])) <= there and "{status=" not in target["expr"]:
            assert found, target["expr"]
            answered += 1
    assert answered > 15
    rules = client.get("/rules").json()["data"]["groups"][0]["rules"]
    assert len(rules) == 5
    assert {each["health"] for each in rules} == {"ok"}
    client.close()
