import os
import socket

import pytest

from transcendent._utils.files import open_regular, write_whole


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path}/nowhere"):
        write_whole(tmp_path / "nowhere" / "x.transcendent", b"")


class TestWhatIsNoRegularFile:
    @pytest.fixture(
        params=["pipe", "device", "link", "link to a device", "link to nowhere", "socket", "folder"]
    )
    def place(self, request, tmp_path):
        path = tmp_path / "x"
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "device":
            try:
                os.mknod(path, 0o20666, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("making a device takes root")
        elif request.param == "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.relpath(path))
        elif request.param == "folder":
            path.mkdir()
        else:
            (tmp_path / "y").write_text("mine")
            path.symlink_to({"link": tmp_path / "y"}.get(request.param, request.param.split()[-1]))
            if request.param == "link to a device":
                path.unlink()
                path.symlink_to("/dev/null")
        return path

    def test_it_is_not_replaced(self, place):
        before = os.lstat(place)
        with pytest.raises(OSError, match="so it is not replaced"):
            write_whole(place, b"new")
        assert os.lstat(place) == before

    def test_it_is_not_read_nor_waited_for(self, place):
        if place.is_file():
            with open_regular(place, 10) as file:  # links are followed
                assert file.read() == b"mine"
        else:
            with pytest.raises(OSError), open_regular(place, 10):  # noqa: PT011 # each its own
                pass


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "x").write_bytes(bytes(11))
    with (
        pytest.raises(OSError, match="it has 11 bytes, more than the limit of 10"),
        open_regular(tmp_path / "x", 10),
    ):
        pass


def test_a_private_file_stays_private_while_it_is_replaced(tmp_path, monkeypatch):
    path, seen, sync = tmp_path / ("x" * 230), [], os.fsync
    write_whole(path, b"old")
    path.chmod(0o600)
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(os.fstat(file).st_mode & 0o777) or sync(file))
    write_whole(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777, seen) == (b"new", 0o600, [0o600])


def test_a_new_file_has_the_mode_the_umask_leaves(tmp_path):
    write_whole(tmp_path / "x", b"")
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode
