import os

import numpy as np
import pytest

from transcendent.files import new_npy


def test_an_array_is_there_once_it_is_filled_and_not_before(tmp_path):
    with new_npy(tmp_path / "a.npy", np.float64, 3) as array:
        array[:] = [1, 2, 3]
        assert not (tmp_path / "a.npy").exists()
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2, 3]
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_failure_leaves_the_earlier_array_and_nothing_else(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(2))
    with pytest.raises(ValueError, match="broadcast"), new_npy(tmp_path / "a.npy", np.float64, 3) as array:
        array[:] = [1, 2]
    assert np.load(tmp_path / "a.npy").tolist() == [0, 0]
    assert os.listdir(tmp_path) == ["a.npy"]


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"), new_npy(tmp_path / "a.npy", np.float64, 3):
        pass
    assert os.listdir(tmp_path) == []


def test_an_empty_array_is_an_array(tmp_path):
    with new_npy(tmp_path / "a.npy", np.float64, 0):
        pass
    assert np.load(tmp_path / "a.npy", mmap_mode="r").shape == (0,)
