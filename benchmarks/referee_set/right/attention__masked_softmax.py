import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(s_ptr, L, scale, BLOCK: tl.constexpr):
    """Overwrites the scores of a query by their causal softmax."""
    row = tl.program_id(0)
    keys = tl.arange(0, BLOCK)
    s = tl.load(s_ptr + row * L + keys, mask=keys <= row % L, other=float("-inf")) * scale
    p = tl.exp(s - tl.max(s, 0))
    tl.store(s_ptr + row * L + keys, p / tl.sum(p, 0), mask=keys < L)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        H, L, D = q.shape
        scores = torch.matmul(q, k.transpose(-1, -2)).contiguous()
        softmax_kernel[(H * L,)](scores, L, D**-0.5, BLOCK=triton.next_power_of_2(L))
        return torch.matmul(scores, v)
