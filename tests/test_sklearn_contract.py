import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator
from transcendent.baselines import CPReject, ProbabilityThresholds

# The checks fit on a few dozen rows, where coarse p-values are the truth and not the subject.
pytestmark = pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")


@pytest.mark.slow
@parametrize_with_checks(
    [
        InductiveEvaluator(LogisticRegression()),
        InductiveEvaluator(LinearSVC(), p_value="plus_one"),
        CrossConformalEvaluator(LogisticRegression(), cv=2),
        TransductiveEvaluator(LogisticRegression(), cv=3),
        TransductiveEvaluator(LogisticRegression(), cv="loo"),
        ProbabilityThresholds(LogisticRegression()),
        ProbabilityThresholds(LinearSVC(), judge=LogisticRegression()),
        CPReject(LogisticRegression(), max_errors=5),
    ]
)
def test_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)
