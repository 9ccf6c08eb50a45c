"""schemathesis over the whole API: whatever fits its schema, and whatever does not, is answered as the schema says."""

from __future__ import annotations

from fastapi import FastAPI
from service_files import ServiceFiles

from benchmarks.self_fuzz.service import send_requests

EXAMPLES = 6
"""Requests of each kind to each operation."""


def test_no_request_is_an_error_of_the_server(app: FastAPI, files: ServiceFiles) -> None:
    # A campaign that is started is a process of its own, which no test waits for here.
    assert send_requests(app, EXAMPLES, seed=0, unsent=("small",)) > 120
