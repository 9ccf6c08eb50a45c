import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)[None, :]
    for start in range(tl.program_id(0) * ROWS, M, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        mask = (rows < M) & (columns < N)
        x = tl.load(x_ptr + rows * N + columns, mask=mask, other=float("-inf"))
        x = x - tl.where(rows < M, tl.max(x, 1)[:, None], 0.0)
        e = tl.exp(x)
        tl.store(out_ptr + rows * N + columns, e / tl.sum(e, 1)[:, None], mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        softmax_kernel[(4,)](x, out, x.shape[0], x.shape[1], ROWS=2, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
