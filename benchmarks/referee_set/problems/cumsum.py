import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


batch = 16
length = 1024


def get_inputs():
    return [torch.rand(batch, length)]


def get_init_inputs():
    return []
