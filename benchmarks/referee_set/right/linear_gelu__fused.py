import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + rows * K + k[None, :], mask=(rows < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + columns * K + k[:, None], mask=(columns < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    total += tl.load(b_ptr + columns, mask=columns < N, other=0.0)
    out = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    tl.store(out_ptr + rows * N + columns, out, mask=(rows < M) & (columns < N))


class ModelNew(torch.nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(features, outputs)

    def forward(self, x):
        (M, K), N = x.shape, self.linear.out_features
        out = torch.empty(M, N, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        linear_kernel[grid](x.contiguous(), self.linear.weight, self.linear.bias, out, M, N, K, BLOCK=32)
        return out
