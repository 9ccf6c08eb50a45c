"""Finds out what depends on a problem's constants: which are dims, and how every shape follows from them.

Runs in the process that holds the reference, on tensors without memory (torch's meta device) where the problem allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES, read_words
from fuzz.judge.formats.base import Problem
from fuzz.judge.problem.description import OWN, RANDOM, ArgumentDescription, ProblemDescription, Unsupported
from fuzz.judge.processes.requests import FLOPS
from fuzz.judge.processes.scale_down import (
    SMALL,
    Dims,
    Shapes,
    find_fault,
    output_shapes,
    run_eagerly,
    scale_down,
    shapes_at,
)
from fuzz.model.dims import Size, resolve
from fuzz.model.recipes import Recipe, recipe
from fuzz.target.spec import FLOATS

PROBE_ELEMENTS = 1 << 17
"""Elements of all tensors at the dims at which it is found out what depends on what."""
MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""What a dim may have to be a multiple of: channels in groups, sizes that are folded."""
Slopes = dict[tuple[str, int], int]
"""By tensor and axis how much a size grows with one more multiple of a dim."""
Expressions = Mapping[str, tuple[str, ...]]
"""By tensor its sizes as expressions over dims."""
Measure = Callable[[Dims], Shapes]
NARROW_SAMPLE = 64
"""Values of 16 bits of which at most one in ten is equal to another by chance."""
LARGEST_DIM, LARGEST_TENSOR = 1 << 14, 1 << 20
"""The largest size that a dim is given, and the elements of a tensor at it."""


def describe(problem: Problem, elements: int, seconds: float, flops: int = FLOPS) -> ProblemDescription:
    """The description of a problem whose first cases have at most so many elements and take so long in float32.

    They take at most so many floating-point operations, of which the reference does many times as many in float64.

    Raises NotComparable or Unsupported where it cannot be run.
    """
    first = scale_down(problem, elements, seconds, flops)
    probe, free, shapes = find_probe(problem, scale_down(problem, PROBE_ELEMENTS, seconds, flops), first)
    arguments, state = problem.make(probe, 0)
    tensors = {**arguments, **state}
    for name, value in tensors.items():
        if value.dtype not in DTYPE_NAMES:
            raise Unsupported(f"{name} is {value.dtype}")
    later = {name: value for part in problem.make(probe, 1) for name, value in part.items()}
    described = {
        name: ArgumentDescription(
            shapes[name],
            DTYPE_NAMES[value.dtype],
            *classify_argument(problem, name, value, later[name], name in state),
            is_state=name in state,
            is_buffer=name in problem.fixed,
        )
        for name, value in tensors.items()
    }
    outputs = describe_outputs(problem, probe, free)
    sizes = tuple(
        Size(
            name,
            least_size(problem, probe, name, multiple),
            max(largest_size(name, probe, free, shapes), probe[name]),
            multiple,
        )
        for name, multiple in free.items()
    )
    return ProblemDescription(
        problem.name,
        sizes,
        dict(problem.constants),
        first_dims(problem, probe, first, free, (shapes, {name: one.shape for name, one in outputs.items()})),
        described,
        outputs=outputs,
        unvaried={
            name: explain_fixed(problem, probe, name)
            for name in probe
            if name not in free and is_shape(problem, probe, name)
        },
        in_place=tuple(dict.fromkeys((*written_arguments(problem, probe), *sorted(problem.scratch | problem.written)))),
        variants=problem.variants,
    )


def find_probe(problem: Problem, probe: Dims, first: Dims) -> tuple[Dims, dict[str, int], Expressions]:
    """The dims at which it is found out what depends on what, which constants are dims, and every shape.

    Shapes hold what is no dim as a number, so that the probe has it as the problem states it wherever it runs so.
    """
    free, shapes = find_free_dims(problem, probe)
    stated = {name: first[name] for name in probe if name not in free and first[name] == problem.constants[name]}
    closer = {**probe, **stated}
    if closer == probe or not runs(problem, closer):
        return probe, free, shapes
    return closer, *find_free_dims(problem, closer)


