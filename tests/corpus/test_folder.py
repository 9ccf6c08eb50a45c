"""The folder of entries: written whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.corpus import codec
from fuzz.corpus.codec import strict_yaml
from fuzz.errors import CorpusError, UsageError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.provenance import Provenance


def test_an_entry_is_saved_under_its_target_and_name(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path / "deep" / "corpus", entry)
    assert path == tmp_path / "deep" / "corpus" / "gelu_bw" / f"dx-sign-{entry.digest[:8]}.yaml"
    assert corpus.read(path) == entry
    assert [place.name for place in path.parent.iterdir()] == [path.name]


def test_an_entry_that_is_saved_again_keeps_its_status(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    corpus.mark(path, "accepted", "by design")
    assert corpus.save_entry(tmp_path, replace(entry, provenance=Provenance(backend="cuda"))) == path
    read = corpus.read(path)
    assert (read.status, read.why, read.provenance) == ("accepted", "by design", Provenance(backend="cuda"))


def test_a_smaller_case_takes_the_place_of_an_entry(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    corpus.mark(path, "accepted", "by design")
    other = replace(entry, case=entry.case.replica(1))
    smaller = corpus.save_entry(tmp_path, other, path)
    assert list(corpus.entry_files([tmp_path])) == [smaller] and smaller != path
    assert (corpus.read(smaller).case, corpus.read(smaller).status) == (other.case, "accepted")
    third = corpus.save_entry(tmp_path, entry)
    assert corpus.save_entry(tmp_path, other, third) == smaller
    assert list(corpus.entry_files([tmp_path])) == [smaller]


def test_a_broken_entry_is_not_written_over_and_another_one_saved_beside_it(entry: Entry, tmp_path: Path) -> None:
    """As a merge with conflicts leaves it: the run that found it ended, and its findings were in no corpus."""
    damaged = corpus.save_entry(tmp_path, entry)
    damaged.write_text("<<<<<<< HEAD\n" + damaged.read_text())
    text = damaged.read_text()
    beside = corpus.save_entry(tmp_path, entry)
    assert beside.name == f"{damaged.stem}-2.yaml" and corpus.read(beside) == entry and damaged.read_text() == text
    corpus.mark(beside, "accepted", "by design")
    assert corpus.save_entry(tmp_path, entry, beside) == beside and corpus.read(beside).status == "accepted"
    damaged.write_text(text.partition("\n")[2])
    assert corpus.save_entry(tmp_path, entry, beside) == damaged and not beside.exists()


def test_at_no_moment_there_are_two_entries_of_one_cause_or_none(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = corpus.save_entry(tmp_path, entry)
    seen = []
    rename = os.replace

    def watched(source: Path, target: Path) -> None:
        seen.append(len(list(corpus.entry_files([tmp_path]))))
        rename(source, target)
        seen.append(len(list(corpus.entry_files([tmp_path]))))

    monkeypatch.setattr(os, "replace", watched)
    corpus.save_entry(tmp_path, replace(entry, case=entry.case.replica(1)), path)
    assert seen == [1, 1, 1, 1]


def test_an_entry_is_on_disk_under_its_name_when_it_is_saved(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    rename, sync = os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda source, target: (done.append("rename"), rename(source, target)))

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    corpus.save_entry(tmp_path, entry)
    assert done == ["file", "rename", "folder"]


WRITER = """
import sys
from pathlib import Path
from fuzz import corpus
folder, name = Path(sys.argv[1]), sys.argv[2]
entry = corpus.read(next(corpus.entry_files([folder])))
for _ in range(40):
    if name == "mark":
        corpus.mark(folder / "gelu_bw" / entry.name, "fixed", "done")
    else:
        corpus.save_entry(folder, entry)
