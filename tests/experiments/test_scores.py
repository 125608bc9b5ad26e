"""Experiments about a detector that is known by its scores only."""

import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest

from transcendent import Answers, RejectionBudget, ScoreEvaluator, StreamingBudget, backtest, experiments
from transcendent.errors import ArgumentError, SettingsError
from transcendent.experiments.building import build_rejectors
from transcendent.experiments.toml import TomlTable

N = 1200
RNG = np.random.default_rng(0)
TRUTH = (RNG.random(N) < 0.4).astype(int)
SCORE = 2 * TRUTH - 1 + RNG.normal(size=N) * np.linspace(0.6, 1.3, N)
DAY = (np.datetime64("2024-01-01") + np.arange(N) // 4).astype(str)
PROBABILITY = 1 / (1 + np.exp(-SCORE))
NAMES = np.where(TRUTH == 1, "malware", "benign")
SAID = np.where(SCORE > 0, "malware", "benign")
FRAME = pd.DataFrame({"day": DAY, "score": SCORE, "label": TRUTH})
TOML = """
[data]
file = "answers.csv"
label = "label"
time = "day"
[split]
train = "2024-05"
[detector]
scores = ["score"]
[rejectors.ICE]
[rejectors.held]
type = "ICE"
budget = 0.15
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("answers.csv", index=False)
    return tmp_path


def read(text, name="answers.toml"):
    with open(name, "w") as file:
        file.write(text)
    return experiments.read(name)


def answers(scores=SCORE, boundary=0.0):
    return Answers((scores > boundary).astype(int), np.column_stack([scores, -scores]))


class TestTheSameAsInPython:
    def test_a_backtest(self, here):
        mine = backtest(
            {"ICE": ScoreEvaluator(), "held": RejectionBudget(ScoreEvaluator(), rate=0.15)},
            *(answers(), TRUTH, DAY),
            train="2024-05",
        )
        theirs = read(TOML).backtest()
        for key, column in mine.summary().items():
            np.testing.assert_array_equal(theirs.summary()[key], column)

    def test_a_fit_and_its_notes(self, here):
        fitted = read(TOML).fit("ICE")
        before = DAY < "2024-05"
        judge = ScoreEvaluator().fit(answers()[before], TRUTH[before])
        np.testing.assert_array_equal(fitted.rejector.thresholds_, judge.thresholds_)
        scores = {"scores": ("score",), "classes": (0, 1), "answer": 0.0, "of_answer": False}
        assert fitted.notes == {"scores": scores, "train": "2024-05"}

    def test_probabilities_of_one_class_of_each_and_of_the_answer_agree(self, here):
        frame = pd.DataFrame({"day": DAY, "label": NAMES, "p": PROBABILITY, "said": SAID})
        frame.assign(
            benign=1 - PROBABILITY, malware=PROBABILITY, sure=np.maximum(PROBABILITY, 1 - PROBABILITY)
        ).to_csv("answers.csv", index=False)
        forms = (
            'scores = ["p"]',
            'scores = ["p"]\nanswer = "said"',
            'scores = ["p"]\nanswer = 0.5',
            'scores = ["benign", "malware"]',
            'scores = ["malware", "benign"]\nclasses = ["malware", "benign"]',
            'scores = ["sure"]\nanswer = "said"\nscore_of = "answer"',
        )
        found = [read(TOML.replace('scores = ["score"]', form)).backtest().summary() for form in forms]
        for other in found[1:]:
            for key, column in found[0].items():
                np.testing.assert_array_equal(other[key], column)

    def test_what_the_data_command_says(self, here):
        found = read(TOML).check()
        assert (found["objects"], found["problems"], found["biases"]) == (N, [], [])


class TestWhatIsLeftOut:
    def test_only_as_the_file_says(self, here):
        frame = FRAME.astype(object)
        frame.loc[[3, 7], "score"] = [None, "n/a"]
        frame.loc[[4, 700], "label"] = ["unknown", "?"]
        frame.loc[[5, 6, 800], "day"] = ["2024-13", "31/12/2024", "2099-01-01"]
        frame.to_csv("answers.csv", index=False)
        with pytest.raises(SettingsError, match="one column of scores is for two classes, and there are 4"):
            read(TOML).backtest()
        words = TOML.replace("[split]", 'missing_labels = ["unknown", "?"]\n[split]')
        with pytest.raises(ValueError, match="cannot be fitted as it is") as refused:
            read(words).backtest()
        for line in (
            '2 of 1,200 rows have no label, the first is line 6\n         → unlabelled = "drop"',
            "3 of 1,200 rows have no date, the first is line 7: '2024-13', '31/12/2024', '2099-01-01'",
            '2 of 1,200 rows have no score or no answer, the first is line 5\n         → unanswered = "drop"',
        ):
            assert line in str(refused.value)
        every = 'unlabelled = "drop"\nundated = "drop"\nunanswered = "drop"\n[split]'
        causes = r"2 \(no label\), 3 \(no date\), 2 \(no score or answer\)"
        with pytest.warns(UserWarning, match=f"left out 7 of 1,200 rows: {causes}"):
            result = read(words.replace("[split]", every)).backtest()
        left = np.delete(np.arange(N), [3, 4, 5, 6, 7, 700, 800])
        assert sorted(result.rows) == [row for row in left if DAY[row] >= "2024-05"]

    def test_labels_without_a_score_are_errors_of_the_detector_once_it_is_calibrated(self, here):
        odd = np.where(np.isin(np.arange(N), [9, 1100]), "odd", NAMES)
        FRAME.assign(label=odd).to_csv("answers.csv", index=False)
        text = TOML.replace("[rejectors.ICE]", 'classes = ["benign", "malware"]\n[rejectors.ICE]')
        with pytest.raises(SettingsError, match=r"label 'odd' of training rows: missing_labels = \[.odd.\]"):
            read(text).backtest()
        FRAME.assign(label=np.where(np.arange(N) == 9, "benign", odd)).to_csv("answers.csv", index=False)
        result = read(text).backtest()
        assert result.manifest["new_classes"] == ["odd"]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('scores = ["score"]', "scores = []", 9, "a list of different columns"),
        ('scores = ["score"]', 'scores = ["scor"]', 9, "did you mean 'score'?"),
        (
            'scores = ["score"]',
            'scores = ["score"]\nclass = "sklearn.svm.LinearSVC"',
            10,
            "class fits a detector",
        ),
        ('scores = ["score"]', 'scores = ["score"]\nanswers = "label"', 10, "did you mean 'answer'?"),
        ('scores = ["score"]', 'scores = ["score"]\nscore_of = "answer"', 8, "needs the column with answers"),
        ('scores = ["score"]', 'scores = ["score", "label"]\nanswer = 0.5', 10, "a single column of scores"),
        ('scores = ["score"]', 'scores = ["score"]\nclasses = [1]', 10, "at least two"),
        ('scores = ["score"]', 'scores = ["score"]\nclasses = [0, 1, 2]', 9, "name a column per class"),
        (
            'scores = ["score"]',
            'scores = ["score", "day"]\nclasses = [0, 1, 2]',
            9,
            "2 columns of scores for 3",
        ),
        ('scores = ["score"]', 'scores = ["score", "label"]', 9, "'label' holds the labels"),
        ('scores = ["score"]', 'scores = ["score"]\nanswer = "day"', 10, "are not among the labels 0, 1"),
        ('"2024-05"', '"2024-05"\nchronological = true', 8, "nothing trains"),
        ("[rejectors.ICE]", "[retrain]\nlabels = 5\n[rejectors.ICE]", 10, "nothing trains"),
        ("[rejectors.ICE]", "[rejectors.CCE]", 10, "CCE needs features"),
        ("[rejectors.ICE]", '[rejectors.ICE]\nmeasure = "drift"', 11, "measure needs features"),
        ('time = "day"', 'time = "day"\nfeatures = ["score"]', 6, "features is for detectors with features"),
        ("budget = 0.15", "budget = 80\nwindow = 100", 14, "a budget that is a share"),
    ],
)
def test_errors_name_the_line_and_the_way_out(here, old, new, line, said):
    with pytest.raises(SettingsError) as caught:
        read(TOML.replace(old, new)).backtest()
    assert said in str(caught.value)
    assert f"line {line}:" in str(caught.value)


def test_scores_against_the_answers_are_refused_with_both_ways_out(here):
    frame = pd.DataFrame({"day": DAY, "label": NAMES, "score": -SCORE, "said": SAID})
    frame.to_csv("answers.csv", index=False)
    text = TOML.replace('scores = ["score"]', 'scores = ["score"]\nanswer = "said"')
    with pytest.raises(SettingsError, match=r'classes = \["malware", "benign"\].*score_of = "answer"'):
        read(text).backtest()
    turned = text.replace("[rejectors.ICE]", 'classes = ["malware", "benign"]\n[rejectors.ICE]')
    assert read(turned).backtest().summary()["errors_caught"][1] > 0.3


def test_training_without_a_class_is_refused(here):
    FRAME.assign(label=np.where(DAY < "2024-05", 0, TRUTH)).to_csv("answers.csv", index=False)
    for run in (lambda: read(TOML).backtest(), lambda: read(TOML).fit("ICE")):
        with pytest.raises(SettingsError, match=r"line 9: no training row has the label 1.* a later train"):
            run()


def test_scores_leave_nothing_to_learn(here):
    FRAME[-50:].to_csv("labelled.csv", index=False)
    experiment = read(TOML)
    with pytest.raises(ValueError, match=r"nothing to learn: there are no models.*fit with a later train"):
        experiment.learn(experiment.fit("ICE").rejector, "labelled.csv")


def test_a_budget_of_a_stream(tmp_path):
    text = '[detector]\nscores = ["s"]\n[rejectors.ICE]\nbudget = 0.15\nwindow = 500\n'
    made = build_rejectors(TomlTable(tmp_path / "x.toml", text, tomllib.loads(text)), of_scores=True)["ICE"]
    assert isinstance(made, StreamingBudget)
    assert (made.rate, made.window) == (0.15, 500)


class TestProposals:
    """The roles of columns, guessed from names and values."""

    def propose(self, frame, **given):
        frame.to_csv("table.csv", index=False)
        text = experiments.propose_answers("table.csv", **given).text
        return tomllib.loads(text)

    def detector(self, frame, **given):
        return self.propose(frame.assign(day=DAY), **given)["detector"]

    def test_one_probability(self, here):
        found = self.detector(pd.DataFrame({"label": NAMES, "probability": PROBABILITY}))
        assert found == {"scores": ["probability"], "answer": 0.5, "classes": ["benign", "malware"]}

    def test_the_class_that_scores_are_high_for_is_the_second_and_the_positive_one(self, here):
        frame = pd.DataFrame({"score": SCORE, "truth": np.where(TRUTH == 1, "bad", "good"), "day": DAY})
        found = self.propose(frame)
        assert found["detector"] == {"scores": ["score"], "answer": 0.0, "classes": ["good", "bad"]}
        assert found["split"]["pos_label"] == "bad"

    def test_a_column_per_class_by_its_name(self, here):
        frame = pd.DataFrame({"p_malware": PROBABILITY, "p_benign": 1 - PROBABILITY, "truth": NAMES})
        assert self.detector(frame) == {"scores": ["p_benign", "p_malware"], "classes": ["benign", "malware"]}
        given = self.detector(frame, scores=["p_malware", "p_benign"])
        assert given == {"scores": ["p_malware", "p_benign"], "classes": ["malware", "benign"]}

    def test_features_are_not_scores_of_numbered_classes(self, here):
        frame = pd.DataFrame({"f_0": SCORE, "f_1": SCORE, "score": SCORE, "truth": TRUTH})
        assert self.detector(frame)["scores"] == ["score"]
        frame = pd.DataFrame({"p_0": -SCORE, "p_1": SCORE, "score": SCORE, "truth": TRUTH})
        assert self.detector(frame) == {"scores": ["p_0", "p_1"], "classes": [0, 1]}

    def test_a_class_that_no_score_is_for(self, here):
        frame = pd.DataFrame({"benign": -SCORE, "malware": SCORE})
        later = np.where(np.arange(N) > 1100, "worm", NAMES)
        assert self.detector(frame.assign(truth=later))["classes"] == ["benign", "malware"]
        with pytest.raises(ArgumentError, match=r"truth: .* of 1 answer before 2024-05, such as 'worm'"):
            self.detector(frame.assign(truth=np.where(np.arange(N) == 5, "worm", NAMES)))

    def test_how_sure_it_is_of_its_answer(self, here):
        sure = np.maximum(PROBABILITY, 1 - PROBABILITY)
        found = self.detector(pd.DataFrame({"prediction": SAID, "confidence": sure, "truth": NAMES}))
        assert found["score_of"] == found["answer"].replace("prediction", "answer") == "answer"

    def test_answers_that_are_numbers_or_booleans(self, here):
        frame = pd.DataFrame({"score": SCORE, "detected": SCORE > 0, "truth": TRUTH})
        assert self.detector(frame) == {"scores": ["score"], "answer": "detected", "classes": [0, 1]}

    def test_labels_and_dates_are_read_as_they_are_meant(self, here):
        said = np.where(np.arange(N) % 10 == 0, "Unknown", TRUTH.astype(str))
        days = [day if i % 2 else f"{day[8:]}/{day[5:7]}/{day[:4]}" for i, day in enumerate(DAY)]
        found = self.propose(pd.DataFrame({"day": days, "score": SCORE, "truth": said}))
        data = found["data"]
        assert (data["time_format"], data["missing_labels"]) == ("%d/%m/%Y", ["Unknown"])
        assert (found["split"]["train"], found["detector"]["classes"]) == ("2024-05", [0, 1])

    def test_months_as_numbers_are_periods(self, here):
        month = [int(day[:4] + day[5:7]) for day in DAY]
        found = self.propose(pd.DataFrame({"month": month, "score": SCORE, "truth": TRUTH}))
        assert (found["split"]["train"], found["split"]["period"]) == (202405, "none")

    def test_the_first_part_has_every_class(self, here):
        truth = np.where(np.arange(N) < 700, 0, TRUTH)
        found = self.propose(pd.DataFrame({"day": DAY, "score": SCORE, "truth": truth}))
        assert found["split"]["train"] == "2024-07"

    def test_small_periods_are_one_stream(self, here):
        days = [*DAY[:-2], "2025-05-01", "2025-06-01"]
        found = self.propose(pd.DataFrame({"day": days, "score": SCORE, "truth": TRUTH}))
        assert found["rejectors"]["budget"]["window"] == 1000

    @pytest.mark.parametrize(
        ("columns", "given", "said"),
        [
            ({"risk": 100 * PROBABILITY}, {}, "answer: .* above which one is the answer 1"),
            (
                {"score": SCORE, "p": PROBABILITY, "prob": PROBABILITY},
                {},
                "scores: which columns .*: score, prob?",
            ),
            ({"a": NAMES, "score": SCORE}, {"answer": "a"}, "answer: 'a' holds .*: write both alike, or"),
            ({"score": SCORE}, {"scores": ["scor"]}, "scores: .*did you mean 'score'"),
            ({"score": NAMES}, {"scores": ["score"]}, "scores: 'score' holds no numbers"),
            ({"score": SCORE, "label": 3}, {"truth": "label"}, "truth: all true labels in 'label' are 3"),
            ({"score": SCORE, "label": None}, {"truth": "label"}, "truth: no row has a true label"),
            ({"score": SCORE, "day": "2024-01-01"}, {}, "time: all answers are from 2024-01-01"),
            ({"score": SCORE, "day": "soon"}, {}, "time: in 'day' 1,200 of 1,200 rows have no date .*'soon'"),
            ({"score": SCORE, "day": "03/04/2024"}, {}, "time: .*day or month comes first is unclear"),
            ({"score": SCORE, "day": np.arange(N)}, {}, "time: .* write dates such as"),
            (
                {"score": SCORE, "truth": TRUTH * (np.arange(N) >= 1196)},
                {},
                "truth: too few answers before 2024-10 have the true label 1: leave",
            ),
            (
                {"a": SCORE, "b": SCORE, "c": SCORE},
                {"scores": ["a", "b", "c"]},
                "scores: 3 columns for 2 classes",
            ),
        ],
    )
    def test_what_is_unclear_is_asked_by_the_name_of_the_option(self, here, columns, given, said):
        with pytest.raises(ArgumentError, match=f"^{said}"):
            self.propose(pd.DataFrame({"day": DAY, "truth": TRUTH} | columns), **given)

    def test_a_table_without_labels_or_times(self, here):
        for absent, said in (("truth", "truth: which column"), ("day", "time: which column")):
            frame = pd.DataFrame({"day": DAY, "truth": TRUTH, "score": SCORE}).drop(columns=absent)
            with pytest.raises(ArgumentError, match=said):
                self.propose(frame)

    def test_what_is_promised_holds_in_the_experiment(self, here):
        found = self.propose(pd.DataFrame({"day": DAY, "truth": TRUTH, "score": 3 * SCORE}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = read(experiments.propose_answers("table.csv").text).fit("promise").rejector
        assert fitted.result_.error == found["rejectors"]["promise"]["search"]["error"]
        assert fitted.result_.rejection_rate <= 0.5
