"""Webhooks: every event at least once, signed, and to no address that the settings do not name."""

import base64
import json
import signal
import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from sqlalchemy import text
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError
from typer.testing import CliRunner

from tests.gate.receiver import HANG, Receiver
from tests.gate.test_quarantine import rows
from transcendent.cli.app import app
from transcendent.errors import GateSettingsError
from transcendent.gate import targets, webhooks
from transcendent.gate.database import connect
from transcendent.gate.events import Cursor, Events, resume_order
from transcendent.gate.intake import keep
from transcendent.gate.settings import read_settings
from transcendent.gate.targets import AddressError, WebhookTarget, resolve
from transcendent.gate.webhooks import Webhook, list_deliveries, retry_dead, sign

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("SOC_SECRET", SECRET)


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def target_of(url, **given):
    return WebhookTarget(**{"name": "soc", "url": url, "secret_env": "SOC_SECRET", "private": True, **given})


@pytest.fixture
def start(own_engine, receiver):
    """Start a webhook that retries at once."""
    made = []

    def begin(**given):
        target = target_of(given.pop("url", receiver.url), **given.pop("target", {}))
        chosen = {"pauses": (0.01,) * 50, "timeout": 0.3, **given}
        made.append(Webhook(own_engine, Events(own_engine), target, **chosen))
        made[-1].make()  # from now on
        return made[-1]

    yield begin
    for webhook in made:
        webhook.close()


@pytest.fixture
def fill(own_engine):
    def keep_them(count, prefix="o", **given):
        keep(own_engine, rows(own_engine, [0.1] * count, prefix, **given))

    return keep_them


def run(database, *arguments):
    done = CliRunner().invoke(app, ["gate", "events", "deliveries", "--database", database, *arguments])
    assert done.exit_code == 0, done.output
    return done


def ids(receiver):
    return [headers["webhook-id"] for _, headers, _ in receiver.received]


def all_ids(engine, kind=None):
    pages = Events(engine).all_after(Cursor())
    return [each["id"] for page in pages for each in page.events if kind in (None, each["type"])]


