"""Environments in which a command cannot have what it usually has."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

from benchmarks.attacks.attack import ONE_LINE, Kind, NotPossibleError
from benchmarks.attacks.kinds.target_files import BROKEN, RUN, TARGET
from benchmarks.attacks.trial import FUZZ, Answer, Trial, check_answer, end_group, require

KIND = Kind("environments")
MIB = 1 << 20
VARIABLES: dict[str, tuple[dict[str, str], str]] = {
    "no_home": ({"HOME": ""}, "without a home"),
    "home_that_is_a_file": ({"HOME": "file", "FUZZ_CACHE": ""}, "with a file for a home"),
    "home_that_is_missing": ({"HOME": "/proc/none", "FUZZ_CACHE": ""}, "with a home that cannot be made"),
    "locale_of_ascii": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "in a locale of ASCII"),
    "locale_that_is_missing": ({"LC_ALL": "xx_YY.nothing"}, "in a locale that is none"),
    "encoding_of_ascii": ({"PYTHONIOENCODING": "ascii:strict"}, "with streams in ASCII"),
    "no_path": ({"PATH": "/nowhere"}, "without programs on the path"),
    "no_terminal": ({"TERM": "\x1b[2J", "COLUMNS": "-5", "LINES": "x"}, "with a terminal that is none"),
    "one_column": ({"COLUMNS": "1"}, "with one column"),
    "colours": ({"FORCE_COLOR": "", "NO_COLOR": "", "TTY_COMPATIBLE": "0"}, "with empty variables of colours"),
    "threads": ({"OMP_NUM_THREADS": "-3", "MKL_NUM_THREADS": "x"}, "with impossible numbers of threads"),
    "cache_in_a_file": ({"FUZZ_CACHE": "file"}, "with a file for the cache"),
    "cache_in_proc": ({"FUZZ_CACHE": "/proc/cache"}, "with a cache that cannot be made"),
    "cache_of_triton_in_proc": ({"TRITON_CACHE_DIR": "/proc/triton"}, "with a cache of Triton that cannot be made"),
    "cache_of_no_size": ({"FUZZ_CACHE_MB": "-1e9"}, "with a cache of negative size"),
    "cache_of_nan": ({"FUZZ_CACHE_MB": "nan"}, "with a cache whose size is no number"),
    "temporary_files_nowhere": ({"TMPDIR": "/nowhere/at/all"}, "with a missing folder of temporary files"),
    "temporary_files_in_a_file": ({"TMPDIR": "file"}, "with a file for the folder of temporary files"),
    "python_that_warns": ({"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}, "with every warning an error"),
    "python_that_optimises": ({"PYTHONOPTIMIZE": "2"}, "without assertions and docstrings"),
    "python_that_hashes_otherwise": ({"PYTHONHASHSEED": "4294967295"}, "with another order of sets"),
    "proxies": ({"http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "socks5://x"}, "with proxies that are none"),
}  # fmt: skip
"""Name -> (variables, how the command runs)."""


def run_with(trial: Trial, variables: dict[str, str]) -> None:
    trial.write("caf\xe9.py", BROKEN)
    trial.write("file", "no folder")
    answer = trial.fuzz("run", "caf\xe9.py", *RUN, "--json", environment=variables)
    if answer.code == 2:
        require(len(answer.complaints) == 1, f"exit code 2 without one line: {answer.err[-300:]!a}")
    else:
        require(len(answer.json["findings"]) == 1, "not one finding")


for _name, (_variables, _how) in VARIABLES.items():
    _what = f"Runs a target of a name in UTF-8, of which every case is wrong, {_how}."
    KIND.add(f"environment_{_name}", _what, f"its one finding, or {ONE_LINE}", partial(run_with, variables=_variables))


def found(answer: Answer) -> None:
    """FellError unless a run has found what is wrong, or has ended in one line."""
    require(
        answer.code == 1 or answer.code == 2 and len(answer.complaints) == 1,
        f"exit code {answer.code}: {answer.err[-300:]!a}",
    )


LIMITS = {
    "address_space": (resource.RLIMIT_AS, 2 << 30, "2 GiB of address space"),
    "little_address_space": (resource.RLIMIT_AS, 600 * MIB, "600 MiB of address space"),
    "files": (resource.RLIMIT_NOFILE, 32, "32 open files"),
    "few_files": (resource.RLIMIT_NOFILE, 10, "10 open files"),
    "processor_time": (resource.RLIMIT_CPU, 1, "one second of the processor"),
    "stack": (resource.RLIMIT_STACK, 256 << 10, "a stack of 256 KiB"),
    "locked_memory": (resource.RLIMIT_MEMLOCK, 0, "no locked memory"),
    "core": (resource.RLIMIT_CORE, 0, "no core files"),
}


def run_limited(trial: Trial, which: int, most: int) -> None:
    trial.write("x.py", BROKEN)
    answer = trial.run(FUZZ, "run", "x.py", *RUN, preexec_fn=lambda: resource.setrlimit(which, (most, most)))
    if which in (resource.RLIMIT_CPU, resource.RLIMIT_STACK) and answer.code < 0:
        require("Traceback" not in answer.err, f"a traceback: {answer.err[-300:]!a}")
        return
    check_answer(answer)
    found(answer)


for _name, (_which, _most, _how) in LIMITS.items():
    _holds = f"what is wrong is found, or {ONE_LINE}; of time and stack the system may end it"
    KIND.add(f"limit_of_{_name}", f"Runs a target with {_how}.", _holds, partial(run_limited, which=_which, most=_most))


@KIND.attack(f"what is wrong is found, or {ONE_LINE}")
def limit_of_file_size(trial: Trial) -> None:
    """Runs a target with files that cannot grow, and reads what it says by a pipe."""
    if shutil.which("bash") is None:
        raise NotPossibleError("there is no bash")
    trial.write("x.py", BROKEN)
    script = '(ulimit -f 0; exec "$@") 2> >(cat >&2)'
    found(trial.fuzz("run", "x.py", *RUN, via=("bash", "-c", script, "bash")))


STREAMS = {
    "output_closed": 'exec "$@" >&-',
    "output_full": 'exec "$@" >/dev/full',
    "errors_closed": 'exec "$@" 2>&-',
    "errors_full": 'exec "$@" 2>/dev/full',
    "input_closed": 'exec "$@" <&-',
    "all_closed": 'exec "$@" <&- >&- 2>&-',
    "output_that_nobody_reads": '"$@" | true',
    "errors_that_nobody_reads": '"$@" 2>&1 >/dev/null | true',
    "output_of_one_line": '"$@" | head -1',
}


def run_redirected(trial: Trial, script: str) -> None:
    trial.write("x.py", BROKEN)
    answer = trial.run("sh", "-c", script, "sh", FUZZ, "run", "x.py", *RUN, "--json")
    check_answer(answer)
    require(list(trial.work.glob("found/*/*.yaml")) or answer.code == 2, "nothing was found and nothing said")


for _name, _script in STREAMS.items():
    _what = f"Runs a target that is wrong by the shell's `{_script}`."
    KIND.add(_name, _what, f"its finding is saved, or {ONE_LINE}", partial(run_redirected, script=_script))


@KIND.attack(f"{ONE_LINE}")
def folder_that_is_removed(trial: Trial) -> None:
    """Runs a target in a working folder that is removed before it starts."""
    (trial.work / "gone").mkdir()
    trial.write("x.py", BROKEN)
    script = 'cd gone; rmdir ../gone; exec "$@"'
    trial.refused("run", trial.work / "x.py", *RUN, via=("sh", "-c", script, "sh"))


@KIND.attack(f"what is wrong is found and can be read, or {ONE_LINE}")
def mask_that_forbids_everything(trial: Trial) -> None:
    """Runs a target with a mask that takes all rights from new files."""
    trial.write("x.py", BROKEN)
    found(trial.fuzz("run", "x.py", *RUN, via=("sh", "-c", 'umask 777; exec "$@"', "sh")))


@KIND.attack(f"what is wrong is found, or {ONE_LINE}")
def long_folder_of_temporary_files(trial: Trial) -> None:
    """Runs a target whose folder of temporary files has a longer name than a socket may have."""
    folder = trial.folder / ("t" * 120)
    folder.mkdir()
    trial.write("x.py", BROKEN)
    found(trial.fuzz("run", "x.py", *RUN, environment={"TMPDIR": str(folder)}))


@KIND.attack(f"{ONE_LINE}, which names a place where the finding is kept; or the finding")
def disk_that_is_full(trial: Trial) -> None:
    """Runs a target that is wrong with its findings on a file system of 16 KiB, which is full."""
    trial.write("x.py", BROKEN)
    (trial.work / "full").mkdir()
    script = 'mount -t tmpfs -o size=16k none full && (cat /dev/zero > full/zeros 2>/dev/null; exec "$@")'
    if (
        trial.run("unshare", "-m", "true").code != 0
        or trial.run("unshare", "-m", "sh", "-c", script, "sh", "true").code != 0
    ):
        raise NotPossibleError("no file system can be mounted here, which takes root")
    arguments = ("run", "x.py", "--cases", 5, "--seconds", 300, "--backend", "cpu", "--corpus", "full/found")
    found(trial.fuzz(*arguments, via=("unshare", "-m", "sh", "-c", script, "sh")))


@KIND.attack(f"what is wrong is found, or {ONE_LINE}")
def user_who_owns_nothing(trial: Trial) -> None:
    """Runs a target as a user to whom no folder belongs, whose home and temporary files cannot be written."""
    if os.getuid() != 0:
        raise NotPossibleError("only root can become another user")
    trial.write("x.py", BROKEN)
    trial.folder.chmod(0o755)
    nobody = dict(user=65534, group=65534, extra_groups=[])
    try:
        readable = trial.run(sys.executable, "-c", "import torch", **nobody).code == 0
    except PermissionError:
        readable = False
    if not readable:
        raise NotPossibleError("another user cannot read this Python")
    found(trial.fuzz("run", "x.py", *RUN, **nobody))


JUMPING = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) { static long n; return (n = n * 1103515245 + 12345) % 1000000000; }
int clock_gettime(clockid_t which, struct timespec *at) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
  int code = next(which, at);
  if (which == CLOCK_REALTIME) at->tv_sec += jump();
  return code;
}
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; return 0;
}
time_t time(time_t *at) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec; return now.tv_sec;
}
"""


