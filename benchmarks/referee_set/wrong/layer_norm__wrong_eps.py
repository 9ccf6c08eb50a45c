import torch


class ModelNew(torch.nn.Module):
    """Adds eps to the deviation instead of the variance."""

    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.LayerNorm(features)

    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        deviation = centred.square().mean(dim=-1, keepdim=True).sqrt()
        return centred / (deviation + self.norm.eps) * self.norm.weight + self.norm.bias
