"""Mutate artifacts and load them: ``python -m tests.artifacts.fuzz 600`` does so for ten minutes.

A mutated file gets a new seal, so that it is not refused for its digest. It must be loaded or refused with an
`ArtifactError`. Any other error, or any access to files or processes, is saved in a folder of findings.
"""

import io
import json
import random
import sys
import tempfile
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_STORED, ZipFile

from tests.artifacts.crafted import archive_of, members_of, rebuilt, resealed, with_schema
from transcendent.artifacts import load
from transcendent.errors import ArtifactError

FORBIDDEN = (
    "os.system",
    "subprocess.Popen",
    "socket.",
    "os.exec",
    "os.spawn",
    "os.remove",
    "os.rename",
    "pty.",
)
INTERESTING = [
    b"",
    b"\0",
    b"\xff" * 8,
    b"-1",
    b"1e999",
    b"NaN",
    b"../",
    b"os",
    b"system",
    b"PK\x05\x06",
    b"\x93NUMPY",
]
VALUES = [None, True, -1, 0, 2**63, 1e308, "", "os", "system", "builtins", "eval", [], {}, "../x", "x" * 5000]

touched: list[str] = []


def watch(event: str, _args: object) -> None:
    if event.startswith(FORBIDDEN):
        touched.append(event)


def mutate(data: bytes, draw: random.Random) -> bytes:
    kind = draw.choice([_bytes, _archive, _sizes, _member, _member, _schema, _schema, _schema, _manifest])
    return kind(data, draw)


def _bytes(data: bytes, draw: random.Random) -> bytes:
    return resealed(_scrambled(data, draw))


def _archive(data: bytes, draw: random.Random) -> bytes:
    entries = list(members_of(data).items())
    draw.shuffle(entries)
    kept = entries[: draw.randint(0, len(entries))]
    more = [(draw.choice(["x", "../x", "manifest.json2"]), b"x")] * draw.randint(0, 1)
    return archive_of(kept + more, draw.choice([ZIP_STORED, ZIP_DEFLATED, ZIP_BZIP2]))


def _sizes(data: bytes, draw: random.Random) -> bytes:
    """Let the archive, or the one of the estimators in it, declare other sizes and methods."""
    members = members_of(data)
    if draw.random() < 0.5:
        return resealed(
            _declaring(archive_of(members.items(), draw.choice([ZIP_STORED, ZIP_DEFLATED])), draw)
        )
    return rebuilt(data, {**members, "rejector.skops": _declaring(members["rejector.skops"], draw)})


def _declaring(archive: bytes, draw: random.Random) -> bytes:
    out = bytearray(archive)
    with ZipFile(io.BytesIO(archive)) as opened:
        place = archive.index(b"PK\1\2", opened.start_dir)
    for _ in range(draw.randint(0, 5)):
        place = max(place, archive.find(b"PK\1\2", place + 1))
    for _ in range(draw.randint(1, 2)):
        field, width = draw.choice([(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4)])
        number = draw.choice([0, 1, 8, 12, 2**16 - 1, 2**31, 2**32 - 1, draw.randrange(2**32), len(archive)])
        out[place + field : place + field + width] = (number % 256**width).to_bytes(width, "little")
    return bytes(out)


def _member(data: bytes, draw: random.Random) -> bytes:
    members = members_of(data)
    name = draw.choice([name for name in members if name != "manifest.json"])
    return rebuilt(data, {**members, name: _scrambled(members[name], draw)})


def _schema(data: bytes, draw: random.Random) -> bytes:
    members = members_of(data)
    skops = members["rejector.skops"]
    schema = json.loads(members_of(skops)["schema.json"])
    for _ in range(draw.randint(1, 3)):
        _change(schema, draw)
    return rebuilt(data, {**members, "rejector.skops": with_schema(skops, schema)})


def _manifest(data: bytes, draw: random.Random) -> bytes:
    return rebuilt(data, members_of(data), lambda manifest: _change(manifest, draw))


def _change(tree: object, draw: random.Random) -> None:
    """Replace one value in a JSON tree by another value, or by one from another place."""
    places = list(_places(tree))
    container, key = draw.choice(places)
    other, place = draw.choice(places)
    container[key] = draw.choice([draw.choice(VALUES), deepcopy(other[place])])  # type: ignore[index]


def _places(tree: object):  # type: ignore[no-untyped-def]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def _scrambled(data: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        place = draw.randrange(len(out) + 1)
        piece = draw.choice([*INTERESTING, draw.randbytes(draw.randint(1, 4))])
        out[place : place + draw.choice([0, len(piece), draw.randint(0, 64)])] = piece
    return bytes(out)


def outcome(data: bytes, folder: Path) -> str:
    """Return "loaded", the reason of a refusal, or an unexpected error."""
    path = folder / "mutated.transcendent"
    path.write_bytes(data)
    del touched[:]
    try:
        load(path)
        ending = "loaded"
    except ArtifactError as reason:
        ending = str(reason).partition("refused: ")[2][:40]
    except BaseException as error:
        ending = f"ESCAPED {type(error).__name__}: {error}"
    return f"TOUCHED {touched}" if touched else ending


def main(seconds: float) -> None:
    sys.addaudithook(watch)
    bases = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("v*/*.transcendent"))]
    findings = Path(tempfile.mkdtemp(prefix="fuzz-findings-"))
    endings: Counter[str] = Counter()
    started, seed = time.monotonic(), int(time.time())
    while time.monotonic() - started < seconds:
        seed += 1
        draw = random.Random(seed)
        data = mutate(draw.choice(bases), draw)
        ending = outcome(data, findings)
        endings[ending] += 1
        if ending.startswith(("ESCAPED", "TOUCHED")):
            (findings / f"{seed}.transcendent").write_bytes(data)
            sys.stdout.write(f"{seed}: {ending}\n")
    for ending, count in endings.most_common(40):
        sys.stdout.write(f"{count:8} {ending}\n")
    sys.stdout.write(f"{endings.total()} files in {seconds:.0f} s; findings in {findings}\n")


if __name__ == "__main__":
    main(float(sys.argv[1]))
