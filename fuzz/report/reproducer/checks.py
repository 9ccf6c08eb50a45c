"""The part of a stand-alone script that runs the calls and decides, by oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.report.reproducer.source import PREFIX
from fuzz.target.spec import Target

RUN = '''
CALLS = {calls}


def copied(outputs):
    """Outputs on the host."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return {{name: value.detach().clone().cpu() for name, value in outputs.items()}}


def run_call(index, changed=(), compute={compute}, launcher={launcher}, inputs=None):
    """The outputs of a call, and its gradients where it is differentiated; `changed` replaces tensors by name."""
    make, along, options = CALLS[index]
    given = inputs or {{**make(), **{{"grad " + name: value for name, value in along().items()}}}}
    given.update(changed)
    tensors = {{name: value for name, value in given.items() if not name.startswith("grad ")}}
    cotangents = {{name[5:]: value for name, value in given.items() if name.startswith("grad ")}}
    return copied(compute(lambda tensors: launcher(**tensors, **options), tensors, cotangents))


def every_tensor(index):
    """The arguments and cotangents of a call by name."""
    make, along, _ = CALLS[index]
    return {{**make(), **{{"grad " + name: value for name, value in along().items()}}}}


def refilled(value, new):
    """A tensor with other values in its own memory."""
    parts = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in value.stride())
    value[parts].copy_(new[parts])
    return value


def equal_values(one, other):
    return bool(((one == other) | ((one != one) & (other != other))).all())


def equal_bits(one, other):
    """Whether two tensors have the same bits; one NaN is as good as another."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    alike = (one == other) & (torch.signbit(one) == torch.signbit(other))
    return bool((alike | (one.isnan() & other.isnan())).all())


wrong = []
'''
DUE = '''
EXPECTED = {expected}


def off(name, output):
    """Elements of an output that are not what is due: (index, value, due, bound)."""
    values, bounds = EXPECTED[name]
    elements = enumerate(zip(output.double().reshape(-1).tolist(), map(float, values), map(float, bounds)))
    return [(index, *one) for index, one in elements if not close(*one)]


def close(value, want, bound):
    return value == want or (value != value and want != want) or abs(value - want) <= bound


'''
ACCURACY = """
outputs = run_call({call})
for name in EXPECTED.keys() & outputs.keys():
    for index, value, want, bound in off(name, outputs[name]):
        wrong.append(f"{{name}}.flatten()[{{index}}] is {{value!r}}, should be {{want!r}} within {{bound:.3g}}")
"""
BITS = """
first = run_call({call})
{again}
for name in {outputs}:
    if not equal_bits(first[name], second[name]):
        wrong.append(f"{{name}}: {{first[name].tolist()}} and then {{second[name].tolist()}}")
"""
DRIFT = """
first = run_call({call})
{again}
for name in {outputs}:
    bounds = torch.tensor([float(bound) for bound in EXPECTED[name][1]]).double().reshape({whole})
    apart = (first[name].double() - second[name].double()).abs() > 2 * bounds{rows}
    apart |= first[name].isnan() != second[name].isnan()
    apart &= (first[name] != second[name]) & bounds{rows}.isfinite()
    if bool(apart.any()):
        wrong.append(f"{{name}}: {{first[name].tolist()}} and then {{second[name].tolist()}}")
"""
MUTATION = """
def words(value):
    size = {{1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}}[value.element_size()]
    return value.detach().clone().contiguous().view(size)


inputs = every_tensor({call})
before = {{name: words(value) for name, value in inputs.items()}}
places = {{value.untyped_storage().data_ptr(): name for name, value in inputs.items() if value.numel()}}
shared = []


def watched(outputs):
    \"\"\"Takes down which outputs share the memory of an input.\"\"\"
    for name, value in outputs.items():
        owner = places.get(value.untyped_storage().data_ptr()) if value.numel() else None
        own = name in [f"d{{one}}" for one in inputs] and (owner or "").startswith("grad ")
        if owner and owner not in IN_PLACE and not own:
            shared.append(f"output {{name}} shares the memory of {{owner}}")
    return outputs


