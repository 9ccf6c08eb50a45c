import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, stride, w_ptr, out_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / N + eps)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * stride + columns, mask=mask).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=mask).to(tl.float32)
        tl.store(out_ptr + row * N + columns, x * scale * w, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(features, dtype=torch.float16)), eps

    def forward(self, x):
        x = x if x.stride(1) == 1 else x.contiguous()
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        norm_kernel[(x.shape[0],)](x, x.stride(0), self.weight, out, x.shape[1], self.eps, BLOCK=128)
        return out
