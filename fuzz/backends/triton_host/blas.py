"""The matrix products of cuBLAS that Triton hands out to its tutorials and tests, on the CPU."""

from __future__ import annotations

import torch


class CublasLt:
    """As `triton._C.libtriton.nvidia.cublas.CublasLt`: products with a transposed second factor, summed in float32."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """The workspace of a GPU is not used."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Stores `a @ b.T` in c; a is (M, K), b (N, K), c (M, N)."""
        c.copy_(a.float() @ b.float().T)

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        """Stores `alpha * a @ b.T + beta * c` in d."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())
