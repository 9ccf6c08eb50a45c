"""Files are regular and bounded when they are read, and written whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from processes import room_for

from fuzz import corpus
from fuzz.errors import CorpusError
from fuzz.files import append_line, lock_folder, own_folder, read_file, temporary_folder, write_file
from fuzz.model.entry import Entry


@pytest.fixture(params=["pipe", "link to a pipe", "device", "folder", "socket"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What is no regular file."""
    path = tmp_path / "x.yaml"
    if request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        os.mkfifo(path)
        if request.param == "link to a pipe":
            path.rename(tmp_path / "pipe")
            path.symlink_to(tmp_path / "pipe")
    return path


def test_what_is_no_regular_file_is_never_waited_for(special: Path) -> None:
    with pytest.raises(OSError):
        read_file(special, 100)
    with pytest.raises(CorpusError, match=r"cannot read .*x\.yaml: (not a regular file|No such device|Is a directory)"):
        corpus.read(special)


def test_a_link_to_standard_input_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.symlink_to("/dev/stdin")
    program = f"from fuzz import corpus; from pathlib import Path; corpus.read(Path({str(path)!r}))"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr and b"not a regular file" in process.stderr.read()


def test_a_regular_file_is_read_up_to_the_limit_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    (tmp_path / "link").symlink_to(tmp_path / "huge")
    assert read_file(tmp_path / "link", 10) == b"\0" * 10


@pytest.mark.parametrize("name", [b"a\nb.yaml", b"caf\xe9.yaml", b"\x1b[2J.yaml"])
def test_an_entry_whose_name_pages_and_databases_cannot_hold_is_refused(
    entry: Entry, tmp_path: Path, name: bytes
) -> None:
    path = corpus.save_entry(tmp_path, entry).rename(tmp_path / os.fsdecode(name))
    with pytest.raises(CorpusError, match="rename it") as caught:
        corpus.read(path)
    assert str(caught.value).encode() and "\n" not in str(caught.value)


def test_a_file_with_the_longest_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".yaml")
    write_file(path, "text \ud800")
    assert path.read_text() == "text \\ud800" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
def test_a_path_that_no_file_has_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CorpusError, match=name):
        list(corpus.entry_files([tmp_path / name]))
    with pytest.raises(CorpusError, match="cannot read"):
        corpus.mark(tmp_path / "missing" / name, "fixed", "x")
    assert os.listdir(tmp_path) == ["loop"]


def test_a_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("one-left____", "one-held____", "one-young___", "other-left____", "one-experiments")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "socket").touch()
        if "young" not in name:
            os.utime(tmp_path / name, (0, 0))
    with lock_folder(tmp_path / "one-held____"):
        own, held = own_folder("one-")
        os.utime(own, (0, 0))
        later, held_later = own_folder("one-")
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], Path(own).name, Path(later).name}
    for each in (held, held_later):
        each.close()


def test_where_a_file_system_has_no_locks_a_folder_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        folder, held = own_folder("one-")
        os.utime(folder, (0, 0))
        held.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_line_that_a_full_disk_takes_in_part_is_cut_off_again(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "first")
    with room_for(len("first\nsec")), pytest.raises(OSError, match="File too large"):
        append_line(path, "second")
    assert path.read_text() == "first\n"
    append_line(path, "third", sync=True)
    assert path.read_text() == "first\nthird\n"


def test_a_line_begins_anew_after_what_a_killed_writer_left(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("first\nsec")
    append_line(path, "third")
    assert path.read_text() == "first\nsec\nthird\n"


def test_a_temporary_folder_is_held_inside_its_block_and_removed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), temporary_folder("one-") as folder:
        (Path(folder) / "file").touch()
        os.utime(folder, (0, 0))
        with temporary_folder("one-") as other:
            assert {path.name for path in tmp_path.iterdir()} == {Path(folder).name, Path(other).name}
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_folder_does_not_end_with_what_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was forked and has closed all files would close another file of that number."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, held = own_folder("one-")
    (name,) = (one for one in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{one}") == folder)
    del held
    gc.collect()
    os.close(int(name))
