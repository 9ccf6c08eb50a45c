import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, gate, up):
        return nn.functional.silu(gate) * up


batch = 64
hidden = 1000


def get_inputs():
    return [torch.randn(batch, hidden), torch.randn(batch, hidden)]


def get_init_inputs():
    return []
