"""Records the launches of a solution's Triton kernels: their number, what they raise, and whether they only copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class LaunchLog:
    """Counts launches of Triton kernels, and keeps what launches raised; with `leave_out` none takes place.

    With `copies` it compares the memory of each launch's tensors before and after: `copying` launches wrote nothing but
    copies of other arguments, `computing` ones something else. `written` holds the words that they wrote, if each
    wrote one and the same word wherever it changed anything.
    """

    def __init__(self, leave_out: bool, copies: bool = False) -> None:
        self.leave_out, self.copies, self.count = leave_out, copies, 0
        self.copying = self.computing = 0
        self.written: list[int] | None = []
        self.troubles: list[str] = []
        self.is_cut = False
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
        before = [words_in_order(one) for one in given] if self.copies else []
        try:
            result = run(*args, **kwargs)
        except Exception as error:
            self.troubles.append(f"{type(error).__name__}: {one_line(error)}")
            raise
        self.count += not is_warmup
        self.tf32.look_at(result)
        self.compare(before, [words_in_order(one) for one in given] if self.copies else [])
        return result

    def compare(self, before: Sequence[Words], after: Sequence[Words]) -> None:
        """Counts a launch by the words of its tensors before and after, unless it has written nothing."""
        kept = [new for old, new in zip(before, after, strict=True) if np.array_equal(old, new)]
        written = [new for old, new in zip(before, after, strict=True) if not np.array_equal(old, new)]
        for old, new in zip(before, after, strict=True):
            words = new[new != old]
            if self.written is not None and words.size:
                self.written = [*self.written, int(words[0])] if bool((words == words[0]).all()) else None
        if written:
            is_copy = all(any(is_copy_of(new, other) for other in kept) for new in written)
            self.copying, self.computing = self.copying + is_copy, self.computing + (not is_copy)


def words_in_order(tensor: torch.Tensor) -> Words:
    """A copy of the words of a tensor's elements, in the order in which they lie in memory."""
    axes = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return read_words(tensor.detach().permute(axes)).flatten()


def is_copy_of(words: Words, other: Words) -> bool:
    """Whether words are those of another tensor, and not one and the same word throughout."""
    return words.dtype == other.dtype and np.array_equal(words, other) and bool((words != words[:1]).any())
