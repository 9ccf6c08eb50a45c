"""Judges swept values by the target's contract, as the accuracy oracle does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fuzz.model.dtypes import Bits, from_bits
from fuzz.oracles.accuracy import NARROW_LARGE
from fuzz.oracles.comparison.batch_rows import select_expected
from fuzz.oracles.comparison.elements import SYMPTOMS, compare_elements
from fuzz.oracles.comparison.expected import STAGES, stage_options
from fuzz.reference.envelope import merge_members
from fuzz.sweep.count_errors import ComparedValues, find_regions
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.sweep_counts import WrongValue


@dataclass(frozen=True)
class Violations:
    """Values that break the contract, on the host: their indices, symptoms (from 1) and ratios of error to bound."""

    indices: Tensor
    symptoms: Tensor
    ratios: Tensor

    @property
    def names(self) -> list[str]:
        return [SYMPTOMS[symptom - 1] for symptom in self.symptoms.tolist()]


def find_violations(kernel: SweptKernel, compared: ComparedValues) -> Violations:
    """Where the target's contract is broken.

    A result that is correctly rounded keeps every contract, so that only the others are judged. Inputs that are not
    finite are judged where the target takes such.
    """
    got, want = compared.got, compared.want
    suspect = ~(((got >= compared.low) & (got <= compared.high)) | (got.isnan() & want.isnan()))
    for name, values in compared.inputs.items():
        if name not in kernel.target.nonfinite:
            suspect &= torch.isfinite(values)
    indices = suspect.nonzero().reshape(-1)
    symptoms = torch.zeros(len(indices), dtype=torch.int64, device=indices.device)
    ratios = torch.zeros(len(indices), dtype=torch.float64, device=indices.device)
    left, known = torch.arange(len(indices), device=indices.device), None
    for stage in range(len(STAGES)):
        if not len(left):
            break
        inputs = {name: values[indices[left]] for name, values in compared.inputs.items()}
        found = kernel.rounding.expected(inputs, **stage_options(stage, stage - 1 if known else None))
        known = merge_members({"": known} if known else {}, {"": found})[""]
        output = compared.output[indices[left]]
        result = compare_elements(output, known, kernel.rounding.precision, kernel.target.contract)
        symptoms[left], ratios[left] = result.symptom.long(), result.ratio
        # As the oracle does: only what exceeds the bound narrowly is worth the last stage.
        keep = (result.symptom > 0) & ((result.ratio <= NARROW_LARGE) | (stage < len(STAGES) - 2))
        left, known = left[keep], select_expected(known, keep)
    wrong = symptoms > 0
    return Violations(indices[wrong].cpu(), symptoms[wrong].cpu(), ratios[wrong].cpu())


def worst_values(plan: SweepPlan, request: int, bits: Sequence[Bits], violations: Violations) -> list[WrongValue]:
    """The worst value of each region and symptom. `bits` are those of the swept arguments in the request."""
    bits = [words[violations.indices.numpy()] for words in bits]
    x = torch.from_numpy(from_bits(bits[0], plan.kind)).nan_to_num()
    regions, symptoms = find_regions(x, plan.kind.smallest_normal).numpy(), violations.symptoms.numpy()
    ratios = violations.ratios.numpy()
    order = np.argsort(-ratios, kind="stable")
    _, first = np.unique(np.stack([regions, symptoms], 1)[order], axis=0, return_index=True)
    found = []
    for i, ratio in zip(order[first].tolist(), ratios[order[first]].tolist(), strict=True):
        part, words = plan.part_of(request, bits[0][i]), tuple(int(each[i]) for each in bits)
        found.append(WrongValue(part, int(regions[i]), SYMPTOMS[symptoms[i] - 1], words, ratio))
    return found
