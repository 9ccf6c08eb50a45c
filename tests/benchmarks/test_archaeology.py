"""Archaeology: which releases are searched for a target, what counts as repaired, and what the table tells."""

from __future__ import annotations

import json
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archaeology.__main__ import descend
from benchmarks.archaeology.code import digest
from benchmarks.archaeology.plan import Period, chains, draw_third, neighbours, periods, searched, steps
from benchmarks.archaeology.run import Failed, Workshop
from benchmarks.archaeology.stand_ins import Finder
from benchmarks.archaeology.table import describe, repaired
from fuzz.coverage_report.protocol import SourceFunction

RUN_FORKED = "benchmarks.archaeology.run.run_forked"
FOUND_NOTHING = {"cases": 9, "rejected": 0, "findings": []}
RELEASES = ("a==1", "a==2", "a==3", "a==4", "a==5")
OLD, NEW = Period("x", ("a==1", "a==2")), Period("y", ("a==3",))
TARGET = """
from fuzz import size, target, tensor
from tinylib import mean

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x.mean(-1, keepdim=True)))
def tiny_mean(x):
    return dict(y=mean(x))
"""

LACKING = """
import torch
import tinylib
from fuzz import size, target, tensor

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x.mean(-1, keepdim=True)))
def tiny_mean(x):
    if x.numel() % 3 == 0:
        torch.ones(1 << 32)
    raise NotImplementedError("no mean")
"""


def digest_of(folder: Path, source: str, line: int = 1) -> str:
    """The digest of the function at a line of a library's only module."""
    folder.mkdir()
    (folder / "library.py").write_text(source)
    return digest([SourceFunction(str(folder / "library.py"), line, "f")], folder)


def test_comments_and_other_functions_do_not_change_the_code_that_runs(tmp_path: Path) -> None:
    plain = digest_of(tmp_path / "1", "def f():\n    return 1\n")
    assert digest_of(tmp_path / "2", '# new\n"""Doc."""\nimport os\ndef f():\n    "Doc."\n    return 1\n', 4) == plain
    assert digest_of(tmp_path / "3", "def f():\n    return 1\ndef g():\n    return 2\n") == plain


def test_a_function_and_a_constant_of_its_module_change_it(tmp_path: Path) -> None:
    source = (
        "def f():\n    return SIZE\nif 1:\n    from a import b as SIZE\n    c = SIZE\nSIZE = OTHER = {}\nTHIRD = {}\n"
    )
    plain = digest_of(tmp_path / "1", source.format(1, 2))
    assert digest_of(tmp_path / "2", source.format(1, 3)) == plain
    assert digest_of(tmp_path / "3", source.format(2, 2)) != plain
    assert digest_of(tmp_path / "4", source.format(1, 2).replace("return SIZE", "return -SIZE")) != plain


def test_releases_with_the_same_code_are_searched_once() -> None:
    codes = {"a==1": "x", "a==2": "x", "a==4": "y", "a==5": "x"}
    found = periods(RELEASES, codes)
    assert [period.releases for period in found] == [("a==1", "a==2"), ("a==4",), ("a==5",)]
    assert [period.last for period in searched(found, neighbours(RELEASES))] == ["a==2", "a==4", "a==5"]


def test_a_drawn_pair_leaves_the_steps_of_other_releases_out() -> None:
    found = periods(RELEASES, dict(zip(RELEASES, "vwxyz", strict=True)))
    chosen = [("a==2", "a==3")]
    assert [(old.last, new.first) for old, new in steps(found, chosen)] == chosen
    assert [period.last for period in searched(found, chosen)] == ["a==2", "a==5"]


def test_findings_go_on_from_pair_to_pair_where_all_of_these_are_chosen() -> None:
    v, w, x, y, z = periods(RELEASES, dict(zip(RELEASES, "vwxyz", strict=True)))
    chosen = [("a==1", "a==2"), ("a==3", "a==4"), ("a==4", "a==5")]
    assert chains([v, w, x, y, z], chosen) == [[(y, z)], [(x, y), (y, z)], [(v, w)]]


