"""What a TOML file may say, and the line and way out when it says something else."""

import pytest
from sklearn.pipeline import Pipeline

from transcendent import ExactSearch, RandomSearch
from transcendent.errors import SettingsError
from transcendent.experiments import read, toml
from transcendent.experiments.building import build_detector, build_rejectors
from transcendent.experiments.toml import TomlTable, line_of
from transcendent.metrics import F1, Recall, RejectionRate

DETECTOR = '[detector]\nclass = "sklearn.svm.LinearSVC"\nC = 0.1\n'


@pytest.fixture
def settings(tmp_path):
    def write(text):
        path = tmp_path / "experiment.toml"
        path.write_text(text)
        return TomlTable.read(path)

    return write


class TestLines:
    TEXT = """seed = 1

[split]
train = "2013"
class_ratio = { 1 = 0.1 }

[rejectors.ICE]
measure.class = "Margin"
  [rejectors."my CCE"]  # comment
  cv = 5
[[steps]]
"""

    @pytest.mark.parametrize(
        ("keys", "line"),
        [
            (("seed",), 1),
            (("split",), 3),
            (("split", "train"), 4),
            (("split", "class_ratio", "1"), 5),
            (("rejectors", "ICE", "measure", "class"), 8),
            (("rejectors", "my CCE", "cv"), 10),
            (("rejectors", "my CCE", "absent"), 9),
            (("steps",), 11),
            (("nothing",), None),
        ],
    )
    def test_the_line_of_a_key_or_of_the_table_around_it(self, keys, line):
        assert line_of(self.TEXT, keys) == line

    def test_lines_inside_lists_and_texts_are_no_tables(self):
        text = 'a = [\n[1, 2],\n]\nb = """\n[c]\n"""\n[c]\nd = "[" # [\ne = 1\n'
        assert line_of(text, ("c", "e")) == 9
        assert line_of(text, ("c",)) == 7

    def test_brackets_in_texts_and_comments_mean_nothing(self):
        text = 'x = """"]["""" # ]\ny = \'\'\'\n[b]\n\'\'\'\nz = ["\\"]", \'[\', # ]\n]\n'
        text += "[b]\nc = { d = [1,\n2] }\ne = 1\n"
        assert line_of(text, ("b",)) == 7
        assert line_of(text, ("b", "c", "d")) == 8
        assert line_of(text, ("b", "e")) == 10

    def test_long_lists_of_texts_with_brackets_are_read_once(self, monkeypatch):
        parsed = []
        monkeypatch.setattr(toml.tomllib, "loads", lambda text: parsed.append(text) or {})
        line_of("a = [\n" + '  "]",\n' * 1000 + "]\nb = 1\n", ("b",))
        assert len(parsed) == 2

    def test_of_tables_in_a_list_the_one_meant(self):
        text = "[[steps]]\na = 1\n[[steps]]\na = 2\nb = 3\n[other]\nb = 4\n"
        assert [line_of(text, ("steps", "a"), i) for i in (0, 1)] == [2, 4]
        assert line_of(text, ("steps", "b"), 1) == 5
        assert line_of(text, ("other", "b")) == 7
        assert line_of("[[steps]]\na = 1\n[[steps]]\nb = 2\n", ("steps", "a"), 1) == 3

    def test_keys_with_quotes_and_dots(self):
        assert line_of('a.b = 1\n"c.\\"d" . e = 2\n', ('c."d', "e")) == 2


