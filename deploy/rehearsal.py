"""The runbook, step by step, with everything real: image, PostgreSQL, nginx with TLS, Chromium at the pages.

python deploy/rehearsal.py [--image NAME] [--objects 400]

Needs root, and of Debian podman, runc, mmdebstrap, nginx, openssl, prometheus, chromium and PostgreSQL.
Each step prints a line; the first one that fails ends the run with exit code 1. --image leaves out the
build.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from containers import (
    ROOT,
    Containers,
    Proxy,
    build,
    collect_wheels,
    containers_of,
    folder_for_all,
    make_base,
    proxy_in,
    run,
    wait_until,
)
from playwright.sync_api import Browser, Response
from pods import NAME, migration, played, serving
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from sqlalchemy import text

from transcendent import InductiveEvaluator, save
from transcendent.errors import GateError
from transcendent.gate import GateClient
from transcendent.gate.database import connect

sys.path.append(str(ROOT))  # a script finds only modules beside itself

from tests.gate.pages.people import Analyst, Watched, chromium, numbers, sign_in
from tests.gate.processes import Cluster, cluster_in, free_port

TABLES = (
    "identity",
    "item",
    "payload",
    "label",
    "remark",
    "model",
    "artifact",
    "deployment",
    "token",
    "event",
    "session",
    "work",
)
ROLES = {"sensor": "client", "ann": "analyst", "root": "operator", "prometheus": "metrics"}


class Rehearsal:
    """What the steps share."""

    def __init__(
        self,
        containers: Containers,
        proxy: Proxy,
        cluster: Cluster,
        ports: list[int],
        n: int,
        browser: Browser,
    ) -> None:
        self.containers, self.proxy, self.cluster, self.ports = containers, proxy, cluster, ports
        self._browser, self.watched = browser, Watched()
        self.carl: Analyst
        self.ids = [f"object-{i}" for i in range(n)]
        self.X = np.zeros((0, 0))
        self.tokens: dict[str, str] = {}
        self.models: list[str] = []
        self.decided: list[Any] = []

    @property
    def database(self) -> str:
        """The URL of the gates' database."""
        return self.cluster.url.removesuffix("postgres") + "gate"

    def client(self, name: str) -> GateClient:
        """A client that meets every failure itself."""
        return GateClient(self.proxy.address, self.tokens[name], retries=0)

    def _analyst(self) -> Analyst:
        analyst = Analyst(self._browser.new_context(ignore_https_errors=True), [self.proxy.address])
        self.watched.watch(analyst.page, self.proxy.address)
        analyst.page.on("response", self._look)
        return analyst

    def _look(self, answer: Response) -> None:
        policy = answer.headers.get("content-security-policy", "")
        if answer.status >= 400 or "default-src 'none'" not in policy:
            self.watched.faults.append(f"{answer.status} at {answer.url}, policy {policy!r}")

    def signed_in(self, name: str) -> Analyst:
        """Return an analyst who has signed in by a link, in a browser with cookies of its own."""
        analyst = self._analyst()
        sign_in(analyst.page, self.gate("sign-in", name, "--role", "analyst").strip())
        return analyst

    def decide(self) -> list[Any]:
        """Decide all objects over https."""
        with self.client("sensor") as gate:
            return gate.decide(self.ids, self.X)

    def gate(self, *arguments: Any) -> str:
        """Run a command of the gate in a container."""
        return self.containers.command(self.database, *arguments)

    def start(self, port: int) -> None:
        """Start a gate on a port, and wait until it serves a model if there is one."""
        self.containers.start(f"gate-{port}", self.database, port, audit=0.05)
        path = "readyz" if self.models else "healthz"
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/{path}"), f"the gate on port {port} answers")


def answers(url: str) -> bool:
    """Whether a GET gets a 200."""
    try:
        return bool(httpx2.get(url).status_code == 200)
    except httpx2.HTTPError:
        return False


def require(true: Any, what: str) -> None:
    """Raise unless something is true."""
    if not true:
        raise RuntimeError(f"not as it should be: {what}")


