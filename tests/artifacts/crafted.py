"""Artifacts as nobody should make them: sealed all right, but with contents of the test's choice."""

import hashlib
import io
import json
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from transcendent.artifacts import container


def members_of(data):
    """Everything in an archive."""
    with ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(content):
    return content + container.seal(hashlib.sha256(content).hexdigest(), None)


def resealed(data):
    """The same file with a seal that fits what it now holds."""
    return sealed(data[: -container._SEAL_SIZE])


def archive_of(entries, compression=ZIP_STORED):
    """A sealed archive of (name, bytes) entries, whatever these are."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", compression) as archive:
        archive.comment = bytes(container._SEAL_SIZE)
        for name, data in entries:
            entry = ZipInfo(name)
            entry.compress_type = compression
            archive.writestr(entry, data)
    return sealed(buffer.getvalue()[: -container._SEAL_SIZE])


def with_members(data, **changed):
    """The artifact with some of its files changed, and a manifest to match."""
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
    """A skops file with another schema."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in members_of(skops).items():
            archive.writestr(name, json.dumps(schema) if name == "schema.json" else content)
    return buffer.getvalue()
