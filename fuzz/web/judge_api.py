"""Takes solutions to judge, and gives their judgements. Off unless the service was started with --judge."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi import Path as PathParameter
from pydantic import AfterValidator, Field

from fuzz.campaign.store import Submission
from fuzz.errors import UsageError, one_line
from fuzz.judge.batch.results_file import AGAIN
from fuzz.judge.batch.task import TaskOptions, content_key, read_problem
from fuzz.judge.formats import GPUMODE, WITHOUT_PROBLEM
from fuzz.run.setup import choose_backend
from fuzz.web.api import NOT_FOUND, Offset, TheService, require
from fuzz.web.models import TEXT, Model
from fuzz.web.service import Service

MOST_TEXT = 1 << 20
"""Characters of one file."""
MOST_FILES = 32
MAX_WAITING = 10_000
"""Submissions that may wait."""
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"
RELATIVE_NAME = r"^([A-Za-z0-9_][A-Za-z0-9_. @+-]{0,99}/){0,9}[A-Za-z0-9_][A-Za-z0-9_. @+-]{0,99}$"
"""A path below a folder, none of whose parts leads out of it."""


REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"description": "It cannot be judged as it is asked; the detail says why."}
}


def require_judging(service: TheService) -> None:
    """404 where this service judges nothing."""
    if not service.settings.judge:
        raise HTTPException(404, "this service judges nothing: it was started without --judge")


router = APIRouter(prefix="/api/judge", tags=["judge"], dependencies=[Depends(require_judging)])


def check_text(text: str) -> str:
    """The text. ValueError where databases and files cannot hold it."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("a text holds no NUL and no half of a surrogate pair")
    return text


FileText = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(check_text)]
FileName = Annotated[str, Field(pattern=FILE_NAME)]
RelativeName = Annotated[str, Field(pattern=RELATIVE_NAME)]
SubmissionId = Annotated[str, PathParameter(pattern="^[0-9a-f]{32}$")]


class JudgeRequest(Model):
    """A solution to judge. Problem and solution are texts, or names of files below a folder of --judge-files.

    The problem of a task of GPU MODE is its files by name, or the name of its folder; a script and a module of
    operations (ops) have none.
    """

    format: Literal["kernelbench", "gpumode", "flashinfer", "script", "ops"] = "kernelbench"
    problem: FileText | Annotated[dict[FileName, FileText], Field(max_length=MOST_FILES)] | None = None
    problem_file: RelativeName | None = None
    solution: FileText | None = None
    solution_file: RelativeName | None = None
    seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 10.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    memory_mb: Annotated[int, Field(ge=0, le=2**20)] = 0
    backend: Annotated[str, Field(pattern="^(auto|cpu|cuda)$")] = "auto"
    name: Annotated[str, Field(max_length=200, pattern=TEXT), AfterValidator(check_text)] = ""


class SubmissionOut(Model):
    """A submission. `score` is 1, 0 or null, `codes` are stable words for the reason: docs/judge.md.

    `judgement` is what `fuzz judge --json` prints, once the state is judged.
    """

    id: str
    state: str
    name: str
    format: str
    backend: str
    seconds: float
    seed: int
    memory_mb: int
    created: float
    verdict: str | None = None
    reason: str | None = None
    severity: str | None = None
    score: float | None = None
    codes: list[str] = []
    judgement: dict[str, Any] | None = None


class SubmissionsOut(Model):
    """`counts` says how many there are in each state."""

    counts: dict[str, int]
    submissions: list[SubmissionOut]


@router.post("", status_code=202, responses=NOT_FOUND | REFUSED)
def submit(service: TheService, request: JudgeRequest) -> SubmissionOut:
    """Have a solution judged. The same problem, solution and options are one submission, which is judged once.

    Where that could not be done, because a time or the process that judges ended, it is tried again.
    """
    try:
        problem, solution = read_files(request, service.settings.judge_files)
        options = TaskOptions(
            request.format, choose_backend(request.backend), request.seconds, request.seed, request.memory_mb << 20
        )
    except UsageError as error:
        raise HTTPException(400, one_line(error)) from None
    key = content_key(options, {name: text.encode() for name, text in problem.items()}, solution.encode())
    found = service.store.find(Submission, key)
    if found is None:
        return describe(store_new(service, key, request, options, problem, solution))
    if not AGAIN.isdisjoint(describe(found).codes):
        require_room(service)
        service.store.queue_again(key, time.time())
        service.judge_queue.work.set()
        found = find_submission(service, key)
    return describe(found)


