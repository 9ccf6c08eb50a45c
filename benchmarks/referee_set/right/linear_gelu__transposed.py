import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, out_ptr, N, K, BLOCK: tl.constexpr):
    """One row by a block of columns, over a transposed copy of the weight."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < N
    total = tl.load(b_ptr + columns, mask=mask, other=0.0)
    for k in range(K):
        total += tl.load(x_ptr + row * K + k) * tl.load(w_ptr + k * N + columns, mask=mask, other=0.0)
    out = total * 0.5 * (1 + tl.erf(total / 1.4142135623730951))
    tl.store(out_ptr + row * N + columns, out, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(features, outputs)

    def forward(self, x):
        weight = self.linear.weight.t().contiguous()
        out = x.new_empty(x.shape[0], weight.shape[1])
        grid = (x.shape[0], triton.cdiv(out.shape[1], 64))
        linear_kernel[grid](x.contiguous(), weight, self.linear.bias, out, *weight.shape[::-1], BLOCK=64)
        return out
