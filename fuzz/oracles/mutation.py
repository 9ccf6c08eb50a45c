"""Checks that no input changes its bytes and no output shares its memory, unless the target says `in_place`.

Nor may a call change what an earlier one of the case has returned, as one does that returns a buffer which it keeps.
Triton's writes do not move a tensor's version counter, so autograd cannot see them; the bytes are compared instead.
"""

from __future__ import annotations

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.dtypes import DType, decimal, hex_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import Write
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import SavedFinding, ScriptCheck
from fuzz.target.spec import Target

COMPARE_INPUTS = '''
def words(value):
    size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    return value.detach().clone().contiguous().view(size)


def check():
    """Compares the bytes of every input before and after the call, and the memory of inputs and outputs."""
    inputs = every_tensor()
    before = {name: words(value) for name, value in inputs.items()}
    owners = {value.untyped_storage().data_ptr(): name for name, value in inputs.items() if value.numel()}
    shared = []

    def compute(*given):
        outputs = COMPUTE(*given)
        for name, value in outputs.items():
            owner = owners.get(value.untyped_storage().data_ptr()) if value.numel() else None
            own = name in [f"d{one}" for one in inputs] and (owner or "").startswith("grad ")
            if owner and owner not in IN_PLACE and not own:
                shared.append(f"output {name} shares the memory of {owner}")
        return outputs

    run_call(inputs=inputs, compute=compute)
    for name, value in before.items():
        if name not in IN_PLACE and not torch.equal(value, words(inputs[name])):
            yield f"{name} was overwritten: now {inputs[name].tolist()}"
    yield from shared
'''
COMPARE_EARLIER_OUTPUTS = '''
def words(value):
    size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    return value.detach().clone().contiguous().view(size)


def check():
    """Keeps what each call returns, and compares its bytes after the last one."""
    kept = []

    def compute(*given):
        outputs = COMPUTE(*given)
        kept.append([(name, value, words(value)) for name, value in outputs.items()])
        return outputs

    for index in range(SHOWN_CALL + 1):
        run_call(index, compute=compute)
    for name, value, before in (output for outputs in kept for output in outputs):
        if name in OUTPUTS and not torch.equal(before, words(value)):
            yield f"{name} was overwritten by a later call: now {value.tolist()}"
'''


class MutationOracle(CaseOracle):
    spec = oracle_specs.MUTATION

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        for index, call in enumerate(exam.returned.calls):
            if call.writes:
                names = tuple(write.argument for write in call.writes)
                elements = tuple(_element(exam, index, write) for write in call.writes)
                changed = sum(write.count for write in call.writes)
                message = f"{'+'.join(names)}: elements of an input that were overwritten: {changed}"
                # Writing an output that shares an input's memory is one mistake.
                shared = [(argument, "aliased") for _, argument in call.aliases if argument in names]
                kinds = (*((name, "written") for name in names), *dict.fromkeys(shared))
                return Finding(
                    self.name, names, "written", message, elements, call=index, disagreeing=changed, kinds=kinds
                )
            if call.aliases:
                output, argument = call.aliases[0]
                message = f"output {output!r} shares the memory of input {argument!r}"
                return Finding(self.name, (argument,), "aliased", message, call=index)
            if call.overwritten:
                return _overwritten_finding(exam, index)
        return None

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.symptom == "overwritten":
            return ScriptCheck(COMPARE_EARLIER_OUTPUTS, {"OUTPUTS": list(saved.finding.outputs)})
        call = saved.entry.case.calls[saved.finding.call]
        return ScriptCheck(COMPARE_INPUTS, {"IN_PLACE": list(saved.target.writable(call))})


def _overwritten_finding(exam: Examination, index: int) -> Finding:
    """The finding of a call that changed what the latest earlier one returned, or one before that."""
    calls = exam.returned.calls
    earlier = max(call for call, _ in calls[index].overwritten)
    writes = [write for call, write in calls[index].overwritten if call == earlier]
    names = tuple(write.argument for write in writes)
    changed = sum(write.count for write in writes)
    elements = []
    for write in writes:
        kind = named_dtype(DTYPE_NAMES[calls[earlier].outputs[write.argument].dtype])
        elements.append(_changed_element(write, kind, "as it was returned"))
    message = (
        f"{'+'.join(names)}: elements of what call {earlier + 1} returned that call {index + 1} writes over: {changed}"
    )
    return Finding(
        oracle_specs.MUTATION.name, names, "overwritten", message, tuple(elements), call=index, disagreeing=changed
    )


def _element(exam: Examination, call: int, write: Write) -> Element:
    kind = named_dtype(exam.case.calls[call].tensors[write.argument].dtype)
    return _changed_element(write, kind, "as before")


def _changed_element(write: Write, kind: DType, when: str) -> Element:
    want = f"{decimal(write.want, kind)} {when}"
    return Element(write.argument, write.first, decimal(write.got, kind), hex_bits(write.got, kind), want)
