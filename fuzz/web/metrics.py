"""Metrics: what runs and what was found, in the text format that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping

from fuzz.campaign.store import Campaign
from fuzz.model.entry import STATUSES
from fuzz.web.service import Service

KIND = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def metrics(state: Service) -> str:
    """Every metric. Campaigns that ended keep theirs, so that a counter does not vanish between two readings."""
    return "".join(family for family in families(state, state.store.campaigns()))


def families(state: Service, campaigns: list[Campaign]) -> Iterator[str]:
    named = {one.id: {"campaign": str(one.id), "name": one.name} for one in campaigns}
    running = [(named[one.id], float(state.state_of(one) == "running")) for one in campaigns]
    yield family("fuzz_campaign_running", "gauge", "1 where a process works on the campaign.", running)
    fuzzed = [(named[one.id], one.seconds) for one in campaigns]
    yield family("fuzz_campaign_seconds_total", "counter", "Seconds of fuzzing.", fuzzed)
    yield from of_lanes(state, named)
    yield from of_workers(state, named)
    yield from of_findings(state)


def of_lanes(state: Service, named: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    lanes = [
        ({**labels, "target": lane.target, "planted": lane.planted, "backend": lane.backend, "engine": lane.engine,
          "seed": str(lane.seed)}, lane)
        for number, labels in named.items()
        for lane in state.store.jobs(number)
    ]  # fmt: skip
    yield family("fuzz_cases_total", "counter", "Cases that ran.", [(at, lane.cases) for at, lane in lanes])
    yield family(
        "fuzz_rejected_total", "counter", "Cases that were refused.", [(at, one.rejected) for at, one in lanes]
    )
    yield family("fuzz_worker_deaths_total", "counter", "Workers that died.", [(at, one.deaths) for at, one in lanes])
    counts = [
        ({**at, "seen": seen}, float(getattr(lane, seen))) for at, lane in lanes for seen in ("new", "known", "fixed")
    ]
    yield family("fuzz_lane_findings_total", "counter", "Findings of a lane: new, known, no longer failing.", counts)
    yield family(
        "fuzz_worst_ratio", "gauge", "Largest error over bound that agrees.", [(at, n.worst) for at, n in lanes]
    )
    shares = [(at, lane.share) for at, lane in lanes]
    yield family("fuzz_cells_visited_ratio", "gauge", "Share of dtype, layout, dims and exponent cells.", shares)


def of_workers(state: Service, named: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    now = time.time()
    ages = [
        ({**named[beat.campaign], "worker": beat.worker, "host": beat.host}, max(now - beat.wall, 0.0))
        for beat in state.store.heartbeats()
        if beat.campaign in named
    ]
    yield family("fuzz_worker_heartbeat_age_seconds", "gauge", "Seconds since a worker's last sign of life.", ages)


def of_findings(state: Service) -> Iterator[str]:
    counts: list[Sample] = [({"status": one}, state.store.count_findings(status=one)) for one in STATUSES]
    yield family("fuzz_findings", "gauge", "Findings in the store by status.", counts)
    yield family("fuzz_corpus_entries", "gauge", "Entries on disk.", [({}, len(state.shelf.books()))])


def family(name: str, kind: str, told: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
