"""Declares targets of torch's operations from the samples of its own test-suite, none of which needs a line here.

Every sample of an operation's OpInfo is a call. Of a call that names no device and whose tensors are all floating, the
tensors become arguments over named dims, and everything else stays as it is. A dim is free where the operation takes
other sizes of it; the shapes of the results are found by running the operation at several sizes. Each declaration
becomes a file of targets, which loads without torch's test-suite:

python -m benchmarks.honest.declarations FOLDER [--jobs N]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from pprint import pformat
from typing import Any

import torch

from benchmarks.honest.bounds import SIZES, bound_dims, free_dims, has_shapes_within
from benchmarks.honest.calls import DTYPES, LIST, TENSOR, Declaration, attempt, find_function, free_sizes
from benchmarks.honest.forks import map_in_forks
from fuzz.model.dims import evaluate

CALLS = 2
"""Calls of an operation, at most: those that come first among calls of different forms."""
PATIENCE = 120.0
"""Seconds that an operation's declarations may take."""
MOVES = {"mul.Tensor", "copy_", "clone", "contiguous", "_to_copy", "zeros", "ones", "full", "arange", "fill_.Scalar"}
"""Operations that nearly every call has, so that they are no reason to take a library's kernels for the call."""
Shape = tuple[int, ...]


class NotDeclarable(Exception):
    """A sample holds what a declaration cannot: a tensor that is not floating, or an object."""


