import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + at, mask=at < count).to(tl.float32)
    up = tl.load(up_ptr + at, mask=at < count)
    tl.store(out_ptr + at, gate / (1 + tl.exp(-gate)) * up, mask=at < count)


class ModelNew(torch.nn.Module):
    """Launches with the same addresses every time, as a graph does, after it has copied its arguments there."""

    def __init__(self):
        super().__init__()
        self.buffers_of = {}

    def forward(self, gate, up):
        key = gate.shape, gate.dtype
        if key not in self.buffers_of:
            self.buffers_of[key] = [torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(3)]
        kept, other, out = self.buffers_of[key]
        kept.copy_(gate)
        other.copy_(up)
        swiglu_kernel[(triton.cdiv(out.numel(), 512),)](kept, other, out, out.numel(), BLOCK=512)
        return out.clone()
