"""The desk, driven in a browser: claim, label, undo, campaigns, leases, opinions, and hostile texts."""

import re
from itertools import count

import httpx2
import pandas as pd
import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on
from tests.gate.pages import objects
from tests.gate.pages.conftest import sign_in
from tests.gate.pages.people import follow, press
from tests.gate.test_server import until
from transcendent import save
from transcendent.gate.database import connect
from transcendent.gate.pages.own_actions import last_to_undo

_names = count()


@pytest.fixture(scope="module")
def apps(tmp_path_factory):
    """An artifact of a detector of apps."""
    path = tmp_path_factory.mktemp("apps") / "gate.transcendent"
    save(objects.fitted(), path)
    return path


@pytest.fixture(scope="module")
def known():
    """Objects that the detector knows, and those of them that it accepts."""
    X, _ = objects.known()
    return X[objects.fitted().decide(X).accepted]


@pytest.fixture
def desk(server, apps, tmp_path):
    """Start a gate, which keeps all accepted objects for the audit, on a database of its own."""
    started = []

    def start(**settings):
        tables = tables_on(server)
        url = tables.__enter__()
        gate = gate_of(url, apps, tmp_path, audit=1, **settings)
        started.extend([tables, gate])
        return gate.__enter__()

    yield start
    for each in reversed(started):
        each.__exit__(None, None, None)


def send(gate, X, prefix, **given):
    client = gate.client(f"sensor {next(_names)}")
    client.decide([f"{prefix}{i}" for i in range(len(X))], X, **given)


def scalars(gate, sql, **given):
    engine = connect(gate.database)
    with engine.begin() as connection:
        found = connection.execute(text(sql), given)
        rows = found.scalars().all() if found.returns_rows else []
    engine.dispose()
    return rows


def title(page):
    return page.get_by_role("heading", level=1).inner_text()


def loaded(page):
    expect(page.locator("#why")).to_have_attribute("data-loaded", "")
    return page.locator("#why")


def test_an_analyst_labels_by_keys_alone(desk, browser_page, axe):
    gate = desk(reasons='["new family", "false alarm"]')
    send(gate, objects.strangers(4), "app-", context=[{"name": f"App {i}.apk"} for i in range(4)])
    page = sign_in(browser_page(gate), gate, "ann")
    assert title(page) == "4 to look at"
    assert axe(page) == []
    press(page, "Enter")
    first = title(page)
    assert first.startswith("App ")
    why = loaded(page)
    assert "called" in why.inner_text()
    assert "no labelled object" in why.inner_text()
    labels = page.locator(".labels button").all_inner_texts()
    assert labels == ["1 goodware", "2 malware", "3 unclear"]
    assert axe(page) == []
    page.keyboard.press("r")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    page.locator("textarea").fill("seen before\n<b>twice</b>")
    page.keyboard.press("Escape")
    press(page, "2")
    assert title(page) != first
    assert f"labelled {first} as malware" in page.get_by_role("status").inner_text()
    [label] = scalars(
        gate, "SELECT concat(label.label, '|', remark.reason, '|', remark.note) FROM label JOIN remark "
        "ON remark.label = label.id")  # fmt: skip
    assert label == "malware|new family|seen before\n<b>twice</b>"
    assert f"undo: malware for {first}" in page.locator(".act").inner_text()
    press(page, "u")
    assert title(page) == first
    assert f"took back what you said about {first}" in page.get_by_role("status").inner_text()
    assert scalars(gate, "SELECT action FROM label ORDER BY id") == ["label", "undo"]
    assert page.locator("[data-held]").count() > 0
    press(page, "s")
    press(page, "1")
    press(page, "Enter")
    with page.expect_navigation():  # as of a page that the browser had kept: its forms were sent before
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    page.goto("/desk/mine")
    assert title(page) == "What you did last"
    assert page.locator("ul.rows li").count() == 4
    assert axe(page) == []
    press(page, "u")
    assert scalars(gate, "SELECT action FROM label ORDER BY id DESC LIMIT 1") == ["undo"]
    loaded(page)
    page.wait_for_timeout(220)
    page.keyboard.press("?")
    expect(page.locator("details.help")).to_have_attribute("open", "")
    words = page.locator("dl.words").inner_text()
    assert "yours for 15 minutes" in words
    assert "unlike the calibration" in words
    assert axe(page) == []
    page.goto("/desk")
    assert "labelled today" in page.get_by_role("banner").inner_text()


