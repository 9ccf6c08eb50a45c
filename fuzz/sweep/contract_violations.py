"""Judges swept values by the target's contract, as the accuracy oracle does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fuzz.model.dtypes import Bits, decimal
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles.accuracy import NARROW_LARGE
from fuzz.oracles.comparison.batch_rows import select_expected
from fuzz.oracles.comparison.elements import SYMPTOMS, compare_elements
from fuzz.oracles.comparison.expected import STAGES, stage_options
from fuzz.reference.envelope import merge_members
from fuzz.sweep.count_errors import ComparedValues, find_regions
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.sweep_counts import WORST, WrongValue
from fuzz.sweep.ulps import ordinals, ulps


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


def worst_values(
    kernel: SweptKernel, compared: ComparedValues, bits: tuple[Bits, ...], violations: Violations, part: int
) -> list[WrongValue]:
    """The worst of each region and symptom. `compared` is on the host; `bits` are those of the swept arguments."""
    kind, indices = kernel.plan.kind, violations.indices
    x = compared.inputs[kernel.plan.swept[0]][indices].nan_to_num()
    regions = find_regions(x, kind.smallest_normal).numpy()
    symptoms, ratios = violations.symptoms.numpy(), violations.ratios.numpy()
    worst = []
    for region, symptom in np.unique(np.stack([regions, symptoms], 1), axis=0):
        group = np.flatnonzero((regions == region) & (symptoms == symptom))
        for i in group[np.argsort(-ratios[group], kind="stable")[:WORST]]:
            index = int(indices[i])
            patterns = tuple(int(swept[index]) for swept in bits)
            texts = describe_value(compared, index)
            inputs = tuple(decimal(pattern, kind) for pattern in patterns)
            name, ratio = SYMPTOMS[int(symptom) - 1], float(ratios[i])
            worst.append(WrongValue(part, int(region), name, patterns, inputs, *texts, ratio))
    return worst


def describe_value(compared: ComparedValues, index: int) -> tuple[str, str, float, int]:
    """(result, what is due, error in units in the last place, in ordinals) of one value."""
    got, want, kind = compared.output[index : index + 1], compared.want[index : index + 1], compared.kind
    rounded = want.to(got.dtype)
    texts = decimal(int(to_bits(got)[0]), kind), decimal(int(to_bits(rounded)[0]), kind)
    return *texts, float(ulps(got.double(), want, kind)), int((ordinals(got) - ordinals(rounded)).abs())
