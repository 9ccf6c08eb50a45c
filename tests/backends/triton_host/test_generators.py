"""The random number generator of the GPU that launchers believe in."""

import torch

from fuzz.backends import cpu


def test_a_launcher_takes_seed_and_offset_and_moves_the_offset():
    with cpu.active():
        torch.manual_seed(7)
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state = generator.get_state()
        seed, offset = state.view(torch.int64).tolist()
        assert (seed, offset) == (7, 0)
        state.view(torch.int64)[1] = 12
        generator.set_state(state)
        assert (generator.get_offset(), generator.initial_seed()) == (12, 7)
        torch.cuda.manual_seed(8)
        assert generator.get_state().view(torch.int64).tolist() == [8, 0]


def test_the_state_is_kept_for_torch_compile():
    with cpu.active():
        torch.cuda.manual_seed_all(9)
        before = torch.cuda.get_rng_state()
        torch.cuda.manual_seed_all(10)
        torch.cuda.set_rng_state(before)
        assert torch.cuda.initial_seed() == 9


def test_torch_draws_from_it():
    with cpu.active():
        drawn = [torch.rand(3, generator=torch.cuda.default_generators[0].manual_seed(1)) for _ in range(2)]
        assert torch.equal(*drawn)
