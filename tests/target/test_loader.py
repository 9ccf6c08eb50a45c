"""From what a person types to a target, and from a target to its planted bugs."""

from __future__ import annotations

import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from fuzz.errors import CorpusError, TargetError
from fuzz.model.entry import Entry
from fuzz.model.layout import CONTIGUOUS
from fuzz.target import loader
from fuzz.target.loader import (
    built_in_files,
    check_fits,
    declares_targets,
    find_target,
    load,
    load_planted,
    locate,
    target_argument,
    variant_source,
)
from fuzz.target.spec import PlantedBug, Target

TEXT = '''"""Doubles."""
from fuzz import size, target, tensor

N = size("N", 1, 8)
FACTOR = 2


@target(x=tensor(N))
def double(x):
    return dict(y=x * FACTOR)


double.planted("half", oracle="accuracy", outputs=("y",), meaning="halves", change=("x * FACTOR", "x / FACTOR"))
'''
TWO = (
    TEXT
    + """

@target(x=tensor(N))
def triple(x):
    return dict(y=x * 3)
"""
)


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_built_in_targets_are_found_by_name() -> None:
    assert {path.stem for path in built_in_files()} >= {"gelu_bw", "layernorm_bw"}
    assert load("gelu_bw").path == next(path for path in built_in_files() if path.stem == "gelu_bw")


def test_a_file_is_found_by_its_path_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, TEXT)
    assert load(str(path)).name == "double"
    monkeypatch.chdir(tmp_path)
    assert load("mine.py") is load(str(path)) is load("./mine.py:double")


def test_a_file_in_a_folder_with_odd_characters_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "a folder: of mine"
    folder.mkdir()
    assert load(str(write(folder, TEXT))).name == "double"


def test_a_file_whose_name_is_not_in_the_locales_encoding_is_found(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    assert load(str(write(folder, TEXT))).name == "double"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load(str(path))(2) == {"y": 4}


def test_one_of_several_targets_is_chosen_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert load(f"{path}:triple")(2) == {"y": 6}
    with pytest.raises(TargetError, match=r"2 targets, name one: .*:double, .*:triple"):
        load(str(path))
    with pytest.raises(TargetError, match=r"no target 'x'; there are double, triple"):
        load(f"{path}:x")


@pytest.mark.parametrize("second", ["def double(x):", "@target(x=tensor(N), name='double')\ndef triple(x):"])
def test_two_targets_of_one_name_are_refused_with_their_lines(tmp_path: Path, second: str) -> None:
    second = second if second.startswith("@") else f"@target(x=tensor(N))\n{second}"
    path = write(tmp_path, f"{TEXT}\n\n{second}\n    return dict(y=x * 3)\n")
    for text in (f"{path}:double", str(path)):  # The file that was refused is not kept.
        with pytest.raises(TargetError, match=r"mine.py: two targets are named 'double', at lines 8 and 16: give"):
            load(text)


def test_a_target_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "FACTOR = 5\n", "factors_of_mine.py")
    path = write(tmp_path, TEXT.replace("FACTOR = 2", "from factors_of_mine import FACTOR"))
    assert load(str(path))(2) == {"y": 10}


def test_an_imported_target_is_not_the_files_own(tmp_path: Path) -> None:
    write(tmp_path, TEXT, "other_of_mine.py")
    path = write(
        tmp_path, TEXT.replace('"""Doubles."""', "import other_of_mine\nfrom other_of_mine import double as imported")
    )
    assert load(str(path)).path == path


def test_a_file_that_fails_is_not_kept(tmp_path: Path) -> None:
    path = write(tmp_path, "1 / 0\n")
    before = set(sys.modules)
    with pytest.raises(TargetError, match="ZeroDivisionError: division by zero"):
        load(str(path))
    assert set(sys.modules) == before
    path.write_text(TEXT)
    assert load(str(path)).name == "double"


@pytest.mark.parametrize("text", ["", "a b", "x.yaml", "gelu_bw:x", "os"])
def test_an_unknown_name_lists_the_known_ones(text: str) -> None:
    with pytest.raises(TargetError, match=r"unknown target .*; known: .*gelu_bw"):
        locate(text)


def test_a_planted_bug_is_the_source_with_one_change(tmp_path: Path) -> None:
    target = load(str(write(tmp_path, TEXT)))
    plant, launcher = load_planted(target, "half")
    assert launcher(8) == {"y": 4.0} and target(8) == {"y": 16}
    assert variant_source(target, plant).replace("x / FACTOR", "x * FACTOR", 1) == TEXT
    assert load_planted(target, "half")[1] is launcher


