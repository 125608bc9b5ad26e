"""Desk and wall stay open while gates are killed and the database goes away."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from tests.gate.conftest import ForkedGate, away
from tests.gate.pages import objects
from tests.gate.pages.people import Analyst, Person, numbers, sign_in
from transcendent import save
from transcendent.gate.database import connect
from transcendent.gate.pages.sessions import Sessions

LABELS = "SELECT item, count(*) FROM label WHERE author = 'ann' AND action = 'label' GROUP BY item"


@pytest.fixture
def gates(database, tmp_path):
    """Two gates on one database."""
    path = tmp_path / "gate.transcendent"
    save(objects.fitted(), path)
    made = [ForkedGate(database, path, tmp_path / f"log{i}", audit=0.5) for i in range(2)]
    for each in made:
        each.wait()
    yield made
    for each in made:
        if each.process.poll() is None:
            each.stop()


def link(gate, name, role):
    engine = connect(gate.database)
    key = Sessions(engine).invite(name, role, 5)
    engine.dispose()
    return f"{gate.address}/sign-in/link?key={key}"


def refresh(page):
    """Have a page bring itself up to date, as it does every 15 seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def disturb(gates):
    """Kill both gates, one after the other, and start them again."""
    for place, gate in enumerate(gates):
        time.sleep(0.3)
        gate.stop(signal.SIGKILL)
        gates[place] = ForkedGate(
            gate.database, gate.log.parent / "gate.transcendent", gate.log, audit=0.5, port=gate.port
        ).wait()


def test_desk_and_wall_outlive_gates_and_the_database(gates, chromium):
    gates[0].client().decide([f"app-{i}" for i in range(200)], objects.strangers(200))
    addresses = [each.address for each in gates]
    desk, wall = chromium.new_context(), chromium.new_context()
    ann, door = Analyst(desk, addresses), Person(wall, addresses[:1])
    for each in gates:  # on ports of their own, so each has a cookie of its own
        sign_in(ann.page, link(each, "ann", "analyst"))
    sign_in(door.page, link(gates[0], "door", "viewer"))
    stale = door.page.locator("#stale")
    with ThreadPoolExecutor(1) as pool:
        disturbed = pool.submit(disturb, gates)
        while not disturbed.done():
            ann.label()
            refresh(door.page)
        disturbed.result()
    with away(gates[0].database):
        refresh(door.page)
        expect(stale).to_be_visible()
        ann.label()
    refresh(door.page)
    expect(stale).to_be_hidden()
    known = len(ann.confirmed)
    while len(ann.confirmed) < known + 2:
        ann.label()
    engine = connect(gates[0].database)
    with engine.connect() as connection:
        times = dict(connection.execute(text(LABELS)).all())
    engine.dispose()
    assert ann.faults + door.faults == []
    assert [times.get(item) for item in ann.confirmed] == [1] * len(set(ann.confirmed))
    assert set(times.values()) == {1}
    assert "503 The gate cannot answer now" in ann.met
    for address in addresses:
        assert numbers(ann.page, address)[2] == len(times)
    for each in (desk, wall):
        each.close()
