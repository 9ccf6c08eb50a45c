import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, scale_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0).to(tl.float32)
    tl.store(scale_ptr + row, tl.rsqrt(tl.sum(x * x, 0) / N + eps))


@triton.jit
def apply_kernel(x_ptr, scale_ptr, w_ptr, out_ptr, count, N, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    x = tl.load(x_ptr + index, mask=mask).to(tl.float32)
    x = x * tl.load(scale_ptr + index // N, mask=mask) * tl.load(w_ptr + index % N, mask=mask).to(tl.float32)
    tl.store(out_ptr + index, x.to(tl.float16), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(features, dtype=torch.float16)), eps

    def forward(self, x):
        x = x.contiguous()
        M, N = x.shape
        out, scale = torch.empty_like(x), torch.empty(M, dtype=torch.float32, device=x.device)
        scale_kernel[(M,)](x, scale, N, self.eps, BLOCK=triton.next_power_of_2(N))
        apply_kernel[(triton.cdiv(M * N, 512),)](x, scale, self.weight, out, M * N, N, BLOCK=512)
        return out
