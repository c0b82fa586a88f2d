"""Stage 5: a `Plan` comes in; a `Program`, CUDA or C++ text and launch steps, goes out. Same in, same bytes out."""

from kernelwright.generate.generate import default_choices, generate
from kernelwright.generate.program import Launch, Program, Source
from kernelwright.kernels.choices import Choice

__all__ = ["Choice", "Launch", "Program", "Source", "default_choices", "generate"]
