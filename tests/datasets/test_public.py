"""The public data sets have the sizes that are known of them."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from transcendent._utils.arrays import group_equal_rows
from transcendent.artifacts import open_artifact
from transcendent.cli import showing
from transcendent.datasets import load_apigraph, load_lamda, load_nvd, load_trec07p
from transcendent.experiments import read

FOLDER = Path(os.environ.get("TRANSCENDENT_DATA", "no folder"))
LOADERS = [load_apigraph, load_lamda, load_nvd, load_trec07p]
SCRIPTS = Path(__file__).parents[2] / "benchmarks/data"
needs_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="set TRANSCENDENT_DATA to the folder of the public data"
)


def is_float_csr(X):
    return sp.issparse(X) and X.format == "csr" and X.dtype == np.float64


def is_ordered(dataset):
    return bool(np.all(dataset.times[1:] >= dataset.times[:-1]))


@pytest.fixture(scope="module")
def apigraph():
    return load_apigraph(FOLDER)


@pytest.mark.slow
@needs_data
def test_apigraph(apigraph):
    assert apigraph.X.shape == (320_315, 1_159)
    assert is_float_csr(apigraph.X)
    assert np.bincount(apigraph.y).tolist() == [289_511, 30_804]
    assert len(apigraph.feature_names) == 1_159
    assert is_ordered(apigraph)
    assert apigraph.times.dtype == np.dtype("datetime64[M]")
    assert len(np.unique(apigraph.times)) == 73
    assert (apigraph.times[0], apigraph.times[-1]) == (np.datetime64("2012-12"), np.datetime64("2018-12"))
    families = apigraph.extra["family"]
    assert len(np.unique(families[apigraph.y == 1])) == 484
    assert set(families[apigraph.y == 0]) == {""}


@needs_data
def test_apigraph_block_of_2012_comes_before_2013(apigraph):
    block = pq.read_table(FOLDER / "apigraph_meta.parquet", columns=["month"])["month"].to_numpy()
    assert np.sum(apigraph.times < np.datetime64("2013-01")) == np.sum(block == "2012-01to2012-12")


@pytest.mark.slow
@needs_data
def test_apigraph_deduplicated(apigraph):
    assert len(np.unique(group_equal_rows(apigraph.X)[0])) == 161_153
    fewer = load_apigraph(FOLDER, deduplicate=True)
    groups, _ = group_equal_rows(fewer.X)
    keys = {*zip(groups.tolist(), fewer.times.astype(int).tolist(), fewer.y.tolist(), strict=True)}
    assert len(keys) == len(fewer) == 222_768
    assert len(np.unique(groups)) == 161_153
    assert is_ordered(fewer)


@needs_data
def test_lamda():
    malware = load_lamda(FOLDER)
    assert malware.X.shape == (51_411, 4_561)
    assert is_float_csr(malware.X)
    assert len(np.unique(malware.y)) == 154
    assert list(malware.extra) == ["hash"]
    assert is_ordered(malware)
    assert (malware.times[0], malware.times[-1]) == (np.datetime64("2013-06"), np.datetime64("2024-11"))
    assert np.datetime64("2015") not in malware.times.astype("datetime64[Y]")


@needs_data
def test_nvd():
    texts = load_nvd(FOLDER)
    assert len(texts) == 111_114
    assert all(isinstance(text, str) for text in texts.X)
    assert set(texts.y) == {"HIGH", "MEDIUM", "LOW"}
    assert is_ordered(texts)
    assert texts.times[-1] == np.datetime64("2018-12-31")


@needs_data
def test_trec07p():
    mail = load_trec07p(FOLDER)
    assert mail.X.shape == (75_419, 2**17)
    assert is_float_csr(mail.X)
    assert np.bincount(mail.y).tolist() == [25_220, 50_199]
    assert is_ordered(mail)
    assert mail.times.dtype == np.dtype("datetime64[s]")
    assert (mail.times[0].astype("M8[D]"), mail.times[-1].astype("M8[D]")) == (
        np.datetime64("2007-04-08"),
        np.datetime64("2007-07-06"),
    )


@needs_data
def test_the_environment_names_the_folder(monkeypatch):
    monkeypatch.setenv("TRANSCENDENT_DATA", str(FOLDER))
    assert len(load_lamda()) == 51_411


@pytest.mark.parametrize("load", LOADERS)
def test_a_folder_is_needed(load, monkeypatch):
    monkeypatch.delenv("TRANSCENDENT_DATA", raising=False)
    name = load.__name__.removeprefix("load_")
    built = rf"benchmarks/data/{name}\.py builds the files from .*data_home=.* TRANSCENDENT_DATA"
    with pytest.raises(ValueError, match=built):
        load()
    assert f"benchmarks/data/{name}.py" in load.__doc__
    assert (SCRIPTS / f"{name}.py").is_file()


@pytest.mark.parametrize("load", LOADERS)
def test_a_missing_file_is_named(load, tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/\w+\.parquet; benchmarks/data/\w+\.py builds"):
        load(tmp_path)


def test_a_missing_matrix_is_named(tmp_path):
    table = {"year_month": ["2013-06"], "family": ["dowgin"], "hash": ["a"], "vt_count": [3.0]}
    pq.write_table(pa.table(table), tmp_path / "lamda_malware_meta.parquet")
    with pytest.raises(FileNotFoundError, match=r"lamda_malware_X\.npz"):
        load_lamda(tmp_path)


def test_apigraph_in_small(tmp_path):
    """Equal apps of the block, of another month, with another label; months out of order."""
    months = ["2013-01", "2012-01to2012-12", "2012-01to2012-12", "2013-01", "2012-01to2012-12"]
    table = {
        "month": months,
        "y": [0, 1, 1, 0, 0],
        "fam_id": [0, 1, 2, 0, 0],
        "family": ["", "a", "b", "", ""],
    }
    pq.write_table(pa.table(table), tmp_path / "apigraph_meta.parquet")
    sp.save_npz(tmp_path / "apigraph_X.npz", sp.csr_matrix(np.array([[1, 0]] * 5, dtype=np.uint8)))
    (tmp_path / "apigraph_features.json").write_text('{"second": 1, "first": 0}')
    apps = load_apigraph(tmp_path)
    assert apps.times.astype(str).tolist() == ["2012-12"] * 3 + ["2013-01"] * 2
    assert apps.feature_names.tolist() == ["first", "second"]
    fewer = load_apigraph(tmp_path, deduplicate=True)
    assert sorted(fewer.extra["family"].tolist()) in (["", "", "a"], ["", "", "b"])
    assert fewer.y.tolist() == [1, 0, 0]


def test_a_fit_of_apigraph_keeps_the_names_of_features(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((200, 2)) < 0.5).astype(np.uint8))
    y = X[:, [0]].toarray().ravel()
    table = {"month": ["2013-01"] * 200, "y": y, "family": [""] * 200}
    pq.write_table(pa.table(table), tmp_path / "apigraph_meta.parquet")
    sp.save_npz(tmp_path / "apigraph_X.npz", X)
    (tmp_path / "apigraph_features.json").write_text('{"second": 1, "first": 0}')
    toml = tmp_path / "apps.toml"
    toml.write_text(
        '[data]\ndataset = "apigraph"\nfolder = "."\n[detector]\nclass = "sklearn.svm.LinearSVC"\n'
        '[rejectors.ice]\ntype = "ICE"\n'
    )
    read(toml).fit().save(tmp_path / "apps.transcendent")
    artifact = open_artifact(tmp_path / "apps.transcendent")
    assert artifact.layout().names_to_show == ["first", "second"]
    assert "2: first, second" in showing.artifact(artifact)


def test_nvd_in_small(tmp_path):
    published = np.array(["2018-12-31", "2019-01-01", "2001-01-01", "2002-01-01"], dtype="datetime64[us]")
    table = {"published": published, "desc": ["a", "b", "c", "d"], "sev2": ["LOW", "LOW", "", None]}
    pq.write_table(pa.table(table), tmp_path / "nvd_cve.parquet")
    assert load_nvd(tmp_path).X.tolist() == ["a"]
