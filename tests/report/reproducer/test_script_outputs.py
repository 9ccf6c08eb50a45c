"""What a script compares outputs with: what the fuzzer does, integers and numbers that overflow among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from programs import Ended, run_programs

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype, to_bits
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import Exact
from fuzz.report.reproducer.script import script
from fuzz.target.loader import load, load_planted

WHOLE = """import torch
from fuzz import size, target, tensor

N = size("N", 1, 8)


@target(x=tensor(N, dtypes=("int64",)), w=tensor(N, dtypes=("float32",)), differentiable=dict(y=tensor(N)),
        reference=lambda x, w: dict(y=2 * w, n=x.clone(), large=x > 1 << 60))
def whole(x, w):
    n = x.clone()
    return dict(y=2 * w, n=n, large=n > 1 << 60)


whole.planted("digit", oracle="accuracy", outputs=("n",), change=("n = x.clone()", "n = x ^ 1"))
whole.planted("gradient", oracle="accuracy", outputs=("dw",), change=("y=2 * w, n=n", "y=w + w.detach(), n=n"))
whole.planted("flag", oracle="accuracy", outputs=("large",), change=("n > 1 << 60", "n < 0"))
"""


def ends(folder: Path, text: str, values: dict[str, tuple[str, Sequence[float]]], *plants: str) -> list[Ended]:
    """How the scripts of planted bugs of a target's text end, and that of the good kernel, for these values."""
    path = folder / "declared.py"
    path.write_text(text)
    target = load(str(path))
    arguments = {
        name: Argument(("N",), kind, Exact(tuple(to_bits(np.array(numbers), dtype(kind)).tolist()), kind))
        for name, (kind, numbers) in values.items()
    }
    given = {name: value for name, value in arguments.items() if not name.startswith("grad ")}
    cotangents = {name: arguments[f"grad {name}"] for name in target.cotangents}
    case = Case(target.name, (Call({"N": len(next(iter(values.values()))[1])}, given, {}, cotangents),))
    saved = Entry(case, Finding("accuracy", ("y",), "value", "m"), provenance=Provenance(backend="cpu"))
    chosen = [*(load_planted(target, name)[0] for name in plants), None]
    return run_programs(folder, (script(saved, target, planted, "fuzz replay x") for planted in chosen))


def test_integers_are_compared_exactly(tmp_path: Path) -> None:
    """Beside outputs and gradients of floating numbers, whose scripts they must not keep from being made."""
    numbers = [7359605936321010360, -3]
    values = {"x": ("int64", numbers), "w": ("float32", [1.0, 3.0]), "grad y": ("float32", [1.0, 1.0])}
    *wrong, good = ends(tmp_path, WHOLE, values, "digit", "gradient", "flag")
    assert [one.code for one in wrong] == [1, 1, 1] and good.code == 0
    assert wrong[0].out.startswith("n.flatten()[0] is 7359605936321010361, should be 7359605936321010360\n")
    assert wrong[2].out == "large.flatten()[0] is 0, should be 1\nlarge.flatten()[1] is 1, should be 0\n"


OVERFLOWS = """import torch
from fuzz import size, target, tensor

N = size("N", 1, 8)


@target(x=tensor(N, dtypes=("float16",)), reference=lambda x: dict(y=2 * x))
def doubled(x):
    return dict(y=2 * x)


doubled.planted("largest", oracle="accuracy", outputs=("y",), change=("y=2 * x)\\n", "y=(2 * x).clamp(max=65504))\\n"))
doubled.planted("nan", oracle="accuracy", outputs=("y",), change=("y=2 * x)\\n", "y=2 * x + 0 * (2 * x))\\n"))
doubled.planted("early", oracle="accuracy", outputs=("y",), change=("y=2 * x)\\n", "y=4 * x - 2 * x)\\n"))
"""


def test_what_overflows_is_due_as_an_infinity(tmp_path: Path) -> None:
    """Not the largest number nor NaN, and nothing becomes infinite that does not overflow."""
    *wrong, good = ends(tmp_path, OVERFLOWS, {"x": ("float16", [49152.0, 20000.0])}, "largest", "nan", "early")
    assert (good.code, good.out) == (0, "as it should be\n")
    assert [(one.code, one.out) for one in wrong] == [
        (1, "y.flatten()[0] is 65504.0, should be inf\n"),
        (1, "y.flatten()[0] is nan, should be inf\n"),
        (1, "y.flatten()[0] is nan, should be inf\ny.flatten()[1] is inf, should be 40000.0 within 16\n"),
    ]
