import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)


batch = 64
classes = 1000


def get_inputs():
    return [torch.randn(batch, classes), torch.randint(0, classes, (batch,))]


def get_init_inputs():
    return []
