"""The tests of the cpu backend under every Triton that it is for.

    python benchmarks/versions.py [VERSION...]

Makes an environment with the pinned packages and that Triton in `build/versions/VERSION`, once; runs
`tests/backends/cpu` in it; prints a line for each version. The exit status is 1 where a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "versions"
VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")


def environment(version: str) -> Path:
    """The Python of the environment, made where it is missing or not finished."""
    folder = FOLDER / version
    python, finished = folder / "bin" / "python", folder / ".installed"
    if finished.exists():
        return python
    print(f"{version}: installing into {folder.relative_to(ROOT)}", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(line for line in pinned if not line.startswith("triton==")), encoding="utf-8")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "-c", str(constraints)]
    subprocess.run([*pip, "setuptools"], check=True)
    # In two steps: a CUDA build of torch pins its own Triton.
    subprocess.run([*pip, "--no-build-isolation", "-e", f"{ROOT}[dev]"], check=True)
    subprocess.run([*pip, f"triton=={version}"], check=True)
    finished.touch()
    return python


def tested(version: str) -> bool:
    python = environment(version)
    surroundings = os.environ | {"TRITON_CACHE_DIR": str(FOLDER / version / "cache")}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/backends/cpu"]
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or [done.stderr[-500:]]
    print(f"{version}: {lines[-1]}", flush=True)
    if done.returncode:
        print(done.stdout[-5000:])
    return done.returncode == 0


def main() -> None:
    passed = [tested(version) for version in sys.argv[1:] or VERSIONS]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
