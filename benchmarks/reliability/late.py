"""Functions that keep a run busy until its end: calls that hang or are slow, references that are, and many mistakes."""

import os
import signal
import time

import torch
from broken import FLOATS, double

from fuzz import target


def slow_double(x):
    time.sleep(0.5)
    return dict(y=x * 2)


@target(**FLOATS, reference=double)
def hangs(x):
    """Never returns for one size in sixteen."""
    while x.numel() % 16 == 7:
        time.sleep(0.1)
    return dict(y=x * 2)


@target(**FLOATS, reference=double)
def slow(x):
    """Takes half a second, and adds one to what is above 2."""
    time.sleep(0.5)
    return dict(y=torch.where(x > 2, x * 2 + 1, x * 2))


@target(**FLOATS, reference=slow_double)
def slow_reference(x):
    """Wrong below -3, by a reference that takes half a second."""
    return dict(y=torch.where(x < -3, -2 * x, x * 2))


@target(**FLOATS, reference=double)
def many(x):
    """Four mistakes at once: it ends its process, raises, never returns, and is wrong."""
    if x.numel() % 16 == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x.numel() % 16 == 5:
        raise RuntimeError("a size that leaves 5")
    while x.numel() % 16 == 9:
        time.sleep(0.1)
    return dict(y=torch.where(x == 0, torch.nan, x * 2))
