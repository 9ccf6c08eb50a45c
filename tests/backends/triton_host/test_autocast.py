"""Automatic mixed precision for a GPU, of CPU tensors."""

import torch

from fuzz.backends import cpu


def product() -> torch.dtype:
    return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_autocast_for_cuda_casts_cpu_tensors():
    with cpu.active():
        with torch.autocast("cuda"):
            assert torch.is_autocast_enabled("cuda")
            assert product() == torch.get_autocast_dtype("cuda") == torch.float16
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            assert product() == torch.get_autocast_gpu_dtype() == torch.bfloat16
            with torch.autocast("cuda", enabled=False):
                assert product() == torch.float32
        assert not torch.is_autocast_enabled()
        assert product() == torch.float32
    with torch.autocast("cpu"):
        assert product() == torch.bfloat16


def test_custom_forward_casts_its_inputs():
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx, x):
            assert ctx._fwd_used_autocast
            return x @ x

    with cpu.active(), torch.autocast("cuda"):
        assert Square.apply(torch.ones(2, 2)).dtype == torch.float16
