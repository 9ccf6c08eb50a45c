"""What people read: one screen for a finding, one line for progress, one table at the end."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from fuzz.model.case import Case, Split
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.recipes import Exact, recipe
from fuzz.report.json import finding_json
from fuzz.report.progress import Progress, progress_line
from fuzz.report.text import screen
from fuzz.run.options import RunOptions
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, Example, Sighting
from fuzz.worker.protocol import Report


def test_a_finding_is_told_on_one_screen(entry: Entry) -> None:
    lines = screen(replace(entry, why="w"), "a/path.yaml", "fuzz replay a/path.yaml").splitlines()
    assert lines == [
        "gelu_bw (planted: erf_saturates)   accuracy/sign: dx: 1 of 2 elements wrong",
        "",
        "  N=2",
        "    dy  float32 N = normal/1 seed=7 exponent=0",
        "    x   float32 N = [1.0, -4.0]",
        "",
        "  dx[1]  got 0.5 (0x3f000000)  want -0.5  3 ulp off, 1e-09 allowed",
        "  1 of 2 elements disagree",
        "",
        "  seen     backend cpu; 10/10 runs; verdict unadjudicated",
        "  status   open: w",
        "  saved    a/path.yaml",
        "  repeat   fuzz replay a/path.yaml",
    ]


def test_calls_splits_and_layouts_are_told(case: Case) -> None:
    call = case.last
    moved = call.with_argument("x", replace(call.arguments["x"], layout=Layout(step=2, offset=1)))
    text = screen(Entry(replace(case, calls=(call, moved), split=Split(0, 2, 3, 4))), "p", "r")
    assert "call 2 of 2: N=2" in text and "strided (step=2, offset=1)" in text
    assert "split: rows 0..1 again, with 3 other rows before and 4 after" in text


@pytest.mark.parametrize("count", [1, 12, 500])
def test_a_screen_stays_a_screen(case: Case, count: int) -> None:
    words = tuple(range(count))
    large = replace(case.last.arguments["x"], values=Exact(words, "float32"))
    made = case.with_call(0, replace(case.last, dims={"N": count}).with_argument("x", large))
    lines = screen(Entry(made), "p", "r").splitlines()
    assert len(lines) < 40 and max(map(len, lines)) < 300


def watched() -> tuple[Progress, io.StringIO]:
    text = io.StringIO()
    return Progress(Console(file=text, width=120), "fuzz show"), text


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
    assert line.split() == "2.0 s 1 cases 0 cases/s worst error/bound 0.250 findings 1 (disagreements: sign 1)".split()


def test_names_with_brackets_are_no_markup(entry: Entry) -> None:
    progress, text = watched()
    progress.on_disagreement(entry.case, Finding("accuracy", ("dx",), "sign", "dx[0] is [bold]1[/bold]"), 3)
    assert "case 3 disagrees: accuracy/sign: dx[0] is [bold]1[/bold]" in text.getvalue()


def test_a_findings_json_tells_the_shrunk_case(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Sighting(case, "sign", 5, 1.5), hits=7, path="p.yaml")
    value = finding_json(bug)
    assert (value["dims"], value["elements"], value["calls"], value["hits"], value["first_case"]) == (
        {"N": 2},
        4,
        1,
        7,
        5,
    )
    assert value["id"] == Entry(case, entry.finding).name.removesuffix(".yaml")


def test_feedback_counts_rejected_cases_apart(case: Case) -> None:
    statistics = RunStatistics()
    statistics.learn(case, Report("rejected: no", True, (), ()))
    statistics.learn(case, Report("returned", False, (), ("fault", "accuracy"), 0.5))
    assert (statistics.cases, statistics.rejected, statistics.worst) == (2, 1, 0.5)
    assert dict(statistics.oracles) == {"fault": 1, "accuracy": 1}
    shares = statistics.distribution()
    assert shares["dims"] == {"N": {"least": 2, "most": 2}}
    assert shares["recipes"] == {recipe("normal").name: 0.5, "exact": 0.5}
