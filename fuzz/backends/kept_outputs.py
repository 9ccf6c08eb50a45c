"""Keeps what the earlier calls of a case returned, and finds what a later call has changed of it.

A launcher that returns the same memory each time gives its caller a result that the next call writes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress

import torch

from fuzz.backends.guarded_memory import Buffer, as_words, read_flags, read_words, without_repetition
from fuzz.model.outcome import Write


@dataclass
class KeptOutputs:
    """Outputs of calls in their own memory, by index of the call and name, each with a copy of what it was."""

    _kept: dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def add(
        self,
        call: int,
        outputs: Mapping[str, torch.Tensor],
        copies: Mapping[str, torch.Tensor],
        buffers: Iterable[Buffer],
    ) -> None:
        """Keeps the outputs of a call, but those in the memory of its inputs, whose owner is the caller."""
        inputs = {buffer.device_base.untyped_storage().data_ptr() for buffer in buffers}
        for name, output in outputs.items():
            if output.numel() and output.untyped_storage().data_ptr() not in inputs:
                self._kept[call, name] = without_repetition(output.detach()), without_repetition(copies[name])

    def find_overwritten(self) -> tuple[tuple[int, Write], ...]:
        """What has changed of each output since it was kept, with the index of its call."""
        changed = [(as_words(now) != as_words(then)).any() for now, then in self._kept.values()]
        places = compress(self._kept, read_flags(changed))
        return tuple((call, _describe_change(name, *self._kept[call, name])) for call, name in places)


def _describe_change(name: str, now: torch.Tensor, then: torch.Tensor) -> Write:
    places = (as_words(now) != as_words(then)).nonzero()
    first = tuple(int(index) for index in places[0])
    got, want = (int(read_words(tensor[first].reshape(1))[0]) for tensor in (now, then))
    return Write(name, first, got, want, len(places))
