"""Files of earlier formats, and files that once caused errors."""

import io
import json
import re
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import sklearn

from tests.artifacts.crafted import members_of, rebuilt, schema_of, with_schema
from transcendent import Answers
from transcendent.artifacts import entries, load, open_artifact
from transcendent.artifacts import versions as find
from transcendent.artifacts.manifest import FORMAT
from transcendent.errors import ArtifactError, ArtifactVersionWarning

HERE = Path(__file__).parent
WRITTEN = {number: sorted((HERE / f"v{number}").glob("*.transcendent")) for number in range(1, FORMAT + 1)}
CORPUS = HERE / "corpus.zip"
ROWS = np.load(HERE / "v1/rows.npz")["X"]  # of every format
SERIES = ".".join(sklearn.__version__.split(".")[:2])


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM's own, on plain arrays
@pytest.mark.filterwarnings("ignore::transcendent.errors.ArtifactVersionWarning")
@pytest.mark.parametrize(
    "path", [*WRITTEN[1], *WRITTEN[2]], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_format_is_loaded_and_decides_as_it_did(path):
    expected = json.loads((path.parent / "expected.json").read_text())[path.stem]
    rejector = load(path, trusted=expected.get("trusted", []))
    rows = Answers(expected["labels"], ROWS[:, :2]) if path.stem == "scores" else ROWS
    decisions = rejector.decide(rows)
    assert decisions.labels.tolist() == expected["labels"]
    assert decisions.accepted.tolist() == expected["accepted"]
    np.testing.assert_allclose(decisions.credibility, expected["credibility"], atol=1e-12)
    np.testing.assert_allclose(decisions.confidence, expected["confidence"], atol=1e-12)
    assert path.parent.name == f"v{open_artifact(path).manifest['format']}"


def test_every_kind_of_rejector_is_among_them():
    assert {number: len(paths) for number, paths in WRITTEN.items()} == {1: 11, 2: 14}


class TestOtherVersions:
    """An artifact that says it was written under other versions."""

    @pytest.fixture
    def written(self, tmp_path):
        data = (HERE / "v1/ice.transcendent").read_bytes()

        def write(estimators=None, **versions):
            members = members_of(data)
            if estimators is not None:
                skops = members["rejector.skops"]
                schema = json.dumps(schema_of(skops)).replace(sklearn.__version__, estimators)
                members["rejector.skops"] = with_schema(skops, json.loads(schema))
            here = find.versions() | {name.replace("_", "-"): given for name, given in versions.items()}
            path = tmp_path / "x"
            path.write_bytes(rebuilt(data, members, lambda manifest: manifest.update(versions=here)))
            return path

        return write

    def test_the_same(self, written):
        path = written()
        assert open_artifact(path).version_differences() == []
        assert load(path, strict=True).decide(ROWS)
        assert open_artifact(path).versions["scikit-learn"] == sklearn.__version__

    def test_another_minor_version_of_scikit_learn_is_one_warning(self, written):
        path = written(estimators="1.7.2", scikit_learn="1.7.2")
        with pytest.warns(ArtifactVersionWarning) as caught:
            load(path).decide(ROWS)
        (message,) = [str(warning.message) for warning in caught]
        said = f"It was written under scikit-learn 1.7.2 and is read under {sklearn.__version__}."
        assert said in message
        with pytest.raises(ArtifactError, match=re.escape(said)):
            load(path, strict=True)
        with pytest.raises(ArtifactError, match=re.escape(said)):
            open_artifact(path).check(strict=True)

    @pytest.mark.parametrize(
        ("library", "version"), [("numpy", "1.0"), ("python", "3.9.1"), ("scikit_learn", f"{SERIES}.99")]
    )
    def test_a_difference_that_does_not_matter_is_named_and_strictly_refused(self, written, library, version):
        path = written(**{library: version})
        (difference,) = open_artifact(path).version_differences()
        assert difference[:2] == (library.replace("_", "-"), version)
        assert load(path).decide(ROWS)
        with pytest.raises(ArtifactError, match=f"written under {difference.library} {version}"):
            load(path, strict=True)

    def test_what_fails_to_load_names_them(self, written, monkeypatch):
        def check(_):
            raise AttributeError("no such thing")

        monkeypatch.setattr(entries, "check_contents", check)
        with pytest.raises(ArtifactError, match=r"no such thing.*written under scikit-learn 1\.7\.2"):
            load(written(scikit_learn="1.7.2"))
        with pytest.raises(ArtifactError, match=r"no such thing\)\.$"):
            load(written())

    @pytest.mark.parametrize("error", [AttributeError, ValueError])
    def test_what_fails_to_decide_names_them(self, written, error):
        opened = open_artifact(written(scikit_learn="1.7.2", transcendent="0.0.1"))
        with (
            pytest.raises(ArtifactError, match=r"transcendent 0\.0\.1.*; under scikit-learn 1\.7\.2"),
            opened.deciding(),
        ):
            raise error("no such thing")

    def test_rows_are_blamed_where_versions_are_not(self, written):
        opened = open_artifact(written(numpy="1.0"))
        with pytest.raises(ValueError, match=r"^NaN$"), opened.deciding():
            raise ValueError("NaN")
        with pytest.raises(ArtifactError, match=r"cannot decide these rows .KeyError"), opened.deciding():
            raise KeyError("x")

    def test_boosters_count_if_they_are_used(self):
        there = open_artifact(HERE / "v1/lightgbm.transcendent").versions
        changed = there | {"lightgbm": "1.0", "xgboost": "1.0"}
        assert [d.library for d in find.find_differences(changed, ["lightgbm"]) if d.matters] == ["lightgbm"]
        missing = find.find_differences(there | {"nowhere": "1"}, ["nowhere"])
        assert missing[-1] == ("nowhere", "1", None)


@pytest.mark.filterwarnings("ignore")
def test_fuzzed_files_end_as_they_should(tmp_path):
    """Mutated files with a new seal that end in different ways, found by the fuzzer."""
    with ZipFile(io.BytesIO(CORPUS.read_bytes())) as corpus:
        endings = json.loads(corpus.read("endings.json"))
        for name, ending in endings.items():
            path = tmp_path / name
            path.write_bytes(corpus.read(name))
            if ending == "loaded":
                load(path)
                continue
            with pytest.raises(ArtifactError, match="is refused: "):
                load(path)
    assert len(endings) >= 20
