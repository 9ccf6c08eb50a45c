"""An ordinary unit test: a list of shapes, some of them odd, every dtype and option, randn, allclose; run once."""

from __future__ import annotations

from itertools import product

import torch

from .subject import Subject

SIZES = ((4, 64, 32), (8, 128, 64), (16, 512, 128), (3, 257, 33), (32, 1024, 64), (1, 1000, 17))
"""The first dim, the second one, and the others."""


def run(subject: Subject, seed: int) -> None:
    torch.manual_seed(seed)
    names = list(subject.target.options)
    choices = [option.choices for option in subject.target.options.values()]
    for sizes, dtype, values in product(SIZES, subject.dtypes(), product(*choices)):
        dims = {dim.name: dim.clamp(sizes[min(at, 2)]) for at, dim in enumerate(subject.target.sizes)}
        kind = getattr(torch, dtype)
        tensors = {name: torch.randn(shape).to(kind) for name, shape in subject.shapes(dims).items()}
        try:
            subject.check(tensors, dict(zip(names, values, strict=True)), dims)
        except Exception:
            return
