"""Records the launches of a solution's Triton kernels: their number, what they raise, and whether they only copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from triton.compiler.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from fuzz.backends.guarded_memory import read_words
from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.errors import one_line
from fuzz.judge.processes.tf32 import Tf32Record

Words = np.ndarray
SCALED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OTHER_FACTORS = (-1.0, -(2.0**12))
"""What the numbers of a launch that copied are multiplied by: a clamp leaves those in its range as they are."""


class LaunchLog:
    """Counts launches of Triton kernels, and keeps what launches raised; with `leave_out` none takes place.

    With `copies` it compares the memory of each launch's tensors before and after: `copying` launches wrote nothing but
    copies of other arguments, for other values of these too, `computing` ones something else. `written` holds the words
    that they wrote, if each wrote one and the same word wherever it changed anything. Where `spared` is set, a launch
    spoils the tensors that it is given, but for those in this memory, and no kernel is run.
    """

    def __init__(self, leave_out: bool, copies: bool = False) -> None:
        self.leave_out, self.copies, self.count = leave_out, copies, 0
        self.copying = self.computing = 0
        self.written: list[int] | None = []
        self.troubles: list[str] = []
        self.is_cut = False
        self.spared: Set[int] | None = None
        self.tf32 = Tf32Record()

    def patch(self) -> AbstractContextManager[object]:
        run_kernel, get_launcher, log = JITFunction.run, CompiledKernel.__getitem__, self

        def run_logged(function: Any, *args: Any, **kwargs: Any) -> Any:
            return log.launch(partial(run_kernel, function), *args, **kwargs)

        def get_logged(kernel: Any, grid: Any) -> Any:
            """The launcher of a kernel that `warmup` has compiled."""
            return partial(log.launch, get_launcher(kernel, grid))

        return patched([Patch(JITFunction, "run", run_logged), Patch(CompiledKernel, "__getitem__", get_logged)])

    def launch(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Launches a kernel, unless that is left out, and records it."""
        is_warmup = kwargs.get("warmup", False)
        if self.leave_out and not is_warmup:
            return None
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        self.is_cut |= torch.is_grad_enabled() and any(one.requires_grad for one in given)
        if self.spared is not None and not is_warmup:
            self.count += 1
            return spoil(one for one in given if one.untyped_storage().data_ptr() not in self.spared)
        before = [words_in_order(one) for one in given] if self.copies else []
        memory = Memory(given) if self.copies else None
        try:
            result = run(*args, **kwargs)
        except Exception as error:
            self.troubles.append(f"{type(error).__name__}: {one_line(error)}")
            raise
        self.count += not is_warmup
        self.tf32.look_at(result)
        if memory is not None:
            self.compare(before, [words_in_order(one) for one in given], memory, partial(run, *args, **kwargs))
        return result

    def compare(
        self, before: Sequence[Words], after: Sequence[Words], memory: Memory, repeat: Callable[[], object]
    ) -> None:
        """Counts a launch by the words of its tensors before and after, unless it has written nothing."""
        for old, new in zip(before, after, strict=True):
            words = new[new != old]
            if self.written is not None and words.size:
                self.written = [*self.written, int(words[0])] if bool((words == words[0]).all()) else None
        if not all(map(np.array_equal, before, after)):
            is_copy = only_copies(before, after) and still_copies(memory, repeat)
            self.copying, self.computing = self.copying + is_copy, self.computing + (not is_copy)


class Memory:
    """What tensors hold when it is made, so that they can hold it, or something made of it, again."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self.values = [distinct(one).clone() for one in tensors]

    def restore(self, factor: float = 1.0) -> None:
        """Fills the tensors with what they held, floating numbers times a factor."""
        with torch.no_grad():
            for one, value in zip(self.tensors, self.values, strict=True):
                distinct(one).copy_(value * factor if value.dtype in SCALED and factor != 1.0 else value)


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor without those that an expanded axis repeats."""
    return tensor.detach()[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def spoil(tensors: Iterable[torch.Tensor]) -> None:
    """Fills tensors with what no result follows from: NaN, or a whole number that is no index, if there is one."""
    with torch.no_grad():
        for one in tensors:
            number = -1 if one.dtype.is_signed else 1
            distinct(one).fill_(math.nan if one.is_floating_point() else number)


def still_copies(memory: Memory, repeat: Callable[[], object]) -> bool:
    """Whether a launch that copied does so with other numbers too: many a function is the identity on some of them."""
    after = Memory(memory.tensors)
    try:
        for factor in OTHER_FACTORS:
            memory.restore(factor)
            before = [words_in_order(one) for one in memory.tensors]
            repeat()
            if not only_copies(before, [words_in_order(one) for one in memory.tensors]):
                return False
    except Exception:
        # Whatever refuses other numbers looks at them.
        return False
    finally:
        after.restore()
    return True


def only_copies(before: Sequence[Words], after: Sequence[Words]) -> bool:
    """Whether each tensor that was written holds the words of another one that was not."""
    pairs = list(zip(before, after, strict=True))
    kept = [new for old, new in pairs if np.array_equal(old, new)]
    return all(any(is_copy_of(new, other) for other in kept) for old, new in pairs if not np.array_equal(old, new))


def words_in_order(tensor: torch.Tensor) -> Words:
    """A copy of the words of a tensor's elements, in the order in which they lie in memory."""
    axes = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return read_words(tensor.detach().permute(axes)).flatten()


def is_copy_of(words: Words, other: Words) -> bool:
    """Whether words are those of another tensor, and not one and the same word throughout."""
    return words.dtype == other.dtype and np.array_equal(words, other) and bool((words != words[:1]).any())
