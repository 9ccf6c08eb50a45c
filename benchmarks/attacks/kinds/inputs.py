"""Hostile files of a given input, by `fuzz run --input`."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch

from benchmarks.attacks.attack import ONE_LINE, Kind
from benchmarks.attacks.kinds.target_files import TARGET
from benchmarks.attacks.trial import Trial, require

KIND = Kind("given inputs")
GIB = 1 << 30


class Opens:
    """Its pickle makes a file where it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch pwned",)


def torch_file(value: object, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def numpy_file(**arrays: Any) -> bytes:
    file = io.BytesIO()
    numpy.savez(file, **arrays)
    return file.getvalue()


def zip_file(member: str, head: bytes, zeros: int) -> bytes:
    """An archive whose member is a head and so many zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(member, "w", force_zip64=True) as stream:
            stream.write(head)
            for _ in range(zeros >> 22):
                stream.write(bytes(1 << 22))
    return file.getvalue()


def array_head(count: int) -> bytes:
    file = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
    return file.getvalue()


ONE = torch.ones(4)
FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "pickle_of_a_command": ("pt", lambda: torch_file(dict(x=Opens())), "a pickle that executes a command"),
    "bare_pickle": ("pt", lambda: pickle.dumps(dict(x=Opens())), "a bare pickle that executes a command"),
    "old_format": (
        "pt",
        lambda: torch_file(dict(x=Opens()), _use_new_zipfile_serialization=False),
        "the same in torch's old format",
    ),
    "objects": ("npz", lambda: numpy_file(x=numpy.array([Opens()], dtype=object)), "an array with a command"),
    "zip_bomb": ("npz", lambda: zip_file("x.npy", array_head(1 << 29), 1 << 31), "a member that unpacks to 2 GiB"),
    "shape_that_lies": ("npz", lambda: zip_file("x.npy", array_head(1 << 50), 0), "2^50 elements and no data"),
    "truncated": ("pt", lambda: torch_file(dict(x=ONE))[:-40], "an archive without its end"),
    "empty": ("pt", bytes, "nothing"),
    "garbage": ("npz", lambda: bytes(range(256)) * 100, "every byte"),
    "not_a_dict": ("pt", lambda: torch_file(ONE), "a tensor instead of a dict"),
    "no_calls": ("pt", lambda: torch_file([]), "no calls"),
    "many_calls": ("pt", lambda: torch_file([dict(x=ONE)] * 500), "500 calls"),
    "other_names": ("pt", lambda: torch_file({"\x1b[2J": ONE}), "a tensor that is named by escape sequences"),
    "numbers_for_names": ("pt", lambda: torch_file({0: ONE}), "a tensor that is named by a number"),
    "wrong_rank": ("pt", lambda: torch_file(dict(x=torch.ones(2, 2))), "a tensor of another rank"),
    "nothing_in_it": ("pt", lambda: torch_file(dict(x=torch.ones(0))), "a tensor without elements"),
    "wrong_dtype": ("pt", lambda: torch_file(dict(x=ONE.to(torch.complex64))), "complex numbers"),
    "sparse": ("pt", lambda: torch_file(dict(x=ONE.to_sparse())), "a sparse tensor"),
    "meta": ("pt", lambda: torch_file(dict(x=ONE.to("meta"))), "a tensor without memory"),
    "huge_view": ("pt", lambda: torch_file(dict(x=torch.ones(1).expand(1 << 40))), "2^40 elements in one place"),
    "text": ("pt", lambda: torch_file(dict(x="\x1b[2J" * 1000)), "a text for a tensor"),
    "brackets": ("json", lambda: b'{"x": ' + b"[" * 200_000, "200,000 brackets"),
    "large_numbers": ("json", lambda: b'{"x": [1e999, -1e999, ' + b"9" * 5000 + b"]}", "numbers beyond every dtype"),
    "names_twice": ("json", lambda: b'{"x": [1.0], "x": "y"}', "one name twice"),
    "not_json": ("json", lambda: b'{"x": [NaN, Infinity]} \xff\x00', "bytes that are no text"),
    "huge_layout": (
        "json",
        lambda: json.dumps(dict(x=dict(values=[1, 2], layout=dict(reach=60, step=1 << 62)))).encode(),
        "huge strides",
    ),
    "alias": ("yaml", lambda: b"calls: &a [*a]\n", "an alias of itself"),
    "tag": ("yaml", lambda: b"!!python/object/apply:os.system ['touch pwned']\n", "a tag of Python"),
}  # fmt: skip
"""Name -> (ending of the file, what makes it, what it holds)."""
ORDINARY = {"huge_view", "many_calls", "nothing_in_it", "meta", "large_numbers", "wrong_dtype"}
"""Inputs that may be examined, or refused."""


def examine(trial: Trial, name: str) -> None:
    ending, make, _ = FILES[name]
    trial.write("x.py", TARGET)
    trial.write(f"input.{ending}", make())
    arguments = ("run", "x.py", "--input", f"input.{ending}", "--backend", "cpu", "--corpus", "found")
    limit = dict(via=("prlimit", f"--as={16 * GIB}"))
    if name in ORDINARY:
        answer = trial.fuzz(*arguments, **limit)
        require(answer.code in (0, 1) or len(answer.complaints) == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")
    else:
        trial.refused(*arguments, **limit)


for _name, (_ending, _, _what) in FILES.items():
    _holds = f"it is examined, or {ONE_LINE}" if _name in ORDINARY else f"{ONE_LINE}, and nothing is executed"
    KIND.add(f"input_{_name}", f"Gives a .{_ending} file with {_what}.", _holds, partial(examine, name=_name))


@KIND.attack(f"{ONE_LINE} for each, within seconds")
def input_that_is_no_file(trial: Trial) -> None:
    """Gives a pipe, /dev/zero, a folder, a loop, a missing file, 2 GiB of nothing, and another ending."""
    trial.write("x.py", TARGET)
    os.mkfifo(trial.work / "pipe.pt")
    (trial.work / "zero.json").symlink_to("/dev/zero")
    (trial.work / "folder.npz").mkdir()
    (trial.work / "loop.yaml").symlink_to("loop.yaml")
    trial.write("sparse.pt", b"")
    os.truncate(trial.work / "sparse.pt", 2 * GIB)
    trial.write("x.exe", b"")
    for name in ("pipe.pt", "zero.json", "folder.npz", "loop.yaml", "missing.pt", "sparse.pt", "x.exe"):
        trial.refused("run", "x.py", "--input", name, "--backend", "cpu", "--corpus", "found")
