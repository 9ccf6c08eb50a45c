"""Reads the inputs that a person wants examined from a file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import corpus
from fuzz.errors import UsageError, one_line
from fuzz.model.case import Case
from fuzz.target.inputs import given_case
from fuzz.target.loader import check_fits
from fuzz.target.spec import Target

LARGEST_INPUT = 1 << 30
"""Bytes of the largest file that is read, and of the largest that a compressed one may hold."""
KINDS = ".pt, .pth, .npz, .json or .yaml"


def read_input(path: Path, target: Target) -> Case:
    """The case of a file: of tensors by name (``torch.save``, ``numpy.savez``), of JSON, or of a corpus entry.

    A list of such dicts is several calls. No code of the file is executed. Raises UsageError where it cannot be read,
    TargetError where it does not fit the target's declaration.
    """
    if not path.is_file():
        raise UsageError(f"--input {path}: there is no such file")
    if path.stat().st_size > LARGEST_INPUT:
        raise UsageError(f"--input {path}: has more than {LARGEST_INPUT} bytes")
    if path.suffix == ".yaml":
        case = corpus.read(path).case
        if case.target != target.name:
            raise UsageError(f"--input {path}: is an entry of target {case.target!r}, not of {target.name!r}")
        check_fits(case, target, path)
        return case
    try:
        value = _read(path)
    except UsageError:
        raise
    except Exception as error:  # Readers of foreign formats raise anything.
        raise UsageError(f"--input {path}: cannot be read: {one_line(error)}") from None
    calls = value if isinstance(value, list | tuple) else [value]
    if not calls or not all(isinstance(call, Mapping) for call in calls):
        raise UsageError(f"--input {path}: holds no inputs by name, nor a list of such calls")
    return given_case(target, calls)


def _read(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST_INPUT:
                raise UsageError(f"--input {path}: holds more than {LARGEST_INPUT} bytes")
    if path.suffix in (".pt", ".pth"):
        import torch

        return torch.load(path, map_location="cpu", weights_only=True)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name].item() if arrays[name].ndim == 0 else arrays[name] for name in arrays.files}
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    raise UsageError(f"--input {path}: its name must end in {KINDS}")
