"""Exports what runs and what was found, in the text format that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fuzz.campaign.store import Heartbeat, Job
from fuzz.clock import boot_id
from fuzz.model.entry import STATUSES
from fuzz.web.service import Service, campaign_state

Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]
Family = type[GaugeMetricFamily] | type[CounterMetricFamily]
JOB_LABELS = ("target", "planted", "backend", "engine", "seed")


@dataclass(frozen=True)
class Collector:
    """Reads every metric from the store at each scrape. Campaigns that ended keep theirs: no counter vanishes."""

    service: Service

    def collect(self) -> Iterator[Metric]:
        store, campaigns = self.service.store, self.service.overview().campaigns
        names = {campaign.id: {"campaign": str(campaign.id), "name": campaign.name} for campaign in campaigns}
        running = [(names[campaign.id], campaign_state(campaign) == "running") for campaign in campaigns]
        yield gauge("fuzz_campaign_running", "1 where a process works on the campaign.", running)
        seconds = [(names[campaign.id], campaign.seconds) for campaign in campaigns]
        yield counter("fuzz_campaign_seconds", "Seconds of fuzzing.", seconds)
        yield from self.collect_jobs(names)
        now = time.time(), time.monotonic(), boot_id()
        ages = [
            ({**names[one.campaign], "worker": one.worker, "host": one.host}, one.age(*now))
            for one in store.read(Heartbeat)
            if one.campaign in names
        ]
        yield gauge("fuzz_worker_heartbeat_age_seconds", "Seconds since a worker's last sign of life.", ages)
        counts = [({"status": status}, store.count_findings(status=status)) for status in STATUSES]
        yield gauge("fuzz_findings", "Findings in the store by status.", counts)
        yield gauge("fuzz_corpus_entries", "Entries on disk.", [({}, len(self.service.corpus_index.entries()))])

    def collect_jobs(self, names: dict[int, Labels]) -> Iterator[Metric]:
        jobs = [
            ({**labels, **{name: str(getattr(job, name)) for name in JOB_LABELS}}, job)
            for campaign, labels in names.items()
            for job in self.service.store.read(Job, campaign=campaign)
        ]
        for family, name, text, field in (
            (counter, "fuzz_cases", "Cases that ran.", "cases"),
            (counter, "fuzz_rejected", "Cases that were refused.", "rejected"),
            (counter, "fuzz_worker_deaths", "Workers that died.", "deaths"),
            (gauge, "fuzz_worst_ratio", "Largest error over bound that agrees.", "worst"),
            (gauge, "fuzz_cells_visited_ratio", "Share of dtype, layout, dims and exponent cells.", "share"),
        ):
            yield family(name, text, [(labels, getattr(job, field)) for labels, job in jobs])
        kinds = ("new", "known", "fixed")
        findings = [({**labels, "seen": kind}, getattr(job, kind)) for labels, job in jobs for kind in kinds]
        yield counter("fuzz_lane_findings", "Findings of a lane: new, known, no longer failing.", findings)


def gauge(name: str, text: str, samples: Samples, kind: Family = GaugeMetricFamily, suffix: str = "") -> Metric:
    metric = kind(name, text)
    for labels, value in samples:
        metric.add_sample(name + suffix, labels, value)
    return metric


counter = partial(gauge, kind=CounterMetricFamily, suffix="_total")


def metrics(service: Service) -> bytes:
    return generate_latest(Collector(service))
