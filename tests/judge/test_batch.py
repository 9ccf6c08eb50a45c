"""Folders of solutions: which problem each one has, what is judged again, and what becomes of processes that end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from commands import fuzz
from judge_stub import make_stub
from processes import room_for
from programs import run_program

from fuzz.errors import UsageError
from fuzz.judge import command
from fuzz.judge.batch.host import Stopped
from fuzz.judge.batch.listing import list_folder
from fuzz.judge.batch.results_file import ResultsFile
from fuzz.judge.batch.run_batch import run_batch
from fuzz.judge.batch.task import JudgeTask, TaskOptions, decode_task, encode_task
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.result.judgement import RIGHT, WRONG, Judgement
from fuzz.judge.result.score import CRASHED, OUT_OF_TIME, UNREADABLE
from tests.judge.problems import RELU, as_solution

OPTIONS = TaskOptions("kernelbench", "cpu", 0.0)


def make_tasks(folder: Path, *texts: str) -> list[JudgeTask]:
    (folder / "problem.py").write_text("")
    for number, text in enumerate(texts):
        (folder / f"{number}.py").write_text(text)
    problem = str(folder / "problem.py")
    return [JudgeTask(OPTIONS, problem, str(folder / f"{number}.py")) for number in range(len(texts))]


def touch(folder: Path, *names: str, text: str = "") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def listed(format: str, solutions: Path, problems: Path) -> dict[str, str]:
    found = list_folder(format, solutions, problems)
    return {
        str(Path(solution).relative_to(solutions)): str(Path(problem).relative_to(problems))
        for problem, solution in found.pairs
    }


def test_a_solution_is_named_after_its_problem_or_lies_in_a_folder_that_is(tmp_path: Path) -> None:
    problems = touch(tmp_path / "problems", "level1/23_Softmax.py", "level2/23_Conv.py", "relu.py")
    names = ["23_Softmax.py", "23_Softmax__v2.py", "relu_7.py", "relu.best.py", "relu/deep/any.py"]
    solutions = touch(tmp_path / "solutions", *names, "level_2_problem_23_sample_0_kernel.py", "unknown.py", "_no.py")
    softmax, relu, conv = "level1/23_Softmax.py", "relu.py", "level2/23_Conv.py"
    assert listed("kernelbench", solutions, problems) == {
        **dict(zip(names, [softmax, softmax, relu, relu, relu], strict=True)),
        "level_2_problem_23_sample_0_kernel.py": conv,
    }
    assert list_folder("kernelbench", solutions, problems).left_out == {
        str(solutions / "unknown.py"): "no problem has its name"
    }


def test_a_problem_may_have_underlines_and_dots_in_its_name(tmp_path: Path) -> None:
    names = {
        "38_Norm__4.py": "38_Norm_.py", "38_Norm___warp.py": "38_Norm_.py", "38_Norm_.best.py": "38_Norm_.py",
        "a__b_2.py": "a__b.py", "a__b__v1.x.py": "a__b.py", "a__c.py": "a.py", "v1.5_7.py": "v1.5.py",
    }  # fmt: skip
    problems = touch(tmp_path / "problems", *set(names.values()))
    assert listed("kernelbench", touch(tmp_path / "solutions", *names), problems) == names


def test_a_name_that_two_problems_have_says_nothing(tmp_path: Path) -> None:
    problems = touch(tmp_path / "problems", "a/x.py", "b/x.py", "y.py")
    found = list_folder("kernelbench", touch(tmp_path / "s", "x.py", "y.py"), problems)
    assert found.left_out == {str(tmp_path / "s" / "x.py"): "several problems have its name"}


def test_tasks_are_folders_and_definitions_have_names_of_their_own(tmp_path: Path) -> None:
    tasks = touch(tmp_path / "tasks", "sum/task.yml", "sort/task.yml")
    assert listed("gpumode", touch(tmp_path / "s", "sum/a.py", "sort.py"), tasks) == {
        "sum/a.py": "sum",
        "sort.py": "sort",
    }
    definitions = touch(tmp_path / "d", "file.json", text='{"name": "norm"}')
    solutions = touch(tmp_path / "t", "any.json", text='{"definition": "norm"}')
    assert listed("flashinfer", solutions, definitions) == {"any.json": "file.json"}


def test_files_of_operations_need_no_problems_and_differ_by_their_folders(tmp_path: Path) -> None:
    folder = touch(tmp_path / "ops", "abs__default/a.py", "exp__default/a.py")
    pairs = list_folder("ops", folder, None).pairs
    assert pairs == (("", f"{folder}/abs__default/a.py"), ("", f"{folder}/exp__default/a.py"))
    options = TaskOptions("ops", "cpu", 0.0)
    assert len({JudgeTask(options, *pair).key for pair in pairs}) == 2


@pytest.mark.parametrize("problems", [None, "nowhere", "empty"])
def test_a_batch_without_problems_is_one_line(tmp_path: Path, problems: str | None) -> None:
    solutions = touch(tmp_path / "s", "a.py")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="^[^\n]*(--problems|no folder|no problem)[^\n]*$"):
        list_folder("kernelbench", solutions, tmp_path / problems if problems else None)


def test_what_is_the_same_is_judged_once_and_never_again(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path, "RIGHT", "WRONG", "RIGHT")
    file = tmp_path / "results.jsonl"
    first = run_batch(tasks, 2, ResultsFile(file), lambda one: None, make_stub)
    assert (first.counts["RIGHT"], first.counts["WRONG"], first.known, first.exit_code) == (2, 1, 0, 1)
    assert len(file.read_text().splitlines()) == 2 and first.per_minute > 0
    # The last line is what a writer leaves that is killed while it writes.
    file.write_text(file.read_text() + '{"key": "')
    (tmp_path / "1.py").write_text("CHEAT")
    again = run_batch(tasks, 1, ResultsFile(file), lambda one: None, make_stub)
    assert (again.counts["RIGHT"], again.counts["CHEAT"], again.known) == (2, 1, 2)
    assert run_batch(tasks, 1, ResultsFile(file), lambda one: None, make_stub).known == 3


def test_a_judgement_that_the_disk_takes_in_part_is_one_line_and_costs_no_other(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results.jsonl")
    judgement = {"verdict": "RIGHT", "score": 1.0, "codes": [], "reason": "", "seconds": 1.0}
    results.add("a", judgement)
    room = results.path.stat().st_size + 10
    with room_for(room), pytest.raises(UsageError, match="^cannot write [^\n]*File too large$"):
        results.add("b", judgement)
    results.add("c", judgement)
    assert list(ResultsFile(results.path).kept) == ["a", "c"]


def test_options_and_problem_are_part_of_the_key(tmp_path: Path) -> None:
    (task,) = make_tasks(tmp_path, "RIGHT")
    keys = {task.key, JudgeTask(TaskOptions("kernelbench", "cpu", 1.0), task.problem, task.solution).key}
    (tmp_path / "problem.py").write_text("other")
    keys.add(task.key)
    assert len(keys) == 3 and JudgeTask(OPTIONS, task.problem, task.solution, share=1 << 30).key in keys


def test_the_files_of_a_task_arrive_as_they_are() -> None:
    task = JudgeTask(OPTIONS, "/problem.py", "/solution.py", spec="/spec.yaml")
    files = {"/problem.py": bytes(range(256))}
    assert decode_task(encode_task(task, files)) == (task, files)


def test_a_process_that_ends_costs_its_task_only(tmp_path: Path) -> None:
    tasks = make_tasks(tmp_path, "ends", "RIGHT")
    tasks.append(JudgeTask(OPTIONS, "", str(tmp_path / "nowhere.py")))
    file = tmp_path / "results.jsonl"
    found = run_batch(tasks, 1, ResultsFile(file), lambda one: None, make_stub)
    codes = {Path(one["solution"]).name: one["codes"] for one in found.judgements}
    assert codes == {"0.py": [CRASHED], "1.py": [], "nowhere.py": [UNREADABLE]}
    assert all(one["score"] is None for one in found.judgements if one["codes"])
    # That is no judgement, and is not kept.
    assert len(ResultsFile(file).kept) == 1


def test_a_task_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    (task,) = make_tasks(tmp_path, "hangs")
    with closing(make_stub(0.0)) as host:
        found = host.judge(task)
    assert (found["verdict"], found["score"], found["codes"]) == ("UNSUPPORTED", None, [OUT_OF_TIME])


def test_a_judgement_that_nobody_wants_ends(tmp_path: Path) -> None:
    (task,) = make_tasks(tmp_path, "hangs")
    host = make_stub()
    with pytest.raises(Stopped):
        host.judge(task, lambda: True)
    assert host._process is None


def test_a_process_that_is_left_in_a_task_answers_no_other_one(tmp_path: Path) -> None:
    first, second = make_tasks(tmp_path, "RIGHT", "WRONG")

    def fail() -> bool:
        raise UsageError("the store does not answer")

    with closing(make_stub()) as host:
        with pytest.raises(UsageError, match="does not answer"):
            host.judge(first, fail)
        assert host._process is None
        assert host.judge(second)["verdict"] == "WRONG"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch", "nowhere"], "no folder nowhere"),
        (["--batch", ".", "--workers", "0", "--problems", "."], "--workers must be at least 1"),
        (["pytorch", "--batch", "."], "unknown format 'pytorch'"),
        (["a", "b", "--batch", "."], "--batch takes one argument at most"),
        (["--memory", "-1", "--batch", "."], "--memory must not be negative"),
        (["a", "b", "--workers", "2"], "--workers is for --batch"),
        (["a", "b", "--results", "r.jsonl"], "--results is for --batch"),
        ([], "fuzz judge takes PROBLEM"),
    ],
)
def test_a_wrong_command_is_one_line(arguments: list[str], words: str) -> None:
    answer = fuzz("judge", *arguments)
    assert answer.code == 2 and words in answer.complaint


def test_a_folder_is_judged_and_then_known(tmp_path: Path) -> None:
    problems = touch(tmp_path / "problems", "relu.py", text=RELU)
    solutions = touch(tmp_path / "solutions", "relu.py", text=as_solution(RELU))
    touch(solutions, "relu_1.py", text=as_solution(RELU).replace("torch.relu(x)", "0 * x"))
    arguments = ["judge", "--batch", str(solutions), "--problems", str(problems), "--seconds", "0", "--backend", "cpu"]
    done = run_program("-m", "fuzz", *arguments, "--workers", "1")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and sorted(line.split()[0] for line in lines[:2]) == ["RIGHT", "WRONG"], done.stderr
    assert "2 solutions: 1 RIGHT, 1 WRONG; 2 in" in lines[2] and "a minute" in lines[2]
    again = fuzz(*arguments, "--json")
    assert (again.code, again.json["known"], again.json["counts"]["WRONG"]) == (1, 2, 1)
    scores = {Path(one["solution"]).name: (one["score"], one["codes"]) for one in again.json["judgements"]}
    assert scores == {"relu.py": (None, ["incomplete/odd-values"]), "relu_1.py": (0.0, ["accuracy/value"])}
    assert len([json.loads(line) for line in (solutions / "judgements.jsonl").read_text().splitlines()]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "rya"], "--cluster must be local or ray, and is 'rya'"),
        (["--address", "here:1"], "--address and --gpus-per-worker are for --cluster ray"),
        (["--cluster", "ray", "--backend", "cuda"], "the backend cuda needs --gpus-per-worker, such as 0.25"),
    ],
)
def test_where_a_batch_runs_is_checked_first(tmp_path: Path, words: list[str], said: str) -> None:
    touch(tmp_path, "problems/relu.py", "solutions/relu.py", text=RELU)
    ran = fuzz("judge", "--batch", str(tmp_path / "solutions"), "--problems", str(tmp_path / "problems"), *words)
    assert ran.code == 2 and said in ran.err, ran.err
    assert not list(tmp_path.glob("solutions/*.jsonl"))


def test_what_is_judged_is_printed_before_what_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge_all(options: JudgeOptions, announce: object) -> Iterator[Judgement]:
        yield Judgement(RIGHT, "of the first", "p.py", "s.py", "cpu")
        yield Judgement(WRONG, "of the second", "p.py", "t.py", "cpu")
        raise UsageError("there is no more")

    monkeypatch.setattr(command, "judge_all", judge_all)
    ran = fuzz("judge", "p.py", tmp_path)
    assert ran.code == 2 and "there is no more" in ran.err
    assert ran.out.index("of the first") < ran.out.index("\n\n") < ran.out.index("of the second")
