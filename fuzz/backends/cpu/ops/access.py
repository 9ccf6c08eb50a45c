"""Generates the checks of one access to memory: lane by lane and, where that can be proved, for a whole block."""

from __future__ import annotations

from dataclasses import replace

from fuzz.backends.cpu.analysis.affine import AffineForm, CExpression, TooLong, range_in_box
from fuzz.backends.cpu.analysis.dataflow import MEMORY
from fuzz.backends.cpu.analysis.mask_boxes import Box, box_of, full_box
from fuzz.backends.cpu.analysis.offset_overflow import pointer_conditions
from fuzz.backends.cpu.codegen.index import current_position
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CheckSite
from fuzz.backends.cpu.codegen.operands import LoopNest
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Value
from fuzz.backends.cpu.frontend.types import Type


class CheckedAccess:
    """One access: its place, and the C names of the limits and shadows of the arguments that it may touch.

    `waits` says that it waits for what another program stores, `moved` which value it loads or stores.
    """

    def __init__(
        self,
        lowering: Lowering,
        pointer: Value,
        kind: str,
        mask: Value | None = None,
        waits: bool = False,
        moved: Value | None = None,
    ) -> None:
        self.lowering, self.pointer, self.mask, self.waits = lowering, pointer, mask, waits
        # Of a number that is moved as an integer, the value's type is not the pointer's.
        pointee = Type(pointer.type.pointee if moved is None else moved.type.element)
        self.type = Type("i64") if pointee.is_pointer else pointee
        self.element, self.shape = self.type.element, pointer.type.shape
        if not pointer.provenance:
            raise UnsupportedOperation(f"{kind} through a pointer of unknown origin")
        self.size = self.type.size
        self.follows_memory = MEMORY in pointer.provenance
        self.arguments = sorted(pointer.provenance - {MEMORY})
        self.site = len(lowering.sites)
        location, origins = lowering.location, tuple(sorted(pointer.provenance))
        lowering.sites.append(CheckSite(kind, location.file, location.line, self.shape, origins, self.size))
        self.limits = [(self.base(number), self.limit(number)) for number in self.arguments]
        self.lane = current_position(self.shape)

    # names

    def base(self, argument: int) -> str:
        """The name of the lowest address of an argument."""
        return self.lowering.parameter_names[argument]

    def limit(self, argument: int) -> str:
        """The name of the number of addresses that an access of this size has in the argument's view."""
        base = self.base(argument)
        name = f"{base}_room{self.size}"
        self.lowering.limits[name] = f"const u64 {name} = room({base}_length, {self.size});"
        return name

    def by_argument(self, address: str, suffix: str) -> str:
        """A value that belongs to the argument in which the address lies."""
        *others, (last, _) = self.limits
        text = f"{last}_{suffix}"
        for base, limit in reversed(others):
            text = f"(INSIDE({address}, {base}, {limit}) ? {base}_{suffix} : {text})"
        return text

    def has(self, instrument: str) -> bool:
        return instrument in self.lowering.instruments

    @property
    def accesses_whole_elements(self) -> bool:
        """Whether the access is as wide as its arguments' elements: shadows are kept for those."""
        if self.follows_memory:
            return False
        sizes = {Type(self.lowering.function.parameters[number].type.pointee).size for number in self.arguments}
        return sizes == {self.size}

    @property
    def checks_unwritten(self) -> bool:
        """One byte is too few to tell the poison from a value."""
        return self.has("unwritten") and self.size > 1 and self.accesses_whole_elements

    @property
    def checks_conflicts(self) -> bool:
        return self.has("conflicts") and self.accesses_whole_elements

    @property
    def checks_races(self) -> bool:
        """A load that waits for another program's store races with nobody."""
        return not self.waits and self.has("races") and self.accesses_whole_elements

    @property
    def checks_bounds_only(self) -> bool:
        """Whether bounds are all there is to check."""
        return not (self.checks_unwritten or self.checks_conflicts or self.has("overflow"))

    # texts

    def inside(self, address: str) -> str:
        if not self.has("bounds"):
            return "1"
        checks = [f"INSIDE({address}, {base}, {limit})" for base, limit in self.limits]
        checks += [f"inside_known(run, {address}, {self.size})"] if self.follows_memory else []
        return checks[0] if len(checks) == 1 else f"({' || '.join(checks)})"

    def outside(self, address: str, value: str = "") -> str:
        return f"outside{value}(run, {self.site}, {address}, {self.lane})"

    def report(self, problem: str, address: str) -> str:
        return f"report(run, {problem}, {self.site}, {address}, {self.lane}, -1);"

    def loaded_bits(self, address: str) -> str:
        return f"raw_{8 * self.size}({address})"

    def poison(self, address: str) -> str:
        return f"(u{8 * self.size}){self.by_argument(address, 'poison')}"

    def tag_address(self, address: str, which: str) -> str:
        """The address of the tag of the element at an address: tags have four bytes."""
        scaled = {1: f"{address} * 4", 2: f"{address} * 2", 4: address, 8: f"({address} >> 1)"}[self.size]
        return f"({scaled} + {self.by_argument(address, which)})"

    def report_overflow(self) -> str:
        """Reports an offset that wrapped around, once, and goes on with the address that the kernel made of it."""
        if not self.has("overflow"):
            return ""
        wrapped = f"address = overflowed(run, {self.site}, address, {self.lane});"
        return f"run->quiet = 0; if (TAGGED(address)) {{ {wrapped} }} "

    def report_unwritten(self, address: str) -> str:
        """Reports a load of memory that nobody wrote."""
        if not self.checks_unwritten:
            return ""
        is_unwritten = f"is_unwritten({address}, {self.by_argument(address, 'shadow')}, {self.size})"
        test = f"{self.loaded_bits(address)} == {self.poison(address)} && {is_unwritten}"
        return f"if ({test}) {self.report('UNWRITTEN', address)} "

    def mark_written(self, address: str) -> str:
        if not self.checks_unwritten:
            return ""
        return f"written({address}, {self.by_argument(address, 'shadow')}, {self.size}); "

    # proofs

    def prove_block(self, loop: LoopNest) -> str | None:
        """Has the loop prove, before it starts, that all active lanes are inside. Returns the address of a lane in the
        fast loop, empty where that is the computed one; None where nothing can be proved."""
        if self.follows_memory:
            return None
        try:
            form = self.lowering.affine.form(self.pointer)
            if form is None:
                return None
            box = full_box(self.shape) if self.mask is None else box_of(self.lowering.affine, self.mask)
            lines, named = self.name_terms(form)
            lines += self.proof_lines(named, box)
            if self.has("overflow"):
                lines += [f"slow |= !({text});" for text in pointer_conditions(self.lowering, self.pointer)]
        except TooLong:
            return None
        loop.add_before(*lines)
        return address_of_lane(named) if named.is_affine else ""

    def name_terms(self, form: AffineForm) -> tuple[list[str], AffineForm]:
        """The form with its terms as C constants."""
        lines, terms = [], []
        name = self.lowering.identifiers.pick(f"at{self.site}")
        for number, term in enumerate((form.constant, *form.steps)):
            if isinstance(term, CExpression):
                label = f"{name}_{number}"
                lines.append(f"const i64 {label} = {term};")
                term = CExpression(label, term.bits)
            terms.append(term)
        return lines, replace(form, constant=terms[0], steps=tuple(terms[1:]))

    def proof_lines(self, form: AffineForm, box: Box) -> list[str]:
        conditions = [f"slow |= !({text});" for text in (*form.conditions, *box.conditions)]
        if not self.has("bounds"):
            return conditions
        lines, tests, sides = [], list(box.only_if), {}
        for side, terms in (("low", box.low), ("high", box.high)):
            sides[side] = list(terms)
            for axis, term in enumerate(terms):
                if isinstance(term, CExpression):
                    lines.append(f"const i64 {side}{axis} = {term};")
                    sides[side][axis] = CExpression(f"{side}{axis}", term.bits)
        for low, high in zip(sides["low"], sides["high"], strict=True):
            tests += [f"{low} <= {high}"] if isinstance(low, CExpression) or isinstance(high, CExpression) else []
        first, last = range_in_box(form, tuple(sides["low"]), tuple(sides["high"]))
        inside = " || ".join(f"(INSIDE(first, {b}, {r}) & INSIDE(last, {b}, {r}))" for b, r in self.limits)
        check = f"{{ const i64 first = {first}, last = {last}; slow |= !({inside}); }}"
        when = f"if ({' && '.join(tests)}) " if tests else ""
        return [*conditions, f"{{ {' '.join(lines)} {when}{check} }}"]


def address_of_lane(form: AffineForm) -> str:
    """The address as a sum in 64 bits, which C compilers see through, unlike one in wrapping 32 bits."""
    terms = [f"(i64)d{axis} * {step}" for axis, step in enumerate(form.steps) if step != 0]
    return f"({' + '.join([str(form.constant), *terms])})"
