"""Commands that work on the same files at once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence

from benchmarks.attacks.attack import ONE_LINE, Kind
from benchmarks.attacks.kinds.campaign_files import GOOD
from benchmarks.attacks.kinds.entry_texts import BASE
from benchmarks.attacks.kinds.service_process import Service
from benchmarks.attacks.kinds.target_files import BROKEN, RUN
from benchmarks.attacks.trial import FUZZ, LONGEST, Answer, Trial, check_answer, end_group, require
from fuzz import corpus

KIND = Kind("commands side by side")


def at_once(trial: Trial, commands: Sequence[Sequence[object]]) -> list[Answer]:
    """The answers of commands that are started at once."""
    started = []
    for number, command in enumerate(commands):
        paths = [trial.folder / f"{number}.{name}" for name in ("out", "err")]
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            started.append((trial.start(FUZZ, *command, stdout=out, stderr=err), paths))
    answers, until = [], time.monotonic() + 2 * LONGEST
    for process, paths in started:
        try:
            code = process.wait(max(until - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            end_group(process)
            require(False, f"no answer of {process.args[1:3]!r}")
        answers.append(Answer(code, *(path.read_text(encoding="utf-8", errors="replace") for path in paths)))
        check_answer(answers[-1])
    return answers


def entries(trial: Trial) -> int:
    return len(list(corpus.entry_files([trial.work / "found"])))


@KIND.attack("each finds the same one, and there is one entry")
def three_runs_on_one_corpus(trial: Trial) -> None:
    """Runs a wrong target three times at once, into one folder of findings."""
    trial.write("x.py", BROKEN)
    answers = at_once(trial, [("run", "x.py", *RUN, "--seed", 0)] * 3)
    require([answer.code for answer in answers] == [1, 1, 1], f"exit codes {[answer.code for answer in answers]}")
    require(entries(trial) == 1, f"{entries(trial)} entries")


@KIND.attack("the run ends with its finding, or in one line, within its time")
def corpus_that_is_removed(trial: Trial) -> None:
    """Removes the folder of findings again and again while a run saves into it."""
    trial.write("x.py", BROKEN)
    with (trial.folder / "out").open("wb") as out, (trial.folder / "err").open("wb") as err:
        process = trial.start(FUZZ, "run", "x.py", *RUN, "--json", stdout=out, stderr=err)
    until = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < until:
        shutil.rmtree(trial.work / "found", ignore_errors=True)
        time.sleep(0.02)
    require(process.poll() is not None, "the run does not end")
    answer = Answer(process.returncode, *((trial.folder / name).read_text(errors="replace") for name in ("out", "err")))
    check_answer(answer)
    require(answer.code == 1 or len(answer.complaints) == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("each is answered, and the entry is whole and has one of the two texts")
def marks_and_replays_at_once(trial: Trial) -> None:
    """Marks one entry by four commands, replays it by two, and shows it by two, at once."""
    path = "found/gelu_bw/dx-sign-b5936751.yaml"
    trial.write(path, BASE)
    marks = [
        ("mark", path, status, "--why", why)
        for status, why in (("open", "a"), ("accepted", "b" * 400))
        for _ in range(2)
    ]
    at_once(trial, [*marks, *[("replay", "--backend", "cpu", path)] * 2, *[("show", path)] * 2])
    entry = corpus.read(trial.work / path)
    require(entry.why in ("a", "b" * 400), f"the reason is {entry.why[:50]!a}")


@KIND.attack(f"one runs, the other ends in {ONE_LINE}")
def two_campaigns_of_one_folder(trial: Trial) -> None:
    """Starts one campaign twice at once."""
    trial.write("targets.py", BROKEN)
    trial.write("c.yaml", GOOD)
    answers = at_once(trial, [("campaign", "c.yaml", "--resume")] * 2)
    require(
        sorted(answer.code for answer in answers) in ([1, 2], [1, 1]),
        f"exit codes {[answer.code for answer in answers]}",
    )
    require(entries(trial) == 1, f"{entries(trial)} entries")


@KIND.attack("there is one entry, and both campaigns end in order")
def two_campaigns_on_one_corpus(trial: Trial) -> None:
    """Starts two campaigns at once that share targets, findings and store, and nothing else."""
    trial.write("targets.py", BROKEN)
    for name in ("a", "b"):
        trial.write(f"{name}.yaml", GOOD.replace("folder: state", f"folder: state-{name}"))
    answers = at_once(trial, [("campaign", f"{name}.yaml") for name in ("a", "b")])
    require(
        [answer.code for answer in answers] == [1, 1],
        f"exit codes {[answer.code for answer in answers]}: {answers[1].err[-300:]!a}",
    )
    require(entries(trial) == 1, f"{entries(trial)} entries")


@KIND.attack("one store with one finding; each command ends with 0, or in one line")
def rebuilds_at_once(trial: Trial) -> None:
    """Rebuilds one store by four commands at once."""
    trial.write("corpus/gelu_bw/dx-sign-b5936751.yaml", BASE)
    line = ("store", "rebuild", "--store", "sqlite:///store.sqlite", "--corpus", "corpus", "--json")
    for answer in at_once(trial, [line] * 4):
        require(answer.code == 0 or len(answer.complaints) == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")
    require(trial.fuzz(*line).json["findings"] == 1, "not one finding")


@KIND.attack("a whole report on what could be read, or one line")
def report_while_entries_go(trial: Trial) -> None:
    """Reports on a hundred entries that are removed meanwhile."""
    for number in range(100):
        trial.write(f"corpus/gelu_bw/{number}.yaml", BASE)
    process = trial.start(FUZZ, "report", "--no-plots", "--out", "out.html", "corpus", stdout=-3, stderr=-3)
    for path in sorted((trial.work / "corpus" / "gelu_bw").iterdir()):
        path.unlink()
        time.sleep(0.03)
    code = process.wait(LONGEST)
    require(code in (0, 2), f"exit code {code}")
    page = trial.work / "out.html"
    require(not page.exists() or page.read_text(encoding="utf-8").rstrip().endswith("</html>"), "half a report")


@KIND.attack("the next run finds the same one, and there is one whole entry")
def run_that_is_killed(trial: Trial) -> None:
    """Kills a run and its group three times, at later moments, and runs it again."""
    trial.write("x.py", BROKEN)
    for seconds in (3.0, 5.0, 8.0):
        process = trial.start(FUZZ, "run", "x.py", *RUN, stdout=-3, stderr=-3)
        time.sleep(seconds)
        end_group(process)
    answer = trial.fuzz("run", "x.py", *RUN)
    require(answer.code == 1 and entries(trial) == 1, f"exit code {answer.code}, {entries(trial)} entries")


@KIND.attack(f"one serves, the other ends in {ONE_LINE}")
def two_services_on_one_port(trial: Trial) -> None:
    """Starts a service at the port of another one."""
    with Service(trial) as service:
        trial.refused("serve", "--port", service.port, "--store", "sqlite:///other.sqlite")
