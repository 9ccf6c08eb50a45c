"""What is installed from a wheel, what may be imported, and what `make` says where something is missing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fuzz

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = {"pytest", "ziglang", "mypy", "matplotlib", "atheris", "ray"}
"""Imported, if at all, inside a function or by the pytest plugin alone."""
SERVICE = {
    "campaign": {"sqlalchemy", "alembic", "pydantic"},
    "web": {"anyio", "fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"},
    "cli": {"sqlalchemy", "alembic", "pydantic", "fastapi", "prometheus_client", "uvicorn"},
}
"""Packages of the extra `service`, by the part of fuzz/ that may import them."""
PAGES = ROOT / "fuzz" / "web" / "pages"
MODULES = {"yaml": "pyyaml", "flint": "python-flint"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the checkout, so that building leaves nothing in it."""
    copy = tmp_path_factory.mktemp("copy")
    for part in ("fuzz", "targets", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", str(ROOT / part), str(copy)], check=True)
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(copy))
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    # Python compiles the few modules that the tests import.
    pip("install", "--no-deps", "--no-index", "--no-compile", "--target", str(folder), str(wheel))
    return folder


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def command(folder: Path, *arguments: str) -> str:
    """Standard output of the installed package's command, from a folder that has nothing of the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    run = [sys.executable, "-m", "fuzz", *arguments]
    done = subprocess.run(run, cwd=folder.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_module_the_prelude_and_the_targets(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "fuzz").rglob("*.py")}
    targets = {f"fuzz/targets/{path.name}" for path in (ROOT / "targets").glob("*.py")}
    pages = {str(path.relative_to(ROOT)) for name in ("templates", "static") for path in PAGES.joinpath(name).iterdir()}
    texts = {"fuzz/backends/cpu/codegen/prelude.c", "fuzz/report/reproducer/program.py.jinja"}
    assert modules | targets | pages | texts <= inside
    program = zipfile.ZipFile(wheel).getinfo("fuzz/backends/triton_host/pretence/programs/nvidia-smi")
    assert program.external_attr >> 16 & 0o111
    assert {name.split("/")[0] for name in inside} == {"fuzz", wheel.name.split("-py3")[0] + ".dist-info"}


def test_an_installed_wheel_lists_its_targets_and_its_version(installed: Path) -> None:
    listed = command(installed, "list")
    assert "layernorm_bw: " in listed and "gelu_bw: " in listed
    assert command(installed, "--version") == f"fuzz {PROJECT['version']}\n"
    where = "from fuzz.target.loader import BUILT_IN; print(BUILT_IN)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.check_output([sys.executable, "-c", where], cwd=installed, env=environment, text=True)
    assert found.strip() == str(installed / "fuzz" / "targets")


def test_the_version_is_told_once() -> None:
    assert fuzz.__version__ == PROJECT["version"]


def test_only_declared_packages_are_imported_at_the_top_of_modules() -> None:
    """So that a machine with nothing but the declared dependencies can start."""
    declared = {text.split(">")[0].split("=")[0] for text in PROJECT["dependencies"]}
    used = {
        (MODULES.get(name, name), path.name)
        for path in (ROOT / "fuzz").rglob("*.py")
        for name in imported(ast.parse(path.read_text()).body) - service(path)
        if name not in sys.stdlib_module_names and name != "fuzz"
    }
    assert {(name, file) for name, file in used if name not in declared} <= {("pytest", "pytest_plugin.py")}


def test_every_package_imported_anywhere_is_declared_or_optional() -> None:
    declared = {text.split(">")[0].split("=")[0] for text in PROJECT["dependencies"]}
    for path in (ROOT / "fuzz").rglob("*.py"):
        names = {MODULES.get(name, name) for name in imported(list(ast.walk(ast.parse(path.read_text()))))}
        assert names - set(sys.stdlib_module_names) - {"fuzz"} <= declared | OPTIONAL | service(path), path


def test_running_one_target_needs_nothing_of_the_service() -> None:
    modules = "fuzz, fuzz.cli.app, fuzz.run.fuzzer, fuzz.oracles.examine, fuzz.oracles.execution.preload"
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).split()
    assert not {"sqlalchemy", "alembic", "pydantic", "psycopg", "fastapi", "starlette", "uvicorn", "jinja2"} & {*loaded}


def service(path: Path) -> set[str]:
    """What a file may import of the extra `service`."""
    return SERVICE.get(path.relative_to(ROOT / "fuzz").parts[0], set())


def imported(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """The top-level packages that these statements import, relative imports aside."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_constraints_pin_every_dependency_without_a_local_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    names = {name.lower().replace("_", "-") for name in pins}
    wanted = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    assert {text.split(">")[0].split("=")[0].lower() for text in wanted} <= names
    assert pins["torch"] == "2.13.0" and pins["triton"] == "3.7.1"
    assert not [version for version in pins.values() if "+" in version]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`make` as it is typed by a person: nothing of a surrounding make reaches it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_make_fuzz_without_a_target_says_so_in_one_line() -> None:
    done = make("fuzz")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "name a target, such as make fuzz TARGET=layernorm_bw" in done.stderr


def test_make_names_the_package_where_venv_is_missing(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = make("list", f"VENV={tmp_path / 'venv'}", f"PYTHON={python}")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"apt-get install python{version}-venv" in done.stderr
    assert not (tmp_path / "venv").exists()
