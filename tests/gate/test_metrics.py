"""Metrics: what they count, as documented, and as Prometheus reads them."""

import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import httpx2
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sklearn.svm import LinearSVC
from sqlalchemy import text

from tests.gate.conftest import away, gate_of, tables_on
from transcendent import InductiveEvaluator, RejectionBudget, __version__, save
from transcendent.errors import GateError
from transcendent.gate import quarantine
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect
from transcendent.gate.folding import list_monitors
from transcendent.gate.metrics import KNOWN_FOR, PREFIX, AnswerCounts, Metrics
from transcendent.gate.paging import acknowledge, raise_alarm
from transcendent.gate.quarantine import Quarantine
from transcendent.monitoring import Alarm

PAGE = (Path(__file__).parents[2] / "docs/operate/metrics.md").read_text()
HOSTILE = 'ann "\\n" {x="1"} ünï,'

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


def families_of(page):
    """Return type, labels and samples by name, as Prometheus names them."""
    found = {}
    for family in text_string_to_metric_families(page):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        found[name] = (family.type, labels, {_key(sample): sample.value for sample in family.samples})
    return found


def _key(sample):
    return (sample.name, *(sample.labels[name] for name in sorted(sample.labels)))


class Scraped:
    """A gate's page of metrics."""

    def __init__(self, gate, token):
        answer = httpx2.get(f"{gate.address}/metrics", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = answer.text
        self.families = families_of(answer.text)

    def __call__(self, name, **labels):
        """Return the value of a series, None if there is none."""
        samples = self.families[PREFIX + name][2] if PREFIX + name in self.families else {}
        key = (PREFIX + name, *(labels[each] for each in sorted(labels)))
        return samples.get(key)


@pytest.fixture(scope="module")
def budget(problem, tmp_path_factory):
    X, y = problem
    inner = InductiveEvaluator(LinearSVC(random_state=0), random_state=0)
    path = tmp_path_factory.mktemp("budget") / "budget.transcendent"
    save(RejectionBudget(inner, rate=0.2).fit(X[:1000], y[:1000]), path)
    return path


@pytest.fixture(scope="module")
def gate(server, budget, tmp_path_factory):
    with tables_on(server) as url, gate_of(url, budget, tmp_path_factory.mktemp("gate"), audit=0.3) as gate:
        yield gate


@pytest.fixture(scope="module")
def watcher(gate):
    return gate.token("prometheus", "metrics")


@pytest.fixture(scope="module")
def answered(gate, watcher, problem):
    """What a sender and an analyst did, counted from the answers; the page comes afterwards."""
    sensor, ann = gate.client("sensor"), gate.client(HOSTILE, "analyst")
    Scraped(gate, watcher)
    model = sensor.model()["digest"][:12]
    decisions = sensor.decide([f"o{i}" for i in range(300)], problem[0][1000:1300])
    with pytest.raises(GateError) as refused:
        sensor.decide_objects(
            [{"id": "good", "values": [0.0] * 12}, {"id": "bad", "values": ["x"] + [0.0] * 11}]
        )
    decisions += [each for each in refused.value.decisions if each is not None]
    first, second, third, fourth = (item["id"] for item in ann.claim(4)["items"])
    for item, label in ((first, "malware"), (second, "goodware"), (second, "goodware"), (third, "malware")):
        ann.resolve(item, label)  # one of them twice, as after a lost answer
    with pytest.raises(GateError):
        ann.resolve(third, "goodware")
    ann.undo(third)
    ann.skip(fourth)
    return model, decisions, ann.counts()


@pytest.fixture(scope="module")
def folded(gate, answered):
    """A minute of 100 objects that the gate adds to its monitor, and alarms, one of them acknowledged."""
    engine = connect(gate.database)
    with engine.begin() as connection:
        deployment = connection.execute(text("SELECT max(id) FROM deployment")).scalar_one()
        add = """INSERT INTO minute_counts (deployment, minute, process, objects, cells, counts)
        VALUES (:deployment, 1, gen_random_uuid(), 100, '{1000,1001,1002}', '{80,5,15}')"""
        connection.execute(text(add), {"deployment": deployment})
        hold = """INSERT INTO process (id, host, pid, version, seen_at, flushed)
        VALUES (gen_random_uuid(), 'slow', 1, '', now() + interval '1 hour', 1)"""
        connection.execute(text(hold))  # so that no other minute is closed
        not_served = """WITH made AS (INSERT INTO deployment (model, action, settings, author, reason)
            SELECT model, 'observe', settings, author, reason FROM deployment RETURNING id)
        INSERT INTO monitor (deployment, objects, expected) SELECT id, 7, .1 FROM made RETURNING deployment"""
        other = connection.execute(text(not_served)).scalar_one()
        acknowledged, *_ = [
            raise_alarm(connection, number, kind, Alarm(9, 5.0))
            for number, kind in ((deployment, "rejections"), (deployment, "harm"), (other, "drift"))
        ]
    acknowledge(engine, acknowledged, "ann", "known")
    engine.dispose()
    return str(deployment)


@pytest.fixture(scope="module")
def scraped(gate, watcher, answered, folded):
    time.sleep(KNOWN_FOR)
    return wait_for(
        lambda: Scraped(gate, watcher), lambda page: page.families[f"{PREFIX}below_thresholds_ratio"][2]
    )


def documented():
    """Return type and labels by name, as the page says."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \| .+ \|$", PAGE, re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_every_metric_is_documented_with_its_type_and_labels(scraped):
    found = {}
    own = Metrics()
    own.expect_shadow("a" * 64)  # this gate has no shadow
    others = families_of(own.page().decode())
    for name, (kind, labels, _) in scraped.families.items():
        (only,) = labels or others[name][1] or {frozenset()}
        found[name] = (kind, only)
    assert len(found) > 15
    assert found == documented()


@needs_promtool
def test_promtool_finds_nothing_to_complain_about(scraped):
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=scraped.text, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_objects_are_counted_as_they_were_answered(scraped, answered):
    model, decisions, _ = answered
    outcomes = Counter((each["label"], each["accepted"]) for each in decisions)
    assert len(outcomes) == 4
    for (label, accepted), n in outcomes.items():
        decision = "accepted" if accepted else "rejected"
        assert scraped("objects_total", model=model, label=label, decision=decision) == n
    assert scraped("objects_undecided_total", model=model) == 1
    assert scraped("info", model=model, version=__version__) == 1


def test_what_is_kept_is_what_waits_or_has_a_label(scraped, answered):
    model, decisions, counts = answered
    rejected = sum(not each["accepted"] for each in decisions)
    assert scraped("objects_kept_total", model=model, tier="rejected") == rejected
    kept = rejected + scraped("objects_kept_total", model=model, tier="audit")
    assert kept == counts["waiting"] + counts["labelled"]
    for tier in ("audit", "rejected", "skipped"):
        assert scraped("items_waiting", tier=tier) == counts[tier]
        assert (scraped("oldest_item_age_seconds", tier=tier) > 0) == (counts[tier] > 0)
    assert counts["audit"] > 0
    stored, failed = (scraped("commits_total", result=each) for each in ("stored", "failed"))
    assert stored >= 1
    assert failed == 0
    samples = scraped.families[f"{PREFIX}commit_objects"][2]
    assert samples[f"{PREFIX}commit_objects_sum",] == kept
    assert samples[f"{PREFIX}commit_objects_count",] == stored


def test_requests_are_counted_by_route_and_status(scraped):
    assert scraped("requests_total", route="/v1/decisions", status="200") == 1
    assert scraped("requests_total", route="/v1/decisions", status="422") == 1
    assert scraped("requests_total", route="/v1/quarantine/{item}/resolve", status="200") == 4
    assert scraped("requests_total", route="/v1/quarantine/{item}/resolve", status="409") == 1
    durations = scraped.families[f"{PREFIX}request_duration_seconds"][2]
    assert durations[f"{PREFIX}request_duration_seconds_count", "/v1/decisions"] == 2
    assert 0 < durations[f"{PREFIX}request_duration_seconds_sum", "/v1/decisions"] < 60


def test_a_label_that_is_sent_again_counts_once_and_names_stay_as_they_are(scraped):
    labels = {
        label: scraped("actions_total", action="label", author=HOSTILE, label=label)
        for label in ("malware", "goodware")
    }
    assert labels == {"malware": 2, "goodware": 1}
    for action in ("skip", "undo"):
        assert scraped("actions_total", action=action, author=HOSTILE, label="") == 1


def test_monitors_are_those_of_deployments_that_are_served(gate, scraped, answered, folded):
    of = {"deployment": folded, "model": answered[0]}
    assert scraped("monitored_objects", **of) == 100
    assert scraped("below_thresholds_ratio", **of) == 0.05
    assert 0 < scraped("below_thresholds_expected_ratio", **of) < 1
    engine = connect(gate.database)
    with engine.connect() as connection:
        (found,) = list_monitors(connection, served=True)
        assert len(list_monitors(connection)) == 2
    engine.dispose()
    assert scraped("drift_log_evidence", **of) == found["log_value"] != 0
    standing = {
        (kind, state): scraped("alarms", **of, kind=kind, state=state)
        for kind in ("rejections", "harm")
        for state in ("new", "acknowledged")
    }
    assert {which for which, n in standing.items() if n == 1} == {
        ("rejections", "acknowledged"),
        ("harm", "new"),
    }
    assert set(standing.values()) == {0, 1}
    assert set(re.findall(r'deployment="(\d+)"', scraped.text)) == {folded}


def test_the_cutoff_is_that_of_the_budget(gate, scraped, answered):
    model = answered[0]
    assert scraped("budget_ratio", model=model) == 0.2
    assert 0 < scraped("cutoff_rank", model=model) < 1
    assert 0 <= scraped("cutoff_tied_ratio", model=model) <= 1


def test_paths_and_methods_of_strangers_make_no_series(gate, watcher):
    for i in range(20):
        httpx2.request("PATCH" if i % 2 else "GET", f"{gate.address}/x{i}")
        httpx2.request("DELETE", f"{gate.address}/v1/quarantine/{i}")
    with socket.create_connection(("127.0.0.1", gate.port), timeout=30) as raw:
        raw.sendall(b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert b" 413 " in raw.recv(100)
    found = Scraped(gate, watcher)
    known = set(re.findall(r'requests_total{route="([^"]*)"', found.text))
    assert not [each for each in known if re.search("[0-9]", each.replace("/v1", ""))]
    assert found("requests_total", route="none", status="404") == 20
    assert found("requests_total", route="/v1/decisions", status="413") == 1


def test_without_its_database_a_gate_still_answers_and_counts_nothing_as_decided(
    start_gate, problem, rejector
):
    gate = start_gate()
    watcher, sensor = gate.token("prometheus", "metrics"), gate.client("sensor")
    rejected = problem[0][1000:1200][rejector.decide(problem[0][1000:1200]).rejected]
    sensor.decide(["first"], rejected[:1])
    before = Scraped(gate, watcher)
    assert before("ready") == 1
    assert before("items_waiting", tier="rejected") == 1
    with away(gate.database):
        with pytest.raises(GateError):
            sensor.decide(["second", "third"], rejected[1:3])
        during = wait_for(lambda: Scraped(gate, watcher), lambda page: page("ready") == 0)
        assert during("items_waiting", tier="rejected") is None
        assert during("oldest_item_age_seconds", tier="rejected") is None
        assert during("commits_total", result="failed") == 1
        assert during("requests_total", route="/v1/decisions", status="503") == 1
        same = "objects_total"
        assert during.families[PREFIX + same][2] == before.families[PREFIX + same][2]
    after = wait_for(lambda: Scraped(gate, watcher), lambda page: page("ready") == 1)
    assert after("items_waiting", tier="rejected") == 1


def wait_for(make, good, tries=100):
    for _ in range(tries):
        if good(found := make()):
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


class TestQueue:
    """The gauges of the queue equal a scan, whatever the states are."""

    @pytest.fixture
    def items(self, engine):
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO model (digest, classes, features) VALUES ('a', '[]', '{}')"))
            connection.execute(
                text("""INSERT INTO item (id, rank, received_at, model, tier, state)
                SELECT (number::bigint << 40) | (number * 1000 + i), random(), now() - i * interval '1 hour',
                    (SELECT max(id) FROM model), i % 3, CASE WHEN i % 7 < 4 THEN i % 7 % 3 ELSE 1 END
                FROM month, generate_series(1, 400) AS i""")
            )
        return Quarantine(engine)

    def scan(self, engine):
        sql = """SELECT tier, count(*), extract(epoch FROM now() - min(received_at))::float8
        FROM item WHERE state = 0 GROUP BY 1"""
        with engine.connect() as connection:
            rows = connection.execute(text(sql)).all()
        return {tier: n for tier, n, _ in rows}, {tier: age for tier, _, age in rows}

    def test_counts_and_ages_equal_a_scan(self, engine, items):
        for step in (
            "SELECT 1",
            "UPDATE item SET state = 1 WHERE received_at < now() - interval '300 hours'",
            "UPDATE item SET state = 0 WHERE received_at < now() - interval '399 hours'",
            "UPDATE item SET tier = 2 WHERE tier = 0 AND state = 0",
            "UPDATE item SET state = 1 WHERE tier = 1",
        ):
            with engine.begin() as connection:
                connection.execute(text(step))
            (counts, ages), (expected, scanned) = items.queue(), self.scan(engine)
            assert {tier: n for tier, n in counts.items() if n} == expected
            assert ages == pytest.approx(scanned, abs=1)
        assert set(ages) == {2}

    def test_the_oldest_is_found_by_the_index_with_any_statistics(self, engine, items):
        for statistics in ("SELECT 1", "ANALYZE item"):
            with engine.begin() as connection:
                connection.execute(text(statistics))
                connection.execute(text(quarantine._BY_INDEX_IN_ORDER))
                plan = "\n".join(connection.execute(text("EXPLAIN " + quarantine._OLDEST)).scalars())
            assert not re.search(r"-> +(Incremental )?Sort|Seq Scan|Bitmap", plan), plan
            assert plan.count("received_at_idx") == len(re.findall("on item_20", plan))


class TestMetrics:
    def test_gates_in_one_process_do_not_share_counts(self):
        one, other = Metrics(), Metrics()
        one.count_answer(AnswerCounts("a" * 64, {("x", True): 3}), {})
        assert b'{decision="accepted",label="x",model="aaaaaaaaaaaa"} 3.0' in one.page()
        assert b'label="x"' not in other.page()
        assert PREFIX.encode() not in prometheus_client.generate_latest()

    def test_a_page_reads_the_database_once_a_second(self):
        now, read = [0.0], []
        metrics = Metrics(lambda: now[0])
        metrics.refresh.append(lambda: read.append(now[0]))
        for now[0] in (0, 0.5, KNOWN_FOR - 0.01, KNOWN_FOR, KNOWN_FOR + 0.5, 2 * KNOWN_FOR):
            metrics.page()
        assert read == [0, KNOWN_FOR, 2 * KNOWN_FOR]

    def test_a_gauge_of_another_part(self):
        metrics = Metrics()
        metrics.gauge("drift_evidence", "Evidence of drift.", "model").labels("abc").set(7)
        assert b'transcendent_gate_drift_evidence{model="abc"} 7.0' in metrics.page()

    def test_another_model_replaces_the_first_but_not_its_counts(self):
        metrics = Metrics()
        metrics.show_model("a" * 64, ["x"], 0.2)
        metrics.show_cutoff("a" * 64, 0.3, 1)
        metrics.count_answer(AnswerCounts("a" * 64, {("x", False): 2}), {1: 2})
        metrics.show_model("b" * 64, ["x"], None)
        page = metrics.page().decode()
        assert re.findall(r'_info{model="(\w+)"', page) == ["b" * 12]
        assert not re.search(r"^transcendent_gate_(budget|cutoff)\w+{", page, re.MULTILINE)
        counted = re.findall(r'objects_total{decision="rejected",label="x",model="(\w+)"} (\S+)', page)
        assert counted == [("a" * 12, "2.0"), ("b" * 12, "0.0")]


RULES = (Path(__file__).parents[2] / "deploy/prometheus/rules.yaml").read_text()
FIRING = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'transcendent_gate_objects_total{decision="rejected", model="m"}', values: '%s'}
      - {series: 'transcendent_gate_objects_total{decision="accepted", model="m"}', values: '0+10x200'}
      - {series: 'transcendent_gate_oldest_item_age_seconds{tier="rejected", instance="a"}', values: '%s'}
      - {series: 'transcendent_gate_ready{job="gate", instance="a"}', values: '%s'}
      - {series: 'up{job="gate", instance="b"}', values: '%s'}
      - {series: 'transcendent_gate_commits_total{result="failed", instance="a"}', values: '%s'}
      - {series: 'transcendent_gate_alarms{kind="drift", state="new", instance="a"}', values: '%s'}
      - {series: 'transcendent_gate_alarms{kind="drift", state="new", instance="b"}', values: '0x200'}
      - {series: 'transcendent_gate_alarms{kind="harm", state="acknowledged", instance="a"}', values: '1x200'}
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 2h
        exp_samples: [%s]
"""
USUAL = {
    "rejected": "0+1x200",
    "age": "80000x200",
    "ready": "1x200",
    "up": "1x200",
    "failed": "0x200",
    "alarm": "0x200",
}


@needs_promtool
@pytest.mark.parametrize(
    ("changed", "fire"),
    [
        ({}, []),
        ({"rejected": "0+8x200"}, ["GateRejectsMuch"]),
        ({"age": "90000x200"}, ["GateItemsWait"]),
        ({"ready": "0x200"}, ["GateNotReady"]),
        ({"up": "0x200"}, ["GateNotReady"]),
        ({"failed": "0+1x200"}, ["GateCommitsFail"]),
        ({"alarm": "0x110 1x90"}, ["GateAlarm"]),
        ({"alarm": "1x110 0x90"}, []),
    ],
)
def test_the_alerts_fire_when_they_should(tmp_path, changed, fire):
    (tmp_path / "rules.yml").write_text(RULES)
    checked = ["promtool", "check", "rules", "--lint-fatal", "rules.yml"]
    assert subprocess.run(checked, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    expected = ", ".join(f"{{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in fire)
    (tmp_path / "test.yml").write_text(FIRING % (*(USUAL | changed).values(), expected))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_use_documented_metrics():
    used = set(re.findall(r"\btranscendent_gate_\w+", RULES))
    assert len(used) >= 4
    assert used <= set(documented())


def test_a_token_for_metrics_reads_nothing_else(gate, watcher):
    engine = connect(gate.database)
    assert Tokens(engine).check(watcher) == ("prometheus", "metrics")
    engine.dispose()
    for path in ("/v1/model", "/openapi.json", "/v1/quarantine", "/v1/labelled"):
        headers = {"authorization": f"Bearer {watcher}"}
        assert httpx2.get(gate.address + path, headers=headers).status_code == 403
