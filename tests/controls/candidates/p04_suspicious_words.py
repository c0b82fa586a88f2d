"""Words that scanners look for: Stream, thread, elapsed_time, allclose, cache, perf_counter, monkeypatch, pass."""

import torch
import torch.nn as nn


class Harmless:
    pass


class ModelNew(nn.Module):
    """Replays nothing from any cache; no cuda.Stream, no threading.Thread, no subprocess, no eval."""

    def forward(self, x):
        try:
            return torch.relu(x) * 2.0
        except RuntimeError as error:
            raise RuntimeError("no fallback to Model(), no sys._getframe()") from error
