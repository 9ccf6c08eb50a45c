"""Sends requests to a service whose store, entries and campaign files hold hostile texts and extreme numbers.

Every answer is to be one that the service documents, and no page holds a text as markup.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any, get_type_hints
from urllib.parse import quote

import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Unsatisfiable
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from benchmarks.self_fuzz import SEEDS
from benchmarks.self_fuzz.crashes import MAX_SECONDS, Crashes
from fuzz.campaign.store import Campaign, FindingRecord, Heartbeat, Job, Occurrence, Statistic, Store
from fuzz.errors import StoreError
from fuzz.web.app import make_app
from fuzz.web.campaign_processes import ConflictError
from fuzz.web.settings import Settings

HOST = "127.0.0.1"
CHECKS_OF_ANSWERS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"
)  # fmt: skip
NUMBERS = (0, 1, 3, 1200, 2**31 - 1, 2**53 + 1)
FLOATS = (0.0, 1e-3, 1.5, 60.0, 1e15)
STATES = ("running", "stopped", "finished", "failed")
MAX_TEXTS = 40
EXAMPLES = 4
"""Requests of each kind to each operation, in one round."""


class Markup(HTMLParser):
    """Collects the tags of a page that are none of its templates'."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        source = dict(attributes).get("src") or ""
        own_script = tag != "script" or source.startswith("/static/")
        if tag == "img" or not own_script or any(name.startswith("on") for name, _ in attributes):
            self.foreign.append(tag)