@KIND.attack("a run of five cases with its finding")
def clock_that_jumps(trial: Trial) -> None:
    """Runs a target under a wall clock that jumps by up to 30 years at each look, both ways."""
    if shutil.which("cc") is None:
        raise NotPossibleError("there is no C compiler")
    trial.write("jump.c", JUMPING)
    made = trial.run("cc", "-shared", "-fPIC", "-o", "jump.so", "jump.c", "-ldl")
    require(made.code == 0, f"the attack's library cannot be made: {made.err[-200:]}")
    trial.write("x.py", BROKEN)
    answer = trial.fuzz("run", "x.py", *RUN, "--json", environment={"LD_PRELOAD": str(trial.work / "jump.so")})
    require(answer.code == 1 and answer.json["cases"] == 5, f"exit code {answer.code}: {answer.err[-300:]!a}")


@KIND.attack("what the launcher prints does not reach the terminal as it is")
def terminal_and_a_launcher_that_prints(trial: Trial) -> None:
    """Runs a launcher that prints escape sequences in a terminal, where the run draws its progress."""
    if shutil.which("script") is None:
        raise NotPossibleError("there is no program `script`")
    trial.write("x.py", TARGET.replace("    return", '    print("\\x1b]0;owned\\x07\\x1b[3J", flush=True)\n    return'))
    line = " ".join([FUZZ, "run", "x.py", *map(str, RUN)])
    answer = trial.run("script", "-qec", line, "typescript", stdin=subprocess.DEVNULL)
    require(answer.code == 0, f"exit code {answer.code}: {answer.out[-300:]!a}")
    require("\x1b]0;owned" not in answer.out and "\x1b[3J" not in answer.out, "the terminal obeys the launcher")


