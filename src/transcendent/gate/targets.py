"""Where webhooks send events: the settings of a target, and which addresses it may have."""

import base64
import ipaddress
import os
import socket
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from transcendent._utils.extras import extra

KINDS = ("rejected", "labelled", "skipped", "undone", "decided", "closed", "deployed", "alarm", "outside")
"""Types of events."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")  # all that is assigned for the internet
_EXAMPLES = ipaddress.ip_network("3fff::/20")
_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64  # bytes of a secret, as Standard Webhooks says


class WebhookTarget(BaseModel):
    """Where events are sent."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=100)
    url: str
    secret_env: str | None = None
    secret_file: Path | None = None
    kinds: list[str] = list(KINDS)
    private: bool = False
    _secrets: list[bytes] = PrivateAttr([])

    @model_validator(mode="after")
    def _check(self) -> "WebhookTarget":
        parts = self.address
        if parts.username is not None or not parts.hostname or parts.fragment:
            raise ValueError(f"webhook {self.name}: url must be https://HOST/PATH, without user or fragment.")
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
            raise ValueError(
                f"webhook {self.name}: url must begin with https://, or be http:// and a loopback address "
                "such as 127.0.0.1."
            )
        if not self.private and _is_address(parts.hostname) and not _is_public(parts.hostname):
            raise ValueError(f"webhook {self.name}: {_refusal_of(parts.hostname)}.")
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"webhook {self.name}: {unknown[0]} is none of {', '.join(KINDS)}.")
        self._secrets = self._read_secrets()
        return self

    @property
    def secrets(self) -> list[bytes]:
        """The keys that sign what is sent."""
        return self._secrets

    @property
    def address(self) -> SplitResult:
        """The parts of the URL, with the host as name servers know it."""
        try:
            parts = urlsplit(self.url)
            port = "" if parts.port is None else f":{parts.port}"
            if parts.netloc.isascii():
                return parts
            host = extra("idna", "gate-client").encode(parts.hostname or "", uts46=True).decode()
        except ValueError as error:
            raise ValueError(f"webhook {self.name}: url is not valid: {error}.") from None
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{host}{port}")

    def _read_secrets(self) -> list[bytes]:
        """Return the secrets, one a line: two while one replaces the other."""
        if (self.secret_env is None) == (self.secret_file is None):
            raise ValueError(f"webhook {self.name}: give one of secret_env and secret_file.")
        if self.secret_file is not None:
            try:
                given = self.secret_file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(
                    f"webhook {self.name}: secret_file cannot be read ({type(error).__name__})."
                ) from None
        else:
            given = os.environ.get(str(self.secret_env), "")
        found = [_decoded(line) for line in given.split()]
        if not found or not all(_SHORTEST <= len(each) <= _LONGEST for each in found):
            raise ValueError(
                f"webhook {self.name}: a secret must be {_PREFIX} and base64 of {_SHORTEST} to {_LONGEST} "
                f"random bytes, such as of: echo {_PREFIX}$(openssl rand -base64 32)"
            )
        return found


class AddressError(Exception):
    """A webhook's host has no address that may be connected to."""


def resolve(target: WebhookTarget) -> str:
    """Return an address of the target's host, after checking that all of them may be connected to.

    The caller must connect to this address: asked again, a name server could answer otherwise.
    """
    parts = target.address
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"its host has no address ({type(error).__name__})") from None
    addresses = [str(each[4][0]) for each in found]
    if not target.private:
        for address in addresses:
            if not _is_public(address):
                raise AddressError(_refusal_of(address))
    return addresses[0]


def _refusal_of(address: str) -> str:
    return f"its address {address} is private: set private = true to allow it"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    reached: ipaddress.IPv4Address | ipaddress.IPv6Address = parsed
    if isinstance(parsed, ipaddress.IPv6Address):  # which may lead to an IPv4 address
        translated = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _NAT64 else None
        reached = parsed.ipv4_mapped or parsed.sixtofour or translated or parsed
    if isinstance(reached, ipaddress.IPv6Address) and (reached not in _UNICAST or reached in _EXAMPLES):
        return False
    return reached.is_global and not reached.is_multicast


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _decoded(given: str) -> bytes:
    if not given.startswith(_PREFIX):
        return b""
    try:
        return base64.b64decode(given.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return b""
