"""What disagrees ends as one entry for each cause, whoever else saves entries meanwhile."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bugs import make_bug, wrong_value
from handlers import NothingSmaller, first_seen, make_handler, take_triage

from fuzz import corpus
from fuzz.clock import Clock
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.model.dtypes import DTYPES
from fuzz.model.edit import with_values
from fuzz.model.finding import Finding, Verdict
from fuzz.model.grade import FOR_NOW, Grade
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.model.recipes import exact, recipe
from fuzz.report.json import finding_json
from fuzz.run.findings.finding_handler import Disagreement, without_later_calls
from fuzz.run.findings.known_bugs import read_known_bugs
from fuzz.run.shrink_entry import shrink_entry
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes.dims import fill, usual_inputs
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import Trigger
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import Report, WorkerConfig


@dataclass(frozen=True)
class ManualClock(Clock):
    """A monotonic clock that is set by hand."""

    now: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return self.now[0]


def test_other_outputs_are_another_bug_and_possibly_the_same_cause_until_they_are_seen_together(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two_cases
    handler = make_handler(layernorm, tmp_path)
    one, other = make_bug(small, "dbias", triggers=()), make_bug(large, "dweight", triggers=())
    both = make_bug(large, "dx", triggers=(), also=(wrong_value("dbias"),))
    for bug in (one, other, both):
        handler.add_bug(bug, first_seen(bug))
    assert handler.bugs == [one, other] and len(list(corpus.entry_files([tmp_path]))) == 2
    assert one.subjects == wrong_value("dbias", "dx").subjects and one.hits == 2
    unclear = make_bug(
        large, "dbias", "dweight", finding=replace(wrong_value("dbias"), symptom="nonfinite"), triggers=()
    )
    handler.add_bug(unclear, first_seen(unclear))
    assert unclear.least.diagnosis == (f"possibly the same cause as {Path(one.path).name}",)


def test_the_name_of_an_entry_is_said_before_it_is_written(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path)
    watcher = handler.saver.watcher = Names()
    bug = make_bug(two_cases[0], "dx", triggers=())
    handler.add_bug(bug, first_seen(bug))
    assert watcher.said == [(path.name, "") for path in corpus.entry_files([tmp_path])] != []


def test_what_a_known_entry_is_called_once_it_is_joined_with_another_one_is_said_before(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two_cases
    for output in ("dx", "dbias"):
        corpus.save_entry(tmp_path, make_bug(large, output, cut_off="shrinking").to_entry())
    handler = make_handler(layernorm, tmp_path)
    watcher = handler.saver.watcher = Names()
    handler.bugs += read_known_bugs(tmp_path, layernorm, None)
    bug, same = handler.bugs
    before = [same.path, bug.path]
    handler.saver.join(bug, make_bug(small, "dx"), same)
    (path,) = corpus.entry_files([tmp_path])
    assert watcher.said == [(path.name, replaced) for replaced in before]


def test_what_a_bug_needs_is_known_before_the_next_case_is_chosen(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path)
    take_triage(handler, CutOffTriage(""))
    bug = make_bug(two_cases[0], "dx")
    assert handler.add_bug(bug, first_seen(bug)) and bug.triggers is not None


def test_bugs_that_a_later_one_shows_to_be_one_are_merged(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two bugs neither explains the other; a third one, which needs less, explains both."""
    handler = make_handler(layernorm, tmp_path)
    bugs = [make_bug(two_cases[number > 0], name, triggers=()) for number, name in enumerate("abc")]

    def same(old: Bug, new: Bug) -> bool:
        return bool(wrong_value("c").subjects & (old.subjects | new.subjects))

    monkeypatch.setattr(handler.attribution, "have_same_cause", same)
    monkeypatch.setattr(handler.triage, "keep_triggers_of", lambda bug, case: setattr(bug, "triggers", None))
    monkeypatch.setattr(handler.triage, "find_triggers", lambda bug: ())
    for bug in bugs:
        handler.add_bug(bug, first_seen(bug))
    assert len(handler.bugs) == 1 == len(list(corpus.entry_files([tmp_path])))
    assert handler.bugs[0].hits == 3


def test_a_case_counts_for_the_call_that_shows_the_finding(two_cases: tuple[Case, Case]) -> None:
    case = replace(two_cases[0], calls=(two_cases[0].last, two_cases[1].last))
    found = wrong_value("dx")
    assert without_later_calls(case, found).calls == case.calls[:1]
    assert without_later_calls(case, replace(found, call=1)) is case
    assert without_later_calls(case, Finding("fault", ("launcher",), "hung", "h")) is case