def test_a_campaign_is_opened_then_labelled_whole_and_undone(desk, browser_page, axe):
    gate = desk()
    names = [{"name": f"FlashLight {i}"} for i in range(12)]
    send(gate, objects.family(12), "flash-", context=names)
    send(gate, objects.strangers(2), "alone-")
    objects.group(gate.database)
    page = sign_in(browser_page(gate), gate, "ann")
    rows = page.locator("ul.rows li").all_inner_texts()
    assert "12 like FlashLight" in rows[0]
    assert "not triaged" in rows[0]
    assert "Alone: 2" in rows[-1]
    follow(page, page.get_by_role("button", name="Open from those like FlashLight"))
    opened = set()
    for looks in range(3):
        button = page.get_by_role("button", name="all 12" if not looks else "all")
        assert button.is_disabled()
        assert f"{looks} of 3 are opened" in page.locator("#proves").inner_text()
        loaded(page)
        assert "permission::P" in page.locator(".names").last.inner_text()
        opened.add(title(page))
        press(page, "2")
    assert len(opened) == 3
    button = page.get_by_role("button", name="as malware")
    assert "At worst 63% of all 12 members are not" in page.locator("#proves").inner_text()
    assert axe(page) == []
    press(page, "c")
    assert "labelled 9 of a campaign as malware" in page.get_by_role("status").inner_text()
    assert scalars(gate, "SELECT count(*) FROM inferred WHERE how = 'campaign'") == [9]
    page.goto("/desk?only=new")
    assert "like" not in page.locator("ul.rows").inner_text().replace("like nothing known", "")
    press(page, "Enter")
    assert "undo: 9 of a campaign" in page.locator(".act").inner_text()
    press(page, "u")
    assert title(page).startswith("11 to look at")
    assert "took back the labels of a campaign" in page.get_by_role("status").inner_text()
    assert scalars(gate, "SELECT count(*) FROM item WHERE state = 1") == [3]


def test_what_follows_from_a_label_is_told_apart_from_what_a_person_did(desk, browser_page, known):
    gate = desk()
    both = pd.concat([known[:1], objects.family(1)])
    send(gate, both, "first-")
    send(gate, objects.family(1).iloc[[0] * 4], "again-", context=[{"name": "Torch"}] * 4)
    objects.group(gate.database)
    page = sign_in(browser_page(gate), gate, "ann")
    assert title(page) == "2 to look at, 4 copies follow"
    follow(page, page.get_by_role("button", name="Open from Audit"))
    press(page, "1")
    page.goto("/desk")
    follow(page, page.get_by_role("button", name="Open from Alone"))
    press(page, "2")
    page.goto("/desk/mine")
    assert page.locator("ul.rows li").count() == 2
    gate.client("root", "operator").undo(scalars(gate, "SELECT item FROM inferred")[0])
    there = sign_in(browser_page(gate), gate, "bob")
    press(there, "Enter")
    press(there, "1")
    said = there.get_by_role("status").inner_text()
    assert "3 labels that had followed from others were taken back: people disagree" in said
    there.goto("/desk/mine")
    assert there.locator("ul.rows li").count() == 1
    waiting = scalars(gate, "SELECT id FROM item WHERE state = 0 ORDER BY id")
    there.goto(f"/desk/items/{waiting[0]}")
    history = there.locator(".history").inner_text()
    assert "taken back, after what bob did elsewhere · people disagree" in history
    assert "undo" not in history
    press(there, "u")
    assert title(there) == "Torch"
    labelled = scalars(gate, "SELECT id FROM item WHERE state = 1")
    there.goto(f"/desk/items/{labelled[0]}")
    assert "This has a label already. It can be read" in there.locator("main").inner_text()
    assert there.get_by_role("button", name="Claim it").count() == 0