class TestWhatCanBeSaid:
    def test_a_detector(self, settings):
        svm = build_detector(settings(DETECTOR))
        assert repr(svm) == "LinearSVC(C=0.1)"

    def test_a_pipeline(self, settings):
        text = """[detector]
steps = [
  { class = "sklearn.feature_extraction.text.TfidfVectorizer", ngram_range = [1, 2], stop_words = ["the"] },
  { class = "sklearn.ensemble.BaggingClassifier", estimator = { class = "sklearn.svm.LinearSVC", C = 2.0 } },
]
"""
        pipeline = build_detector(settings(text))
        assert isinstance(pipeline, Pipeline)
        assert pipeline.steps[0][1].ngram_range == (1, 2)
        assert pipeline.steps[0][1].stop_words == ["the"]
        assert pipeline.steps[1][1].estimator.C == 2.0

    def test_named_estimators_in_a_list(self, settings):
        text = """[detector]
class = "sklearn.ensemble.VotingClassifier"
weights = [1, 2]
estimators = [
  ["svm", { class = "sklearn.svm.LinearSVC", C = 2.0 }],
  ["bayes", { class = "sklearn.naive_bayes.GaussianNB" }],
]
"""
        made = build_detector(settings(text))
        expected = (
            "VotingClassifier(estimators=[('svm',LinearSVC(C=2.0)),('bayes',GaussianNB())],weights=[1,2])"
        )
        assert repr(made).replace("\n", "").replace(" ", "") == expected
        with pytest.raises(SettingsError, match=r"line 4: .*did you mean 'GaussianNB'"):
            build_detector(settings(text.replace("GaussianNB", "GausianNB")))

    @pytest.mark.parametrize(
        "path",
        ["lightgbm.LGBMClassifier", "xgboost.XGBClassifier", "sklearn.ensemble.RandomForestClassifier"],
    )
    def test_detectors_of_other_libraries(self, settings, path):
        made = build_detector(settings(f'[detector]\nclass = "{path}"\nn_estimators = 5\n'))
        assert type(made).__name__ == path.split(".")[-1]
        assert made.n_estimators == 5

    def test_every_type_of_rejector(self, settings):
        names = ["ICE", "CCE", "approx-TCE", "TCE", "probability", "CP-Reject", "DroidEvolver"]
        text = DETECTOR + "".join(f"[rejectors.{name}]\n" for name in names)
        rejectors = build_rejectors(settings(text))
        assert list(rejectors) == names
        assert rejectors["TCE"].cv == "loo"
        assert rejectors["approx-TCE"].cv == 10

    def test_without_rejectors_an_inductive_evaluator(self, settings):
        assert (
            repr(build_rejectors(settings(DETECTOR))["ICE"])
            == "InductiveEvaluator(estimator=LinearSVC(C=0.1))"
        )

    def test_measures_searches_judges_and_detectors_of_their_own(self, settings):
        text = (
            DETECTOR
            + """
[rejectors.near]
type = "ICE"
measure = { class = "NeighbourRatio", n_neighbors = 3 }
search = { objective = "accuracy", max_rejection = 0.1, constraints = ["recall >= 0.9", "f1>=80%"] }
[rejectors.margin]
type = "CCE"
measure = "Margin"
search.class = "RandomSearch"
search.trials = 10
[rejectors.judged]
type = "probability"
judge = { class = "sklearn.ensemble.RandomForestClassifier" }
[rejectors.other]
type = "ICE"
detector = { class = "sklearn.naive_bayes.GaussianNB" }
"""
        )
        made = build_rejectors(settings(text))
        assert made["near"].measure.n_neighbors == 3
        assert isinstance(made["near"].search, ExactSearch)
        assert made["near"].search.constraints == (Recall() >= 0.9, F1() >= 0.8)
        assert isinstance(made["margin"].search, RandomSearch)
        assert repr(made["judged"].judge) == "RandomForestClassifier()"
        assert repr(made["other"].estimator) == "GaussianNB()"

    def test_words_stand_for_what_they_do_in_python(self, settings):
        text = """
[rejectors.ICE]
measure = "neighbour_ratio"
search = "recall"
[rejectors.CCE]
search = { constraints = "rejection_rate <= 10%" }
"""
        made = build_rejectors(settings(DETECTOR + text))
        assert repr(made["ICE"].measure) == "NeighbourRatio()"
        assert made["ICE"].search == "recall"
        assert made["CCE"].search.constraints == (RejectionRate() <= 0.1,)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[detector\n", 1, "not valid TOML"),
        ("[detektor]\n", 1, "did you mean 'detector'?"),
        ("seed = 1\n", None, "there is no [detector]"),
        ('[detector]\nclass = "LinearSVC"\n', 2, "must be the full name"),
        ('[detector]\nclass = "os.system"\n', 2, "a class of sklearn"),
        ('[detector]\nclass = "sklearn.svm.LinearSCV"\n', 2, "did you mean 'LinearSVC'?"),
        ('[detector]\nclass = "sklearn.swm.LinearSVC"\n', 2, "No module named"),
        ('[detector]\nclass = "sklearn.utils.resample"\n', 2, "not a detector"),
        ("[detector]\nclass = 5\n", 2, "must be text"),
        ("[detector]\nC = 1\n", 1, "lacks class"),
        ('[detector]\nclass = "sklearn.svm.LinearSVC"\nc = 1\n', 3, "no parameter 'c'; did you mean 'C'?"),
        ('[detector]\nclass = "sklearn.svm.LinearSVC"\nC = -1.0\n', 3, "must be a float in the range"),
        ("[detector]\nsteps = [5]\n", 2, "list of tables"),
        (DETECTOR + "[rejectors.ICF]\n", 4, "did you mean 'ICE'?"),
        (DETECTOR + '[rejectors.a]\ntype = "B"\n', 5, "there is no type 'B'"),
        (DETECTOR + "[rejectors.ICE]\nmeasur = 1\n", 5, "did you mean 'measure'?"),
        (DETECTOR + '[rejectors.ICE]\nmeasure = "Margins"\n', 5, "did you mean 'Margin'?"),
        (DETECTOR + '[rejectors.ICE]\nmeasure = { class = "Margin", k = 1 }\n', 5, "no parameter 'k'"),
        (DETECTOR + '[rejectors.ICE]\nsearch = "best"\n', 5, "no search 'best'; choose from accuracy"),
        (DETECTOR + '[rejectors.ICE]\nsearch = "F1"\n', 5, "did you mean 'f1'?"),
        (DETECTOR + "[rejectors.ICE]\nsearch = 5\n", 5, "must be a table"),
        (DETECTOR + '[rejectors.ICE]\nmeasure = "margn"\n', 5, "did you mean 'margin'?"),
        (DETECTOR + '[rejectors.ICE]\nmeasure = "second_opinion"\n', 4, "'estimator'"),
        (DETECTOR + '[rejectors.ICE.search]\nclass = "Exact"\n', 5, "did you mean 'ExactSearch'?"),
        (DETECTOR + '[rejectors.ICE.search]\nobjective = "recal"\n', 5, "did you mean 'recall'?"),
        (DETECTOR + '[rejectors.ICE.search]\nconstraints = ["recal >= 1"]\n', 5, "no metric 'recal'"),
        (DETECTOR + "[rejectors]\nICE = 3\n", 5, "must be a table"),
        ('[detector]\nclass = "sklearn.preprocessing.MinMaxScaler"\n', 2, "MinMaxScaler is not a classifier"),
        ('[detector]\nclass = "sklearn.linear_model.Ridge"\n', 2, "Ridge is not a classifier"),
        ('[detector]\nsteps = [{ class = "sklearn.linear_model.Ridge" }]\n', 2, "Ridge is not a classifier"),
        ('[detector]\nclass = "xgboost.spark.SparkXGBClassifier"\n', 2, "cannot be imported: pyspark"),
        ('[detector]\nclass = "lightgbm.LGBMClassifier"\nn_estimators = "many"\n', 3, "a whole number, not"),
        (DETECTOR + '[rejectors.ICE]\ncalibration_size = "x"\n', 5, "calibration_size must be a number, not"),
        (DETECTOR + '[rejectors.ICE]\nn_jobs = "x"\n', 5, "n_jobs must be a whole number, not 'x'"),
        (
            DETECTOR + '[rejectors.ICE]\nmeasure = { class = "NeighbourRatio", n_neighbors = "x" }\n',
            5,
            "whole",
        ),
        ("seed = -1\n" + DETECTOR, 1, "seed must be from 0 to 4294967295"),
        ("seed = 4294967296\n" + DETECTOR, 1, "seed must be from 0 to 4294967295"),
        ("a = " + "[" * 3000 + "]" * 3000, None, "nested too deeply"),
    ],
)
def test_errors_name_the_line_and_the_way_out(tmp_path, text, line, said):
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read(tmp_path / "experiment.toml")
    assert said in str(caught.value)
    place = f"line {line}" if line else str(tmp_path / "experiment.toml")
    assert place in str(caught.value)


