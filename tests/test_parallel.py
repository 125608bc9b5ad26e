import operator
import os
import sys
import time

import pytest
from joblib import parallel_config

from transcendent import parallel


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


def test_a_backend_that_cannot_stream_works(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with parallel_config(backend="multiprocessing", n_jobs=2):
        assert parallel.run(operator.mul, [(2, 3)] * 3, total=3, verbose=True) == [6, 6, 6]


def test_progress_is_shown_to_someone_who_watches(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    tasks = [(x, x) for x in range(3)]
    parallel.run(operator.mul, tasks, total=3, label="fitting folds", verbose=True)
    shown = capsys.readouterr().err
    assert "fitting folds ━━━━━━━━                 1 of 3, 6 s left" in shown
    assert "fitting folds: done in" in shown


def test_progress_can_be_silenced_and_stays_out_of_pipes_and_short_work(monkeypatch, capsys):
    tasks = [(0.01,)] * 3
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=True)
    parallel.run(time.sleep, tasks, total=3, label="x", verbose=False)
    assert capsys.readouterr().err == ""
