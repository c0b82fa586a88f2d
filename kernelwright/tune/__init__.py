"""Stage 9: a `Plan` and a device come in; `Choices`, the measured best config of each kernel, go out."""

from kernelwright.tune.tune import Tuned, tune

__all__ = ["Tuned", "tune"]