DATA = '[data]\nfile = "objects.csv"\nlabel = "y"\ntime = "seen"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (DATA.replace("objects.csv", "object.csv") + DETECTOR, 2, "there is no file"),
        (DATA.replace('"y"', '"z"') + DETECTOR, 3, "no column 'z'"),
        (DATA.replace('"seen"', '"sen"') + DETECTOR, 4, "did you mean 'seen'?"),
        (DATA + 'features = ["a", "c"]\n' + DETECTOR, 5, "no column 'c'"),
        (DATA.replace('label = "y"\n', "") + DETECTOR, 1, "[data] lacks label"),
        (DATA.replace('time = "seen"\n', "") + DETECTOR, 1, "[data] lacks time"),
        (DATA + "features = [1]\n" + DETECTOR, 5, "list of names"),
        (DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "July"\n', 10, "'July' is not a date"),
        (DATA + 'features = ["a", "y"]\n' + DETECTOR, 5, "'y' holds the labels"),
        (DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2020"\n', 10, "no rows to train on"),
        (DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2030"\n', 10, "no rows to test on"),
        (
            DATA + 'features = ["a"]\n' + DETECTOR + '[split]\nperiod = "none"\ntrain = 5\n',
            11,
            "5 does not compare with the times",
        ),
        (
            DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2024-02"\nperiod = "months"\n',
            11,
            "did you mean 'month'?",
        ),
        (DATA.replace("label =", "lable =") + DETECTOR, 3, "did you mean 'label'?"),
        (DATA + "folders = 1\n" + DETECTOR, 5, "did you mean 'folder'?"),
        ('[data]\ndataset = "apigraf"\n' + DETECTOR, 2, "did you mean 'apigraph'?"),
        ('[data]\ndataset = "lamda"\ndeduplicate = true\n' + DETECTOR, 3, "for apigraph only"),
        (DATA + 'features = ["a"]\n' + DETECTOR + '[split]\nperiod = "month"\n', 9, "lacks train"),
        (DATA + 'features = ["a"]\n' + DETECTOR + "[split]\ntrain = [1]\n", 10, "a list of the window"),
        (
            DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2024-02"\npos_label = "bad"\n',
            11,
            "no row has the label",
        ),
        (
            DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2024-02"\n[retrain]\nevery = 1\n',
            11,
            "lacks labels",
        ),
        (
            DATA + 'features = ["a"]\n' + DETECTOR + '[split]\ntrain = "2024-02"\n[retrain]\nlabels = 0\n',
            11,
            "at least 1",
        ),
    ],
)
def test_errors_about_data_and_split(tmp_path, text, line, said):
    (tmp_path / "objects.csv").write_text("a,b,y,seen\n1,x,0,2024-01-01\n2,y,1,2024-02-01\n")
    text += "" if "[split]" in text else '[split]\ntrain = "2024-02"\n'
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read(tmp_path / "experiment.toml").backtest()
    assert said in str(caught.value)
    assert f"line {line}:" in str(caught.value)


class TestCombinedMeasuresAndBudgets:
    def rejector(self, settings, text):
        return build_rejectors(settings(f"{DETECTOR}\n[rejectors.ICE]\n{text}"))["ICE"]

    def test_the_preset_by_its_name(self, settings):
        for name in ("drift", "drift_measure"):
            assert len(self.rejector(settings, f'measure = "{name}"').measure.measures) == 4
        given = self.rejector(settings, 'measure = { class = "drift_measure", random_state = 3 }')
        assert given.measure.random_state == 3

    def test_measures_in_a_list(self, settings):
        text = """
[rejectors.ICE.measure]
class = "CombinedMeasure"
weights = [1, 2, 0.5]
measures = [
  "auto",
  { class = "NeighbourRatio", metric = "cosine" },
  { class = "SecondOpinion", estimator = { class = "sklearn.naive_bayes.GaussianNB" } },
]
"""
        measure = self.rejector(settings, text).measure
        assert repr(measure).replace("\n", "").replace(" ", "") == (
            "CombinedMeasure(measures=['auto',NeighbourRatio(metric='cosine'),"
            "SecondOpinion(estimator=GaussianNB())],weights=[1,2,0.5])"
        )

    def test_a_wrong_measure_in_a_list_is_named_with_its_line(self, settings):
        text = 'measure = { class = "CombinedMeasure", measures = ["Margn"] }'
        with pytest.raises(SettingsError, match="line 6: there is no measure 'Margn'; did you mean 'Margin'"):
            self.rejector(settings, text)

    @pytest.mark.parametrize(("budget", "expected"), [("0.15", (0.15, None)), ("80", (None, 80))])
    def test_a_budget(self, settings, budget, expected):
        held = self.rejector(settings, f"budget = {budget}")
        assert (held.rate, held.count) == expected

    @pytest.mark.parametrize("budget", ["1.5", "0", "-3", '"15%"', "true", "{ rate = 0.1 }"])
    def test_a_budget_that_is_none(self, settings, budget):
        with pytest.raises(SettingsError, match=r"line 6: budget must be a share .* or a whole number"):
            self.rejector(settings, f"budget = {budget}")


def test_what_a_booster_says_of_its_parameters_is_named_with_its_line(tmp_path):
    rows = "".join(f"{i % 7},{i % 2},2024-01-{i % 28 + 1:02}\n" for i in range(60))
    (tmp_path / "objects.csv").write_text(f"a,y,seen\n{rows}")
    text = DATA + '[detector]\nclass = "xgboost.XGBClassifier"\nn_estimators = "many"\n'
    (tmp_path / "experiment.toml").write_text(text)
    with pytest.raises(
        SettingsError, match="line 6: a detector cannot be fitted, perhaps for a parameter: 'str'"
    ):
        read(tmp_path / "experiment.toml").fit()
