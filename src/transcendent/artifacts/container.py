"""The file itself: a zip archive that ends with a seal.

The last bytes of the file, which are the archive's comment, hold the SHA-256 of everything before them and,
if the file was signed, an Ed25519 signature of that digest. Both are checked before the archive is opened.
"""

import hashlib
import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from transcendent._utils.files import open_regular
from transcendent.artifacts.signatures import Key, sign
from transcendent.artifacts.unpacking import check_unpacked_sizes, content_of, max_unpacked
from transcendent.errors import ArtifactError

MAX_BYTES = 1 << 32  # the largest file that is read by default

_SEAL = re.compile(rb"\ntranscendent artifact\nsha256 ([0-9a-f]{64})\ned25519 ([0-9a-f]{128}|-{128})\n")
_SEAL_SIZE = 232
_UNSIGNED = "-" * 128
_NAME = re.compile(
    r"manifest\.json|rejector\.skops|calibration-\d+\.npz|booster-\d+\.(lightgbm\.txt|xgboost\.json)"
)
_LEVEL = 6  # above it, an artifact takes many times as long to write, and is hardly smaller
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # zip's first date; a fixed one makes equal contents equal files


def pack(entries: Mapping[str, bytes], signing_key: Key | None) -> tuple[bytes, str]:
    """Return a sealed file with the entries, and its digest."""
    content = _content(entries)
    digest = hashlib.sha256(content).hexdigest()
    return content + seal(digest, None if signing_key is None else sign(digest, signing_key)), digest


def _content(entries: Mapping[str, bytes]) -> bytes:
    """Return an archive of the entries: compressed, unless they shrink so much that it would be refused."""
    for method in (ZIP_DEFLATED, ZIP_STORED):
        content = _archive(entries, method)
        try:
            check_unpacked_sizes(entries, max_unpacked(len(content)))
        except ArtifactError as error:
            reason = error
        else:
            return content
    raise ArtifactError(f"this rejector cannot be saved: {reason}")


def _archive(entries: Mapping[str, bytes], method: int) -> bytes:
    """Return an archive of the entries, but for the seal at its end."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.comment = bytes(_SEAL_SIZE)
        for name, data in entries.items():
            archive.writestr(ZipInfo(name, _EARLIEST), data, method, _LEVEL)
    return buffer.getvalue()[:-_SEAL_SIZE]


def seal(digest: str, signature: str | None) -> bytes:
    """Return the last bytes of a file with that digest and signature."""
    return f"\ntranscendent artifact\nsha256 {digest}\ned25519 {signature or _UNSIGNED}\n".encode()


def read_sealed(path: Path, max_bytes: int) -> tuple[bytes, str, str | None]:
    """Return the content of a file, its digest (checked) and its signature (not checked)."""
    try:
        with open_regular(path, max_bytes) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _SEAL_SIZE, 0))
            _read_seal(file.read(_SEAL_SIZE))  # before the rest, which may be large
            file.seek(0)
            data = file.read(size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ArtifactError(f"{error.strerror or error}.") from None
    digest, signature = _read_seal(data[-_SEAL_SIZE:])
    if hashlib.sha256(memoryview(data)[:-_SEAL_SIZE]).hexdigest() != digest:
        raise ArtifactError("it is damaged: its content does not match the digest in its seal.")
    return data, digest, None if signature == _UNSIGNED else signature


def _read_seal(ending: bytes) -> tuple[str, str]:
    found = _SEAL.fullmatch(ending)
    if found is None:
        raise ArtifactError("it does not end with a seal: it is truncated, damaged, or not an artifact.")
    return found[1].decode(), found[2].decode()


def unpack(data: bytes, limit: int) -> dict[str, bytes]:
    """Return the entries of a file by name; if they declare more bytes than the limit, none is unpacked."""
    with ZipFile(io.BytesIO(data)) as archive:
        listed = archive.infolist()
        for entry in listed:
            if not _NAME.fullmatch(entry.filename):
                raise ArtifactError(f"it has an entry {entry.filename!r:.80}, which artifacts do not have.")
        if len({entry.filename for entry in listed}) < len(listed):
            raise ArtifactError("it has two entries with the same name.")
        if (claimed := sum(entry.file_size for entry in listed)) > limit:
            raise ArtifactError(
                f"it has {len(data):,} bytes and would unpack to {claimed:,}, more than the limit of "
                f"{limit:,}: it may be a zip bomb."
            )
        return {entry.filename: content_of(archive, data, entry) for entry in listed}