def signalled(trial: Trial, numbers: tuple[signal.Signals, ...]) -> Answer:
    """Sends signals to a run that has begun, each a moment after the one before."""
    trial.write("x.py", TARGET.replace("    return", "    open('begun', 'w')\n    return"))
    with (trial.work / "out").open("w+b") as out, (trial.work / "err").open("w+b") as err:
        arguments = ("run", "x.py", "--seconds", 120, "--backend", "cpu", "--corpus", "found", "--json")
        # Under `nohup` a run rightly ignores SIGHUP.
        heed = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
        process = trial.start(FUZZ, *arguments, stdout=out, stderr=err, preexec_fn=heed)
        until = time.monotonic() + 90
        while not (trial.work / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        require((trial.work / "begun").exists(), "the run did not begin")
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.5)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            require(False, "the run does not end within 60 s")
        finally:
            end_group(process)
    text = [(trial.work / name).read_text(errors="replace") for name in ("out", "err")]
    return Answer(code, *text)


@KIND.attack("the run ends as its budget would, with its JSON value")
def interrupt_of_a_run(trial: Trial) -> None:
    """Sends Ctrl-C to a run of two minutes, stopped and continued before."""
    answer = signalled(trial, (signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH, signal.SIGINT))
    check_answer(answer)
    require(answer.code == 0 and answer.json["interrupted"], f"exit code {answer.code}: {answer.err[-300:]!a}")


for _numbers in ((signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGKILL,), (signal.SIGINT,) * 3):

    def _run(trial: Trial, numbers: tuple[signal.Signals, ...] = _numbers) -> None:
        answer = signalled(trial, numbers)
        require("Traceback" not in answer.err, f"a traceback: {answer.err[-300:]!a}")

    _title = "_and_".join(number.name.lower() for number in _numbers)
    KIND.add(
        f"{_title}_of_a_run",
        f"Sends {_title} to a run of two minutes.",
        "it ends within a minute, and leaves no process and no traceback",
        _run,
    )
