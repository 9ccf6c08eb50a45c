import torch


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return gate.mul_(torch.sigmoid(gate)).mul_(up)
