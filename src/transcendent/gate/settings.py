"""Settings of the gate, from the environment and from a file."""

import ipaddress
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from transcendent._utils.text import suggestion
from transcendent.errors import GateSettingsError

PREFIX = "TRANSCENDENT_GATE_"
FILE = f"{PREFIX}FILE"


class Settings(BaseSettings):
    """What a gate needs to know. The environment goes before the file."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True)

    database: SecretStr = Field(
        description="URL of the PostgreSQL database, such as postgresql://user@host/name."
    )
    artifact: Path | None = Field(None, description="The artifact to serve; only `gate serve` needs it.")
    trusted: Annotated[list[str], NoDecode] = Field(
        [], description="Types to allow in the artifact; in the environment separated by blanks."
    )
    public_key: Path | None = Field(
        None, description="The public key that the artifact has to be signed with."
    )
    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(8040, ge=0, le=65535, description="The port to listen on.")
    share_port: bool = Field(
        False, description="Whether several gates on this machine listen on the port (`SO_REUSEPORT`)."
    )
    most_connections: int = Field(
        500, ge=1, description="Open connections of clients; further ones are closed at once."
    )
    tokens: Literal["required", "none"] = Field(
        "required", description="`none`: every caller is an operator; only on a loopback address."
    )
    audit: float = Field(
        0.01, ge=0, le=1, description="Share of accepted objects that are kept for an audit."
    )
    lease: float = Field(900, gt=0, description="Seconds for which claimed items are held.")
    most_held: int = Field(200, ge=1, description="Items that one analyst may hold.")
    labels: Annotated[list[str], NoDecode] = Field(
        [],
        description="Labels to allow beside the detector's classes; in the environment separated by blanks.",
    )
    most_objects: int = Field(1000, ge=1, description="Objects in a request.")
    most_bytes: int = Field(8 << 20, ge=1000, description="Bytes in the body of a request.")
    seconds: float = Field(
        30,
        gt=0,
        description="Time for a request to arrive, and to be answered.",
    )
    connections: int = Field(
        5,
        ge=4,
        description="Database connections of a gate, at least 4: one keeps objects, one looks up tokens, one "
        "is for `/readyz`, the others are for all else.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")

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
        for name in ("trusted", "labels"):
            if isinstance(given, dict) and isinstance(value := given.get(name), str):
                given[name] = json.loads(value) if value.startswith("[") else value.split()
        return given

    @model_validator(mode="after")
    def _check_address(self) -> "Settings":
        if self.tokens == "none" and not is_loopback(self.host):
            raise ValueError(f"{self.host} can be reached by others: tokens = none is refused there.")
        return self


_VARIABLES = {FILE, *(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings(**given: Any) -> Settings:
    """Read the settings; those given go before the environment and the file."""
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in _VARIABLES:
            raise GateSettingsError(f"there is no setting {name}{suggestion(name, _VARIABLES)}")
    file = os.environ.get(FILE)
    if file and not Path(file).is_file():
        raise GateSettingsError(f"there is no file {file}, which {FILE} names.")
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise GateSettingsError(" ".join(map(_in_words, error.errors()))) from None
    except (ValueError, OSError) as error:  # the file is not TOML
        raise GateSettingsError(f"{file or 'settings'}: {error}") from None


def _in_words(error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{name} is not set: put it in {PREFIX}{name.upper()}, or in the file that {FILE} names."
    if error["type"] == "extra_forbidden":
        return f"there is no setting {name}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{name}: {message}." if name else f"{message}."


def as_table() -> str:
    """Return all settings as a Markdown table, for the documentation."""
    rows = ["| Setting | Default | What it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "needed" if field.is_required() else _plain(field.default)
        rows.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(rows)


def _plain(default: Any) -> str:
    if default is None or default == []:
        return "–"
    return f"`{default:,}`".replace(",", "") if isinstance(default, int | float) else f"`{default}`"
