"""The map of the project: in which direction imports run, who may touch tensors, and how large things may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

ORDER = (
    # data, and what a user declares
    "escaping", "files", "errors", "clock", "cache", "target_code", "model", "target",
    # running a case
    "worker", "backends",
    # what is right, and what is wrong
    "reference", "oracles", "server_preload",
    # from cases to bugs
    "corpus", "search", "shrink", "triage", "run", "report",
    # on top of one run
    "sweep", "drift", "coverage_report", "judge", "campaign", "web",
    # what people and scripts use
    "cli", "api", "pytest_plugin", "__main__",
)  # fmt: skip
"""Every module or package of fuzz/, in the order in which data flows: each imports from those before it only."""

TENSORS = (
    "fuzz.backends", "fuzz.reference", "fuzz.oracles", "fuzz.model.recipes.torch_values",
    "fuzz.sweep.correct_rounding", "fuzz.sweep.count_errors",
    "fuzz.sweep.kernel", "fuzz.sweep.measure", "fuzz.sweep.ulps", "fuzz.drift.measure",
    "fuzz.web.entry_plots.error_plots", "fuzz.web.entry_plots.worker", "fuzz.coverage_report.code_generation",
    "fuzz.coverage_report.observe",
    "fuzz.run.input_file",
    "fuzz.judge.formats.", "fuzz.judge.processes.attributes", "fuzz.judge.processes.describe",
    "fuzz.judge.processes.device", "fuzz.judge.processes.launch_log",
    "fuzz.judge.processes.problem_worker", "fuzz.judge.processes.promotion", "fuzz.judge.processes.sandbox",
    "fuzz.judge.processes.scale_down", "fuzz.judge.processes.script_worker", "fuzz.judge.processes.solution_worker",
    "fuzz.judge.processes.tf32",
    "fuzz.judge.ops.registrations", "fuzz.judge.ops.samples", "fuzz.judge.ops.schemas",
)  # fmt: skip
"""Who may import torch and triton. Everything else runs without them."""

LINES_OF_A_FUNCTION, LINES_OF_A_FILE = 60, 400
MODULES_OF_A_FOLDER, MODULES_AT_THE_ROOT = 15, 10


@cache
def modules() -> dict[str, Path]:
    """Name -> file of every module of fuzz; packages under their own name."""
    found = {}
    for path in sorted((ROOT / "fuzz").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports(name: str, *, types: bool = True) -> tuple[str, ...]:
    """What a module imports by name, at its top or inside functions; relative ones are spelt out.

    Without `types` those under TYPE_CHECKING, which no running program follows, are left out.
    """
    path, found = modules()[name], []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    typed = {id(part) for node in ast.walk(tree(path)) if for_types_only(node) for part in ast.walk(node)}
    for node in ast.walk(tree(path)):
        if id(node) in typed and not types:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
            found += [one if one in modules() else source for one in names]
    return tuple(found)


def part(name: str) -> str:
    """The module or package of fuzz/ that a module belongs to; empty for fuzz itself."""
    return name.split(".")[1] if "." in name else ""


def sources() -> list[Path]:
    return [*sorted((ROOT / "fuzz").rglob("*.py")), *sorted((ROOT / "targets").rglob("*.py"))]


def test_the_map_names_every_part_of_the_package_once() -> None:
    assert sorted(ORDER) == sorted({part(name) for name in modules()} - {""})


def test_imports_run_in_the_order_of_the_map() -> None:
    against = [
        f"{name} imports {imported}"
        for name in sorted(modules().keys() - {"fuzz"})  # The public names, gathered.
        for imported in imports(name)
        if imported.split(".")[0] == "fuzz" and part(imported) not in ("", part(name))
        if ORDER.index(part(imported)) >= ORDER.index(part(name))
    ]
    assert against == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        name: {other for other in imports(name, types=False) if other in modules() and other != name}
        for name in modules()
    }
    for name in modules():
        # A package gathers the names of its files; what its files import from each other is what is in question.
        graph[name] = {other for other in graph[name] if not name.startswith(f"{other}.")}
    TopologicalSorter(graph).prepare()


def test_only_some_modules_touch_tensors() -> None:
    others = [name for name in sorted(modules()) if not name.startswith(TENSORS)]
    touching = [name for name in others if {one.split(".")[0] for one in imports(name)} & {"torch", "triton"}]
    assert others and touching == []


def test_targets_use_the_public_api_only() -> None:
    for path in (ROOT / "targets").glob("*.py"):
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith("fuzz.")], path.name


def test_files_stay_small() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {path: count for path, count in lines.items() if count > LINES_OF_A_FILE} == {}


def test_functions_stay_small() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= LINES_OF_A_FUNCTION
    ]
    assert long == []


def test_folders_stay_small() -> None:
    counts = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert counts.pop(ROOT / "fuzz") <= MODULES_AT_THE_ROOT
    assert {path: count for path, count in counts.items() if count > MODULES_OF_A_FOLDER} == {}


def test_the_document_of_the_map_names_every_folder() -> None:
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(ROOT / "fuzz").as_posix() for path in modules().values()} - {"."}
    assert [folder for folder in sorted(folders) if f"`{folder}`" not in document] == []


def test_a_class_has_a_name_of_its_own() -> None:
    """The public `fuzz.Target` alone has that of its base: what a user's file calls and what is known of it are one."""
    classes = (node for path in modules().values() for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))
    names = Counter(node.name for node in classes)
    assert {name for name, count in names.items() if count > 1} == {"Target"}


def test_every_module_says_what_it_is() -> None:
    assert [str(path) for path in sources() if not ast.get_docstring(tree(path))] == []


def test_the_core_runs_where_torch_and_triton_are_missing() -> None:
    program = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None
import fuzz, fuzz.cli.app, fuzz.triage.triage, fuzz.shrink.passes, fuzz.search.strategies, fuzz.search.engines
from fuzz.corpus import codec
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.recipes import recipe
entry = Entry(Case("t", (Call({"N": 3}, {"x": Argument(("N",), "bfloat16", recipe("normal", 1))}),)))
assert codec.loads(codec.dumps(entry).encode()) == entry
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_of_tests_have_names_of_their_own() -> None:
    """Their folders are no packages, so that pytest takes each file for a module of its bare name."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
