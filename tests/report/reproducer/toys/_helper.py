"""What stands beside the targets, as in a folder of one's own."""

import os

from fuzz import target

os.environ.setdefault("FUZZ_TOY", "set")
FACTOR = 2.0


def doubled(x):
    assert os.environ["FUZZ_TOY"]
    return x * FACTOR


def toy(**declaration):
    return target(**{"dtypes": ("float32",), **declaration})
