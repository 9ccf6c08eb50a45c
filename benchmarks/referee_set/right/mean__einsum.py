import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ones = torch.ones(x.shape[1], dtype=x.dtype, device=x.device)
        return torch.einsum("bln,l->bn", x, ones) / x.shape[1]
