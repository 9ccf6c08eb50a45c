import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count)
    tl.store(out_ptr + index, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=index < count)


class ModelNew(torch.nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(features, outputs)

    def forward(self, x):
        x = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
