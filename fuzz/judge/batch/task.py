"""Defines what is judged: a solution, its problem and the options; and the key by which it is judged once only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError, os_errors_as
from fuzz.files import read_file
from fuzz.judge.formats import GPUMODE, KERNELBENCH, OPS
from fuzz.judge.formats.spec import ENDING, find_spec
from fuzz.judge.result.judgement import UNSUPPORTED, Judgement
from fuzz.judge.result.report import VERSION, judgement_json
from fuzz.run.environment import fuzz_version, versions

PACKAGE = Path(__file__).parents[2]
MOST_BYTES = 1 << 24
"""Bytes of one file of a problem or a solution."""
FOLDER_NAME = "folder"
"""What stands for the name of a solution's folder among a problem's files."""
SPEC_NAME = f"spec{ENDING}"
"""The name of a problem's spec among its files."""


@dataclass(frozen=True)
class TaskOptions:
    """`backend` is one that runs here, `memory` the bytes of each process, 0 for a share of all."""

    format: str
    backend: str
    seconds: float
    seed: int = 0
    memory: int = 0


@dataclass(frozen=True)
class JudgeTask:
    """A solution to judge. What is in a format of WITHOUT_PROBLEM has none: its path is empty.

    `share` is the memory of each process where the options name none; it is no part of the key. `spec`
    is that of JudgeOptions, empty for the one beside the problem.
    """

    options: TaskOptions
    problem: str
    solution: str
    share: int = 0
    spec: str = ""

    @property
    def key(self) -> str:
        """A hash of the contents of all files, the options and the versions. UsageError where a file is not read."""
        problem = dict(read_problem(Path(self.problem))) if self.problem else {}
        spec = self._find_spec()
        if self.options.format == OPS:
            # A folder's name says which operation a file of BackendBench is for.
            problem[FOLDER_NAME] = Path(self.solution).parent.name.encode()
        if spec is not None:
            problem[SPEC_NAME] = read_checked(spec)
        return content_key(self.options, problem, read_checked(Path(self.solution)))

    @property
    def spec_path(self) -> Path | None:
        return Path(self.spec) if self.spec else None

    def locate(self) -> JudgeTask:
        """The task with absolute paths, and with the spec that is taken."""
        paths = (self.problem, self.solution, self._find_spec() or "")
        problem, solution, spec = (str(Path(path).absolute()) if path else "" for path in paths)
        return replace(self, problem=problem, solution=solution, spec=spec)

    def move_to(self, root: Path) -> JudgeTask:
        """The task where each of its files lies below a folder, at the absolute path that it has here."""
        paths = self.problem, self.solution, self.spec
        problem, solution, spec = (moved(path, root) if path else "" for path in paths)
        return replace(self, problem=problem, solution=solution, spec=spec)

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """(path, content) of all files that are read to judge it, once it is located. UsageError where one is not."""
        for path in filter(None, (self.problem, self.solution, self.spec)):
            for name, content in read_problem(Path(path)):
                yield Path(path) / name, content
        if self.options.format == GPUMODE:
            # Late: it imports torch.
            from fuzz.judge.formats.gpumode import SUBMISSION, read_task

            for file in read_task(Path(self.problem))["files"]:
                source = Path(self.problem, file["source"])
                if file["source"] != SUBMISSION and source.is_file():
                    yield source, read_checked(source)

    def _find_spec(self) -> Path | None:
        return find_spec(Path(self.problem), self.spec_path) if self.options.format == KERNELBENCH else None


def moved(path: str, root: Path) -> str:
    """Where a file of this absolute path lies below a folder."""
    return str(root / path.lstrip("/"))


def content_key(options: TaskOptions, problem: Mapping[str, bytes], solution: bytes) -> str:
    """The key of a problem's files by name, which stands for one file where it is empty, a solution and options."""
    files = {name: hashlib.sha256(text).hexdigest() for name, text in sorted(problem.items())}
    content = [VERSION, own_version(), versions(), asdict(options), files, hashlib.sha256(solution).hexdigest()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


@cache
def own_version() -> list[str]:
    """The version of this package, and a hash of its code, which may be a checkout."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        total.update(path.read_bytes())
    return [fuzz_version(), total.hexdigest()]


def read_problem(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of a problem's files: of one that is a file, it alone without a name."""
    if not path.is_dir():
        yield "", read_checked(path)
        return
    for file in sorted(path.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            yield file.name, read_checked(file)


def read_checked(path: Path) -> bytes:
    """A file's content. UsageError where it cannot be read or is too large."""
    with os_errors_as(UsageError, f"cannot read {path}"):
        content = read_file(path, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES >> 20} MiB")
    return content


def encode_task(task: JudgeTask, files: Mapping[str, bytes]) -> bytes:
    """A task as JSON, with the files that travel with it by path."""
    return json.dumps(
        {**asdict(task), "files": {name: text.decode("latin-1") for name, text in files.items()}}
    ).encode()


def decode_task(data: bytes) -> tuple[JudgeTask, dict[str, bytes]]:
    """(the task of such JSON, its files)."""
    values: dict[str, Any] = json.loads(data)
    files = {name: text.encode("latin-1") for name, text in values.pop("files").items()}
    return JudgeTask(TaskOptions(**values.pop("options")), **values), files


def failure(task: JudgeTask, reason: str, code: str) -> Mapping[str, Any]:
    """What is said of a task that has no judgement."""
    empty = Judgement(UNSUPPORTED, reason, task.problem, task.solution, task.options.backend)
    return {**judgement_json(empty), "score": None, "codes": [code]}
