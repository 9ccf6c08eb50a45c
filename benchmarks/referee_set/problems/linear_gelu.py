import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


batch = 64
features = 96
outputs = 128


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features, outputs]
