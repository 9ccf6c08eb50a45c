"""What several tests need: small cases made by hand, and the targets that come with the project."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from services import Postgres, postgres

from fuzz.cli import NEW_OBJECTS
from fuzz.judge.processes.requests import SERVER_MODULE
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Element, Finding
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact, recipe
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.worker.worker_server import CONTEXT

BUILT_IN = ("gelu_bw", "layernorm_bw")
FOLDER = Path(__file__).parent
COMPILE_DISABLE = "TORCH_COMPILE_DISABLE"
DISABLED_AT_FIRST = os.environ.get(COMPILE_DISABLE)
LONGEST = (
    "quality/test_causes.py", "judge/test_referee.py", "quality/test_planted.py", "cli/test_cli.py",
    "report/reproducer/test_script_runs.py", "campaign/test_campaign.py", "worker/test_hostile_requests.py",
    "web/test_browser.py", "test_packaging.py", "shrink/test_passes.py", "test_pytest_plugin.py", "judge/test_ops.py",
    "benchmarks/test_self_fuzz.py", "cli/test_supervisor.py", "quality/test_quiet_others.py", "worker/test_forking.py",
    "oracles/test_signatures.py", "oracles/test_verdicts.py", "backends/cpu/runtime/test_activation.py",
    "worker/test_worker.py", "judge/checks/test_judge_history.py", "drift/test_drift.py",
)  # fmt: skip
"""The files that take longest as a whole. They run first: at the end, one of them would keep a single worker busy."""


# How fast a machine draws examples is no property of what they test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# As in the command: after 700 objects, as Python does it by itself, imports and tests take longer.
gc.set_threshold(NEW_OBJECTS)


def pytest_collection_finish() -> None:
    """Leaves out of collections what has been imported, which is never garbage."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, and leaves the others in their order."""
    places = {FOLDER / name: number for number, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places)
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: threads only cost."""
    torch.set_num_threads(1)
    yield


@pytest.fixture(autouse=True)
def compiler_as_it_was() -> Iterator[None]:
    """Targets of fla-core switch torch.compile off for the process that loads them."""
    yield
    if os.environ.get(COMPILE_DISABLE) != DISABLED_AT_FIRST:
        os.environ.pop(COMPILE_DISABLE)
    if "torch._dynamo.config" in sys.modules:
        sys.modules["torch._dynamo.config"].disable = DISABLED_AT_FIRST == "1"


@pytest.fixture(scope="session", autouse=True)
def imported_once() -> Iterator[None]:
    """The server that workers are forked from has imported what they need, as in a run; it starts with the first.

    It is one server for all tests, whichever starts it: it has imported what judgements need as well.
    """
    CONTEXT.set_forkserver_preload(["fuzz.server_preload", SERVER_MODULE])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CONTEXT, "set_forkserver_preload", lambda names: None)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store in each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    made: Postgres = request.getfixturevalue("server")
    return made.database()


@pytest.fixture
def no_cross_checks() -> Iterator[None]:
    """Findings are not run again by Triton's interpreter, in a process of its own; test_cross_check.py tests that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.run.findings.bug_postprocessor.cross_check", lambda *_: {})
        yield


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(params=BUILT_IN)
def built_in(request: pytest.FixtureRequest) -> Target:
    """Each of the project's targets."""
    return load(str(request.param))


@pytest.fixture
def gelu() -> Target:
    return load("gelu_bw")


@pytest.fixture
def layernorm() -> Target:
    return load("layernorm_bw")


@pytest.fixture
def case() -> Case:
    """A case of gelu_bw: dy by a recipe, x by its words."""
    x = Exact((0x3F800000, 0xC0800000), "float32")
    return Case(
        "gelu_bw",
        (
            Call(
                {"N": 2}, {"dy": Argument(("N",), "float32", recipe("normal", 7)), "x": Argument(("N",), "float32", x)}
            ),
        ),
    )


@pytest.fixture
def entry(case: Case) -> Entry:
    """A saved finding of that case."""
    seen = Element("dx", (1,), "0.5", "0x3f000000", "-0.5", bound="1e-09", ulps="3")
    found = Finding("accuracy", ("dx",), "sign", "dx: 1 of 2 elements wrong", (seen,), disagreeing=1, compared=2)
    return Entry(case, found, planted="erf_saturates", provenance=Provenance(backend="cpu", rate=Rate(10, 10)))


@pytest.fixture
def two_cases(layernorm: Target) -> tuple[Case, Case]:
    """A smaller case of layernorm_bw and a larger one."""
    drawn = [RandomEngine(layernorm, 0).case(number) for number in range(40)]
    small = sorted((case for case in drawn if len(case.calls) == 1), key=Case.elements)
    return small[0], small[5]
