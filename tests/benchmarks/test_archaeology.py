"""Archaeology: which releases are searched for a target, what counts as repaired, and what the table tells."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from importlib.util import module_from_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bugs import wrong_value

from benchmarks.archaeology.__main__ import release_pairs, to_finish, work
from benchmarks.archaeology.code import digest
from benchmarks.archaeology.plan import Period, chains, draw_third, neighbours, periods, searched, steps
from benchmarks.archaeology.replay import comes_first, is_same_harm
from benchmarks.archaeology.run import EXPLAIN, Failed, Workshop, choose_repaired
from benchmarks.archaeology.search import MOST_ALIKE, MOST_OF_SIGN, Keeper
from benchmarks.archaeology.stand_ins import Finder
from benchmarks.archaeology.table import describe, repaired
from fuzz import corpus
from fuzz.coverage_report.protocol import SourceFunction
from fuzz.model.finding import Finding
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes import BATTERY, fill
from fuzz.target.spec import Target
from fuzz.worker.protocol import WorkerConfig

RUN_FORKED = "benchmarks.archaeology.run.run_forked"
FOUND_NOTHING = {"cases": 9, "rejected": 0, "findings": []}
RELEASES = ("a==1", "a==2", "a==3", "a==4", "a==5")
OLD_CODE, NEW_CODE = Period("x", ("a==1",)), Period("y", ("a==2",))
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
    assert [period.last for period in searched(found, neighbours(RELEASES))] == ["a==2", "a==4"]


def test_a_drawn_pair_leaves_the_steps_of_other_releases_out() -> None:
    found = periods(RELEASES, dict(zip(RELEASES, "vwxyz", strict=True)))
    chosen = [("a==2", "a==3")]
    assert [(old.last, new.first) for old, new in steps(found, chosen)] == chosen
    assert [period.last for period in searched(found, chosen)] == ["a==2"]


def test_findings_go_on_from_pair_to_pair_where_all_of_these_are_chosen() -> None:
    v, w, x, y, z = periods(RELEASES, dict(zip(RELEASES, "vwxyz", strict=True)))
    chosen = [("a==1", "a==2"), ("a==3", "a==4"), ("a==4", "a==5")]
    assert chains([v, w, x, y, z], chosen) == [[(y, z)], [(x, y), (y, z)], [(v, w)]]


def test_a_third_is_drawn_by_the_seed() -> None:
    pairs = neighbours(range(31))
    assert len(draw_third(pairs, 0)) == 10
    assert draw_third(pairs, 0) == draw_third(pairs, 0) != draw_third(pairs, 1)


def test_no_pair_has_a_release_without_a_target() -> None:
    lacks, has = {"absent": "no mean"}, {"absent": ""}
    probed = [
        {"lines": [has]},
        {"lines": [lacks]},
        {"lines": [lacks, has]},
        {"error": "it was too slow"},
        {"lines": []},
    ]
    assert release_pairs(list(RELEASES), probed) == [("a==1", "a==3"), ("a==3", "a==4")]


def finding(**changed: Any) -> dict[str, Any]:
    """A finding as a step has it."""
    plain = {"oracle": "accuracy", "output": "y", "symptom": "value", "severity": "high", "verdict": "kernel"}
    plain |= {"options": {}, "path": "e"}
    return {
        **plain,
        "needs": [],
        "elements": 3,
        "message": "y is wrong",
        "found_in": "a==1",
        "slipped": False,
    } | changed


def result(*found: dict[str, Any]) -> dict[str, Any]:
    """A result with one step, of which everything is repaired."""
    step = {"target": "tiny", "older": "a==2", "newer": "a==3", "repaired": list(found)}
    step |= {"unconfirmed": [], "still": [], "unexamined": [], "similar": 0}
    pairs = neighbours(RELEASES)
    counts = {
        "seconds": 20,
        "cases": 0,
        "searches": 2,
        "left": 0,
        "unfinished": 0,
        "absent": [],
        "newest": [finding(target="tiny")],
    }
    return {"releases": RELEASES, "pairs": pairs, "third": pairs[1:2], "steps": [step], **counts}


def test_findings_of_one_cause_are_one_repaired_bug() -> None:
    made = result(finding(severity="low"), finding(), finding(needs=["x layout"]))
    assert [one["severity"] for one in repaired(made)] == ["high", "high"]
    assert "Repaired: 2 (2 high, 0 medium, 0 low, 0 not graded), of 1 targets and releases." in describe(made)
    assert "| a==3 | yes | tiny | accuracy | y | value | high | 1 | y is wrong |" in describe(made)


def test_the_table_names_no_folder_of_a_machine() -> None:
    seen = "out-of-bounds load in kernel k at /home/me/.archaeology/a/releases/a==1/a/ops.py:7: x"
    assert "in kernel k at a/ops.py:7: x |" in describe(result(finding(message=seen)))


def test_an_unshrunk_case_is_one_more_of_what_a_shrunk_one_shows() -> None:
    unshrunk = finding(slipped=True, needs=["x dtype"], message="unshrunk")
    assert [one["message"] for one in repaired(result(unshrunk, finding(), finding(needs=["k"])))] == ["y is wrong"] * 2
    assert [one["message"] for one in repaired(result(unshrunk, finding(symptom="sign")))] == ["unshrunk", "y is wrong"]


def test_of_repaired_cases_those_with_different_options_are_chosen_the_smallest_first() -> None:
    found = [finding(elements=size, options={"k": name}) for size, name in ((9, "b"), (3, "a"), (2, "a"), (1, "a"))]
    chosen = choose_repaired([*found, finding(symptom="sign", elements=8)])
    assert [(one["elements"], one["symptom"]) for one in chosen] == [
        (1, "value"), (9, "value"), (2, "value"), (8, "sign"),
    ]  # fmt: skip


def test_cases_of_one_cause_that_several_searches_found_are_finished_once() -> None:
    steps = [result(finding(path=f"{number}"), finding(path=f"{number}b"))["steps"][0] for number in range(4)]
    nothing = type("Nothing", (), {"done": lambda self, name: None})()
    assert len(to_finish(nothing, [step | {"text": "tiny.py"} for step in steps])) == 3


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


def release_with(folder: Path, version: str, mean: str) -> None:
    """A release of the library whose mean is this."""
    package = folder / "releases" / f"a=={version}" / "tinylib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"def mean(x):\n    return {mean}\n")


def test_a_bug_is_repaired_where_it_agrees_on_the_next_release(tmp_path: Path) -> None:
    for version, count in (("1", "(x.numel() + 1)"), ("2", "x.numel()")):
        release_with(tmp_path, version, f"x.sum(-1, keepdim=True) / {count}")
    targets = tmp_path / "targets"
    targets.mkdir()
    (targets / "tiny.py").write_text(TARGET)
    workshop = Workshop(tmp_path, jobs=1, seconds=0, cases=20)
    probes = [workshop.probe(release, targets)["lines"] for release in RELEASES[:2]]
    assert [line["absent"] for lines in probes for line in lines] == ["", ""]
    assert probes[0][0]["code"] != probes[1][0]["code"]
    old, new = (Period(lines[0]["code"], (release,)) for lines, release in zip(probes, RELEASES, strict=False))
    text = probes[0][0]["text"]
    step = workshop.follow(text, [(old, new)], 0)
    signs = {(one["oracle"], one["output"], one["symptom"]) for one in step["repaired"]}
    assert ("accuracy", "y", "value") in signs and {one["found_in"] for one in step["repaired"]} == {"a==1"}
    assert step["still"] == step["unconfirmed"] == step["unexamined"] == []
    found = next(one for one in step["repaired"] if one["symptom"] == "value") | {"text": text}
    finished = workshop.finished(step, found)
    assert finished["repaired"] and not finished["slipped"] and finished["verdict"] == "kernel"
    assert finished["severity"] and finished["elements"] <= found["elements"]
    assert (tmp_path / found["path"]).is_file()


SLIPPING = "x.mean(-1, keepdim=True) * {} + (0.5 if x.numel() < 8 else 0)"
"""What shrinking makes small is wrong in every release."""


def test_a_case_that_slips_to_another_cause_counts_unshrunk(tmp_path: Path) -> None:
    for version, factor in (("1", "2"), ("2", "1")):
        release_with(tmp_path, version, SLIPPING.format(factor))
    text = str(tmp_path / "tiny.py")
    Path(text).write_text(TARGET)
    workshop = Workshop(tmp_path, jobs=1, seconds=0, cases=40)
    step = workshop.follow(text, [(OLD_CODE, NEW_CODE)], 0)
    assert step["still"] and step["repaired"]
    found = step["repaired"][0] | {"text": text}
    finished = workshop.finished(step, found)
    assert finished["repaired"] and finished["slipped"] and finished["verdict"] == "kernel"
    assert finished["elements"] == found["elements"] >= 8 and EXPLAIN in finished["finished"]


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
    ran = {"a==1": FOUND_NOTHING, "a==2": {"error": "it was too slow", "findings": []}}
    monkeypatch.setattr(RUN_FORKED, lambda release, *_, **__: (0, json.dumps(ran[release.name]), ""))
    for period in of_target:
        (tmp_path / "releases" / period.last).mkdir(parents=True)
    workshop = Workshop(tmp_path, jobs=1, seconds=0)
    work(workshop, {"tiny.py": of_target}, neighbours(RELEASES), 0)
    with pytest.raises(Failed, match="too slow"):
        workshop.follow("tiny.py", [(new, newest)], 0)
    done = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("steps/*/*/*"))
    assert done == ["steps/a==1/tiny/a==2.json", "steps/a==1/tiny/a==3.json"]


def test_what_shows_in_the_next_release_goes_on_to_the_one_after_it(tmp_path: Path) -> None:
    for version, mean in {
        "1": "x.sum(-1, keepdim=True)",
        "2": "x.sum(-1, keepdim=True)",
        "3": "x.mean(-1, keepdim=True)",
    }.items():
        release_with(tmp_path, version, mean)
    (tmp_path / "tiny.py").write_text(TARGET)
    oldest, old, new = [Period(code, (release,)) for code, release in zip("xyz", RELEASES, strict=False)]
    workshop, text = Workshop(tmp_path, jobs=1, seconds=0, cases=20), str(tmp_path / "tiny.py")
    first, second = (workshop.follow(text, [(oldest, old), (old, new)], number) for number in (0, 1))
    assert first["still"] and not first["repaired"] and second["repaired"] and not second["still"]


def test_replays_that_one_process_has_no_time_for_are_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "releases" / "a==1").mkdir(parents=True)
    ran = list[str]()

    def replay_first(release: Path, module: str, target: str, seconds: str, *paths: str, **_: object) -> Any:
        ran.append(Path(paths[0]).name)
        return 0, json.dumps({"path": paths[0], "needs": [], "shows": "agrees"}) if ran[-1] != "b" else "", "died"

    monkeypatch.setattr(RUN_FORKED, replay_first)
    for _ in range(2):
        workshop = Workshop(tmp_path, jobs=1, seconds=0)
        lines = workshop.replayed("a==1", "tiny.py", [{"path": path} for path in "abc"])
        shown = {path: line["shows"] for path, line in lines.items()}
        assert shown == {"a": "agrees", "b": "not run: died", "c": "agrees"} and ran == ["a", "b", "c"]


def test_a_search_keeps_few_cases_that_are_alike(tmp_path: Path, gelu: Target) -> None:
    triage: Any = SimpleNamespace()
    config, options = WorkerConfig(gelu.name, None, "cpu"), RunOptions(gelu.name)
    keeper = Keeper(options, gelu, config, tmp_path, versions={}, triage=triage, watcher=Watcher(), process_start=0.0)
    case = fill(RandomEngine(gelu, 0).case(0), BATTERY[0])
    dx, also = wrong_value("dx"), replace(wrong_value("dx"), symptom="sign")
    for number in range(12):
        for size in (7, 5, 6):
            call = replace(case.last, options={"k": number}, dims={**case.last.dims, "N": size})
            keeper.handle(size, case.with_call(0, call), [dx, also, wrong_value("db")], ())
    kept = list(keeper.save())
    signs = Counter((one["output"], one["symptom"]) for one in kept)
    assert signs == {("dx", "value"): MOST_OF_SIGN, ("db", "value"): MOST_OF_SIGN}
    assert max(Counter((one["output"], one["options"]["k"]) for one in kept).values()) <= MOST_ALIKE
    assert len({one["options"]["k"] for one in kept}) == MOST_OF_SIGN
    for one in kept:
        entry = corpus.read(Path(one["path"]))
        assert entry.case.elements() == one["elements"] and entry.provenance.cut_off == "confirmation"


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


ONLY_X, ONLY_W = "where only x requires a gradient", "where only w requires a gradient"


@pytest.mark.parametrize(
    ("old", "new", "hidden"),
    [
        (("twice", "dx changes when the backward runs again"), ("subset", f"dx: None {ONLY_X}"), True),
        (("before", "dx is wrong with exp before each input"), ("twice", "dx changes"), False),
        (("raised", f"raised E {ONLY_X}"), ("subset", f"dw: None {ONLY_W}"), False),
        (("raised", f"raised E {ONLY_W}"), ("raised", f"raised E {ONLY_X}"), True),
    ],
)
def test_a_graph_after_the_first_that_disagrees_is_not_examined(
    old: tuple[str, str], new: tuple[str, str], hidden: bool
) -> None:
    target: Any = SimpleNamespace(requested_writes=lambda _: ())
    inputs = dict.fromkeys("xw", SimpleNamespace(is_float=True))
    case: Any = SimpleNamespace(last=SimpleNamespace(arguments=inputs))
    was, now = (Finding("autograd", ("dx",), symptom, message) for symptom, message in (old, new))
    assert comes_first(now, was, target, case) == hidden


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (("bounds", "stray-read"), ("bounds", "stray-read"), True),
        (("bounds", "stray-read"), ("bounds", "unwritten"), False),
        (("accuracy", "value"), ("accuracy", "value"), False),
    ],
)
def test_a_tensor_that_a_release_calls_otherwise_repairs_nothing(
    old: tuple[str, str], new: tuple[str, str], same: bool
) -> None:
    was, now = Finding(old[0], ("gk",), old[1], ""), Finding(new[0], ("g",), new[1], "")
    assert is_same_harm(now, was) == same and not now.shares_output(was)
