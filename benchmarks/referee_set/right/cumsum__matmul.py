import torch


class ModelNew(torch.nn.Module):
    """Sums of blocks of 32 by a triangular matrix, and their offsets by a loop."""

    def forward(self, x):
        M, N = x.shape
        padded = torch.nn.functional.pad(x, (0, -N % 32)).reshape(M, -1, 32)
        inside = padded @ torch.ones(32, 32, dtype=x.dtype, device=x.device).triu()
        carry = torch.zeros(M, 1, dtype=x.dtype, device=x.device)
        for part in range(inside.shape[1]):
            inside[:, part] += carry
            carry = inside[:, part, -1:]
        return inside.reshape(M, -1)[:, :N].contiguous()
