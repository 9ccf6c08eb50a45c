import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)


batch = 8
length = 1024
features = 32


def get_inputs():
    return [torch.randn(batch, length, features)]


def get_init_inputs():
    return []
