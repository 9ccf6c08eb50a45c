"""Finds out what depends on a problem's constants: which are dims, and how every shape follows from them.

Runs in the process that holds the reference, on tensors without memory (torch's meta device) where the problem allows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.errors import one_line
from fuzz.judge.formats.base import Problem, Tensors
from fuzz.judge.problem import OWN, RANDOM, ArgumentDescription, NotComparable, ProblemDescription, Unsupported
from fuzz.model.dims import Size, resolve
from fuzz.model.recipes import Recipe, recipe

Dims = dict[str, int]
Shapes = dict[str, tuple[int, ...]]
CAPS = (1 << 40, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8)
"""Sizes to which constants above SMALL are lowered, one after the other, until the problem fits."""
SMALL = 16
"""Constants up to this are kept: kernel sizes, strides, numbers of channels of an image."""
PROBE_ELEMENTS = 1 << 17
"""Elements of all tensors at the dims at which it is found out what depends on what."""
LARGEST, LARGEST_TENSOR = 1 << 14, 1 << 20
"""The largest size that a dim is given, and the elements of a tensor at it."""


def describe(problem: Problem, elements: int, seconds: float) -> ProblemDescription:
    """The description of a problem whose first cases have at most so many elements and take so long in float32.

    Raises NotComparable or Unsupported where it cannot be run.
    """
    probe = scale_down(problem, PROBE_ELEMENTS, seconds)
    first = scale_down(problem, elements, seconds)
    arguments, state = problem.make(probe, 0)
    tensors = {**arguments, **state}
    for name, value in tensors.items():
        if value.dtype not in DTYPE_NAMES:
            raise Unsupported(f"{name} is {value.dtype}")
    free, shapes = find_free_dims(problem, probe)
    later = {name: value for part in problem.make(probe, 1) for name, value in part.items()}
    described = {
        name: ArgumentDescription(
            shapes[name],
            DTYPE_NAMES[value.dtype],
            *classify_argument(problem, name, value, later[name], name in state),
            is_state=name in state,
        )
        for name, value in tensors.items()
    }
    sizes = tuple(Size(name, 1, largest_size(name, free, shapes)) for name in free)
    fixed = {name: value for name, value in first.items() if name not in free}
    if any(problem.constants[name] != value for name, value in fixed.items()):
        # What is no dim is as the problem states it, or as small as it must be.
        fixed = {name: probe[name] for name in fixed}
    first = {name: first[name] if name in free else fixed[name] for name in first}
    return ProblemDescription(
        problem.name,
        sizes,
        dict(problem.constants),
        first,
        described,
        in_place=tuple(dict.fromkeys((*written_arguments(problem, probe), *sorted(problem.scratch)))),
    )


def largest_size(name: str, free: Sequence[str], shapes: Mapping[str, tuple[str, ...]]) -> int:
    """The largest power of two at which no tensor has more than LARGEST_TENSOR elements, every other dim at 1."""
    size = 1
    while size < LARGEST:
        dims = {**dict.fromkeys(free, 1), name: 2 * size}
        if any(math.prod(resolve(shape, dims)) > LARGEST_TENSOR for shape in shapes.values()):
            break
        size *= 2
    return size


def scale_down(problem: Problem, elements: int, seconds: float) -> Dims:
    """The problem's constants, the large ones lowered until all tensors have so few elements."""
    own, reason = dict(problem.constants), "it cannot be run"
    tried: list[Dims] = []
    for cap in CAPS:
        dims = {name: value if value <= SMALL else min(value, cap) for name, value in own.items()}
        if dims in tried:
            continue
        tried.append(dims)
        try:
            if count_elements(problem, dims) > elements:
                reason = f"its tensors have more than {elements} elements however small its constants are"
                continue
            start = time.monotonic()
            run_eagerly(problem, dims)
            if time.monotonic() - start <= seconds:
                return dims
            reason = f"it takes longer than {seconds:g} s"
        except (NotComparable, Unsupported):
            raise
        except Exception as error:
            reason = one_line(error)
    raise Unsupported(f"the problem cannot be run: {reason}")


def run_eagerly(problem: Problem, dims: Mapping[str, int]) -> Tensors:
    """The problem's own outputs in the dtypes that it states."""
    arguments, state = problem.make(dims, 0)
    with torch.no_grad():
        return problem.compute(dims, {**arguments, **state}, torch.get_default_dtype())


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


