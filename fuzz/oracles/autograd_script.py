"""The texts of the checks by which a stand-alone script repeats what the autograd oracle has found."""

from __future__ import annotations

FIND_MISSING = '''
def check():
    """Looks for gradients that autograd does not get."""
    outputs = run_call()
    yield from (f"{name} is None" for name in OUTPUTS if name not in outputs)
'''
RUN_IN_GRAPHS = '''
def check_graph(alone, compute, wanted):
    """Compares the launcher's results in a graph with those without one, and what the other operations compute."""
    got = run_call(compute=compute)
    places = [name[4:] for name in got if name.startswith("due_") and name[4:] in got]
    places = [name for name in places if name.replace("after_", "after_grad ").partition("_")[2] not in REQUESTED]
    for name in places:
        if not equal_values(got[name], got["due_" + name]):
            yield f"{name} is {got[name].tolist()}, should be {got['due_' + name].tolist()}"
    for name in wanted:
        if got and "d" + name in alone and "d" + name not in got:
            yield f"the gradient of {name} is None"
    for name in alone.keys() & got.keys():
        if not equal_values(got[name], alone[name]) and (name not in EXPECTED or wrong_elements(name, got[name])):
            yield f"{name} is {got[name].tolist()}, and {alone[name].tolist()} without other operations"


def check():
    """Runs the launcher in every graph in which the finding may show."""
    alone = run_call()
    for compute, wanted in GRAPHS:
        try:
            yield from check_graph(alone, compute, wanted)
        except Exception as error:
            if failure(error):
                yield failure(error)
'''
USE_ONE_OUTPUT = '''
def wrong_alone(name, got, due):
    """The elements that differ from those with gradients of 0 and from both references, with these and without."""
    pairs = enumerate(zip(got.reshape(-1).tolist(), due.reshape(-1).tolist()))
    wrong = {index for index, (one, other) in pairs if one != other and (one == one or other == other)}
    for expected in (EXPECTED, EXPECTED_ALONE):
        if name in expected:
            wrong &= {index for index, *_ in wrong_elements(name, got, expected)}
    return wrong


def check():
    """Uses one output alone: autograd has no gradient of the others, which must be as good as one of 0."""
    ((compute, _),) = GRAPHS
    others = {name: value for name, value in every_tensor().items() if name.startswith("grad ") and name[5:] != USED}
    due = run_call(changed={name: torch.zeros_like(value) for name, value in others.items()})
    try:
        got = run_call(compute=compute)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
        return
    for name in due.keys() & got.keys():
        if wrong_alone(name, got[name], due[name]):
            yield f"{name} is {got[name].tolist()}, and {due[name].tolist()} with gradients of 0"
'''
