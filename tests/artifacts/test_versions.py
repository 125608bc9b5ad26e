"""Files of earlier formats, and files that once were trouble."""

import io
import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from transcendent.artifacts import load, open_artifact
from transcendent.errors import ArtifactError

HERE = Path(__file__).parent
V1 = sorted((HERE / "v1").glob("*.transcendent"))
CORPUS = HERE / "corpus.zip"


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM's own, on plain arrays
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
@pytest.mark.parametrize("path", V1, ids=lambda path: path.stem)
def test_format_1_is_loaded_and_decides_as_it_did(path):
    expected = json.loads((HERE / "v1/expected.json").read_text())[path.stem]
    rejector = load(path, trusted=expected.get("trusted", []))
    X = np.load(HERE / "v1/rows.npz")["X"]
    given = (X[:, :2], expected["labels"]) if path.stem == "scores" else (X,)
    decisions = rejector.decide(*given)
    assert decisions.labels.tolist() == expected["labels"]
    assert decisions.accepted.tolist() == expected["accepted"]
    np.testing.assert_allclose(decisions.credibility, expected["credibility"], atol=1e-12)
    np.testing.assert_allclose(decisions.confidence, expected["confidence"], atol=1e-12)
    assert open_artifact(path).manifest["format"] == 1


def test_every_kind_of_rejector_is_among_them():
    assert len(V1) == 11


@pytest.mark.filterwarnings("ignore")
def test_fuzzed_files_end_as_they_should(tmp_path):
    """Mutated, sealed again, and found by the fuzzer to end in different ways."""
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
