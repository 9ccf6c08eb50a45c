"""The process of a solution: without network, and what its code does beside computing is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, socket, sys
from pathlib import Path
from fuzz.judge.processes.sandbox import ConductRecord, leave_network, limit_files
reason = leave_network()
limit_files()
record = ConductRecord([Path("solution.py")], [Path("problem.py")], Path())
names = {}
path = Path("solution.py").resolve()
with record.watch():
    exec(compile(path.read_text(), str(path), "exec"), names)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).close()
    connected = True
except OSError:
    connected = False
print(json.dumps({"reason": reason, "connected": connected, "conduct": record.collect()}))
"""


def run(folder: Path, solution: str, port: int = 9) -> dict[str, object]:
    (folder / "problem.py").write_text("secret = 1\n")
    (folder / "solution.py").write_text(solution)
    (folder / "limits.yaml").touch()
    command = [sys.executable, "-c", PROGRAM, str(port)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_what_no_honest_solution_does_is_recorded(tmp_path: Path) -> None:
    solution = (
        "import gc, inspect, sys, time, torch\n"
        "open('problem.py').read()\ninspect.stack()\ngc.get_objects()\n"
        "torch.allclose = lambda *a: True\ntime.perf_counter = lambda: 0.0\n"
    )
    conduct = run(tmp_path, solution)["conduct"]
    assert conduct == [
        "reads problem.py", "calls sys._getframe", "calls gc.get_objects", "replaces torch.allclose",
        "replaces time.perf_counter",
    ]  # fmt: skip


def test_what_outlives_a_call_or_reaches_frames_by_other_ways_is_recorded(tmp_path: Path) -> None:
    solution = (
        "import os, sys, threading, torch, warnings\nopen('new', 'w').close()\nopen('solution.py').close()\n"
        "os.close(os.open('limits.yaml', os.O_RDWR))\nfrom torch.overrides import TorchFunctionMode\n"
        "class Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        return func(*args, **(kwargs or {}))\n"
        "Mode().__enter__()\nsys.setprofile(None)\n"
        "try:\n    raise ValueError\nexcept ValueError as error:\n    error.__traceback__.tb_frame\n"
        "warnings.simplefilter('ignore')\n"
        "torch.library.Library('aten', 'IMPL').impl('isclose', lambda *a: a[0], 'CPU')\n"
        "torch.nn.modules.module.register_module_forward_hook(print)\n"
        "end = threading.Event()\n"
        "def wait():\n    end.wait(60)\n"
        "threading.Thread(target=wait, daemon=True).start()\n"
    )
    assert run(tmp_path, solution)["conduct"] == [
        "writes limits.yaml", "calls sys.setprofile", "reads tb_frame", "replaces aten::isclose",
        "leaves a mode of PyTorch active", "registers a hook for every module", "leaves a thread running",
    ]  # fmt: skip


def test_an_honest_solution_leaves_no_record(tmp_path: Path) -> None:
    solution = (
        "import torch, inspect, warnings\nimport torch._dynamo\nfrom dataclasses import dataclass\n"
        "from collections import namedtuple\n"
        "P = namedtuple('P', 'a b')\nimport logging\nlogging.getLogger().warning('x')\n"
        "inspect.signature(torch.nn.Linear)\nwarnings.warn('x')\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\n"
        "import gc\ngc.collect()\n"
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.format_exc()\n"
        "torch.library.custom_op('mine::twice', lambda x: x * 2, mutates_args=(), schema='(Tensor x) -> Tensor')\n"
        "torch.set_default_device('cpu')\nwith torch.device('cpu'):\n    torch.ones(1)\n"
        "from threading import Thread\none = Thread(target=print)\none.start()\none.join()\n"
    )
    assert run(tmp_path, solution)["conduct"] == []


def test_the_network_is_out_of_reach_where_the_system_allows(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        found = run(tmp_path, "", server.getsockname()[1])
    assert found["connected"] is (str(found["reason"]).startswith("the network cannot"))