"""


def test_what_one_process_marks_another_one_does_not_undo(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    processes = [subprocess.Popen([*command, name]) for name in ("mark", "add", "add")]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert corpus.read(path).status == "fixed" and [place.name for place in path.parent.iterdir()] == [path.name]


def test_threads_of_one_process_that_mark_an_entry_never_tear_it(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    errors: list[BaseException] = []
    writing = threading.Event()

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    def mark_often(why: str) -> None:
        for _ in range(30):
            attempt(lambda: corpus.mark(path, "open", why))

    def read_while_writing() -> None:
        while not writing.is_set():
            attempt(lambda: corpus.read(path))

    reader = threading.Thread(target=read_while_writing)
    writers = [threading.Thread(target=mark_often, args=(letter * 100 * count,)) for count, letter in enumerate("smlx")]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    writing.set()
    reader.join()
    assert errors == [] and [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_thread_waits_while_another_one_holds_the_folder(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with corpus.lock(tmp_path):
            entered.set()

    with corpus.lock(tmp_path), corpus.lock(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


def test_a_saved_entry_replaces_a_larger_one_and_keeps_the_status_of_one_that_exists(
    entry: Entry, tmp_path: Path
) -> None:
    larger = tmp_path / "mine" / "larger.yaml"
    smaller = replace(entry, case=entry.case.replica(1))
    existing = corpus.save_in_folder(larger.parent, smaller)
    corpus.mark(existing, "accepted", "by design")
    corpus.write(larger, entry)
    assert corpus.save_in_folder(larger.parent, smaller, larger) == existing
    assert not larger.exists() and corpus.read(existing).status == "accepted"


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from fuzz import corpus
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
corpus.mark(Path(sys.argv[1]), "fixed", "x" * 4000)
"""


def test_what_a_killed_process_left_half_written_is_removed(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    notes = path.with_name(".notes.tmp")
    notes.write_text("of somebody else")
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(path)]
    assert subprocess.run(command, timeout=300).returncode == -signal.SIGKILL
    assert len(os.listdir(path.parent)) == 3 and list(corpus.entry_files([tmp_path])) == [path]
    assert corpus.read(path) == entry
    corpus.save_entry(tmp_path, entry)
    assert sorted(os.listdir(path.parent)) == [notes.name, path.name]


KILLED_AT_EVERY_STEP = """
import os, signal, stat, sys
from dataclasses import replace
from pathlib import Path
from fuzz import corpus

root, seed = Path(sys.argv[1]), corpus.read(Path(sys.argv[2]))
smaller = replace(seed, case=seed.case.replica(1))
real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink", "mkdir")}


def hook(step):
    # Kills this process in the middle of its call number `step // 2` that changes files, before or after that is done.
    calls = iter(range(1000))

    def hooked(name):
        def call(*arguments, **options):
            count = next(calls)
            if 2 * count == step:
                if name == "fsync" and stat.S_ISREG(os.fstat(arguments[0]).st_mode):
                    os.ftruncate(arguments[0], 100)  # What has not reached the disk is lost.
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real[name](*arguments, **options)
            finally:
                if 2 * count + 1 == step:
                    os.kill(os.getpid(), signal.SIGKILL)
        return call

    for name in real:
        setattr(os, name, hooked(name))


def new(folder):
    return lambda: corpus.save_in_folder(folder, seed), (0, 1)


def again(folder):
    corpus.save_in_folder(folder, seed)
    return lambda: corpus.save_in_folder(folder, seed), (1,)


def marked(folder):
    path = corpus.save_in_folder(folder, seed)
    return lambda: corpus.mark(path, "fixed", "x" * 4000), (1,)


def shrunk(folder):
    path = corpus.save_in_folder(folder, seed)
    return lambda: corpus.save_in_folder(folder, smaller, path), (1,)


def merged(folder):
    path = corpus.save_in_folder(folder, seed)
    corpus.save_in_folder(folder, smaller)
    return lambda: corpus.save_in_folder(folder, smaller, path), (1, 2)


kills = 0
for operation in (new, again, marked, shrunk, merged):
    for step in range(100):
        folder = root / f"{operation.__name__}-{step}"
        write, counts = operation(folder)
        child = os.fork()
        if child == 0:
            hook(step)
            write()
            os._exit(0)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
        kills += killed
        entries = [corpus.read(path) for path in corpus.entry_files([folder])] if folder.is_dir() else []
        assert len(entries) in counts, (folder, entries)
        write()
        (last,) = (corpus.read(path) for path in corpus.entry_files([folder]))
        assert sorted(os.listdir(folder)) == [last.name if operation is not marked else seed.name], os.listdir(folder)
        if not killed:
            break
print(kills)
"""


