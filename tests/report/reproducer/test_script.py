"""The stand-alone script: it holds what it needs and nothing of this package, for every kind of finding."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import run_programs

from fuzz.errors import UsageError
from fuzz.escaping import printable_lines
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import recipe
from fuzz.report.entry_text import replay_command
from fuzz.report.reproducer.script import script
from fuzz.report.reproducer.source import SourceCollector
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Target


def entry(target: Target, oracle: str, symptom: str, outputs: tuple[str, ...], split: Split | None = None) -> Entry:
    """A finding in layernorm_bw's smallest interesting case."""
    arguments = {
        name: Argument(value.shape, "float32", recipe("normal", seed), Layout(order=(1, 0)) if seed == 1 else Layout())
        for seed, (name, value) in enumerate(target.tensors.items(), 1)
    }
    case = Case(target.name, (Call({"M": 2, "N": 3}, arguments, {"eps": 1e-5}),), split)
    return Entry(case, Finding(oracle, outputs, symptom, "m"), provenance=Provenance(backend="cpu"))


FINDINGS = [
    ("accuracy", "value", ("dx",)),
    ("bounds", "stray-write", ("dbias",)),
    ("bounds", "unwritten", ("dx",)),
    ("mutation", "written", ("dy",)),
    ("deterministic", "bits", ("dweight",)),
    ("layout", "bits", ("dx",)),
    ("invariance", "bits", ("dx",)),
    ("fault", "raised", ("launcher",)),
    ("rejects", "accepted", ("short_weight",)),
]


@pytest.mark.parametrize(("oracle", "symptom", "outputs"), FINDINGS)
def test_a_script_for_every_kind_of_finding_is_a_program_of_its_own(
    layernorm: Target, oracle: str, symptom: str, outputs: tuple[str, ...]
) -> None:
    saved = entry(layernorm, oracle, symptom, outputs, Split(0, 1))
    text = script(saved, layernorm, None, "fuzz replay x")
    tree = ast.parse(text)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("fuzz")} == {"fuzz.backends"}
    assert "@target(" not in text and "planted" not in text
    assert "def rows_kernel(" in text and "def columns_of(" in text and "def layernorm_bw(" in text
    assert "fuzz replay x" in (ast.get_docstring(tree) or "")


def test_a_script_alone_tells_the_planted_kernel_from_the_good_one(layernorm: Target, tmp_path: Path) -> None:
    saved = entry(layernorm, "bounds", "stray-write", ("dbias",))
    plain = {key: Argument(value.shape, value.dtype, value.values) for key, value in saved.case.last.arguments.items()}
    saved = replace(saved, case=saved.case.with_call(0, Call({"M": 2, "N": 3}, plain, {"eps": 1e-5})))
    plants = (load_planted(layernorm, "store_past_end")[0], None)
    ended = run_programs(tmp_path, (script(saved, layernorm, planted, "fuzz replay x") for planted in plants))
    assert [one.code for one in ended] == [1, 0]


SOURCE = """import math
import torch
from fuzz import option, size, target, tensor
from other import helper as helped

N = size("N", 1, 8)
A, B = 2, 3
C: int = 4
UNUSED = 9


class Kept:
    pass


def inner(x):
    return helped(x) * A + C


@target(x=tensor(N), reference=lambda x: dict(y=x))
def outer(x):
    return dict(y=inner(x), z=Kept)


def unrelated(x):
    return x
"""


