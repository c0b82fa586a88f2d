"""Stage 2: a `Problem` comes in; its `Graph`, traced by torch.export, goes out."""

from kernelwright.capture.capture import capture

__all__ = ["capture"]
