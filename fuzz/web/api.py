"""Api: JSON over the store and the corpus. /openapi.json tells every field."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from fuzz import corpus
from fuzz.campaign.store import Finding, Occurrence, rebuild
from fuzz.errors import UsageError, one_line
from fuzz.model.entry import STATUSES
from fuzz.model.finding import ORACLES, VERDICTS
from fuzz.web.campaign_processes import ConflictError
from fuzz.web.corpus_index import IndexedEntry
from fuzz.web.service import Service, Summary, finite

router = APIRouter(prefix="/api", tags=["api"])
TEXT = r"^[^\x00-\x08\x0e-\x1f]*$"
"""Databases refuse the character NUL in a text."""
Text = Annotated[str, Query(max_length=200, pattern=TEXT)]
Number = Annotated[int, InPath(ge=1, le=2**31 - 1)]
Key = Annotated[str, InPath(min_length=1, max_length=300, pattern=TEXT)]
MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "There is none of that name or number."}}
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"description": "Not now; the detail says why."}}


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Start(Model):
    """Which campaign file to start, by its name without the ending; `resume` goes on with its newest campaign."""

    config: Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT)]
    resume: bool = False


class Mark(Model):
    """A finding's new status, and why."""

    status: Annotated[str, Field(pattern=f"^({'|'.join(STATUSES)})$")]
    why: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]*$")]


class EmptyBody(Model):
    """An empty document: what changes something is JSON, also where there is nothing to say."""


class Running(Model):
    config: str
    pid: int


class ConfigOut(Model):
    """A campaign's file; `wrong` says why it cannot be started."""

    key: str
    name: str
    told: str
    text: str
    wrong: str
    running: bool


class JobOut(Model):
    """How far one target on one backend by one engine is. `share` is what it has visited of what there is."""

    target: str
    planted: str
    backend: str
    engine: str
    seed: int
    cases: int
    rejected: int
    seconds: float
    cases_per_second: float
    new: int
    known: int
    fixed: int
    unconfirmed: int
    deaths: int
    worst: float | None
    share: float
    note: str


class WorkerOut(Model):
    worker: str
    host: str
    pid: int
    state: str
    lane: str
    beats: int
    wall: float


class CampaignOut(Model):
    summary: Summary
    lanes: list[JobOut]
    workers: list[WorkerOut]


class StatisticOut(Model):
    id: int
    target: str
    backend: str
    engine: str
    elapsed: float
    cases: int
    cases_per_second: float
    findings: int
    worst: float | None
    coverage: float


class FindingsOut(Model):
    count: int
    findings: list[Finding]


class Filters(Model):
    """Which findings; those that are given must all hold. `text` stands in id, message or diagnosis."""

    text: Annotated[str, Field(max_length=200, pattern=TEXT)] = ""
    target: Annotated[str, Field(max_length=200, pattern=TEXT)] = ""
    oracle: Annotated[str, Field(pattern=f"^({'|'.join(ORACLES)})?$")] = ""
    verdict: Annotated[str, Field(pattern=f"^({'|'.join(VERDICTS)})?$")] = ""
    status: Annotated[str, Field(pattern=f"^({'|'.join(STATUSES)})?$")] = ""
    planted: Annotated[str, Field(max_length=200, pattern=TEXT)] = ""
    replayed: Annotated[str, Field(pattern="^(agrees|disagrees)?$")] = ""
    campaign: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    offset: Annotated[int, Field(ge=0, le=10**9)] = 0

    @property
    def equal(self) -> dict[str, str]:
        names = ("target", "oracle", "verdict", "status", "planted", "replayed")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def found(self, state: Service) -> FindingsOut:
        """The findings of one page, and how many there are of all pages."""
        where: dict[str, Any] = {"campaign": self.campaign, "text": self.text, **self.equal}
        found = state.store.findings(limit=self.limit, offset=self.offset, **where)
        return FindingsOut(count=state.store.count_findings(**where), findings=found)


class EntryOut(Model):
    key: str
    target: str
    path: str
    changed: float


class Rebuilt(Model):
    """`unreadable` tells of files that are no entries."""

    findings: int
    added: int
    forgotten: int
    unreadable: list[str]


def state_of(request: Request) -> Service:
    state: Service = request.app.state.fuzz
    return state


@router.get("/campaigns")
def campaigns(request: Request) -> list[Summary]:
    """Every campaign, the newest first."""
    return state_of(request).campaigns()


@router.post("/campaigns", status_code=201, responses=MISSING | CONFLICT)
def start(request: Request, asked: Start) -> Running:
    """Start a campaign from one of the configured files."""
    try:
        done = state_of(request).runner.start(asked.config, resume=asked.resume)
    except KeyError:
        raise HTTPException(404, "there is no campaign file of that name in the configured folders") from None
    except ConflictError as error:
        raise HTTPException(409, str(error)) from None
    return Running(config=done.config, pid=done.process.pid)


@router.get("/campaigns/{number}", responses=MISSING)
def campaign(request: Request, number: Number) -> CampaignOut:
    """One campaign with its lanes and workers."""
    state = state_of(request)
    found = state.campaign(number)
    if found is None:
        raise HTTPException(404, "no such campaign")
    beats = state.store.heartbeats(number)
    names = ("worker", "host", "pid", "state", "lane", "beats", "wall")
    return CampaignOut(
        summary=state.summary(found),
        lanes=lanes(state, number),
        workers=[WorkerOut(**{name: getattr(beat, name) for name in names}) for beat in beats],
    )