def find_free_dims(problem: Problem, base: Dims) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The constants that are dims, and every shape as expressions over them.

    A dim changes the shape of an argument, or, where it is no small number, of the state; each size is a sum of
    multiples of dims. The problem runs at one more of each.
    """
    plain = shapes_at(problem, base)
    arguments = set(problem.make(base, 0)[0])
    slopes: dict[str, dict[tuple[str, int], int]] = {}
    for name, value in base.items():
        slope = find_slopes(problem, base, name, plain) if value > 0 else None
        changed = {tensor for (tensor, _), step in (slope or {}).items() if step}
        if slope and (changed & arguments or changed and value > SMALL):
            slopes[name] = slope
    slopes = drop_products(problem, base, plain, slopes)
    shapes = {
        tensor: tuple(
            expression(size, {name: slope[tensor, axis] for name, slope in slopes.items()}, base)
            for axis, size in enumerate(shape)
        )
        for tensor, shape in plain.items()
    }
    return tuple(slopes), shapes


def find_slopes(problem: Problem, base: Dims, name: str, plain: Shapes) -> dict[tuple[str, int], int] | None:
    """By tensor and axis how much a size grows with a constant; None where not evenly, or the problem fails."""
    try:
        one, three = (shapes_at(problem, {**base, name: base[name] + more}) for more in (1, 3))
        run_eagerly(problem, {**base, name: base[name] + 1})
    except Exception:
        return None
    slope = {}
    for tensor, shape in plain.items():
        if not len(shape) == len(one[tensor]) == len(three[tensor]):
            return None
        for axis, size in enumerate(shape):
            step = one[tensor][axis] - size
            if three[tensor][axis] - size != 3 * step:
                return None
            slope[tensor, axis] = step
    return slope


def drop_products(
    problem: Problem, base: Dims, plain: Shapes, slopes: dict[str, dict[tuple[str, int], int]]
) -> dict[str, dict[tuple[str, int], int]]:
    """Without dims that other dims multiply: together they do not change sizes as each does alone."""
    while slopes:
        moved = {**base, **{name: base[name] + 1 for name in slopes}}
        try:
            found = shapes_at(problem, moved)
        except Exception:
            found = {}
        expected = {
            tensor: tuple(
                size + sum(slope[tensor, axis] for slope in slopes.values()) for axis, size in enumerate(shape)
            )
            for tensor, shape in plain.items()
        }
        if found == expected:
            break
        slopes = {name: slopes[name] for name in list(slopes)[:-1]}
    return slopes


def expression(size: int, steps: Mapping[str, int], base: Mapping[str, int]) -> str:
    """The size as a sum of multiples of dims and a number."""
    terms = [name if step == 1 else f"{step}*{name}" for name, step in steps.items() if step]
    rest = size - sum(step * base[name] for name, step in steps.items())
    text = " + ".join(terms)
    if not terms:
        return str(size)
    return f"{text} + {rest}" if rest > 0 else f"{text} - {-rest}" if rest else text


def classify_argument(
    problem: Problem, name: str, first: torch.Tensor, second: torch.Tensor, is_state: bool
) -> tuple[str, Recipe | None]:
    """How an argument's values may be drawn; memory for an output holds numbers that nobody has asked for."""
    if name in problem.scratch:
        return RANDOM, recipe("normal") if first.is_floating_point() else recipe("integers", bound=100)
    return classify(first, second, is_state, name in problem.fixed)


def classify(
    first: torch.Tensor, second: torch.Tensor, is_state: bool, is_fixed: bool = False
) -> tuple[str, Recipe | None]:
    """How the values of a tensor may be drawn, and the recipe that makes what the problem makes, from two of its own.

    Values that are neither uniform nor normal, independently of each other, have a meaning that recipes do not know.
    """
    if not first.is_floating_point():
        return OWN, None
    values = torch.cat([first.reshape(-1), second.reshape(-1)]).double()
    if not values.numel():
        return RANDOM, recipe("zeros")
    low, high = float(values.min()), float(values.max())
    if low == high:
        named = {0.0: "zeros", 1.0: "ones"}.get(low)
        return (RANDOM if named and is_state and not is_fixed else OWN), recipe(named) if named else None
    if is_fixed:
        return OWN, None
    if not all(map(is_unstructured, (first, second))) and not is_state:
        return OWN, None
    exponent = math.ceil(math.log2(max(abs(low), abs(high))))
    deviation = float(values.std()) / 2.0**exponent
    if 0 <= low and abs(deviation - 12**-0.5) < 0.12:
        return RANDOM, recipe("uniform", exponent=exponent, signed=0)
    if is_state and low < 0 or abs(deviation - 3**-0.5) < 0.12:
        return RANDOM, recipe("uniform", exponent=exponent, signed=1)
    if abs(float(values.std()) - 1) < 0.25 and abs(float(values.mean())) < 0.25:
        return RANDOM, recipe("normal")
    return OWN, None


def is_unstructured(values: torch.Tensor) -> bool:
    """Whether hardly any two values are equal, and no row's sum is much nearer to a number than chance brings it."""
    flat = values.reshape(-1)
    if len(torch.unique(flat)) < 0.9 * flat.numel() or values.dim() and values.dim() > 1 and is_symmetric(values):
        return False
    if values.dim() and values.shape[-1] > 4:
        sums = values.double().sum(-1)
        return float(sums.std()) > 1e-3 * float(sums.abs().mean()) if sums.numel() > 1 else True
    return True


def is_symmetric(values: torch.Tensor) -> bool:
    return values.shape[-1] == values.shape[-2] > 1 and torch.equal(values, values.transpose(-1, -2))


def written_arguments(problem: Problem, dims: Mapping[str, int]) -> tuple[str, ...]:
    """The arguments and the state that the problem's own code writes, or whose memory an output shares."""
    arguments, state = problem.make(dims, 0)
    tensors = {name: value.clone() for name, value in {**arguments, **state}.items()}
    before = {name: value.clone() for name, value in tensors.items()}
    with torch.no_grad():
        outputs = problem.compute(dims, tensors, torch.get_default_dtype())
    storages = {output.untyped_storage().data_ptr() for output in outputs.values() if output.numel()}
    return tuple(
        name
        for name, value in tensors.items()
        if not torch.equal(value, before[name]) or value.untyped_storage().data_ptr() in storages
    )
