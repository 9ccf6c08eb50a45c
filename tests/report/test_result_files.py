"""Result files are replaced as a whole; what is no file is written to, and stays what it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fuzz.errors import UsageError
from fuzz.report.result_files import check_result_path, write_result


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_result_path(pipe, "--junit")
        write_result(pipe, "all of it")
        assert os.read(reader, 100) == b"all of it"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)


def test_a_name_of_an_open_file_stays_one(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        write_result(Path(f"/dev/fd/{file.fileno()}"), "all of it")
        assert os.fstat(file.fileno()).st_nlink == 1
    assert (tmp_path / "open").read_text() == "all of it"


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    link = tmp_path / "link"
    link.symlink_to("file")
    write_result(link, "after")
    assert link.is_symlink() and (tmp_path / "file").read_text() == "after"


@pytest.mark.skipif(not stat.S_ISCHR(os.stat("/dev/full").st_mode), reason="/dev/full is no device here")
def test_a_full_device_is_one_line(tmp_path: Path) -> None:
    # By a link, so that nothing replaces the device itself.
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    check_result_path(link, "--junit")
    with pytest.raises(UsageError, match=r"^cannot write .*full: No space left on device$"):
        write_result(link, "text")


@pytest.mark.parametrize("name", ["fuzz_mine.py", "entry.yaml", "campaign.yml"])
def test_what_a_person_wrote_is_not_replaced_by_a_result(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    check_result_path(path, "--out")
    path.write_text("mine")
    with pytest.raises(UsageError, match="no result may replace"):
        check_result_path(path, "--out")
    link = tmp_path / "link.html"
    link.symlink_to(name)
    with pytest.raises(UsageError, match="link.html is a file of yours that no result may replace"):
        check_result_path(link, "--out")
