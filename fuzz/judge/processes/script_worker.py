"""Runs a program with Triton kernels in a process of its own, under the instruments of the cpu backend."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fuzz.backends import DEFAULT
from fuzz.backends.launcher_allocations import LauncherAllocations, fill_without_poison
from fuzz.errors import one_line
from fuzz.judge.processes.device import OnDevice, stay_on_processor
from fuzz.judge.processes.requests import RunScript, ScriptConfig, ScriptReport
from fuzz.judge.processes.sandbox import leave_network, limit_files
from fuzz.model import oracle_specs
from fuzz.model.finding import Finding
from fuzz.model.outcome import Access
from fuzz.oracles.bounds import SYMPTOMS

MODULE = "__main__"


def make_handler(config: ScriptConfig) -> Callable[[RunScript], ScriptReport]:
    """Makes the handler of the program's process."""
    leave_network()
    limit_files()
    torch.set_num_threads(1)
    DEFAULT.prepare()
    stay_on_processor()

    def handle(request: RunScript) -> ScriptReport:
        with ExitStack() as stack:
            if not request.poison:
                stack.enter_context(fill_without_poison())
            if request.races:
                stack.enter_context(DEFAULT.observe_races())
            return run_script(config.path, request.order)

    return handle


def run_script(path: Path, order: int | None = None) -> ScriptReport:
    """Executes a program as its author does, and observes its launches."""
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    sys.path.insert(0, str(path.parent))
    before, sys.modules[MODULE] = sys.modules.get(MODULE), module
    arguments, sys.argv = sys.argv, [str(path)]
    printed, raised = io.StringIO(), ""
    torch.manual_seed(0)
    try:
        with OnDevice(DEFAULT.device), DEFAULT.session(order) as session:
            with LauncherAllocations(session.on_operation) as allocations, redirect_stdout(printed):
                try:
                    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
                except SystemExit:
                    pass
                except Exception as error:
                    raised = one_line(error)
            accesses = (*session.accesses(), *allocations.outside_writes({}))
            kernels = tuple(session.kernels())
    finally:
        sys.argv = arguments
        if before is not None:
            sys.modules[MODULE] = before
    findings = tuple(map(as_finding, accesses))
    return ScriptReport(findings, kernels, raised, digest(printed.getvalue(), vars(module)), order)


def as_finding(access: Access) -> Finding:
    """The finding that a wrong access is."""
    symptom = SYMPTOMS[access.kind]
    return Finding(
        oracle_specs.BOUNDS.name, (access.buffer,), symptom, access.where, source_line=access.source_line
    )  # fmt: skip


def digest(printed: str, names: dict[str, Any]) -> str:
    """A digest of what a program printed and of the tensors that its names hold."""
    found = hashlib.sha256(printed.encode())
    for tensor in tensors_in([value for name, value in sorted(names.items()) if not name.startswith("_")]):
        if tensor.is_floating_point():
            tensor = tensor.double()
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value, in its lists, tuples and dicts."""
    if type(value) is torch.Tensor:
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
