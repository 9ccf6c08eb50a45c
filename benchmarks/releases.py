"""Releases of published libraries: which there are, each in a folder of its own, and commands that import one of them.

Nothing is installed into the Python that runs: a release is imported where its folder stands first on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions that are numbers with dots between them."""
    return tuple(map(int, re.findall(r"\d+", version)))


def published_versions(package: str, wheels: Path | None = None) -> list[str]:
    """The versions of a package's wheels in a folder, or in the index that pip uses; the oldest first."""
    if wheels is not None:
        names = (path.name.split("-") for path in wheels.glob("*.whl"))
        found = [version for name, version, *_ in names if name == package.replace("-", "_")]
    else:
        listed = subprocess.run([*PIP, "index", "versions", package], check=True, capture_output=True, text=True)
        found = re.findall(r"Available versions: (.*)", listed.stdout)[0].split(", ")
    return sorted(found, key=version_key)


def install(package: str, version: str, folder: Path, wheels: Path | None = None) -> Path:
    """The folder with a release and nothing that it requires; installed where it is not there yet."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary, "installed")
        if wheels is not None:
            # pip takes a hundred times longer to do the same.
            (wheel,) = wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl")
            zipfile.ZipFile(wheel).extractall(made)
        else:
            command = [*PIP, "install", "--no-deps", "--only-binary=:all:", "--target", str(made)]
            subprocess.run([*command, f"{package}=={version}"], check=True)
        # A folder without one would stand back behind the package that is installed.
        for package_folder in made.iterdir():
            if package_folder.is_dir() and package_folder.suffix != ".dist-info":
                (package_folder / "__init__.py").touch()
        made.rename(folder)
    return folder


def import_path(release: Path) -> dict[str, str]:
    """The environment of a process that imports a release; it sees no GPU, for which libraries would choose it."""
    path = os.pathsep.join([str(release), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


def run_module(
    release: Path, module: str, *arguments: str, timeout: float | None = None, cpus: Sequence[int] = ()
) -> tuple[int, str, str]:
    """Runs a module of this project with a release: (exit code, output, errors).

    Ends the processes that it started where `timeout` seconds pass, with the exit code 124. `cpus` are the processors
    that it may use, all where there are none.
    """
    limit = partial(os.sched_setaffinity, 0, cpus) if cpus else None
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, env=import_path(release), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=limit,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=timeout)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return 124, output, f"{errors}\nit did not end within {timeout:g} s"


def fuzz(release: Path, *arguments: str, **limits: Any) -> Any:
    """The JSON value of a command of fuzz that imports the library from a release's folder."""
    return json_of(run_module(release, "fuzz", *arguments, "--json", **limits))


def json_of(ran: tuple[int, str, str]) -> Any:
    """The JSON value that a process printed; its `error` says why it could not."""
    code, output, errors = ran
    try:
        if code in (0, 1):
            return json.loads(output)
    except json.JSONDecodeError:
        pass
    lines = errors.strip().splitlines() or [f"it ended with {code}"]
    return {"error": lines[-1], "findings": [], "entries": []}
