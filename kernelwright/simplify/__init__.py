"""Stage 3: a `Graph` comes in; a `Graph` with the same values and less work goes out."""

from kernelwright.simplify.simplify import simplified, simplify

__all__ = ["simplified", "simplify"]
