"""The API's documents. Those of records are read from the records' attributes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fuzz.campaign.store import FindingRecord
from fuzz.model.entry import STATUSES
from fuzz.model.finding import VERDICTS
from fuzz.model.grade import SEVERITIES
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.web.service import CampaignSummary, finite

TEXT = r"^[^\x00-\x08\x0e-\x1f]*$"
"""Databases refuse the character NUL in a text."""
Text = Annotated[str, Query(max_length=200, pattern=TEXT)]
CampaignId = Annotated[int, Path(ge=1, le=2**31 - 1)]
FindingKey = Annotated[str, Path(min_length=1, max_length=300, pattern=TEXT)]
FilterText = Annotated[str, Field(max_length=200, pattern=TEXT)]
Finite = Annotated[float | None, BeforeValidator(finite)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", from_attributes=True)


class StartRequest(Model):
    """Which campaign file to start, by its name without the ending; `resume` goes on with its newest campaign."""

    config: Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT)]
    resume: bool = False


class StatusChange(Model):
    """A finding's new status, and why."""

    status: Annotated[str, Field(pattern=f"^({'|'.join(STATUSES)})$")]
    why: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]*$")]


class EmptyBody(Model):
    """An empty document: a request that changes something is JSON also where it has no parameters."""


class StartedOut(Model):
    config: str
    pid: int


class ConfigOut(Model):
    """A campaign's file; `wrong` says why it cannot be started."""

    key: str
    name: str
    told: Annotated[str, Field(validation_alias="description")]
    text: str
    wrong: Annotated[str, Field(validation_alias="error")]
    running: bool = False


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
    cases_per_second: Annotated[float, Field(validation_alias="rate")]
    new: int
    known: int
    fixed: int
    unconfirmed: int
    deaths: int
    worst: Finite
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
    summary: CampaignSummary
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
    worst: Finite
    coverage: float


class FindingsOut(Model):
    count: int
    findings: list[FindingRecord]


class Filters(Model):
    """Which findings; those that are given must all hold. `text` stands in id, message or diagnosis."""

    text: FilterText = ""
    target: FilterText = ""
    oracle: Annotated[str, Field(pattern=f"^({'|'.join(ORACLE_NAMES)})?$")] = ""
    severity: Annotated[str, Field(pattern=f"^({'|'.join(SEVERITIES)})?$")] = ""
    verdict: Annotated[str, Field(pattern=f"^({'|'.join(VERDICTS)})?$")] = ""
    status: Annotated[str, Field(pattern=f"^({'|'.join(STATUSES)})?$")] = ""
    planted: FilterText = ""
    replayed: Annotated[str, Field(pattern="^(agrees|disagrees)?$")] = ""
    campaign: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    offset: Annotated[int, Field(ge=0, le=10**9)] = 0

    @property
    def conditions(self) -> dict[str, Any]:
        """The filters that are given, as the store takes them."""
        values = self.model_dump(exclude={"limit", "offset"})
        return {name: value for name, value in values.items() if value not in ("", None)}


class EntryOut(Model):
    key: str
    target: str
    path: Annotated[str, Field(validation_alias="relative_path")]
    changed: float


class RebuiltOut(Model):
    """`unreadable` names the files that are no entries."""

    findings: int = 0
    added: int = 0
    forgotten: int = 0
    unreadable: list[str] = []
