"""The part of a stand-alone script that runs the calls, and ends with what the check of the oracle finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fuzz.oracles.script_check import Graph, ScriptCheck
from fuzz.report.reproducer.source import PREFIX

RUN = '''
def copied(outputs):
    """Outputs on the host."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return {name: value.detach().clone().cpu() for name, value in outputs.items()}


def run_call(index=SHOWN_CALL, changed=(), compute=COMPUTE, launcher=LAUNCHER, inputs=None):
    """The outputs of a call, and its gradients where it is differentiated; `changed` replaces tensors by name."""
    inputs = inputs or every_tensor(index)
    inputs.update(changed)
    tensors = {name: value for name, value in inputs.items() if not name.startswith("grad ")}
    cotangents = {name[5:]: value for name, value in inputs.items() if name.startswith("grad ")}
    return copied(compute(lambda tensors: launcher(**tensors, **CALLS[index][2]), tensors, cotangents))


def every_tensor(index=SHOWN_CALL):
    """The arguments and cotangents of a call by name."""
    make, along, _ = CALLS[index]
    return {**make(), **{"grad " + name: value for name, value in along().items()}}


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
'''
COMPARE = '''
def off(name, output):
    """Elements of an output that are not what is due: (index, value, due, bound)."""
    values, bounds = EXPECTED[name]
    elements = enumerate(zip(output.double().reshape(-1).tolist(), map(float, values), map(float, bounds)))
    return [(index, *one) for index, one in elements if not close(*one)]


def close(value, want, bound):
    return value == want or (value != value and want != want) or abs(value - want) <= bound
'''
END = """
for index in range(SHOWN_CALL):
    run_call(index)
wrong = list(check())
print("\\n".join(wrong) or "as it should be")
sys.exit(1 if wrong else 0)
"""
RESERVED = set(
    "CALLS SHOWN_CALL LAUNCHER COMPUTE DEVICE EXPECTED GRAPHS tensor lazily_mapped copied run_call every_tensor "
    "refilled equal_values equal_bits off close check check_graph run_twice words failure "
    "prune_configs prune_to_one".split()
)
"""Names that a script uses itself, beside the constants of its check."""


def harness(
    check: ScriptCheck,
    launcher: str,
    compute: str,
    calls: int,
    shown: int,
    values: Mapping[str, object],
    written: Sequence[str],
) -> Iterator[str]:
    """The pieces of the program's end: run the calls before the one that shows the finding, then check that one.

    `written` names the differentiated arguments that the launcher may write.
    """
    rows = [f"(arguments_{index}, cotangents_{index}, options_{index})" for index in range(calls)]
    constants = {"CALLS": f"[{', '.join(rows)}]", "SHOWN_CALL": str(shown)}
    constants |= {"LAUNCHER": launcher, "COMPUTE": PREFIX + compute}
    constants |= {name: repr(value) for name, value in check.constants.items()}
    constants |= {"EXPECTED": json.dumps(values)} if check.values else {}
    constants |= {"GRAPHS": f"[{', '.join(map(graph_text, check.graphs))}]"} if check.graphs else {}
    yield "\n".join(f"{name} = {text}" for name, text in constants.items())
    passed = f"{PREFIX}make_writable(tensors, {tuple(written)!r})" if written else "tensors"
    yield RUN.strip("\n").replace("launcher(**tensors,", f"launcher(**{passed},")
    if check.values:
        yield COMPARE.strip("\n")
    yield check.text.strip("\n")
    yield END.strip("\n")


def graph_text(graph: Graph) -> str:
    """(computation, inputs that need a gradient) as an expression."""
    function, argument, wanted = graph
    text = PREFIX + function.__name__
    if argument is not None:
        text += f"({PREFIX + argument.__name__ if callable(argument) else repr(argument)})"
    return f"({text}, {wanted!r})"
