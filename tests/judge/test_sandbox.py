"""The process of a solution: without network, and what its code does beside computing is recorded."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from programs import run_program

PROGRAM = """
import json, socket, sys
from pathlib import Path
from fuzz.judge.processes.sandbox import ConductRecord, hide_files, leave_network, limit_files
reason = leave_network()
hidden = reason or hide_files([Path("problem.py"), Path("nowhere.py")], Path("build"))
limit_files()
record = ConductRecord([Path("solution.py")], [Path("problem.py")], Path())
names = {}
path = Path("solution.py").resolve()
parts, text = [], path.read_text()
for part in text.split("# NEXT\\n"):
    with record.watch():
        exec(compile(part, str(path), "exec"), names)
    parts.append(list(record.reasons))
    record.reasons.clear()
record.reasons.update(dict.fromkeys(parts[-1]))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).close()
    connected = True
except OSError:
    connected = False
print("\\n" + json.dumps({"reason": reason, "connected": connected, "conduct": record.collect(), "parts": parts,
                         "hidden": hidden, "found": names.get("found")}))
"""


def run(folder: Path, solution: str, port: int = 9) -> dict[str, object]:
    (folder / "problem.py").write_text("secret = 1\n")
    (folder / "solution.py").write_text(solution)
    (folder / "build").mkdir()
    (folder / "limits.yaml").touch()
    done = run_program("-c", PROGRAM, str(port), cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
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


def run_parts(folder: Path, parts: Sequence[str]) -> dict[str, object]:
    """What is recorded of each of several solutions, which run one after another in one process."""
    found = run(folder, "# NEXT\n".join(f"{part}\n" for part in parts))["parts"]
    assert isinstance(found, list)
    return dict(zip(parts, found, strict=True))


TEXTS = {
    "import sys\nsys._getframe(0)": "calls sys._getframe",
    "import inspect\ninspect.stack()": "calls sys._getframe",
    "try:\n    1 / 0\nexcept Exception as error:\n    error.__traceback__.tb_frame": "reads tb_frame",
}


def test_what_a_solution_executes_as_text_is_its_own(tmp_path: Path) -> None:
    calls = ("exec({!r}, {{}})", "exec(compile({!r}, '<mine>', 'exec'), {{}})")
    expected = {call.format(text): [reason] for call in calls for text, reason in TEXTS.items()}
    assert run_parts(tmp_path, list(expected)) == expected


LOOK = "import sys, gc\ndef look():\n    sys._getframe(0)\n    gc.get_objects()"
OTHER_NAMES = [
    f"names = {{}}\nexec(compile({LOOK!r}, {name!r}, 'exec'), names)\nnames['look']()"
    for name in ("/tmp/nowhere.py", inspect.__file__, json.__file__)
] + [
    f"import types\nwhole = compile({LOOK!r}, {json.__file__!r}, 'exec')\n"
    "look = types.FunctionType(whole.co_consts[2], {'sys': sys, 'gc': gc})\nlook()"
]  # fmt: skip


def test_code_is_a_solutions_own_under_the_name_of_another_file(tmp_path: Path) -> None:
    found = run_parts(tmp_path, ["import gc, sys", *OTHER_NAMES])
    looks = ["calls sys._getframe", "calls gc.get_objects"]
    assert found == {"import gc, sys": [], **dict.fromkeys(OTHER_NAMES, looks)}


THREADS = """
import _thread, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, ".")
end = threading.Event()

def wait():
    end.wait(60)

class Waiting(threading.Thread):
    def run(self):
        end.wait(60)

pool, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
"""
LEAVING = [
    "Waiting(daemon=True).start()",
    "timer = threading.Timer(60, print)\ntimer.daemon = True\ntimer.start()",
    "pool.submit(wait)",
    "other.submit(time.sleep, 2)",
    "threading.Thread(target=end.wait, args=(60,), daemon=True).start()",
    "_thread.start_new_thread(wait, ())\ntime.sleep(0.5)",
    "exec('threading.Thread(target=lambda: end.wait(60), daemon=True).start()')",
]
LIBRARY = """
import threading

def start():
    threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
"""
HONEST = [
    "import library\nlibrary.start()",
    "pool.submit(print).result()\ntime.sleep(0.2)",
    "with other:\n    other.submit(time.sleep, 0.1)",
    "timer = threading.Timer(60, print)\ntimer.start()\ntimer.cancel()",
    "one = threading.Thread(target=time.sleep, args=(0.1,))\none.start()\none.join()",
    "import collections\ncollections.namedtuple('P', 'a b')(1, 2)",
]


def test_a_thread_is_a_solutions_own_however_it_is_started(tmp_path: Path) -> None:
    found = run_parts(tmp_path, [THREADS, *LEAVING, "end.set()"])
    assert found == {THREADS: [], **dict.fromkeys(LEAVING, ["leaves a thread running"]), "end.set()": []}


def test_threads_of_libraries_and_those_without_work_are_no_conduct(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    assert run_parts(tmp_path, [THREADS, *HONEST]) == dict.fromkeys([THREADS, *HONEST], [])


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


def test_the_problem_is_empty_for_programs_that_a_solution_starts_where_the_system_allows(tmp_path: Path) -> None:
    solution = (
        "import subprocess, sys\nread = 'import pathlib; print(len(pathlib.Path(\"problem.py\").read_text()))'\n"
        "found = int(subprocess.run([sys.executable, '-c', read], capture_output=True).stdout)\n"
    )
    found = run(tmp_path, solution)
    size = (tmp_path / "problem.py").stat().st_size
    assert size > 0 and found["found"] == (size if found["hidden"] else 0)