def test_a_writer_killed_at_any_step_leaves_no_entry_torn_lost_or_doubled(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path / "saved", entry)
    command = [sys.executable, "-c", KILLED_AT_EVERY_STEP, str(tmp_path / "corpus"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 40, done.stdout


def test_mark_changes_the_status_and_nothing_else(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    corpus.mark(path, "fixed", "since 1.2")
    assert corpus.read(path) == replace(entry, status="fixed", why="since 1.2")


def test_mark_of_a_link_changes_the_entry_that_it_leads_to(entry: Entry, tmp_path: Path) -> None:
    path, link = corpus.save_entry(tmp_path, entry), tmp_path / "link.yaml"
    link.symlink_to(path)
    corpus.mark(link, "accepted", "known")
    assert link.is_symlink() and corpus.read(path).status == "accepted"


def test_mark_refuses_an_unknown_status(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    with pytest.raises(UsageError, match="'done' is not one of open, fixed, accepted"):
        corpus.mark(path, "done", "")
    assert corpus.read(path) == entry


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("needs root to mount a file system that fills up")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def long(entry: Entry) -> Entry:
    return replace(entry, also=("x" * 4000,) * 25)


def test_on_a_disk_that_fills_up_the_old_entry_stays_whole(entry: Entry, tiny_disk: Path) -> None:
    path = corpus.save_entry(tiny_disk, entry)
    with pytest.raises(CorpusError, match=r"cannot write .*: No space left on device"):
        corpus.write(path, long(entry))
    assert corpus.read(path) == entry
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_whatever_fails_while_writing_the_old_entry_stays_whole(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = corpus.save_entry(tmp_path, entry)
    monkeypatch.setattr(os, step, full)
    with pytest.raises(CorpusError, match="No space left on device"):
        corpus.write(path, long(entry))
    monkeypatch.undo()
    assert corpus.read(path) == entry
    assert os.listdir(path.parent) == [path.name]


def test_a_writer_that_is_killed_leaves_the_old_entry(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*arguments: object) -> None:
        raise Killed

    path = corpus.save_entry(tmp_path, entry)
    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(Killed):
        corpus.write(path, long(entry))
    assert corpus.read(path) == entry
    # What it leaves behind is hidden, and no entry to those who read the folder.
    assert list(corpus.entry_files([tmp_path])) == [path]


def test_a_folder_that_is_a_file_is_refused(entry: Entry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(CorpusError, match=r"corpus folder .*file/corpus cannot be written: Not a directory"):
        corpus.check_writable(tmp_path / "file" / "corpus")
    with pytest.raises(CorpusError, match="cannot write"):
        corpus.save_entry(tmp_path / "file", entry)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_full_disk_is_noticed_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fuzz.corpus.folder.NamedTemporaryFile", full)
    with pytest.raises(CorpusError, match="No space left"):
        corpus.check_writable(tmp_path)


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    corpus.check_writable(tmp_path / "corpus")
    assert list((tmp_path / "corpus").iterdir()) == []


def test_files_are_found_in_folders_in_order(entry: Entry, tmp_path: Path) -> None:
    assert entry.finding
    other = replace(entry, finding=Finding("bounds", ("a",), "stray-read", "m"))
    paths = [corpus.save_entry(tmp_path, one) for one in (entry, other)]
    (tmp_path / "gelu_bw" / "notes.txt").write_text("not an entry")
    (tmp_path / "gelu_bw" / ".hidden.yaml").write_text("not an entry")
    assert list(corpus.entry_files([tmp_path])) == sorted(paths)
    assert list(corpus.entry_files([paths[0]])) == [paths[0]]


def test_a_path_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere does not exist; give a corpus entry or a folder"):
        list(corpus.entry_files([tmp_path / "nowhere"]))
    with pytest.raises(CorpusError, match=r"cannot read .*nowhere: No such file"):
        corpus.read(tmp_path / "nowhere")


def test_an_entry_of_a_large_given_input_is_read_again(entry: Entry, tmp_path: Path) -> None:
    """More than 8 MiB: a tensor of a million elements."""
    corpus.write(tmp_path / "x.yaml", entry)
    with (tmp_path / "x.yaml").open("a") as file:
        file.write("#" * (1 << 23) + "\n")
    assert corpus.read(tmp_path / "x.yaml") == entry


def test_an_input_is_refused_where_its_entry_could_not_be_read_again(
    case: Case, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.check_size(case)
    # Each of the two words of x is 0x12345678 and a blank.
    monkeypatch.setattr(codec, "LARGEST_CASE", 22)
    corpus.check_size(case)
    monkeypatch.setattr(codec, "LARGEST_CASE", 21)
    with pytest.raises(UsageError, match="an input of gelu_bw takes 22 bytes as text, more than the 21 that"):
        corpus.check_size(case)
    room = codec.LARGEST_ENTRY - 2 * strict_yaml.LARGEST_CASE
    assert 100 * len(codec.dumps(entry)) < room


def test_reading_stops_at_the_largest_entry(tmp_path: Path) -> None:
    endless = tmp_path / "huge.yaml"
    with endless.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorpusError, match=r"huge.yaml: more than the"):
        corpus.read(endless)
