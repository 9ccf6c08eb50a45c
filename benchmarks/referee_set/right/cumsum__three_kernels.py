import torch
import triton
import triton.language as tl


@triton.jit
def local_kernel(x_ptr, out_ptr, sums_ptr, N, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
    tl.store(out_ptr + row * N + columns, tl.cumsum(x, 0), mask=columns < N)
    tl.store(sums_ptr + row * tl.num_programs(1) + part, tl.sum(x, 0))


@triton.jit
def offset_kernel(out_ptr, offsets_ptr, N, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    place = out_ptr + row * N + columns
    offset = tl.load(offsets_ptr + row * tl.num_programs(1) + part)
    tl.store(place, tl.load(place, mask=columns < N) + offset, mask=columns < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        M, N = x.shape
        out, sums = torch.empty_like(x), x.new_empty(M, triton.cdiv(N, 64))
        local_kernel[tuple(sums.shape)](x, out, sums, N, BLOCK=64)
        offset_kernel[tuple(sums.shape)](out, (sums.cumsum(1) - sums).contiguous(), N, BLOCK=64)
        return out