def test_a_third_is_drawn_by_the_seed() -> None:
    pairs = neighbours(range(31))
    assert len(draw_third(pairs, 0)) == 10
    assert draw_third(pairs, 0) == draw_third(pairs, 0) != draw_third(pairs, 1)


def finding(**changed: Any) -> dict[str, Any]:
    """A finding as a step has it."""
    plain = {"oracle": "accuracy", "output": "y", "symptom": "value", "severity": "high", "verdict": "kernel"}
    return {**plain, "needs": [], "elements": 3, "message": "y is wrong", "found_in": "a==1", "path": "e"} | changed


def result(*found: dict[str, Any]) -> dict[str, Any]:
    """A result with one step, of which everything is repaired."""
    step = {"target": "tiny", "older": "a==2", "newer": "a==3", "repaired": list(found)}
    step |= {"unconfirmed": [], "still": [], "unexamined": []}
    pairs = neighbours(RELEASES)
    counts = {"seconds": 20, "cases": 0, "searches": 2, "left": 0, "absent": [], "newest": [finding(target="tiny")]}
    return {"releases": RELEASES, "pairs": pairs, "third": pairs[1:2], "steps": [step], **counts}


def test_findings_of_one_cause_are_one_repaired_bug() -> None:
    made = result(finding(severity="low"), finding(), finding(needs=["x layout"]))
    assert [one["severity"] for one in repaired(made)] == ["high", "high"]
    assert "Repaired: 2 (2 high, 0 medium, 0 low, 0 not graded), of 1 targets and releases." in describe(made)
    assert "| a==3 | yes | tiny | accuracy | y | value | high | 1 | y is wrong |" in describe(made)


@pytest.mark.parametrize(
    "changed",
    [
        {"verdict": "reference"},
        {"oracle": "fault", "symptom": "compile-error"},
        {"oracle": "fault", "symptom": "raised", "message": "raised ImportError: cannot import name 'a' from 'b'"},
    ],
)
def test_what_is_not_surely_the_kernels_is_told_apart(changed: dict[str, Any]) -> None:
    assert "Repaired: 0 (" in describe(result(finding(**changed)))


def test_a_bug_is_repaired_where_it_agrees_on_the_next_release(tmp_path: Path) -> None:
    for version, count in (("1", "(x.numel() + 1)"), ("2", "x.numel()")):
        folder = tmp_path / "releases" / f"a=={version}" / "tinylib"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"def mean(x):\n    return x.sum(-1, keepdim=True) / {count}\n")
    targets = tmp_path / "targets"
    targets.mkdir()
    (targets / "tiny.py").write_text(TARGET)
    workshop = Workshop(tmp_path, jobs=1, seconds=0, cases=20)
    probes = [workshop.probe(release, targets)["lines"] for release in RELEASES[:2]]
    assert [line["absent"] for lines in probes for line in lines] == ["", ""]
    assert probes[0][0]["code"] != probes[1][0]["code"]
    old, new = (Period(lines[0]["code"], (release,)) for lines, release in zip(probes, RELEASES, strict=False))
    workshop.search(new, probes[0][0]["text"])
    (step,) = workshop.follow(probes[0][0]["text"], [(old, new)])
    assert [(one["oracle"], one["output"], one["found_in"]) for one in step["repaired"]] == [("accuracy", "y", "a==1")]
    assert step["still"] == step["unconfirmed"] == step["unexamined"] == []


def test_a_release_lacks_a_target_although_some_of_its_inputs_are_too_large(tmp_path: Path) -> None:
    release, targets = tmp_path / "releases" / "a==1" / "tinylib", tmp_path / "targets"
    release.mkdir(parents=True)
    (release / "__init__.py").write_text("")
    targets.mkdir()
    (targets / "tiny.py").write_text(LACKING)
    (line,) = Workshop(tmp_path, jobs=1, seconds=0).probe("a==1", targets)["lines"]
    assert line["absent"] == "NotImplementedError: no mean"


