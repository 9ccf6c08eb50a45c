"""A service over a corpus, a store and campaign files of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from service_files import MakeClient, ServiceFiles

from fuzz import corpus
from fuzz.campaign.store import Store
from fuzz.model.entry import Entry
from fuzz.web.app import make_app
from fuzz.web.service import Service
from fuzz.web.settings import Settings


@pytest.fixture
def files(tmp_path: Path, entry: Entry) -> ServiceFiles:
    (tmp_path / "configs").mkdir()
    config = f"# A test\ntargets: [gelu_bw]\nstore: sqlite:///{tmp_path}/store.sqlite\ncorpus: {tmp_path}/corpus\n"
    (tmp_path / "configs" / "small.yaml").write_text(config)
    (tmp_path / "configs" / "wrong.yaml").write_text("targts: [gelu_bw]\n")
    (tmp_path / "configs" / "elsewhere.yaml").write_text("targets: [gelu_bw]\nstore: sqlite:///other.sqlite\n")
    return ServiceFiles(tmp_path, corpus.save_entry(tmp_path / "corpus", entry))


@pytest.fixture
def app(files: ServiceFiles) -> FastAPI:
    return make_app(Settings(**files.settings), "0")


@pytest.fixture
def service(app: FastAPI) -> Service:
    found: Service = app.state.fuzz
    return found


@pytest.fixture
def store(service: Service) -> Store:
    return service.store


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1:8327") as made:
        yield made


@pytest.fixture
def make_client(files: ServiceFiles) -> MakeClient:
    """A client of a service with other settings, and other headers."""

    def made(base_url: str = "http://127.0.0.1:8327", **settings: Any) -> TestClient:
        app = make_app(Settings(**{**files.settings, **settings}), "0")
        return TestClient(app, base_url=base_url, follow_redirects=False)

    return made
