"""What people read while a run goes on."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.report.json import run_json
from fuzz.report.progress import TerminalProgress, cut_off_parts, profile_table, progress_line, summary
from fuzz.run.derived_rejects import AcceptedInput, InvalidInputs
from fuzz.run.options import RunOptions
from fuzz.run.result import WAITS, Result
from fuzz.search.invalid_inputs import InvalidInput
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, Example, Origin
from fuzz.worker.protocol import Harm, Report


def watched() -> tuple[TerminalProgress, io.StringIO]:
    text = io.StringIO()
    return TerminalProgress(Console(file=text, width=120), "fuzz show"), text


def test_the_seed_is_the_first_thing_that_is_told(gelu: Target) -> None:
    progress, text = watched()
    progress.on_start(RunOptions("gelu_bw", seed=7), gelu, "cpu")
    lines = text.getvalue().splitlines()
    assert lines[0] == "seed 7: fuzzing gelu_bw on cpu"
    assert lines[1] == f"promised: {gelu.promises()}" and "inside the envelope" in lines[1]
    assert lines[2] == "no budget given: ends after 60 s; --seconds N or --cases N goes on longer"


def test_a_budget_that_is_given_is_not_remarked_upon(gelu: Target) -> None:
    progress, text = watched()
    progress.on_start(RunOptions("gelu_bw", cases=3), gelu, "cpu")
    assert len(text.getvalue().splitlines()) == 2


def test_progress_names_what_matters(case: Case, entry: Entry) -> None:
    statistics = RunStatistics()
    assert entry.finding
    statistics.learn(case, Report("returned", False, (entry.finding,), ("accuracy",), 0.25))
    line = progress_line(statistics, 2.0, 1)
    wanted = "2.0 s 1 cases 0 cases/s largest agreeing error 0.25 of the bound findings 1 (disagreements: sign 1)"
    assert line.split() == wanted.split()


@pytest.mark.parametrize(("ratio", "is_explained"), [(0.25, False), (0.99996, True)])
def test_an_error_as_large_as_its_bound_is_said_to_be_right(ratio: float, is_explained: bool) -> None:
    statistics = RunStatistics(cases=1, worst=ratio)
    progress, text = watched()
    progress.console.print(summary(Result(RunOptions("gelu_bw"), "cpu", statistics, [], 4.0)))
    line = next(line for line in text.getvalue().splitlines() if "largest error" in line)
    assert f"{ratio:.2f} of the bound where cases agree" in line
    assert ("correct rounding to the output's dtype comes to 1" in line) == is_explained


def test_a_run_that_compiles_says_so() -> None:
    statistics = RunStatistics(cases=2, compiling=0.456)
    assert (
        "2 cases/s  largest agreeing error 0.00 of the bound  compiling 46% of the time  findings 0"
        in progress_line(statistics, 1.0, 0)
    )
    statistics.compiling = 0.09
    assert "compiling" not in progress_line(statistics, 1.0, 0)


def test_the_profile_names_what_took_longest_first() -> None:
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 4.0, profile={"launch": 1.0, "compile": 3.0})
    progress, text = watched()
    progress.console.print(profile_table(result))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert rows == [["activity", "seconds", "share"], ["compile", "3.00", "75.0%"], ["launch", "1.00", "25.0%"]]


def test_the_profile_says_why_each_worker_loads_the_target_itself() -> None:
    progress, text = watched()
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 4.0, loaded_anew="it has threads")
    progress.console.print(profile_table(result))
    assert text.getvalue().splitlines()[-1].strip() == "each clean worker loads the target itself: it has threads"


def test_the_summary_says_that_other_orders_of_programs_were_not_tried() -> None:
    progress, text = watched()
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 4.0, grid_order_only=True)
    progress.console.print(summary(result))
    assert "program orders" in text.getvalue() and "waits for earlier programs" in " ".join(text.getvalue().split())


@pytest.mark.parametrize("count", [0, 12])
def test_plans_that_were_left_out_are_counted_at_the_end(count: int) -> None:
    progress, text = watched()
    result = Result(RunOptions("gelu_bw"), "cuda", RunStatistics(left_out=count), [], 4.0)
    progress.console.print(summary(result))
    assert ("12 plans that Triton refuses to compile" in text.getvalue()) is bool(count)
    assert run_json(result)["plans_left_out"] == count


def test_what_the_machine_lacks_is_told_when_a_case_waits_for_it_and_at_the_end() -> None:
    progress, text = watched()
    lack = "this machine has no room: OSError: [Errno 28] No space left on device: '/cache'"
    progress.on_lack(lack)
    assert text.getvalue() == f"a case could not run, and waits to run again: {lack}\n"
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(cases=1), [], 4.0, profile={WAITS: 3.25}, lack=lack)
    progress.console.print(summary(result))
    shown = " ".join(text.getvalue().split())
    assert f"lacking cases waited 3.2 s to run, the last one for this: {lack}" in shown


def test_names_with_brackets_are_no_markup(entry: Entry) -> None:
    progress, text = watched()
    progress.on_disagreement(entry.case, Finding("accuracy", ("dx",), "sign", "dx[0] is [bold]1[/bold]"), 3)
    assert "case 3 disagrees: accuracy/sign: dx[0] is [bold]1[/bold]" in text.getvalue()


WRONG = Finding("accuracy", ("dx",), "value", "dx: 1 of 2 elements wrong")
REFERENCE = Finding("accuracy", ("dx",), "reference", "the reference of gelu_bw is wrong in 1 of 2 elements")


def test_the_end_says_what_it_cut_off(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Origin(case, "sign"), cut_off="shrinking")
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [bug], 1.0, calls_cut_off=1)
    assert cut_off_parts(result) == [
        "calls stopped while they ran: 1",
        "findings not yet shrunk, with which the next run, or fuzz shrink, goes on: 1",
    ]
    assert cut_off_parts(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0)) == []
    stopped = Result(
        RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, interrupted=True, disagreements_cut_off=[WRONG] * 2
    )
    assert cut_off_parts(stopped) == ["disagreements not confirmed, before the run was interrupted: 2"]


def test_replicas_that_no_oracle_examined_are_counted() -> None:
    progress, text = watched()
    statistics = RunStatistics(cases=20, rejected=3, oracles=Counter(fault=8))
    progress.console.print(summary(Result(RunOptions("gelu_bw"), "cpu", statistics, [], 1.0)))
    assert "20 (3 rejected, 9 unexamined beside replicas that disagree)" in text.getvalue()


@pytest.mark.parametrize(("seen", "severity"), [([WRONG, REFERENCE], "medium"), ([REFERENCE], "low")])
def test_a_run_without_a_confirmed_finding_says_what_disagreements_count_as(seen: list[Finding], severity: str) -> None:
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, disagreements_cut_off=seen)
    progress, text = watched()
    progress.console.print(summary(result))
    told = " ".join(text.getvalue().split())
    assert result.fails() is (severity == "medium")
    assert f"findings none confirmed; what disagreed counts as {severity}" in told


@pytest.mark.parametrize("why", ["the time ended", "the run was interrupted"])
def test_few_of_the_disagreements_that_were_cut_off_are_shown_and_why(entry: Entry, why: str) -> None:
    progress, text = watched()
    assert entry.finding
    if "interrupted" in why:
        progress.on_interrupt()
    for index in range(100):
        progress.on_cut_off(entry.case, entry.finding, index)
    assert text.getvalue().count(f"{why} before that was confirmed") == 3


def test_a_finding_that_is_not_graded_is_said_to_count_as_medium(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Origin(case, "sign"), cut_off="grading")
    (told,) = cut_off_parts(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [bug], 1.0))
    assert told.startswith("findings not yet graded, which count as medium")
    bug.grade = Grade("low", "extreme")
    (told,) = cut_off_parts(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [bug], 1.0))
    assert told.startswith("findings graded for now")


def test_findings_of_possibly_one_cause_stand_beneath_the_first_of_them(case: Case, entry: Entry) -> None:
    assert entry.finding
    nan = replace(entry.finding, symptom="nonfinite")
    bugs = [Bug(Example(case, finding), Origin(case, "sign", n)) for n, finding in enumerate((entry.finding, nan))]
    progress, text = watched()
    progress.console.print(summary(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), bugs, 1.0)))
    first, second = text.getvalue().splitlines()[-2:]
    assert first.split()[:3] == ["finding", "(new,", "not"] and "accuracy/sign" in first
    assert second.split()[:4] == ["possibly", "the", "same", "cause"] and "accuracy/nonfinite" in second


def test_invalid_inputs_that_were_not_refused_are_listed_apart_from_findings(case: Case) -> None:
    invalid = InvalidInput(case.last, "x", "short", "dim 0", "x has 3 elements where N = 4")
    inputs = InvalidInputs(12, (AcceptedInput(invalid, Harm("out-of-bounds load of x[3]", "k.py:7")),))
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, invalid_inputs=inputs)
    progress, text = watched()
    progress.console.print(summary(result))
    lines = " ".join(text.getvalue().split())
    assert "findings none invalid inputs 12 tried, 1 accepted and harmful, which only rejects= would forbid" in lines
    assert "not refused (low) x has 3 elements where N = 4: out-of-bounds load of x[3]" in lines
    assert not result.fails()


def test_many_invalid_inputs_do_not_fill_the_screen(case: Case) -> None:
    invalid = InvalidInput(case.last, "x", "short", "dim 0", "x has 3 elements where N = 4")
    inputs = InvalidInputs(12, (AcceptedInput(invalid, Harm("out-of-bounds load of x[3]", "k.py:7")),) * 9)
    progress, text = watched()
    progress.console.print(
        summary(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, invalid_inputs=inputs))
    )
    lines = " ".join(text.getvalue().split())
    assert lines.count("not refused") == 4 and lines.endswith("and 5 more, which --json lists")
