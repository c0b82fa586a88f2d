"""Stage 3: a `Graph` comes in; a `Graph` with the same values and less work goes out."""

from kernelwright.simplify.simplify import algebraic_rewrites, simplify

__all__ = ["algebraic_rewrites", "simplify"]