def fit_models(folder: Path, n: int) -> np.ndarray[Any, Any]:
    """Save two models, and return objects that differ from what they were fitted on."""
    X, y = make_classification(2000 + n, n_features=12, n_informative=6, flip_y=0.05, random_state=0)
    named = np.where(y, "malware", "goodware")
    for name, rows in {"november": 1500, "december": 2000}.items():
        ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(X[:rows], named[:rows])
        save(ice, folder / f"{name}.transcendent")
        (folder / f"{name}.transcendent").chmod(0o644)
    found: np.ndarray[Any, Any] = X[2000:] + np.random.default_rng(0).normal(scale=1.5, size=(n, 12))
    return found


def migrate(here: Rehearsal) -> str:
    run("psql", here.cluster.url, "--quiet", "--command", "CREATE DATABASE gate")
    here.gate("migrate")
    version = "SELECT version_num FROM alembic_version"
    return f"tables of version {run('psql', here.database, '-At', '--command', version).strip()}"


def start_gates(here: Rehearsal) -> str:
    for port in here.ports:
        here.start(port)
    name = f"gate-{here.ports[0]}"
    user = here.containers.execute(name, "id", "-u").strip()
    require(user == "10001", f"the user is {user}")
    status = here.containers.execute(name, "cat", "/proc/1/status")
    require("CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status, "no capabilities are left")
    done = subprocess.run(["podman", "exec", name, "touch", "/opt/gate/x"], capture_output=True, check=False)
    require(done.returncode != 0 and b"Read-only" in done.stderr, "the root is read-only")
    run("podman", "healthcheck", "run", name)
    return f"{len(here.ports)}, as user {user}, read-only, without capabilities, healthy"


def create_tokens(here: Rehearsal) -> str:
    here.tokens = {
        name: here.gate("token", "create", name, "--role", role).strip() for name, role in ROLES.items()
    }
    return ", ".join(f"{name} ({role})" for name, role in ROLES.items())


def promote(here: Rehearsal) -> str:
    with here.client("sensor") as gate:
        try:
            gate.decide(here.ids[:1], here.X[:1])
        except GateError as error:
            require(error.status == 503, "without a model, the answer is a 503")
    digest = here.gate("model", "add", "/models/november.transcendent", "--reason", "the first").strip()
    here.gate("model", "promote", digest, "--reason", "the first")
    here.models.append(digest)
    for port in here.ports:
        wait_until(lambda port=port: answers(f"http://127.0.0.1:{port}/readyz"), "gates serve the model")
    return digest[:12]


def decide(here: Rehearsal) -> str:
    here.decided = here.decide()
    rejected = sum(not each["accepted"] for each in here.decided)
    require(0 < rejected < len(here.ids), "some objects are rejected, and some are not")
    require(here.decide() == here.decided, "sent again, they get the same answers")
    return f"{len(here.decided)} over https, {rejected} rejected"


def label(here: Rehearsal) -> str:
    with here.client("ann") as ann:
        before = ann.counts()
        items = ann.claim(max(1, before["waiting"] // 2))["items"]
        for item in items:
            ann.resolve(item["id"], "malware", note="rehearsed")
        after = ann.counts()
    require(
        after["labelled"] == len(items) and after["waiting"] == before["waiting"] - len(items), "the counts"
    )
    with here.client("sensor") as sensor:
        found = sensor.find(items[-1]["object_id"])
    require(not found or found[0]["label"] == "malware", "the sender learns the label")
    return f"{len(items)}; {after['waiting']} wait"


def use_pages(here: Rehearsal) -> str:
    here.carl = carl = here.signed_in("carl")
    (cookie,) = carl.page.context.cookies()
    found = [cookie.get(each) for each in ("name", "secure", "httpOnly", "sameSite")]
    name = f"__Host-session-{here.proxy.address.rpartition(':')[2]}"
    require(found == [name, True, True, "Strict"], f"the cookie is {found}")
    waiting, shown, labels = numbers(carl.page, carl.address)
    require(waiting > 3, f"{waiting} wait, too few to label: pass more --objects")
    while len(carl.confirmed) < 3:
        require(carl.label(), f"the desk answers: {carl.met}")
    after = numbers(carl.page, carl.address)
    require(after == (waiting - 3, shown - 3, labels + 3), f"desk and wall show {after}")
    carl.page.goto("about:blank")
    require(not (faults := carl.faults + here.watched.faults), str(faults))
    return f"3 items labelled by keys; desk and wall show {after[0]} that wait, {after[2]} labels"


def pages_again(here: Rehearsal, before: tuple[int, int, int]) -> None:
    """Desk and wall are alive: with the session that was restored, and with a new link."""
    waiting, shown, labels = before
    carl, dora = here.carl, here.signed_in("dora")
    require(numbers(carl.page, carl.address) == before, "the pages show other numbers")
    dora.label()
    require(dora.label() and len(dora.confirmed) == 1, f"the desk answers: {dora.met}")
    after = numbers(dora.page, dora.address)
    require(after == (waiting - 1, shown - 1, labels + 1), f"desk and wall show {after}")
    require(not (faults := dora.faults + here.watched.faults), str(faults))


def watch(here: Rehearsal) -> str:
    headers = {"authorization": f"Bearer {here.tokens['prometheus']}"}
    require(
        httpx2.get(f"{here.proxy.address}/metrics", headers=headers).status_code == 404, "metrics stay inside"
    )
    pages = [httpx2.get(f"http://127.0.0.1:{port}/metrics", headers=headers).text for port in here.ports]
    lines = [line for page in pages for line in page.splitlines()]
    counted = sum(
        float(each.split()[-1]) for each in lines if each.startswith("transcendent_gate_objects_total")
    )
    require(counted == 2 * len(here.ids), f"{counted:g} objects are counted")
    run("promtool", "check", "metrics", input=pages[0])
    return f"{counted:g} objects counted, none told outside"


@contextmanager
def load(here: Rehearsal) -> Iterator[list[Any]]:
    """Send all objects again and again; what goes wrong is in the list."""
    stop, found = threading.Event(), []
    sent = [0]

    def send() -> None:
        with here.client("sensor") as gate:
            while not stop.is_set():
                try:
                    if gate.decide(here.ids, here.X) != here.decided:
                        found.append("another answer")
                except GateError as error:
                    found.append(str(error))
                sent[0] += 1

    threads = [threading.Thread(target=send) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        yield sent
    finally:
        stop.set()
        for each in threads:
            each.join()
    require(not found, f"{len(found)} of {sent[0]} requests failed: {found[:3]}")


def upgrade(here: Rehearsal) -> str:
    with load(here) as sent:
        here.gate("migrate")
        for port in here.ports:
            here.containers.stop(f"gate-{port}")
            here.start(port)
    return f"{len(here.ports)} gates replaced; none of {sent[0]} requests failed"


def roll_back(here: Rehearsal) -> str:
    digest = here.gate("model", "add", "/models/december.transcendent", "--reason", "more rows").strip()
    here.gate("model", "promote", digest, "--reason", "more rows")
    others = [each for each in here.models if each != digest]
    with here.client("sensor") as gate:
        wait_until(lambda: gate.model()["digest"] == digest, "the new model serves")
        here.gate("model", "rollback", "--reason", "rehearsed")
        wait_until(lambda: gate.model()["digest"] in others, "the old model serves")
    time.sleep(3)  # until each gate has looked
    require(here.decide() == here.decided, "the old model's answers are back")
    return f"from {digest[:12]} to {others[0][:12]}"


def contents(url: str) -> dict[str, Any]:
    """Return number and digest of the rows of each table."""
    engine = connect(url)
    sql = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {} AS t"
    with engine.connect() as connection:
        found = {each: tuple(connection.execute(text(sql.format(each))).one()) for each in TABLES}
    engine.dispose()
    return found


def restore(here: Rehearsal, folder: Path, other: Cluster) -> str:
    with here.client("ann") as ann:
        counts = ann.counts()
    shown = numbers(here.carl.page, here.carl.address)
    here.carl.page.goto("about:blank")
    for port in here.ports:
        here.containers.stop(f"gate-{port}")
    before = contents(here.database)
    run("pg_dump", "--format=custom", f"--file={folder}/dump", here.database)
    run("psql", here.cluster.url, "--quiet", "--command", "ALTER DATABASE gate RENAME TO lost")
    here.cluster, here.ports = other, [free_port()]
    run("psql", other.url, "--quiet", "--command", "CREATE DATABASE gate")
    run("pg_restore", "--exit-on-error", f"--dbname={here.database}", folder / "dump")
    require(contents(here.database) == before, "the tables have the same rows")
    here.start(here.ports[0])
    here.proxy.point_to(*here.ports)
    here.proxy.nginx("-s", "reload")
    wait_until(lambda: answers(f"{here.proxy.address}/readyz"), "the proxy finds the new gate")
    require(here.decide() == here.decided, "the answers are the same")
    with here.client("ann") as ann:
        require(ann.counts() == counts, "nothing is kept twice, and nothing is missing")
    pages_again(here, shown)
    here.gate("check")
    return f"{before['item'][0]} items on another server, equal answers, nothing twice, desk and wall alive"


def play(here: Rehearsal, folder: Path) -> str:
    """The manifests: the job's pod ends well, and the gate decides as before."""
    with played(migration(here.containers.image), here.database, folder):
        code = run("podman", "wait", f"{NAME}-migrate").strip()
        require(code == "0", f"the pod that migrates ended with code {code}")
    port = free_port()
    with played(serving(here.containers.image, port), here.database, folder):
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{address}/readyz"), "the gate of the manifest is ready")
        with GateClient(address, here.tokens["sensor"], retries=0) as gate:
            require(gate.decide(here.ids, here.X) == here.decided, "the answers are the same")
    return "the migration's pod and a gate, equal answers"


STORY: dict[str, Callable[[Rehearsal], str]] = {
    "migrate": migrate,
    "gates": start_gates,
    "tokens": create_tokens,
    "promote": promote,
    "decide": decide,
    "label": label,
    "desk, wall": use_pages,
    "metrics": watch,
    "upgrade": upgrade,
    "roll back": roll_back,
}


def tell(name: str, step: Callable[[], Any]) -> Any:
    """Run a step, and print what it says and how long it took."""
    start = time.monotonic()
    said = step()
    print(f"{name:<10} {time.monotonic() - start:6.1f} s  {said}", flush=True)
    return said


@contextmanager
def new_image(folder: Path) -> Iterator[str]:
    """Build the image from nothing, and remove it in the end."""
    wheels, base, tag = folder / "wheels", "localhost/gate-base", "localhost/gate-rehearsal"
    tell("wheels", lambda: f"{collect_wheels(wheels)}, with the project's own")
    tell("base", lambda: make_base(base, folder))
    tell("image", lambda: build(tag, base, wheels))
    try:
        yield tag
    finally:
        run("podman", "rmi", "--force", tag, base)


def rehearse(image: str | None, n: int) -> None:
    """Go through all steps."""
    with ExitStack() as stack:
        folder = stack.enter_context(folder_for_all())
        image = image or stack.enter_context(new_image(folder))
        models = folder / "models"
        models.mkdir()
        ports = [free_port(), free_port()]
        given: dict[str, Any] = {"port": free_port(), "plain_port": free_port(), "gates": tuple(ports)}
        cluster, other = (stack.enter_context(cluster_in(folder / each)) for each in ("one", "other"))
        proxy = stack.enter_context(proxy_in(folder / "nginx", **given))
        os.environ["SSL_CERT_FILE"] = str(proxy.certificate)
        given = {"public_url": proxy.address}
        containers = stack.enter_context(containers_of(image, models, **given))
        here = Rehearsal(containers, proxy, cluster, ports, n, stack.enter_context(chromium()))
        here.X = fit_models(models, n)
        for name, step in STORY.items():
            tell(name, partial(step, here))
        tell("restore", lambda: restore(here, folder, other))
        tell("pods", lambda: play(here, folder))


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", help="an image to take in place of a new one")
    parser.add_argument("--objects", type=int, default=400)
    given = parser.parse_args()
    try:
        rehearse(given.image, given.objects)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
