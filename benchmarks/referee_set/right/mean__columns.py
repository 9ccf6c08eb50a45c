import torch
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, out_ptr, L, N, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for index in range(L):
        total += tl.load(x_ptr + (batch * L + index) * N + columns, mask=columns < N, other=0.0)
    tl.store(out_ptr + batch * N + columns, total / L, mask=columns < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        B, L, N = x.shape
        out = torch.empty(B, N, dtype=x.dtype, device=x.device)
        mean_kernel[(B, triton.cdiv(N, 64))](x.contiguous(), out, L, N, BLOCK=64)
        return out
