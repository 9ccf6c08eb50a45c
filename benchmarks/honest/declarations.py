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
import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from pprint import pformat
from typing import Any

import torch

from fuzz.model.dims import evaluate, resolve

DTYPES = ("float32", "bfloat16", "float16")
CALLS = 2
"""Calls of an operation, at most: those that come first among calls of different forms."""
SIZES = ((5, 7, 11, 13), (6, 4, 9, 10), (3, 8, 2, 12))
"""Sizes of the dims at which a call must work for them to be free."""
LARGEST = 1 << 16
"""Elements of the largest argument."""
MOVES = {"mul.Tensor", "copy_", "clone", "contiguous", "_to_copy", "zeros", "ones", "full", "arange", "fill_.Scalar"}
"""Operations that nearly every call has, so that they are no reason to take a library's kernels for the call."""
TENSOR, LIST = "tensor", "list"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Declaration:
    """One call of an operation: the dotted name in torch, its arguments, shapes over dims, and its outputs' shapes.

    An argument is a number, a string, None, {"tensor": name} or {"list": arguments}. `outputs` holds the place of each
    floating output and its shape over the dims; `gradients` says that all of them can be differentiated.
    """

    name: str
    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    shapes: dict[str, list[str]]
    dims: dict[str, tuple[int, int]]
    outputs: dict[str, list[str]] = field(default_factory=dict)
    gradients: bool = False
    dtypes: tuple[str, ...] = DTYPES


def find_function(name: str) -> Callable[..., Any] | None:
    """The function of a dotted name below torch, or a method of its tensors; None where there is none."""
    for root in (torch, torch.Tensor):
        found = reduce(lambda place, part: getattr(place, part, None), name.split("."), root)
        if callable(found):
            return found
    return None


def rebuild(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A declared argument with its tensors in place."""
    if isinstance(value, dict):
        return tensors[value[TENSOR]] if TENSOR in value else [rebuild(one, tensors) for one in value[LIST]]
    return value


def apply(declaration: Declaration, function: Callable[..., Any], tensors: Mapping[str, torch.Tensor]) -> list[Any]:
    """The results of the call, as a list."""
    args = [rebuild(value, tensors) for value in declaration.args]
    kwargs = {name: rebuild(value, tensors) for name, value in declaration.kwargs.items()}
    result = function(*args, **kwargs)
    return list(result) if isinstance(result, tuple | list) else [result]


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


def attempt(
    declaration: Declaration,
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    transposed: bool = False,
    values: str = "random",
) -> list[Any] | None:
    """The results at these sizes, with the first dim the fastest in memory if `transposed`; None where refused.

    The values of the tensors are "random", or "equal" to 0.5.
    """
    function = find_function(declaration.function)
    assert function is not None
    if any(math.prod(resolve(tuple(texts), sizes)) > 1 << 20 for texts in declaration.shapes.values()):
        return None
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.rand(resolve(tuple(texts), sizes), generator=generator).to(dtype)
        for name, texts in declaration.shapes.items()
    }
    if values == "equal":
        tensors = {name: torch.full_like(value, 0.5) for name, value in tensors.items()}
    if transposed:
        tensors = {name: reverse_dims(reverse_dims(value).contiguous()) for name, value in tensors.items()}
    tensors = {name: value.requires_grad_() for name, value in tensors.items()}
    try:
        return apply(declaration, function, tensors)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError):
        return None


def reverse_dims(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(tuple(reversed(range(tensor.dim()))))


def free_dims(declaration: Declaration, sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Of each dim the least and the largest size: where the operation takes no other sizes, the sample's own."""
    free = set[str]()
    for place, dim in enumerate(sizes):
        taken = (attempt(declaration, sizes | {dim: other[place % 4]}, torch.float32) for other in SIZES)
        if all(one is not None for one in taken):
            free.add(dim)
    rank = max([sum(text in free for text in texts) for texts in declaration.shapes.values()], default=1)
    high = round(LARGEST ** (1 / max(rank, 1)))
    return {dim: (1, high) if dim in free else (size, size) for dim, size in sizes.items()}


def bound_dims(declaration: Declaration) -> dict[str, tuple[int, int]]:
    """The dims between the least and the largest sizes at which the results have the declared shapes.

    An index or an offset among the arguments needs a size, the end of a slice allows none beyond it, and a size of 1
    may be another case, as it is of squeeze.
    """
    sizes, dims = free_sizes(declaration.dims, SIZES[0]), dict(declaration.dims)
    for dim, (low, high) in declaration.dims.items():
        first = sizes[dim]
        beyond = range(first + 1, high + 1)
        fails = partial(lacks_shapes, declaration, sizes, dim)
        if beyond and fails(high):
            high = first + bisect_left(beyond, True, key=fails)
        while sizes[dim] > low and not fails(sizes[dim] - 1):
            sizes[dim] -= 1
        dims[dim] = (sizes[dim], high)
    return dims


def lacks_shapes(declaration: Declaration, sizes: Mapping[str, int], dim: str, size: int) -> bool:
    """Whether the results do not have the declared shapes at these sizes, with another one of a dim."""
    return not has_shapes(declaration, {**sizes, dim: size})


def has_shapes(declaration: Declaration, sizes: Mapping[str, int]) -> bool:
    """Whether the results at these sizes have the declared shapes."""
    results = attempt(declaration, sizes, torch.float32) or []
    shapes = {str(place): tuple(result.shape) for place, result in enumerate(results)}
    return all(shapes.get(place) == resolve(tuple(texts), sizes) for place, texts in declaration.outputs.items())


def free_sizes(dims: Mapping[str, tuple[int, int]], sizes: tuple[int, ...]) -> dict[str, int]:
    """A size for each dim: one of these, each for itself as far as they reach, where the dim is free."""
    count = len(sizes)
    numbers = ((low, high, sizes[place % count] + place // count) for place, (low, high) in enumerate(dims.values()))
    return {dim: low if low == high else size for dim, (low, high, size) in zip(dims, numbers, strict=True)}


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
    return replace(declared, dims=bound_dims(declared))


def is_random(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether two calls differ, or the call writes into its arguments."""
    return not agree(*(attempt(declaration, sizes, torch.float32) for _ in range(2)))


def counts_values(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether the shapes of the results come from the values, as unique's do."""
    some, equal = (attempt(declaration, sizes, torch.float32, values=values) for values in ("random", "equal"))
    return some is not None and equal is not None and [one.shape for one in some] != [one.shape for one in equal]


def reads_layout(declaration: Declaration, sizes: dict[str, int]) -> bool:
    """Whether the results are of places in memory, as as_strided's are, and not of the elements."""
    return not agree(*(attempt(declaration, sizes, torch.float32, each) for each in (False, True)), tolerance=1e-3)


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
            if any(is_left_out(declared, sizes) for is_left_out in (is_random, reads_layout, counts_values)):
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

    with get_context("fork").Pool(jobs) as pool:
        found = pool.map(declare_operation, range(len(op_db)), chunksize=1)
    return list({one.name: one for declarations in found for one in declarations}.values())


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
    (asked.folder / "done").touch()


if __name__ == "__main__":
    main()
