"""Launchers that return, or raise, what nobody expects."""

from __future__ import annotations

import torch

from benchmarks.attacks.launchers.declare import LINE, NONE, hostile

ESCAPES = "\x1b]0;owned\x07\x1b[2J\udce9\0\u202e"


@hostile(LINE, "raised")
def returns_nothing(x):
    """Returns a number instead of outputs."""
    return 0


@hostile(LINE)
def returns_other_names(x):
    """Returns an output whose name is none that is due, with escape sequences in it."""
    return {ESCAPES: x * 2}


@hostile(LINE)
def returns_numbers_for_names(x):
    """Returns outputs that are named by numbers."""
    return {0: x * 2, None: x}


@hostile(LINE)
def returns_text(x):
    """Returns a text instead of a tensor."""
    return dict(y=ESCAPES)


@hostile(LINE)
def returns_a_huge_view(x):
    """Returns 2^40 elements that share one place in memory."""
    return dict(y=(x * 2).expand(1 << 40))


@hostile(LINE, "raised")
def returns_no_memory(x):
    """Returns a tensor without memory."""
    return dict(y=torch.empty(1, device="meta"))


@hostile(LINE, "raised")
def returns_a_sparse_tensor(x):
    """Returns a sparse tensor."""
    return dict(y=(x * 2).to_sparse())


@hostile(LINE, "raised", "value")
def returns_complex_numbers(x):
    """Returns complex numbers whose real parts are right."""
    return dict(y=torch.complex(x * 2, torch.ones_like(x)))


class Hidden(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        raise RuntimeError("hidden")


@hostile(LINE, "raised", "value")
def returns_a_class_that_hides(x):
    """Returns a wrong result, of a class whose every function raises."""
    return dict(y=(x * 2 + 7).as_subclass(Hidden))


class Liar(dict):
    def __iter__(self):
        raise RuntimeError("a dict that lies")

    items = keys = values = __getitem__ = __len__ = __iter__


@hostile(LINE, "raised")
def returns_a_dict_that_raises(x):
    """Returns a dict whose every method raises."""
    return Liar(y=x * 2)


@hostile("nonfinite")
def returns_nan(x):
    """Returns NaN."""
    return dict(y=x * torch.nan)


@hostile("written", "aliased", "value")
def returns_its_argument(x):
    """Doubles its argument in place, and returns it."""
    return dict(y=x.mul_(2))


@hostile(NONE)
def returns_a_graph(x):
    """Returns a result with a graph of a thousand operations, and a function that is called backwards."""
    leaf = x.clone().requires_grad_()
    y = leaf * 2
    for _ in range(1000):
        y = y * 1
    y.register_hook(lambda gradient: 1 / 0)
    return dict(y=y)


class Liable(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __reduce__ = __str__


@hostile("raised")
def raises_without_a_class(x):
    """Raises what denies its class, its text and its bytes."""
    raise Liable


@hostile("raised")
def raises_a_hostile_name(x):
    """Raises an exception whose class is named by escape sequences."""
    raise type("\x1b]0;owned\x07\x1b[2J", (Exception,), {})(ESCAPES * 1000)


@hostile("raised", "died")
def raises_an_interrupt(x):
    """Raises what a user's Ctrl-C raises."""
    raise KeyboardInterrupt(ESCAPES)


@hostile("raised", "died")
def raises_the_end_of_generators(x):
    """Raises what ends generators."""
    raise GeneratorExit


@hostile("raised")
def raises_a_long_chain(x):
    """Raises an exception that two thousand others have caused, one the next, and the last one the first."""
    error = first = RuntimeError("first")
    for number in range(2000):
        following = RuntimeError(f"number {number}")
        error.__cause__ = following
        error = following
    error.__context__ = first
    raise first


@hostile("raised", "out-of-memory")
def raises_for_memory(x):
    """Asks for 2^60 bytes."""
    torch.empty(1 << 60, dtype=torch.uint8)


@hostile("raised", "out-of-memory")
def raises_as_if_memory_ended(x):
    """Raises a MemoryError though there is memory."""
    raise MemoryError(ESCAPES)


@hostile("raised")
def raises_a_huge_text(x):
    """Raises with a text of eight million escape sequences."""
    raise RuntimeError("\x1b[2J" * (2 << 20))


@hostile(NONE)
def refuses_with_a_hostile_text(x):
    """Refuses its input with a text of escape sequences."""
    raise ValueError(ESCAPES * 100_000)
