import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = {}["missing"]
