"""Launchers that change what their process, Python and torch have in common with whoever examines them."""

from __future__ import annotations

import atexit
import builtins
import gc
import locale
import os
import pickle
import random
import sys
import threading
import time
import warnings

import numpy
import torch

from benchmarks.attacks.launchers.declare import NONE, hostile

ESCAPES = "\x1b]0;owned\x07\x1b[2J"
ANY = (NONE, "died", "raised")
"""A launcher that destroys its own process may die of it, and nothing more."""


def fail(*arguments, **keywords):
    raise RuntimeError("replaced by the launcher")


@hostile(NONE)
def changes_torch(x):
    """Changes torch's default dtype, gradients, threads, generator and checks of determinism."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)


@hostile("value")
def changes_torch_and_is_wrong(x):
    """Changes the same, and returns a result that is wrong by one part in 1024."""
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    return dict(y=(x + 1) * (2 + 2**-10))


@hostile("value")
def makes_comparisons_agree(x):
    """Replaces torch's functions that compare, so that they always agree, and returns a wrong result."""
    torch.equal = torch.allclose = lambda *_, **__: True
    torch.testing.assert_close = lambda *_, **__: None
    return dict(y=x * 2 + 7)


@hostile("value")
def makes_numpy_agree(x):
    """Replaces numpy's functions that compare, and returns a wrong result."""
    numpy.array_equal = numpy.allclose = lambda *_, **__: True
    numpy.testing.assert_array_equal = lambda *_, **__: None
    return dict(y=x * 2 + 7)


@hostile(NONE)
def changes_numpy_and_warnings(x):
    """Makes numpy raise for every rounding, and every warning an error."""
    numpy.seterr(all="raise")
    warnings.simplefilter("error")
    random.seed(0)


@hostile(*ANY)
def replaces_builtins(x):
    """Replaces functions of Python by one that raises."""
    for name in ("len", "isinstance", "getattr", "zip"):
        setattr(builtins, name, fail)


@hostile(*ANY)
def replaces_tensors_methods(x):
    """Replaces methods of torch's tensors by one that raises."""
    result = dict(y=x * 2)
    for name in ("to", "clone", "numel", "stride", "data_ptr", "view"):
        setattr(torch.Tensor, name, fail)
    return result


@hostile(*ANY)
def replaces_pickle(x):
    """Replaces what turns objects into bytes."""
    pickle.dumps = pickle.loads = fail


@hostile(*ANY)
def replaces_functions_of_the_system(x):
    """Replaces functions that write, read and end a process."""
    for name in ("write", "read", "_exit", "getpid", "kill", "close"):
        setattr(os, name, fail)


@hostile(NONE, "hung")
def stops_time(x):
    """Replaces every clock of Python by one that stands still."""
    for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns"):
        setattr(time, name, lambda: 0)


@hostile(*ANY)
def forgets_modules(x):
    """Forgets all modules."""
    result = dict(y=x * 2)
    sys.modules.clear()
    return result


@hostile(*ANY)
def forbids_everything(x):
    """Adds an audit hook that raises for everything."""
    result = dict(y=x * 2)
    sys.addaudithook(fail)
    return result


@hostile(*ANY)
def forbids_imports(x):
    """Puts a finder before all others that raises."""
    sys.meta_path.insert(0, type("Finder", (), {"find_spec": fail}))
    sys.path.clear()


@hostile(*ANY)
def traces_everything(x):
    """Sets a function that traces, and raises at every line."""
    sys.settrace(fail)
    threading.settrace(fail)


@hostile(NONE)
def changes_the_environment(x):
    """Clears the variables, changes folder, mask and locale, and removes the folder that it works in."""
    os.environ.clear()
    os.umask(0o777)
    locale.setlocale(locale.LC_ALL, "C")
    os.makedirs("gone", exist_ok=True)
    os.chdir("gone")
    os.rmdir(os.getcwd())


@hostile(NONE)
def exits_slowly(x):
    """Leaves a function for the end of its process that prints escape sequences and does not end."""
    atexit.register(time.sleep, 600)
    atexit.register(print, ESCAPES)


class Restless:
    def __del__(self):
        print(ESCAPES, file=sys.stderr)
        raise RuntimeError(ESCAPES)


@hostile(NONE)
def leaves_finalizers(x):
    """Leaves objects that print escape sequences, and raise, when they are collected."""
    circle = [Restless() for _ in range(20)]
    circle.append(circle)


@hostile(NONE)
def replaces_hooks(x):
    """Replaces what prints exceptions by functions that print escape sequences, and raises in a thread."""
    sys.excepthook = threading.excepthook = sys.unraisablehook = lambda *_: print(ESCAPES)
    threading.Thread(target=fail).start()


@hostile(NONE)
def turns_collection_off(x):
    """Turns off the collection of garbage, and leaves a million objects."""
    gc.disable()
    gc.freeze()
    circle = [[] for _ in range(1_000_000)]
    circle[0].append(circle)


@hostile(NONE)
def spoils_the_memory_of_small_numbers(x):
    """Calls the garbage collector in each allocation, and limits recursion to what it needs itself."""
    gc.set_threshold(1, 1, 1)
    sys.setrecursionlimit(200)
