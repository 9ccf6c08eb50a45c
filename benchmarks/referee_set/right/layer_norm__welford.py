import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, N, eps, BLOCK: tl.constexpr):
    """The blocks' means and squares are joined by Chan's rule."""
    row = tl.program_id(0)
    count, mean, squares = 0.0, 0.0, 0.0
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
        size = tl.minimum(N - start, BLOCK).to(tl.float32)
        own = tl.sum(x, 0) / size
        centred = tl.where(columns < N, x - own, 0.0)
        delta = own - mean
        squares += tl.sum(centred * centred, 0) + delta * delta * count * size / (count + size)
        mean += delta * size / (count + size)
        count += size
    scale = tl.rsqrt(squares / N + eps)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < N
        x = tl.load(x_ptr + row * N + columns, mask=mask)
        w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
        tl.store(out_ptr + row * N + columns, (x - mean) * scale * w + b, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        norm_kernel[(x.shape[0],)](x, self.norm.weight, self.norm.bias, out, x.shape[1], 1e-5, BLOCK=64)
        return out
