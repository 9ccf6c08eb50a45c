"""The feed-forward layer of targets/feed_forward.py by PyTorch's own operations, whose bits depend on the batch.

Its drift stays inside the envelope (`fuzz drift targets/torch_eager/feed_forward.py`). `fuzz run` finds what
disagreeing.py tells of layer norm: NaN where the variance overflows.
"""

import torch
from torch.nn import functional

from fuzz import option, size, target, tensor

M, E, H = size("M", 1, 1024), size("E", 1, 1024), size("H", 1, 1024)
EPS = 1e-5


def normed(x, weight, bias):
    apart = x - x.mean(-1, keepdim=True)
    return apart / torch.sqrt((apart * apart).mean(-1, keepdim=True) + EPS) * weight + bias


def reference(x, weight1, bias1, up, up_bias, down, down_bias, weight2, bias2, residual):
    inner = normed(x, weight1, bias1) @ up + up_bias
    inner = inner * (0.5 * torch.special.erfc(-inner * 0.7071067811865476))
    y = normed(inner @ down + down_bias, weight2, bias2)
    return dict(y=x + y if residual else y)


@target(
    x=tensor(M, E),
    weight1=tensor(E),
    bias1=tensor(E),
    up=tensor(E, H),
    up_bias=tensor(H),
    down=tensor(H, E),
    down_bias=tensor(E),
    weight2=tensor(E),
    bias2=tensor(E),
    residual=option(True, False),
    dtypes=("float32",),
    batch=M,
    invariance="envelope",
    reference=reference,
)
def feed_forward_eager(x, weight1, bias1, up, up_bias, down, down_bias, weight2, bias2, residual):
    width = (x.shape[-1],)
    inner = functional.gelu(functional.layer_norm(x, width, weight1, bias1, EPS) @ up + up_bias)
    y = functional.layer_norm(inner @ down + down_bias, width, weight2, bias2, EPS)
    return dict(y=x + y if residual else y)