@pytest.mark.parametrize("keep_smaller", [True, False])
def test_a_cause_that_another_run_saves_meanwhile_is_not_saved_twice(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, keep_smaller: bool
) -> None:
    small, large = two_cases
    runs = [make_handler(layernorm, tmp_path, keep_smaller_duplicate=keep_smaller) for _ in range(2)]
    for run, case in zip(runs, (large, small), strict=True):
        bug = make_bug(case, "dx")
        run.add_bug(bug, first_seen(bug))
    assert len(list(corpus.entry_files([tmp_path]))) == 1
    assert [(one.known, one.hits) for run in runs for one in run.bugs] == [(False, 1), (True, 1)]


def test_an_entry_whose_bug_another_one_absorbs_is_said_to_be_replaced(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = make_handler(layernorm, tmp_path)
    handler.saver.watcher = Saved()
    kept, other = make_bug(two_cases[0], "dx"), make_bug(two_cases[1], "dweight")
    for bug in (kept, other):
        handler.add_bug(bug, first_seen(bug))
    removed = other.path
    monkeypatch.setattr(handler.saver.attribution, "find_same_cause", lambda bug, among: among[0])
    assert handler.saver._absorb_others(kept) and handler.bugs == [kept]
    assert not Path(removed).exists() and handler.saver.watcher.replaced == {"", removed}


def test_a_case_that_shows_a_cause_again_is_said_to(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = make_handler(layernorm, tmp_path)
    merged: list[tuple[str, int]] = []
    monkeypatch.setattr(handler.watcher, "on_merged", lambda bug, index: merged.append((bug.path, index)))
    for case in two_cases:
        bug = make_bug(case, "dx")
        handler.add_bug(bug, first_seen(bug))
    assert merged == [(handler.bugs[0].path, bug.origin.index)] and len(handler.bugs) == 1


def test_a_campaign_saves_no_second_entry_of_a_cause_that_it_knows(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two_cases
    for case, keep_smaller, entries in ((large, True, 1), (small, False, 1), (small, True, 2)):
        run = make_handler(layernorm, tmp_path, keep_smaller_duplicate=keep_smaller)
        run.bugs += read_known_bugs(tmp_path, layernorm, None)
        bug = make_bug(case, "dx")
        run.add_bug(bug, first_seen(bug))
        assert len(list(corpus.entry_files([tmp_path]))) == entries


def test_the_entry_of_a_cause_that_somebody_has_accepted_stays_alone_and_as_it_is(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    """It was open, so that every later run reported what was accepted."""
    small, large = two_cases
    path = corpus.save_entry(tmp_path, make_bug(large, "dx").to_entry())
    marked = corpus.mark(path, "accepted", "known")
    run = make_handler(layernorm, tmp_path)
    run.bugs += read_known_bugs(tmp_path, layernorm, None)
    bug = make_bug(small, "dx")
    run.add_bug(bug, first_seen(bug))
    assert [corpus.read(path) for path in corpus.entry_files([tmp_path])] == [marked]
    assert [(one.hits, one.accepted) for one in run.bugs] == [(1, True)]


def test_a_finding_that_its_corpus_cannot_take_is_kept_elsewhere(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").write_text("a folder that somebody put a file in the place of, in the middle of a run")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bug = make_bug(case, "dx")
    handler = make_handler(gelu, tmp_path / "corpus", file_lock=lambda folder: nullcontext())
    monkeypatch.setattr("fuzz.run.findings.bug_saver.read_known_bugs", lambda *arguments: [])
    with pytest.raises(CorpusError, match=r"cannot write .*corpus.*; the finding is kept in .*\.yaml$") as caught:
        handler.add_bug(bug, first_seen(bug))
    kept = Path(str(caught.value).rpartition(" ")[2])
    assert corpus.read(kept).case == case and kept.is_relative_to(tmp_path)


def test_what_was_saved_is_kept_elsewhere_too_once_its_folder_is_gone(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    handler, folder = make_handler(layernorm, tmp_path / "corpus"), tmp_path / "corpus"
    bugs = [make_bug(case, name) for case, name in zip(two_cases, ("dx", "dbias"), strict=True)]
    handler.add_bug(bugs[0], first_seen(bugs[0]))
    assert handler.saver.removed == []
    folder.rename(tmp_path / "away")
    folder.touch()
    assert handler.saver.removed == [bugs[0]]
    for act in (partial(handler.saver.save_again, bugs[0]), partial(handler.add_bug, bugs[1], first_seen(bugs[1]))):
        with pytest.raises(
            CorpusError, match=r"cannot write .*corpus.*: .*; the findings? (is|are) kept in "
        ) as caught:
            act()
        kept = corpus.entry_files([Path(str(caught.value).rpartition(" ")[2])])
        shown = {corpus.read(path).case.key for path in kept}
        assert shown == {bug.case.key for bug in (bugs if act.func == handler.add_bug else bugs[:1])}


def test_an_entry_that_a_launcher_deletes_is_told_at_the_end(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path)
    bugs = [make_bug(case, name) for case, name in zip(two_cases, ("dx", "dbias"), strict=True)]
    for bug in bugs:
        handler.add_bug(bug, first_seen(bug))
    Path(bugs[1].path).unlink()
    assert handler.saver.removed == [bugs[1]]


def test_a_finding_that_nothing_can_take_is_told_in_one_line(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "corpus"))
    handler = make_handler(gelu, tmp_path / "corpus", file_lock=lambda folder: nullcontext())
    monkeypatch.setattr("fuzz.run.findings.bug_saver.read_known_bugs", lambda *arguments: [])
    bug = make_bug(case, "dx")
    with pytest.raises(CorpusError, match=r"cannot write .*; nor can the finding be kept elsewhere: "):
        handler.add_bug(bug, first_seen(bug))


class CutOffTriage:
    """Triage whose time ends in the step of that name."""

    def __init__(self, step: str) -> None:
        self.step = step

    def find_primary(self, case: Case, finding: Finding) -> Finding:
        return finding

    def confirm(self, case: Case, finding: Finding, history: object) -> Bug | None:
        if self.step == "confirmation":
            raise OutOfTime
        return make_bug(case, "dx", finding=finding)

    def shows_with_usual_inputs(self, case: Case, finding: Finding) -> bool:
        return True

    def shrink(self, bug: Bug, budget: Budget) -> None:
        bug.cut_off = self.step
        if self.step:
            raise OutOfTime

    def explain(self, bug: Bug) -> None:
        """Says nothing."""

    def find_triggers(self, bug: Bug) -> tuple[Trigger, ...]:
        bug.triggers = ()
        return bug.triggers


class CutOffs(Watcher):
    """Notes the indices of the cases whose confirmation was cut off."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def on_cut_off(self, case: Case, finding: Finding, index: int) -> None:
        self.indices.append(index)


class Names(Watcher):
    """Notes the names that entries are about to take, which no entry has, with the paths of those that they replace."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def on_saving(self, bug: Bug, name: str, replaced: str) -> None:
        assert not bug.path or not Path(bug.path).with_name(name).exists()
        self.said.append((name, replaced))


class Saved(Watcher):
    """Notes the entries that others took the place of."""

    def __init__(self) -> None:
        self.replaced: set[str] = set()

    def on_saved(self, bug: Bug, replaced: str) -> None:
        self.replaced.add(replaced)


def test_what_is_not_confirmed_by_the_deadline_is_counted_and_not_saved(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path, deadline=Deadline())
    take_triage(handler, CutOffTriage("confirmation"))
    handler.watcher = CutOffs()
    handler.handle(3, two_cases[0], [wrong_value("dx")], ())
    handler.deadline.end_now()
    take_triage(handler, CutOffTriage(""))
    handler.handle(4, two_cases[0], [wrong_value("dx")], ())
    assert (handler.cut_off, handler.watcher.indices) == ([wrong_value("dx")] * 2, [3, 4])  # type: ignore[attr-defined]
    assert handler.bugs == [] and list(corpus.entry_files([tmp_path])) == []


def test_what_is_left_of_a_reported_case_is_not_said_to_be_unconfirmed(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path, deadline=Deadline())
    take_triage(handler, CutOffTriage(""))
    handler.watcher = CutOffs()
    handler.handle(3, two_cases[0], [wrong_value("dx")], ())
    handler.deadline.end_now()
    for index in (3, 4):
        handler.handle(index, two_cases[0], [wrong_value("dweight")], ())
    assert (len(handler.bugs), handler.cut_off) == (1, [wrong_value("dweight")])
    assert handler.watcher.indices == [4]  # type: ignore[attr-defined]


def test_what_no_bug_may_explain_of_inputs_that_are_not_extreme_is_known(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    """Another output is not explained, nor another class of symptom of one output."""
    handler = make_handler(layernorm, tmp_path, deadline=Deadline())
    take_triage(handler, CutOffTriage(""))
    usual, extreme = (usual_inputs(two_cases[0]), fill(two_cases[0], recipe("huge", 1)))
    handler.handle(3, usual, [wrong_value("dx")], ())
    handler.deadline.end_now()
    nan = replace(wrong_value("dx"), symptom="nonfinite")
    for index, case in enumerate((usual, extreme), 4):
        for finding in (wrong_value("dx"), wrong_value("dweight"), nan):
            handler.handle(index, case, [finding], ())
    assert len(handler.bugs) == 1 and handler.cut_off.count(wrong_value("dweight")) == 2
    assert handler.unexplained_cut_off == [wrong_value("dweight"), nan]


def test_a_wrong_reference_does_not_stand_for_what_else_was_not_confirmed(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path, deadline=Deadline())
    take_triage(handler, CutOffTriage("confirmation"))
    reference = replace(wrong_value("dx"), symptom="reference")
    handler.handle(3, two_cases[0], [reference, wrong_value("dweight")], ())
    handler.handle(4, two_cases[1], [reference], ())
    assert handler.cut_off == [wrong_value("dweight"), reference]


def test_a_bug_whose_shrinking_is_cut_off_is_saved_and_goes_on_in_the_next_run(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    first = make_handler(layernorm, tmp_path)
    take_triage(first, CutOffTriage("shrinking"))
    first.handle(3, two_cases[1], [wrong_value("dx")], ())
    (path,) = corpus.entry_files([tmp_path])
    entry = corpus.read(path)
    assert (entry.provenance.cut_off, entry.provenance.first_case) == ("shrinking", 3) and not first.cut_off

    def shrink(bug: Bug, budget: Budget) -> None:
        bug.least, bug.cut_off = replace(bug.least, case=two_cases[0]), ""

    second = make_handler(layernorm, tmp_path)
    take_triage(second, CutOffTriage(""))
    second.triage.shrink = shrink  # type: ignore[method-assign]
    second.bugs += read_known_bugs(tmp_path, layernorm, None)
    names = second.saver.watcher = Names()
    second.shrinker.resume()
    before = str(path)
    (path,) = corpus.entry_files([tmp_path])
    assert names.said == [(path.name, before)]
    after = corpus.read(path)
    assert after.case.key == two_cases[0].key and after.provenance.cut_off == ""
    assert after.provenance.first_case == 3 and [bug.path for bug in second.bugs] == [str(path)]
    assert second.hit_bugs == []


@pytest.mark.parametrize("unshrunk", ["agrees", "disagrees"])
def test_it_is_the_backends_that_differ_where_they_do_so_in_the_unshrunk_case_too(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unshrunk: str
) -> None:
    small, large = two_cases

    def answer(case: Case, *_: object) -> dict[str, str]:
        return {"interpreter": "disagrees" if case.key == small.key else unshrunk}

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.cross_check", answer)
    handler = make_handler(layernorm, tmp_path, with_cross_checks=True)
    bug = make_bug(large, "dx", triggers=())
    monkeypatch.setattr(handler.triage, "shrink", lambda bug, _: setattr(bug, "least", replace(bug.least, case=small)))
    handler.add_bug(bug, first_seen(bug))
    assert bug.least.cross_checks == {"interpreter": "disagrees"}
    assert bug.least.only_on_cpu == (unshrunk == "disagrees")


@pytest.mark.parametrize("same", [True, False])
def test_two_entries_that_were_cut_off_are_one_once_they_are_shrunk_to_one_cause(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    for case in two_cases:
        corpus.save_entry(tmp_path, make_bug(case, "dx", cut_off="shrinking").to_entry())

    def shrink(bug: Bug, budget: Budget) -> None:
        bug.cut_off = ""

    saved = Saved()
    handler = make_handler(layernorm, tmp_path)
    take_triage(handler, CutOffTriage(""))
    handler.saver.watcher = saved
    handler.triage.shrink = shrink  # type: ignore[method-assign]
    monkeypatch.setattr(handler.attribution, "have_same_cause", lambda old, new: same)
    handler.bugs += read_known_bugs(tmp_path, layernorm, None)
    before = {bug.path for bug in handler.bugs}
    handler.shrinker.resume()
    left = list(corpus.entry_files([tmp_path]))
    assert [bug.path for bug in handler.bugs] == [str(path) for path in left] and len(left) == 2 - same
    assert saved.replaced - {""} == before - {bug.path for bug in handler.bugs}
    assert corpus.read(left[0]).case.key == two_cases[0].key or not same


def test_a_later_run_keeps_the_diagnosis_of_a_case_that_stays_the_least(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    said = ("in the unshrunk case (M=12 N=12): dx is truncated", "only with eps=1e-12")
    cut_off = make_bug(two_cases[0], "dx", cut_off="diagnosis")
    cut_off.least = replace(cut_off.least, diagnosis=said)
    corpus.save_entry(tmp_path, cut_off.to_entry())

    def explain(bug: Bug) -> None:
        bug.least, bug.cut_off = replace(bug.least, diagnosis=said[1:]), ""

    handler = make_handler(layernorm, tmp_path)
    take_triage(handler, CutOffTriage(""))
    handler.triage.explain = explain  # type: ignore[method-assign]
    handler.bugs += read_known_bugs(tmp_path, layernorm, None)
    assert finding_json(handler.bugs[0])["diagnosis"] == "; ".join(said)
    handler.shrinker.resume()
    (path,) = corpus.entry_files([tmp_path])
    after = corpus.read(path).provenance
    assert (after.diagnosis, after.cut_off, handler.bugs[0].least.diagnosis) == (said, "", said)


def test_an_entry_whose_shrinking_is_cut_off_again_stays_as_it_was(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    for _ in range(2):
        run = make_handler(layernorm, tmp_path)
        take_triage(run, CutOffTriage("shrinking"))
        run.bugs += read_known_bugs(tmp_path, layernorm, None)
        run.shrinker.resume()
        run.handle(3, two_cases[1], [wrong_value("dx")], ())
    (path,) = corpus.entry_files([tmp_path])
    assert corpus.read(path).case.key == two_cases[1].key and run.bugs[0].hits == 1


@pytest.mark.parametrize(("limit", "left"), [(60.0, 0.5), (4.0, 1.3)])
def test_shrinking_leaves_time_to_verify_and_to_grade_before_the_deadline(
    layernorm: Target, tmp_path: Path, limit: float, left: float
) -> None:
    handler = make_handler(layernorm, tmp_path, deadline=Deadline(3.0, clock := ManualClock()))
    seconds: list[float] = []
    handler.triage.shrink = lambda bug, budget: seconds.append(budget.seconds)  # type: ignore[method-assign]
    handler.budgets.time_limit = limit
    bug = make_bug(RandomEngine(layernorm, 0).case(0), "dx")
    handler.add_bug(bug, first_seen(bug))
    assert clock.monotonic() == 0.0 and seconds == pytest.approx([min(left, limit / 2)])


def test_a_bug_that_usual_inputs_do_not_show_is_shrunk_for_a_shorter_time(
    layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = make_handler(layernorm, tmp_path)
    handler.budgets.time_limit = 120.0
    seconds: list[float] = []
    handler.triage.shrink = lambda bug, budget: seconds.append(budget.seconds)  # type: ignore[method-assign]
    for usual, output in ((True, "dx"), (False, "dweight")):
        monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding, usual=usual: usual)
        bug = make_bug(RandomEngine(layernorm, 0).case(0), output)
        handler.add_bug(bug, first_seen(bug))
    assert seconds == [60.0, 20.0]


def test_a_bug_is_kept_where_time_ends_while_its_cause_is_looked_for(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(triage: Triage, case: Case, oracle: str, **how: bool) -> Report:
        raise OutOfTime

    handler = make_handler(layernorm, tmp_path)
    monkeypatch.setattr(NothingSmaller, "examine", examine)
    for case, output in zip(two_cases, ("dx", "dweight"), strict=True):
        bug = make_bug(case, output)
        handler.add_bug(bug, first_seen(bug))
    assert len(handler.bugs) == 2 and len(list(corpus.entry_files([tmp_path]))) == 2


def test_where_time_ends_what_one_case_of_one_seed_showed_two_runs_is_one_bug(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time(*_: object) -> None:
        raise OutOfTime

    handlers = []
    for number in range(3):
        handler = make_handler(layernorm, tmp_path, keep_smaller_duplicate=False)
        monkeypatch.setattr(handler.attribution, "find_same_cause", out_of_time)
        bug = make_bug(two_cases[number > 0], "dweight" if number > 1 else "dx")
        handler.add_bug(bug, replace(first_seen(bug), index=3))
        handlers.append(handler)
    assert len(list(corpus.entry_files([tmp_path]))) == 2
    assert [sum(bug.hits for bug in handler.bugs) for handler in handlers] == [1, 1, 1]
    assert handlers[1].bugs[0].known and not handlers[2].bugs[-1].known


def test_a_bug_is_graded_before_other_backends_run_its_case(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", lambda *arguments: steps.append("grade"))
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.cross_check", lambda *_: steps.append("cross-check") or {})
    handler = make_handler(gelu, tmp_path, with_cross_checks=True, with_grades=True)
    bug = make_bug(case, "dx")
    handler.add_bug(bug, first_seen(bug))
    assert steps == ["grade", "cross-check"]


def graded(bug: Bug, *_: object) -> None:
    bug.grade = Grade("low", "extreme")


def test_a_bug_is_saved_and_shown_before_it_is_graded(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry says until then what a later run has to go on with."""
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", graded)
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.cross_check", lambda *_: {"interpreter": "agrees"})
    handler = make_handler(gelu, tmp_path, with_cross_checks=True, with_grades=True)
    tasks: list[Any] = []
    handler.postprocessor.defer = tasks.append
    bug = make_bug(case, "dx")
    assert handler.add_bug(bug, first_seen(bug)) and (bug.cut_off, bug.counts("medium")) == ("", True)
    seen = []
    while tasks:
        entry = corpus.read(path := Path(bug.path))
        seen.append((entry.provenance.cut_off, entry.severity))
        tasks.pop(0)()
    entry = corpus.read(path)
    assert seen == [("grading", None), ("cross-check", "low")] and entry.provenance.cut_off == ""
    assert entry.provenance.cross_checks == {"interpreter": "agrees"} and not bug.counts("medium")
    assert list(corpus.entry_files([tmp_path])) == [path]


@pytest.mark.parametrize(("reason", "expected"), [(f"{FOR_NOW}few were tried", "high"), ("", "low")])
def test_an_entry_that_is_graded_for_now_is_graded_where_it_is_shrunk(
    case: Case, monkeypatch: pytest.MonkeyPatch, reason: str, expected: str
) -> None:
    def grade(bug: Bug, *_: object) -> None:
        bug.grade = Grade("high", "ordinary")

    monkeypatch.setattr("fuzz.run.shrink_entry.grade_bug", grade)
    bug = make_bug(case, "dx", grade=Grade("low", "extreme", reason=reason))
    triage: Any = SimpleNamespace(
        confirm=lambda *_: make_bug(case, "dx"), shrink=lambda *_: None, explain=lambda bug: None
    )
    again = shrink_entry(bug.to_entry(), triage, Budget())
    assert again is not None and again.severity == expected


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_the_interpreter_speaks_against_the_cpu_backend_alone(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On a GPU a value may be wrong by a rounding that neither of the two has."""
    answers = {"cpu": "disagrees", "interpreter": "disagrees"}
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.cross_check", lambda *_: answers)
    handler = make_handler(gelu, tmp_path, with_cross_checks=True)
    handler.postprocessor.worker_config = WorkerConfig("gelu_bw", None, name)
    bug = make_bug(case, "dx")
    handler.add_bug(bug, first_seen(bug))
    assert bug.least.cross_checks == answers and bug.least.only_on_cpu == (name == "cpu")


@pytest.mark.parametrize(
    ("usual_cases", "shown_by_usual", "verdict", "expected"),
    [
        (2000, False, "kernel", ("low", "for now: none of 2,000 other inputs of the run showed it")),
        (399, False, "kernel", None),
        (2000, True, "kernel", None),
        (0, True, "reference", ("low", "the reference is wrong, and the kernel right")),
    ],
)
def test_what_a_run_has_no_time_to_grade_is_low_where_only_its_extreme_inputs_show_it(
    case: Case, tmp_path: Path, usual_cases: int, shown_by_usual: bool, verdict: str, expected: Any
) -> None:
    handler = make_handler(load("softmax"), tmp_path)
    bug = make_bug(huge(case), "dx")
    bug.least = replace(bug.least, verdict=Verdict(verdict))
    handler.add_bug(bug, first_seen(bug))
    bug.cut_off, bug.grade, bug.shown_by_usual = "grading", None, shown_by_usual
    handler.postprocessor.with_grades = True
    handler.finish(usual_cases)
    kept = corpus.read(Path(bug.path)).grade
    assert (kept and (kept.severity, kept.reason)) == expected


def test_it_is_noted_whether_inputs_that_are_not_extreme_show_a_bug(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases that ran, or its own case with such inputs."""
    handler, plain = make_handler(gelu, tmp_path), with_values(case, 0, "x", recipe("ones"))
    monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding: False)
    plain = with_values(plain, 0, "dy", recipe("ones"))
    bug = make_bug(huge(plain), "dx")
    handler.add_bug(bug, first_seen(bug))
    assert not bug.shown_by_usual
    handler.record_hit(bug, Disagreement(7, 0.0, huge(plain), bug.finding))
    assert not bug.shown_by_usual
    handler.record_hit(bug, Disagreement(8, 0.0, plain, bug.finding))
    assert bug.shown_by_usual
    other = make_bug(huge(plain), "dy")
    monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding: True)
    handler.add_bug(other, first_seen(other))
    assert other.shown_by_usual


def huge(case: Case) -> Case:
    """The case with values of 2^126 in x."""
    call = case.last
    size = math.prod(call.arguments["x"].stored_shape(call.dims))
    return with_values(case, 0, "x", exact(np.full(size, 0x7E800000, np.uint32), DTYPES["float32"]))


def test_a_bug_was_first_seen_when_its_case_disagreed(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    handler = make_handler(layernorm, tmp_path)
    take_triage(handler, CutOffTriage(""))
    handler.handle(3, two_cases[1], [wrong_value("dx")], (), put=12.5)
    assert [bug.origin.seconds for bug in handler.bugs] == [12.5]


def test_grading_is_postponed_while_something_new_waits(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grade_slowly(bug: Bug, triage: Triage, budget: Budget, *_: object) -> None:
        bug.cut_off = "grading"
        if not replace(budget, started=budget.started - 3.0).left():
            budget.postponed = True
            raise OutOfTime
        bug.cut_off = ""
        graded(bug)

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", grade_slowly)
    handler, tasks, news = make_handler(gelu, tmp_path, with_grades=True), list[Any](), iter([False, True, False])
    handler.budgets.time_limit, handler.budgets.has_news = 60.0, lambda: next(news)
    handler.postprocessor.defer = tasks.append
    bug = make_bug(case, "dx")
    handler.add_bug(bug, first_seen(bug))
    seen = []
    while tasks:
        tasks.pop(0)()
        seen.append((bug.grade is not None, bug.unfinished))
    assert seen == [(False, "grading"), (True, "")]


@pytest.mark.parametrize("disagrees", [True, False])
def test_what_a_run_has_no_time_to_grade_is_graded_by_the_next_one(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disagrees: bool
) -> None:
    def out_of_time(bug: Bug, *_: object) -> None:
        raise OutOfTime

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", out_of_time)
    first, bug = make_handler(gelu, tmp_path, with_grades=True), make_bug(case, "dx")
    first.add_bug(bug, first_seen(bug))
    (path,) = corpus.entry_files([tmp_path])
    assert bug.cut_off == corpus.read(path).provenance.cut_off == "grading"

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", graded)
    second = make_handler(gelu, tmp_path, with_grades=True)
    second.bugs += read_known_bugs(tmp_path, gelu, None)
    monkeypatch.setattr(second.triage, "confirm", lambda *_: bug if disagrees else None)
    monkeypatch.setattr(second.triage, "shrink", None)
    second.shrinker.resume()
    entry = corpus.read(path)
    expected = ("", "low") if disagrees else ("grading", None)
    assert (entry.provenance.cut_off, entry.severity) == expected
    assert (second.bugs[0].cut_off, second.bugs[0].path) == (expected[0], str(path))


def test_a_bug_that_is_graded_for_now_is_saved_so_and_graded_by_the_next_run(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grade_for_now(bug: Bug, *_: object) -> None:
        bug.grade, bug.grade_in_doubt = Grade("low", "extreme", reason=FOR_NOW), True
        raise OutOfTime

    def grade(bug: Bug, *_: object) -> None:
        bug.grade, bug.grade_in_doubt = Grade("high", "ordinary"), False

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", grade_for_now)
    first, bug = make_handler(gelu, tmp_path, with_grades=True), make_bug(case, "dx")
    first.add_bug(bug, first_seen(bug))
    (path,) = corpus.entry_files([tmp_path])
    entry = corpus.read(path)
    assert (entry.severity, entry.provenance.cut_off) == ("low", "grading") and not bug.counts("medium")

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", grade)
    second = make_handler(gelu, tmp_path, with_grades=True)
    second.bugs += read_known_bugs(tmp_path, gelu, None)
    monkeypatch.setattr(second.triage, "confirm", lambda *_: bug)
    second.shrinker.resume()
    entry = corpus.read(path)
    assert (entry.severity, entry.provenance.cut_off) == ("high", "")


def test_a_bug_that_is_not_shrunk_to_the_end_is_graded_and_again_once_it_is(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    severities = iter(["low", "high"])

    def grade(bug: Bug, *_: object) -> None:
        bug.grade = Grade(next(severities), "extreme")

    def shrink(bug: Bug, budget: Budget) -> None:
        bug.least, bug.cut_off = replace(bug.least, case=two_cases[0]), ""

    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", grade)
    first = make_handler(layernorm, tmp_path, with_grades=True)
    take_triage(first, CutOffTriage("shrinking"))
    first.handle(3, two_cases[1], [wrong_value("dx")], ())
    (path,) = corpus.entry_files([tmp_path])
    assert (corpus.read(path).severity, corpus.read(path).provenance.cut_off) == ("low", "shrinking")
    second = make_handler(layernorm, tmp_path, with_grades=True)
    take_triage(second, CutOffTriage(""))
    second.triage.shrink = shrink  # type: ignore[method-assign]
    second.bugs += read_known_bugs(tmp_path, layernorm, None)
    second.shrinker.resume()
    (path,) = corpus.entry_files([tmp_path])
    assert (corpus.read(path).severity, corpus.read(path).provenance.cut_off) == ("high", "")


def test_a_bug_that_was_merged_meanwhile_is_not_graded(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", None)
    handler, bug, tasks = make_handler(gelu, tmp_path, with_grades=True), make_bug(case, "dx"), list[Any]()
    handler.postprocessor.defer = tasks.append
    handler.add_bug(bug, first_seen(bug))
    handler.bugs.clear()
    tasks.pop()()
    assert tasks == []


def test_what_the_least_case_does_not_show_is_handled_once_more(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    """And what is filed later; without what an earlier case of the same kind would be shrunk again for."""
    handler = make_handler(layernorm, tmp_path)
    small, large = two_cases

    def shrink(bug: Bug, budget: Budget) -> None:
        bug.least = replace(bug.least, case=small, finding=wrong_value(bug.finding.outputs[0]))
        bug.triggers = ()

    handler.triage.shrink = shrink  # type: ignore[method-assign]
    later = Finding("mutation", ("x",), "written", "m")
    left = handler.handle(5, large, [wrong_value("dx", "dweight", "dbias"), later], ())
    assert left == (wrong_value("dweight", "dbias"), later)
    assert handler.bugs[0].sought == wrong_value("dx")
    assert handler.handle(5, large, [wrong_value("dx")], ()) == ()
    assert [bug.hits for bug in handler.bugs] == [1] and not handler.is_enough
    handler.options = replace(handler.options, max_findings=1)
    assert handler.is_enough and handler.handle(5, large, left, ()) == () and len(handler.bugs) == 1


def test_a_fault_of_an_earlier_call_is_that_of_the_case_that_ends_with_it(layernorm: Target, tmp_path: Path) -> None:
    """After a known fault no later call is made, whatever that one is."""
    died = Finding("fault", ("launcher",), "died", "the worker process died of SIGSEGV")

    class OneRowDies(NothingSmaller):
        def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
            dies = any(call.dims["M"] == 1 for call in case.calls)
            return Report("", False, (died,) if dies else (), ORACLE_NAMES)

    plain = RandomEngine(layernorm, 0).case(1).last
    bad, good = (replace(plain, dims={**plain.dims, "M": rows}) for rows in (1, 3))
    case = RandomEngine(layernorm, 0).case(1)
    handler = make_handler(layernorm, tmp_path)
    worker: Any = SimpleNamespace(timeout=1.0)
    take_triage(handler, OneRowDies(layernorm, worker, ()))
    handler.attribution.triage = handler.triage
    for number, calls in enumerate([(bad,), (bad, good), (good, bad, good), (good, bad)]):
        handler.handle(number, replace(case, calls=calls, split=None), [died], ())
    assert [(len(bug.case.calls), bug.hits) for bug in handler.bugs] == [(1, 4)]


@pytest.mark.parametrize("is_hit", [True, False])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_known_bug_is_graded_again_where_more_ordinary_inputs_show_it(
    case: Case, gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hit: bool, accepted: bool
) -> None:
    """By a hit, or by a case that was shrunk; once in a run, and not where somebody accepted it."""
    extreme = with_values(case, 0, "x", recipe("subnormals", 1))
    ordinary = with_values(case, 0, "x", recipe("normal", 1, exponent=0))
    known = make_bug(extreme, "dx", known=True, accepted=accepted, grade=Grade("low", "extreme"))
    graded: list[Bug] = []
    monkeypatch.setattr("fuzz.run.findings.bug_postprocessor.grade_bug", lambda bug, *_: graded.append(bug))
    handler = make_handler(gelu, tmp_path, with_grades=True)
    handler.saver.save(known)
    handler.bugs.append(known)
    monkeypatch.setattr(handler.triage, "confirm", lambda *_: known)
    monkeypatch.setattr(handler.saver, "find_same_cause", lambda _, among: known if among else None)
    expected = [[], [] if accepted else [known], [] if accepted else [known]]
    for again, graded_then in zip((extreme, ordinary, ordinary), expected, strict=True):
        bug = make_bug(again, "dx")
        handler.record_hit(known, first_seen(bug)) if is_hit else handler.add_bug(bug, first_seen(bug))
        assert graded == graded_then