def work(webhook, seconds=20):
    """Work until nothing waits."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        webhook.work()
        if list_deliveries(webhook._engine)["targets"][0]["waiting"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("deliveries still wait")


def test_each_event_arrives_once_and_its_signature_verifies(own_engine, receiver, start, fill):
    fill(3, "before")
    webhook = start()
    fill(25)
    work(webhook)
    assert sorted(ids(receiver)) == sorted(all_ids(own_engine)[3:])
    for path, headers, body in receiver.received:
        assert path == "/"
        event = Verifier(SECRET).verify(body, headers)
        assert event["id"] == headers["webhook-id"]
        assert event["data"]["object_id"].startswith("o")
        with pytest.raises(WebhookVerificationError):
            Verifier(SECRET).verify(body + b" ", headers)
    empty = {"target": "soc", "waiting": 0, "dead": 0, "next_attempt": None, "problem": None}
    assert list_deliveries(own_engine) == {"targets": [empty], "dead": []}


def test_only_the_kinds_that_a_target_wants_are_sent(own_engine, receiver, start, fill):
    webhook = start(target={"kinds": ["skipped"]})
    fill(3)
    with own_engine.begin() as connection:
        sql = "INSERT INTO label (item, action, author) VALUES (1, 'skip', 'ann')"
        connection.execute(text(sql))
    work(webhook)
    assert ids(receiver) == all_ids(own_engine, "skipped")


def test_a_receiver_that_fails_hangs_redirects_and_returns_gets_every_event(
    own_engine, receiver, start, fill
):
    webhook = start()
    for how in (500, HANG, 307, 404):
        receiver.behaves = how
        fill(5, f"{how}_")
        webhook.make()
        webhook.send()
    assert receiver.received == []
    assert receiver.requests >= 15  # and no redirect was followed
    receiver.behaves = 200
    work(webhook)
    assert set(ids(receiver)) == set(all_ids(own_engine))


def test_what_always_fails_is_given_up_shown_and_sent_again_on_request(
    own_engine, receiver, start, fill, database
):
    webhook = start(pauses=(0.01, 0.01))
    receiver.behaves = 503
    fill(2)
    work(webhook)
    assert receiver.requests == 6  # three attempts each
    found = list_deliveries(own_engine)
    (target,) = found["targets"]
    assert (target["waiting"], target["dead"], target["problem"]) == (0, 2, None)
    assert {each["event"] for each in found["dead"]} == set(all_ids(own_engine))
    assert {(each["tries"], each["problem"]) for each in found["dead"]} == {(3, "status 503")}
    assert "status 503" in run(database).stdout
    assert json.loads(run(database, "--json").stdout) == found
    assert "sent again: 0." in run(database, "--retry", "--target", "other").stderr
    receiver.behaves = 200
    again = run(database, "--retry")
    assert "deliveries that will be sent again: 2." in again.stderr
    assert "status 503" not in again.stdout
    work(webhook)
    assert set(ids(receiver)) == set(all_ids(own_engine))
    assert retry_dead(own_engine) == 0


def test_the_problem_and_next_attempt_of_deliveries_that_wait_are_shown(
    own_engine, receiver, start, fill, database
):
    webhook = start(pauses=(300, 3600))
    receiver.behaves = 404
    fill(2)
    webhook.work()
    with own_engine.begin() as connection:
        sql = """UPDATE delivery SET due_at = '2026-11-18 10:00:07Z', problem = 'status 500'
        WHERE id = (SELECT max(id) FROM delivery)"""
        connection.execute(text(sql))
    fill(1, "later")
    webhook.make()  # due at once, but it has not failed
    (target,) = list_deliveries(own_engine)["targets"]
    assert (target["waiting"], target["dead"], target["problem"]) == (3, 0, "status 500")
    assert run(database).stdout.splitlines() == [
        "target  waiting  given up  next attempt             problem",
        "soc           3         0  2026-11-18 10:00:07 UTC  status 500",
    ]


def test_a_delivery_of_a_process_that_died_is_sent_by_another_when_its_lease_is_over(
    own_engine, receiver, start, fill, monkeypatch
):
    first, second = start(), start()
    fill(3)
    first.make()

    def die(event):
        raise SystemExit

    monkeypatch.setattr(first, "_post", die)
    with pytest.raises(SystemExit):
        first.send()
    assert second.send() == 0  # claimed
    with own_engine.begin() as connection:
        connection.execute(text("UPDATE delivery SET due_at = now()"))  # the lease is over
    work(second)
    assert sorted(ids(receiver)) == sorted(all_ids(own_engine))


def test_two_processes_send_different_deliveries(own_engine, receiver, start, fill):
    first, second = start(), start()
    fill(40)
    first.make()
    second.make()
    assert first.send() == second.send() == 20
    assert sorted(ids(receiver)) == sorted(all_ids(own_engine))


def test_a_deleted_item_is_not_sent(own_engine, receiver, start, fill):
    webhook = start()
    fill(2)
    webhook.make()
    with own_engine.begin() as connection:
        connection.execute(text("DELETE FROM item WHERE id = (SELECT min(id) FROM item)"))
    work(webhook)
    assert len(receiver.received) == 1


def test_events_wait_in_their_table_while_many_deliveries_do(own_engine, receiver, start, fill, monkeypatch):
    monkeypatch.setattr(webhooks, "MAX_WAITING", 5)
    webhook = start()
    for number in range(3):
        fill(5, f"{number}_")
        webhook.make()
    assert list_deliveries(own_engine)["targets"][0]["waiting"] == 5
    work(webhook)
    for _ in range(3):
        work(webhook)
    assert sorted(ids(receiver)) == sorted(all_ids(own_engine))


def test_what_could_not_be_sent_in_time_is_given_back(own_engine, receiver, start, fill, monkeypatch):
    webhook = start()
    fill(5)
    webhook.make()
    monkeypatch.setattr(webhooks, "_SENDING", -1)
    webhook.send()
    with own_engine.connect() as connection:
        assert connection.execute(text("SELECT DISTINCT tries, due_at <= now() FROM delivery")).all() == [
            (0, True)
        ]
    webhook.stop()
    monkeypatch.undo()
    webhook.work()
    assert receiver.received == []


def test_a_new_target_of_a_restored_database_gets_what_is_new(own_engine, receiver, start, fill):
    fill(1, "before")
    webhook = start()
    with own_engine.begin() as connection:  # as restored on a server that has had fewer transactions
        connection.execute(text("UPDATE webhook SET transaction = transaction + 1000000"))
    resume_order(own_engine)
    fill(5)
    work(webhook)
    assert sorted(ids(receiver)) == sorted(all_ids(own_engine)[1:])


def test_a_new_target_does_not_move_the_order(own_engine, start, fill):
    fill(1)
    start()
    resume_order(own_engine)
    with own_engine.connect() as connection:
        assert connection.execute(text("SELECT ahead FROM event_order")).scalar_one() == 0


def test_an_answer_that_comes_byte_by_byte_is_a_failure_in_time(own_engine, start, fill):
    def trickle():
        connection, _ = server.accept()
        connection.recv(65536)
        with connection, suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n":
                connection.send(bytes([byte]))
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        webhook = start(url=f"http://127.0.0.1:{server.getsockname()[1]}/", pauses=())
        fill(1)
        webhook.make()
        threading.Thread(target=trickle, daemon=True).start()
        began = time.monotonic()
        webhook.send()
        assert time.monotonic() - began < 2
    assert list_deliveries(own_engine)["dead"][0]["problem"] == "no answer (ReadTimeout)"


@pytest.fixture
def certificate(tmp_path):
    """Return the file with the key and the certificate, signed by itself, of soc.example."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName("soc.example")])
    signed = made.add_extension(names, critical=True).sign(key, SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    (tmp_path / "soc.pem").write_bytes(private + signed.public_bytes(pem))
    return tmp_path / "soc.pem"


def test_certificates_are_checked_against_the_name_of_the_host(receiver, start, certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    receiver._server.socket = context.wrap_socket(receiver._server.socket, server_side=True)
    port = int(receiver.url.rsplit(":", 1)[1].strip("/"))
    monkeypatch.setattr(webhooks, "resolve", lambda _: "127.0.0.1")
    for host, trusted, said in (
        ("soc.example", None, "no answer (ConnectError)"),
        ("other.example", certificate, "no answer (ConnectError)"),
        ("soc.example", certificate, None),
    ):
        if trusted is not None:
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        webhook = start(url=f"https://{host}:{port}/", timeout=5)
        assert webhook._post({"id": "1-2-3"}) == said
    assert [headers["host"] for _, headers, _ in receiver.received] == [f"soc.example:{port}"]


def test_an_attempt_that_breaks_in_any_way_counts(own_engine, start, fill, monkeypatch):
    def fail(_):
        raise UnicodeError("of the object o0")

    webhook = start(pauses=())
    fill(1)
    monkeypatch.setattr(webhooks, "resolve", fail)
    webhook.work()
    assert list_deliveries(own_engine)["dead"][0]["problem"] == "no answer (UnicodeError)"


def test_hosts_in_other_scripts_are_sent_to_by_their_ascii_names():
    for url, netloc in (
        ("https://bücher.example/ü", "xn--bcher-kva.example"),
        ("https://Straße.example:8443/", "xn--strae-oqa.example:8443"),
        ("https://Soc.example/", "Soc.example"),
    ):
        assert target_of(url).address.netloc == netloc
    with pytest.raises(ValueError, match="without user or fragment"):
        target_of("https://ann:pw@bücher.example/")
    with pytest.raises(ValueError, match="url is not valid"):
        target_of("https://büc her.example/")


def test_a_target_is_refused_before_a_connection_if_its_address_is_private(
    own_engine, receiver, start, fill, monkeypatch
):
    webhook = start(pauses=())
    webhook.target = webhook.target.model_copy(update={"private": False})
    fill(1)
    work(webhook)
    assert receiver.requests == 0
    (dead,) = list_deliveries(own_engine)["dead"]
    assert dead["problem"] == "its address 127.0.0.1 is private: set private = true to allow it"


@pytest.mark.parametrize(
    ("addresses", "allowed"),
    [
        (["93.184.216.34"], True),
        (["2606:2800:220:1::1"], True),
        (["93.184.216.34", "10.0.0.1"], False),
        (["127.0.0.1"], False),
        (["169.254.169.254"], False),
        (["100.64.0.1"], False),
        (["0.0.0.0"], False),
        (["224.0.0.1"], False),
        (["::1"], False),
        (["fe80::1%eth0"], False),
        (["fd00::1"], False),
        (["::ffff:10.0.0.1"], False),
        (["2002:a00:1::1"], False),
        (["64:ff9b::a00:1"], False),
        (["64:ff9b::5db8:d822"], True),
        (["::ffff:93.184.216.34"], True),
        (["::127.0.0.1"], False),
        (["::169.254.169.254"], False),
        (["::ffff:0:127.0.0.1"], False),
        (["::5efe:7f00:1"], False),
        (["64:ff9b:1::7f00:1"], False),
        (["fec0::1"], False),
        (["fe00::1"], False),
        (["4000::1"], False),
        (["5f00::1"], False),
        (["3fff::1"], False),
        (["2001:db8::1"], False),
        (["2001::80ff:fffe"], False),
    ],
)
def test_every_address_of_a_host_must_be_public(monkeypatch, addresses, allowed):
    found = [(None, None, None, "", (address, 443)) for address in addresses]
    monkeypatch.setattr(targets.socket, "getaddrinfo", lambda *_, **__: found)
    if allowed:
        assert resolve(target_of("https://soc.example/", private=False)) == addresses[0]
    else:
        with pytest.raises(AddressError, match="is private"):
            resolve(target_of("https://soc.example/", private=False))
    assert resolve(target_of("https://soc.example/")) == addresses[0]


def test_the_connection_goes_to_the_address_that_was_checked(receiver, start, fill, monkeypatch):
    """A name server that answers otherwise the second time finds nobody to ask it."""
    port = receiver.url.rsplit(":", 1)[1].strip("/")
    asked = []

    def look_up(host, *_, **__):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    target = target_of("https://soc.example/hook").model_copy(
        update={"url": f"http://soc.example:{port}/hook?a=1"}
    )
    webhook = start()
    webhook.target = target
    fill(1)
    webhook.make()
    monkeypatch.setattr(targets.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", _refuse_names(socket.create_connection))
    webhook.send()
    ((path, headers, _),) = receiver.received
    assert path == "/hook?a=1"
    assert headers["host"] == f"soc.example:{port}"
    assert asked.count("soc.example") == 1


def _refuse_names(connect_to):
    def checked(address, *args, **given):
        assert address[0] == "127.0.0.1"
        return connect_to(address, *args, **given)

    return checked


def test_a_host_without_an_address_is_a_failure(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror("no such host")

    monkeypatch.setattr(targets.socket, "getaddrinfo", fail)
    with pytest.raises(AddressError, match="no address"):
        resolve(target_of("https://soc.example/"))


def test_two_secrets_both_sign():
    old, new = bytes(24), bytes(range(24))
    headers = sign([old, new], "1-2-3", int(time.time()), b'{"a":1}')
    for key in (old, new):
        assert Verifier(key).verify(b'{"a":1}', headers) == {"a": 1}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": "http://soc.example/"}, "url must begin with https://, or be http:// and a loopback"),
        ({"url": "http://localhost/", "private": True}, "url must begin with https://, or be http://"),
        ({"url": "http://127.0.0.1:9/"}, "its address 127.0.0.1 is private: set private = true to allow it"),
        ({"url": "http://[::1]/"}, "its address ::1 is private: set private = true to allow it"),
        ({"url": "https://10.0.0.1/"}, "its address 10.0.0.1 is private: set private = true to allow it"),
        ({"url": "ftp://127.0.0.1/"}, "url must begin with https://"),
        ({"url": "https://ann:pw@soc.example/"}, "without user or fragment"),
        ({"url": "https:///x"}, "url must be https://HOST/PATH"),
        ({"url": "https://soc.example:99999/"}, "url is not valid"),
        ({"kinds": ["rejcted"]}, "rejcted is none of rejected, labelled"),
        ({"secret_env": None}, "give one of secret_env and secret_file"),
        ({"secret_file": "/nowhere"}, "give one of secret_env and secret_file"),
        ({"secret_env": None, "secret_file": "/nowhere"}, "secret_file cannot be read"),
        ({"secret_env": "UNSET"}, "a secret must be whsec_ and base64"),
        ({"privat": True}, "unknown setting webhooks.0.privat"),
        ({"name": ""}, "webhooks.0.name"),
    ],
)
def test_bad_targets_are_described(changed, said):
    good = {"name": "soc", "url": "https://soc.example/x", "secret_env": "SOC_SECRET"}
    assert read_settings(database="postgresql://x@y/z", webhooks=[good]).webhooks[0].secrets == [
        bytes(range(32))
    ]
    with pytest.raises(GateSettingsError) as error:
        read_settings(database="postgresql://x@y/z", webhooks=[{**good, **changed}])
    assert said in str(error.value)
    with pytest.raises(GateSettingsError, match="two have the name soc"):
        read_settings(database="postgresql://x@y/z", webhooks=[good, good])


@pytest.mark.parametrize("given", ["", "whsec_", "whsec_AAAA", "AAAA" * 10, "whsec_" + "?" * 40])
def test_bad_secrets_are_refused_and_not_shown(given, tmp_path):
    file = tmp_path / "secret"
    file.write_text(given)
    with pytest.raises(ValueError, match="a secret must be whsec_ and base64 of 24 to 64") as error:
        target_of("https://soc.example", secret_env=None, secret_file=file)
    assert not given.strip("whsec_") or given not in str(error.value)


def test_secrets_come_from_a_file_and_are_not_shown(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n{SECRET}\n")
    target = target_of("https://soc.example", secret_env=None, secret_file=file)
    assert target.secrets == [bytes(range(32))] * 2
    assert SECRET[6:20] not in repr(target) + target.model_dump_json()


def test_gates_deliver_through_kills(start_gate, receiver, problem, database, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    target = {"name": "soc", "url": receiver.url, "secret_file": f"{tmp_path}/secret", "private": True}
    hooks = json.dumps([target])
    first = start_gate(webhooks=hooks)
    client = first.client()
    wait_for(lambda: list_of(database) == [("soc", 0)])
    X = problem[0][1000:1100]
    client.decide([f"first{i}" for i in range(100)], X)
    wait_for(lambda: receiver.requests > 3)
    first.stop(signal.SIGKILL)
    engine = connect(database)
    with engine.begin() as connection:  # as if the lease was over
        connection.execute(text("UPDATE delivery SET due_at = now()"))
    start_gate(webhooks=hooks)
    expected = set(all_ids(engine, "rejected"))
    wait_for(lambda: set(ids(receiver)) >= expected)
    engine.dispose()
    for _, headers, body in receiver.received:
        Verifier(SECRET).verify(body, headers)


def list_of(database):
    engine = connect(database)
    try:
        return [(each["target"], each["waiting"]) for each in list_deliveries(engine)["targets"]]
    finally:
        engine.dispose()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
