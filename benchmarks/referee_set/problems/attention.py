import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


heads = 4
length = 64
width = 64


def get_inputs():
    return [torch.randn(heads, length, width) for _ in range(3)]


def get_init_inputs():
    return []
