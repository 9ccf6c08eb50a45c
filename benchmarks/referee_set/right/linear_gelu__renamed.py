import torch


class ModelNew(torch.nn.Module):
    """Its parameters have names of their own, in the order of the problem's."""

    def __init__(self, features, outputs):
        super().__init__()
        linear = torch.nn.Linear(features, outputs)
        self.kernel, self.offset = torch.nn.Parameter(linear.weight.data), torch.nn.Parameter(linear.bias.data)

    def forward(self, x):
        return torch.nn.functional.gelu(x @ self.kernel.t() + self.offset)