def require_room(service: Service) -> None:
    """503 where the queue is full."""
    if service.store.count_submissions().get("queued", 0) >= MAX_WAITING:
        raise HTTPException(503, f"{MAX_WAITING} submissions wait already", {"retry-after": "60"})


def store_new(
    service: Service, key: str, request: JudgeRequest, options: TaskOptions, problem: Mapping[str, str], solution: str
) -> Submission:
    """Puts a submission into the queue. 503 where it is full."""
    require_room(service)
    name = request.name or request.solution_file or ""
    made = Submission(
        key, name, options.format, json.dumps(dict(problem)), solution, options.backend, options.seconds,
        options.seed, options.memory, time.time(),
    )  # fmt: skip
    stored = service.store.add_submission(made)
    service.judge_queue.work.set()
    return stored


def read_files(request: JudgeRequest, folders: tuple[Path, ...]) -> tuple[dict[str, str], str]:
    """(the problem's files by name, the solution). UsageError says in one line what is missing or too much."""
    solution = choose("solution", request.solution, request.solution_file, folders).get("")
    if solution is None:
        raise UsageError("solution_file names a folder; a solution is a file")
    if request.format in WITHOUT_PROBLEM:
        if request.problem is not None or request.problem_file is not None:
            raise UsageError(f"what has the format {request.format} has no problem")
        return {}, solution
    files = choose("problem", request.problem, request.problem_file, folders)
    if ("" in files) == (request.format == GPUMODE) or not files:
        needed = "a folder, or its files by name" if request.format == GPUMODE else "one text, or the name of one file"
        raise UsageError(f"the problem of the format {request.format} is {needed}")
    return files, solution


def choose(kind: str, text: str | dict[str, str] | None, name: str | None, folders: tuple[Path, ...]) -> dict[str, str]:
    """The text or texts that are given, or what is named, by name: of one file or text the name is empty."""
    if (text is None) == (name is None):
        raise UsageError(f"give either {kind}, a text, or {kind}_file, a name")
    if text is not None:
        return {"": text} if isinstance(text, str) else text
    for folder in folders:
        path = (folder / str(name)).resolve()
        if path.exists() and path.is_relative_to(folder.resolve()):
            return {file: decode(path, content) for file, content in read_problem(path)}
    raise UsageError(f"there is no file {name} in a folder of --judge-files")


def decode(path: Path, content: bytes) -> str:
    """The text of a file. UsageError where it is none, or is too long."""
    if len(content) > MOST_TEXT:
        raise UsageError(f"{path.name} has more than {MOST_TEXT} bytes")
    try:
        return check_text(content.decode("utf-8"))
    except ValueError:
        raise UsageError(f"{path.name} is no text in UTF-8") from None


@router.get("", responses=NOT_FOUND)
def submissions(
    service: TheService,
    state: Annotated[str, Query(pattern="^(queued|running|judged)?$")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Offset = 0,
) -> SubmissionsOut:
    """Submissions, the newest first, without their judgements."""
    found = [
        describe(one).model_copy(update={"judgement": None})
        for one in service.store.read(Submission, state=state, limit=limit, offset=offset)
    ]
    return SubmissionsOut(counts=service.store.count_submissions(), submissions=found)


@router.get("/{key}", responses=NOT_FOUND)
def submission(service: TheService, key: SubmissionId) -> SubmissionOut:
    """One submission, with its judgement once there is one."""
    return describe(find_submission(service, key))


def find_submission(service: TheService, key: SubmissionId) -> Submission:
    """The submission of that id. 404 where the store has none."""
    return require(service.store.find(Submission, key), "submission")


def describe(found: Submission) -> SubmissionOut:
    """What is said of a submission."""
    judgement: dict[str, Any] = json.loads(found.judgement or "{}")
    own = {"memory_mb": found.memory >> 20, "verdict": found.verdict or None, "judgement": judgement or None}
    values = judgement | vars(found) | own
    return SubmissionOut(**{name: values[name] for name in SubmissionOut.model_fields if name in values})
