import torch


class ModelNew(torch.nn.Module):
    """Leaves the bias out."""

    def __init__(self, features, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(features, outputs)

    def forward(self, x):
        return torch.nn.functional.gelu(x @ self.linear.weight.t())
