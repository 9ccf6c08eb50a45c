import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"ROWS": 32}), triton.Config({"ROWS": 64}, num_warps=2), triton.Config({"ROWS": 128})],
    key=["L", "N"],
    restore_value=["out_ptr"],
)
@triton.jit
def mean_kernel(x_ptr, out_ptr, L, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)
    mask = (rows < L) & (columns[None, :] < N)
    x = tl.load(x_ptr + (batch * L + rows) * N + columns[None, :], mask=mask, other=0.0)
    tl.atomic_add(out_ptr + batch * N + columns, tl.sum(x, 0) / L, mask=columns < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        B, L, N = x.shape
        out = torch.zeros(B, N, dtype=x.dtype, device=x.device)
        grid = lambda meta: (B, triton.cdiv(L, meta["ROWS"]))  # noqa: E731
        mean_kernel[grid](x.contiguous(), out, L, N, BLOCK=triton.next_power_of_2(N))
        return out
