"""Checks that nothing outside a buffer is read or written, every element of an output is written, no result
depends on unwritten memory, and the programs of a launch do not write different values to one element."""

from __future__ import annotations

from fuzz.backends import BACKENDS, DEFAULT
from fuzz.backends.execute import run
from fuzz.backends.guarded_memory import GUARD, find_poison
from fuzz.backends.launcher_allocations import FILLED_OPS, UNINITIALISED_OPS, fill_without_poison
from fuzz.model import oracle_specs
from fuzz.model.case import Case
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import CallResult, Returned
from fuzz.oracles.base import CaseOracle
from fuzz.oracles.comparison.bits import same_bits
from fuzz.oracles.comparison.expected import evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import COMPARE_WITH_REFERENCE, SavedFinding, ScriptCheck
from fuzz.target.spec import Target

SYMPTOMS = {
    "overflow": "offset-overflow",
    "store": "stray-write",
    "atomic": "stray-write",
    "conflict": "write-conflict",
    "race": "race",
    "load": "stray-read",
    "unwritten": "unwritten-read",
}
"""Of accesses by kind: a case is shown as the first of these, since it may be the cause of the others."""
KINDS = list(SYMPTOMS)


FIND_UNWRITTEN = '''
def check():
    """Looks for elements that nobody wrote, which are NaN."""
    for name, value in run_call().items():
        if value.isnan().any():
            yield f"{name} has elements that were never written: {value.tolist()}"
'''
OBSERVE_ACCESSES = '''
def check():
    """Observes every access, which only the CPU backend can."""
    inputs = every_tensor()
    with cpu.observe(unwritten=True, conflicts=True, overflow=True) as log:
        run_call(inputs=inputs)
    yield from (str(violation) for violation in log.violations)
'''
GUARD_IMPORTS = """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.dlpack import from_dlpack, to_dlpack

"""
GUARD_BYTE = 0xA5
"""What guards in a script hold."""
COMPARE_GUARDS = '''

class Guards(TorchDispatchMode):
    """Surrounds what torch allocates with bytes of one value."""

    def __init__(self):
        super().__init__()
        self.bases = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        plain = func(*args, **(kwargs or {}))
        if str(func) not in ALLOCATIONS or plain.is_meta or not is_dense(plain):
            return plain
        base = torch.full((plain.nbytes + 2 * GUARD,), GUARD_BYTE, dtype=torch.uint8, device=plain.device)
        self.bases.append(base)
        # A storage that begins with its first element, as that of what it replaces.
        inner = from_dlpack(to_dlpack(base[GUARD:-GUARD])).view(plain.dtype)
        return torch.as_strided(inner, plain.shape, plain.stride()).copy_(plain)


def is_dense(value):
    return 0 < value.nbytes == value.untyped_storage().nbytes()


def has_gaps(value):
    """Whether there may be memory between the elements, and not too much to compare."""
    return 0 < value.nbytes != value.untyped_storage().nbytes() < 1 << 28


def between_elements(value):
    """The bytes of an input's memory, with zeros in place of its elements."""
    whole = value.new_empty(0).set_(value.untyped_storage()).clone()
    elements = whole.as_strided(value.shape, value.stride(), value.storage_offset())
    refilled(elements, whole.new_zeros(()).expand(value.shape))
    return whole.view(torch.uint8)


def check():
    """Compares the bytes around all tensors and between the elements of inputs with what was there before."""
    if DEVICE == "cpu":
        yield from observe_accesses()
        return
    with Guards() as guards:
        inputs = every_tensor()
        gaps = {name: between_elements(value) for name, value in inputs.items() if has_gaps(value)}
        run_call(inputs=inputs)
    for base in guards.bases:
        changed = int((base[:GUARD] != GUARD_BYTE).sum() + (base[-GUARD:] != GUARD_BYTE).sum())
        if changed:
            yield f"{changed} bytes next to a tensor of {base.numel() - 2 * GUARD} bytes were written"
    for name, before in gaps.items():
        if not torch.equal(before, between_elements(inputs[name])):
            yield f"memory between the elements of {name} was written"
'''


