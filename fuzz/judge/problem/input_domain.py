"""Draws cases in the domain that a problem declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fuzz.judge.problem.description import OWN, ProblemDescription, Variant
from fuzz.judge.problem.target import declared_argument
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import OutputComparison, Refusal, SolutionReport
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import Size
from fuzz.model.edit import map_tensors
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import Exact, Recipe, recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.target.legal import make_call_legal
from fuzz.target.spec import FLOATS, Target

GRADIENT_CASES = 8
"""Cases whose gradients are compared."""
ORDINARY_RECIPES = (
    recipe("normal"), recipe("uniform", exponent=1), recipe("normal", exponent=3), recipe("normal", exponent=7),
    recipe("zeros"), recipe("normal", exponent=-4), recipe("normal", exponent=-8),
    recipe("uniform", exponent=10, signed=-1), recipe("uniform", exponent=0, signed=-1),
)  # fmt: skip
"""Values of ordinary size: none beyond 2^10, some as small as what is added to a variance, some all below 0, where the
zeros of a padding would be the largest. Their number is odd, so that each is drawn at small and at other dims."""


def declared_case(target: Target, description: ProblemDescription, dims: dict[str, int], seed: int) -> Case:
    """A case as the problem itself makes it, at these dims."""
    arguments = {
        name: declared_argument(description, name, one.dtype, seed + index)
        for index, (name, one) in enumerate(description.arguments.items())
    }
    sizes = {size.name: dims[size.name] // size.multiple * size.multiple for size in target.sizes}
    return Case(target.name, (make_call_legal(Call(sizes, arguments, {}, draw_cotangents(target, seed)), target),))


def draw_cotangents(target: Target, seed: int) -> dict[str, Argument]:
    """Normal values for the gradients of the outputs, where a target is differentiated."""
    return {
        name: Argument(one.shape, one.dtypes[0], recipe("normal", seed - 1 - index))
        for index, (name, one) in enumerate(target.cotangents.items())
    }


def ordinary_case(target: Target, description: ProblemDescription, call: Call, seed: int, values: Recipe) -> Case:
    """A case with the dims and dtypes of a call, and the same recipe for all that may be random."""
    arguments = {}
    for index, (name, one) in enumerate(description.arguments.items()):
        argument = declared_argument(description, name, call.arguments[name].dtype, seed + index)
        if one.domain != OWN and argument.is_float:
            argument = replace(argument, values=values.reseed(seed + index))
        arguments[name] = argument
    cotangents = draw_cotangents(target, seed)
    return Case(target.name, (make_call_legal(Call(call.dims, arguments, call.options, cotangents), target),))


def with_state_of(call: Call, other: Call, description: ProblemDescription) -> Call:
    """The call with the parameters and buffers of another one."""
    for name, one in description.arguments.items():
        if one.is_state:
            call = call.with_argument(name, other.arguments[name])
    return call


def with_possible_layouts(call: Call, description: ProblemDescription) -> Call:
    """The call with layouts that its tensors may have.

    Parameters are contiguous, as a constructor makes them. Values that only the problem makes, which fill a tensor, lie
    in memory of their own.
    """
    for name, value in call.arguments.items():
        if description.arguments[name].is_state:
            call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
        elif isinstance(value.values, Exact) and value.layout.expand:
            call = call.with_argument(name, replace(value, layout=replace(value.layout, expand=())))
    return call


def with_one_dtype(call: Call, target: Target) -> Call:
    """The call whose arguments that are declared in float32 all have the dtype of the first of them."""
    names = [name for name, one in target.tensors.items() if one.dtypes == FLOATS[:1]]
    for name in names:
        call = call.with_argument(name, replace(call.arguments[name], dtype=call.arguments[names[0]].dtype))
    return call


def variant_cases(
    worker: IsolatedWorker, make_target: Callable[..., Target], seed: int
) -> Iterator[tuple[Variant, Case | None]]:
    """Each variant with a case of the problem's own values; None where it is too large here, or cannot be drawn."""
    for number, variant in enumerate(worker.description.variants):
        target = make_target(*filter(None, [variant.dtype]))
        dims = possible_dims(worker.description, variant)
        fits = dims is not None and not isinstance(worker.problem.setting(dims), Refusal)
        is_drawn = not variant.dtype or is_drawn_in(worker.description, variant.dtype)
        if dims is None or not fits or not is_drawn:
            yield variant, None
            continue
        case = declared_case(target, worker.description, dims, seed + 64 * number)
        yield variant, in_dtype(case, variant.dtype) if variant.dtype else case


