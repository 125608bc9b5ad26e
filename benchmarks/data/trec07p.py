"""Build the files of ``load_trec07p`` from the TREC 2007 public spam corpus of the University of Waterloo.

python benchmarks/data/trec07p.py trec07p TARGET

SOURCE is the unpacked corpus: ``full/index`` with a line ``spam ../data/inmail.1`` per mail, and the mails.
The time of a mail is that of its first Received header. Its features are the words of subject and text
without tags, at least two letters each, hashed by CRC-32 to 2^17 columns. The corpus is not kept here: the
sums are those of the files that the published results rest on. The words of the first two mails give their
rows there; how mails of several parts were read is not recorded, so the sum of X may differ.
"""

import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from sums import run

WIDTH = 2**17


def build(source: Path, target: Path) -> None:
    index = source / "full/index"
    if not index.is_file():
        raise SystemExit(f"{source} has no file full/index: SOURCE is the unpacked corpus.")
    labels, places = zip(*(line.split() for line in index.read_text().splitlines()), strict=True)
    times, rows = [], []
    for place in places:
        mail = message_from_bytes((index.parent / place).read_bytes())
        times.append(received(mail))
        rows.append(sorted({zlib.crc32(word.encode()) % WIDTH for word in words(mail)}))
    ends = np.cumsum([0, *map(len, rows)])
    data, indices = np.ones(ends[-1], dtype=np.uint8), np.concatenate(rows).astype(np.int32)
    sp.save_npz(target / "trec07p_X.npz", sp.csr_matrix((data, indices, ends), shape=(len(rows), WIDTH)))
    columns = {
        "spam": np.array([label == "spam" for label in labels], dtype=np.uint8),
        "received": pa.array(times, pa.timestamp("us", tz="UTC")),
    }
    pq.write_table(pa.table(columns), target / "trec07p_meta.parquet")


def received(mail: Message) -> datetime:
    return parsedate_to_datetime(mail["Received"].rpartition(";")[2].strip()).astimezone(UTC)


def words(mail: Message) -> Iterator[str]:
    """Yield the words of the text parts, and those of the subject with ``s:`` before them."""
    yield from (f"s:{word}" for word in re.findall("[a-z]{2,}", str(mail["Subject"] or "").lower()))
    for part in mail.walk():
        if part.get_content_maintype() == "text":
            content = part.get_payload(decode=True)
            text = content.decode("latin-1") if isinstance(content, bytes) else ""
            yield from re.findall("[a-z]{2,}", re.sub("<[^>]*>", " ", text).lower())


if __name__ == "__main__":
    run(str(__doc__), "trec07p", build)
