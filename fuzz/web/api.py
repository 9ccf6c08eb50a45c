"""Serves JSON over the store and the corpus. /openapi.json describes every field."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, HTTPException, Query, Request
from fastapi.responses import PlainTextResponse

from fuzz import corpus
from fuzz.campaign.store import Campaign, FindingRecord, Heartbeat, Job, Occurrence, rebuild
from fuzz.campaign.store.rebuild import save_entry
from fuzz.corpus.codec import strict_yaml
from fuzz.errors import CorpusError, RefusedWrite, UsageError, one_line
from fuzz.escaping import printable
from fuzz.web import models
from fuzz.web.campaign_processes import ConflictError, file_of
from fuzz.web.corpus_index import IndexedEntry
from fuzz.web.models import CampaignId, FindingKey, Text
from fuzz.web.service import CampaignSummary, Service

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "There is none of that name or number."}}
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"description": "Not now; the detail says why."}}
router = APIRouter(prefix="/api", tags=["api"])
T = TypeVar("T")
RETRY_SECONDS = 3
"""Seconds until the page of an entry that is not there yet looks again; the corpus is listed again before that."""


def get_service(request: Request) -> Service:
    service: Service = request.app.state.fuzz
    return service


TheService = Annotated[Service, Depends(get_service)]
Limit = Annotated[int, Query(ge=1, le=10_000)]
Offset = Annotated[int, Query(ge=0, le=10**9)]
NoBody = Annotated[models.EmptyBody | None, Body()]


def require(found: T | None, what: str) -> T:
    """What was looked for. 404 where it was not found."""
    if found is None:
        raise HTTPException(404, f"no such {what}")
    return found


def find_campaign(service: TheService, number: CampaignId) -> Campaign:
    """The campaign of that number. 404 where the store has none."""
    return require(service.store.find(Campaign, number), "campaign")


def find_entry(service: TheService, key: FindingKey) -> IndexedEntry:
    """The entry of that key, or the smaller one that has replaced it. 404 where no folder has it.

    Of a finding that the store knows the entry is about to be there, where it is being replaced: a page looks again.
    """
    index, current = service.corpus_index, service.store.current_id(key)
    entry = index.entries().get(key)
    if current and entry and not entry.path.exists():
        index.invalidate()
        entry = index.entries().get(key)
    entry = entry or index.entries().get(current)
    saved = None if entry else service.store.find_finding(key)
    if saved and not service.is_shown(saved):
        raise HTTPException(404, f"its entry is in {printable(saved.corpus)}, which is not shown here")
    if saved and service.forget_deleted(saved):
        raise HTTPException(404, "its entry was deleted")
    if saved or (current and not entry):
        raise HTTPException(404, "its entry is being replaced, or was deleted", {"retry-after": str(RETRY_SECONDS)})
    return require(entry, "entry in the corpus")


def find_finding(service: TheService, key: FindingKey) -> FindingRecord:
    """The store's finding of that key, which may be a former one. 404 where it has none."""
    return require(service.store.find_finding(key), "finding")


TheCampaign = Annotated[Campaign, Depends(find_campaign)]
TheEntry = Annotated[IndexedEntry, Depends(find_entry)]
TheFinding = Annotated[FindingRecord, Depends(find_finding)]


@router.get("/campaigns")
def campaigns(service: TheService) -> list[CampaignSummary]:
    """Every campaign, the newest first."""
    return service.campaigns()


@router.post("/campaigns", status_code=201, responses=NOT_FOUND | CONFLICT)
def start(service: TheService, request: models.StartRequest) -> models.StartedOut:
    """Start a campaign from one of the configured files."""
    try:
        started = service.processes.start(request.config, resume=request.resume)
    except KeyError:
        raise HTTPException(404, "there is no campaign file of that name in the configured folders") from None
    return models.StartedOut(config=started.config, pid=started.process.pid)


@router.get("/campaigns/{number}", responses=NOT_FOUND)
def campaign(service: TheService, campaign: TheCampaign) -> models.CampaignOut:
    """One campaign with its lanes and workers."""
    workers = service.store.read(Heartbeat, campaign=campaign.id)
    content = {"summary": service.summary(campaign), "lanes": list_jobs(service, campaign), "workers": workers}
    return models.CampaignOut.model_validate(content)


def list_jobs(service: Service, campaign: Campaign) -> list[Job]:
    """The jobs of a campaign, those with findings and most cases first."""
    return sorted(service.store.read(Job, campaign=campaign.id), key=lambda job: (-job.new, -job.known, -job.cases))


@router.get("/campaigns/{number}/statistics", responses=NOT_FOUND)
def statistics(
    service: TheService, campaign: TheCampaign, after: Annotated[int, Query(ge=0, le=2**62)] = 0, limit: Limit = 1000
) -> list[models.StatisticOut]:
    """A campaign over time; `after` is the id of the last one that you have."""
    return list(map(models.StatisticOut.model_validate, service.store.statistics(campaign.id, after, limit)))


