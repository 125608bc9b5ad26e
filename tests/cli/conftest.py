import pickle
import warnings

import pytest

from transcendent.artifacts import sandbox


@pytest.fixture(scope="module")
def tried_here():
    """Try artifacts out in this process: to start another takes seconds, and tests of trials do."""

    def run(task, _):
        _, artifact, trusted, rows = pickle.loads(task)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sandbox._use(artifact, trusted, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_run", run)
        yield
