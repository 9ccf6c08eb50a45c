"""Answers for the random number generator of a GPU, whose state launchers hand to kernels as a seed and an offset."""

from __future__ import annotations

import os
import struct
from typing import Any

import torch

DEFAULT_SEED = 67280421310721
"""The seed of torch's generators before anybody sets one."""
STATE = struct.Struct("=Qq")
real_is_available = torch.cuda.is_available
real_manual_seed_all = torch.cuda.manual_seed_all
real_get_rng_state, real_set_rng_state = torch.cuda.get_rng_state, torch.cuda.set_rng_state


class PhiloxGenerator(torch.Generator):
    """A generator of torch with the state of a GPU's: 16 bytes, the seed and the offset. Where torch draws from it
    itself, it draws as the CPU does."""

    def __new__(cls, device: Any = "cpu") -> PhiloxGenerator:
        generator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        generator.manual_seed(DEFAULT_SEED)
        return generator

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    def manual_seed(self, seed: int) -> PhiloxGenerator:
        super().manual_seed(seed)
        self.philox = (seed % (1 << 64), 0)
        return self

    def seed(self) -> int:
        drawn = int.from_bytes(os.urandom(7), "little")
        self.manual_seed(drawn)
        return drawn

    def initial_seed(self) -> int:
        return self.philox[0]

    def get_offset(self) -> int:
        return self.philox[1]

    def set_offset(self, offset: int) -> PhiloxGenerator:
        self.philox = (self.philox[0], offset)
        return self

    def get_state(self) -> torch.Tensor:
        return torch.frombuffer(bytearray(STATE.pack(*self.philox)), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> PhiloxGenerator:
        seed, offset = STATE.unpack(bytes(state.view(torch.uint8).tolist()))
        self.manual_seed(seed)
        self.set_offset(offset)
        return self


GENERATOR = PhiloxGenerator()
"""The default generator of the only device."""


def manual_seed_all(seed: int) -> None:
    """Also what `torch.manual_seed` calls."""
    GENERATOR.manual_seed(int(seed))
    if real_is_available():
        real_manual_seed_all(seed)


def seed_generators(seed: int) -> None:
    """Seeds the generators of the processor and of GPUs, as `torch.manual_seed` does.

    That keeps the stack of each call as well, for every kind of accelerator that nothing has used.
    """
    torch.default_generator.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    """`torch.compile` saves and restores it."""
    return real_get_rng_state(device) if real_is_available() else GENERATOR.get_state()


def set_rng_state(state: torch.Tensor, device: Any = "cuda") -> None:
    if real_is_available():
        real_set_rng_state(state, device)
    elif state.numel():
        GENERATOR.set_state(state)


REPLACEMENTS: dict[str, Any] = {
    "default_generators": (GENERATOR,),
    "manual_seed": manual_seed_all,
    "manual_seed_all": manual_seed_all,
    "seed": lambda: manual_seed_all(GENERATOR.seed()),
    "seed_all": lambda: manual_seed_all(GENERATOR.seed()),
    "initial_seed": GENERATOR.initial_seed,
    "get_rng_state": get_rng_state,
    "set_rng_state": set_rng_state,
    "get_rng_state_all": lambda: [get_rng_state()],
    "set_rng_state_all": lambda states: set_rng_state(next(iter(states))),
}
"""Of `torch.cuda`."""
