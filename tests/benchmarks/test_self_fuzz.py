"""Readers of this program: every input that ever broke one, every seed, and some of their mutations."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.self_fuzz import SEEDS, mutation
from benchmarks.self_fuzz.crashes import MAX_SECONDS, Crashes, limit_time
from benchmarks.self_fuzz.surfaces import SURFACES


def service() -> Any:
    """The module of checks of the service: every worker collects these tests, and one needs schemathesis, 1.3 s."""
    return import_module("benchmarks.self_fuzz.service")


CHECKS = {**SURFACES, "service": lambda given: service().check_service(given)}
EXAMPLES = 25


@pytest.mark.parametrize(
    ("surface", "path"),
    [pytest.param(name, path, id=f"{name}-{path.name}") for name in CHECKS for path in sorted(SEEDS.glob(f"{name}/*"))],
)
def test_a_seed_shows_no_defect(surface: str, path: Path) -> None:
    with limit_time():
        CHECKS[surface](path.read_bytes())


def test_a_service_over_hostile_records_answers_as_its_schema_says() -> None:
    with service().hostile_service(["<script>", "\x1b\ud800", "", "../x"], Random(1)) as app:
        assert service().send_requests(app, examples=2, seed=1) > 40


def test_an_answer_of_the_service_has_as_long_as_any_other_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the 10 s of schemathesis, which a busy machine may need for nothing."""
    asked = []
    monkeypatch.setattr(service().Case, "call_and_validate", lambda self, **how: asked.append(how["timeout"]))
    with service().hostile_service([""], Random(1)) as app:
        service().send_requests(app, examples=1, seed=1)
    assert set(asked) == {MAX_SECONDS}


@pytest.mark.parametrize("surface", SURFACES)
def test_mutated_seeds_show_no_defect(surface: str, tmp_path: Path) -> None:
    seeds = [path.read_bytes() for path in sorted(SEEDS.glob(f"{surface}/*"))]
    crashes = Crashes(tmp_path)
    assert mutation.run_mutations(SURFACES[surface], seeds, 1, EXAMPLES, crashes) >= EXAMPLES
    assert not crashes.inputs


def test_an_input_that_shows_a_defect_is_kept_and_shrunk(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if b"k" in data and b"9" * 30 in data:
            raise ValueError("a defect")

    crashes = Crashes(tmp_path)
    mutation.run_mutations(check, [b"tokens", b"numbers and other text"], 1, 2000, crashes)
    (name,) = crashes.inputs
    assert name.startswith("ValueError-test_self_fuzz-")
    assert len(crashes.inputs[name]) < 40 and (tmp_path / name).read_bytes() == crashes.inputs[name]
    assert "a defect" in (tmp_path / f"{name}.txt").read_text()
