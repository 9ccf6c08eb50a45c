"""schemathesis over the whole API: whatever fits its schema, and whatever does not, is answered as the schema says."""

from __future__ import annotations

from contextlib import suppress

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from service_files import ServiceFiles

EXAMPLES = 6
"""Requests of each kind to each operation."""
HOST = {"Host": "127.0.0.1"}
NAMES = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def test_no_request_is_an_error_of_the_server(app: FastAPI, files: ServiceFiles) -> None:
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in NAMES]
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=HOST)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 15
    sent = 0

    def send(case: Case) -> None:
        nonlocal sent
        sent += 1
        # A campaign that is started is a process of its own, which no test waits for here.
        body = case.body if isinstance(case.body, dict) else {}
        if body.get("config") not in ("small",):
            case.call_and_validate(checks=checks, headers=HOST)

    for operation in operations:
        for mode in GenerationMode:
            limits = settings(
                max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            # An operation without parameters cannot be asked wrongly.
            with suppress(*([Unsatisfiable] if mode == GenerationMode.NEGATIVE else [])):
                limits(given(case=operation.as_strategy(generation_mode=mode))(send))()
    assert sent > 120
