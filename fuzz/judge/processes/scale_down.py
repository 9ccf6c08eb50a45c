"""Lowers a problem's constants until its tensors fit, and the problem still runs.

Sizes are computed on tensors without memory (torch's meta device) where the problem allows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.errors import one_line
from fuzz.judge.formats.base import Problem, Tensors
from fuzz.judge.problem.description import NotComparable, Unsupported

Dims = dict[str, int]
Shapes = dict[str, tuple[int, ...]]
CAPS = (1 << 40, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8)
"""Sizes to which constants above SMALL are lowered, one after the other, until the problem fits."""
SMALL = 16
"""Constants up to this are kept as long as lowering others is enough: kernel sizes, strides, channels of an image."""
STEP = 4
"""By how much the number of elements is lowered where the problem takes too long."""
INTERMEDIATE = 16
"""How many times the elements of its tensors the results of a problem's operations may have together."""
MOST_ELEMENTS = 1 << 25
"""Elements above which a problem is not run, however few of its sizes can be lowered."""
LEAST_ELEMENTS = 256
"""Elements below which a problem that still cannot be run is given up."""


def scale_down(problem: Problem, elements: int, seconds: float, flops: int) -> Dims:
    """The problem's constants, the large ones lowered until all tensors have so few elements and it runs so fast.

    Seconds are those of the processor; it does at most so many `flops`, floating-point operations. Raises Unsupported
    where it cannot be run.
    """
    limit = elements
    while True:
        dims = halve(problem, fit(problem, limit), flops, count_flops)
        if (count := count_elements(problem, dims)) > MOST_ELEMENTS:
            raise Unsupported(
                f"the problem cannot be run: its tensors have {count} elements however small its dims are"
            )
        try:
            work = measure_work(problem, dims)
            is_large = work is not None and work.elements > INTERMEDIATE * elements
            if not is_large and is_fast(problem, dims, seconds):
                return dims
        except (NotComparable, Unsupported):
            raise
        except Exception as error:
            if limit < LEAST_ELEMENTS:
                raise Unsupported(f"the problem cannot be run: {one_line(error)}") from None
        if limit < LEAST_ELEMENTS:
            raise Unsupported(f"the problem cannot be run: it takes longer than {seconds:g} s, or too much memory")
        limit = min(limit, count) // STEP


def is_fast(problem: Problem, dims: Dims, seconds: float) -> bool:
    """Whether a problem takes at most so many seconds of the processor. Raises what the problem raises."""
    start = time.process_time()
    run_eagerly(problem, dims)
    return time.process_time() - start <= seconds


def fit(problem: Problem, limit: int) -> Dims:
    """The constants with as few lowered as possible, so that tensors have at most `limit` elements.

    All large constants are capped at one number; where that is not enough, the largest is halved again and again. Where
    the limit cannot be reached, they are as small as they may be. Raises Unsupported where the problem never runs.
    """
    least, fault = None, ""
    for dims in capped(problem):
        fault = find_fault(problem, dims)
        if fault:
            continue
        if count_elements(problem, dims) <= limit:
            return dims
        least = dims
    if least is None:
        raise Unsupported(f"the problem cannot be run: {fault}")
    return halve(problem, least, limit, count_elements)


