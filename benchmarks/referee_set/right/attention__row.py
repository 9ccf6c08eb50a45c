import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, L, D, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """One query at a time, with all keys in one block."""
    row, head = tl.program_id(0), tl.program_id(1) * L * D
    wide, keys = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    q = tl.load(q_ptr + head + row * D + wide, mask=wide < D, other=0.0)
    places = head + keys[:, None] * D + wide[None, :]
    mask = (keys[:, None] <= row) & (wide[None, :] < D)
    k = tl.load(k_ptr + places, mask=mask, other=0.0)
    v = tl.load(v_ptr + places, mask=mask, other=0.0)
    s = tl.where(keys <= row, tl.sum(q[None, :] * k, 1) * scale, float("-inf"))
    p = tl.exp(s - tl.max(s, 0))
    out = tl.sum(p[:, None] * v, 0) / tl.sum(p, 0)
    tl.store(out_ptr + head + row * D + wide, out, mask=wide < D)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        H, L, D = q.shape
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        block, width = triton.next_power_of_2(L), triton.next_power_of_2(D)
        attention_kernel[(L, H)](q, k, v, out, L, D, D**-0.5, BLOCK=block, WIDTH=width)
        return out