def test_planted_bugs_of_one_name_are_each_of_its_own_target(tmp_path: Path) -> None:
    plant = '{0}.planted("wrong", oracle="accuracy", outputs=("y",), change=("{1}", "{2}"))\n'
    text = TWO + plant.format("double", "x * FACTOR", "x - FACTOR") + plant.format("triple", "x * 3", "x / 2")
    path = write(tmp_path, text)
    launchers = {name: load_planted(load(f"{path}:{name}"), "wrong")[1] for name in ("double", "triple")}
    assert (launchers["double"](8), launchers["triple"](8)) == ({"y": 6}, {"y": 4})


def test_names_of_targets_and_planted_bugs_that_join_to_one_are_told_apart(tmp_path: Path) -> None:
    plant = '{0}.planted("{1}", oracle="accuracy", outputs=("y",), change=("{2}", "{3}"))\n'
    text = TWO.replace("triple", "double__fast") + plant.format("double", "fast__wrong", "x * FACTOR", "x - FACTOR")
    path = write(tmp_path, text + plant.format("double__fast", "wrong", "x * 3", "x / 2"))
    wrong = [("double", "fast__wrong"), ("double__fast", "wrong")]
    launchers = [load_planted(load(f"{path}:{name}"), bug)[1] for name, bug in wrong]
    assert [launcher(8) for launcher in launchers] == [{"y": 6}, {"y": 4}]


@pytest.mark.parametrize("text", ["nowhere", "x"])
def test_a_change_that_stands_not_exactly_once_is_refused(tmp_path: Path, text: str) -> None:
    target = load(str(write(tmp_path, TEXT)))
    with pytest.raises(TargetError, match=r"stands \d+ times in"):
        variant_source(target, PlantedBug("p", "accuracy", ("y",), changes=((text, "z"),)))


