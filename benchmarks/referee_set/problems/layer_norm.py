import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


batch = 128
features = 256


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features]
