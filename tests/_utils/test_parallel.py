import operator
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import cloudpickle
import numpy as np
import pandas as pd
import psutil
import pytest
import scipy.sparse as sp
from joblib import cpu_count, parallel_config
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_info

from transcendent import CrossConformalEvaluator, TransductiveEvaluator
from transcendent._utils import parallel
from transcendent.datasets import make_stream
from transcendent.errors import WorkerDiedError, WorkerLostWarning
from transcendent.temporal import backtest

pytestmark = pytest.mark.slow

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(params=["loky", "dask"])
def engine(request):
    """Two worker processes, of joblib itself or of Dask."""
    if request.param == "loky":
        return lambda: parallel_config(backend="loky", n_jobs=2)
    client = request.getfixturevalue("client")
    return lambda: parallel_config(backend="dask", client=client)


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_results_come_in_order(n_jobs):
    tasks = ((x, x) for x in range(50))
    assert parallel.run(operator.mul, tasks, total=50, n_jobs=n_jobs) == [x * x for x in range(50)]


def test_fits_run_in_processes_and_shared_memory_in_threads():
    tasks = [()] * 8
    assert os.getpid() not in parallel.run(os.getpid, tasks, total=8, n_jobs=2)
    assert set(parallel.run(os.getpid, tasks, total=8, n_jobs=2, shared_memory=True)) == {os.getpid()}


def test_the_caller_chooses_the_backend():
    with parallel_config(backend="threading", n_jobs=2):
        assert set(parallel.run(os.getpid, [(), ()], total=2)) == {os.getpid()}


FORKSERVER = """
from joblib import parallel_config
from transcendent._utils import parallel
import operator

if __name__ == "__main__":
    with parallel_config(backend="multiprocessing", n_jobs=2):
        print(parallel.run(operator.add, [(1,), (2,)], shared=(10,), total=2))
"""


def test_workers_that_are_no_children_of_the_caller(tmp_path):
    (tmp_path / "script.py").write_text(FORKSERVER)
    environment = os.environ | {"JOBLIB_START_METHOD": "forkserver"}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, timeout=120
    )
    assert done.stdout == b"[11, 12]\n"


def test_a_backend_that_cannot_stream_works(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with parallel_config(backend="multiprocessing", n_jobs=2):
        assert parallel.run(operator.mul, [(2, 3)] * 3, total=3, verbose=True) == [6, 6, 6]


def test_progress_is_shown_to_someone_who_watches(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(parallel.progress, "DELAY", 0.1)
    parallel.run(time.sleep, [(0.1,)] * 4, total=4, label="fitting folds", verbose=True)
    shown = capsys.readouterr().err
    assert re.search(r"fitting folds: +50%\|.* 2/4 \[", shown)
    assert "fitting folds: 100%" in shown


def test_what_happens_once_says_nothing_about_the_time_left(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(parallel.progress, "DELAY", 0.0)
    started = time.time()
    with parallel.Progress("backtest", 100, verbose=True) as progress:
        with progress.pause():
            time.sleep(0.5)
        progress.skip(60)
        progress.show(80)
        said = progress._bar.format_dict
    assert said["elapsed"] <= time.time() - started - 0.5
    assert said["initial"] == 60


def test_work_of_unknown_length_is_shown_with_its_time(monkeypatch, capsys):
    with parallel.working("fitting", verbose=True):
        pass
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with parallel.working("fitting", verbose=True):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(parallel.progress, "DELAY", 0.1)
    shown, end = "", time.monotonic() + 30
    with parallel.working("fitting", verbose=True):
        while not re.search(r"fitting \[00:0[1-9]\]", shown) and time.monotonic() < end:
            time.sleep(0.1)
            shown += capsys.readouterr().err
    assert time.monotonic() < end
    with pytest.raises(KeyError), parallel.working("fitting", verbose=True):
        raise KeyError


def test_progress_can_be_silenced_and_stays_out_of_pipes_and_short_work(monkeypatch, capsys):
    tasks = [(0.01,)] * 3
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=True)
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=False)
    monkeypatch.setattr(parallel.progress, "DELAY", 0.0)
    monkeypatch.setattr(parallel.progress, "silenced", True)
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=True)
    assert capsys.readouterr().err == ""


def where(value, _):
    time.sleep(0.05)
    return os.getpid(), id(value)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((300, 1000)),
        sp.random_array((2000, 1000), density=0.1, format="csr"),
        pd.DataFrame(np.zeros((300, 1000))).assign(name="x"),
    ],
    ids=["array", "sparse", "frame"],
)
def test_what_is_shared_is_opened_once_in_each_process(value, engine):
    with engine():
        seen = parallel.run(where, [(i,) for i in range(24)], shared=(value,), total=24)
    assert os.getpid() not in dict(seen)
    assert len(set(seen)) == len(dict(seen)) <= 2


def test_on_dask_it_is_sent_to_each_worker_once(client):
    matrix = np.random.default_rng(0).normal(size=(1000, 1000))

    def sent():
        return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())

    client.amm.stop()  # every two seconds it drops copies that no task waits for yet, and they are sent again
    before = sent()
    with parallel_config(backend="dask", client=client):
        parallel.run(where, [(i,) for i in range(40)], shared=(matrix,), total=40)
    assert sent() - before < 1.5 * matrix.nbytes  # from one worker to the other, not for every task


