"""Launchers that end, stop, replace or limit their process, or leave others behind."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time

from benchmarks.attacks.launchers.declare import NONE, hostile

LIBC = ctypes.CDLL(None)
SET_DEATH_SIGNAL, SET_SECCOMP, STRICT = 1, 22, 1


@hostile("died")
def kills_itself(x):
    """Kills its process, which nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)


@hostile("died")
def terminates_its_group(x):
    """Sends SIGTERM to its group of processes."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.killpg(0, signal.SIGTERM)
    time.sleep(5)


@hostile("died", "hung", timeout=2.0)
def becomes_another_program(x):
    """Replaces its program by one that sleeps."""
    os.execv("/bin/sleep", ["sleep", "600"])


@hostile("died")
def becomes_a_program_that_succeeds(x):
    """Replaces its program by one that ends at once, as if all was well."""
    os.execv("/bin/true", ["true"])


@hostile("died")
def crashes_in_a_thread(x):
    """Reads the address 0 in a thread, while the launcher waits."""
    threading.Thread(target=lambda: ctypes.string_at(0)).start()
    time.sleep(5)


@hostile(NONE, "died")
def crashes_later(x):
    """Reads the address 0 in a thread, a moment after the launcher has returned."""
    threading.Timer(0.2, lambda: ctypes.string_at(0)).start()


@hostile(NONE)
def leaves_a_thread(x):
    """Leaves a thread for which Python waits at its end, and which does not end."""
    threading.Thread(target=lambda: time.sleep(600)).start()


@hostile(NONE)
def leaves_a_program(x):
    """Leaves a program that holds all its files."""
    subprocess.Popen(["sleep", "600"], close_fds=False)


@hostile(NONE)
def leaves_a_program_without_a_trace(x):
    """Leaves a program in a session of its own, without variables of its environment."""
    subprocess.Popen(["/bin/sleep", "600"], env={}, start_new_session=True)


@hostile(NONE)
def leaves_many_processes(x):
    """Leaves thirty processes, each forked from the one before it."""
    if os.fork() == 0:
        for _ in range(30):
            if os.fork() != 0:
                break
        time.sleep(600)
        os._exit(0)


@hostile(NONE)
def leaves_a_process_that_outlives_parents(x):
    """Leaves a process that nobody is to end with its parent, and that ignores what asks it to end."""
    if os.fork() == 0:
        os.setsid()
        LIBC.prctl(SET_DEATH_SIGNAL, 0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def is_of_this_attack(pid: int) -> bool:
    """Whether a process belongs to the attack: nothing else of the machine may be harmed."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return os.environ["FUZZ_ATTACK"].encode() in file.read()


@hostile(NONE, "died")
def stops_every_child_of_its_parent(x):
    """Stops the processes beside it, if there are any."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
        try:
            if parent_of(pid) == os.getppid() and is_of_this_attack(pid):
                os.kill(pid, signal.SIGSTOP)
        except OSError:
            continue


@hostile(NONE, "died", "hung", timeout=2.0)
def kills_the_parent_of_its_parent(x):
    """Kills the server from which its supervisor was forked."""
    parent = parent_of(os.getppid())
    with open(f"/proc/{parent}/cmdline", "rb") as file:
        # The command itself is whoever runs it: to end it ends the run, and nobody can hold that.
        if b"forkserver" in file.read() and is_of_this_attack(parent):
            os.kill(parent, signal.SIGKILL)


@hostile(NONE)
def ignores_every_signal(x):
    """Ignores and blocks every signal that can be."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))


@hostile(NONE, "died", "raised")
def is_interrupted_later(x):
    """Sets an alarm whose handler raises in whatever runs a moment after the launcher has returned."""

    def interrupt(number, frame):
        raise RuntimeError("an alarm of the launcher")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001)


@hostile("died")
def allows_itself_no_system_call(x):
    """Lets the system kill it at its next system call but read, write and exit."""
    LIBC.prctl(SET_SECCOMP, STRICT)
    os.getppid()


@hostile("died")
def uses_up_its_processor_time(x):
    """Limits its processor time to one second, and computes on."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + 1, hard))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    while True:
        pass


@hostile(NONE, "died", "raised")
def allows_itself_four_files(x):
    """Lowers the limit of open files to four."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))


@hostile(NONE, "died", "raised", "out-of-memory")
def allows_itself_little_address_space(x):
    """Lowers the limit of address space below what it has."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 26, 1 << 26))


@hostile(NONE, "died", "raised")
def changes_its_root(x):
    """Changes the root of its file system to an empty folder, where the system allows that."""
    os.makedirs("empty", exist_ok=True)
    os.chroot("empty")


@hostile(NONE, "died", "raised")
def becomes_nobody(x):
    """Gives up its user for one who owns nothing, where the system allows that."""
    os.setresuid(65534, 65534, 65534)


@hostile("raised")
def recurses_in_python(x):
    """Calls itself without an end."""
    recurses_in_python_again(x)


def recurses_in_python_again(x):
    recurses_in_python_again(x)


@hostile("died", "raised")
def recurses_in_c(x):
    """Compares lists that hold themselves, without a limit of recursion."""
    sys.setrecursionlimit(1 << 30)
    one, other = [], []
    one.append(other)
    other.append(one)
    return one == other


@hostile("hung", timeout=2.0)
def waits_for_ever_in_c(x):
    """Waits in a call of the system that Python cannot interrupt, with all signals blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(600)


@hostile(NONE, "hung", timeout=10.0)
def leaves_threads_that_compute(x):
    """Leaves two threads that take all time from Python."""
    sys.setswitchinterval(0.1)
    for _ in range(2):
        threading.Thread(target=compute, daemon=True).start()


def compute():
    while True:
        pass
