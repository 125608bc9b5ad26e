"""The files in deploy: what their tools say of them, and whether they agree with each other and the gate."""

import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from transcendent.gate.settings import FILE, PREFIX, GateSettings

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFESTS = {
    each["kind"]: each
    for path in (DEPLOY / "kubernetes").glob("*.yaml")
    for each in yaml.safe_load_all(path.read_text())
}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNIT = DEPLOY / "transcendent-gate@.service"


@pytest.mark.parametrize("version", ["1.27", "1.37"])
@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_follows_the_schema(kind, version):
    kubernetes_validate.validate(MANIFESTS[kind], version, strict=True)


def test_the_schema_would_find_a_mistake():
    wrong = {**MANIFESTS["Service"], "spec": {"port": 80}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_pods_are_restricted(kind):
    """As the profile restricted of the pod security standards demands."""
    spec = MANIFESTS[kind]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all({"configMap", "emptyDir"} & set(each) for each in spec["volumes"])


def test_names_in_the_manifests_agree():
    deployment, job = MANIFESTS["Deployment"], MANIFESTS["Job"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for chosen in (
        deployment["spec"]["selector"]["matchLabels"],
        MANIFESTS["Service"]["spec"]["selector"],
        MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert chosen == labels
    assert job["spec"]["template"]["metadata"]["labels"] != labels  # the Service must not send to it
    (policy,) = MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchExpressions"]
    pods = [each["spec"]["template"] for each in (deployment, job)]
    assert policy["values"] == [each["metadata"]["labels"]["app"] for each in pods]
    assert len({each["spec"]["containers"][0]["image"] for each in pods}) == 1
    for pod in pods:
        variables = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
        reference = variables[f"{PREFIX}DATABASE"]["valueFrom"]["secretKeyRef"]
        assert reference["name"] == MANIFESTS["Secret"]["metadata"]["name"]
        assert reference["key"] in MANIFESTS["Secret"]["stringData"]


@pytest.mark.parametrize("path", sorted(each for each in DEPLOY.rglob("*") if each.is_file()), ids=str)
def test_settings_in_the_files_exist(path):
    known = {f"{PREFIX}{name.upper()}" for name in GateSettings.model_fields} | {FILE}
    if path.suffix != ".pyc":
        assert set(re.findall(rf"{PREFIX}[A-Z_]+", path.read_text())) <= known


@pytest.mark.parametrize("name", ["nginx.conf", "compose.yaml"])
def test_files_wait_longer_than_the_gate(name):
    timeout = GateSettings.model_fields["timeout"].default
    waits = re.findall(
        r"(?:proxy_(?:send|read)_timeout|stop_grace_period:)\s+(\d+)s", (DEPLOY / name).read_text()
    )
    assert waits
    assert min(map(int, waits)) > timeout


def test_pods_have_time_to_stop():
    spec = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > GateSettings.model_fields["timeout"].default + sleep


def test_the_proxy_takes_bodies_as_large_as_the_gate_does():
    (size,) = re.findall(r"client_max_body_size\s+(\d+)m;", (DEPLOY / "nginx.conf").read_text())
    assert int(size) << 20 == GateSettings.model_fields["max_bytes"].default


def test_compose_starts_gates_as_they_are_meant_to_run():
    for name in ("gate-a", "gate-b", "migrate"):
        service = COMPOSE["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    mounted = [each for service in COMPOSE["services"].values() for each in service.get("volumes", [])]
    files = [each.split(":")[0] for each in mounted if each.startswith("./")]
    assert files
    assert all((DEPLOY / each).exists() for each in files if not each.startswith("./secrets/"))
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())["scrape_configs"]
    targets = scraped[0]["static_configs"][0]["targets"]
    assert {each.split(":")[0] for each in targets} == {"gate-a", "gate-b"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_little_that_the_unit_may_do(tmp_path):
    unit = tmp_path / "transcendent-gate@8040.service"
    program = tmp_path / "transcendent"
    program.touch(0o755)
    unit.write_text(UNIT.read_text().replace("/opt/gate/bin/transcendent", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert unit.name not in done.stderr, done.stderr
    security = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit]
    done = subprocess.run(security, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
