import torch


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        chosen = logits.gather(1, labels[:, None])[:, 0]
        return (torch.logsumexp(logits, dim=1) - chosen).mean()