def test_a_script_takes_along_what_its_launcher_uses_and_no_more(tmp_path: Path) -> None:
    sources = SourceCollector()
    sources.add(tmp_path / "m.py", SOURCE)
    sources.require(tmp_path / "m.py", ["outer"])
    pieces = list(sources.pieces())
    body = "\n".join(pieces)
    names = {node.name for node in ast.parse(body).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert names == {"Kept", "inner", "outer"}
    assert "A, B = 2, 3" in body and "C: int = 4" in body and "UNUSED" not in body and "size(" not in body
    assert pieces[:3] == ["import math", "import torch", "from other import helper as helped"]


CHANGED = """import os
from fuzz import size, target, tensor

N = size("N", 1, 8)
os.environ["MODE"] = "1"
SCALE = 2.0
SCALE *= 1.5
KEY = "factor"
TABLE = {}
TABLE[KEY] = 3.0
TABLE["old"] = 1.0
del TABLE["old"]
OPTIONS = [1.0]
OPTIONS = OPTIONS + [3.5]
OPTIONS += [4.5]
CONFIGS = []
CONFIGS.append(5.0)
while len(CONFIGS) < 2:
    CONFIGS.append(6.0)
UNUSED = {}
UNUSED["a"] = 1


def factor():
    return 0


def factor():
    return TABLE["factor"]


factor.calls = 0


@target(x=tensor(N), reference=lambda x: dict(y=x))
def outer(x):
    return dict(y=(SCALE, factor(), factor.calls, sorted(TABLE), OPTIONS, CONFIGS, x))
"""


def test_every_statement_that_changes_what_a_launcher_uses_is_in_the_script(tmp_path: Path) -> None:
    """In the order of the file; without what changes something that it does not use."""
    sources = SourceCollector()
    sources.add(tmp_path / "m.py", CHANGED)
    sources.require(tmp_path / "m.py", ["outer"])
    body = "\n".join(sources.pieces())
    made: dict[str, Any] = {}
    exec(compile(body.replace("import os", "class os: environ = {}"), "m", "exec"), made)
    assert made["outer"](7)["y"] == (3.0, 3.0, 0, ["factor"], [1.0, 3.5, 4.5], [5.0, 6.0], 7)
    assert made["os"].environ == {"MODE": "1"}
    assert "UNUSED" not in body and "size(" not in body


def test_exact_inputs_are_in_the_script(layernorm: Target) -> None:
    saved = entry(layernorm, "accuracy", "value", ("dx",))
    text = script(saved, layernorm, None, "r")
    call = saved.case.last
    for name, value in call.arguments.items():
        words = " ".join(f"{int(word):x}" for word in value.bits(call.dims).reshape(-1))
        assert f'{name}=tensor("{words}", torch.float32' in text
    assert "eps=1e-05" in text and f"{(2, 3)}, {(1, 2)}" in text


def test_the_script_of_a_seed_case_compares_with_the_reference(gelu: Target, case: Case) -> None:
    text = script(Entry(case), gelu, None, "r")
    assert "EXPECTED = {" in text and "for name in EXPECTED.keys()" in text


def test_a_huge_case_is_refused_or_stays_readable(gelu: Target, case: Case) -> None:
    text = script(Entry(case), gelu, None, "r")
    assert len(text) < 20_000 and max(map(len, text.splitlines())) < 400


def test_a_message_cannot_break_out_of_the_scripts_docstring(gelu: Target, case: Case) -> None:
    hostile = Finding("accuracy", ("dx",), "value", 'a """\nimport os  # \\')
    ast.parse(script(Entry(case, hostile), gelu, None, "r"))


HOSTILE_NAMES = [
    'a"""; import os; os.system("touch pwned"); """.yaml',
    "a\\",
    'a"',
    "a\nimport os\n",
    "$(touch pwned)",
    "\x1b[2J",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_the_name_of_an_entrys_file_cannot_break_out_of_the_docstring(gelu: Target, case: Case, name: str) -> None:
    honest = ast.parse(script(Entry(case), gelu, None, replay_command("x.yaml")))
    hostile = ast.parse(script(Entry(case), gelu, None, replay_command(name)))
    assert ast.get_docstring(hostile) != ast.get_docstring(honest)
    assert [ast.dump(node) for node in hostile.body[1:]] == [ast.dump(node) for node in honest.body[1:]]
    assert printable_lines(ast.get_docstring(hostile, clean=False) or "") == ast.get_docstring(hostile, clean=False)


IMPOSSIBLE = [
    ("accuracy", "bits", ("dx",), None, "layernorm_bw has no baseline"),
    ("rejects", "accepted", ("nothing_of_the_kind",), None, "no script can be made: layernorm_bw rejects"),
    ("invariance", "bits", ("dx",), None, "in this case invariance dx bits cannot be"),
    ("invariance", "bits", ("dx",), Split(1, 2), "the split has more rows than the batch"),
    ("scaling", "shift", ("dx",), None, "layernorm_bw promises nothing of a shift"),
    ("autograd", "between", ("dx",), None, "in this case autograd dx between cannot be"),
]


@pytest.mark.parametrize(("oracle", "symptom", "outputs", "split", "reason"), IMPOSSIBLE)
def test_an_entry_of_what_cannot_be_has_no_script_for_a_reason(
    layernorm: Target, oracle: str, symptom: str, outputs: tuple[str, ...], split: Split | None, reason: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        script(entry(layernorm, oracle, symptom, outputs, split), layernorm, None, "x")


def test_a_batch_of_too_many_rows_has_no_script(layernorm: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.oracles.script_check.MAX_ELEMENTS", 100)
    with pytest.raises(UsageError, match="elements, more than 100"):
        script(entry(layernorm, "invariance", "bits", ("dx",), Split(0, 1, 4000, 0)), layernorm, None, "x")


def test_a_backend_that_there_is_not_is_the_default_in_a_script(layernorm: Target) -> None:
    saved = replace(entry(layernorm, "accuracy", "value", ("dx",)), provenance=Provenance(backend="<svg/onload=x>"))
    assert "EXPECTED = " in script(saved, layernorm, None, "x")


def test_an_option_that_is_not_finite_is_an_expression_in_a_script(layernorm: Target) -> None:
    saved = entry(layernorm, "fault", "raised", ("launcher",))
    call = replace(saved.case.last, options={"eps": float("inf")})
    text = script(replace(saved, case=replace(saved.case, calls=(call,))), layernorm, None, "x")
    assert 'options_0 = dict(eps=float("inf"))' in text.replace("'", '"')


IMPORTS = """import torch
import whole
from fuzz import size, target, tensor

N = size("N", 1, 8)

@target(x=tensor(N), reference=lambda x: dict(y=2 * x))
def imports(x):
    from wrong import scale
    return dict(y=scale(x) + whole.ZERO)

def unused(x):
    import other
"""


def test_files_that_functions_import_are_in_the_script(tmp_path: Path) -> None:
    """Those that they import themselves as well."""
    folder, beside = tmp_path / "files", tmp_path / "programs"
    folder.mkdir()
    beside.mkdir()
    texts = {
        "wrong.py": "from factor import FACTOR\n\n\ndef scale(x):\n    return FACTOR * x\n",
        "factor.py": "FACTOR = 20  # '''quoted\\'''\n", "whole.py": "ZERO = 0\n", "other.py": "raise ImportError\n",
        "imports.py": IMPORTS,
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    case = Case("imports", (Call({"N": 1}, {"x": Argument(("N",), "float32", recipe("normal", 1))}),))
    saved = Entry(case, Finding("accuracy", ("y",), "value", "m"), provenance=Provenance(backend="cpu"))
    program = script(saved, load(str(folder / "imports.py")), None, "fuzz replay x")
    assert "raise ImportError" not in program
    assert [one.code for one in run_programs(beside, [program])] == [1]


def test_a_script_without_such_files_has_no_statement_for_them(layernorm: Target) -> None:
    assert "EMBEDDED" not in script(entry(layernorm, "mutation", "written", ("dy",)), layernorm, None, "fuzz replay x")
