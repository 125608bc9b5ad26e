"""The wall and the month: what they show, what operators do there, and that they read few rows."""

import json
import re
import time
from datetime import timedelta

import pytest
from sklearn.svm import LinearSVC
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on
from tests.gate.pages.conftest import sign_in
from tests.gate.pages.people import follow
from tests.gate.pages.scenes import paint, scans
from tests.gate.pages.test_sign_in import Browser
from transcendent import InductiveEvaluator, save
from transcendent.gate import model as gate_model
from transcendent.gate import stored
from transcendent.gate.database import connect
from transcendent.gate.deployments import deploy
from transcendent.gate.pages.promoting import Change, Promotions
from transcendent.gate.pages.sparklines import day
from transcendent.gate.pages.state import read_month, read_wall
from transcendent.gate.pages.verdict import tiles, verdict
from transcendent.gate.pages.wall import reason_in
from transcendent.gate.promotion import promote
from transcendent.gate.shadows import shadow
from transcendent.gate.stored import find

PLAIN = {"audit": 0.1, "budget": None}
SHADOW = {"sample": 1.0, "audit": 1.0, "budget": None}
BY = ("ann", "a reason")
WAIT = 20


def test_a_reason_controls_no_terminal_of_those_who_read_it():
    assert reason_in({"reason": " a\x1b]0;b\x07\u202e\nc "}) == ("a\\x1b]0;b\\x07\\u202e\nc", None)


@pytest.fixture(scope="module")
def other(problem, tmp_path_factory):
    """The artifact of another model."""
    X, y = problem
    path = tmp_path_factory.mktemp("other") / "other"
    save(InductiveEvaluator(LinearSVC(C=0.01, random_state=0), random_state=3).fit(X[:800], y[:800]), path)
    return path


@pytest.fixture(scope="module")
def following(server, artifact, other, tmp_path_factory):
    """A gate that follows deployments, its engine, and the models "one", which decides, and "other"."""
    with pytest.MonkeyPatch.context() as patch, tables_on(server) as url:
        patch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
        engine, models = connect(url), {}
        for name, path in (("one", artifact), ("other", other)):
            digest = stored.add(engine, path, [], None, name, *BY).digest
            with engine.connect() as connection:
                models[name] = find(connection, digest)
        promote(engine, models["one"], "active", PLAIN, *BY, 0)
        with gate_of(url, None, tmp_path_factory.mktemp("following"), promised_error=0.02) as gate:
            yield gate, engine, models
        engine.dispose()


@pytest.fixture
def scene(following):
    """The same with "one" deciding, "other" its shadow, and days behind them."""
    gate, engine, models = following
    number = promote(engine, models["one"], "active", PLAIN, *BY, WAIT).deployment
    beside = shadow(engine, models["other"], SHADOW, *BY)
    alarms = paint(engine, number, drift=True, shadow=beside, active=models["one"].number)
    return gate, engine, models, alarms


def row(engine, sql, **given):
    with engine.connect() as connection:
        return connection.execute(text(sql), given).one()


@pytest.fixture(scope="module")
def operator(following):
    """A client that is signed in as an operator, by requests alone."""
    browser = Browser(following[0])
    browser.post("/sign-in", {"token": following[0].token("chief", "operator"), "next": "/wall"})
    yield browser
    browser.http.close()


