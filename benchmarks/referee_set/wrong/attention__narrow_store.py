import torch


class ModelNew(torch.nn.Module):
    """Keeps the probabilities in bfloat16."""

    def forward(self, q, k, v):
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        p = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1).bfloat16()
        return torch.bmm(p.to(v.dtype), v)
