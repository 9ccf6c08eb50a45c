import torch
import triton
import triton.language as tl

compiled = {}


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=float("-inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * N + columns, x / tl.sum(x, 0), mask=columns < N)


class ModelNew(torch.nn.Module):
    """Compiles a kernel once for each width, and launches what it has compiled."""

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        M, N = x.shape
        block = triton.next_power_of_2(N)
        key = N, x.dtype, x.data_ptr() % 16, out.data_ptr() % 16
        if key not in compiled:
            compiled[key] = softmax_kernel.warmup(x, out, N, BLOCK=block, grid=(M,))
        compiled[key][(M, 1, 1)](x, out, N, block)
        return out
