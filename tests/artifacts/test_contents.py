"""Files of trusted types only, crafted so that compiled code would follow wild indices or open files."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder
from sklearn.svm import SVR, LinearSVC

from tests.artifacts.crafted import members_of, schema_of, with_members, with_schema
from transcendent import InductiveEvaluator
from transcendent.artifacts import load, open_artifact, save
from transcendent.artifacts.contents import check_contents, reachable
from transcendent.errors import ArtifactError

X, y = make_classification(300, random_state=0)
TEXTS = np.array([" ".join(f"w{int(3 * v) % 7}" for v in row) for row in X], dtype=object)


def fitted(detector, rows=X, random_state=0, **given):
    """An evaluator, and the detector inside it to craft."""
    ice = InductiveEvaluator(detector, random_state=random_state, **given).fit(rows, y)
    return ice, ice.detectors_[0].estimator


@pytest.fixture
def refused(tmp_path):
    """Save and load a crafted rejector that must be refused, and return the reason."""

    def attempt(rejector):
        save(rejector, tmp_path / "x")
        assert open_artifact(tmp_path / "x").types_to_trust() == []
        with pytest.raises(ArtifactError) as caught:
            load(tmp_path / "x")
        return str(caught.value)

    return attempt


class TestTrials:
    def test_labels_of_neighbours(self, refused):
        ice, knn = fitted(KNeighborsClassifier(algorithm="brute", metric="manhattan"))
        knn._y = np.full_like(knn._y, 10**12)
        assert "labels that are not among its classes" in refused(ice)

    def test_the_number_of_neighbours_rows(self, refused):
        ice, knn = fitted(KNeighborsClassifier(algorithm="brute"))
        knn.n_samples_fit_ = 10
        assert "claims (10, 20) rows" in refused(ice)

    def test_the_width_of_neighbours_rows(self, refused):
        ice, knn = fitted(KNeighborsClassifier(algorithm="brute", metric="manhattan"))
        knn.n_features_in_ = ice.n_features_in_ = 4_000_000
        assert "4000000) rows and columns, but holds (198, 20)" in refused(ice)

    def test_infrequent_categories_that_do_not_exist(self, refused):
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2)
        ice, pipeline = fitted(make_pipeline(encoder, LinearSVC()), X.round())
        held = pipeline.steps[0][1]
        held._infrequent_indices = [np.array([1 << 30])] * len(held.categories_)
        held._default_to_infrequent_mappings = [None] * len(held.categories_)
        assert "infrequent categories that do not exist" in refused(ice)

    @pytest.mark.parametrize("position", [-1, 625, 10**8])
    def test_the_position_of_a_random_state(self, refused, position):
        source = np.random.RandomState(0)
        ice, _ = fitted(LinearSVC(), random_state=source)
        state = source.get_state(legacy=False)
        state["state"]["pos"] = position
        source.set_state(state)
        assert "position outside of its state" in refused(ice)

    @pytest.mark.parametrize(
        ("kind", "place"), [(np.random.Philox, ("buffer_pos",)), (np.random.MT19937, ("state", "pos"))]
    )
    def test_the_position_of_a_generator(self, kind, place):
        bits = kind(0)
        check_contents(reachable({"source": np.random.Generator(bits)}))
        state = bits.state
        inner = state if len(place) == 1 else state["state"]
        inner[place[-1]] = -5
        bits.state = state
        with pytest.raises(ArtifactError, match="position outside"):
            check_contents(reachable({"source": np.random.Generator(bits)}))

    def test_a_sparse_matrix_in_an_array_of_objects(self, refused):
        ice, several = fitted(OneVsRestClassifier(LinearSVC()))
        inner = several.estimators_[0]
        inner.coef_ = sp.csr_matrix(inner.coef_)
        inner.coef_.indices[:] = 10**9
        several.estimators_ = np.array([inner, None], dtype=object)[:1]
        assert "indices must be < 20" in refused(ice)

    def test_an_invalid_parameter(self, refused):
        ice, pipeline = fitted(make_pipeline(HashingVectorizer(n_features=16), LinearSVC()), TEXTS)
        pipeline.steps[0][1].n_features = 0
        assert "The 'n_features' parameter of HashingVectorizer must be" in refused(ice)


class TestFilesThatWouldBeOpened:
    def text(self):
        return fitted(make_pipeline(CountVectorizer(), LinearSVC()), TEXTS)

    @pytest.mark.parametrize("kind", ["filename", "file"])
    def test_rows_that_name_files(self, tmp_path, kind):
        ice, pipeline = self.text()
        save(ice, tmp_path / "x")
        skops = members_of((tmp_path / "x").read_bytes())["rejector.skops"]
        schema = json.loads(json.dumps(schema_of(skops)).replace('\\"content\\"', f'\\"{kind}\\"'))
        crafted = with_members(
            (tmp_path / "x").read_bytes(), **{"rejector.skops": with_schema(skops, schema)}
        )
        (tmp_path / "x").write_bytes(crafted)
        with pytest.raises(ArtifactError, match=f"files to open .input='{kind}'."):
            load(tmp_path / "x")
        pipeline.steps[0][1].input = kind
        with pytest.raises(ArtifactError, match="cannot be saved: its CountVectorizer reads rows as files"):
            save(ice, tmp_path / "x")

    def test_a_folder_to_write_to(self, tmp_path):
        ice, _ = fitted(make_pipeline(LinearSVC(), memory=str(tmp_path / "cache")))
        with pytest.raises(ArtifactError, match="use memory=None"):
            save(ice, tmp_path / "x")


class TestColumnsThatDoNotExist:
    """Indices of sparse matrices that are built when rows are decided, which SciPy does not check."""

    @pytest.mark.parametrize("column", [-1, 7, 10**9, 0.5])
    def test_a_vocabulary(self, refused, column):
        ice, pipeline = fitted(make_pipeline(CountVectorizer(), LinearSVC()), TEXTS)
        vocabulary = pipeline.steps[0][1].vocabulary_
        assert len(vocabulary) == 7
        vocabulary[next(iter(vocabulary))] = column
        assert "vocabulary with columns that do not exist" in refused(ice)

    def test_widths_of_an_encoder(self, refused):
        ice, pipeline = fitted(make_pipeline(OneHotEncoder(handle_unknown="ignore"), LinearSVC()), X.round())
        pipeline.steps[0][1]._n_features_outs = [1] * 20
        assert "categories without a column" in refused(ice)

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"drop": "first"},
            {"drop": "if_binary"},
            {"min_frequency": 40},
            {"min_frequency": 40, "drop": "first"},
        ],
        ids=str,
    )
    def test_encoders_as_they_are_fitted(self, given):
        rows = np.random.default_rng(0).geometric(0.4, size=(300, 3)).clip(max=8)
        rows[:, 2] %= 2
        encoder = OneHotEncoder(**given).fit(rows)
        check_contents(reachable(encoder))
        for i, width in enumerate(encoder._n_features_outs):
            encoder._n_features_outs[i] -= 1
            with pytest.raises(ArtifactError, match="categories without a column"):
                check_contents(reachable(encoder))
            encoder._n_features_outs[i] = width
        if "drop" in given:
            encoder._drop_idx_after_grouping[0] = 100
            with pytest.raises(ArtifactError, match="categories without a column"):
                check_contents(reachable(encoder))

    def test_a_class_twice(self):
        binarizer = MultiLabelBinarizer().fit([["a"], ["b"]])
        check_contents(reachable(binarizer))
        binarizer.classes_ = np.array(["a", "a", "b"], dtype=object)
        with pytest.raises(ArtifactError, match="duplicate class"):
            check_contents(reachable(binarizer))

    @pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
    def test_matrices_of_every_format(self, kind):
        matrix = sp.eye(4).asformat(kind)
        check_contents(reachable([matrix]))
        indices = matrix.coords[1] if kind == "coo" else matrix.indices
        indices[1] = 2**30
        with pytest.raises((ArtifactError, ValueError), match=r"ind(ices|ex)"):
            check_contents(reachable([matrix]))
        with pytest.raises(ArtifactError, match="format that rejectors do not use"):
            check_contents(reachable([sp.eye(4).asformat("dia")]))


class TestOtherMemory:
    def test_something_else_for_a_tree(self, tmp_path):
        ice, boosted = fitted(GradientBoostingClassifier(n_estimators=1, random_state=0))
        boosted.estimators_[0, 0].tree_ = np.zeros(3)
        save(ice, tmp_path / "x")
        with pytest.raises(ArtifactError, match="ndarray where a tree belongs"):
            load(tmp_path / "x", trusted=open_artifact(tmp_path / "x").types_to_trust())

    def test_centres_of_another_width(self, refused):
        ice, pipeline = fitted(make_pipeline(KMeans(3, n_init=1), LogisticRegression()))
        means = pipeline.steps[0][1]
        means.cluster_centers_ = means.cluster_centers_[:, :2].copy()
        assert "a different width" in refused(ice)

    def test_more_jobs_than_any_machine_has(self, refused):
        ice, logistic = fitted(LogisticRegression())
        logistic.n_jobs = 10**6
        assert "would start 1,000,000 processes" in refused(ice)

    def test_types_of_others_that_build_on_these(self):
        class Own(CountVectorizer):
            pass

        own = Own().fit(TEXTS)
        check_contents(reachable(own))
        own.vocabulary_["w1"] = 10**9
        with pytest.raises(ArtifactError, match="columns that do not exist"):
            check_contents(reachable(own))

    def test_a_tree_of_another_kind_is_nobodys_business(self):
        class Own(BaseEstimator):
            def __init__(self, memory=None):
                self.memory = memory

        own = Own(memory=5)
        own.tree_ = {"root": None}
        check_contents(reachable(own))

    def test_kernel_machines_of_every_kind_have_to_be_trusted(self, tmp_path):
        ice, _ = fitted(LinearSVC())
        ice.note = SVR().fit(X, y)
        save(ice, tmp_path / "x")
        assert open_artifact(tmp_path / "x").types_to_trust() == ["sklearn.svm._classes.SVR"]

    def test_a_matrix_that_is_no_file(self, tmp_path):
        ice, _ = fitted(LinearSVC())
        save(ice, tmp_path / "x")
        skops = members_of((tmp_path / "x").read_bytes())["rejector.skops"]
        schema = schema_of(skops)
        schema["content"]["content"]["measure"] = {
            "__class__": "csr_matrix",
            "__module__": "scipy.sparse._csr",
            "__loader__": "ObjectNode",
        }
        crafted = with_members(
            (tmp_path / "x").read_bytes(), **{"rejector.skops": with_schema(skops, schema)}
        )
        (tmp_path / "x").write_bytes(crafted)
        with pytest.raises(ArtifactError, match="from other values than its file"):
            load(tmp_path / "x")


def test_everything_is_reached():
    hidden = sp.eye(2).tocsr()
    box = np.empty((2, 1), dtype=object)
    box[0, 0] = {"a": [(LinearSVC(),)]}
    box[0, 0]["a"][0][0].coef_ = hidden
    assert any(thing is hidden for thing in reachable({"box": box}))
    assert any(thing is hidden for thing in reachable({(1, 2): frozenset({3}), "x": [{"y": hidden}]}))
