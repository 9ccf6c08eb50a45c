import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / N
    variance = tl.sum(x * x, 0) / N - mean * mean
    w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
    tl.store(out_ptr + row * N + columns, (x - mean) * tl.rsqrt(variance + eps) * w + b, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        norm_kernel[(x.shape[0],)](x, self.norm.weight, self.norm.bias, out, x.shape[1], 1e-5, BLOCK=block)
        return out
