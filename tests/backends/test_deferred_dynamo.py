"""Targets are loaded without torch._dynamo and sympy, which take long to import; each test needs a new process."""

import os
import subprocess
import sys
from pathlib import Path

SETUP = """
import sys
import torch
from fuzz.backends.imports.deferred_dynamo import deferring_dynamo

def is_imported():
    return "torch._dynamo" in sys.modules
"""
DISABLED = """
with deferring_dynamo():
    @torch.compiler.disable
    def first(x):
        "Doubles."
        return torch.compiler.is_compiling(), 2 * x

    @torch.compiler.disable(recursive=False, reason="a test")
    def second(x):
        return torch.compiler.is_compiling(), 2 * x

assert not is_imported()
assert (first.__name__, first.__doc__) == ("first", "Doubles.")
assert first(3) == second(x=3) == (False, 6) and not is_imported()

with deferring_dynamo():
    compiled = torch.compile(lambda x: (torch.compiler.is_compiling(), *first(x), *second(x)), backend="eager")
assert is_imported() and compiled(torch.ones(1)) == (True, False, 2, False, 2)
once_more = torch.compiler.disable(first)
assert torch._dynamo.eval_frame.innermost_fn(once_more) is first.__wrapped__
"""
SWITCHED_OFF = """
def function(x):
    return torch.compiler.is_compiling()

class Class:
    pass

with deferring_dynamo():
    assert torch.compile(function) is torch.compile(fullgraph=True)(function) is function
    assert torch.compile(Class) is Class
assert not is_imported()
"""
LOADED = """
from fuzz.oracles.examine import load_launcher
from fuzz.run.setup import load_checked_target
from fuzz.worker.protocol import WorkerConfig

_, launcher = load_launcher(WorkerConfig({path!r}, None, "cpu"))
assert load_checked_target({path!r}, None, "cpu") and launcher(torch.ones(1)) == dict(y=1)
assert not is_imported() and "torch.distributed.tensor" in sys.modules and "sympy" not in sys.modules
"""
TARGET = """
import torch
from fuzz import size, target, tensor

@torch.compiler.disable
def same(x):
    return x.clone()

N = size("N", 1, 8)

@target(x=tensor(N), reference=lambda x: dict(y=x), imports=("beside",))
def identity(x):
    import beside
    return dict(y=beside.same(same(x)))
"""
BESIDE = """
import torch
from torch.distributed.tensor import DTensor

@torch.compiler.disable
def same(x):
    return x
"""


def run(program: str, **environment: str) -> None:
    before = {name: value for name, value in os.environ.items() if name != "TORCH_COMPILE_DISABLE"}
    subprocess.run([sys.executable, "-c", SETUP + program], check=True, timeout=300, env={**before, **environment})


def test_functions_that_are_not_to_be_compiled_are_called_as_they_are_and_others_are_compiled() -> None:
    run(DISABLED)


def test_nothing_is_compiled_where_that_is_switched_off() -> None:
    run(SWITCHED_OFF, TORCH_COMPILE_DISABLE="1")


def test_a_target_and_its_imports_are_loaded_that_way(tmp_path: Path) -> None:
    (tmp_path / "identity.py").write_text(TARGET)
    (tmp_path / "beside.py").write_text(BESIDE)
    run(LOADED.format(path=str(tmp_path / "identity.py")))
