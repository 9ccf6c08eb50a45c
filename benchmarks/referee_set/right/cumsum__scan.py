import torch
import triton
import triton.language as tl


@triton.jit
def add(left, right):
    return left + right


@triton.jit
def cumsum_kernel(x_ptr, stride, step, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + columns * step, mask=columns < N, other=0.0)
    tl.store(out_ptr + row * N + columns, tl.associative_scan(x, 0, add), mask=columns < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        cumsum_kernel[(x.shape[0],)](x, *x.stride(), out, x.shape[1], BLOCK=block)
        return out
