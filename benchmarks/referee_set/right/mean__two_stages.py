import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, L, N, divisor, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums ROWS rows at a time; the second launch sums the sums of the first."""
    batch, part = tl.program_id(0), tl.program_id(1)
    rows = part * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)
    mask = (rows < L) & (columns[None, :] < N)
    x = tl.load(x_ptr + (batch * L + rows) * N + columns[None, :], mask=mask, other=0.0)
    out = out_ptr + (batch * tl.num_programs(1) + part) * N + columns
    tl.store(out, tl.sum(x, 0) / divisor, mask=columns < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        B, L, N = x.shape
        parts, block = triton.cdiv(L, 64), triton.next_power_of_2(N)
        partial = x.new_empty(B, parts, N)
        sum_kernel[(B, parts)](x.contiguous(), partial, L, N, 1.0, ROWS=64, BLOCK=block)
        out = x.new_empty(B, N)
        rows = triton.next_power_of_2(parts)
        sum_kernel[(B, 1)](partial, out, parts, N, float(L), ROWS=rows, BLOCK=block)
        return out