IN_PLACE = {in_place!r}
run_call({call}, inputs=inputs, compute=lambda *given: watched({compute}(*given)))
for name, value in before.items():
    if name not in IN_PLACE and not torch.equal(value, words(inputs[name])):
        wrong.append(f"{{name}} was overwritten: now {{inputs[name].tolist()}}")
wrong += shared
"""
REFUSALS = '''
def failure(error):
    """What is wrong where a call raises; empty where it refuses its input."""
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    module = frame.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    refused = isinstance(error, (ValueError, TypeError, NotImplementedError, AssertionError))
    compiled = type(error).__name__ in ("CompilationError", "CompileTimeAssertionFailure")
    return "" if refused and module not in ("fuzz", "triton") and not compiled else f"{type(error).__name__}: {error}"


'''
FAULT = """
try:
    run_call({call})
except Exception as error:
    wrong += [failure(error)] if failure(error) else []
"""
APART = """
import os
import subprocess

if sys.argv[1:] == ["--child"]:
    print("ready", flush=True)
    run_call({call})
    os._exit(0)
child = subprocess.Popen([sys.executable, __file__, "--child"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
child.stdout.readline()
try:
    ended = child.wait(timeout={timeout!r})
    wrong += [f"the process ended with {{ended}}"] if ended else []
except subprocess.TimeoutExpired:
    child.kill()
    wrong.append("it does not return within {timeout:g} s")
child.stdout.close()
"""
UNWRITTEN = """
for name, value in run_call({call}).items():
    if value.isnan().any():
        wrong.append(f"{{name}} has elements that were never written: {{value.tolist()}}")
"""
INSTRUMENTED = """
inputs = every_tensor({call})
if DEVICE == "cpu":
    with cpu.observe(unwritten=True, conflicts=True, overflow=True) as log:
        run_call({call}, inputs=inputs)
    wrong += [str(violation) for violation in log.violations]
else:
    outputs = run_call({call}, inputs=inputs)
    wrong += [f"{{name}} is NaN: {{value.tolist()}}" for name, value in outputs.items() if value.isnan().any()]
"""
REJECTS = """
spoil = {spoil}
make, _, options = CALLS[{call}]
given = {{**make(), **options}}
given.update(spoil(**given))
try:
    {launcher}(**given)
    wrong.append("an input that must be refused was computed")
except Exception as error:
    print(f"refused: {{error}}")
"""
SCALE = """
first = run_call({call})
for name, number, output, index in {places!r}:
    value = every_tensor({call})[name]
    second = run_call({call}, {{name: refilled(value, {changed})}})
    one, two = first[output][index].double(), second[output][index].double()
    if not equal_values({due}, two):
        wrong.append(f"{{output}}{{list(index)}} is {{one.item()}}, and with {{name}} changed {{two.item()}}")
"""
MISSING = """
outputs = run_call({call})
wrong += [f"{{name}} is None" for name in {outputs!r} if name not in outputs]
"""
IN_COMPANY = """
def in_company(compute, wanted):
    \"\"\"What is wrong where the launcher is called in this company.\"\"\"
    got = run_call({call}, compute=compute)
    places = [name[4:] for name in got if name.startswith("due_") and name[4:] in got]
    for name in places:
        if not equal_values(got[name], got["due_" + name]):
            yield f"{{name}} is {{got[name].tolist()}}, should be {{got['due_' + name].tolist()}}"
    for name in wanted:
        if got and "d" + name in alone and "d" + name not in got:
            yield f"the gradient of {{name}} is None"
    for name in alone.keys() & got.keys():
        if not equal_values(got[name], alone[name]) and (name not in EXPECTED or off(name, got[name])):
            yield f"{{name}} is {{got[name].tolist()}}, and {{alone[name].tolist()}} without company"


alone = run_call({call})
for compute, wanted in {companies}:
    try:
        wrong += in_company(compute, wanted)
    except Exception as error:
        wrong += [failure(error)] if failure(error) else []
"""
END = """
print("\\n".join(wrong) or "as it should be")
sys.exit(1 if wrong else 0)
"""
OWN = set(
    "CALLS DEVICE EXPECTED IN_PLACE tensor lazily_mapped copied run_call every_tensor refilled equal_values equal_bits "
    "wrong off close words watched failure in_company spoil".split()
)
"""Names that a script uses itself."""
FACTORS, SHIFTS = (8.0, 0.125), (4.0, -64.0)
"""What the scaling oracle multiplies by, and adds."""
COMPANIES = {
    "subset": ("only", "subsets"),
    "no-grad": ("no_grad",),
    "before": ("after_producers", "exp_backward", "softmax_backward"),
    "beside": ("beside_consumers",),
    "after": ("before_sums",),
    "twice": ("twice",),
    "saved": ("written_over",),
    "between": ("between_calls",),
}
"""By symptom, the functions of fuzz/oracles/autograd_graphs.py that make the company in which it shows itself."""


def computations(symptom: str) -> list[str]:
    """The functions that a script needs for a symptom of the autograd oracle."""
    shown = COMPANIES if symptom == "raised" else {symptom: COMPANIES.get(symptom, ())}
    return [name for names in shown.values() for name in names]


def companies(entry: Entry, symptom: str) -> str:
    """An expression for pairs of what is done with the launcher, and the inputs whose gradients there must be."""
    floats = [name for name, value in entry.case.last.arguments.items() if value.is_float]
    made = []
    for known, names in COMPANIES.items():
        if symptom not in (known, "raised"):
            continue
        first, *more = (PREFIX + name for name in names)
        if known == "subset":
            made.append(f"*(({first}(names), names) for names in {more[0]}({floats!r}))")
        elif known == "before":
            made += [f"({first}({derivative}), ())" for derivative in more]
        else:
            made.append(f"({first}, ())")
    return f"[{', '.join(made)}]"


def checks(entry: Entry, target: Target, launcher: str, expected: Mapping[str, object], spoil: str) -> str:
    """The program's end: run the earlier calls, then the one that shows the finding, and compare."""
    finding = entry.finding or Finding("accuracy", (), "value", "")
    call = finding.call if entry.finding and finding.symptom != "bits" else len(entry.case.calls) - 1
    compute = PREFIX + ("gradients" if target.differentiable else "forward")
    rows = [f"(arguments_{index}, cotangents_{index}, options_{index})" for index in range(len(entry.case.calls))]
    if finding.oracle == "invariance":
        rows.append("(arguments_again, cotangents_again, options_again)")
    head = RUN.format(launcher=launcher, compute=compute, calls=f"[{', '.join(rows)}]")
    head += "".join(f"run_call({index})\n" for index in range(call))
    if expected:
        head += DUE.format(expected=json.dumps(expected))
    told = dict(call=call, launcher=launcher, compute=compute)
    middle = judged(entry, finding, target, bool(expected), told, spoil)
    return head.strip("\n") + "\n" + middle.rstrip("\n") + "\n" + END.strip("\n")


def judged(entry: Entry, finding: Finding, target: Target, known: bool, told: dict[str, object], spoil: str) -> str:
    """The comparison, by the finding's oracle."""
    oracle, symptom = finding.oracle, finding.symptom
    if oracle == "bounds":
        if symptom == "unwritten":
            return (ACCURACY if known else UNWRITTEN).format(**told)
        return INSTRUMENTED.format(**told)
    if oracle == "mutation":
        return MUTATION.format(**told, in_place=list(target.in_place))
    if oracle == "rejects":
        return REJECTS.format(**told, spoil=spoil)
    if oracle == "fault":
        if symptom in ("died", "hung", "out-of-memory"):
            return APART.format(**told, timeout=target.timeout)
        return REFUSALS + FAULT.format(**told)
    if oracle == "autograd":
        if symptom == "missing":
            return MISSING.format(**told, outputs=list(finding.outputs))
        return REFUSALS + IN_COMPANY.format(**told, companies=companies(entry, symptom))
    if symptom == "scale" or symptom == "shift":
        return scaled(finding, target, symptom, told)
    if oracle in ("deterministic", "layout", "invariance", "scaling") or symptom == "bits":
        return repeated(entry, finding, target, told)
    return ACCURACY.format(**told)


def scaled(finding: Finding, target: Target, symptom: str, told: dict[str, object]) -> str:
    """The elements that the finding shows, under the change of an argument that its message tells."""
    if symptom == "scale":
        changes = [(name, by, f"when {name} is {by:g} times as large") for name in target.linear for by in FACTORS]
        operator, due = "*", "one * number"
    else:
        told_of = "when {:g} is added to every element of {}"
        changes = [(name, by, told_of.format(by, name)) for name in target.shifts for by in SHIFTS]
        operator, due = "+", "one"
    name, number = next((name, by) for name, by, text in changes if finding.message.endswith(text))
    places = [(name, number, one.output, one.index) for one in finding.elements]
    return SCALE.format(**told, places=places, changed=f"value {operator} number", due=due)


def repeated(entry: Entry, finding: Finding, target: Target, told: dict[str, object]) -> str:
    """Two runs that must agree, bit by bit or within the envelope."""
    call, rows, whole = told["call"], "", "first[name].shape"
    again = {"deterministic": AGAIN, "layout": PLAIN, "scaling": REVERSED, "accuracy": BASELINE}.get(finding.oracle, "")
    batch = target.batch or next(iter(target.rows.values()), "")
    by_rows = [name for name, value in entry.case.last.tensors.items() if value.shape[:1] == (batch,)]
    by_rows = [name for name in by_rows if 0 not in entry.case.last.tensors[name].layout.expand]
    baseline = target.baseline.__name__ if target.baseline else ""
    text = again.format(call=call, outputs=list(finding.outputs), by_rows=by_rows, baseline=baseline)
    if finding.oracle == "invariance":
        split = entry.case.split
        assert split is not None
        rows, whole = f"[{split.start}:{split.start + split.length}]", "shapes[name]"
        text = ALONE.format(
            last=len(entry.case.calls),
            outputs=list(finding.outputs),
            rows=rows.strip("[]"),
            others=f"{split.before}:{split.before + split.length}",
        )
    template = DRIFT if finding.symptom == "drift" else BITS
    return template.format(call=call, again=text.strip("\n"), outputs=list(finding.outputs), rows=rows, whole=whole)


AGAIN = """
second = first
for order in (-1, 1, 2, *range(3, 40)):
    if DEVICE == "cpu":
        with cpu.observe(order=order):
            second = run_call({call})
    else:
        second = run_call({call})
    if not all(equal_bits(first[name], second[name]) for name in first):
        break
"""
PLAIN = """
second = run_call({call}, {{name: value.contiguous() for name, value in every_tensor({call}).items()}})
"""
REVERSED = """
inputs = every_tensor({call})
second = run_call({call}, {{name: refilled(inputs[name], inputs[name].flip(0)) for name in {by_rows}}})
second = {{name: second[name].flip(0) for name in {outputs}}}
"""
BASELINE = """
second = run_call({call}, launcher={baseline})
"""
ALONE = """
shapes = {{name: value.shape for name, value in first.items()}}
first = {{name: first[name][{rows}] for name in {outputs}}}
second = {{name: value[{others}] for name, value in run_call({last}).items() if name in {outputs}}}
"""
