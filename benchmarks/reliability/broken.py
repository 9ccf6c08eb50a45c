"""Eight functions with one mistake each, so that what a campaign over them must find is known: one finding a target."""

import os
import signal

import torch

from fuzz import size, target, tensor

N = size("N", 1, 4096)
FLOATS = dict(x=tensor(N), dtypes=("float32", "float16"))


def double(x):
    return dict(y=x * 2)


def relu(x):
    return dict(y=torch.clamp(x, min=0))


def plus_one(x):
    return dict(y=x + 1)


@target(**FLOATS, reference=double)
def above_four(x):
    """Adds one to what is above 4."""
    return dict(y=torch.where(x > 4, x * 2 + 1, x * 2))


@target(**FLOATS, reference=double)
def below_minus_three(x):
    """The wrong sign below -3."""
    return dict(y=torch.where(x < -3, -2 * x, x * 2))


@target(**FLOATS, reference=relu)
def zero_is_nan(x):
    """Not a number where the input is zero."""
    return dict(y=torch.where(x == 0, torch.nan, torch.clamp(x, min=0)))


@target(**FLOATS, reference=double)
def threes(x):
    """Wrong in its last element where the size is a multiple of three."""
    y = x * 2
    if x.numel() % 3 == 0:
        y[-1] = y[-1] + 100
    return dict(y=y)


@target(**FLOATS, reference=plus_one)
def over_sixty_four(x):
    """Fails above a size of 64."""
    if x.numel() > 64:
        raise RuntimeError("too many elements")
    return dict(y=x + 1)


@target(**FLOATS, reference=plus_one)
def sevens(x):
    """Dies where the size is 7 modulo 8."""
    if x.numel() % 8 == 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    return dict(y=x + 1)


@target(**FLOATS, reference=double)
def overwrites(x):
    """Writes over its input where that is large."""
    y = x * 2
    x[x > 2] = 0
    return dict(y=y)


@target(**FLOATS, reference=relu)
def large_is_kept(x):
    """Forgets the clamp from a size of 200 on."""
    return dict(y=x.clone() if x.numel() >= 200 else torch.clamp(x, min=0))
