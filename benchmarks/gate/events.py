"""Read events while transactions end in another order than they began in, or are killed; and what they cost.

python benchmarks/gate/events.py [poll] [inserts] [webhook] [--events 100000] [--batches 300] [--seed 0]

poll     Eight processes write events in transactions that wait at random before they commit; one transaction
         in ten is rolled back, and three times a second a process is ended by SIGKILL and another started. A
         reader in pages of random sizes must see every committed event once. Beside it, the number of events
         is printed that a reader misses who remembers the largest number seen.
inserts  Batches of 100 rejected objects are committed to the quarantine, in turns: without events, with
         events, and with two other ways to find new items: a column with the transaction in `item`, and an
         index of it (btree or BRIN).
webhook  2,000 events are sent to a receiver on this machine.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from sqlalchemy import Engine, text

from transcendent.gate.database import connect, migrate
from transcendent.gate.events import Cursor, Events
from transcendent.gate.features import encode
from transcendent.gate.intake import Kept, keep, register
from transcendent.gate.model import Model
from transcendent.gate.targets import WebhookTarget
from transcendent.gate.webhooks import Webhook
from transcendent.tables.layout import Layout

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import cluster_in
from tests.gate.receiver import Receiver

WRITERS = 8
KILLS = 3  # a second
_NO_EVENTS = "DROP TRIGGER tell_rejected ON item"
_COLUMN = """ALTER TABLE item ADD COLUMN transaction bigint;
ALTER TABLE item ALTER COLUMN transaction SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX ON item USING {} (transaction)"""
VARIANTS = {
    "no events": (_NO_EVENTS,),
    "events": (),
    "column, btree": (_NO_EVENTS, _COLUMN.format("btree")),
    "column, BRIN": (_NO_EVENTS, _COLUMN.format("brin")),
}


def write(url: str, seed: int) -> None:
    """Write events until killed."""
    draw = random.Random(seed)
    sql = "INSERT INTO label (item, action, author) VALUES (%s, 'skip', 'writer')"
    with psycopg.connect(url) as connection:
        while True:
            with connection.cursor() as cursor:
                items = [(draw.getrandbits(62),) for _ in range(draw.randrange(1, 40))]
                cursor.executemany(sql, items)
                time.sleep(draw.uniform(0, 0.02))
            if draw.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()


def poll(url: str, total: int, seed: int) -> None:
    """Read events while processes write them, and compare with what they have committed."""
    draw, context, seeds = random.Random(seed), multiprocessing.get_context("fork"), iter(range(10**9))

    def start() -> Any:
        process = context.Process(target=write, args=(url, seed + next(seeds)))
        process.start()
        return process

    writers, kills, began = [start() for _ in range(WRITERS)], 0, time.monotonic()
    engine, cursor, by_number, last = connect(url), Cursor(), 0, 0
    events, written, read = Events(engine), False, list[int]()
    while True:
        page = events.after(cursor, draw.randrange(1, 1000))
        read += [each["data"]["item"] for each in page.events]
        with engine.connect() as connection:
            sql = text("SELECT max(number), sum(cardinality(items)) FROM event WHERE number > :last")
            newest, more = connection.execute(sql, {"last": last}).one()
            last, by_number = newest or last, by_number + int(more or 0)
        if written and page.last == cursor:
            break
        cursor = page.last
        if not written and time.monotonic() - began > kills / KILLS:
            writers.append(start())
            os.kill(writers.pop(draw.randrange(WRITERS)).pid, signal.SIGKILL)
            kills += 1
        if not written and len(read) >= total:
            for each in writers:
                os.kill(each.pid, signal.SIGKILL)
            time.sleep(1)  # for the server to notice
            written = True
    with engine.connect() as connection:
        committed = connection.execute(text("SELECT item FROM label")).scalars().all()
    engine.dispose()
    seconds = time.monotonic() - began
    print(f"{len(committed):,} events committed, {kills} processes killed, in {seconds:.0f} s")
    print(f"missed {len(set(committed) - set(read)):,}, read twice {len(read) - len(set(read)):,}")
    print(f"a reader by number misses {len(committed) - by_number:,}")
    if sorted(read) != sorted(committed):
        raise SystemExit("the events read are not those committed")


def rejected(engine: Engine, count: int, prefix: str) -> list[Kept]:
    """Return rejected objects to keep."""
    model = register(engine, Model(None, "d" * 64, Layout(20), ["goodware", "malware"], {}))
    features = encode(np.random.default_rng(0).normal(size=(count, 20)))
    names = [f"{prefix}{i}" for i in range(count)]
    decision = (model, 1, 0.1, 0.1, 0.5, 1.0, None, 1, False)
    answer, nothing = (None, "malware", None), (None, None, None, True)
    return [
        (hashlib.sha256(name.encode()).digest(), *decision, name, "sensor", *answer, row, *nothing)
        for name, row in zip(names, features, strict=True)
    ]


def insert(url: str, batches: int) -> None:
    """Commit batches of rejected objects to a database for each variant, in turns."""
    with psycopg.connect(url, autocommit=True) as admin:
        for place in range(len(VARIANTS)):
            admin.execute(f"CREATE DATABASE variant{place}")
    engines = []
    for place, statements in enumerate(VARIANTS.values()):
        engines.append(connect(f"{url.rpartition('/')[0]}/variant{place}"))
        migrate(engines[-1])
        with engines[-1].begin() as connection:
            for sql in statements:
                connection.execute(text(sql))
    took: list[list[float]] = [[] for _ in engines]
    for turn in range(batches):
        for place, engine in enumerate(engines):
            made = rejected(engine, 100, f"{turn}_")
            started = time.perf_counter()
            keep(engine, made)
            took[place].append(1e3 * (time.perf_counter() - started))
    bare = statistics.median(took[0])
    for name, each in zip(VARIANTS, took, strict=True):
        median = statistics.median(each)
        print(f"{name:14} {median:6.2f} ms   {median / bare:.3f} of no events")
    for engine in engines:
        engine.dispose()


def deliver(url: str, count: int = 2000) -> None:
    """Send events to a receiver in this process."""
    receiver, engine = Receiver(), connect(url)
    os.environ["SECRET"] = "whsec_" + "A" * 40
    target = WebhookTarget(name="here", url=receiver.url, secret_env="SECRET", private=True)
    webhook = Webhook(engine, Events(engine), target)
    webhook.make()
    keep(engine, rejected(engine, count, "sent"))
    started = time.perf_counter()
    while len(receiver.received) < count:
        webhook.work()
    print(f"{count / (time.perf_counter() - started):,.0f} deliveries a second")
    engine.dispose()
    receiver.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", default=["poll", "inserts", "webhook"])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster_in(Path(folder)) as server:
        engine = connect(server.url)
        migrate(engine)
        engine.dispose()
        if "webhook" in given.what:
            deliver(server.url)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("DELETE FROM event")
        if "poll" in given.what:
            poll(server.url, given.events, given.seed)
        if "inserts" in given.what:
            insert(server.url, given.batches)


if __name__ == "__main__":
    main()
