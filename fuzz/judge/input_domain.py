"""Grades a finding by how ordinary the inputs are that show it, beside the domain that a problem declares.

high: values, dtypes and layouts that the problem itself makes, at any dims. medium: ordinary values beyond its domain,
or another dtype. low: special or extreme values, other layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fuzz.judge.problem import OWN, ProblemDescription
from fuzz.judge.target import declared_argument
from fuzz.model.case import Call, Case
from fuzz.model.edit import map_tensors, with_layout
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact, Recipe, recipe
from fuzz.target.legal import make_call_legal
from fuzz.target.spec import FLOATS, Target

SEVERITIES = ("low", "medium", "high")
DECLARED, ORDINARY, SPECIAL, LAYOUT = "declared", "ordinary", "special", "layout"
CLASS_SEVERITY = {DECLARED: "high", ORDINARY: "medium", SPECIAL: "low", LAYOUT: "low"}
DRAWS = 6
"""Cases of a class that are tried before the next one is."""
SEEDS = 0x5EED
ORDINARY_RECIPES = (
    recipe("normal"), recipe("uniform", exponent=1), recipe("normal", exponent=3), recipe("normal", exponent=7),
    recipe("zeros"),
)  # fmt: skip
"""Values of ordinary size: none beyond 2^10."""

Shows = Callable[[Case], Finding | None]


@dataclass(frozen=True)
class Grade:
    """A severity, the class of the most ordinary inputs that show a finding, such a case, and its rate there."""

    severity: str
    input_class: str
    typical: Case
    rate: Rate


def grade(case: Case, target: Target, description: ProblemDescription, shows: Shows) -> Grade:
    """The grade of what a case shows: `shows` says whether another case does so too."""
    for input_class, variants in ((DECLARED, declared_variants), (ORDINARY, ordinary_variants)):
        hits: list[Case] = []
        runs = 0
        for candidate in variants(case, target, description):
            runs += 1
            if shows(candidate) is not None:
                hits.append(candidate)
            if len(hits) == 2 or hits and runs >= DRAWS // 2:
                break
        if hits:
            return Grade(CLASS_SEVERITY[input_class], input_class, hits[0], Rate(len(hits), runs))
    plain = all(value.layout == CONTIGUOUS for value in case.last.arguments.values())
    name = SPECIAL if plain or shows(contiguous(case)) is not None else LAYOUT
    return Grade(CLASS_SEVERITY[name], name, case, Rate(1, 1))


def contiguous(case: Case) -> Case:
    """The last call alone with every tensor contiguous, its elements the same."""
    alone = Case(case.target, (case.last,))
    return map_tensors(alone, lambda call, _, value: with_layout(value, CONTIGUOUS, call))


def declared_case(target: Target, description: ProblemDescription, dims: dict[str, int], seed: int) -> Case:
    """A case as the problem itself makes it, at these dims."""
    arguments = {
        name: declared_argument(description, name, one.dtype, seed + index)
        for index, (name, one) in enumerate(description.arguments.items())
    }
    sizes = {size.name: dims[size.name] for size in target.sizes}
    return Case(target.name, (make_call_legal(Call(sizes, arguments), target),))


def ordinary_case(target: Target, description: ProblemDescription, call: Call, seed: int, values: Recipe) -> Case:
    """A case with the dims and dtypes of a call, and the same recipe for all that may be random."""
    arguments = {}
    for index, (name, one) in enumerate(description.arguments.items()):
        argument = declared_argument(description, name, call.arguments[name].dtype, seed + index)
        if one.domain != OWN and argument.is_float:
            argument = replace(argument, values=values.reseed(seed + index))
        arguments[name] = argument
    return Case(target.name, (make_call_legal(Call(call.dims, arguments, call.options), target),))


def declared_variants(case: Case, target: Target, description: ProblemDescription) -> Iterator[Case]:
    for draw in range(DRAWS):
        yield declared_case(target, description, dict(case.last.dims), SEEDS + 64 * draw)


def ordinary_variants(case: Case, target: Target, description: ProblemDescription) -> Iterator[Case]:
    for draw, values in enumerate(ORDINARY_RECIPES):
        yield ordinary_case(target, description, case.last, SEEDS + 64 * draw, values)
    dims = {size.name: min(max(4 * case.last.dims[size.name], 33), 129) for size in target.sizes}
    larger = replace(case.last, dims=dims)
    yield ordinary_case(target, description, larger, SEEDS, ORDINARY_RECIPES[0])


def without_expansion(call: Call) -> Call:
    """The call in which values that only the problem makes, which fill a tensor, lie in memory of their own."""
    for name, value in call.arguments.items():
        if isinstance(value.values, Exact) and value.layout.expand:
            call = call.with_argument(name, replace(value, layout=replace(value.layout, expand=())))
    return call


def with_one_dtype(call: Call, target: Target) -> Call:
    """The call whose arguments that are declared in float32 all have the dtype of the first of them."""
    names = [name for name, one in target.tensors.items() if one.dtypes == FLOATS[:1]]
    for name in names:
        call = call.with_argument(name, replace(call.arguments[name], dtype=call.arguments[names[0]].dtype))
    return call
