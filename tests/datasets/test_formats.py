"""Files in the formats of others, written here in small."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from transcendent.datasets import load_ember, load_hidost, load_tesseract

APPS = [
    {"permission::SMS": 1, "activity::Main": 1},
    {"activity::Main": 1},
    {"url::example.com": 1},
]
META = [
    {"dex_date": "2014-03-01T00:00:00", "sha256": "AA", "pkg": "org.a"},
    {"dex_date": "2014-01-05 10:30:00", "sha256": "BB", "vt_detections": 4},
    {"dex_date": "2014-02-01T00:00:00", "sha256": "CC"},
]


@pytest.fixture
def tesseract(tmp_path):
    def load(X=APPS, y=(1, 0, 1), meta=META):
        paths = [tmp_path / f"extended-features-{name}.json" for name in ("X", "y", "meta")]
        for path, content in zip(paths, (X, y, meta), strict=True):
            path.write_text(json.dumps(content))
        return load_tesseract(*paths)

    return load


def test_tesseract(tesseract):
    apps = tesseract()
    assert apps.feature_names.tolist() == ["activity::Main", "permission::SMS", "url::example.com"]
    assert sp.issparse(apps.X)
    assert apps.X.format == "csr"
    assert apps.X.toarray().tolist() == [[1, 0, 0], [0, 0, 1], [1, 1, 0]]
    assert apps.y.tolist() == [0, 1, 1]
    assert apps.times.astype(str).tolist() == [
        "2014-01-05T10:30:00",
        "2014-02-01T00:00:00",
        "2014-03-01T00:00:00",
    ]
    assert apps.extra["sha256"].tolist() == ["BB", "CC", "AA"]


def test_tesseract_hashes_never_become_features(tesseract):
    apps = tesseract(
        X=[{**app, "sha256": meta["sha256"].lower()} for app, meta in zip(APPS, META, strict=True)]
    )
    assert apps.feature_names.tolist() == tesseract().feature_names.tolist()


def test_tesseract_of_older_releases(tesseract):
    apps = tesseract(y=[[1], [0], [1]], meta=[{"dex_date": about["dex_date"]} for about in META])
    assert apps.y.tolist() == [0, 1, 1]
    assert apps.extra == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": {"a": 1}}, r"-X\.json must be a list"),
        ({"X": []}, r"-X\.json must be a list with an entry per object, got \[\]"),
        ({"X": [{"a": 1}, "b", {}]}, r"-X\.json: entry 1 must be a dict, got 'b'"),
        ({"X": APPS[:2]}, r"different numbers of objects.*-X\.json: 2, .*-y\.json: 3, .*-meta\.json: 3"),
        ({"y": [0, 1]}, r"different numbers of objects.*-y\.json: 2"),
        ({"y": [0, 1, 2]}, r"-y\.json must have only the labels 0 and 1, got 2"),
        ({"y": [0, 1, None]}, r"-y\.json must have only the labels 0 and 1, got None"),
        ({"y": [0, 1, []]}, r"-y\.json must have only the labels 0 and 1, got \[\]"),
        ({"meta": META[1:]}, r"different numbers of objects.*-meta\.json: 2"),
        ({"meta": [*META[:2], {"dex_date": "March"}]}, r"-meta\.json: object 2 has no valid date.*'March'"),
        ({"meta": [{"sha256": "AA"}, *META[1:]]}, r"-meta\.json: object 0 has no valid date"),
        (
            {"X": [{**app, "sha256": "BB"} for app in APPS]},
            r"not in the same order: sha256 of entry 0 differs",
        ),
    ],
)
def test_tesseract_refuses(tesseract, change, message):
    with pytest.raises(ValueError, match=message):
        tesseract(**change)


def test_tesseract_refuses_what_is_not_json(tesseract, tmp_path):
    tesseract()
    path = tmp_path / "extended-features-y.json"
    path.write_text("[0, 1")
    with pytest.raises(ValueError, match=r"-y\.json is not JSON"):
        load_tesseract(tmp_path / "extended-features-X.json", path, tmp_path / "extended-features-meta.json")


WIDTH = 5
LABELS = {"train": [0, -1, 1, 1], "test": [1, 0]}
MONTHS = {"train": ["2018-02", "2018-01", "2018-01", "2018-03"], "test": ["2018-11", "2018-12"]}
FEATURES = np.arange(6 * WIDTH, dtype=np.float32).reshape(6, WIDTH)


@pytest.fixture
def ember(tmp_path):
    def write(index=True, avclass=True, labels=LABELS, months=MONTHS):
        parts = {"train": FEATURES[:4], "test": FEATURES[4:]}
        lines = [",".join([""] * index + ["sha256", "appeared", "subset", "label"] + ["avclass"] * avclass)]
        for subset, rows in parts.items():
            rows.tofile(tmp_path / f"X_{subset}.dat")
            np.array(LABELS[subset], dtype=np.float32).tofile(tmp_path / f"y_{subset}.dat")
            for label, month in zip(labels[subset], months[subset], strict=True):
                number = len(lines) - 1
                cells = [f"h{number}", month, subset, str(label)] + ["zeus"] * avclass
                lines.append(",".join([str(number)] * index + cells))
        (tmp_path / "metadata.csv").write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("avclass", [False, True])
def test_ember(ember, index, avclass):
    programs = load_ember(ember(index, avclass), WIDTH)
    assert np.array_equal(programs.X, FEATURES[[2, 0, 3, 4, 5]])
    assert programs.X.dtype == np.float32
    assert programs.y.tolist() == [1, 0, 1, 1, 0]
    assert programs.times.astype(str).tolist() == ["2018-01", "2018-02", "2018-03", "2018-11", "2018-12"]
    assert programs.extra["sha256"].tolist() == ["h2", "h0", "h3", "h4", "h5"]
    assert list(programs.extra) == ["sha256", "avclass"][: 1 + avclass]


def test_ember_with_the_unlabelled(ember):
    programs = load_ember(ember(), WIDTH, keep_unlabelled=True)
    assert programs.y.tolist() == [-1, 1, 0, 1, 1, 0]
    assert np.array_equal(programs.X, FEATURES[[1, 2, 0, 3, 4, 5]])


def test_ember_copies_in_parts(ember, monkeypatch):
    monkeypatch.setattr("transcendent.datasets.formats._ROWS_AT_ONCE", 3)
    test_ember(ember, index=True, avclass=True)


def test_ember_stays_on_disk_where_it_can(ember):
    programs = load_ember(ember(), WIDTH, subset="test")
    assert isinstance(programs.X, np.memmap)
    assert programs.X.base is not None
    assert np.array_equal(programs.X, FEATURES[4:])
    assert isinstance(programs[1:].X, np.memmap)


def test_ember_in_order_over_both_files_is_still_a_copy(ember):
    in_order = {**MONTHS, "train": ["2018-01", "2018-01", "2018-02", "2018-03"]}
    programs = load_ember(ember(months=in_order), WIDTH, keep_unlabelled=True)
    assert not isinstance(programs.X, np.memmap)
    assert np.array_equal(programs.X, FEATURES)


def test_ember_of_one_subset_needs_the_other_files_not(ember):
    folder = ember()
    (folder / "X_test.dat").unlink()
    (folder / "y_test.dat").unlink()
    programs = load_ember(folder, WIDTH, subset="train")
    assert np.array_equal(programs.X, FEATURES[[2, 0, 3]])
    with pytest.raises(FileNotFoundError, match=r"X_test\.dat"):
        load_ember(folder, WIDTH)


def test_ember_labels_written_as_floats(ember):
    floats = {subset: [float(label) for label in labels] for subset, labels in LABELS.items()}
    assert len(load_ember(ember(labels=floats), WIDTH)) == 5


def cut(name, n_bytes):
    def damage(folder):
        (folder / name).write_bytes((folder / name).read_bytes()[:n_bytes])

    return damage


def drop_last_line(folder):
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text("\n".join(text.splitlines()[:-1]))


def rename_column(folder):
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text(text.replace("appeared", "seen"))


def strange_label(folder):
    np.array([0, 7], dtype=np.float32).tofile(folder / "y_test.dat")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            cut("X_train.dat", 30),
            r"X_train\.dat has 30 bytes, but 4 labels in y_train\.dat with 5 features each need 80",
        ),
        (cut("y_train.dat", 12), r"X_train\.dat has 80 bytes, but 3 labels"),
        (cut("y_test.dat", 7), r"y_test\.dat is empty or truncated: 7 bytes"),
        (cut("y_test.dat", 0), r"y_test\.dat is empty or truncated: 0 bytes"),
        (cut("metadata.csv", 0), r"metadata\.csv has no column appeared, label, sha256, subset"),
        (drop_last_line, r"different numbers of objects.*test rows of .*metadata\.csv: 1, y_test\.dat: 2"),
        (rename_column, r"metadata\.csv has no column appeared"),
        (strange_label, r"y_test\.dat must have only the labels -1, 0 and 1, got \[0\.0, 7\.0\]"),
    ],
)
def test_ember_refuses_damaged_files(ember, damage, message):
    folder = ember()
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load_ember(folder, WIDTH)


def test_ember_refuses_another_width_and_subset(ember):
    with pytest.raises(ValueError, match="or width is wrong"):
        load_ember(ember())
    with pytest.raises(ValueError, match="subset must be"):
        load_ember(ember(), WIDTH, subset="validation")


def test_ember_refuses_metadata_of_other_programs(ember):
    folder = ember(labels={**LABELS, "train": [0, -1, 0, 1]})
    with pytest.raises(
        ValueError, match=r"metadata\.csv: the label of train row 2 differs from y_train\.dat"
    ):
        load_ember(folder, WIDTH)


def test_ember_refuses_months_that_are_none(ember):
    folder = ember(months={**MONTHS, "test": ["2018-11", "2018-13"]})
    with pytest.raises(ValueError, match=r"metadata\.csv: object 5 has no valid date: '2018-13'"):
        load_ember(folder, WIDTH)


@pytest.fixture
def hidost(tmp_path):
    def load(libsvm, dates):
        (tmp_path / "w01.libsvm").write_text(libsvm)
        (tmp_path / "w01.txt").write_bytes(dates.encode("latin-1"))
        return load_hidost(tmp_path / "w01.libsvm", tmp_path / "w01.txt")

    return load


PDFS = "1 1:1 3:2 # pdf/a\n{zero} 2:1\n1 3:1 # pdf/c\n"


@pytest.mark.parametrize("zero", [0, -1])
def test_hidost(hidost, zero):
    dates = "# files\n/pdf/2012/08/02/1é.pdf\n\n2012-08-01\nw08 2012/07/31 2019/01/01\n"
    pdfs = hidost(PDFS.format(zero=zero), dates)
    assert pdfs.times.astype(str).tolist() == ["2012-07-31", "2012-08-01", "2012-08-02"]
    assert pdfs.y.tolist() == [1, 0, 1]
    assert pdfs.X.toarray().tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 2]]


@pytest.mark.parametrize(
    ("libsvm", "dates", "message"),
    [
        (PDFS.format(zero=0), "2012/08/02\n2012/08/03\n", r"w01\.libsvm: 3, the dates of .*w01\.txt: 2"),
        (
            PDFS.format(zero=0),
            "2012/08/02\n2012/13/03\n2012/08/02",
            r"w01\.txt: object 1 has no valid date.*'2012-13-03'",
        ),
        (
            PDFS.format(zero=2),
            "2012/08/02\n" * 3,
            r"w01\.libsvm must have only the labels 0 and 1, got 2\.0",
        ),
        ("one 1:1\n", "2012/08/02\n", r"w01\.libsvm is not a libsvm file"),
    ],
)
def test_hidost_refuses(hidost, libsvm, dates, message):
    with pytest.raises(ValueError, match=message):
        hidost(libsvm, dates)


@pytest.mark.parametrize("load", [load_tesseract, load_hidost])
def test_missing_files_are_named(load, tmp_path):
    paths = [tmp_path / f"file{i}" for i in range(3 if load is load_tesseract else 2)]
    with pytest.raises(FileNotFoundError, match="file0"):
        load(*paths)