def possible_dims(description: ProblemDescription, variant: Variant) -> dict[str, int] | None:
    """The dims of a variant; None where it gives one that is not free another value, or a size that is not allowed.

    It may be larger than those that are drawn.
    """
    dims = {**description.dims, **dict(variant.dims)}
    free = {size.name: size for size in description.sizes}
    own = description.own_dims
    possible = all(
        is_allowed(size, free[name]) if name in free else size in (own.get(name), description.dims.get(name))
        for name, size in dims.items()
    )
    return {name: size for name, size in dims.items() if name in free} if possible else None


def is_allowed(size: int, dim: Size) -> bool:
    return size >= dim.low and size % dim.multiple == 0


def is_drawn_in(description: ProblemDescription, dtype: str) -> bool:
    """Whether all floating arguments can have a dtype: what only the problem makes, it makes in its first one."""
    arguments = description.arguments.values()
    return not any(one.domain == OWN and one.dtype in FLOATS and one.dtype != dtype for one in arguments)


def in_dtype(case: Case, dtype: str) -> Case:
    """The case with all floating arguments in a dtype."""
    return map_tensors(case, lambda _, name, value: replace(value, dtype=dtype) if value.is_float else value)


def accepts(worker: IsolatedWorker, target: Target, dims: dict[str, int], dtype: str, seed: int) -> bool:
    """Whether the solution computes in a dtype that the problem does not state, and says so by its outputs."""
    if not is_drawn_in(worker.description, dtype):
        return False
    call = declared_case(target, worker.description, dims, seed).last
    for name, one in call.arguments.items():
        if one.dtype == FLOATS[0]:
            call = call.with_argument(name, replace(one, dtype=dtype))
    answer = worker.run(Case(target.name, (call,)))
    if not isinstance(answer, SolutionReport):
        return False
    floats = [value.dtype for value in answer.outputs[-1].values() if value.dtype in FLOATS]
    return bool(floats) and set(floats) == {dtype}


def backward_cases(
    worker: IsolatedWorker, target: Target, description: ProblemDescription, dims: Mapping[str, int], seed: int
) -> Iterator[Case]:
    """Cases at the first dims and at others, with the problem's values and with normal ones.

    None where the solution is not differentiable: where it returns no
    gradient, or launches a kernel outside of autograd's functions, which then does not know of it. None either where
    the reference has no gradient that can be trusted.
    """
    if not target.cotangents:
        return
    first = declared_case(target, description, dict(dims), seed)
    if not has_gradients(worker, first):
        return
    yield first
    engine = RandomEngine(target, seed)
    for number in range(1, GRADIENT_CASES):
        other = {**dims, **engine.case(number).last.dims} if number % 2 else dict(dims)
        case = declared_case(target, description, other, seed + 64 * number)
        if number % 4 > 1:
            case = ordinary_case(target, description, case.last, seed + 64 * number, recipe("normal"))
        yield case


def has_gradients(worker: IsolatedWorker, case: Case) -> bool:
    """Whether a solution returns gradients, autograd follows its kernels, and the problem's own can be computed."""
    ran = worker.run(case)
    if not isinstance(ran, SolutionReport) or ran.is_cut or not ran.outputs:
        return False
    if not any(f"d{name}" in ran.outputs[-1] for name in case.last.arguments):
        return False
    compared = worker.compare(case, ran.outputs[-1])
    return isinstance(compared, OutputComparison) and not compared.refusal