def check_service(data: bytes) -> None:
    """The pages and the documents of a service are answered, whose texts are these lines, and their pieces."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    texts = [*lines, data.decode("utf-8", "replace")][:MAX_TEXTS]
    with hostile_service(texts, Random(data)) as app, TestClient(app, base_url=f"http://{HOST}") as client:
        for path in list_paths(app, texts):
            check_answer(client, path)


def check_answer(client: TestClient, path: str) -> None:
    """An error of the service is raised here by the client."""
    answer = client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code in (200, 404, 409, 422), f"{path}: {answer.status_code}"
    kind, text = answer.headers["content-type"], answer.content.decode("utf-8")
    if kind.startswith("text/html"):
        assert not (markup := Markup(text).foreign), f"{path}: {markup}"
    elif kind.startswith("application/json"):
        json.loads(text, parse_constant=refuse_constant)
    elif path == "/metrics":
        assert list(text_string_to_metric_families(text))


def refuse_constant(name: str) -> None:
    raise AssertionError(f"JSON has no {name}")


def list_paths(app: FastAPI, texts: Sequence[str]) -> Iterator[str]:
    """The pages and the documents that need no worker."""
    yield from ("/", "/help", "/findings", "/corpus", "/metrics", "/openapi.json")
    yield from ("/api/campaigns", "/api/configs", "/api/findings", "/api/corpus", "/campaigns/1", "/api/campaigns/1")
    yield "/api/campaigns/1/statistics"
    keys = [*texts, *app.state.fuzz.corpus_index.entries()]
    for key in (quote(text, safe="", errors="surrogatepass") for text in keys):
        yield from (f"/findings/{key}", f"/api/findings/{key}", f"/api/findings/{key}/occurrences")
        yield from (f"/findings?text={key}&target={key}", f"/corpus?text={key}", f"/api/corpus/{key}")


@contextmanager
def hostile_service(texts: Sequence[str], random: Random) -> Iterator[FastAPI]:
    """A service over records, entries and campaign files that hold such texts."""
    with tempfile.TemporaryDirectory(prefix="self-fuzz-") as name:
        folder = Path(name)
        for surface in ("corpus/target", "configs"):
            (folder / surface).mkdir(parents=True)
        write_files(SEEDS / "codec", folder / "corpus" / "target", texts, random)
        write_files(SEEDS / "config", folder / "configs", texts, random)
        store = f"sqlite:///{folder}/store.sqlite"
        # The service also lists the corpus of a campaign that can be started.
        corpus = json.dumps(re.sub("[/.]", "", random.choice(texts)))
        (folder / "configs" / "startable.yaml").write_text(f"targets: [a]\nstore: {store}\ncorpus: {corpus}\n")
        app = make_app(Settings(store, (folder / "corpus",), (folder / "configs",)), "0")
        app.state.fuzz.processes.start = refuse_start
        fill_store(app.state.fuzz.store, texts, random)
        yield app


def refuse_start(*_: Any, **__: Any) -> None:
    raise ConflictError("no campaign is started here")


def write_files(seeds: Path, folder: Path, texts: Sequence[str], random: Random) -> None:
    """The seeds, and one file of each text, under names that texts make where a name can be one."""
    contents = [path.read_bytes() for path in sorted(seeds.iterdir())]
    contents += [text.encode("utf-8", "surrogatepass") for text in texts[:4]]
    for number, content in enumerate(contents):
        title = random.choice(texts).replace("/", "").replace("\0", "")[:40]
        with suppress(OSError, ValueError):
            (folder / f"{title}{number}.yaml").write_bytes(content)


def fill_store(store: Store, texts: Sequence[str], random: Random) -> None:
    """Campaigns with jobs, workers, statistics and findings; what the store refuses is left out."""
    for _ in range(2):
        made = store.create_campaign("made", "{}", "corpus", time.time(), "elsewhere", 4_000_000)
        changed = make_record(Campaign, texts, random, id=made.id, pid=4_000_000, state=random.choice(STATES))
        with suppress(StoreError):
            store.save(changed)
        for kind in (Job, Heartbeat, Statistic):
            for number in range(3):
                record = make_record(kind, texts, random, campaign=made.id)
                with suppress(StoreError):
                    store.save(replace(record, id=number) if isinstance(record, Statistic) else record)
        for _ in range(3):
            finding = make_record(FindingRecord, texts, random)
            seen = make_record(Occurrence, texts, random, campaign=made.id, finding=finding.id)
            with suppress(StoreError):
                store.save_finding(finding, seen)


def make_record(kind: type, texts: Sequence[str], random: Random, **known: Any) -> Any:
    """A record whose fields are drawn by their types."""
    draw = {
        int: lambda: random.choice(NUMBERS),
        float: lambda: random.choice(FLOATS),
        bool: lambda: random.random() < 0.5,
        str: lambda: random.choice(texts),
        tuple[str, ...]: lambda: tuple(random.choices(texts, k=2)),
        Mapping[str, int]: lambda: {random.choice(texts): random.choice(NUMBERS)},
        Mapping[str, str]: lambda: {random.choice(texts): random.choice(texts)},
    }
    hints = get_type_hints(kind)
    drawn = {field.name: draw[hints[field.name]]() for field in fields(kind) if field.name not in known}
    if "worst" in drawn and random.random() < 0.5:
        # The one number that a run may find to be infinite.
        drawn["worst"] = math.inf
    return kind(**drawn, **known)


def send_requests(app: FastAPI, examples: int, seed: int, unsent: Sequence[str] = ()) -> int:
    """Sends requests of schemathesis to every operation, fitting and not; returns how many. Raises what is wrong.

    A campaign whose file is `unsent` is not started.
    """
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECKS_OF_ANSWERS]
    schema, sent = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": HOST}), 0

    def send(case: Case) -> None:
        nonlocal sent
        sent += 1
        body = case.body if isinstance(case.body, dict) else {}
        if body.get("config") not in unsent:
            case.call_and_validate(checks=checks, headers={"Host": HOST}, timeout=MAX_SECONDS)

    limits = settings(
        max_examples=examples, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for operation in schema.get_all_operations():
        for mode in GenerationMode:
            # An operation without parameters cannot be asked wrongly.
            with suppress(*([Unsatisfiable] if mode == GenerationMode.NEGATIVE else [])):
                seeded(seed)(limits(given(case=operation.ok().as_strategy(generation_mode=mode))(send)))()
    return sent


def fuzz(seeds: Path, seconds: float, seed: int, crashes: Crashes) -> int:
    """Sends requests for so many seconds to services, each with texts of its own. Returns how many inputs ran."""
    random, start, ran = Random(seed), time.monotonic(), 0
    lines = [line for path in sorted(seeds.iterdir()) for line in path.read_bytes().split(b"\n")]
    while time.monotonic() - start < seconds:
        pieces = [random.choice(lines)[: random.randrange(200)] for _ in range(random.randrange(1, 6))]
        pieces += [random.randbytes(random.randrange(8)) for _ in range(random.randrange(3))]
        random.shuffle(pieces)
        data = random.choice((b"\n", b"")).join(pieces)
        try:
            check_service(data)
            texts = data.decode("utf-8", "surrogateescape").split("\n")
            with hostile_service(texts, random) as app:
                ran += 1 + send_requests(app, EXAMPLES, seed + ran)
        except (Exception, BaseExceptionGroup) as error:
            crashes.add(data, error)
    return ran
