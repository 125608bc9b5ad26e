"""The file itself: a zip archive without compression, closed by a seal.

The last bytes of the file, which are the archive's comment, hold the SHA-256 of everything before them and,
if it was signed, an Ed25519 signature of that digest. Both are checked before the archive is even opened.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from transcendent._utils.extras import extra
from transcendent._utils.files import open_regular
from transcendent.errors import ArtifactError

FORMAT = 1
MANIFEST = "manifest.json"
MOST_BYTES = 1 << 32  # of a file that is read, unless the caller allows more

_KEY_VARIABLE = "TRANSCENDENT_PUBLIC_KEY"
_MOST_BYTES_OF_A_KEY = 1 << 16

_SEAL = re.compile(rb"\ntranscendent artifact\nsha256 ([0-9a-f]{64})\ned25519 ([0-9a-f]{128}|-{128})\n")
_UNSIGNED = b"-" * 128
_SEAL_SIZE = 232
_NAME = re.compile(
    r"manifest\.json|rejector\.skops|calibration-\d+\.npz|booster-\d+\.(lightgbm\.txt|xgboost\.json)"
)
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # what a zip archive can date; equal contents make equal files

Key = str | Path | bytes


class Opened(NamedTuple):
    """An artifact whose digest, sizes and, if there is a key, signature are right."""

    manifest: dict[str, Any]
    members: dict[str, bytes]
    digest: str
    signed: bool
    signature_checked: bool


def read_sealed(path: Path, most_bytes: int) -> bytes:
    """All bytes of a file, if it is a regular one with a seal at its end."""
    try:
        with open_regular(path, most_bytes) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _SEAL_SIZE, 0))
            _match_seal(file.read(_SEAL_SIZE))
            file.seek(0)
            return file.read(size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ArtifactError(f"{error.strerror or error}.") from None


def required_key(public_key: Key | None) -> Key | None:
    """The key that signatures have to match: the one given, or else the one that the environment names."""
    if public_key is not None:
        return public_key
    named = os.environ.get(_KEY_VARIABLE)
    if named is not None and not named.strip():
        raise ArtifactError(
            f"{_KEY_VARIABLE} is set, but empty: let it name the file of a public key, or unset it."
        )
    return named


def pack(
    members: Mapping[str, bytes], manifest: Mapping[str, Any], signing_key: Key | None
) -> tuple[bytes, str]:
    """The bytes of a file that holds the members and a manifest that lists them, and its digest."""
    files = {name: {"size": len(data), "sha256": _sha256(data)} for name, data in members.items()}
    described = {"format": FORMAT, **manifest, "files": files}
    text = json.dumps(described, indent=2, allow_nan=False).encode()
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_STORED) as archive:
        archive.comment = bytes(_SEAL_SIZE)
        for name, data in {MANIFEST: text, **members}.items():
            archive.writestr(ZipInfo(name, _EARLIEST), data)
    content = buffer.getvalue()[:-_SEAL_SIZE]
    digest = _sha256(content)
    return content + _seal(digest, signing_key), digest


def unpack(data: bytes, public_key: Key | None) -> Opened:
    """Manifest and members, after everything about them has been checked."""
    digest, signature = _check_seal(data)
    if public_key is not None:
        _check_signature(digest, signature, public_key)
    members = _read_members(data)
    manifest = _read_manifest(members.pop(MANIFEST, None))
    _check_files(manifest["files"], members)
    return Opened(manifest, members, digest, signature != _UNSIGNED, public_key is not None)


def _seal(digest: str, signing_key: Key | None) -> bytes:
    signature = _UNSIGNED
    if signing_key is not None:
        signature = _private_key(signing_key).sign(_message(digest)).hex().encode()
    return b"\ntranscendent artifact\nsha256 " + digest.encode() + b"\ned25519 " + signature + b"\n"


def _check_seal(data: bytes) -> tuple[str, bytes]:
    found = _match_seal(data[-_SEAL_SIZE:])
    digest = found[1].decode()
    if _sha256(memoryview(data)[:-_SEAL_SIZE]) != digest:
        raise ArtifactError("it is damaged: its content does not have the digest it was sealed with.")
    return digest, found[2]


def _match_seal(ending: bytes) -> re.Match[bytes]:
    found = _SEAL.fullmatch(ending)
    if found is None:
        raise ArtifactError("it has no seal at its end: it is cut short, damaged, or no artifact at all.")
    return found


def _check_signature(digest: str, signature: bytes, public_key: Key) -> None:
    key = _public_key(public_key)
    if signature == _UNSIGNED:
        raise ArtifactError(
            "it is not signed, so nothing says who made it, and a signature is required: by the public key "
            f"that was given, or that {_KEY_VARIABLE} names."
        )
    try:
        key.verify(bytes.fromhex(signature.decode()), _message(digest))
    except extra("cryptography.exceptions", "artifacts").InvalidSignature:
        raise ArtifactError("its signature was not made with the key that belongs to this one.") from None


def _message(digest: str) -> bytes:
    return f"transcendent artifact sha256 {digest}".encode()


def _read_members(data: bytes) -> dict[str, bytes]:
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
            _check_listing(listed, len(data))
            return {entry.filename: archive.read(entry) for entry in listed}
    except ArtifactError:
        raise
    except (BadZipFile, ValueError, OverflowError, OSError, NotImplementedError, RuntimeError) as error:
        raise ArtifactError(f"its archive cannot be read: {error}.") from None


def _check_listing(listed: list[ZipInfo], size: int) -> None:
    for entry in listed:
        if not _NAME.fullmatch(entry.filename):
            raise ArtifactError(f"it holds a file named {entry.filename!r:.80}, which no artifact does.")
        if entry.compress_type != ZIP_STORED or entry.compress_size != entry.file_size:
            raise ArtifactError(f"{entry.filename} in it is compressed, as nothing in an artifact is.")
    if len({entry.filename for entry in listed}) < len(listed):
        raise ArtifactError("it holds two files of one name.")
    if sum(entry.file_size for entry in listed) > size:
        raise ArtifactError("its files claim to be larger than it is.")


def _read_manifest(text: bytes | None) -> dict[str, Any]:
    if text is None:
        raise ArtifactError(f"it holds no {MANIFEST}.")
    try:
        manifest = json.loads(text)
        version, files = manifest["format"], manifest["files"]
        sizes = {name: (entry["size"], entry["sha256"]) for name, entry in files.items()}
        known = version != FORMAT or _is_described(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ArtifactError(f"its {MANIFEST} is not one of an artifact.") from None
    if not known:
        raise ArtifactError(f"its {MANIFEST} does not describe a rejector as one of an artifact does.")
    if type(version) is not int or version < 1:
        raise ArtifactError(f"its {MANIFEST} names the format {version!r:.40}, which does not exist.")
    if version > FORMAT:
        raise ArtifactError(
            f"it has format {version}, and this transcendent reads up to {FORMAT}. Upgrade transcendent."
        )
    return {**manifest, "files": sizes}


def _is_described(manifest: dict[str, Any]) -> bool:
    """Whether everything readers of the manifest rely on is there, and of its kind."""
    features, classes, period = (manifest[key] for key in ("features", "classes", "training_period"))
    return (
        all(isinstance(manifest[key], str) for key in ("created", "rejector", "description"))
        and isinstance(manifest["notes"], dict)
        and {"python", "transcendent", "scikit-learn"} <= set(manifest["versions"])
        and all(isinstance(version, str) for version in manifest["versions"].values())
        and isinstance(classes, list | None)
        and (period is None or (isinstance(period, list) and all(isinstance(time, str) for time in period)))
        and isinstance(features["count"], int | None)
        and (features["names"] is None or isinstance(features["names"], list))
        and all(isinstance(entry["objects"], int) for entry in manifest["calibration"])
        and all(_is_promise(entry, len(classes or [])) for entry in manifest["thresholds"])
    )


def _is_promise(entry: dict[str, Any], n_classes: int) -> bool:
    numbers = [*entry["credibility"], *entry["confidence"], entry["rejection_rate"], entry["value"] or 0]
    return (
        len(entry["credibility"]) == len(entry["confidence"]) == n_classes
        and all(isinstance(number, int | float) for number in numbers)
        and isinstance(entry["objective"], str | None)
        and isinstance(entry["certified"], bool)
    )


def _check_files(files: Mapping[str, tuple[Any, Any]], members: Mapping[str, bytes]) -> None:
    if set(files) != set(members):
        odd = sorted(set(files) ^ set(members))[0]
        raise ArtifactError(f"{odd!r:.80} is in its manifest or among its files, but not in both.")
    for name, (size, digest) in files.items():
        if size != len(members[name]):
            raise ArtifactError(
                f"its manifest says {name} has {size!r:.40} bytes; it has {len(members[name])}."
            )
        if digest != _sha256(members[name]):
            raise ArtifactError(f"{name} in it does not have the digest its manifest gives.")


def _private_key(key: Key) -> Any:
    serialization = extra("cryptography.hazmat.primitives.serialization", "artifacts")
    ed25519 = extra("cryptography.hazmat.primitives.asymmetric.ed25519", "artifacts")
    return _read_key(key, "private", ed25519.Ed25519PrivateKey, serialization.load_pem_private_key, None)


def _public_key(key: Key) -> Any:
    serialization = extra("cryptography.hazmat.primitives.serialization", "artifacts")
    ed25519 = extra("cryptography.hazmat.primitives.asymmetric.ed25519", "artifacts")
    return _read_key(key, "public", ed25519.Ed25519PublicKey, serialization.load_pem_public_key)


def _read_key(key: Key, kind: str, wanted: Any, read: Any, *args: Any) -> Any:
    try:
        found = read(key if isinstance(key, bytes) else _read_pem(Path(key)), *args)
    except OSError as error:
        raise ArtifactError(
            f"the {kind} key {str(key)!r} cannot be read: {error.strerror or error}."
        ) from None
    except (ValueError, TypeError):
        raise ArtifactError(f"the {kind} key is not the PEM of a {kind} key.") from None
    if not isinstance(found, wanted):
        raise ArtifactError(
            f"the {kind} key is not Ed25519; make one with: openssl genpkey -algorithm ed25519"
        )
    return found


def _read_pem(path: Path) -> bytes:
    with open_regular(path, _MOST_BYTES_OF_A_KEY) as file:
        return file.read()


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