def same(frame, column):
    return float(frame[column].sum()), frame.index.is_unique


def test_shared_values_arrive_as_they_are(engine):
    frame = pd.DataFrame({"a": np.arange(200_000.0), "b": ["x"] * 200_000})
    with engine():
        found = parallel.run(same, [("a",)] * 3, shared=(frame,), total=3)
    assert found == [(float(frame["a"].sum()), True)] * 3


def test_nothing_is_pickled_without_need():
    lock = threading.Lock()  # which cannot be
    assert parallel.run(where, [(0,)], shared=(lock,), total=1, n_jobs=1) == [(os.getpid(), id(lock))]


def die_once(flag, i):
    if i == 5 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return i


def test_tasks_of_a_killed_worker_are_done_again(engine, tmp_path):
    with engine(), pytest.warns(WorkerLostWarning, match=r"^1 worker was lost"):
        done = parallel.run(die_once, [(i,) for i in range(20)], shared=(tmp_path / "dead",), total=20)
    assert (tmp_path / "dead").exists()
    assert done == list(range(20))


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_die_again_and_again():
    with pytest.raises(WorkerDiedError, match="worker processes died, 3 times in a row"):
        parallel.run(die, [(i,) for i in range(4)], total=4, n_jobs=2)


@pytest.mark.full
def test_dask_workers_that_die_again_and_again(doomed_client, monkeypatch):
    monkeypatch.setattr(parallel.dask, "_TIMEOUT", 5)
    with (
        parallel_config(backend="dask", client=doomed_client),
        pytest.raises(WorkerDiedError, match=r"worker processes died|no live worker"),
    ):
        parallel.run(die, [(i,) for i in range(4)], total=4)


def fail(i):
    raise KeyError(f"task {i}")


def test_errors_of_tasks_are_raised(engine):
    with engine(), pytest.raises(KeyError, match="task"):
        parallel.run(fail, [(i,) for i in range(4)], total=4)


def nested(_):
    return set(parallel.run(where, [(None, i) for i in range(4)], total=4, n_jobs=2))


def test_tasks_within_tasks_run_where_they_are(engine):
    with engine():
        for places in parallel.run(nested, [(i,) for i in range(4)], total=4):
            assert len(places) == 1


def threads(_):
    return cpu_count(), {pool["num_threads"] for pool in threadpool_info()}


def test_workers_share_the_cores(engine):
    with engine():
        for cores, pools in parallel.run(threads, [(i,) for i in range(4)], total=4):
            assert cores == max(1, cpu_count() // 2)
            assert max(pools) <= max(1, cpu_count() // 2)
    assert "LOKY_MAX_CPU_COUNT" not in os.environ


def test_fits_in_threads_of_one_process_take_turns():
    running, most = [], []

    def task(i):
        running.append(i)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(i)

    with parallel_config(backend="threading", n_jobs=4):
        parallel.run(task, [(i,) for i in range(12)], total=12)
    assert max(most) == 1


@pytest.mark.parametrize("backend", ["sequential", "loky", "threading", "multiprocessing", "dask"])
def test_progress_on_every_backend(backend, monkeypatch, capsys, request):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(parallel.progress, "DELAY", 0.0)
    given = {"client": request.getfixturevalue("client")} if backend == "dask" else {"n_jobs": 2}
    with parallel_config(backend=backend, **given):
        parallel.run(time.sleep, [(0.05,)] * 12, total=12, label="sleeping", verbose=True)
    shown = capsys.readouterr().err
    assert "sleeping: 100%" in shown
    assert "12/12" in shown
    assert shown.count("/12") > 1


INTERRUPTED = """
import os, time
from transcendent._utils import parallel

def work(i):
    os.write(1, b"started\\n")  # in one piece, whichever worker is first
    time.sleep(60)

if __name__ == "__main__":
    parallel.run(work, [(i,) for i in range(8)], total=8, n_jobs=2)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interruption_leaves_no_process_behind(how, tmp_path):
    (tmp_path / "script.py").write_text(INTERRUPTED)
    command = [sys.executable, tmp_path / "script.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"started\n"
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        process.wait(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_evaluators_are_the_same_on_every_engine(engine):
    X, y = make_classification(400, flip_y=0.1, random_state=0)
    folds = CrossConformalEvaluator(LinearSVC(random_state=0), cv=4, random_state=0, verbose=False)
    left_out = TransductiveEvaluator(LinearSVC(random_state=0), cv=5, random_state=0, verbose=False)
    for evaluator in (folds, left_out):
        expected = evaluator.fit(X, y).decide(X)
        with engine():
            found = evaluator.fit(X, y).decide(X)
        np.testing.assert_array_equal(found.p_values, expected.p_values)
        np.testing.assert_array_equal(found.accepted, expected.accepted)


def test_backtests_are_the_same_on_every_engine(engine):
    stream = make_stream(2400, 6, random_state=0)
    detector = LogisticRegression()
    rejectors = {
        name: CrossConformalEvaluator(detector, cv=k, verbose=False) for name, k in (("3", 3), ("4", 4))
    }
    tables = []
    for on in (nullcontext, engine):
        with on():
            result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-03")
            tables.append(result.table["f1"])
    np.testing.assert_array_equal(*tables)
