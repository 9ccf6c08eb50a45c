"""Launchers that print, and that delete, replace or lock files of the run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.attacks.launchers.declare import LINE, NONE, hostile

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b1A\u202e"


def temporary_folder() -> Path:
    """The attack's own folder of temporary files; never that of the machine, which Python falls back to."""
    return Path(os.environ["TMPDIR"])


@hostile(NONE)
def prints_escape_sequences(x):
    """Prints escape sequences by Python, by the system, and by another program."""
    print(ESCAPES)
    os.write(1, ESCAPES.encode())
    os.write(2, ESCAPES.encode() + b"\xff\xfe\x00")
    subprocess.run(["printf", r"\033[2J\007"], check=True)


@hostile(NONE)
def prints_half_a_character(x):
    """Prints an escape sequence byte by byte, with a pause in it, and half a character at the end."""
    for byte in b"\x1b[2J\xc2":
        os.write(2, bytes([byte]))
        time.sleep(0.02)


@hostile(NONE)
def prints_very_much(x):
    """Prints 16 MiB without an end of line, to each stream."""
    os.write(1, b"p" * (16 << 20))
    os.write(2, b"q" * (16 << 20))


@hostile(NONE)
def prints_as_the_run_does(x):
    """Prints lines that look like those of the run, and a JSON value."""
    print("fuzz: nothing was found", flush=True)
    print('{"version": 1, "findings": []}', flush=True)


@hostile(NONE)
def closes_the_standard_streams(x):
    """Closes the standard streams, of Python and of the system."""
    sys.stdin = sys.stdout = sys.stderr = None
    os.closerange(0, 3)


@hostile(NONE)
def replaces_the_standard_streams(x):
    """Puts objects without methods in the place of the standard streams."""
    sys.stdin = sys.stdout = sys.stderr = object()


@hostile(NONE, LINE, "died")
def deletes_temporary_files(x):
    """Deletes everything in the folder of temporary files."""
    for path in temporary_folder().iterdir():
        shutil.rmtree(path, ignore_errors=True)


@hostile(NONE, LINE, "died")
def replaces_the_temporary_folder(x):
    """Puts a file in the place of the folder of temporary files."""
    folder = temporary_folder()
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.write_text("no folder")


@hostile(NONE)
def deletes_the_cache(x):
    """Deletes the folder of what is kept between runs, and puts a file in its place."""
    folder = Path(os.environ["FUZZ_CACHE"])
    if folder.is_dir():
        shutil.rmtree(folder)
        folder.write_text("no folder")


@hostile("value")
def deletes_its_entries(x):
    """Returns a wrong result, and deletes the folder of findings."""
    shutil.rmtree("found", ignore_errors=True)
    return dict(y=x * 2 + 7)


@hostile("value", LINE)
def replaces_its_entries(x):
    """Returns a wrong result, and puts a file in the place of the folder of findings."""
    if os.path.isdir("found"):
        shutil.rmtree("found")
    Path("found").write_text("no folder")
    return dict(y=x * 2 + 7)


@hostile("value", LINE)
def locks_its_entries(x):
    """Returns a wrong result, and leaves a process that holds every lock in the folder of findings for 20 s."""
    if os.fork() == 0:
        os.setsid()
        until, held = time.monotonic() + 20.0, {}
        while time.monotonic() < until:
            for path in [Path("found"), *Path("found").rglob("*")]:
                if path not in held and path.exists():
                    held[path] = os.open(path, os.O_RDONLY)
                    fcntl.flock(held[path], fcntl.LOCK_EX)
            time.sleep(0.01)
        os._exit(0)
    return dict(y=x * 2 + 7)


@hostile(NONE)
def leaves_a_million_names(x):
    """Makes thousands of files beside what the run writes."""
    for number in range(3000):
        Path(f"litter-{number}").touch()


@hostile(NONE, LINE, "died")
def changes_its_own_file(x):
    """Puts a syntax error into its own file, of which the attack made a copy."""
    with open("target.py", "a", encoding="utf-8") as file:
        file.write("\n)(\n")


@hostile(NONE, LINE, "died")
def deletes_its_own_file(x):
    """Deletes its own file, of which the attack made a copy."""
    Path("target.py").unlink(missing_ok=True)