class TestPages:
    def test_an_operator_acknowledges_promotes_and_rolls_back(self, scene, browser_page, axe):
        gate, engine, models, alarms = scene
        page = sign_in(browser_page(gate, expected=["409"]), gate, "boss", "operator", "/wall")
        said = page.get_by_role("heading", level=1).inner_text()
        assert "have been arriving since" in said
        assert "are still right" in said
        assert axe(page) == []

        follow(page, page.locator(f"#alarm-{alarms['drift']}"))
        assert "accessibility" in page.get_by_role("table").inner_text()
        assert axe(page) == []
        page.get_by_label("What do you make of it?").fill("a new family <b>")
        follow(page, page.get_by_role("button", name="Seen"))
        page.get_by_text("The alarm is acknowledged.").wait_for()
        sql = "SELECT acknowledged_by, reason FROM alarm WHERE id = :id"
        assert row(engine, sql, id=alarms["drift"]) == ("boss", "a new family <b>")
        assert page.locator(f"#alarm-{alarms['drift']}").count() == 0

        follow(page, page.get_by_role("link", name="Promote"))
        told = page.get_by_role("main").inner_text()
        assert "About 1 in 42 objects gets another answer" in told
        assert "10 of these get another label; the rest are rejected by one of the two" in told
        assert re.search(r"about 1,[5-9]\d\d objects a day fewer go to analysts", told)
        assert "It can be undone" in told
        assert "The wall begins anew" in told
        assert axe(page) == []
        assert page.locator("button.main", has_text="Promote").count() == 1
        page.get_by_label("Why?").fill("right more often")
        follow(page, page.get_by_role("button", name="Promote"))
        page.get_by_role("heading", name="decides since").wait_for()
        assert axe(page) == []
        sql = "SELECT model, action, author, reason FROM deployment ORDER BY id DESC LIMIT 1"
        assert row(engine, sql) == (models["other"].number, "active", "boss", "right more often")

        page.goto("/wall")
        follow(page, page.get_by_role("link", name="Roll back"))
        assert "About 1 in 42 objects gets another answer" in page.get_by_role("main").inner_text()
        assert "The wall begins anew" in page.get_by_role("main").inner_text()
        page.get_by_label("Why?").fill("no")
        follow(page, page.get_by_role("button", name="Roll back"))
        page.get_by_role("heading", name="decides since").wait_for()
        assert row(engine, sql) == (models["one"].number, "active", "boss", "no")

        page.goto("/wall")
        assert page.locator("svg .alarm").count() == 1  # of the deployment before
        follow(page, page.get_by_role("link", name="This month, to print"))
        told = page.get_by_role("main").inner_text()
        assert re.search(r"rolled back to \w{8} one by boss, no", told)
        assert re.search(r"promoted \w{8} other by boss, right more often", told)

    def test_what_a_shadow_that_looks_worse_changes(self, scene, operator):
        _, engine, models, _ = scene
        worse = {"better": None, "labels": 1, "unclear": 0, "active_right": 1, "shadow_right": 0}
        worse |= {"other_label": 1, "shadow_rejected": 1777}
        with engine.begin() as connection:
            sql = "UPDATE compared SET found = found || CAST(:worse AS jsonb)"
            connection.execute(text(sql), {"worse": json.dumps(worse)})
        path = f"/wall/promote/{models['other'].digest}"
        page = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", operator.http.get(path).text))
        assert "Of 1 labelled object on which they differ" in page
        assert "So far it looks worse; waiting is safe." in page
        assert "1 of these gets another label" in page
        assert "It rejects as many of them: 15%." in page
        assert "more labels" not in page
        assert "a day fewer" not in page
        for shown in (path, "/wall"):
            assert not re.search(r'class="(button )?main"[^>]*>Promote', operator.http.get(shown).text)

    def test_a_confirmation_of_something_else_is_refused(self, scene, browser_page):
        gate, engine, models, _ = scene
        page = sign_in(browser_page(gate, expected=["409"]), gate, "late", "operator", "/wall")
        follow(page, page.get_by_role("link", name="Promote"))
        page.get_by_label("Why?").fill("better")
        promote(engine, models["one"], "active", {"audit": 0.2, "budget": None}, *BY, WAIT)
        follow(page, page.get_by_role("button", name="Promote"))
        assert "another model decides by now" in page.get_by_role("alert").inner_text()
        assert page.get_by_label("Why?").input_value() == "better"
        follow(page, page.get_by_role("button", name="Promote"))
        page.get_by_role("heading", name="decides since").wait_for()

    def test_a_shadow_is_retired(self, scene, browser_page):
        gate, _, _, _ = scene
        page = sign_in(browser_page(gate), gate, "tidy", "operator", "/wall")
        follow(page, page.get_by_role("link", name="Retire"))
        assert "No answer changes" in page.get_by_role("main").inner_text()
        page.get_by_label("Why?").fill("enough")
        follow(page, page.get_by_role("button", name="Retire"))
        page.get_by_text("The shadow is retired").wait_for()
        assert page.get_by_role("link", name="Promote").count() == 0

    def test_the_wall_brings_itself_up_to_date(self, scene, browser_page):
        gate, engine, _, _ = scene
        page = browser_page(gate, expected=["ERR_INTERNET_DISCONNECTED"])
        page.clock.install()
        sign_in(page, gate, "door", "viewer", "/wall")
        page.locator("#reload").focus()
        with engine.begin() as connection:
            connection.execute(text("UPDATE alarm SET kind = 'harm' WHERE kind = 'drift'"))
        page.clock.fast_forward(16_000)
        page.get_by_role("heading", name="more accepted answers are wrong").wait_for()
        assert page.evaluate("document.activeElement.id") == "reload"
        page.context.set_offline(True)
        page.clock.fast_forward(16_000)
        page.get_by_text("what it shows is old").wait_for()
        assert set(page.locator("[data-live]").all_inner_texts()) == {"not known"}
        assert page.locator(".gates .good").count() == 0
        page.context.set_offline(False)
        page.clock.fast_forward(16_000)
        page.get_by_text("what it shows is old").wait_for(state="hidden")
        assert page.get_by_role("link", name="Promote").count() == 0
        assert page.get_by_role("link", name="Seen").count() == 0
        assert "up" in page.locator("[data-live]").all_inner_texts()

    def test_the_month_fits_a_page_of_paper(self, scene, browser_page, axe, tmp_path):
        gate, *_ = scene
        page = sign_in(browser_page(gate), gate, "payer", "viewer", "/wall")
        follow(page, page.get_by_role("link", name="This month, to print"))
        assert axe(page) == []
        follow(page, page.get_by_role("link", name="The month before"))
        assert len(page.locator("table.days tbody tr").all()) in (28, 29, 30, 31)
        pdf = page.pdf(format="A4", prefer_css_page_size=True, path=tmp_path / "month.pdf")
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
        page.emulate_media(color_scheme="dark", media="print")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 30, 32)"

    @pytest.mark.parametrize("path", ["/wall", "/wall/month/2026-10"])
    def test_it_works_at_every_width_in_light_and_dark(self, scene, browser_page, axe, path):
        gate, *_ = scene
        page = sign_in(browser_page(gate), gate, f"eyes{path[-2:]}", "operator", path)
        for each in page.get_by_text("What these words mean").all():
            each.click()
        for width, scheme in ((1920, "light"), (1280, "dark"), (390, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert axe(page) == []

    def test_the_wall_fills_a_large_screen(self, scene, browser_page):
        page = sign_in(browser_page(scene[0]), scene[0], "door2", "viewer", "/wall")
        for width, least in ((1280, 1270), (1920, 1700)):
            page.set_viewport_size({"width": width, "height": 1080})
            assert page.locator("main").bounding_box()["width"] >= least

    def test_columns_that_say_nothing_are_not_there(self, scene, operator):
        _, engine, models, _ = scene
        for role in ("Agrees", "Right where they differ", "Change"):
            assert f">{role}</th>" in operator.http.get("/wall").text
        with engine.begin() as connection:
            deploy(connection, models["other"].number, "retire", {}, *BY)
        page = operator.http.get("/wall").text
        assert ">Agrees</th>" not in page
        assert ">Right where they differ</th>" not in page

    def test_a_month_says_of_which_model_and_time_its_error_is(self, scene, operator):
        _, engine, models, _ = scene
        today = row(engine, "SELECT (now() AT TIME ZONE 'UTC')::date AS day").day
        first = today.replace(day=1)
        with engine.begin() as connection:
            connection.execute(text("UPDATE deployment SET made_at = made_at - interval '20 days'"))
            seen = "acknowledged_at = raised_at, acknowledged_by = 'ann', reason = 'a new family'"
            connection.execute(text(f"UPDATE alarm SET {seen}"))
        with engine.connect() as connection:
            found = read_month(connection, first, 0.02)
        each = found.deciders[-1]
        assert each.digest == models["one"].digest
        assert today - each.error.until in (timedelta(days=1), timedelta(days=2))  # a gate may look anew
        low, wrong, high = each.wrong
        assert low < wrong < high < each.objects
        page = re.sub("<[^>]*>", "", operator.http.get(f"/wall/month/{first:%Y-%m}").text)
        assert f"since {day(each.since)} until {day(each.error.until)}; promised at most 2%" in page
        assert f"about {wrong:,.0f} are probably wrong ({low:,.0f} to {high:,.0f})" in page
        if any(alarm["kind"] == "drift" for alarm in found.alarms):
            assert "(seen by ann: a new family)" in page

    def test_a_month_without_records_says_since_when_there_are_some(self, scene, operator):
        began = row(scene[1], "SELECT min(day) AS day FROM decided_day").day
        page = operator.http.get("/wall/month/2025-01").text
        assert f"There is no record before {began:%-d %b %Y}." in page
        assert "0 objects" not in page
        assert "This month has not begun." in operator.http.get("/wall/month/2199-01").text

    @pytest.mark.parametrize("kind", ["drift", "rejections", "harm", "settling"])
    def test_an_alarm_says_what_to_do_next(self, scene, operator, kind):
        _, engine, _, alarms = scene
        with engine.begin() as connection:
            sql = text("UPDATE alarm SET kind = :kind WHERE id = :id")
            connection.execute(sql, {"kind": kind, "id": alarms["drift"]})
        assert "What to do next." in operator.http.get(f"/wall/alarms/{alarms['drift']}").text


class TestRefusals:
    def test_others_see_it_and_only_operators_act(self, scene):
        gate, _, models, alarms = scene
        paths = [
            f"/wall/alarms/{alarms['drift']}",
            f"/wall/promote/{models['other'].digest}",
            f"/wall/retire/{models['other'].digest}",
            "/wall/roll-back",
        ]
        for role in ("viewer", "analyst"):
            browser = Browser(gate)
            browser.post("/sign-in", {"token": gate.token(f"a {role}", role), "next": "/wall"})
            assert browser.http.get("/wall").status_code == 200
            for path in paths:
                assert browser.http.get(path).status_code == 403
                fields = {"csrf": browser.csrf("/wall"), "reason": "x", "over": "1"}
                assert browser.post(path, fields).status_code == 403
            browser.http.close()

    def test_forms_need_a_reason_and_the_secret_of_the_session(self, scene, operator):
        _, engine, models, alarms = scene
        for path in (
            f"/wall/alarms/{alarms['drift']}",
            f"/wall/promote/{models['other'].digest}",
            f"/wall/retire/{models['other'].digest}",
        ):
            csrf = operator.csrf(path)
            assert csrf
            before = row(engine, "SELECT count(*) FROM deployment")
            for reason in ("", "  ", "x" * 2001, "a\0b"):
                assert operator.post(path, {"csrf": csrf, "reason": reason}).status_code == 422
            assert operator.post(path, {"csrf": "no", "reason": "x"}).status_code == 403
            assert (
                operator.post(path, {"csrf": csrf, "reason": "x"}, "https://evil.example").status_code == 403
            )
            assert row(engine, "SELECT count(*) FROM deployment") == before
        sql = "SELECT count(*) FROM alarm WHERE id = :id AND acknowledged_at IS NULL"
        assert row(engine, sql, id=alarms["drift"])[0] == 1

    @pytest.mark.parametrize(
        "path",
        [
            *("/wall/alarms/99999", "/wall/promote/f00", "/wall/retire/zz", "/wall/promotions/99999"),
            *("/wall/month/2026-13", "/wall/month/x", "/wall/month/0001-01", "/wall/month/2026-1"),
        ],
    )
    def test_what_does_not_exist_is_not_found(self, scene, operator, path):
        assert operator.http.get(path).status_code == 404

    def test_two_operators_acknowledge_one_alarm(self, scene, operator):
        path = f"/wall/alarms/{scene[3]['drift']}"
        fields = {"csrf": operator.csrf(path), "reason": "seen"}
        assert operator.post(path, fields).status_code == 303
        assert operator.post(path, fields).status_code == 409

    def test_hostile_texts_are_shown_as_text(self, scene, operator):
        *_, alarms = scene
        hostile = "<script>alert(1)</script>\u202e\x1b[31m javascript:alert(1)"
        path = f"/wall/alarms/{alarms['drift']}"
        operator.post(path, {"csrf": operator.csrf(path), "reason": hostile})
        for shown in ("/wall", path):
            page = operator.http.get(shown).text
            assert "&lt;script&gt;" in page
            assert "<script>alert" not in page
            assert "\u202e" not in page
            assert "\x1b" not in page


def test_a_promotion_that_a_gate_refuses_says_why(following, operator):
    _, engine, models = following
    number = promote(engine, models["one"], "active", PLAIN, *BY, WAIT).deployment
    with engine.begin() as connection:
        sql = "INSERT INTO model (digest, classes, features) VALUES ('beef', '[]', '{}') RETURNING id"
        broken = connection.execute(text(sql)).scalar_one()
        deploy(connection, broken, "shadow", SHADOW, *BY)
        sql = """INSERT INTO artifact (model, content, name, rejector, author, reason)
        VALUES (:model, 'x', 'broken', 'x', 'ann', '')"""
        connection.execute(text(sql), {"model": broken})
    path = "/wall/promote/beef"
    page = operator.http.get(path).text
    assert "What will change is not known" in page
    sent = operator.post(path, {"csrf": operator.csrf(path), "reason": "try", "over": str(number)})
    assert sent.status_code == 303
    end = time.monotonic() + 60
    while "was not promoted" not in (page := operator.http.get(sent.headers["location"]).text):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert "1 of 1 gates have not loaded it" in page
    assert row(engine, "SELECT action FROM deployment ORDER BY id DESC LIMIT 1")[0] == "prepare"
    with engine.begin() as connection:
        deploy(connection, broken, "retire", {}, *BY)


def test_a_promotion_whose_gate_was_stopped_is_known_at_others(scene, operator):
    _, engine, models, _ = scene
    with engine.begin() as connection:
        number = deploy(connection, models["other"].number, "prepare", PLAIN, "ann", "x")
        path = f"/wall/promotions/{number}"
    assert "until then, nothing changes" in operator.http.get(path).text
    with engine.begin() as connection:
        sql = "UPDATE deployment SET made_at = made_at - interval '2 minutes' WHERE id = :id"
        connection.execute(text(sql), {"id": number})
    assert "was not promoted within 60 seconds" in operator.http.get(path).text
    with engine.begin() as connection:
        deploy(connection, models["other"].number, "retire", {}, *BY)


def test_refusals_that_are_remembered_are_bounded(engine):
    promotions = Promotions(engine)
    for number in range(1000):
        promotions._refuse(number, "no")
    assert (promotions.refusal(999), promotions.refusal(1)) == ("no", None)
    assert len(promotions._refused) == 100


class TestState:
    def test_an_empty_database_has_a_wall_and_a_month(self, engine):
        with engine.connect() as connection:
            found = read_wall(connection, None, None)
            assert verdict(found).startswith("No model decides yet")
            assert [each.answer for each in tiles(found)] == [
                *("Not known yet", "Not known yet", "Not known yet", "Nothing waits")
            ]
            month = read_month(connection, found.now.date().replace(day=1), None)
        assert (month.objects, month.promoted, month.alarms) == (0, [], [])
        assert not month.is_recorded
        assert month.days[0].waiting is None

    def test_a_gate_with_an_artifact_shows_its_own_model(self, gate, browser_page):
        page = sign_in(browser_page(gate), gate, "anna", "operator", "/wall")
        assert "active" in page.get_by_role("table").first.inner_text()
        assert page.get_by_role("link", name="Promote").count() == 0
        assert "set promised_error" in page.get_by_role("main").inner_text()

    def test_what_gates_decide_is_on_the_wall(self, scene, problem):
        gate, engine, *_ = scene
        client = gate.client("sensor")
        decisions = client.decide([f"o{i}" for i in range(300)], problem[0][1000:1300])
        rejected = sum(not each["accepted"] for each in decisions)
        sql = """SELECT coalesce(sum(objects), 0)::int, coalesce(sum(rejected), 0)::int FROM decided_day
        WHERE process <> '00000000-0000-0000-0000-000000000007'"""
        end = time.monotonic() + 60
        while row(engine, sql)[0] < 300:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert row(engine, sql) == (300, rejected)

    def test_how_slow_a_gate_answers_is_known_after_some_requests(self, scene, problem, operator):
        gate, engine, *_ = scene
        client = gate.client("slow")
        for i in range(100):
            client.decide([f"s{i}"], problem[0][i : i + 1])
        end = time.monotonic() + 60
        while row(engine, "SELECT max(p99) FROM process")[0] is None:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert re.search(r"99% within</small> [\d,]+ ms", operator.http.get("/wall").text)

    @pytest.mark.parametrize("pinned", [None, 1])
    def test_it_reads_no_table_as_a_whole_that_grows(self, scene, pinned):
        """Whatever the statistics say, which know nothing of these items."""
        found, n = scans(scene[1], pinned)
        assert found == []
        assert n > 15

    def test_a_change_of_one_model_for_another_is_the_reverse_of_its_return(self):
        found = {
            "objects": 100,
            "since": "2026-11-14T00:00:00+00:00",
            "differ": 8,
            "other_label": 1,
            "active_rejected": 20,
            "shadow_rejected": 14,
            "labels": 6,
            "unclear": 1,
            "active_right": 1,
            "shadow_right": 4,
            "better": "shadow",
            "settled": True,
        }
        there, back = Change.of(found, 1000.0), Change.of(found, 1000.0, "active")
        assert (there.one_in, there.more_a_day, there.better) == (12, -60.0, "then")
        assert (back.one_in, back.more_a_day, back.better) == (12, 60.0, "now")
        assert (there.right_now, there.right_then) == (back.right_then, back.right_now)
        assert Change.of(None, 1.0) is None
