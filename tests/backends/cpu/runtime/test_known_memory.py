"""The memory of every tensor of a process is known."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from fuzz.backends.cpu.runtime.known_memory import frozen_tensors, storages


@pytest.fixture
def freezing() -> Iterator[None]:
    frozen_tensors.cache_clear()
    yield
    gc.unfreeze()
    frozen_tensors.cache_clear()


@pytest.mark.usefixtures("freezing")
def test_that_of_tensors_which_the_collector_has_frozen_is_among_it() -> None:
    before = torch.arange(100.0)
    gc.freeze()
    after = torch.arange(10.0)
    known = set(storages())
    assert all((x.data_ptr(), x.data_ptr() + x.nbytes) in known for x in (before, after))
    start = before.data_ptr()
    del before
    assert start not in {first for first, _ in storages()}
