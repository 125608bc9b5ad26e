"""The scripts of benchmarks/data build what the loaders read, from files as their authors publish them."""

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transcendent.datasets import load_apigraph, load_lamda, load_nvd, load_trec07p

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "benchmarks/data"
FOLDER = Path(os.environ.get("TRANSCENDENT_DATA", "no folder"))


def build(name, source, target, code=1):
    """Run a script; a small source gives other values than the published ones, which is said by code 1."""
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.full
@pytest.mark.skipif(
    not (FOLDER / "source/apigraph").is_dir(), reason="TRANSCENDENT_DATA has no public files of apigraph"
)
def test_apigraph_from_its_public_files_is_the_published_one(tmp_path):
    done = build("apigraph", FOLDER / "source/apigraph", tmp_path, code=0)
    assert done.stdout.count("as published") == 5
    built, kept = load_apigraph(tmp_path), load_apigraph(FOLDER)
    assert (built.X != kept.X).nnz == 0
    for of_built, of_kept in (
        (built.y, kept.y),
        (built.times, kept.times),
        (built.extra["family"], kept.extra["family"]),
        (built.feature_names, kept.feature_names),
    ):
        np.testing.assert_array_equal(of_built, of_kept)


def write_apigraph(source, stored):
    source.mkdir()
    (source / "family_idx.json").write_text('{"benign": 0, "dowgin": 1, "airpush": 2}')
    (source / "2012-01to2012-12_selected_training_features.json").write_text('{"first": 0, "second": 1}')
    unread = np.array([None, "dowgin"], dtype=object)
    for month, X, y in (("2013-01", [[0, 1]], [2.0]), ("2012-01to2012-12", [[1, 0], [1, 1]], [1.0, 0.0])):
        np.savez_compressed(
            source / f"{month}_selected.npz",
            X_train=np.array(X, stored),
            y_train=np.array(y),
            y_mal_family=unread,
        )


def test_apigraph(tmp_path):
    write_apigraph(tmp_path / "source", "i8")
    done = build("apigraph", tmp_path / "source", tmp_path / "data")
    assert "apigraph_X.npz: differs" in done.stdout
    assert "arrays differ from those that the published results rest on" in done.stderr
    apps = load_apigraph(tmp_path / "data")
    assert apps.feature_names.tolist() == ["first", "second"]
    X = apps.X.toarray().tolist()
    rows = zip(apps.times.astype(str), X, apps.y.tolist(), apps.extra["family"], strict=True)
    assert sorted(rows) == [
        ("2012-12", [1, 0], 1, "dowgin"),
        ("2012-12", [1, 1], 0, ""),
        ("2013-01", [0, 1], 1, "airpush"),
    ]


def test_sums_are_of_values_not_of_how_they_are_stored(tmp_path):
    said = []
    for stored in ("i8", "f4"):
        write_apigraph(tmp_path / stored, stored)
        said.append(build("apigraph", tmp_path / stored, tmp_path / f"from {stored}").stdout)
    assert said[0] == said[1]


def test_lamda(tmp_path):
    for name, family, month in (
        ("2014_test", "b", "2014-02"),
        ("2017_train", "c", "2017-06"),
        ("2013_test", "a", "2013-06"),
        ("2013_train", "x", "2013-06"),
    ):
        about = {"hash": [name], "label": [1], "family": [family], "vt_count": [4], "year_month": [month]}
        features = {f"feat_{i}": [int(i in (2, 10))] for i in range(12)}
        pq.write_table(pa.table(about | features), tmp_path / f"{name}_filtered.parquet")
    build("lamda", tmp_path, tmp_path / "data")
    malware = load_lamda(tmp_path / "data")
    assert malware.y.tolist() == ["a", "b", "c"]
    assert malware.times.astype(str).tolist() == ["2013-06", "2014-02", "2017-06"]
    assert malware.extra["hash"].tolist() == ["2013_test", "2014_test", "2017_train"]
    assert [row.indices.tolist() for row in malware.X] == [[2, 10]] * 3


def test_nvd_in_both_layouts(tmp_path):
    old = {
        "cve": {
            "CVE_data_meta": {"ID": "CVE-2002-1"},
            "description": {"description_data": [{"lang": "en", "value": "overflow"}]},
        },
        "impact": {"baseMetricV2": {"severity": "HIGH"}},
        "publishedDate": "2002-03-04T05:00Z",
    }
    new = {
        "cve": {
            "id": "CVE-2003-1",
            "published": "2003-04-05T04:00:00.000",
            "descriptions": [{"lang": "es", "value": "fuga"}, {"lang": "en", "value": "leak"}],
            "metrics": {"cvssMetricV2": [{"type": "Primary", "baseSeverity": "LOW"}]},
        }
    }
    ungraded = {"cve": new["cve"] | {"id": "CVE-2003-2", "metrics": {}}}
    (tmp_path / "nvdcve-1.1-2002.json").write_text(json.dumps({"CVE_Items": [old]}))
    with gzip.open(tmp_path / "nvdcve-2.0-2003.json.gz", "wt") as file:
        json.dump({"vulnerabilities": [new, ungraded]}, file)
    build("nvd", tmp_path, tmp_path / "data")
    texts = load_nvd(tmp_path / "data")
    assert texts.X.tolist() == ["overflow", "leak"]
    assert texts.y.tolist() == ["HIGH", "LOW"]
    assert texts.times.astype(str).tolist() == ["2002-03-04", "2003-04-05"]
    assert pq.read_table(tmp_path / "data/nvd_cve.parquet").num_rows == 2


def test_trec07p(tmp_path):
    for folder in ("full", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full/index").write_text("spam ../data/inmail.1\nham ../data/inmail.2\n")
    head = "From a@b Sun\nReceived: from x by y; Sun, 8 Apr 2007 {} -0400\nSubject: {}\n\n"
    for number, hour, subject in ((1, "21:00:00", "cheap pills"), (2, "13:07:21", "agenda")):
        (tmp_path / f"data/inmail.{number}").write_text(
            head.format(hour, subject) + "<b>see</b> you\xe9 4u", "latin-1"
        )
    build("trec07p", tmp_path, tmp_path / "data07")
    mail = load_trec07p(tmp_path / "data07")
    assert mail.y.tolist() == [0, 1]
    assert mail.times.astype(str).tolist() == ["2007-04-08T17:07:21", "2007-04-09T01:00:00"]
    assert mail.X.shape == (2, 2**17)
    assert set(mail.X.data) == {1.0}
    for row, words in zip(mail.X, ("s:agenda see you", "s:cheap s:pills see you"), strict=True):
        assert {*row.indices} == {zlib.crc32(word.encode()) % 2**17 for word in words.split()}


@pytest.mark.parametrize("name", ["apigraph", "lamda", "nvd", "trec07p"])
def test_another_folder_is_refused(name, tmp_path):
    assert "has no file" in build(name, tmp_path, tmp_path / "data").stderr