def test_undo_passes_over_what_holds_no_more(desk):
    gate = desk()
    send(gate, objects.strangers(14), "app-")
    ann = gate.client("ann", "analyst")
    items = [each["id"] for each in ann.claim(14)["items"]]
    ann.resolve(items[0], "malware")
    for item in items[1:]:
        ann.skip(item)
        ann.undo(item)
    engine = connect(gate.database)
    with engine.connect() as connection:
        assert last_to_undo(connection, "ann").item == items[0]
    engine.dispose()


def test_open_items_have_names_and_can_be_given_back(desk, browser_page, axe):
    gate = desk()
    send(gate, objects.strangers(3), "app-", context=[{"name": f"App {i}.apk"} for i in range(3)])
    page = sign_in(browser_page(gate), gate, "ann")
    press(page, "Enter")
    press(page, "Enter")
    page.goto("/desk")
    held = page.locator(".held li").all_inner_texts()
    assert len(held) == 2
    assert all(each.startswith("App ") for each in held)
    assert axe(page) == []
    follow(page, page.get_by_role("button", name="give all back"))
    assert "2 items given back" in page.get_by_role("status").inner_text()
    assert page.locator(".held").count() == 0
    assert scalars(gate, "SELECT count(*) FROM item WHERE holder IS NOT NULL") == [0]


def test_after_a_session_that_ended_one_comes_back_to_the_item(desk, browser_page):
    gate = desk()
    send(gate, objects.strangers(2), "app-")
    page = sign_in(browser_page(gate), gate, "ann")
    follow(page, page.get_by_role("button", name="Open from Alone"))
    there = page.url
    scalars(gate, "DELETE FROM session")
    press(page, "1")
    assert "had ended: what you just sent was not saved" in page.get_by_role("alert").inner_text()
    page.get_by_label("Your token").fill(gate.token("ann again", "analyst"))
    follow(page, page.get_by_role("button", name="Sign in"))
    assert page.url == there
    assert scalars(gate, "SELECT count(*) FROM label") == [0]


def test_a_lost_lease_is_said_at_once(desk, browser_page):
    gate = desk(lease=5)
    send(gate, objects.strangers(1), "app-")
    page = sign_in(browser_page(gate, expected=["ERR_INTERNET_DISCONNECTED", "409"]), gate, "ann")
    press(page, "Enter")
    loaded(page)
    number = int(re.search(r"items/(\d+)", page.url)[1])
    ends = scalars(gate, "SELECT held_until FROM item")[0]
    bob = gate.client("bob", "analyst")
    until(lambda: scalars(gate, "SELECT held_until FROM item")[0] > ends)  # the page has renewed it
    assert bob.claim()["items"] == []
    page.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    claimed = []
    until(lambda: claimed.extend(bob.claim()["items"]) or claimed)
    assert [each["id"] for each in claimed] == [number]
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_have_text("This is no longer yours: bob holds this.")
    assert page.locator("[data-held]:not([disabled])").count() == 0
    assert page.locator("progress.lost").count() == 1
    page.locator("[data-held]").first.evaluate("button => { button.disabled = false; button.click() }")
    expect(page.get_by_role("heading", level=1)).to_have_text("This is not possible now")
    assert scalars(gate, "SELECT count(*) FROM label") == [0]
    page.goto(f"/desk/items/{number}")
    assert "bob holds this" in page.locator("main").inner_text()
    assert page.locator("[data-held]").count() == 0


