"""Atheris on bytes: sizes, dtype, options and floats from a FuzzedDataProvider, the launcher instrumented.

libFuzzer ends at the first failure, and its minimisation does nothing for a Python program (docs/decisions/engines.md),
so that the counterexample is the input that failed.
"""

from __future__ import annotations

import os
import sys

import atheris
import torch

from fuzz.backends.reached_functions import find_functions

from .subject import Subject

MOST = 64
"""The largest size."""


def run(subject: Subject, seed: int) -> None:
    for function in find_functions(subject.launcher):
        if not hasattr(function.__globals__.get(function.__name__), "fn"):
            atheris.instrument_func(function)
    sizes, dtypes, options = subject.target.sizes, subject.dtypes(), subject.target.options

    def one(data: bytes) -> None:
        if subject.age > subject.seconds:
            subject.tell()
        taken = atheris.FuzzedDataProvider(data)
        dims = {dim.name: dim.clamp(taken.ConsumeIntInRange(dim.low, min(dim.high, MOST))) for dim in sizes}
        kind = getattr(torch, taken.PickValueInList(list(dtypes)))
        chosen = {name: taken.PickValueInList(list(option.choices)) for name, option in options.items()}
        tensors = {}
        for name, shape in subject.shapes(dims).items():
            count = int(torch.Size(shape).numel())
            numbers = taken.ConsumeFloatListInRange(count, -100.0, 100.0)
            numbers += [0.0] * (count - len(numbers))
            tensors[name] = torch.tensor(numbers, dtype=torch.float32).reshape(shape).to(kind)
        try:
            subject.check(tensors, chosen, dims)
        except Exception:
            subject.tell()

    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    flags = [f"-seed={seed + 1}", "-max_len=16384", "-len_control=0", "-timeout=1000"]
    atheris.Setup([sys.argv[0], *flags, f"-exact_artifact_path={os.devnull}"], one)
    os.dup2(out, 1)
    atheris.Fuzz()
