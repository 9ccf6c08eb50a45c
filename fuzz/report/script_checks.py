"""The part of a stand-alone script that runs the calls and decides, by oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fuzz.entry import Entry

RUN = '''
def run(arguments):
    """The launcher's outputs on the host, and the arguments as they are afterwards."""
    outputs = {launcher}(**arguments)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return {{name: value.detach().clone().cpu() for name, value in outputs.items()}}
'''
ACCURACY = """
wrong = []
outputs = run(arguments_{call}())
for name, (values, bounds) in EXPECTED.items():
    got = outputs[name].double().reshape(-1).tolist()
    for index, (value, want, bound) in enumerate(zip(got, map(float, values), map(float, bounds))):
        close = value == want or (value != value and want != want) or abs(value - want) <= bound
        if not close:
            wrong.append(f"{{name}}.flatten()[{{index}}] is {{value!r}}, should be {{want!r}} within {{bound:.3g}}")
"""
BITS = """
wrong = []
first = run(arguments_{call}())
{again}
for name in first:
    same = torch.equal(first[name].nan_to_num(), second[name].nan_to_num())
    if {chosen} and not same:
        wrong.append(f"{{name}}: {{first[name].tolist()}} and then {{second[name].tolist()}}")
"""
MUTATION = """
wrong = []
arguments = arguments_{call}()
before = {{name: value.clone() for name, value in arguments.items() if isinstance(value, torch.Tensor)}}
storages = {{value.untyped_storage().data_ptr(): name for name, value in arguments.items() if name in before}}
outputs = {launcher}(**arguments)
for name, value in before.items():
    if not torch.equal(value.nan_to_num(), arguments[name].nan_to_num()):
        wrong.append(f"{{name}} was overwritten: {{value.tolist()}} became {{arguments[name].tolist()}}")
for name, value in outputs.items():
    if value.untyped_storage().data_ptr() in storages:
        wrong.append(f"output {{name}} shares the memory of {{storages[value.untyped_storage().data_ptr()]}}")
"""
FAULT = """
wrong = []
try:
    run(arguments_{call}())
except Exception as error:
    wrong.append(f"{{type(error).__name__}}: {{error}}")
"""
UNWRITTEN = """
wrong = []
for name, value in run(arguments_{call}()).items():
    if value.isnan().any():
        wrong.append(f"{{name}} has elements that were never written: {{value.tolist()}}")
"""
INSTRUMENTED = """
if DEVICE == "cpu":
    with cpu.observe(unwritten=True, conflicts=True, races=True, overflow=True) as log:
        run(arguments_{call}())
    wrong = [str(violation) for violation in log.violations]
else:
    outputs = run(arguments_{call}())
    wrong = [f"{{name}} is NaN: {{value.tolist()}}" for name, value in outputs.items() if value.isnan().any()]
"""
END = """
print("\\n".join(wrong) or "as it should be")
sys.exit(1 if wrong else 0)
"""


BOUNDS = {"unwritten": UNWRITTEN, "stray-read": FAULT, "stray-write": FAULT}
"""How a script sees each symptom; what only the `cpu` backend's instruments see may show as NaN on a GPU."""


def checks(entry: Entry, launcher: str, expected: Mapping[str, object]) -> str:
    """The program's end: run the earlier calls, then the one that shows the finding, and compare."""
    finding = entry.finding
    call = finding.call if finding else len(entry.case.calls) - 1
    before = "".join(f"run(arguments_{index}())\n" for index in range(call))
    oracle = finding.oracle if finding else "accuracy"
    symptom = finding.symptom if finding else ""
    if oracle == "accuracy" or (oracle == "bounds" and symptom == "unwritten" and expected):
        middle = f"EXPECTED = {json.dumps(expected)}\n" + ACCURACY.format(call=call)
    elif oracle == "bounds":
        middle = BOUNDS.get(symptom, INSTRUMENTED).format(call=call)
    elif oracle == "mutation":
        middle = MUTATION.format(call=call, launcher=launcher)
    elif oracle in ("deterministic", "invariance", "layout"):
        middle = _bits(entry, oracle, call)
    else:
        middle = FAULT.format(call=call)
    return RUN.format(launcher=launcher).strip("\n") + "\n\n\n" + before + middle.strip("\n") + END


def _bits(entry: Entry, oracle: str, call: int) -> str:
    if oracle == "deterministic":
        again = (
            "second = first\nfor order in (-1, 1, 2, *range(3, 40)):\n"
            '    if DEVICE == "cpu":\n        with cpu.observe(order=order):\n'
            f"            second = run(arguments_{call}())\n    else:\n        second = run(arguments_{call}())\n"
            "    if any(not torch.equal(first[name].nan_to_num(), second[name].nan_to_num()) for name in first):\n"
            "        break"
        )
        return BITS.format(call=call, again=again, chosen="True")
    if oracle == "layout":
        again = (
            f"plain = {{name: value.contiguous() if isinstance(value, torch.Tensor) else value "
            f"for name, value in arguments_{call}().items()}}\nsecond = run(plain)"
        )
        return BITS.format(call=call, again=again, chosen="True")
    split = entry.case.split
    assert split is not None
    finding = entry.finding
    assert finding is not None
    arguments = entry.case.calls[call].arguments
    batched = [name for name, value in arguments.items() if value.shape and value.shape[0] in _batch(entry)]
    rows = f"{split.start}:{split.start + split.length}"
    again = (
        f"alone = arguments_{call}()\n"
        f"for name in {batched!r}:\n"
        f"    rows = alone[name][{rows}]\n"
        f"    others = [torch.randn(n, *rows.shape[1:]).to(rows) for n in ({split.before}, {split.after})]\n"
        "    alone[name] = torch.cat([others[0], rows, others[1]])\n"
        "second = run(alone)\n"
        f"chosen = {list(finding.outputs)!r}\n"
        f"first = {{name: value[{rows}] if name in chosen else value for name, value in first.items()}}\n"
        f"second = {{name: value[{split.before}:{split.before + split.length}] for name, value in second.items()}}"
    )
    return BITS.format(call=call, again=again, chosen=f"name in {list(finding.outputs)!r}")


def _batch(entry: Entry) -> set[str]:
    """The dim that the split's rows belong to: the first of the first argument."""
    shapes = [value.shape for value in entry.case.last.arguments.values() if value.shape]
    return {shapes[0][0]} if shapes else set()
