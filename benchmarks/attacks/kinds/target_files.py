"""Targets' files that misbehave when they are loaded, or whose declaration cannot be, each by `fuzz run`."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from benchmarks.attacks.attack import ONE_LINE, Kind
from benchmarks.attacks.trial import FUZZ, Trial, end_group, require

KIND = Kind("targets' files")
TARGET = '''"""Doubles."""
import torch
from fuzz import option, size, target, tensor

N = size("N", 1, 64)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def double(x):
    return dict(y=x * 2)
'''
BROKEN = TARGET.replace("dict(y=x * 2)\n", "dict(y=x * 2 + 1)\n")
"""The same, of which every case is wrong."""
RUN = ("--cases", 5, "--seconds", 300, "--backend", "cpu", "--corpus", "found")
ESCAPES = r"\x1b]0;owned\x07\x1b[2J"
GIB = 1 << 30
REFUSED = {
    "ends_its_process": ("os._exit(0)", "Ends its process, as if all was well."),
    "exits": ("raise SystemExit(0)", "Ends its program."),
    "kills_its_process": ("os.kill(os.getpid(), 9)", "Kills its process."),
    "crashes": ("import ctypes; ctypes.string_at(0)", "Reads the address 0."),
    "is_interrupted": ("raise KeyboardInterrupt", "Raises what Ctrl-C raises."),
    "raises_escape_sequences": (
        f'raise RuntimeError("{ESCAPES}" * 100_000)',
        "Raises a long text of escape sequences.",
    ),
    "raises_what_has_no_text": (
        "class E(Exception):\n    def __str__(self): raise E\n    __repr__ = __reduce__ = __str__\nraise E",
        "Raises an exception whose text raises.",
    ),
    "recurses": ("def f(): f()\nf()", "Calls itself without an end."),
    "recurses_without_a_limit": (
        "import sys; sys.setrecursionlimit(1 << 30)\na = []; b = [a]; a.append(b); a == b",
        "Compares lists that hold themselves, without a limit of recursion.",
    ),
    "imports_itself": ("import x", "Imports itself while it is loaded."),
    "imports_nothing_there": ("import there_is_no_such_module", "Imports a module that is missing."),
    "has_a_syntax_error": ("def (", "Holds a syntax error."),
    "has_nul": ("x = '\0'", "Holds NUL."),
    "has_deep_brackets": ("x = " + "(" * 5000 + ")" * 5000, "Holds 5,000 brackets inside each other."),
    "forgets_the_target": ("double = None", "Takes back its only target."),
}
"""Name -> (what stands behind a good target, what it does)."""
DECLARATIONS = {
    "size_of_2_to_62": ('"N", 1, 64', '"N", 1, 1 << 62', "Declares a size of up to 2^62."),
    "size_below_zero": ('"N", 1, 64', '"N", -5, -1', "Declares negative sizes."),
    "size_of_text": ('"N", 1, 64', '"N", "1", None', "Declares sizes that are no numbers."),
    "unknown_dtype": ('"float32"', f'"{ESCAPES}"', "Declares a dtype of escape sequences."),
    "no_dtypes": ('("float32",)', "()", "Declares no dtypes."),
    "hostile_name": ("reference=", f'name="../../{ESCAPES}", reference=', "Names itself by a path."),
    "missing_parameter": ("def double(x)", "def double(x, z)", "Has a parameter that is not declared."),
    "no_reference": ("lambda x: dict(y=x * 2)", "7", "Declares a number for its reference."),
    "reference_of_other_names": ("lambda x: dict(y=x * 2)", "lambda x: dict(z=x)", "Has a reference of other outputs."),
    "reference_of_another_shape": (
        "lambda x: dict(y=x * 2)", "lambda x: dict(y=x.sum())", "Has a reference of another shape."
    ),
    "reference_that_leaves": ("lambda x: dict(y=x * 2)", "lambda x: exit(0)", "Its reference ends the program."),
    "reference_that_raises": (
        "lambda x: dict(y=x * 2)", f'lambda x: 1 / 0 or "{ESCAPES}"', "Its reference raises."
    ),
    "timeout_of_nothing": ("reference=", 'timeout=float("nan"), reference=', "Declares a timeout that is no number."),
    "constants_of_text": ("reference=", f'constants=("{ESCAPES}",), reference=', "Declares texts for constants."),
    "seeds_that_lie": ("reference=", 'seeds={"a": dict(N=1 << 40)}, reference=', "Declares a case of 2^40 elements."),
    "timeout_of_text": ("reference=", 'timeout="x", reference=', "Declares a text for a timeout."),
    "imports_of_code": ("reference=", 'imports=("os; touch pwned",), reference=', "Declares code for a module."),
}  # fmt: skip
"""Name -> (text of a good target, what stands in its place, what it does)."""
HOLDS_REFUSED = f"{ONE_LINE}, within the time of a command"


ORDINARY = {"imports_itself", "size_of_2_to_62", "imports_of_code"}
"""What is no mistake, and runs."""


def run_file(trial: Trial, text: str, name: str) -> None:
    trial.write("x.py", text)
    limit = ("prlimit", f"--as={16 * GIB}")
    if name in ORDINARY:
        answer = trial.fuzz("run", "x.py", *RUN, via=limit)
        require(answer.code == 0, f"exit code {answer.code}: {answer.err[-300:]!a}")
    else:
        trial.refused("run", "x.py", *RUN, via=limit)


def add_files() -> None:
    for name, (statement, what) in REFUSED.items():
        add(f"file_{name}", name, what, f"import os\n{TARGET}\n\n{statement}\n")
    for name, (old, new, what) in DECLARATIONS.items():
        add(f"declares_{name}", name, what, TARGET.replace(old, new))


def add(title: str, name: str, what: str, text: str) -> None:
    holds = "an ordinary run" if name in ORDINARY else HOLDS_REFUSED
    KIND.add(title, what, holds, partial(run_file, text=text, name=name))


add_files()


@KIND.attack(f"{ONE_LINE} for each")
def target_that_is_no_file(trial: Trial) -> None:
    """Names a folder without targets, a pipe, a link to itself, /dev/zero, a file of NUL, and an empty one."""
    (trial.work / "folder.py").mkdir()
    os.mkfifo(trial.work / "pipe.py")
    (trial.work / "loop.py").symlink_to("loop.py")
    (trial.work / "zero.py").symlink_to("/dev/zero")
    trial.write("nul.py", bytes(4096))
    trial.write("empty.py", "")
    for name in ("folder.py", "pipe.py", "loop.py", "zero.py", "nul.py", "empty.py"):
        trial.refused("run", name, *RUN)


@KIND.attack(f"{ONE_LINE} for each, or an ordinary run")
def target_of_other_encodings(trial: Trial) -> None:
    """Loads files in UTF-16, in Latin-1 without saying so, with a made-up encoding, and with a byte order mark."""
    trial.write("wide.py", TARGET.encode("utf-16"))
    trial.write("latin.py", TARGET.replace("Doubles", "caf\xe9").encode("latin-1"))
    trial.write("made_up.py", f"# coding: made-up\n{TARGET}")
    trial.write("mark.py", TARGET.encode("utf-8-sig"))
    for name in ("wide.py", "latin.py"):
        trial.refused("run", name, *RUN)
    for name in ("made_up.py", "mark.py"):
        answer = trial.fuzz("run", name, *RUN)
        require(answer.code == 0, f"{name}: exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("the command ends by the signal within 30 s, and leaves no process")
def target_without_an_end_is_interrupted(trial: Trial) -> None:
    """Loads a file that never comes to an end and ignores Ctrl-C, and ends the command by SIGTERM."""
    begins = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.system('sleep 600 &')\n"
    trial.write("x.py", f"{begins}open('there', 'w')\nwhile True: time.sleep(1)\n")
    process = trial.start(FUZZ, "run", "x.py", *RUN, stdout=-3, stderr=-3)
    until = time.monotonic() + 90
    while not (trial.work / "there").exists() and time.monotonic() < until:
        time.sleep(0.1)
    require((trial.work / "there").exists(), "the file was not loaded")
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    finally:
        if process.poll() is None:
            end_group(process)


@KIND.attack(f"{ONE_LINE}")
def target_that_fills_memory(trial: Trial) -> None:
    """Loads a file that takes all memory, of 3 GiB that the command may have."""
    trial.write("x.py", f"{TARGET}\nheld = []\nwhile True: held.append(bytearray(1 << 24))\n")
    trial.refused("run", "x.py", *RUN, via=("prlimit", f"--as={3 * GIB}"))


@KIND.attack("an ordinary run of five cases, and no process is left")
def target_that_leaves_much_behind(trial: Trial) -> None:
    """Loads a file that starts a program and a thread, forks, and leaves a function for the end that never returns."""
    text = (
        "import atexit, os, subprocess, threading, time\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "atexit.register(time.sleep, 600)\n"
        "if os.fork() == 0: time.sleep(600)\n"
    )
    trial.write("x.py", text + TARGET)
    answer = trial.fuzz("run", "x.py", *RUN)
    require(answer.code == 0, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("an ordinary run, whose output holds nothing that a terminal obeys")
def target_that_prints(trial: Trial) -> None:
    """Loads a file that prints escape sequences by Python and by another program."""
    trial.write("x.py", f'import os\nprint("{ESCAPES}")\nos.system(r"printf \'\\033[2J\'")\n{TARGET}')
    answer = trial.fuzz("run", "x.py", *RUN)
    require(answer.code == 0, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack(f"an ordinary run or {ONE_LINE}")
def target_that_changes_this_program(trial: Trial) -> None:
    """Loads a file that replaces functions of this program and of Python, the arguments and the working folder."""
    text = (
        "import builtins, os, sys, fuzz.cli, fuzz.errors\n"
        "sys.argv[:] = []\nfuzz.cli.exit_code = fuzz.errors.describe_lack = None\n"
        "sys.stdout = sys.stderr = None\nos.chdir('/')\nos.umask(0o777)\n"
    )
    trial.write("x.py", TARGET + text)
    answer = trial.fuzz("run", "x.py", *RUN)
    require(answer.code == 0 or len(answer.complaints) == 1, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("nothing of the working folder is executed")
def working_folder_that_shadows_modules(trial: Trial) -> None:
    """Runs a built-in target in a folder with files named like modules that this program imports."""
    for name in ("typer", "rich", "yaml", "json", "torch", "triton", "numpy", "sitecustomize", "readline", "fuzz"):
        trial.write(f"{name}.py", "open('pwned', 'w')\n")
    for arguments in (("list",), ("run", "gelu_bw", *RUN)):
        answer = trial.fuzz(*arguments)
        require(answer.code == 0, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack(f"{ONE_LINE} for each")
def target_with_a_hostile_name(trial: Trial) -> None:
    """Names targets by escape sequences, line ends, 5,000 letters, a path upwards, an option, and none."""
    names = (
        "\x1b[2J",
        "a\nfuzz: b",
        "x" * 5000,
        "../../x.py",
        "",
        "x.py:" + "y" * 5000,
        "x.py:__import__",
        "*",
        "%s{0}",
    )
    trial.write("x.py", TARGET)
    for name in names:
        trial.refused("run", name, *RUN)


@KIND.attack(f"a screen of the skeleton, or {ONE_LINE}, for each; nothing is executed that its texts hold")
def new_of_hostile_signatures(trial: Trial) -> None:
    """Asks `fuzz new` for launchers whose names, defaults and annotations are hostile."""
    default = "a=type('E', (), {'__repr__': lambda self: '\"\"\"; import os; os.system(\"touch pwned\")'})()"
    trial.write(
        "x.py",
        f"def f(x, {default}, *args: '\x1b'.__class__, **more): pass\n"
        f"def é(x): pass\nf.__name__ = '{ESCAPES}'\ng = 7\n",
    )
    for name in ("f", "é", "g", "missing", ""):
        answer = trial.fuzz("new", f"x.py:{name}")
        require(
            answer.code == 0 or len(answer.complaints) == 1, f"{name}: exit code {answer.code}: {answer.err[-300:]!a}"
        )
