"""Ed25519 signatures of artifacts, and the keys that make and check them."""

import os
from pathlib import Path
from typing import Any, Literal

from transcendent._utils.extras import extra
from transcendent._utils.files import open_regular
from transcendent.errors import ArtifactError

Key = str | Path | bytes

_VARIABLE = "TRANSCENDENT_PUBLIC_KEY"
_MAX_BYTES = 1 << 16


def required_key(public_key: Key | None) -> Key | None:
    """Return the key that signatures have to match: the argument, or else the one in the environment."""
    if public_key is not None:
        return public_key
    named = os.environ.get(_VARIABLE)
    if named is not None and not named.strip():
        raise ArtifactError(f"{_VARIABLE} is empty: set it to the path of a public key, or unset it.")
    return named


def sign(digest: str, signing_key: Key) -> str:
    """Return the signature of a digest in hexadecimal."""
    signature: bytes = _read_key(signing_key, "private").sign(_message(digest))
    return signature.hex()


def check_signature(digest: str, signature: str | None, public_key: Key) -> None:
    """Refuse a missing signature, or one that does not match the key."""
    key = _read_key(public_key, "public")
    if signature is None:
        raise ArtifactError(
            "it is not signed, so nothing says who made it. A signature is required by the public key that "
            f"was given, or by {_VARIABLE}."
        )
    try:
        key.verify(bytes.fromhex(signature), _message(digest))
    except extra("cryptography.exceptions", "artifacts").InvalidSignature:
        raise ArtifactError("its signature does not match this public key.") from None


def _message(digest: str) -> bytes:
    return f"transcendent artifact sha256 {digest}".encode()


def _read_key(key: Key, kind: Literal["private", "public"]) -> Any:
    serialization = extra("cryptography.hazmat.primitives.serialization", "artifacts")
    ed25519 = extra("cryptography.hazmat.primitives.asymmetric.ed25519", "artifacts")
    try:
        pem = key
        if not isinstance(key, bytes):
            with open_regular(Path(key), _MAX_BYTES) as file:
                pem = file.read()
        if kind == "private":
            found = serialization.load_pem_private_key(pem, password=None)
        else:
            found = serialization.load_pem_public_key(pem)
    except OSError as error:
        raise ArtifactError(
            f"the {kind} key {str(key)!r} cannot be read: {error.strerror or error}."
        ) from None
    except (ValueError, TypeError):
        raise ArtifactError(f"the {kind} key is not a {kind} key in PEM format.") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        raise ArtifactError(f"the {kind} key is not Ed25519; make one: openssl genpkey -algorithm ed25519")
    return found