def lanes(state: Service, number: int) -> list[JobOut]:
    """The lanes of a campaign, those with findings and most cases first."""
    same = ["target", "planted", "backend", "engine", "seed", "cases", "rejected", "seconds", "new", "known", "fixed"]
    same += ["unconfirmed", "deaths", "share", "note"]
    made = [
        JobOut(**{name: getattr(lane, name) for name in same}, worst=finite(lane.worst), cases_per_second=lane.rate)
        for lane in state.store.jobs(number)
    ]
    return sorted(made, key=lambda lane: (-lane.new, -lane.known, -lane.cases))


@router.get("/campaigns/{number}/statistics", responses=MISSING)
def statistics(
    request: Request,
    number: Number,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> list[StatisticOut]:
    """A campaign over time; `after` is the id of the last one that you have."""
    state = state_of(request)
    if state.campaign(number) is None:
        raise HTTPException(404, "no such campaign")
    same = ("id", "target", "backend", "engine", "elapsed", "cases", "cases_per_second", "findings", "coverage")
    found = state.store.statistics(number, after, limit)
    return [StatisticOut(**{name: getattr(one, name) for name in same}, worst=finite(one.worst)) for one in found]


@router.post("/campaigns/{number}/stop", responses=MISSING | CONFLICT)
def stop(request: Request, number: Number, _: Annotated[EmptyBody | None, Body()] = None) -> Summary:
    """Ask a campaign to end as Ctrl-C would: what it found is kept, and it can be resumed."""
    state = state_of(request)
    found = state.campaign(number)
    if found is None:
        raise HTTPException(404, "no such campaign")
    try:
        state.runner.stop(found)
    except ConflictError as error:
        raise HTTPException(409, str(error)) from None
    return state.summary(found)


@router.post("/campaigns/{number}/resume", responses=MISSING | CONFLICT)
def resume(request: Request, number: Number, _: Annotated[EmptyBody | None, Body()] = None) -> Running:
    """Go on with a campaign that was stopped or died."""
    state = state_of(request)
    found = state.campaign(number)
    if found is None:
        raise HTTPException(404, "no such campaign")
    config = state.runner.named(found.name)
    if config is None or not state.summary(found).resumable:
        raise HTTPException(409, "it is running, finished, not the newest of its name, or its file is not configured")
    return start(request, Start(config=config.key, resume=True))


@router.get("/configs")
def configs(request: Request) -> list[ConfigOut]:
    """The campaign files that can be started."""
    runner = state_of(request).runner
    working = set(runner.working())
    return [
        ConfigOut(key=one.key, name=one.name, told=one.told, text=one.text, wrong=one.wrong, running=one.key in working)
        for one in runner.configs().values()
    ]


@router.get("/findings")
def findings(request: Request, filters: Annotated[Filters, Query()]) -> FindingsOut:
    """Findings, the one seen last first."""
    return filters.found(state_of(request))


@router.get("/findings/{key}", responses=MISSING)
def finding(request: Request, key: Key) -> Finding:
    """One finding."""
    found = state_of(request).store.finding(key)
    if found is None:
        raise HTTPException(404, "no such finding")
    return found


@router.get("/findings/{key}/occurrences", responses=MISSING)
def occurrences(request: Request, key: Key, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> list[Occurrence]:
    """When a finding was seen, the earliest first."""
    finding(request, key)
    return state_of(request).store.occurrences(key, limit=limit)


@router.get("/findings/{key}/script", responses=MISSING | CONFLICT, response_class=PlainTextResponse)
def script(request: Request, key: Key) -> PlainTextResponse:
    """A stand-alone program that shows the finding. The first time it is made, which takes seconds."""
    state, found = state_of(request), book(request, key)
    study = state.painter.study(found, state.repeat(str(found.path)))
    if not study.script:
        raise HTTPException(409, study.why or study.portrait.why or "there is no script")
    return PlainTextResponse(study.script)


@router.post("/findings/{key}/status", responses=MISSING | CONFLICT)
def mark(request: Request, key: Key, asked: Mark) -> EntryOut:
    """Change an entry's status, with the reason, as `fuzz mark` does."""
    state, found = state_of(request), book(request, key)
    try:
        corpus.mark(found.path, asked.status, asked.why)
        if found.corpus.is_dir():
            rebuild(state.store, found.corpus)
    except UsageError as error:
        raise HTTPException(409, one_line(error)) from None
    state.shelf.forget()
    return shown(found)


@router.get("/corpus")
def entries(request: Request, target: Text = "") -> list[EntryOut]:
    """The entries on disk, of all targets or one."""
    books = state_of(request).shelf.books().values()
    return [shown(one) for one in books if target in ("", one.target)]


@router.get("/corpus/{key}", responses=MISSING, response_class=PlainTextResponse)
def entry(request: Request, key: Key) -> PlainTextResponse:
    """An entry's text."""
    try:
        return PlainTextResponse(book(request, key).path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        raise HTTPException(404, "the entry is gone") from None


@router.post("/corpus/rebuild")
def read_again(request: Request, _: Annotated[EmptyBody | None, Body()] = None) -> Rebuilt:
    """Make the store's findings again from the entries on disk."""
    return reread(state_of(request))


def reread(state: Service) -> Rebuilt:
    total = Rebuilt(findings=0, added=0, forgotten=0, unreadable=[])
    for folder in state.shelf.folders:
        done = rebuild(state.store, folder)
        total.findings += done.findings
        total.added += len(done.added)
        total.forgotten += done.forgotten
        total.unreadable += done.unreadable
    state.shelf.forget()
    return total


def book(request: Request, key: str) -> IndexedEntry:
    """The entry of that key. 404 where no folder has it."""
    found = state_of(request).shelf.find(key)
    if found is None:
        raise HTTPException(404, "no such entry in the corpus")
    return found


def shown(one: IndexedEntry) -> EntryOut:
    path = one.path.relative_to(one.corpus).as_posix()
    return EntryOut(key=one.key, target=one.target, path=path, changed=one.changed)