def test_a_target_is_found_beside_its_corpus(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    entry = tmp_path / "corpus" / "double" / "y-value-0.yaml"
    text, target = find_target("double", entry)
    assert target.name == "double" and text == f"{path}:double"
    assert find_target("double", entry, str(path))[0] == str(path)
    assert target_argument(target, entry) == ""
    assert target_argument(target, tmp_path.parent / "elsewhere" / "double" / "y-value-0.yaml") == text


def test_a_file_of_several_targets_gives_each_entry_its_own(tmp_path: Path) -> None:
    path, entry = write(tmp_path, TWO), tmp_path.parent / "elsewhere" / "x.yaml"
    assert load(find_target("double", entry, str(path))[0]).name == "double"
    assert load(find_target("triple", entry, str(path))[0]).name == "triple"
    assert find_target("triple", entry, f"{path}:triple")[0] == f"{path}:triple"


def test_an_entry_is_not_run_with_the_kernel_of_another_target(tmp_path: Path) -> None:
    path, entry = write(tmp_path, TWO), tmp_path / "x.yaml"
    with pytest.raises(
        TargetError, match=re.escape(f"{entry} is an entry of target 'double'; --target {path}:triple ")
    ):
        find_target("double", entry, f"{path}:triple")
    with pytest.raises(TargetError, match=r"x.yaml is an entry of target 'other'; --target .* has double, triple$"):
        find_target("other", entry, str(path))


def test_a_target_beside_the_corpus_comes_before_one_that_is_built_in(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace("double", "softmax"))
    assert find_target("softmax", tmp_path / "corpus" / "softmax" / "x.yaml")[0] == f"{path}:softmax"
    path.unlink()
    assert find_target("softmax", tmp_path / "corpus" / "softmax" / "x.yaml")[0] == "softmax"


@pytest.mark.parametrize("name", ["liger_mine", "fla_mine"])
def test_a_target_may_be_named_as_those_of_a_library_are(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, TEXT.replace("double", name))
    assert find_target(name, tmp_path / "corpus" / name / "x.yaml")[0] == f"{path}:{name}"
    path.unlink()
    with pytest.raises(TargetError, match="is built in or beside"):
        find_target(name, tmp_path / "corpus" / name / "x.yaml")


def test_a_target_may_be_declared_by_the_modules_name(tmp_path: Path) -> None:
    text = TEXT.replace("@target(", "@fuzz.target(")
    path = write(tmp_path, f"import fuzz\n{text}")
    assert find_target("double", tmp_path / "corpus" / "double" / "x.yaml")[0] == f"{path}:double"
    assert not declares_targets("# @target(x), x @target(y)")


def test_files_beside_a_corpus_that_do_not_declare_the_target_are_not_run(tmp_path: Path) -> None:
    write(tmp_path, "raise SystemExit('I was run')\n", "evil.py")
    with pytest.raises(TargetError, match="no target 'double' is built in or beside"):
        find_target("double", tmp_path / "corpus" / "double" / "x.yaml")


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that everybody can write, and an entry of the caller's below it."""
    folder = tmp_path / "shared"
    entry = folder / "corpus" / "double" / "x.yaml"
    entry.parent.mkdir(parents=True)
    entry.touch()
    folder.chmod(0o1777)
    return folder, entry


def give_away(path: Path) -> Path:
    try:
        os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("needs root to make a file another user's")
    return path


def test_a_file_of_another_user_in_a_folder_that_everybody_can_write_is_not_run(shared: tuple[Path, Path]) -> None:
    folder, entry = shared
    evil = give_away(write(folder, TEXT + "\nraise SystemExit('I was run')\n", "a.py"))
    with pytest.raises(TargetError, match=r"a.py declares it, but is another user's; name its file with --target"):
        find_target("double", entry)
    give_away(entry)
    with pytest.raises(TargetError, match="is another user's"):
        find_target("double", entry)
    mine = write(folder, TEXT, "mine.py")
    assert find_target("double", entry)[0] == f"{mine}:double"
    evil.unlink()
    assert find_target("double", entry)[0] == f"{mine}:double"


def test_a_checkout_of_another_user_runs_its_own_targets(shared: tuple[Path, Path]) -> None:
    folder, entry = shared
    folder.chmod(0o755)
    path = give_away(write(folder, TEXT))
    give_away(entry)
    assert find_target("double", entry)[0] == f"{path}:double"


def test_a_pipe_beside_an_entry_is_not_waited_for(shared: tuple[Path, Path]) -> None:
    folder, entry = shared
    os.mkfifo(folder / "a.py")
    path = write(folder, TEXT)
    assert find_target("double", entry)[0] == f"{path}:double"


def test_an_entry_must_fit_its_target(gelu: Target, entry: Entry) -> None:
    case, path = entry.case, Path("x.yaml")
    check_fits(case, gelu, path)
    call = case.last
    flat = replace(call.arguments["x"], shape=("N", "N"), layout=CONTIGUOUS)
    wrong = {
        "its arguments are dy": replace(call, arguments={"dy": call.arguments["dy"]}),
        "its options are eps": replace(call, options={"eps": 1}),
        "its dims are M, N": replace(call, dims={"M": 1, "N": 2}),
        "its cotangents are y": replace(call, cotangents={"y": call.arguments["x"]}),
        "argument 'x' has 2 dims, not 1": call.with_argument("x", flat),
    }
    for message, one in wrong.items():
        with pytest.raises(CorpusError, match=f"x.yaml: {message}"):
            check_fits(case.with_call(0, one), gelu, path)


def library(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A folder of built-in targets with one of a library."""
    (folder / "liger").mkdir()
    monkeypatch.setattr(loader, "BUILT_IN", folder)
    return write(folder / "liger", text, "norms.py")


def test_a_librarys_target_is_found_by_both_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(tmp_path, monkeypatch, TEXT.replace("double", "liger_double"))
    assert load("liger/double") is load("liger_double") is load(f"{path}:liger_double")
    assert loader.library_files() == [path]
    with pytest.raises(TargetError, match="unknown target 'liger/triple'"):
        load("liger/triple")


def test_a_missing_extra_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch, "import no_such_library\n" + TEXT.replace("double", "liger_double"))
    with pytest.raises(TargetError, match=r"no_such_library is not installed; install the extra \[liger\]$"):
        load("liger/double")


def test_threads_that_load_at_once_leave_standard_output_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without turns the first file ends while the second one runs, which then restores what the first one had set."""
    events = SimpleNamespace(first=Event(), second=Event(), first_done=Event())
    monkeypatch.setitem(sys.modules, "events", events)
    wait = "import events\nevents.first.set()\nevents.second.wait(1)\n"
    first = write(tmp_path, wait + TEXT, "first.py")
    second = write(tmp_path, "import events\nevents.second.set()\nevents.first_done.wait(60)\n" + TEXT, "second.py")
    before = sys.stdout
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(load, str(first))
        assert events.first.wait(60)
        other = pool.submit(load, str(second))
        one.add_done_callback(lambda _: events.first_done.set())
        assert one.result().name == other.result().name == "double"
    assert sys.stdout is before


def test_ctrl_c_while_a_file_is_loaded_is_the_persons_and_one_that_the_file_raises_its_own(tmp_path: Path) -> None:
    path, before = tmp_path / "k.py", signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        path.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        with pytest.raises(KeyboardInterrupt):
            load(str(path))
        path.write_text("raise KeyboardInterrupt\n")
        with pytest.raises(TargetError, match="cannot load .*: KeyboardInterrupt"):
            load(str(path))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
