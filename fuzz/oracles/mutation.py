"""mutation: no input changes its bytes, and no output shares its memory, unless the target says `in_place`.

Triton's writes do not move a tensor's version counter, so autograd cannot see them; the bytes are compared instead.
"""

from __future__ import annotations

from fuzz.model.case import Case
from fuzz.model.dtypes import decimal, hex_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import Write
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target


class Mutation(CaseOracle):
    name = "mutation"
    always = True

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        for index, call in enumerate(exam.returned.calls):
            if call.writes:
                names = tuple(write.argument for write in call.writes)
                elements = tuple(_element(exam, index, write) for write in call.writes)
                changed = sum(write.count for write in call.writes)
                message = f"{'+'.join(names)}: {changed} elements of an input were overwritten"
                return Finding(self.name, names, "written", message, elements, call=index, disagreeing=changed)
            if call.aliases:
                output, argument = call.aliases[0]
                message = f"output {output!r} shares the memory of input {argument!r}"
                return Finding(self.name, (argument,), "aliased", message, call=index)
        return None


def _element(exam: Examination, call: int, write: Write) -> Element:
    kind = named_dtype(exam.case.calls[call].tensors[write.argument].dtype)
    want = f"{decimal(write.want, kind)} as before"
    return Element(write.argument, write.first, decimal(write.got, kind), hex_bits(write.got, kind), want)
