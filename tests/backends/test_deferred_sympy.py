"""torch.distributed.tensor is imported without sympy, which takes long to import; each test needs a new process."""

import subprocess
import sys

import pytest

SETUP = """
import sys
import torch
from fuzz.backends.imports.deferred_sympy import NAME, defer_sympy, standing_in

def is_imported():
    return "sympy" in sys.modules

defer_sympy()
defer_sympy()
"""
ASKED = """
import torch.distributed.tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, _collective_utils, _decompositions
from torch.distributed.tensor._ops import _tensor_ops

class Own(DTensor):
    pass

assert not isinstance(torch.ones(1), DTensor) and issubclass(Own, DTensor)
assert not is_imported() and NAME not in sys.modules
assert not hasattr(torch.fx.experimental, "symbolic_sizes") and not is_imported()
import copy
assert copy.deepcopy(torch.distributed.tensor.__spec__).name == "torch.distributed.tensor"
held = _collective_utils.guard_or_false, _decompositions.GuardOnDataDependentSymNode
"""
REPLACED = """
assert is_imported()
real = sys.modules[NAME]
assert real is torch.fx.experimental.symbolic_shapes and real.__file__
assert _collective_utils.guard_or_false is real.guard_or_false is not held[0]
assert _tensor_ops.statically_known_true is real.statically_known_true
assert _decompositions.GuardOnDataDependentSymNode is real.GuardOnDataDependentSymNode is not held[1]
assert held[0](torch.ones(1).numel() == 1) is True
"""
WAYS = [
    "from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode",
    "import torch._dynamo",
    "held[0](True)",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv",
    "torch.ones(1, requires_grad=True).mul(2).backward(torch.ones(1))",
]
DISTRIBUTED = """
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
one = torch.distributed.tensor.distribute_tensor(torch.arange(6.0).view(2, 3), mesh, [Shard(0)])
assert isinstance(one, DTensor)
assert torch.equal((one[:, 1:] @ one[:, 1:].T).full_tensor(), torch.tensor([[5.0, 14.0], [14.0, 41.0]]))
torch.distributed.destroy_process_group()
"""
COMPILED = """
compiled = torch.compile(lambda x: (torch.compiler.is_compiling(), isinstance(x, DTensor), x * x.shape[0]),
                         backend="eager", fullgraph=True, dynamic=True)
assert compiled(torch.ones(3))[:2] == (True, False) and compiled(torch.ones(4))[2].sum() == 16
"""
INTERRUPTED = """
import importlib.abc

class Once(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "sympy":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Once())
try:
    import torch.fx.experimental.symbolic_shapes
except KeyboardInterrupt:
    pass
assert not is_imported() and NAME not in sys.modules
import torch.fx.experimental.symbolic_shapes
"""
ASKED_FOR_MORE = """
with standing_in():
    from torch.fx.experimental.symbolic_shapes import guard_or_false
    assert not is_imported() and not hasattr(sys.modules[NAME], "__all_the_same__")
    import torch.fx.experimental.symbolic_shapes as held
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    assert guard_or_false is not held.guard_or_false
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

real = sys.modules[NAME]
assert is_imported() and ShapeEnv is real.ShapeEnv is held.ShapeEnv and held is not real
assert GuardOnDataDependentSymNode is real.GuardOnDataDependentSymNode and held.guard_or_false is real.guard_or_false
with standing_in():
    assert sys.modules[NAME] is real
assert sys.modules[NAME] is real
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", SETUP + program], check=True, timeout=300)


@pytest.mark.parametrize("way", WAYS)
def test_to_ask_whether_a_tensor_is_one_imports_nothing_and_to_use_more_does(way: str) -> None:
    run(f"{ASKED}\n{way}\n{REPLACED}")


@pytest.mark.parametrize("program", [DISTRIBUTED, COMPILED, INTERRUPTED])
def test_what_is_deferred_is_replaced_once_the_module_is_imported(program: str) -> None:
    run(f"{ASKED}\n{program}\n{REPLACED}")


def test_who_asks_the_stand_in_for_more_imports_the_module_for_which_nothing_stands_in_then() -> None:
    run(ASKED_FOR_MORE)
