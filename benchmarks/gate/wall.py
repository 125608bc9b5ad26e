"""Measure the wall and the month of a gate with 10^7 items: the time that the gate takes, and what it reads.

python benchmarks/gate/wall.py [--items 10000000] [--small] [--folder FOLDER]

Items are copied within the database, in two months, until there are enough; one in a hundred is labelled by
SQL, as people do. Days are painted as gates would have left them. A gate, a process of its own, answers 200
requests for each page over HTTP; its own log says how long each took. No statement of the pages may read a
table as a whole that grows with the items.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from sqlalchemy import Engine, text

from transcendent import InductiveEvaluator, save
from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, make_month, migrate, month_of
from transcendent.gate.deployments import DeploymentSettings
from transcendent.gate.promotion import promote
from transcendent.gate.stored import add, find

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.pages.scenes import paint, scans
from tests.gate.processes import Gate, cluster_in

TURNS = 200
SOURCES, STEP = 1000, 200_000
# Without triggers and identities, which the pages do not read; the counter gets what they would have added.
_COPY = """
WITH made AS (
    SELECT (CAST(:month AS bigint) << 40) | nextval('item_number') AS new, random() AS draw, payload.*,
        item.model, item.tier
    FROM (SELECT * FROM item ORDER BY id LIMIT :sources) AS item JOIN payload USING (id)
    JOIN generate_series(1, :copies) ON true
), items AS (
    INSERT INTO item (id, rank, received_at, model, tier)
    SELECT new, draw, now() - draw * interval '3 days', model, tier FROM made RETURNING tier
), payloads AS (
    INSERT INTO payload SELECT new, credibility, confidence, probability, votes, doubt, accepted,
        object_id || '-' || new, sender, cutoff, label, p_values, features FROM made
)
INSERT INTO tally SELECT :month, tier, 0, count(*) FROM items GROUP BY tier
"""
_LABEL = """
WITH chosen AS (
    SELECT id FROM item WHERE state = 0 AND id > :after ORDER BY id LIMIT :n
), history AS (
    INSERT INTO label (item, action, label, author) SELECT id, 'label', 'malware', 'ann' FROM chosen
)
UPDATE item SET state = 1 FROM chosen WHERE item.id = chosen.id RETURNING item.id
"""


def promoted(engine: Engine, folder: Path) -> int:
    """Fit a model, promote it, and return the number of its deployment."""
    X, y = make_classification(2000, n_features=12, n_informative=6, flip_y=0.05, random_state=0)
    labels = np.where(y, "malware", "goodware")
    ice = InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(X[:1000], labels[:1000])
    save(ice, folder / "artifact")
    digest = add(engine, folder / "artifact", [], None, "apps", "ann", "").digest
    with engine.connect() as connection:
        model = find(connection, digest)
    settings = DeploymentSettings(audit=1.0, budget=None).model_dump()
    return promote(engine, model, "active", settings, "ann", "", 0).deployment


def fill(engine: Engine, gate: Gate, token: str, items: int) -> None:
    """Let the gate keep objects, copy them until there are enough, and label some."""
    rows = np.random.default_rng(0).normal(size=(SOURCES, 12), scale=3)
    objects = [{"id": f"o{i}", "values": row} for i, row in enumerate(rows.tolist())]
    sent = {"authorization": f"Bearer {token}"}
    httpx2.post(f"{gate.address}/v1/decisions", json={"objects": objects}, headers=sent, timeout=60)
    with engine.begin() as connection:  # the gate would look for copies among them for a long time
        connection.execute(text("UPDATE contents_known SET before = 1::bigint << 62"))
    this = month_of(time.strftime("%Y-%m", time.gmtime()))
    have = SOURCES
    while have < items:
        for month in (this - 1, this):
            given = {"copies": max(1, min(STEP, items - have) // SOURCES // 2), "sources": SOURCES}
            with engine.begin() as connection:
                connection.execute(text("SET LOCAL session_replication_role = replica"))
                connection.execute(text(_COPY), {**given, "month": month})
            have += given["copies"] * SOURCES
        print(f"\r  {have:,} items", end="", flush=True)
    print()
    after = 0
    for _ in range(items // 100 // 1000):
        with engine.begin() as connection:
            after = max(connection.execute(text(_LABEL), {"after": after, "n": 1000}).scalars())
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
        connection.execute(text("CHECKPOINT"))


def timed(gate: Gate, token: str, path: str) -> list[float]:
    """Return the milliseconds that the gate took for each of 200 answers, as its log says."""
    with httpx2.Client(base_url=gate.address, timeout=60) as browser:
        headers = {"origin": gate.address, "sec-fetch-site": "same-origin"}
        browser.post("/sign-in", data={"token": token, "next": "/wall"}, headers=headers)
        for _ in range(TURNS + 5):
            browser.get(path).raise_for_status()
    lines = map(json.loads, filter(lambda line: line.startswith("{"), gate.log.read_text().splitlines()))
    took = [each["milliseconds"] for each in lines if each.get("path") == path and each["status"] == 200]
    return took[-TURNS:]


def measure(url: str, folder: Path, items: int) -> None:
    """Fill a database, and time the pages of a gate on it."""
    engine = connect(url)
    migrate(engine)
    with engine.begin() as connection:
        make_month(connection, month_of(time.strftime("%Y-%m", time.gmtime())) - 1)
    deployment = promoted(engine, folder)
    gate = Gate(url, None, folder / "log", promised_error=0.02).wait(300)
    tokens = Tokens(engine)
    fill(engine, gate, tokens.create("sensor", "client"), items)
    paint(engine, deployment, drift=True)
    token = tokens.create("door", "viewer")
    for path in ("/wall", f"/wall/month/{time.strftime('%Y-%m', time.gmtime())}"):
        took = timed(gate, token, path)
        p95 = np.quantile(took, 0.95)
        print(f"  {path}: {statistics.median(took):.1f} ms (95% within {p95:.1f} ms)", flush=True)
    found, n = scans(engine)
    print(f"  {n} statements, of which {len(found)} read a table as a whole that grows")
    gate.stop()
    engine.dispose()
    if found:
        sys.exit("\n".join(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--small", action="store_true", help="10,000 items")
    parser.add_argument("--folder", type=Path, help="where the database goes; by default a temporary folder")
    options = parser.parse_args()
    settings = "-c shared_buffers=1GB -c max_wal_size=8GB -c maintenance_work_mem=256MB -c fsync=off"
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        with cluster_in(folder / "postgres", settings) as server:
            measure(server.url, folder, 10_000 if options.small else options.items)


if __name__ == "__main__":
    main()