def abstract(value: Any, shapes: dict[str, Shape]) -> Any:
    """An argument of a sample as a declaration has it; the shapes of its tensors are collected."""
    if isinstance(value, torch.Tensor):
        if value.dtype != torch.float32 or not value.numel() or value.layout != torch.strided:
            raise NotDeclarable
        name = f"x{len(shapes)}"
        shapes[name] = tuple(value.shape)
        return {TENSOR: name}
    if isinstance(value, list | tuple):
        return {LIST: [abstract(one, shapes) for one in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise NotDeclarable


def name_dims(shapes: Mapping[str, Shape], apart: bool) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Shapes over dims, and the sizes of the dims: one for each size above 1, or `apart`, for each axis."""
    if apart:
        axes = {f"{key}_{axis}": size for key, shape in shapes.items() for axis, size in enumerate(shape) if size > 1}
        over = {k: [f"{k}_{i}" if size > 1 else "1" for i, size in enumerate(shape)] for k, shape in shapes.items()}
        return over, axes
    sizes = sorted({size for shape in shapes.values() for size in shape if size > 1})
    names = {size: f"D{place}" for place, size in enumerate(sizes)}
    over = {key: [names.get(size, str(size)) for size in shape] for key, shape in shapes.items()}
    return over, {name: size for size, name in names.items()}


def find_shape(seen: list[tuple[Mapping[str, int], tuple[int, ...]]]) -> list[str] | None:
    """The shape over dims that results of several sizes have; None where no simple expression fits an axis."""
    if len({len(shape) for _, shape in seen}) != 1:
        return None
    dims = list(seen[0][0])
    single = [str(seen[0][1][axis]) for axis in range(len(seen[0][1]))]
    multiples = [f"{factor}*{dim}" for dim, factor in product(dims, (2, 3, 4))]
    shifted = [f"{dim} {sign} {step}" for dim, sign, step in product(dims, "+-", (1, 2, 3, 4))]
    pairs = [f"{left}{sign}{right}" for left, right, sign in product(dims, dims, "*+")]
    halves = [f"{dim}//{factor}" for dim, factor in product(dims, (2, 3))]
    texts = []
    for axis, constant in enumerate(single):
        candidates = [constant, *dims, *multiples, *shifted, *pairs, *halves]
        fits = (text for text in candidates if all(evaluate(text, sizes) == shape[axis] for sizes, shape in seen))
        text = next(fits, None)
        if text is None:
            return None
        texts.append(text)
    return texts


def can_be_differentiated(results: list[torch.Tensor]) -> bool:
    """Whether autograd has the gradients of all of them: for some operations it learns only then that it has none."""
    if not all(result.requires_grad for result in results):
        return False
    try:
        torch.autograd.backward([result.sum() for result in results])
    except (RuntimeError, NotImplementedError):
        return False
    return True


def takes(
    declaration: Declaration, sizes: Mapping[str, int], dtype: torch.dtype, outputs: Iterable[str], gradients: bool
) -> bool:
    """Whether the operation takes a dtype, and its derivative too where it has one."""
    results = attempt(declaration, sizes, dtype)
    return results is not None and (not gradients or can_be_differentiated([results[int(place)] for place in outputs]))


def complete(declaration: Declaration, sizes: dict[str, int], apart: bool) -> Declaration | None:
    """The declaration with its dims, dtypes and outputs; None where it cannot be run or its shapes are not simple.

    One dim must be free, and all of them where they are `apart`: equal sizes of a sample are one dim where the
    operation needs them equal.
    """
    dims = free_dims(declaration, sizes)
    free = [low < high for low, high in dims.values()]
    if not any(free) or apart and not all(free):
        return None
    seen = []
    for numbers in SIZES:
        chosen = free_sizes(dims, numbers)
        results = attempt(declaration, chosen, torch.float32)
        if results is None or not all(isinstance(one, torch.Tensor) for one in results):
            return None
        seen.append((chosen, results))
    outputs: dict[str, list[str]] = {}
    for place, first in enumerate(seen[0][1]):
        if any(len(results) <= place for _, results in seen) or first.is_complex() or first.layout != torch.strided:
            return None
        texts = find_shape([(chosen, tuple(results[place].shape)) for chosen, results in seen])
        if texts is None:
            return None
        if first.is_floating_point():
            outputs[str(place)] = texts
    if not outputs or any(first.dtype not in (torch.float32,) for first in seen[0][1] if first.is_floating_point()):
        return None
    gradients = can_be_differentiated([seen[0][1][int(place)] for place in outputs])
    fits = [name for name in DTYPES if takes(declaration, seen[0][0], getattr(torch, name), outputs, gradients)]
    fields = asdict(declaration) | dict(dims=dims, outputs=outputs, gradients=gradients, dtypes=tuple(fits))
    declared = Declaration(**fields)
    declared = replace(declared, dims=bound_dims(declared))
    return declared if has_shapes_within(declared) else None


def is_random(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether two calls differ, or the call writes into its arguments."""
    return not agree(*(attempt(declaration, sizes, torch.float32) for _ in range(2)))


def counts_values(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether the shapes of the results come from the values, as unique's do."""
    some, equal = (attempt(declaration, sizes, torch.float32, values=values) for values in ("random", "equal"))
    return some is not None and equal is not None and [one.shape for one in some] != [one.shape for one in equal]


def refuses_numbers(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether the call takes numbers between 0 and 1, and not all others."""
    some, normal = (attempt(declaration, sizes, torch.float32, values=values) for values in ("random", "normal"))
    return some is not None and normal is None


def reads_layout(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether the results are of places in memory, as as_strided's are, and not of the elements."""
    return not agree(*(attempt(declaration, sizes, torch.float32, each) for each in (False, True)), tolerance=1e-3)


LEFT_OUT = (is_random, reads_layout, counts_values, refuses_numbers)
"""What calls are left out, each by a function that says whether a declaration is such a call."""


def agree(first: list[Any] | None, second: list[Any] | None, tolerance: float = 0.0) -> bool:
    """Whether neither call was refused, and the results of both are real tensors of the same values."""
    if first is None or second is None:
        return False
    pairs = zip(first, second, strict=True)
    return all(isinstance(a, torch.Tensor) and same(a, b, tolerance) for a, b in pairs)


def same(first: torch.Tensor, second: torch.Tensor, tolerance: float) -> bool:
    """Whether two real results have the same values but for a tolerance, relative and absolute; NaNs are equal."""
    return (
        not first.is_complex()
        and first.layout == torch.strided
        and torch.allclose(first.detach().double(), second.detach().double(), tolerance, tolerance, equal_nan=True)
    )


def declare(info: Any) -> Iterator[Declaration]:
    """The declarations of one operation's samples, of calls of different forms."""
    function, forms, made = find_function(info.name), set[str](), 0
    if function is None or torch.float32 not in info.dtypes:
        return
    variant = f"_{info.variant_test_name}" if info.variant_test_name else ""
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=False):
        shapes: dict[str, Shape] = {}
        try:
            args = [abstract(value, shapes) for value in (sample.input, *sample.args)]
            kwargs = {name: abstract(value, shapes) for name, value in sample.kwargs.items()}
        except NotDeclarable:
            continue
        form = json.dumps([args, kwargs, [len(shape) for shape in shapes.values()]])
        if form in forms or not shapes or kwargs.keys() & {"device"} or kwargs.get("inplace") or kwargs.get("training"):
            continue
        forms.add(form)
        name = f"{info.name}{variant}".replace(".", "_").replace("-", "_") + (f"_{made + 1}" if made else "")
        for apart in (True, False):
            over, sizes = name_dims(shapes, apart)
            declared = Declaration(name, info.name, args, kwargs, over, {})
            if any(is_left_out(declared, sizes) for is_left_out in LEFT_OUT):
                continue
            if found := complete(declared, sizes, apart):
                yield found
                made += 1
                break
        if made == CALLS:
            return


def declare_operation(number: int) -> list[Declaration]:
    """The declarations of the operation at this place of torch's test-suite; of what is left out it prints why."""
    from torch.testing._internal.common_methods_invocations import op_db

    from benchmarks.honest.operations import why_not_graded

    try:
        reasons = [(made, why_not_graded(made)) for made in declare(op_db[number])]
    except Exception as error:  # noqa: BLE001  A sample that cannot be made is one operation fewer.
        print(f"{op_db[number].name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
        return []
    for made, reason in reasons:
        if reason:
            print(f"{made.name}: {reason}"[:200], file=sys.stderr)
    return [made for made, reason in reasons if not reason]


def declare_all(jobs: int) -> list[Declaration]:
    """The declarations of all operations that torch's test-suite knows, by name; so many processes make them."""
    from torch.testing._internal.common_methods_invocations import op_db

    declare_operation(0)  # What it imports each process has then.
    found = map_in_forks(declare_operation, len(op_db), jobs, PATIENCE)
    return list({one.name: one for declarations in found for one in declarations or ()}.values())


FILE = '''"""{function} of {library}, as torch's test-suite calls it."""

from math import *  # An argument can be inf or nan.

from benchmarks.honest.operations import declare

globals().update(declare(__name__, "{library}", **{fields}))
'''


def write(folder: Path, declaration: Declaration) -> None:
    """Writes the files of the targets of one declaration: torch's own operation, and FlagGems' where it has kernels."""
    from benchmarks.honest.operations import flag_gems_functions, operations_of

    libraries = ["torch"]
    if importlib.util.find_spec("flag_gems") and operations_of(declaration) & (flag_gems_functions().keys() - MOVES):
        libraries.append("flag_gems")
    for library in libraries:
        place = folder / library / f"{declaration.name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        text = FILE.format(
            library=library, function=declaration.function, fields=pformat(asdict(declaration), width=110)
        )
        place.write_text(text, encoding="utf-8")


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    for declaration in declare_all(asked.jobs):
        write(asked.folder, declaration)


if __name__ == "__main__":
    main()
