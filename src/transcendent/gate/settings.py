"""Settings of the gate, from the environment and a file."""

import ipaddress
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from transcendent._utils.text import suggestion
from transcendent.errors import GateSettingsError
from transcendent.gate.targets import WebhookTarget

PREFIX = "TRANSCENDENT_GATE_"
FILE = f"{PREFIX}FILE"


class GateSettings(BaseSettings):
    """Settings of a gate. The environment overrides the file."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True)

    database: SecretStr = Field(
        description="URL of the PostgreSQL database, such as postgresql://user@host/name."
    )
    artifact: Path | None = Field(
        None,
        description="The artifact to serve; without it, a gate serves what is "
        "[promoted](../operate/models.md).",
    )
    trusted: Annotated[list[str], NoDecode] = Field(
        [], description="Types to allow in the artifact; separated by spaces in the environment."
    )
    public_key: Path | None = Field(None, description="Public key that the artifact's signature must match.")
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(8040, ge=0, le=65535, description="The port to listen on.")
    share_port: bool = Field(
        False, description="Whether other gates on this machine may share the port (`SO_REUSEPORT`)."
    )
    max_connections: int = Field(
        500, ge=1, description="Limit on open client connections; further ones are closed at once."
    )
    tokens: Literal["required", "none"] = Field(
        "required", description="`none`: every caller is an operator; only on a loopback address."
    )
    audit: float = Field(0.01, ge=0, le=1, description="Share of accepted objects that is kept for an audit.")
    lease: float = Field(900, gt=0, description="Seconds for which a claimed item is held.")
    max_held: int = Field(200, ge=1, description="Limit on the items that one analyst holds.")
    max_kept: int | None = Field(
        None, ge=0, description="Limit on the rejected objects of one sender that are kept in a day (UTC)."
    )
    keep_months: int | None = Field(
        None,
        ge=0,
        description="Months before the current one whose objects `gate tidy` keeps; all if not set.",
    )
    keep_examples_months: int | None = Field(
        None, ge=0, description="The same for labelled objects; all if not set."
    )
    keep_events_days: int | None = Field(
        None,
        ge=0,
        description="Days for which `gate tidy` keeps events, and longer until webhooks have delivered them; "
        "all if not set.",
    )
    deletable_context: Annotated[list[str], NoDecode] = Field(
        [],
        description="Fields of the context by which `gate delete` finds objects; separated by spaces in the "
        "environment.",
    )
    labels: Annotated[list[str], NoDecode] = Field(
        ["unclear"],
        description="Labels to allow besides the classes; separated by spaces in the environment.",
    )
    reasons: Annotated[list[str], NoDecode] = Field(
        [],
        description="Reasons that the [desk](../operate/desk.md) offers with a label; separated by spaces in "
        "the environment, or a JSON list.",
    )
    event_context: Annotated[list[str], NoDecode] = Field(
        [],
        description="Fields of an object's context to show in events; separated by spaces in the "
        "environment.",
    )
    webhooks: list[WebhookTarget] = Field(
        [],
        description="[Webhooks](../operate/events.md#webhooks) that events are sent to; JSON in the "
        "environment.",
    )
    promised_error: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Largest acceptable share of wrong answers among the accepted ones; without it, no alarm "
        "of harm.",
    )
    opinions: int = Field(
        1,
        ge=1,
        le=2,
        description="Analysts who must agree before a label teaches; 2: [second opinions]"
        "(../operate/second_opinions.md).",
    )
    reference: Path | None = Field(
        None,
        description="A file of labelled objects that [explanations](../operate/explanations.md) compare "
        "with, besides labelled items.",
    )
    reference_label: str = Field("label", description="The column of `reference` with labels.")
    reference_time: str | None = Field(None, description="The column of `reference` with times.")
    settle: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Largest distance at which a resolved case [settles](../operate/cases.md#settling) "
        "rejected objects: 0 for the same features; without it, cases are only suggested.",
    )
    negative: Annotated[list[str] | None, NoDecode] = Field(
        None,
        description="Classes that near content is never settled as, such as goodware; needed with `settle`. "
        "Separated by spaces in the environment.",
    )
    max_settle_error: float = Field(
        0.01, gt=0, lt=1, description="Share of wrong labels among the settled ones that stops settling."
    )
    max_objects: int = Field(1000, ge=1, description="Limit on the objects in a request.")
    max_bytes: int = Field(8 << 20, ge=1000, description="Limit on the bytes in the body of a request.")
    public_url: str | None = Field(
        None,
        description="Where browsers see the gate, such as https://gate.example; without it, its "
        "[pages](../operate/desk.md#sign-in) are shown on this machine only.",
    )
    timeout: float = Field(30, gt=0, description="Seconds for a request to arrive, and to be answered.")
    connections: int = Field(
        7,
        ge=6,
        description="Database connections of a gate: one stores objects, one looks up tokens, one serves "
        "`/readyz` and moves the cutoff, one sends heartbeats, one loads models and runs monitors and "
        "webhooks, and the rest (at least one) serve everything else.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe messages that are logged."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments, then the environment, then the file."""
        file = os.environ.get(FILE)
        toml = [TomlConfigSettingsSource(settings_cls, Path(file))] if file else []
        return init_settings, env_settings, *toml

    @model_validator(mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        for name in ("trusted", "labels", "reasons", "event_context", "deletable_context", "negative"):
            if isinstance(given, dict) and isinstance(value := given.get(name), str):
                given[name] = json.loads(value) if value.startswith("[") else value.split()
        return given

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, given: str | None) -> str | None:
        if given is None:
            return None
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{given!r:.200} must be a scheme and a host, such as https://gate.example.")
        if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError(f"{given!r:.200} must end after the host: the gate has no other path.")
        if not parts.hostname.isascii() or any(each.isspace() for each in parts.netloc):
            raise ValueError(f"{given!r:.200} must have a host as browsers send it: xn--... if not ASCII.")
        port = None if parts.port == {"http": 80, "https": 443}[parts.scheme] else parts.port
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}"  # as browsers write it

    @model_validator(mode="after")
    def _check_webhooks(self) -> "GateSettings":
        names = [each.name for each in self.webhooks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"webhooks: two have the name {twice.pop()}.")
        return self

    @model_validator(mode="after")
    def _check_settling(self) -> "GateSettings":
        if self.settle is not None and self.negative is None:
            raise ValueError(
                "settle needs negative, the classes that near content is never settled as, such as "
                'negative = ["goodware"]; set negative = [] if there are none.'
            )
        return self

    @model_validator(mode="after")
    def _check_address(self) -> "GateSettings":
        if self.tokens == "none" and not is_loopback(self.host):
            raise ValueError(
                f"other machines may reach {self.host}, so tokens = none is refused: listen on 127.0.0.1, "
                "or use tokens."
            )
        return self

    @property
    def seen_at(self) -> str:
        """Where browsers see the gate: on this machine, unless ``public_url`` says more."""
        host = self.host if is_loopback(self.host) else "127.0.0.1"
        return self.public_url or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


_VARIABLES = {FILE, *(f"{PREFIX}{name.upper()}" for name in GateSettings.model_fields)}


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings(**given: Any) -> GateSettings:
    """Read the settings; arguments override the environment and the file."""
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in _VARIABLES:
            raise GateSettingsError(f"unknown setting {name}{suggestion(name, _VARIABLES)}")
    file = os.environ.get(FILE)
    if file and not Path(file).is_file():
        raise GateSettingsError(f"{FILE} names a file that does not exist: {file}")
    try:
        return GateSettings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise GateSettingsError(" ".join(map(_describe, error.errors()))) from None
    except (ValueError, OSError) as error:  # the file is not TOML
        raise GateSettingsError(f"{file or 'settings'}: {error}") from None


def _describe(error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{name} is not set: set {PREFIX}{name.upper()}, or add it to the file that {FILE} names."
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{name}: {message}." if name else f"{message}."