def test_a_search_that_failed_leaves_its_step_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, newest = of_target = [Period(code, (release,)) for code, release in zip("xyz", RELEASES, strict=False)]
    ran = {"a==1": FOUND_NOTHING, "a==2": {"error": "it was too slow", "findings": []}, "a==3": FOUND_NOTHING}
    monkeypatch.setattr(RUN_FORKED, lambda release, *_, **__: (0, json.dumps(ran[release.name]), ""))
    for period in of_target:
        (tmp_path / "releases" / period.last).mkdir(parents=True)
    workshop = Workshop(tmp_path, jobs=1, seconds=0)
    with pytest.raises(Failed, match="too slow"):
        descend(workshop, "tiny.py", of_target, neighbours(RELEASES))
    ran["a==2"] = FOUND_NOTHING
    assert workshop.search(new, "tiny.py")["error"] == "it was too slow"  # Searched again by the next command.
    assert workshop.done("steps/a==2/tiny.json") is None
    assert [step["newer"] for step in workshop.done("steps/a==1/tiny.json")["steps"]] == ["a==2", "a==3"]


def test_what_shows_in_a_newer_release_is_known_to_the_search_of_an_older_one(tmp_path: Path) -> None:
    wrong = {"1": "x.sum(-1, keepdim=True)", "2": "x.sum(-1, keepdim=True)", "3": "x.mean(-1, keepdim=True)"}
    for version, mean in wrong.items():
        folder = tmp_path / "releases" / f"a=={version}" / "tinylib"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"def mean(x):\n    return {mean}\n")
    (tmp_path / "tiny.py").write_text(TARGET)
    oldest, old, new = [Period(code, (release,)) for code, release in zip("xyz", RELEASES, strict=False)]
    workshop, text = Workshop(tmp_path, jobs=1, seconds=0, cases=20), str(tmp_path / "tiny.py")
    descend(workshop, text, [oldest, old, new], neighbours(RELEASES))
    assert [one["seen"] for one in workshop.search(old, text)["findings"]] == ["new"]
    assert "new" not in [one["seen"] for one in workshop.search(oldest, text)["findings"]]
    fates = [workshop.done(f"steps/a=={version}/tiny.json")["steps"] for version in "12"]
    assert [[len(step["repaired"]) for step in steps] for steps in fates] == [[0, 0], [1]]


def test_a_package_with_a_stand_in_has_every_name_and_computes_nothing() -> None:
    finder = Finder(["old.models"])
    assert finder.find_spec("old.ops") is None
    spec = finder.find_spec("old.models.gla")
    assert spec is not None
    module = module_from_spec(spec)

    class Model(module.PreTrained, module.Generation):  # type: ignore[misc, name-defined]
        pass

    assert module.AutoModel.register("x", Model) is not None
    assert module.documented("text")(Model) is Model
    assert not module.is_some_device_available()
    with pytest.raises(TypeError, match="computes nothing"):
        module.ACTIVATIONS["silu"]()(3.0)


@pytest.mark.parametrize(("cases", "rejected", "kept"), [(30, 30, True), (1, 0, True), (1, 1, False), (0, 0, False)])
def test_a_search_of_which_too_few_cases_ran_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cases: int, rejected: int, kept: bool
) -> None:
    ran = json.dumps({"cases": cases, "rejected": rejected, "findings": []})
    monkeypatch.setattr(RUN_FORKED, lambda *_, **__: (0, ran, ""))
    (tmp_path / "releases" / "a==1").mkdir(parents=True)
    workshop = Workshop(tmp_path, jobs=1, seconds=0)
    assert ("error" not in workshop.search(Period("x", ("a==1",)), "tiny.py")) == kept
    assert (workshop.done("runs/a==1/tiny.json") is not None) == kept


def test_jobs_share_no_processor_where_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    for jobs in (3, 8, 16):
        slots = Workshop(tmp_path, jobs=jobs, seconds=0).slots
        assert sorted(cpu for _ in range(jobs) for cpu in slots.get_nowait()) == list(range(16))
