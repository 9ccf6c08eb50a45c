"""Keeps what `fuzz list` says, so that it need not import torch, Triton and the file of every target again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fuzz
from fuzz.cache import cache_folder
from fuzz.files import read_file, write_file
from fuzz.run.environment import installed_version
from fuzz.target.loader import BUILT_IN

Listing = dict[str, Any]
LARGEST_INDEX = 1 << 22
"""Bytes of an index."""
DISTRIBUTIONS = ("torch", "triton", "numpy", "conch-triton-kernels", "liger-kernel", "fla-core", "einops")
"""Packages that targets import, or that decide which backends there are."""
VARIABLES = ("PATH", "CC", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "VIRTUAL_ENV")


def index_path() -> Path:
    """The index of this installation."""
    return cache_folder() / f"targets-{hashlib.sha256(str(BUILT_IN.resolve()).encode()).hexdigest()[:16]}.json"


def fingerprint() -> str:
    """What a listing depends on: the files of this package and of the targets, packages, GPUs and variables."""
    parts = [*map(installed_version, DISTRIBUTIONS), *(os.environ.get(name, "") for name in VARIABLES)]
    parts += sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    parts += (f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in source_files())
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def source_files() -> Iterator[tuple[Path, os.stat_result]]:
    for folder in (Path(fuzz.__file__).parent, BUILT_IN):
        for path in sorted(folder.rglob("*.py")):
            with suppress(OSError):
                yield path, path.stat()


def read_listing() -> Listing | None:
    """What was kept, if it still holds."""
    try:
        kept = json.loads(read_file(index_path(), LARGEST_INDEX))
        return dict(kept["listing"]) if kept["fingerprint"] == fingerprint() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_listing(listing: Listing) -> None:
    """Keeps a listing where the folder can be written."""
    with suppress(OSError):
        index_path().parent.mkdir(parents=True, exist_ok=True)
        write_file(index_path(), json.dumps({"fingerprint": fingerprint(), "listing": listing}))
