"""Works on another stream, and joins it as it should."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        current = torch.cuda.current_stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            y = torch.relu(self.fc(x))
        current.wait_stream(self.side)
        y.record_stream(current)
        return y
