"""Measure claims, inserts, counts, retention and bytes of a quarantine with 10^4 to 10^7 waiting items.

TRANSCENDENT_DATA=... python benchmarks/gate/waiting.py [--sizes 10000 1000000 10000000] [--picture FILE]

Items are apps of 2013 as the gate keeps them, in two months, copied within the database until there are
enough. Then the insertion of 100 new items, a claim of 10, counts() while 2,000 are held, and searches for an
id are timed 200 times each, through the code that the gate runs. counts() has to equal a scan. The largest
number is added to the older month, which retention drops in the end.
"""

import argparse
import statistics
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import apps
import numpy as np
from sqlalchemy import Engine, text

from transcendent.gate.database import connect, drop_months, make_month, migrate, month_of
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.model import load_model
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.retention import sweep_identities

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Cluster, cluster_in

TURNS = 200
COPIES = """
WITH source AS (
    SELECT ({month}::bigint << 40) | nextval('item_number') AS new, random() AS rank, payload.*,
        item.model, item.tier
    FROM payload JOIN item USING (id) JOIN generate_series(1, {copies}) ON true
    WHERE payload.id IN (SELECT id FROM item ORDER BY id LIMIT {sources})
), identities AS (
    INSERT INTO identity SELECT sha256(convert_to(new::text, 'UTF8')), new FROM source
), items AS (
    INSERT INTO item (id, rank, received_at, model, tier) SELECT new, rank, now(), model, tier FROM source
)
INSERT INTO payload SELECT new, credibility, confidence, probability, votes, doubt, accepted,
    object_id || '-' || new, sender, cutoff, label, p_values, features FROM source
"""


