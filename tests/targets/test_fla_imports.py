"""What targets of fla-core call is imported with them: a launcher that imports it does so in each process of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = r"""
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

from fuzz.backends.imports import quick_imports
from fuzz.target.loader import load_module, targets_in

with quick_imports():
    files = [load_module(path) for path in sorted(Path("targets/fla").glob("[!_]*.py"))]
    import fla.modules, fla.ops

    known = {name for name in sys.modules if name.startswith("fla.")}
    for target in [target for file in files for target in targets_in(file).values()]:
        for name in target.imports:
            import_module(name)
        places = re.findall(r'"((?:modules|ops)[.\w]*):\w+"', inspect.getsource(target.launcher))
        for missing in {f"fla.{place}" for place in places} - known - set(target.imports):
            print(target.name, "lacks imports of", missing)
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.skipif(find_spec("fla") is None, reason="fla-core is not installed")
def test_what_launchers_call_is_imported_with_their_targets() -> None:
    """And without `torch._dynamo`, which takes longer than the library."""
    kept = {name: value for name, value in os.environ.items() if name != "TORCH_COMPILE_DISABLE"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=kept, text=True, capture_output=True, timeout=120, check=True)
    assert done.stdout == "False\n"
