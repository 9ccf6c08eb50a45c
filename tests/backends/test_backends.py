"""What the rest of the project knows of a device stands on its backend: `auto` and every choice follow from that."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from triton import Config, autotune, jit
from triton.language import constexpr

from fuzz.backends import BACKENDS, DEFAULT, SELECTABLE, backend, check_name
from fuzz.backends.base import Backend
from fuzz.errors import BackendError
from fuzz.worker.precompile import Precompiler
from fuzz.worker.protocol import WorkerConfig

PACKAGE = Path(__file__).parents[2] / "fuzz"
FOR_PEOPLE = (PACKAGE / "backends", PACKAGE / "cli", PACKAGE / "pytest_plugin.py", PACKAGE / "report" / "reproducer")
"""Where an accelerator may be named: its backend, help on options, and programs for machines of other people."""


@jit
def scaled(x, BLOCK: constexpr):  # type: ignore[no-untyped-def]
    """Is never compiled."""


class Accelerator(Backend):
    name = "made-up"
    is_accelerator = compiles_without_device = True


def literals(path: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def test_no_other_file_names_an_accelerator() -> None:
    accelerators = {name for name, one in BACKENDS.items() if one.is_accelerator}
    paths = (path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(FOR_PEOPLE[0]))
    others = [path for path in paths if not any(path == one or path.is_relative_to(one) for one in FOR_PEOPLE)]
    assert len(others) > 100
    assert [path.name for path in others if accelerators & set(literals(path))] == []


def test_auto_is_an_accelerator_that_can_run_and_the_default_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Accelerator()
    monkeypatch.setitem(BACKENDS, made.name, made)
    monkeypatch.setattr(type(BACKENDS["cuda"]), "unavailable_reason", lambda self: "none here")
    assert backend("auto") is made
    monkeypatch.setattr(made, "unavailable_reason", lambda: "none here")
    assert backend("auto") is DEFAULT


def test_what_only_cross_checks_cannot_be_chosen() -> None:
    assert SELECTABLE == ("auto", "cpu", "cuda")
    for name in ("interpreter", "tpu"):
        with pytest.raises(BackendError, match="known: auto, cpu, cuda"):
            check_name(name)


def test_a_backend_that_overrides_nothing_runs_and_observes_nothing() -> None:
    plain = Backend()
    with plain.session(None) as session, plain.uninstrumented():
        assert (session.accesses(), session.kernels(), session.launches, session.read_counters()) == ([], [], (), b"")
    error = RuntimeError("out of memory")
    assert (plain.is_fatal(error), plain.external_oom_reason(error), plain.unavailable_reason()) == (False, "", "")


@pytest.mark.parametrize("name", SELECTABLE[1:])
def test_an_autotuner_takes_its_first_configuration_also_where_nothing_is_observed(name: str) -> None:
    tuner: Any = autotune([Config({"BLOCK": size}) for size in (32, 64)], key=[])(scaled)
    tuner.fn = Mock()
    with BACKENDS[name].uninstrumented():
        tuner.run(torch.zeros(8), grid=(1,))
    launched = [call.kwargs["BLOCK"] for call in tuner.fn.run.mock_calls if not call.kwargs.get("warmup")]
    assert launched == [32]


@pytest.mark.parametrize(
    ("said", "is_fatal"),
    [
        ("an illegal memory access was encountered", True),
        ("misaligned address", True),
        ("unspecified launch failure", True),
        ("invalid argument", False),
        ("out of memory", False),
    ],
)
def test_errors_that_no_launch_survives_end_a_process_on_a_gpu(said: str, is_fatal: bool) -> None:
    assert BACKENDS["cuda"].is_fatal(RuntimeError(f"Triton Error [CUDA]: {said}")) is is_fatal


@pytest.mark.parametrize(("gib_unused", "is_released"), [(17, True), (1, False)])
def test_a_gpus_memory_that_a_process_does_not_need_is_there_for_others(
    monkeypatch: pytest.MonkeyPatch, gib_unused: int, is_released: bool
) -> None:
    used, emptied = 3 << 30, Mock()
    held = {"allocated_bytes": used, "reserved_bytes": used + (gib_unused << 30)}
    stats = {name: {"all": {"current": size}, "large_pool": {"current": size}} for name, size in held.items()}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: stats)
    monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
    BACKENDS["cuda"].release_memory()
    assert emptied.called is is_released
    stats.clear()
    BACKENDS["cuda"].release_memory()
    assert emptied.call_count == is_released, "before the first tensor nothing is held"


def test_processes_compile_without_the_device_where_the_backend_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    for device, handler in ((Accelerator(), "make_compile_handler"), (DEFAULT, "make_warm_up_handler")):
        config = WorkerConfig("t", None, device.name)
        only = device.compiles_without_device
        made = Precompiler.for_run(1, config, 1 << 30, 1.0, only_compiles=only)
        assert {worker.handler.partition(":")[2] for worker in made.workers} == {handler}


def test_the_backends_are_listed_without_torch_and_triton() -> None:
    program = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; import fuzz.backends, fuzz.worker.pool"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, cwd=PACKAGE.parent)
