"""Triton's matrix products by cuBLAS, in the pretence of a GPU."""

import pytest
import torch
from triton._C.libtriton import nvidia

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.blas import CublasLt
from fuzz.backends.triton_host.identity import pretence


@pytest.fixture
def factors():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(5, 7, generator=draw), torch.randn(3, 7, generator=draw)


def test_a_product_is_that_with_the_transposed_second_factor(factors):
    a, b = (factor.half() for factor in factors)
    c = torch.empty(5, 3, dtype=torch.float16)
    CublasLt(torch.empty(16, dtype=torch.uint8)).matmul(a, b, c)
    torch.testing.assert_close(c, (a.double() @ b.double().T).half())


def test_gemm_scales_and_adds(factors):
    c, d = torch.ones(5, 3), torch.empty(5, 3)
    CublasLt(torch.empty(16, dtype=torch.uint8)).gemm(*factors, c, d, 2.0, 0.5)
    torch.testing.assert_close(d, 2 * factors[0] @ factors[1].T + 0.5)


def test_the_pretence_hands_it_out(factors):
    real = nvidia.cublas.CublasLt
    with cpu.active(), pretence(DRIVER):
        assert nvidia.cublas.CublasLt is CublasLt
    assert nvidia.cublas.CublasLt is real
