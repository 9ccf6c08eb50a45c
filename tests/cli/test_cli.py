"""The command line as people and scripts use it: what it prints, its JSON and its exit codes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Done, fuzz
from processes import has_ended
from programs import ForkedProgram, run_program, run_programs, start_program

from fuzz import __version__, corpus
from fuzz.errors import InternalError
from fuzz.run import environment, replay

pytestmark = pytest.mark.usefixtures("no_cross_checks")
FUZZ = Path(sys.executable).with_name("fuzz")
PLANTED = ("run", "gelu_bw", "--planted", "erf_saturates")
CASES = 20
OWN = """from fuzz import size, target, tensor

N = size("N", 1, 8)


@target(x=tensor(N), reference=lambda x: dict(y=2 * x), dtypes=("float32",))
def own(x):
    return dict(y=2 * x)


@own.planted("wrong", oracle="accuracy", outputs=("y",))
def wrong(x):
    return dict(y=3 * x + 1)
"""


def command(*arguments: object, cwd: Path | None = None) -> Done:
    """The command in a process of its own."""
    done = run_program("-m", "fuzz", *map(str, arguments), cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Run:
    """A run that found the planted bug, and the folder that it saved it in."""

    done: Done
    folder: Path

    @property
    def path(self) -> Path:
        return Path(self.done.json["findings"][0]["path"])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("found")
    return Run(fuzz(*PLANTED, "--cases", CASES, "--corpus", folder, "--backend", "cpu", "--json"), folder)


@pytest.fixture
def saved(found: Run, tmp_path: Path) -> Path:
    """A copy of the saved entry, to be changed at will."""
    path = tmp_path / "gelu_bw" / found.path.name
    path.parent.mkdir()
    shutil.copy(found.path, path)
    return path


def test_a_target_finds_no_gpu_on_the_cpu_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    log, file = tmp_path / "devices", tmp_path / "own.py"
    note = f"Path({str(log)!r}).open('a').write(repr(os.environ['CUDA_VISIBLE_DEVICES']) + ' ')"
    file.write_text(
        f"import os\nfrom pathlib import Path\n{note}\n" + OWN.replace("    return", f"    {note}\n    return")
    )
    done = command("run", file, "--cases", 2, "--backend", "cpu", "--corpus", tmp_path / "corpus")
    assert done.code == 0, done.err
    assert set(log.read_text().split()) == {"''"}


@pytest.mark.parametrize(
    ("more", "loads"),
    [("", 1), ("import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n", None)],
)
def test_a_run_loads_its_target_once_where_its_process_may_be_forked(
    more: str, loads: int | None, tmp_path: Path
) -> None:
    log, file = tmp_path / "loads", tmp_path / "own.py"
    file.write_text(f"import os\nwith open({str(log)!r}, 'a') as log:\n    log.write(f'{{os.getpid()}} ')\n{more}{OWN}")
    line = [FUZZ, "run", file, "--cases", "3", "--seconds", "60", "--backend", "cpu", "--corpus", tmp_path / "corpus"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    processes = log.read_text().split()
    assert len(processes) == loads if loads else len(set(processes)) == len(processes) > 2


def test_run_finds_a_planted_bug_and_exits_with_1(found: Run) -> None:
    assert found.done.code == 1
    assert len(found.done.json["findings"]) == 1


def test_run_json_has_the_fields_that_scripts_rely_on(found: Run) -> None:
    value = found.done.json
    fields = "version target planted backend engine seed cases rejected seconds cases_per_second worst_ratio"
    assert {*fields.split(), "oracles", "findings"} <= set(value)
    assert {key: value[key] for key in ("version", "target", "planted", "backend", "engine", "seed", "cases")} == {
        "version": 1, "target": "gelu_bw", "planted": "erf_saturates", "backend": "cpu", "engine": "auto", "seed": 0,
        "cases": CASES,
    }  # fmt: skip
    assert set(value["oracles"]) >= {"accuracy", "mutation", "bounds"}
    assert value["seconds"] > 0 and value["cases_per_second"] > 0


def test_a_finding_in_json_has_the_fields_that_scripts_rely_on(found: Run) -> None:
    finding = found.done.json["findings"][0]
    fields = (
        "id oracle output symptom also seen verdict path calls dims elements first_case first_seconds hits diagnosis"
    )
    assert set(fields.split()) <= set(finding)
    assert (finding["oracle"], finding["output"], finding["calls"]) == ("accuracy", "dx", 1)
    assert (finding["dims"], finding["elements"]) == ({"N": 1}, 2)
    assert finding["seen"] == "new"
    assert finding["verdict"] in ("kernel", "reference", "unadjudicated")
    assert finding["hits"] >= 1 and 0 <= finding["first_case"] < CASES and finding["first_seconds"] > 0
    assert finding["id"] == Path(finding["path"]).stem


def test_the_entry_is_saved_where_it_says(found: Run) -> None:
    assert [path for path in found.folder.rglob("*") if path.is_file()] == [found.path]
    entry = corpus.read(found.path)
    assert (entry.case.target, entry.planted, entry.status) == ("gelu_bw", "erf_saturates", "open")


def test_the_seed_comes_first_and_the_first_finding_before_it_is_shrunk(found: Run) -> None:
    lines = found.done.err.splitlines()
    assert lines[0].startswith("seed 0: fuzzing gelu_bw with the planted bug erf_saturates on cpu")
    first = next(number for number, line in enumerate(lines) if re.match(r"case \d+ disagrees: accuracy/", line))
    shrinking = next(number for number, line in enumerate(lines) if line.strip() == "shrinking ..")
    shown = next(number for number, line in enumerate(lines) if "saved" in line)
    assert first < shrinking < shown
    assert str(found.path) in "\n".join(lines[shown:]) and "repeat" in "\n".join(lines[shown:])


def test_the_same_seed_gives_the_same_findings(found: Run, tmp_path: Path) -> None:
    again = fuzz(*PLANTED, "--cases", CASES, "--corpus", tmp_path, "--json")
    for part in ("cases", "rejected", "oracles", "distribution"):
        assert again.json[part] == found.done.json[part]
    told = ("id", "oracle", "output", "symptom", "dims", "elements", "first_case", "hits", "message")
    one, other = again.json["findings"], found.done.json["findings"]
    assert [[finding[key] for key in told] for finding in one] == [[finding[key] for key in told] for finding in other]
    assert corpus.read(Path(one[0]["path"])).case == corpus.read(found.path).case


def test_another_seed_gives_other_cases(tmp_path: Path) -> None:
    one, other = (
        fuzz("run", "gelu_bw", "--cases", 8, "--seed", seed, "--corpus", tmp_path, "--json") for seed in (0, 1)
    )
    assert other.json["distribution"] != one.json["distribution"]


def test_a_good_kernel_exits_with_0(tmp_path: Path) -> None:
    done = fuzz("run", "gelu_bw", "--cases", 20, "--corpus", tmp_path)
    assert (done.code, done.out) == (0, "")
    assert re.search(r"findings +none", done.err)
    assert list(tmp_path.iterdir()) == []


def test_only_new_findings_count_where_the_caller_says_so(found: Run, tmp_path: Path) -> None:
    shutil.copytree(found.folder, tmp_path / "known")
    arguments = (*PLANTED, "--cases", CASES, "--max-findings", 1, "--corpus", tmp_path / "known", "--json")
    plain, only_new = fuzz(*arguments), fuzz(*arguments, "--only-new")
    assert (plain.code, only_new.code) == (1, 0)
    assert only_new.json["findings"][0]["seen"] == "known"


def test_a_run_ends_after_max_findings(tmp_path: Path) -> None:
    done = fuzz(*PLANTED, "--cases", 5000, "--max-findings", 1, "--corpus", tmp_path, "--json")
    assert done.code == 1 and done.json["cases"] < 200


def test_a_run_whose_time_ends_before_its_first_case_has_tested_nothing(tmp_path: Path) -> None:
    done = command("run", "gelu_bw", "--seconds", "0.001", "--corpus", tmp_path, "--json")
    assert done.code == 2 and done.out == "" and "before the first case had run" in done.err


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    own = tmp_path / "fuzz_own.py"
    own.write_text(OWN)
    line = ["run", str(own), "--planted", "wrong", "--seconds", "1000", "--corpus", str(tmp_path), "--json"]
    process = start_program("-m", "fuzz", *line, folder=tmp_path)
    until = time.monotonic() + 300
    while not list(tmp_path.rglob("*.yaml")) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 1 and "Traceback" not in process.printed("stderr")
    value = json.loads(process.printed("stdout"))
    assert value["interrupted"] and Path(value["findings"][0]["path"]).is_file()


def test_list_json_has_the_fields_that_scripts_rely_on() -> None:
    done = fuzz("list", "--json")
    assert done.code == 0
    by_name = {one["name"]: one for one in done.json}
    assert set(by_name) >= {"gelu_bw", "layernorm_bw"}
    assert all(set(one) >= {"name", "outputs", "dtypes", "backends", "planted"} for one in done.json)
    assert by_name["layernorm_bw"]["outputs"] == ["dx", "dweight", "dbias"]
    assert by_name["gelu_bw"]["dtypes"] == ["float32", "bfloat16", "float16"]
    assert by_name["cross_entropy"]["inputs"]["labels"] == ["int64", "int32"]
    assert "cpu" in by_name["gelu_bw"]["backends"] and "erf_saturates" in by_name["gelu_bw"]["planted"]


def test_list_tells_people_what_targets_promise() -> None:
    told = fuzz("list").out
    assert "gelu_bw: GELU backward" in told and "inside the envelope of float32 arithmetic" in told
    assert "rows of M do not depend on their batch" in told and "swapped_param_grads" in told


TWO_TARGETS = """
from fuzz import size, target, tensor