def test_what_checks_answers_is_answered_blind(desk, browser_page, known):
    gate = desk()
    send(gate, known[:1], "audited-")
    page = sign_in(browser_page(gate), gate, "ann")
    assert "answer hidden" in page.locator("ul.rows").inner_text()
    press(page, "Enter")
    number = re.search(r"items/(\d+)", page.url)[1]
    told = page.content()
    assert "What is this?" in page.locator("p.why").inner_text()
    for hidden in ("Accepted", "accepts", "needs", "credibility", 'id="why"', "data-load"):
        assert hidden not in told, hidden
    assert page.locator(".labels button").count() == 3
    page.goto(f"/desk/items/{number}?explained=1")
    assert "Accepted" not in page.content()
    inner = page.request.get(f"/desk/items/{number}/explanation").text()
    assert "Accepted" not in inner
    assert "cannot sway you" in page.locator("p.why").inner_text()
    shown, zeros = page.locator("table.features").all()
    assert shown.is_visible()
    assert not zeros.is_visible()
    assert "0" not in shown.locator("td").all_inner_texts()
    press(page, "1")
    follow(page, page.get_by_role("link", name="what the detector had said"))
    assert page.url.endswith(f"/desk/items/{number}")
    assert "Accepted: called" in loaded(page).inner_text()
    assert "from 0 to " in page.locator("#why").inner_text()
    assert page.get_by_role("button", name="Claim it").count() == 0
    page.goto("/desk/mine")
    follow(page, page.get_by_role("button", name="Undo"))
    assert "What is this?" in page.locator("p.why").inner_text()


def test_a_second_opinion_is_given_without_the_first(desk, browser_page):
    gate = desk(opinions=2)
    send(gate, objects.strangers(2), "app-")
    ann = gate.client("ann", "analyst")
    first = ann.claim()["items"][0]["id"]
    ann.resolve(first, "malware", note="surely")
    page = sign_in(browser_page(gate), gate, "bob")
    assert "Second opinions: 1" in page.locator("ul.rows").inner_text()
    follow(page, page.get_by_role("button", name="Open from Second opinions"))
    assert page.url.endswith(f"/desk/items/{first}?from=opinions")
    assert "Second opinion" in page.locator("p.where").inner_text()
    loaded(page)
    assert "surely" not in page.content()
    assert "What was said" not in page.content()
    assert page.locator("textarea").count() == 0
    press(page, "1")
    assert "Nothing more waits for you there" in page.content()
    assert "(an opinion)" in page.get_by_role("status").first.inner_text()
    assert scalars(gate, "SELECT concat(author, label) FROM opinion") == ["bobgoodware"]
    press(page, "u")
    assert f"/desk/items/{first}?" in page.url
    press(page, "2")
    assert scalars(gate, "SELECT concat(action, label) FROM opinion ORDER BY id") == [
        "opiniongoodware", "undo", "opinionmalware",
    ]  # fmt: skip


HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "quotes": "\"'><svg/onload=alert(1)>",
    "terminal": "\x1b[31mred\x1b[0m\x07",
    "right to left": "invoice\u202efdp.exe",
    "isolates": "\u2066\u2069\u200b\u2028",
    "long": "x" * 3000,
    "link": "javascript:alert(1)",
    "data link": "data:text/html,<script>alert(1)</script>",
    "odd link": 'https://evil.example/"onclick="alert(1)',
    "good link": "https://tickets.example/118?a=1&b=2",
    "template": "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "nested": {"<b>key</b>": ["<i>value</i>"]},
    "W" * 60: "W" * 100,
}


