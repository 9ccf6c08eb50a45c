"""Lists the memory that pointers which a kernel reads from memory may lead to: that of all tensors of the process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain

import numpy
import torch

Span = tuple[int, int]


def known_memory(arguments: Iterable[tuple[int, ...]]) -> numpy.ndarray:
    """A table for a launch, int64: the number of spans, then the first and last address + 1 of each, in their order.

    The spans are the storages of all CPU tensors that Python knows, and those of the arguments, of which each
    begins with its lowest address and its length.
    """
    spans = {(start, start + length) for start, length, *_ in arguments if length}
    merged = list(merge(sorted(spans | set(storages()))))
    return numpy.array([len(merged), *(address for span in merged for address in span)], dtype=numpy.int64)


@cache
def frozen_tensors() -> list[weakref.ref[torch.Tensor]]:
    """The tensors that this process's parents froze, as those that a target makes when it is loaded.

    The collector lists no frozen object, so that all are unfrozen for a moment.
    """
    if not gc.get_freeze_count():
        return []
    gc.collect()
    gc.unfreeze()
    tensors = [weakref.ref(thing) for thing in gc.get_objects() if is_plain_tensor(thing)]
    gc.freeze()
    return tensors


def is_plain_tensor(thing: object) -> bool:
    return type(thing) is torch.Tensor or type(thing) is torch.nn.Parameter


def storages() -> Iterator[Span]:
    for thing in chain(gc.get_objects(), (reference() for reference in frozen_tensors())):
        if not is_plain_tensor(thing):
            continue
        # Not `is_cpu`, which others may answer for.
        if torch._C._dispatch_keys(thing).has(torch._C.DispatchKey.CPU):
            # A wrapper of a transformation has no storage of its own.
            with suppress(NotImplementedError, RuntimeError):
                storage = thing.untyped_storage()
                start, length = storage.data_ptr(), storage.nbytes()
                if length:
                    yield start, start + length


def merge(spans: Iterable[Span]) -> Iterator[Span]:
    """Sorted spans without overlaps; neighbours stay apart, as no access may go from one tensor to another."""
    last: Span | None = None
    for start, end in spans:
        if last is not None and start < last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last