def first_dims(
    problem: Problem, probe: Dims, first: Dims, free: Mapping[str, int], shapes: tuple[Expressions, Expressions]
) -> Dims:
    """The dims of the first cases: what is no dim is as the problem states it, or as in the probe.

    `shapes` are those of arguments and state, and of outputs, as they were found at the probe.
    """
    for fixed in (problem.constants, probe):
        dims = {name: value if name in free else fixed[name] for name, value in first.items()}
        is_first = fixed is probe or all(dims[name] == first[name] for name in dims)
        fits = all(dims[name] % multiple == 0 for name, multiple in free.items())
        if is_first and fits and runs(problem, dims) and have_shapes(problem, dims, *shapes):
            return dims
    return probe


def have_shapes(problem: Problem, dims: Dims, tensors: Expressions, outputs: Expressions) -> bool:
    """Whether the problem's tensors and outputs have these shapes at these dims."""
    pairs = [(tensors, shapes_at(problem, dims))]
    if outputs:
        pairs.append((outputs, output_shapes(problem, dims)))
    return all({name: resolve(shape, dims) for name, shape in texts.items()} == found for texts, found in pairs)


def runs(problem: Problem, dims: Dims) -> bool:
    try:
        run_eagerly(problem, dims)
    except Exception:
        return False
    return True


def largest_size(name: str, probe: Dims, free: Mapping[str, int], shapes: Expressions) -> int:
    """The largest power of two at which no tensor has more than LARGEST_TENSOR elements, every other dim at 1.

    A size that shrinks as the dim grows is still positive there, every other dim as in the probe.
    """
    size = 1
    while size < LARGEST_DIM:
        alone, beside = ({**others, name: 2 * size} for others in (dict.fromkeys(free, 1), probe))
        if any(math.prod(resolve(shape, alone)) > LARGEST_TENSOR for shape in shapes.values()):
            break
        if any(length < 1 for shape in shapes.values() for length in resolve(shape, beside)):
            break
        size *= 2
    return size


def least_size(problem: Problem, base: Dims, name: str, multiple: int) -> int:
    """The least multiple at which the problem runs, beside the other constants of the probe, by bisection."""
    low, high = 1, base[name] // multiple
    while low < high:
        middle = (low + high) // 2
        if find_fault(problem, {**base, name: middle * multiple}):
            low = middle + 1
        else:
            high = middle
    return low * multiple


def find_free_dims(problem: Problem, base: Dims) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
    """The constants that are dims, each with what it has to be a multiple of, and every shape as expressions over them.

    A dim changes the shape of an argument, or, where it is no small number, of the state; each size is a sum of
    multiples of dims. The problem runs at one more multiple of each.
    """
    plain = shapes_at(problem, base)
    free: dict[str, int] = {}
    slopes: dict[str, Slopes] = {}
    for name, value in base.items():
        for multiple in MULTIPLES:
            if value <= 0 or value % multiple or not is_shape(problem, base, name):
                break
            slope = find_slopes(problem, base, name, plain, multiple)
            if slope is not None:
                free[name], slopes[name] = multiple, slope
                break
    # A dim that another one multiplies does not change sizes as it does alone.
    while slopes and not adds_up(partial(shapes_at, problem), base, plain, slopes, free):
        slopes.popitem()
    return {name: free[name] for name in slopes}, make_shapes(plain, slopes, free, base)


def explain_fixed(problem: Problem, base: Dims, name: str) -> str:
    """Why a constant that changes shapes is no dim."""
    if not runs(problem, {**base, name: 2 * base[name]}):
        return "the problem does not run with twice as much"
    plain = shapes_at(problem, base)
    multiples = (one for one in MULTIPLES if not base[name] % one)
    if any(find_slopes(problem, base, name, plain, multiple) is not None for multiple in multiples):
        return "a size is a product of it and another dim"
    return "no multiple of it changes every size by a fixed amount"