def test_hostile_texts_are_shown_as_text(desk, browser_page, axe):
    gate = desk(labels="unclear <b>bold</b>", reasons=f'["<i>why</i>", "{"W" * 100}"]')
    evil = '<img src=x onerror=alert("id")>'
    context = {"name": HOSTILE["markup"], "<u>field</u>": "x", **HOSTILE}
    gate.client("<s>sensor</s>").decide([evil], objects.strangers(1), context=[context])
    page = sign_in(browser_page(gate), gate, "<script>ann</script>")
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    press(page, "Enter")
    loaded(page)
    said = page.locator("main").inner_text()
    for part in ("<script>alert(1)</script>", "␛[31mred", "invoice⟨202E⟩fdp.exe", "⟨2066⟩", "{{ 7 * 7 }}"):
        assert part in said, part
    assert "<s>sensor</s>" in said
    assert evil in said
    tags = page.locator("main script, main img, main b b, main u, main s, main i, main svg[onload]").count()
    assert tags == 0
    links = [each.get_attribute("href") for each in page.locator("dl.facts a").all()]
    assert links == [HOSTILE["odd link"], HOSTILE["good link"]]
    assert {each.get_attribute("rel") for each in page.locator("dl.facts a").all()} == {"noreferrer noopener"}
    assert page.locator("dl.facts details").count() == 1
    assert "3,000 characters" in said
    assert axe(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("dl.facts dd").last.evaluate("value => value.clientWidth") > 150
    page.set_viewport_size({"width": 1280, "height": 720})
    page.locator("textarea").fill(HOSTILE["markup"] + HOSTILE["right to left"])
    page.locator("select").select_option(index=1)
    follow(page, page.locator(".labels button").last)
    page.goto("/desk/mine")
    assert "<b>bold</b>" in page.locator("main").inner_text()
    follow(page, page.locator("ul.rows a").first)
    assert "<script>alert(1)</script>" in page.locator(".history").inner_text()
    refused = gate.client("other")
    answer = httpx2.post(
        f"{gate.address}/v1/decisions",
        json={"objects": [{"id": "a" * 10_000, "values": [0] * 60}]},
        headers={"authorization": refused._http.headers["authorization"]},
    )
    assert answer.status_code == 422


def test_it_reads_without_scripts_and_on_a_narrow_screen(desk, browser_page, known):
    gate = desk()
    send(gate, objects.family(4), "flash-", context=[{"name": "a" * 150}] * 4)
    narrow = {"viewport": {"width": 390, "height": 800}, "java_script_enabled": False}
    page = sign_in(browser_page(gate, **narrow), gate, "ann")
    follow(page, page.get_by_role("button", name="Open the next one"))
    assert "yours until" in page.locator("p.where").inner_text()
    follow(page, page.get_by_role("link", name="What is unusual"))
    assert "What is unusual" in page.locator("#why").inner_text()
    number = re.search(r"items/(\d+)", page.url)[1]
    follow(page, page.get_by_role("button", name="malware"))
    assert number not in page.url
    assert "labelled aaa" in page.get_by_role("status").inner_text()
    follow(page, page.get_by_role("button", name="undo").first)
    assert number in page.url
    scripted = sign_in(browser_page(gate, viewport=narrow["viewport"]), gate, "bob")
    for path in ("/desk", f"/desk/items/{number}", "/desk/mine"):
        scripted.goto(path)
        assert scripted.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_forms_that_make_no_sense_are_refused(desk):
    gate = desk()
    send(gate, objects.strangers(1), "app-")
    with httpx2.Client(base_url=gate.address, follow_redirects=True) as http:
        own = {"origin": gate.address}
        page = http.post("/sign-in", data={"token": gate.token("ann", "analyst")}, headers=own).text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)[1]

        def post(path, **fields):
            return http.post(path, data={"csrf": csrf, **fields}, headers=own)

        item = re.search(r"items/(\d+)", str(post("/desk/claim").url))[1]
        for path, fields, status in (
            (f"/desk/items/{item}/label", {"label": "unheard of"}, 422),
            (f"/desk/items/{item}/label", {}, 422),
            (f"/desk/items/{item}/label", {"label": "malware", "note": "x" * 2001}, 422),
            (f"/desk/items/{item}/label", {"label": "malware", "csrf": "no"}, 403),
            ("/desk/items/7/label", {"label": "malware"}, 404),
            ("/desk/items/none/skip", {}, 422),
            ("/desk/campaigns/abc/label", {"all": "malware"}, 404),
            ("/desk/undo", {"which": "item:x"}, 422),
            ("/desk/undo", {"which": "item:7"}, 404),
            ("/desk/undo", {}, 409),
        ):
            answer = post(path, **fields)
            assert answer.status_code == status, (path, answer.text)
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert post("/desk/claim", **{"from": "campaign:abc"}).status_code == 200
        assert http.get("/desk/items/7").status_code == 404
        assert scalars(gate, "SELECT count(*) FROM label") == [0]
        many = (
            "INSERT INTO label (item, action, author) SELECT :item, 'skip', 'bob' FROM generate_series(1, 60)"
        )
        scalars(gate, many, item=int(item))
        page = http.get(f"/desk/items/{item}").text
        assert "10 earlier entries are not shown" in page
        assert page.count("</bdi>: skip") == 50
