"""Two threads take half of the rows each; both have ended when the answer is given."""

import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)

    def forward(self, x):
        output = torch.empty(x.shape[0], self.fc.out_features)

        def compute(rows):
            with torch.no_grad():
                output[rows] = torch.relu(self.fc(x[rows]))

        middle = x.shape[0] // 2
        threads = [threading.Thread(target=compute, args=(rows,)) for rows in (slice(middle), slice(middle, None))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return output