@router.post("/campaigns/{number}/stop", responses=NOT_FOUND | CONFLICT)
def stop(service: TheService, campaign: TheCampaign, _: NoBody = None) -> CampaignSummary:
    """Ask a campaign to end as Ctrl-C would: what it found is kept, and it can be resumed."""
    service.processes.stop(campaign)
    return service.summary(campaign)


@router.post("/campaigns/{number}/resume", responses=NOT_FOUND | CONFLICT)
def resume(service: TheService, campaign: TheCampaign, _: NoBody = None) -> models.StartedOut:
    """Go on with a campaign that was stopped or died."""
    files = service.processes.startable().get(campaign.name, [])
    config = file_of(campaign, files)
    if config is None and len(files) > 1:
        keys = ", ".join(one.key for one in files)
        raise ConflictError(f"{keys} are files of campaigns {campaign.name!r}, and none is as this one ran; rename one")
    if config is None or not service.summary(campaign).resumable:
        raise ConflictError("it is running, finished, not the newest of its name, or its file is not configured")
    return start(service, models.StartRequest(config=config.key, resume=True))


@router.get("/configs")
def configs(service: TheService) -> list[models.ConfigOut]:
    """The campaign files that can be started."""
    running = set(service.processes.running())
    documents = [models.ConfigOut.model_validate(config) for config in service.processes.configs().values()]
    return [document.model_copy(update={"running": document.key in running}) for document in documents]


@router.get("/findings")
def findings(service: TheService, filters: Annotated[models.Filters, Query()]) -> models.FindingsOut:
    """Findings, the one seen last first."""
    page = service.store.findings(limit=filters.limit, offset=filters.offset, **filters.conditions)
    return models.FindingsOut(count=service.store.count_findings(**filters.conditions), findings=page)


@router.get("/findings/{key}", responses=NOT_FOUND)
def finding(finding: TheFinding) -> FindingRecord:
    """One finding."""
    return finding


@router.get("/findings/{key}/occurrences", responses=NOT_FOUND)
def occurrences(service: TheService, finding: TheFinding, limit: Limit = 1000) -> list[Occurrence]:
    """When a finding was seen, the earliest first."""
    return service.store.read(Occurrence, finding=finding.id, limit=limit)


@router.get("/findings/{key}/script", responses=NOT_FOUND | CONFLICT, response_class=PlainTextResponse)
def script(service: TheService, entry: TheEntry) -> PlainTextResponse:
    """A stand-alone program that shows the finding. The first time it is made, which takes seconds."""
    result = service.plot_cache.plot(entry)[0]
    if not result.script:
        raise ConflictError(result.no_script or result.why or "there is no script")
    return PlainTextResponse(result.script)


@router.post("/findings/{key}/status", responses=NOT_FOUND | CONFLICT)
def mark(service: TheService, entry: TheEntry, change: models.StatusChange) -> models.EntryOut:
    """Change an entry's status, with the reason, as `fuzz mark` does."""
    try:
        marked = corpus.mark(entry.path, change.status, change.why)
        with suppress(RefusedWrite):
            save_entry(service.store, entry.path, entry.corpus, marked)
    except UsageError as error:
        raise ConflictError(one_line(error)) from None
    service.corpus_index.invalidate()
    return models.EntryOut.model_validate(entry)


@router.get("/corpus")
def entries(service: TheService, target: Text = "") -> list[models.EntryOut]:
    """The entries on disk, of all targets or one."""
    indexed = service.corpus_index.entries().values()
    return [models.EntryOut.model_validate(entry) for entry in indexed if target in ("", entry.target)]


@router.get("/corpus/{key}", responses=NOT_FOUND, response_class=PlainTextResponse)
def entry(entry: TheEntry) -> PlainTextResponse:
    """An entry's text."""
    try:
        return PlainTextResponse(strict_yaml.decode(corpus.read_bytes(entry.path), strict_yaml.LARGEST_ENTRY))
    except CorpusError as error:
        raise HTTPException(404, f"the entry cannot be read: {one_line(error)}") from None


@router.post("/corpus/rebuild")
def rebuild_findings(service: TheService, _: NoBody = None) -> models.RebuiltOut:
    """Make the store's findings again from the entries on disk."""
    total = models.RebuiltOut()
    service.corpus_index.invalidate()
    owners = {key: indexed.corpus for key, indexed in service.corpus_index.entries().items()}
    for folder in service.corpus_index.folders:
        # Of entries with one key pages show the one that the index has, and so does the store.
        rebuilt = rebuild(service.store, folder, {key for key, owner in owners.items() if owner != folder})
        total.findings += rebuilt.findings
        total.added += len(rebuilt.added)
        total.forgotten += rebuilt.forgotten
        total.unreadable += rebuilt.unreadable
    service.corpus_index.invalidate()
    return total