class BoundsOracle(CaseOracle):
    spec = oracle_specs.BOUNDS

    def applies(self, target: Target, case: Case) -> bool:
        return True

    def check_case(self, exam: Examination) -> Finding | None:
        for index, call in enumerate(exam.returned.calls):
            finding = _find_stray_access(call, index)
            if finding and finding.symptom == SYMPTOMS["unwritten"] and not result_depends_on_unwritten(exam):
                finding = None
            finding = finding or _find_unwritten(exam, index)
            if finding:
                return finding
        return None

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        if saved.finding.symptom != "unwritten":
            return check_accesses(saved)
        if saved.target.reference is not None:
            return ScriptCheck(COMPARE_WITH_REFERENCE, values=True)
        return ScriptCheck(FIND_UNWRITTEN)


def check_accesses(saved: SavedFinding) -> ScriptCheck:
    """Observes accesses on the CPU; what guards on a device have shown, they show there again."""
    found_by = BACKENDS.get(saved.entry.provenance.backend, DEFAULT)
    if saved.finding.symptom != SYMPTOMS["store"] or not found_by.is_accelerator:
        return ScriptCheck(OBSERVE_ACCESSES, cpu_only=True)
    allocations = sorted(map(str, UNINITIALISED_OPS | FILLED_OPS))
    return ScriptCheck(
        GUARD_IMPORTS + OBSERVE_ACCESSES.replace("def check", "def observe_accesses") + COMPARE_GUARDS,
        {"ALLOCATIONS": allocations, "GUARD": GUARD, "GUARD_BYTE": GUARD_BYTE},
    )


def result_depends_on_unwritten(exam: Examination) -> bool:
    """Whether what nobody wrote changes a bit of what is returned: lanes that are read with others may be dropped."""
    with fill_without_poison():
        again = run(exam.target, exam.launcher, exam.case.calls, exam.backend)
    if not isinstance(again, Returned):
        return True
    pairs = (
        (output, other.outputs[name])
        for call, other in zip(exam.returned.calls, again.calls, strict=True)
        for name, output in call.outputs.items()
    )
    return any(not bool(same_bits(output, other).all()) for output, other in pairs)


def _find_stray_access(call: CallResult, index: int) -> Finding | None:
    if not call.accesses:
        return None
    access = min(call.accesses, key=lambda one: KINDS.index(one.kind))
    buffers = tuple(dict.fromkeys(access.buffer for access in call.accesses))
    symptom = SYMPTOMS[access.kind]
    return Finding(
        oracle_specs.BOUNDS.name,
        buffers,
        symptom,
        access.where,
        call=index,
        disagreeing=len(call.accesses),
        source_line=access.source_line,
        kinds=tuple(dict.fromkeys((one.buffer, SYMPTOMS[one.kind]) for one in call.accesses)),
    )


def _find_unwritten(exam: Examination, index: int) -> Finding | None:
    """The finding that elements of outputs hold poison. Whole numbers may be that word: then it is what is due."""
    call = exam.returned.calls[index]
    whole = any(not call.outputs[name].is_floating_point() for name in call.unwritten)
    due = evaluate_reference(exam, index, 0) if whole and exam.target.reference else {}
    places = {
        name: find_poison(call.outputs[name], due[name].value if name in due else None) for name in call.unwritten
    }
    unwritten = {name: place for name, place in places.items() if place is not None}
    if not unwritten:
        return None
    elements = tuple(Element(name, place, "never written", "", "") for name, place in unwritten.items())
    names = tuple(unwritten)
    message = f"{'+'.join(names)}: element {list(elements[0].index)} was never written"
    return Finding(oracle_specs.BOUNDS.name, names, "unwritten", message, elements, call=index)
