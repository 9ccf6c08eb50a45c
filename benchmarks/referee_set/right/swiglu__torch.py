import torch


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return torch.sigmoid(gate).mul_(gate).mul_(up)
