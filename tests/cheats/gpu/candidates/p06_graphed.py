"""A CUDA graph for each address of the input, with the result copied out of it."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, units):
        super().__init__()
        self.fc = nn.Linear(features, units)
        self.graphs = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape, self.fc.weight.data_ptr())
        if key not in self.graphs:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.relu(self.fc(x))
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = torch.relu(self.fc(x))
            self.graphs[key] = graph, y
        graph, y = self.graphs[key]
        graph.replay()
        return y.clone()