def make_shapes(
    plain: Shapes, slopes: Mapping[str, Slopes], free: Mapping[str, int], base: Dims
) -> dict[str, tuple[str, ...]]:
    """Every shape as expressions over dims."""
    return {
        tensor: tuple(
            expression(size, {name: slope[tensor, axis] // free[name] for name, slope in slopes.items()}, base)
            for axis, size in enumerate(shape)
        )
        for tensor, shape in plain.items()
    }


def is_shape(problem: Problem, base: Dims, name: str) -> bool:
    """Whether twice a constant gives an argument, or where it is no small number the state, another shape."""
    try:
        plain, found = shapes_at(problem, base), shapes_at(problem, {**base, name: 2 * base[name]})
    except Exception:
        return False
    changed = {tensor for tensor, shape in found.items() if plain.get(tensor) != shape}
    return bool(changed & set(problem.make(base, 0)[0]) or changed and problem.constants[name] > SMALL)


def describe_outputs(problem: Problem, base: Dims, free: Mapping[str, int]) -> dict[str, ArgumentDescription]:
    """The floating outputs, their shapes as expressions over dims; none where a size does not grow evenly."""
    measure = partial(output_shapes, problem)
    try:
        plain = measure(base)
    except Exception:
        return {}
    slopes = {name: find_growth(measure, base, name, plain, multiple) for name, multiple in free.items()}
    known = {name: slope for name, slope in slopes.items() if slope is not None}
    if known.keys() != slopes.keys() or not adds_up(measure, base, plain, known, free):
        return {}
    return {
        name: ArgumentDescription(shape, FLOATS[0]) for name, shape in make_shapes(plain, known, free, base).items()
    }


def find_slopes(problem: Problem, base: Dims, name: str, plain: Shapes, multiple: int) -> Slopes | None:
    """How sizes grow with a constant by this multiple of it; None where not evenly, or the problem fails."""
    try:
        run_eagerly(problem, {**base, name: base[name] + multiple})
    except Exception:
        return None
    return find_growth(partial(shapes_at, problem), base, name, plain, multiple)


def find_growth(measure: Measure, base: Dims, name: str, plain: Shapes, multiple: int) -> Slopes | None:
    """How the sizes that are measured grow with a constant by this multiple of it; None where not evenly."""
    try:
        one, three = (measure({**base, name: base[name] + more * multiple}) for more in (1, 3))
    except Exception:
        return None
    slope = {}
    for tensor, shape in plain.items():
        if not len(shape) == len(one.get(tensor, ())) == len(three.get(tensor, ())):
            return None
        for axis, size in enumerate(shape):
            step = one[tensor][axis] - size
            if three[tensor][axis] - size != 3 * step or step % multiple:
                return None
            slope[tensor, axis] = step
    return slope


def adds_up(
    measure: Measure, base: Dims, plain: Shapes, slopes: Mapping[str, Slopes], multiples: Mapping[str, int]
) -> bool:
    """Whether dims that grow together change sizes as each does alone."""
    try:
        found = measure({**base, **{name: base[name] + multiples[name] for name in slopes}})
    except Exception:
        return False
    return found == {
        tensor: tuple(size + sum(slope[tensor, axis] for slope in slopes.values()) for axis, size in enumerate(shape))
        for tensor, shape in plain.items()
    }


def expression(size: int, steps: Mapping[str, int], base: Mapping[str, int]) -> str:
    """The size as a sum of multiples of dims and a number, what is added before what is subtracted."""
    rest = size - sum(step * base[name] for name, step in steps.items())
    terms = [(step, name if abs(step) == 1 else f"{abs(step)}*{name}") for name, step in steps.items() if step]
    terms += [(rest, str(abs(rest)))] if rest or not terms else []
    added, subtracted = ([text for factor, text in terms if (factor < 0) == negative] for negative in (False, True))
    return " - ".join([" + ".join(added), *subtracted])


def classify_argument(
    problem: Problem, name: str, first: torch.Tensor, second: torch.Tensor, is_state: bool
) -> tuple[str, Recipe | None]:
    """How an argument's values may be drawn; memory for an output holds numbers that nobody has asked for."""
    if name in problem.declared:
        return RANDOM, problem.declared[name]
    if name in problem.scratch and first.dtype != torch.bool:
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
    # Infinities and NaN mark something, and have no deviation.
    if not bool(values.isfinite().all()):
        return OWN, None
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
    """Whether hardly any two values are equal, and no row's sum is much nearer to a number than chance brings it.

    Of 16 bits only some values are compared: among many, numbers are equal by chance.
    """
    flat = values.reshape(-1)
    if values.dtype in (torch.float16, torch.bfloat16):
        flat = flat[:: max(1, flat.numel() // NARROW_SAMPLE)][:NARROW_SAMPLE]
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
        if not np.array_equal(read_words(value), read_words(before[name]))
        or value.untyped_storage().data_ptr() in storages
    )
