"""Runs a surface under libFuzzer, which mutates the inputs that cover more of the Python code (the package atheris)."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.self_fuzz.crashes import MAX_SECONDS, Check, Crashes
from benchmarks.self_fuzz.mutation import words

MAX_BYTES = 1 << 14
"""The longest input."""
MEMORY_MB = 2500
"""Resident memory that an input may take the process to."""


def import_surface(name: str) -> Check:
    """A surface whose code, and that of what it calls, counts what it covers."""
    import atheris

    with atheris.instrument_imports(include=["fuzz", "yaml"]):
        from benchmarks.self_fuzz.surfaces import SURFACES
    return SURFACES[name]


def fuzz(check: Check, seeds: Path, corpus: Path, seconds: float, seed: int, crashes: Crashes) -> None:
    """Fuzzes for so many seconds, then ends the process; new inputs go into `corpus`, and inputs that fail are kept.

    libFuzzer itself ends the process where an input takes too long or too much memory, and leaves it among the crashes.
    """
    import atheris

    def run(data: bytes) -> None:
        try:
            check(data)
        except Exception as error:
            crashes.add(data, error)

    crashes.folder.mkdir(parents=True, exist_ok=True)
    dictionary = corpus.parent / f"{corpus.name}.dict"
    dictionary.write_text(quote_words(words([path.read_bytes() for path in sorted(seeds.iterdir())])))
    limits = [f"-timeout={MAX_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={MAX_BYTES}"]
    budget = [f"-max_total_time={max(1, int(seconds))}", f"-seed={seed + 1}", "-print_final_stats=1"]
    paths = [f"-dict={dictionary}", f"-artifact_prefix={crashes.folder}/", str(corpus), str(seeds)]
    # libFuzzer ends the process without a look at what is still to be done.
    atexit.register(lambda: os._exit(int(bool(crashes.inputs))))
    atheris.Setup([sys.argv[0], *limits, *budget, *paths], run)
    atheris.Fuzz()


def quote_words(tokens: Sequence[bytes]) -> str:
    """A dictionary of libFuzzer."""
    quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in tokens)
    return "".join(f'"{token}"\n' for token in quoted if token)
