"""One place that touches memory: the C of its checks, lane by lane and, where it can be proved, block by block."""

from __future__ import annotations

from dataclasses import replace

from fuzz.backends.cpu.analysis.affine import Form, Text, TooLong, span
from fuzz.backends.cpu.analysis.mask_boxes import Box, box_of, full
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.metadata import CheckSite
from fuzz.backends.cpu.codegen.operands import Loop, current
from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Value
from fuzz.backends.cpu.frontend.types import Type


class Access:
    """A site and the names of its arguments' limits and shadows."""

    def __init__(
        self, lowering: Lowering, pointer: Value, kind: str, mask: Value | None = None, waits: bool = False
    ) -> None:
        self.lowering, self.pointer, self.mask, self.waits = lowering, pointer, mask, waits
        self.type = Type(pointer.typed.pointee)
        self.element, self.shape = self.type.element, pointer.typed.shape
        if self.type.is_pointer:
            raise UnsupportedOperation(f"{kind} of a pointer in memory")
        if not pointer.arguments:
            raise UnsupportedOperation(f"{kind} through a pointer of unknown origin")
        self.size = self.type.size
        self.arguments = sorted(pointer.arguments)
        self.number = len(lowering.sites)
        place = lowering.location
        lowering.sites.append(CheckSite(kind, place.file, place.line, self.shape, tuple(self.arguments), self.size))
        self.rooms = [(self.base(number), self.room(number)) for number in self.arguments]
        self.lane = current(self.shape)

    # names

    def base(self, argument: int) -> str:
        return self.lowering.values[self.lowering.function.parameters[argument]].at((), None)

    def room(self, argument: int) -> str:
        """The name of how many places an access of this size has in the argument's view."""
        base = self.base(argument)
        name = f"{base}_room{self.size}"
        self.lowering.rooms[name] = f"const u64 {name} = room({base}_length, {self.size});"
        return name

    def of_argument(self, address: str, suffix: str) -> str:
        """A value that belongs to the argument in which the address lies."""
        *others, (last, _) = self.rooms
        text = f"{last}_{suffix}"
        for base, room in reversed(others):
            text = f"(INSIDE({address}, {base}, {room}) ? {base}_{suffix} : {text})"
        return text

    def has(self, instrument: str) -> bool:
        return instrument in self.lowering.instruments

    @property
    def of_whole_elements(self) -> bool:
        """Whether the access is as wide as its arguments' elements: shadows are kept for those."""
        sizes = {Type(self.lowering.function.parameters[number].typed.pointee).size for number in self.arguments}
        return sizes == {self.size}

    @property
    def watched(self) -> bool:
        """One byte is too few to tell the poison from a value."""
        return self.has("unwritten") and self.size > 1 and self.of_whole_elements

    @property
    def contested(self) -> bool:
        return self.has("conflicts") and self.of_whole_elements

    @property
    def raced(self) -> bool:
        """A load that waits for another program's store races with nobody."""
        return not self.waits and self.has("races") and self.of_whole_elements

    @property
    def plain(self) -> bool:
        """Whether bounds are all there is to check."""
        return not (self.watched or self.contested or self.has("overflow"))

    # texts

    def inside(self, address: str) -> str:
        if not self.has("bounds"):
            return "1"
        checks = [f"INSIDE({address}, {base}, {room})" for base, room in self.rooms]
        return checks[0] if len(checks) == 1 else f"({' || '.join(checks)})"

    def outside(self, address: str, value: str = "") -> str:
        return f"outside{value}(run, {self.number}, {address}, {self.lane})"

    def report(self, problem: str, address: str) -> str:
        return f"report(run, {problem}, {self.number}, {address}, {self.lane}, -1);"

    def raw(self, address: str) -> str:
        return f"raw_{8 * self.size}({address})"

    def poison(self, address: str) -> str:
        return f"(u{8 * self.size}){self.of_argument(address, 'poison')}"

    def tag_place(self, address: str, which: str) -> str:
        """The address of the tag of the element at an address: tags have four bytes."""
        scaled = {1: f"{address} * 4", 2: f"{address} * 2", 4: address, 8: f"({address} >> 1)"}[self.size]
        return f"({scaled} + {self.of_argument(address, which)})"

    def untagged(self) -> str:
        """Report an offset that wrapped around, once, and go on with the address that the kernel made of it."""
        if not self.has("overflow"):
            return ""
        wrapped = f"address = overflowed(run, {self.number}, address, {self.lane});"
        return f"run->quiet = 0; if (TAGGED(address)) {{ {wrapped} }} "

    def unwritten(self, address: str) -> str:
        """Report a load of memory that nobody wrote."""
        if not self.watched:
            return ""
        is_unwritten = f"is_unwritten({address}, {self.of_argument(address, 'shadow')}, {self.size})"
        test = f"{self.raw(address)} == {self.poison(address)} && {is_unwritten}"
        return f"if ({test}) {self.report('UNWRITTEN', address)} "

    def now_written(self, address: str) -> str:
        if not self.watched:
            return ""
        return f"written({address}, {self.of_argument(address, 'shadow')}, {self.size}); "

    # proofs

    def proof(self, loop: Loop) -> str | None:
        """Have the loop prove, before it starts, that all active lanes are inside: the address of a lane in the fast
        loop then, empty where it is the computed one. None where nothing can be proved."""
        try:
            form = self.lowering.intervals.form(self.pointer)
            if form is None:
                return None
            box = full(self.shape) if self.mask is None else box_of(self.lowering.intervals, self.mask)
            lines, named = self.named(form)
            lines += self.proof_lines(named, box)
        except TooLong:
            return None
        loop.before += [line for line in lines if line not in loop.before]
        return address_of_lane(named) if named.is_affine else ""

    def named(self, form: Form) -> tuple[list[str], Form]:
        """The form with its terms as C constants."""
        lines, terms = [], []
        name = self.lowering.names.pick(f"at{self.number}")
        for number, term in enumerate((form.constant, *form.steps)):
            if isinstance(term, Text):
                label = f"{name}_{number}"
                lines.append(f"const i64 {label} = {term};")
                term = Text(label, term.bits)
            terms.append(term)
        return lines, replace(form, constant=terms[0], steps=tuple(terms[1:]))

    def proof_lines(self, form: Form, box: Box) -> list[str]:
        conditions = [f"slow |= !({text});" for text in (*form.conditions, *box.conditions)]
        if not self.has("bounds"):
            return conditions
        lines, tests, sides = [], list(box.only_if), {}
        for side, terms in (("low", box.low), ("high", box.high)):
            sides[side] = list(terms)
            for axis, term in enumerate(terms):
                if isinstance(term, Text):
                    lines.append(f"const i64 {side}{axis} = {term};")
                    sides[side][axis] = Text(f"{side}{axis}", term.bits)
        for low, high in zip(sides["low"], sides["high"], strict=True):
            tests += [f"{low} <= {high}"] if isinstance(low, Text) or isinstance(high, Text) else []
        first, last = span(form, tuple(sides["low"]), tuple(sides["high"]))
        inside = " || ".join(f"(INSIDE(first, {b}, {r}) & INSIDE(last, {b}, {r}))" for b, r in self.rooms)
        check = f"{{ const i64 first = {first}, last = {last}; slow |= !({inside}); }}"
        when = f"if ({' && '.join(tests)}) " if tests else ""
        return [*conditions, f"{{ {' '.join(lines)} {when}{check} }}"]


def address_of_lane(form: Form) -> str:
    """The address as a sum in 64 bits, which C compilers see through, unlike one in wrapping 32 bits."""
    terms = [f"(i64)d{axis} * {step}" for axis, step in enumerate(form.steps) if step != 0]
    return f"({' + '.join([str(form.constant), *terms])})"
