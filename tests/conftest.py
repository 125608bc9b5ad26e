from contextlib import contextmanager

import pytest
from hypothesis import settings

# A busy machine is no defect of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@contextmanager
def dask_workers():
    """Dask, with two worker processes that are started again when they die."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    """A cluster that the tests of a module share: a scheduler in a busy process forgets idle workers."""
    with dask_workers() as client:
        yield client


@pytest.fixture
def doomed_client():
    """One of its own for a test that kills it: workers that die as they start are not started again."""
    with dask_workers() as client:
        yield client
