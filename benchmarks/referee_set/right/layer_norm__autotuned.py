import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 2, 4) for warps in (2, 4)], key=["N"])
@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (columns < N)
    x = tl.load(x_ptr + rows * N + columns, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, 1)[:, None] / N, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / N + eps)
    w, b = tl.load(w_ptr + columns, mask=columns < N), tl.load(b_ptr + columns, mask=columns < N)
    tl.store(out_ptr + rows * N + columns, centred * scale * w + b, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        M, N = x.shape
        x, out = x.contiguous(), torch.empty(M, N, dtype=x.dtype, device=x.device)
        grid = lambda meta: (triton.cdiv(M, meta["ROWS"]),)  # noqa: E731
        norm_kernel[grid](x, self.norm.weight, self.norm.bias, out, M, N, 1e-5, BLOCK=triton.next_power_of_2(N))
        return out
