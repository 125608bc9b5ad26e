"""The Kubernetes manifests, played by podman, which runs pods but is no cluster.

podman 4.3 has no jobs, so the job's pod is played; it takes secrets from its own store, and ignores Service,
PodDisruptionBudget and NetworkPolicy. It would run probes by curl, which the image does not have, so they are
left out. Pods are on the network of the host, as the other containers are.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from containers import ROOT, run

NAME = "gate-rehearsal"  # of all that is made, so that nothing else is touched
FOLDER = ROOT / "deploy/kubernetes"
LIMITS = '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'


def documents(file: str) -> list[Any]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def migration(image: str) -> list[Any]:
    """Return the pod of the job."""
    (job,) = documents("migrate.yaml")
    spec = {**job["spec"]["template"]["spec"], "restartPolicy": "Never"}
    return [_pod(spec, image, 0) | {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}}]


def serving(image: str, port: int) -> list[Any]:
    """Return what gates need, with one gate, on a port."""
    found = {each["kind"]: each for each in documents("gate.yaml")}
    deployment, settings = found["Deployment"], found["ConfigMap"]
    settings["metadata"]["name"] = deployment["metadata"]["name"] = NAME
    deployment["spec"]["replicas"] = 1
    _pod(deployment["spec"]["template"]["spec"], image, port)
    return [
        settings,
        deployment,
        *(found[each] for each in ("Service", "PodDisruptionBudget", "NetworkPolicy")),
    ]


def _pod(spec: dict[str, Any], image: str, port: int) -> dict[str, Any]:
    """Change names and the port of a pod."""
    (container,) = spec["containers"]
    container["image"] = image
    container.pop("ports", None)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container.pop(probe, None)
    for each in container["env"]:
        each.get("valueFrom", {}).get("secretKeyRef", {})["name"] = NAME
    if port:
        container["env"].append({"name": "TRANSCENDENT_GATE_PORT", "value": str(port)})
    for volume in spec["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = NAME
        else:
            container["volumeMounts"] = [
                {**each, "name": NAME} if each["name"] == volume["name"] else each
                for each in container["volumeMounts"]
            ]
            volume["name"] = NAME
    return {"spec": spec}


@contextmanager
def played(objects: list[Any], database: str, folder: Path) -> Iterator[None]:
    """Play objects with a secret that has the database, and remove all of it."""
    secret, file, limits = (folder / each for each in ("secret.json", "pods.yaml", "containers.conf"))
    secret.write_text(json.dumps({"database": base64.b64encode(database.encode()).decode()}))
    file.write_text(yaml.safe_dump_all(objects))
    limits.write_text(LIMITS)
    environment = os.environ | {"CONTAINERS_CONF": str(limits)}
    run("podman", "secret", "create", NAME, secret)
    try:
        run("podman", "--runtime", "runc", "kube", "play", "--network=host", file, env=environment)
        yield
    finally:
        run("podman", "kube", "down", file, env=environment)
        run("podman", "secret", "rm", NAME)
        run("podman", "volume", "rm", "--force", NAME)
