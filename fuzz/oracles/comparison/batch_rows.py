"""Selects the rows of a batch that a finding is about: what a target declares to be rows depends on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from fuzz.model.case import Call
from fuzz.model.dims import names
from fuzz.model.finding import Finding
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import COTANGENT, Expected
from fuzz.target.spec import Target

SMALL: Final = 1 << 10
"""Elements of a call up to which all of it is evaluated exactly, whatever disagrees."""


def row_axes(call: Call, batch: str) -> dict[str, int] | None:
    """The axis along which each tensor that has rows of the batch holds them.

    None where rows cannot be taken out: a tensor has their number twice, or in an expression.
    """
    sizes = {name: [text for text in value.shape if batch in names(text)] for name, value in call.tensors.items()}
    if any(texts not in ([], [batch]) for texts in sizes.values()):
        return None
    return {name: call.tensors[name].shape.index(batch) for name, texts in sizes.items() if texts}


def movable_rows(target: Target, call: Call) -> dict[str, int] | None:
    """The same of a target's batch; None as well where a tensor holds numbers of its rows, as prefix sums do, which
    would have to change with their places.
    """
    batch = target.batch_dim or ""
    if any(batch in names(text) for value in target.tensors.values() for text in value.limits):
        return None
    return row_axes(call, batch)


def find_rows(exam: Examination, index: int, finding: Finding) -> torch.Tensor | None:
    """The rows of the batch that the finding's elements lie in, where they depend on nothing else and it saves work."""
    call, batch = exam.case.calls[index], exam.target.batch_dim
    if batch is None or movable_rows(exam.target, call) is None or not finding.elements:
        return None
    if not set(finding.outputs) <= row_outputs(exam, index).keys():
        return None
    rows = sorted({element.index[0] for element in finding.elements})
    return torch.tensor(rows) if call.elements() > SMALL and len(rows) < call.dims[batch] else None


def row_outputs(exam: Examination, index: int) -> dict[str, torch.Tensor]:
    """The outputs that have one row for each row of the batch, by what the target declares."""
    target, call = exam.target, exam.case.calls[index]
    size = call.dims[target.batch_dim or ""]
    alone = sum(other == size for other in call.dims.values()) == 1
    outputs = exam.returned.calls[index].outputs
    if target.rows:
        return {name: output for name, output in outputs.items() if name in target.rows}
    return {name: output for name, output in outputs.items() if alone and output.shape[:1] == (size,)}


def outputs_of_rows(exam: Examination, index: int, rows: torch.Tensor | None) -> Mapping[str, torch.Tensor]:
    """The outputs of a call; with `rows` those rows of the outputs that have rows."""
    if rows is None:
        return exam.returned.calls[index].outputs
    return {name: output[rows.to(output.device)] for name, output in row_outputs(exam, index).items()}


def select_rows(exam: Examination, index: int, arguments: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """The arguments of the reference, as for a call with these rows of the batch alone."""
    call, batch = exam.case.calls[index], exam.target.batch_dim
    found = dict(arguments)
    for name, axis in (row_axes(call, batch or "") or {}).items():
        key = COTANGENT + name.removeprefix("grad ") if name.startswith("grad ") else name
        found[key] = arguments[key].index_select(axis, rows.to(arguments[key].device))
    found.update({name: len(rows) for name, dim in exam.target.passed_sizes.items() if dim == batch})
    return found


def select_expected(expected: Expected, rows: list[int] | torch.Tensor) -> Expected:
    """What is expected of some of the replicas, or of the rows of a batch, given by their numbers or a mask."""
    uncertainty = None if expected.uncertainty is None else expected.uncertainty[rows]
    return Expected(expected.value[rows], expected.spread[rows], uncertainty)