class Filler:
    """New objects to keep, each with an id of its own.

    Parameters
    ----------
    engine : Engine
        Of the database.
    artifact : path
        The gate.
    """

    def __init__(self, engine: Engine, artifact: Path) -> None:
        self.engine, self.model = engine, load_model(artifact)
        self._number = register(engine, self.model)
        _, rows = apps.objects_to_send(20_000)
        rejected = ~self.model.rejector.decide(rows).accepted
        self._rows = rows[np.flatnonzero(rejected)]
        self._turn = 0

    def objects(self, n: int) -> list[Any]:
        """Return n rejected objects."""
        self._turn += 1
        chosen = self._rows[(np.arange(n) + n * self._turn) % self._rows.shape[0]]
        ids = [f"object-{self._turn}-{i}" for i in range(n)]
        decisions = self.model.rejector.decide(chosen)
        senders = ["sensor"] * n
        return list(to_keep(self._number, Draw(b"", 0), ids, senders, chosen, decisions).values())

    def fill(self, size: int, months: list[int], step: int = 100_000) -> None:
        """Add items up to a number, equally in each month."""
        keep(self.engine, self.objects(1000))
        have = _count(self.engine)
        sources = 1000
        while have < size:
            more = min(step, size - have)
            copies = max(1, more // sources)
            for month in months:
                sql = COPIES.format(month=month, copies=max(1, copies // len(months)), sources=sources)
                with self.engine.begin() as connection:
                    connection.execute(text(sql))
            have = _count(self.engine)
            print(f"\r  {have:,} items", end="", flush=True)
        print()
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))


def _count(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM item")).scalar_one())


def timed(work: Any) -> list[float]:
    """Return the milliseconds of each of 200 calls."""
    took = []
    for _ in range(TURNS):
        started = time.perf_counter()
        work()
        took.append(1e3 * (time.perf_counter() - started))
    return took


def insertion(filler: Filler) -> list[float]:
    """Time the insertion of 100 objects that were decided before."""
    batches = iter([filler.objects(100) for _ in range(TURNS + 5)])
    for _ in range(5):
        keep(filler.engine, next(batches))
    return timed(lambda: keep(filler.engine, next(batches)))


def claims(engine: Engine) -> tuple[list[float], list[float]]:
    """Time claims of 10 items by 50 analysts, who hold 2,000 in the end, then counts; give all back."""
    quarantine, turn = Quarantine(engine), iter(range(10**9))

    def claim() -> None:
        claimed.append(quarantine.claim(f"analyst{next(turn) % 50}", 10).items)

    claimed: list[Any] = []
    claim()
    found = timed(claim)
    assert len({item["id"] for items in claimed for item in items}) == 10 * (TURNS + 1)
    counted = timed(quarantine.counts)
    for analyst in range(50):
        quarantine.release(f"analyst{analyst}")
    return found, counted


def searches(engine: Engine) -> list[float]:
    """Time searches for the ids of objects, drawn from all of them."""
    with engine.connect() as connection:
        sql = text("SELECT object_id FROM payload TABLESAMPLE SYSTEM (1) ORDER BY random() LIMIT :n")
        names = cycle(connection.execute(sql, {"n": TURNS}).scalars().all())
    quarantine = Quarantine(engine)
    return timed(lambda: quarantine.find(next(names), "sensor")[0])


def check_counts(engine: Engine) -> None:
    """Raise if the counts differ from a scan."""
    counted, scanned = Quarantine(engine).counts(), _count(engine)
    if counted["waiting"] + counted["labelled"] != scanned:
        sys.exit(f"counts() says {counted}, and there are {scanned:,} items.")


def _in_words(took: list[float]) -> str:
    return f"{statistics.median(took):.1f} ms (p99 {np.quantile(took, 0.99):.1f})"


def bytes_of(engine: Engine) -> dict[str, int]:
    """Return the bytes of the tables, with their indexes."""
    sql = """SELECT coalesce(inhparent::regclass::text, relname), sum(pg_total_relation_size(oid))
    FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace GROUP BY 1"""
    with engine.connect() as connection:
        found = {name: int(size) for name, size in connection.execute(text(sql))}
    return {name: found[name] for name in ("identity", "item", "payload")}


def retention(engine: Engine, months: list[int]) -> None:
    """Drop the oldest month, and forget its identities."""
    with engine.connect() as connection:
        sql = text("SELECT count(*) FROM item WHERE id < :end")
        n = connection.execute(sql, {"end": months[1] << 40}).scalar_one()
    started = time.perf_counter()
    drop_months(engine, months[1])
    dropped = time.perf_counter() - started
    started = time.perf_counter()
    swept = sweep_identities(engine)
    print(f"  a month of {n:,} items dropped in {dropped:.2f} s; ", end="")
    print(f"{swept:,} identities forgotten in {time.perf_counter() - started:.0f} s")


def measure(server: Cluster, artifact: Path, sizes: list[int]) -> list[tuple[int, float, float]]:
    """Fill the quarantine step by step, and time it."""
    engine = connect(server.url)
    migrate(engine)
    filler = Filler(engine, artifact)
    this = month_of(time.strftime("%Y-%m", time.gmtime()))
    months = [this - 1, this]
    with engine.begin() as connection:
        make_month(connection, this - 1)
    found = []
    for size in sizes:
        last = size == sizes[-1]
        filler.fill(size + last * _count(engine), [this - 1] if last else months)
        n = _count(engine)
        inserted, (claimed, counted) = insertion(filler), claims(engine)
        check_counts(engine)
        sizes_now, n_now = bytes_of(engine), _count(engine)
        each = ", ".join(f"{name} {size / n_now:,.0f}" for name, size in sizes_now.items())
        print(
            f"  {n:,} waiting: insert 100 in {_in_words(inserted)}, claim 10 in {_in_words(claimed)}: ",
            end="",
        )
        few, many = statistics.median(claimed[:50]), statistics.median(claimed[-50:])
        print(f"{few:.1f} ms with up to 500 held, {many:.1f} ms with 1,500 to 2,000 held; ", end="")
        print(f"counts in {_in_words(counted)}; find in {_in_words(searches(engine))}; ", end="")
        print(f"bytes an item: {each}, ", end="")
        print(f"in all {sum(sizes_now.values()) / n_now:,.0f}", flush=True)
        found.append((n, statistics.median(inserted), statistics.median(claimed)))
    for column, name in ((1, "insert"), (2, "claim")):
        values = [each[column] for each in found]
        print(f"  {name}: slowest / fastest median {max(values) / min(values):.2f}")
    per_item = sum(sizes_now.values()) / n_now
    print(f"  10^8 items would take {1e8 * per_item / 1e9:,.0f} GB")
    retention(engine, months)
    check_counts(engine)
    engine.dispose()
    return found


def draw(found: list[tuple[int, float, float]], path: Path) -> None:
    """Plot latency against the number of waiting items."""
    import matplotlib.pyplot as plt

    sizes = [each[0] for each in found]
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.plot(sizes, [each[1] for each in found], "o-", label="insert 100 objects, and commit")
    axes.plot(sizes, [each[2] for each in found], "s-", label="claim 10 items")
    axes.set(xscale="log", xlabel="items that wait", ylabel="median, milliseconds")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--folder", type=Path, help="where the database goes; by default a temporary folder")
    options = parser.parse_args()
    settings = "-c shared_buffers=2GB -c max_wal_size=8GB -c maintenance_work_mem=512MB"
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        apps.fit(folder / "gate.transcendent")
        with cluster_in(folder / "postgres", settings) as server:
            found = measure(server, folder / "gate.transcendent", options.sizes)
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
