"""Scripts of targets that import from files and packages beside them, and how scripts end that cannot run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import STRICT, run_program, run_programs

from fuzz.errors import FuzzError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import recipe
from fuzz.report.reproducer.script import script
from fuzz.target.loader import load

TARGET = """
from fuzz import size, target, tensor

N = size("N", 1, 8)


@target(x=tensor(N), reference=lambda x: dict(y=2 * x))
def borrows(x):
    return dict(y={body})
"""
HELPER = """import math
import torch
from math import floor as lowest

FACTOR = 20


def scale(x):
    return FACTOR * x
"""
PACKAGE = {
    "borrowed/__init__.py": "from .scales import scale as factored\n\nZERO = 0\n",
    "borrowed/scales.py": "from . import factors\nfrom .factors import FACTOR as BY\n\n\n"
    "def scale(x):\n    return BY * x + factors.ZERO\n",
    "borrowed/factors.py": "FACTOR, ZERO = 20, 0\n",
    "borrowed/deep/scales.py": "from ..factors import FACTOR\nscale = FACTOR.__mul__\n",
}
BORROWED = [
    ("from helper import *", "scale(x) + lowest(math.cos(1.0))", {"helper.py": HELPER}),
    ("from helper import *", "scale(x)", {"helper.py": HELPER + "__all__ = ['scale']\n"}),
    ("from helper import math", "math.exp(3.0) * x", {"helper.py": HELPER}),
    ("from borrowed import factored", "factored(x)", PACKAGE),
    ("from borrowed import scales, ZERO", "scales.scale(x) + ZERO", PACKAGE),
    ("from borrowed.scales import scale as scaled", "scaled(x)", PACKAGE),
    ("import borrowed.scales", "borrowed.scales.scale(x)", PACKAGE),
    ("import borrowed.deep.scales as deep", "x * deep.scale(1)", PACKAGE),
    ("from borrowed.deep.scales import scale", "x * scale(1)", PACKAGE),
]
OPTIONAL = """try:
    from .factors import FACTOR
except ImportError:
    FACTOR = {otherwise}


def scale(x):
    return FACTOR * x
"""
"""Of a file that is in no package the import fails, beside a target as in a script."""
OF_TYPING = """

def scale(x):
    factors: Sequence[float] = [4, 5]
    return factors[0] * factors[1] * x
"""
BORROWED += [
    ("from borrowed.scales import scale", "scale(x)", {**PACKAGE, "borrowed/scales.py": OPTIONAL.format(otherwise=2)}),
    ("from helper import scale", "scale(x)", {"helper.py": OPTIONAL.format(otherwise=20), "factors.py": "FACTOR = 2"}),
    ("from helper import scale", "scale(x)", {"helper.py": "from typing import Sequence\n" + OF_TYPING}),
]


def program(folder: Path, text: str, files: dict[str, str]) -> str:
    """The script of a target's text, which stands in a folder with other files."""
    for name, content in {"borrows.py": "import torch\n" + text, **files}.items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    case = Case("borrows", (Call({"N": 1}, {"x": Argument(("N",), "float32", recipe("normal", 1))}),))
    saved = Entry(case, Finding("accuracy", ("y",), "value", "m"), provenance=Provenance(backend="cpu"))
    return script(saved, load(str(folder / "files" / "borrows.py")), None, "fuzz replay x")


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Modules of other tests' folders are not those of this one."""
    folders = str(tmp_path_factory.getbasetemp())
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(folders)])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("borrowed", "helper", "second")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("imports", "body", "files"), BORROWED)
def test_what_is_imported_from_files_beside_the_target_is_in_the_script(
    imports: str, body: str, files: dict[str, str], tmp_path: Path
) -> None:
    text = program(tmp_path, imports + TARGET.format(body=body), files)
    (ended,) = run_programs(tmp_path, [text])
    assert ended.code == 1 and ended.out.startswith("y.flatten()[0] is "), ended


SCALE = "\n\n\ndef scale(x):\n    return x * bool(used)\n"
REFUSED = [
    ("from helper import scale", {"helper.py": "wrong_elements = used = 1" + SCALE + "\n\nscale(wrong_elements)\n"},
     "its own name 'wrong_elements' is one of the launcher's; rename that"),
    ("from helper import scale", {"helper.py": "from os import close as copied\nused = [copied]" + SCALE},
     "its own name 'copied' is one of the launcher's"),
    ("from math import ceil as used\nfrom helper import scale as by\n\n\ndef scale(x):\n    return used(by(1)) * x",
     {"helper.py": "from math import floor as used" + SCALE}, "'used' means two things, in helper.py and borrows.py"),
    ("from helper import scale",
     {"helper.py": "scale = 0\nfrom second import used" + SCALE, "second.py": "used = 1\nfrom helper import scale\n"},
     "second.py and helper.py import each other"),
    ("from borrowed.scales import scale",
     {**PACKAGE, "borrowed/scales.py": "def scale(x):\n    from .factors import FACTOR\n    return FACTOR * x\n"},
     "'scale' imports from its own package while it runs"),
]  # fmt: skip


@pytest.mark.parametrize(("imports", "files", "reason"), REFUSED)
def test_what_cannot_be_one_file_is_told(imports: str, files: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(FuzzError, match=reason):
        program(tmp_path, imports + TARGET.format(body="scale(x)"), files)


def test_a_script_that_cannot_run_does_not_end_as_one_of_a_wrong_kernel(tmp_path: Path) -> None:
    text = program(tmp_path, "from helper import scale" + TARGET.format(body="scale(x)"), {"helper.py": HELPER})
    path = tmp_path / "alone.py"
    path.write_text(text.replace("import math\n", "import nowhere_to_be_found\n"))
    done = run_program("-c", STRICT, str(path))
    assert done.returncode == 2 and "No module named 'nowhere_to_be_found'" in done.stderr