def capped(problem: Problem) -> Iterator[Dims]:
    """The constants, those above SMALL lowered to one cap after the other.

    What changes no tensor's size, such as a number of groups, is lowered in proportion before it is capped as well.
    """
    own = dict(problem.constants)
    tried: list[Dims] = []
    for cap in CAPS:
        dims = {name: value if value <= SMALL else min(value, cap) for name, value in own.items()}
        factor = max((own[name] // dims[name] for name in own if dims[name]), default=1)
        in_proportion = {
            name: max(own[name] // factor, 1) if own[name] > SMALL and not is_size(problem, dims, name) else value
            for name, value in dims.items()
        }
        for candidate in (in_proportion, dims):
            if candidate not in tried:
                tried.append(candidate)
                yield candidate


def is_size(problem: Problem, dims: Dims, name: str) -> bool:
    """Whether a constant changes the number of elements."""
    try:
        return count_elements(problem, {**dims, name: dims[name] // 2}) != count_elements(problem, dims)
    except Exception:
        return True


def halve(problem: Problem, dims: Dims, limit: int, measure: Callable[[Problem, Dims], int]) -> Dims:
    """The constants with the largest ones halved, one at a time, until what is measured fits, or no constant can be."""
    count = measure(problem, dims)
    while count > limit:
        for name in sorted((name for name, value in dims.items() if value > 1), key=lambda name: -dims[name]):
            candidate = {**dims, name: dims[name] // 2}
            if not find_fault(problem, candidate) and measure(problem, candidate) < count:
                dims, count = candidate, measure(problem, candidate)
                break
        else:
            break
    return dims


def find_fault(problem: Problem, dims: Mapping[str, int]) -> str:
    """Why a problem does not run at these dims, as far as tensors without memory tell; empty where it may run."""
    try:
        shapes_at(problem, dims)
        with meta_device(), torch.no_grad():
            arguments, state = problem.make(dims, 0)
            problem.compute(dims, {**arguments, **state}, torch.get_default_dtype())
    except (NotComparable, Unsupported):
        raise
    except NotImplementedError:
        pass
    except Exception as error:
        return "" if "meta" in str(error) else one_line(error)
    return ""


@dataclass(frozen=True)
class Work:
    """What one evaluation of a problem takes: elements that its operations write, and floating-point operations."""

    elements: int
    flops: int

    def fits(self, limit: Work) -> bool:
        return self.elements <= limit.elements and self.flops <= limit.flops

    def or_more(self, other: Work) -> Work:
        return Work(max(self.elements, other.elements), max(self.flops, other.flops))


class ElementCounter(DispatchMode):
    """While active, counts the elements of what operations return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += sum(value.numel() for value in tree_leaves(result) if isinstance(value, torch.Tensor))
        return result


def measure_work(problem: Problem, dims: Mapping[str, int]) -> Work | None:
    """The work of one evaluation, on tensors without memory; None where the problem does not run on such."""
    try:
        with meta_device(), torch.no_grad(), FlopCounterMode(display=False) as flops, ElementCounter() as elements:
            arguments, state = problem.make(dims, 0)
            problem.compute(dims, {**arguments, **state}, torch.get_default_dtype())
    except Exception:
        return None
    return Work(elements.count, flops.get_total_flops())


def count_flops(problem: Problem, dims: Mapping[str, int]) -> int:
    """Floating-point operations of one evaluation; 0 where they cannot be counted without memory."""
    work = measure_work(problem, dims)
    return work.flops if work else 0


def run_eagerly(problem: Problem, dims: Mapping[str, int]) -> Tensors:
    """The problem's own outputs in the dtypes that it states."""
    arguments, state = problem.make(dims, 0)
    with torch.no_grad():
        return problem.compute(dims, {**arguments, **state}, torch.get_default_dtype())


def output_shapes(problem: Problem, dims: Mapping[str, int]) -> Shapes:
    """The shape of every floating output. Raises what the problem raises."""
    try:
        with meta_device():
            outputs = run_eagerly(problem, dims)
    except Exception:
        outputs = run_eagerly(problem, dims)
    return {name: tuple(value.shape) for name, value in outputs.items() if value.is_floating_point()}


def count_elements(problem: Problem, dims: Mapping[str, int]) -> int:
    """Elements of all arguments and of the state."""
    return sum(math.prod(shape) for shape in shapes_at(problem, dims).values())


def shapes_at(problem: Problem, dims: Mapping[str, int]) -> Shapes:
    """The shape of every argument and of the state. Raises what the problem raises."""
    with meta_device():
        try:
            arguments, state = problem.make(dims, 0)
        except NotImplementedError:
            # It looks at values, which such tensors do not have.
            with torch.device("cpu"):
                arguments, state = problem.make(dims, 0)
    return {name: tuple(value.shape) for name, value in {**arguments, **state}.items()}


def meta_device() -> AbstractContextManager[object]:
    return torch.device("meta")
