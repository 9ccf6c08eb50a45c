import torch


class ModelNew(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(features, dtype=torch.float16)), eps

    def forward(self, x):
        y = x.float()
        norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        scale = (norm * norm / x.shape[-1] + self.eps).rsqrt()
        return (y * (scale * self.weight.float())).half()
