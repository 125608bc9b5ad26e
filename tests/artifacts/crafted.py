"""Craft artifacts with a valid seal and any content."""

import hashlib
import io
import json
import struct
import zlib
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from transcendent.artifacts import container


def members_of(data):
    """Return the entries of an archive by name."""
    with ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(content):
    return content + container.seal(hashlib.sha256(content).hexdigest(), None)


def resealed(data):
    """Return the file with a new seal that matches its content."""
    return sealed(data[: -container._SEAL_SIZE])


def archive_of(entries, compression=ZIP_STORED):
    """Return a sealed archive of any (name, bytes) entries."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", compression) as archive:
        archive.comment = bytes(container._SEAL_SIZE)
        for name, data in entries:
            entry = ZipInfo(name)
            entry.compress_type = compression
            archive.writestr(entry, data)
    return sealed(buffer.getvalue()[: -container._SEAL_SIZE])


def declaring(archive, size, *, prefix=None):
    """Return an archive whose entries all declare this size, and the checksum of a prefix of that size."""
    lying = bytearray(archive)
    place = -1
    while (place := archive.find(b"PK\1\2", place + 1)) >= 0:
        if prefix is not None:
            struct.pack_into("<I", lying, place + 16, zlib.crc32(prefix))
        struct.pack_into("<I", lying, place + 24, size)
    return bytes(lying)


def with_members(data, **changed):
    """Return the artifact with some entries changed, and a matching manifest."""
    return rebuilt(data, {**members_of(data), **changed})


def rebuilt(data, members, change_manifest=lambda manifest: None):
    manifest = json.loads(members_of(data)["manifest.json"])
    others = {name: content for name, content in members.items() if name != "manifest.json"}
    manifest["files"] = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in others.items()
    }
    change_manifest(manifest)
    return archive_of([("manifest.json", json.dumps(manifest).encode()), *others.items()])


def schema_of(skops):
    return json.loads(members_of(skops)["schema.json"])


def with_schema(skops, schema):
    """Return a skops file with another schema."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in members_of(skops).items():
            archive.writestr(name, json.dumps(schema) if name == "schema.json" else content)
    return buffer.getvalue()
