"""Settings of a gate: their sources, and which are refused."""

import os
from pathlib import Path

import pytest

from transcendent.errors import GateSettingsError
from transcendent.gate.settings import FILE, PREFIX, GateSettings, is_loopback, read_settings

DATABASE = "postgresql://ann:hunter2@db/gate"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "gate.toml"
    monkeypatch.setenv(FILE, str(path))
    return path


def test_arguments_override_the_environment_which_overrides_the_file(file, monkeypatch):
    file.write_text(f'database = "{DATABASE}"\nport = 1\nlease = 60\naudit = 0.5\nlabels = ["grey zone"]')
    monkeypatch.setenv(f"{PREFIX}PORT", "2")
    monkeypatch.setenv(f"{PREFIX}LEASE", "70")
    found = read_settings(port=3, host=None)
    assert (found.port, found.lease, found.audit) == (3, 70, 0.5)
    assert (found.host, found.labels) == ("127.0.0.1", ["grey zone"])
    assert found.database.get_secret_value() == DATABASE


def test_lists_in_the_environment_are_separated_by_blanks(monkeypatch):
    monkeypatch.setenv(f"{PREFIX}DATABASE", DATABASE)
    monkeypatch.setenv(f"{PREFIX}TRUSTED", "a.B  c.D")
    monkeypatch.setenv(f"{PREFIX}LABELS", "")
    found = read_settings()
    assert (found.trusted, found.labels) == (["a.B", "c.D"], [])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", f"database is not set: set {PREFIX}DATABASE, or add it to the file that {FILE} names."),
        (f'database = "{DATABASE}"\nprot = 1', "unknown setting prot."),
        (f'database = "{DATABASE}"\nport = 70000', "port: Input should be less than or equal to 65535."),
        (f'database = "{DATABASE}"\naudit = 2', "audit: Input should be less than or equal to 1."),
        (f'database = "{DATABASE}"\ntokens = "some"', "tokens: Input should be 'required' or 'none'."),
        (f'database = "{DATABASE}"\nlabels = 3', "labels: Input should be a valid list."),
        (f'database = "{DATABASE}"\nlabels = "[3"', "Expecting ',' delimiter"),
        (
            f'database = "{DATABASE}"\nhost = "0.0.0.0"\ntokens = "none"',
            "other machines may reach 0.0.0.0, so tokens = none is refused",
        ),
        ("database = ", "gate.toml: Invalid value"),
    ],
)
def test_bad_settings_are_described(file, content, said):
    file.write_text(content)
    with pytest.raises(GateSettingsError) as error:
        read_settings()
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


def test_unknown_variables_are_refused(monkeypatch):
    monkeypatch.setenv(f"{PREFIX}PROT", "1")
    with pytest.raises(GateSettingsError, match=rf"unknown setting {PREFIX}PROT\b.*{PREFIX}PORT"):
        read_settings(database=DATABASE)


def test_a_missing_file_is_refused(file):
    with pytest.raises(GateSettingsError, match=f"{FILE} names a file that does not exist: .*gate.toml"):
        read_settings(database=DATABASE)


def test_the_password_of_the_database_is_not_shown():
    found = read_settings(database=DATABASE)
    for shown in (repr(found), str(found), found.model_dump_json()):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
        ("::", False), ("10.0.0.1", False), ("gate.example", False), ("localhost.example", False),
        ("", False),
    ],
)  # fmt: skip
def test_addresses_that_only_this_machine_reaches(host, loopback):
    assert is_loopback(host) is loopback
    if not loopback:
        with pytest.raises(GateSettingsError, match="tokens = none is refused"):
            read_settings(database=DATABASE, host=host, tokens="none")


def test_all_settings_are_documented():
    rows = ["| Setting | Default | What it is |", "|---|---|---|"]
    for name, field in GateSettings.model_fields.items():
        default = ", ".join(field.default) if isinstance(field.default, list) else field.default
        default = "–" if default in (None, "") else f"`{default}`".lower()
        default = "required" if field.is_required() else default
        rows.append(f"| `{name}` | {default} | {field.description} |")
    assert "\n".join(rows) in (DOCS / "reference/gate_settings.md").read_text()
