"""Defines the record of what the backend knows of an operation of TTIR: its syntax, its C, the rules of analyses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Attribute, Block, Op, Value
from fuzz.backends.cpu.frontend.types import Type

if TYPE_CHECKING:
    from fuzz.backends.cpu.analysis.affine import AffineAnalysis, AffineForm
    from fuzz.backends.cpu.analysis.mask_boxes import Box
    from fuzz.backends.cpu.codegen.coverage_counters import CoverageCounters
    from fuzz.backends.cpu.codegen.index import IndexMap
    from fuzz.backends.cpu.codegen.lower import Lowering
    from fuzz.backends.cpu.frontend.parser import Parser

Lower = Callable[["Lowering", Op], None]
ResultTypes = Callable[[list[Type], list[Type]], list[Type]]
Flow = tuple[Value, Value]
FlowRule = Callable[[Op, Mapping[str, Block]], list[Flow]]

# Hints to the optimiser of a GPU's compiler; they change no value.
IGNORED = {"tt.divisibility", "tt.contiguity", "tt.constancy", "tt.num_stages", "tt.warp_specialize", "noinline"}


def written_or_last(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    """The result types that are written out, else that of the last operand."""
    return outputs or inputs[-1:]


def no_results(inputs: list[Type], outputs: list[Type]) -> list[Type]:
    return []


def address_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    """Every result may be computed from every operand that is an address."""
    return [(operand, result) for operand in op.operands if operand.is_address for result in op.results]


def no_flows(op: Op, labels: Mapping[str, Block]) -> list[Flow]:
    """No result is computed from an address: it comes from memory."""
    return []


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One operation. A keyword or attribute that is not listed is refused: it may change what the operation means.

    An operation that only moves elements needs no more than its name, its operands and an `index_map`.
    """

    name: str
    # The numbers of operands that it may have; None: any.
    operands: Sequence[int] | None
    # Adds its C to the function; None where the operation around it does that. Without it, a view by the index map.
    lower: Lower | None = None
    # The bare words that may appear; None: any text.
    keywords: frozenset[str] | None = frozenset()
    # The attributes that may appear, with their possible values; None: any value.
    attributes: Mapping[str, Sequence[Attribute] | None] = field(default_factory=dict)
    # Attributes with these prefixes are hints, which change no value.
    hints: tuple[str, ...] = ()
    # Parses an operation whose syntax is not `name operands, keywords {attributes} : types -> types`.
    parse: Callable[[Parser, str], Op] | None = None
    # The types written before and after `->` -> those of the results.
    result_types: ResultTypes = written_or_last
    # Where each element of the result stands in the first operand, if the operation only moves elements.
    index_map: Callable[[Op], IndexMap] | None = None
    # Where the values of an integer or pointer result lie; without it, as the index map says.
    affine: Callable[[AffineAnalysis, Op], AffineForm | None] | None = None
    # The lanes where a boolean result may be true; without it, as the index map says.
    mask_box: Callable[[AffineAnalysis, Op], Box | None] | None = None
    # Which values may be computed from which: (source, target) for each pair that may hold an address.
    flows: FlowRule = address_flows
    # Adds the counters of what the operation does, before it is lowered.
    count: Callable[[CoverageCounters, Op], None] | None = None
    # Whether programs may wait for each other by it.
    synchronises: Callable[[Op], bool] = lambda op: False
    # Whether its regions run once for each element.
    is_per_element: bool = False
    # Whether the result meets a number where the first operand does, but for what rounding or a combination loses.
    keeps_value: bool = False

    def __deepcopy__(self, memo: object) -> OpDef:
        return self


def keywords(text: str) -> frozenset[str]:
    return frozenset(text.split())


def verify(op: Op, definition: OpDef | None) -> OpDef:
    """The operation's definition. UnsupportedOperation for whatever it does not list."""
    if definition is None:
        raise UnsupportedOperation(op.name)
    if definition.operands is not None and len(op.operands) not in definition.operands:
        raise UnsupportedOperation(f"{op.name} with {len(op.operands)} operands")
    if definition.keywords is not None:
        for keyword in op.keywords:
            if keyword not in definition.keywords:
                raise UnsupportedOperation(f"{op.name} {keyword}")
    for name, value in op.attributes.items():
        verify_attribute(op, definition, name, value)
    return definition


def verify_attribute(op: Op, definition: OpDef, name: str, value: Attribute) -> None:
    if name in IGNORED or (definition.hints and name.startswith(definition.hints)):
        return
    if name not in definition.attributes:
        raise UnsupportedOperation(f"{op.name} {{{name} = {value}}}")
    allowed = definition.attributes[name]
    if allowed is not None and value not in allowed:
        raise UnsupportedOperation(f"{op.name} {name} = {value}")