N = size("N", 1, 8)


@target(x=tensor(N), reference=lambda x: dict(y=2 * x), linear="x")
def doubled(x):
    \"""Twice the input.\"""
    return dict(y=x + x)


@target(x=tensor(N), reference=lambda x: dict(y=x / missing))
def halved(x):
    return dict(y=x / 2)
"""


def test_list_describes_the_targets_of_a_file_and_checks_their_declarations(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(TWO_TARGETS)
    done = fuzz("list", f"{path}:doubled", "gelu_bw")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("doubled: Twice the input.\n  inputs    x float32") and "\ngelu_bw: " in done.out
    done = fuzz("list", str(path))
    assert done.code == 2 and done.err.count("\n") == 1 and "target 'halved'" in done.err and "missing" in done.err
    done = fuzz("list", str(tmp_path / "none.py"))
    assert done.code == 2 and done.err == f"fuzz: target file {tmp_path / 'none.py'} does not exist\n"


def test_a_target_that_cannot_run_does_not_end_the_run_of_others(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    head, doubled, halved = TWO_TARGETS.split("@target")
    path.write_text(f"{head}@target{halved}\n\n@target{doubled}")
    done = fuzz("run", str(path), "--cases", "20", "--json", "--corpus", str(tmp_path / "corpus"))
    assert done.code == 2 and f"fuzz: {path}:halved: target 'halved'" in done.err
    assert [(run["target"], run["cases"]) for run in done.json["runs"]] == [(f"{path}:doubled", 20)]


def test_doctor_says_what_this_machine_can_run() -> None:
    value = fuzz("doctor", "--json").json
    assert set(value) >= {"machine", "python", "packages", "backends", "dtypes", "notes"}
    assert value["backends"]["cpu"] == "ready"
    assert value["packages"]["torch"] != "missing" and "bfloat16" in value["dtypes"]["cpu"]
    assert value["triton"] == f"{value['packages']['triton']}, tested"
    told = fuzz("doctor")
    assert told.code == 0 and "ready" in told.out


def test_doctor_warns_of_a_triton_that_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_version", {"triton": "3.10.1"}.get)
    assert environment.tested_triton() == "3.10.1, untested"
    assert any(
        "triton 3.10.1 is untested; 3.6.0, 3.7.1, 3.8.0, 3.9.0 are tested" in note
        for note in environment.known_problems()
    )


def test_the_version_is_told_by_both_ways_to_start(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--version"], capture_output=True, text=True, cwd=root, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, f"fuzz {__version__}\n")


def test_no_arguments_tell_how_it_is_used() -> None:
    told = fuzz("--help").out
    for name in ("list", "run", "replay", "shrink", "show", "mark", "new", "doctor"):
        assert re.search(rf"\b{name}\b", told)


def test_an_internal_error_exits_with_3_and_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("fuzz.run.environment.describe_machine", broken)
    done = fuzz("doctor")
    assert done.code == 3 and "internal error" in done.err and "ZeroDivisionError: a bug" in done.err


def test_replay_wants_an_open_entry_to_fail_and_a_fixed_one_to_pass(saved: Path) -> None:
    opened = fuzz("replay", saved.parent, "--json")
    assert opened.code == 0
    assert opened.json == {
        "passed": 1, "failed": 0, "entries": [
            {"path": str(saved), "status": "open", "backend": "cpu", "reproduced": True, "passed": True},
        ], "skipped": 0,
    }  # fmt: skip
    corpus.mark(saved, "fixed", "said so")
    closed = fuzz("replay", saved, "--json")
    assert (closed.code, closed.json["failed"], closed.json["entries"][0]["reproduced"]) == (1, 1, True)
    corpus.mark(saved, "accepted", "by design")
    assert fuzz("replay", saved).code == 0


def test_replay_notices_that_an_open_entry_agrees_now(saved: Path) -> None:
    from dataclasses import replace

    corpus.write(saved, replace(corpus.read(saved), planted=""))
    told = fuzz("replay", saved)
    assert told.code == 1
    assert "marked open, but it agrees now; fuzz mark" in told.out and "0 passed, 1 failed" in told.out
    entry = corpus.read(saved)
    corpus.write(saved, replace(entry, provenance=replace(entry.provenance, backend="cuda")))
    told = fuzz("replay", saved)
    assert told.code == 0 and "open, seen on cuda; agrees on cpu" in told.out
    corpus.mark(saved, "fixed", "it is")
    assert fuzz("replay", saved).code == 0


def test_replay_of_an_empty_folder_is_no_green_replay(tmp_path: Path) -> None:
    done = fuzz("replay", tmp_path, "--json")
    assert (done.code, done.out) == (2, "") and f"no entry in {tmp_path}" in done.err


def test_replay_goes_on_past_what_it_cannot_run(saved: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    entry = corpus.read(saved)
    lost = corpus.save_in_folder(saved.parent, replace(entry, case=replace(entry.case, target="absent")))
    (saved.parent / "a.yaml").write_text("format: fuzz-case/999\n")
    junit = tmp_path / "junit.xml"
    done = fuzz("replay", saved.parent, "--junit", junit)
    assert done.code == 2 and "1 passed, 0 failed, 2 skipped" in done.out
    assert f"skipped {lost}: no target 'absent'" in done.err and "a.yaml" in done.err
    assert junit.read_text().count("<error ") == 2 and 'errors="2"' in junit.read_text()
    corpus.mark(saved, "fixed", "said so")
    assert fuzz("replay", saved.parent).code == 1


def test_a_worker_that_fails_by_itself_costs_its_entry_and_no_other(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_entry = replay.replay_entry

    def fail(path: Path, *arguments: Any) -> replay.ReplayedEntry:
        if path.stem == "a":
            raise InternalError("Traceback: a mistake")
        return replay_entry(path, *arguments)

    monkeypatch.setattr(replay, "replay_entry", fail)
    shutil.copy(saved, saved.with_name("a.yaml"))
    done = fuzz("replay", saved.parent)
    assert done.code == 3 and "1 passed, 0 failed, 1 skipped" in done.out
    assert f"skipped {saved.with_name('a.yaml')}: internal error in a worker\nTraceback: a mistake" in done.err


def test_the_printed_command_repeats_a_planted_bug_of_a_target_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "kernels" / "fuzz_own.py"
    own.parent.mkdir()
    own.write_text(OWN)
    for extra in ((), ("--corpus", tmp_path / "elsewhere")):
        done = fuzz("run", own, "--planted", "wrong", "--cases", 4, "--max-findings", 1, *extra, "--json")
        (finding,) = done.json["findings"]
        repeat = re.search(r"repeat +fuzz (.+)", done.err)
        assert repeat and fuzz(*shlex.split(repeat[1])).code == 0
        arguments = repeat[1].split()[2:]
        assert "--target" in arguments if extra else not arguments
        assert fuzz("show", "--script", finding["path"], *arguments).code == 0


def test_show_fits_one_screen(found: Run) -> None:
    done = fuzz("show", found.path)
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) < 200
    for part in (
        "gelu_bw (planted: erf_saturates)",
        "accuracy/",
        "N=1",
        "got",
        "want",
        "ulp off",
        "cpu",
        f"fuzz replay {found.path}",
    ):
        assert part in done.out
    assert re.search(r"\(0x[0-9a-f]{8}\)", done.out)


def test_the_script_alone_fails_on_the_planted_kernel_only(found: Run, tmp_path: Path) -> None:
    texts = [fuzz("show", found.path, "--script", *more).out for more in ((), ("--good",))]
    assert not any("from fuzz import" in text or "import fuzz\n" in text for text in texts)
    bad, good = run_programs(tmp_path, texts)
    assert (bad.code, good.code) == (1, 0)
    assert bad.out.startswith("dx.flatten()[0] is") and good.out.startswith("as it should be")


def test_shrink_says_when_a_case_is_as_small_as_it_gets(saved: Path) -> None:
    before = saved.read_bytes()
    done = fuzz("shrink", saved, "--seconds", 300)
    assert done.code == 0 and "is as small as it gets" in done.out
    assert saved.read_bytes() == before


def test_shrink_replaces_a_larger_case(saved: Path) -> None:
    from dataclasses import replace

    from fuzz.model.recipes import Exact
    from fuzz.shrink.passes.dims import resize
    from fuzz.target.loader import load

    entry = corpus.read(saved)
    large = resize(entry.case, load("gelu_bw"), 0, {"N": 5})
    x = large.last.arguments["x"]
    assert isinstance(x.values, Exact)
    path = corpus.save_entry(saved.parent.parent / "large", replace(entry, case=large))
    done = fuzz("shrink", path, "--seconds", 300)
    assert done.code == 0 and "replaces" in done.out
    left = list(path.parent.iterdir())
    assert left != [path] and len(left) == 1
    assert corpus.read(left[0]).case.last.dims == {"N": 1}
    # What somebody said of the smaller case stays when a larger one is shrunk to it again.
    corpus.mark(left[0], "accepted", "by design")
    corpus.save_entry(saved.parent.parent / "large", replace(entry, case=large))
    assert fuzz("shrink", path, "--seconds", 300).code == 0
    assert list(path.parent.iterdir()) == left
    assert (corpus.read(left[0]).status, corpus.read(left[0]).why) == ("accepted", "by design")


def test_mark_changes_the_entry(saved: Path) -> None:
    done = fuzz("mark", saved, "fixed", "--why", "since 1.2")
    assert (done.code, done.out) == (0, f"{saved}: fixed, since 1.2\n")
    assert (corpus.read(saved).status, corpus.read(saved).why) == ("fixed", "since 1.2")


KERNELS = """import torch


def scale(x, weight, factor=2.0, *, flip=False):
    y = x * weight * factor
    return -y if flip else y
"""


def test_a_new_target_runs_once_its_reference_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    path = tmp_path / "fuzz_scale.py"
    done = fuzz("new", f"{tmp_path / 'kernels.py'}:scale", "--output", path)
    assert done.code == 0 and str(path) in done.err
    assert fuzz("new", f"{tmp_path / 'kernels.py'}:scale").out.rstrip() == path.read_text().rstrip()
    unfilled = fuzz("run", path, "--cases", 3)
    assert unfilled.code == 2 and "write the reference of scale" in unfilled.err
    text = path.read_text()
    assert "weight=tensor(N)" in text and "factor=option(2.0)" in text and "flip=option(False, True)" in text
    todo = 'raise NotImplementedError("write the reference of scale")'
    filled = tmp_path / "fuzz_filled.py"
    filled.write_text(text.replace(todo, "y = x * weight * factor\n    return dict(out=-y if flip else y)"))
    assert fuzz("run", filled, "--cases", 30).code == 0


NOISY = '''"""Prints wherever it can."""
from fuzz import size, target, tensor

N = size("N", 1, 8)
print("while it loads")


@target(x=tensor(N), reference=lambda x: dict(y=x))
def noisy(x):
    print("while it runs")
    return dict(y=x.clone())
'''


def test_a_run_in_which_every_case_was_refused_says_so(tmp_path: Path) -> None:
    path = tmp_path / "refuses.py"
    path.write_text(NOISY.replace('print("while it runs")', 'raise ValueError("never")'))
    done = fuzz("run", path, "--cases", 3)
    assert done.code == 2 and "every one of 3 cases was refused" in done.err


def test_what_a_target_prints_does_not_disturb_the_json(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    done = command("run", "noisy.py", "--cases", 3, "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["target"] == "noisy.py" and "while it runs" in done.err


@pytest.fixture
def slow_run(tmp_path: Path) -> Iterator[ForkedProgram]:
    line = ["run", "gelu_bw", "--seconds", "1000", "--corpus", str(tmp_path)]
    process = start_program("-m", "fuzz", *line, folder=tmp_path)
    yield process
    process.process.kill()
    process.wait(60)


def children(pid: int) -> list[int]:
    """Processes whose parent's parent, or parent, is pid."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    direct = [child for child, parent in parents.items() if parent == pid]
    return [child for child, parent in parents.items() if parent == pid or parent in direct]


def test_a_run_that_is_killed_leaves_no_process_behind(slow_run: ForkedProgram) -> None:
    assert slow_run.first_line("stderr").startswith("seed 0")
    until = time.monotonic() + 240
    while len(family := children(slow_run.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    slow_run.send_signal(signal.SIGKILL)
    slow_run.wait(60)
    assert len(family) >= 2 and all(has_ended(pid) for pid in family)
