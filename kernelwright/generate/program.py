"""What generate makes: the source of all kernels and the steps that run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_shape import ConvShape
from kernelwright.kernels.gemm_shape import Gemm
from kernelwright.kernels.pointwise import Work
from kernelwright.kernels.reduce import RowWork
from kernelwright.kernels.scan import ScanWork
from kernelwright.plan import Buffer, CopyBack, Kernel, Library, Materialise, Plan


@dataclass(frozen=True, slots=True)
class Source:
    """One kernel as text: the struct, the template that runs it, the launching expression, the functions they need.

    `arithmetic` says how a contraction multiplies and adds, in words. `twin_of` is the kernel whose text it is launched
    by, where it has none of its own.
    """

    kernel: Kernel
    work: Work | RowWork | ScanWork | Gemm | ConvShape
    choice: Choice
    formula: str
    struct: str
    template: str
    call: str
    needs: tuple[str, ...]
    arithmetic: str = ""
    twin_of: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A run of consecutive kernels behind one C entry. `pointers` are its arguments, in order."""

    entry: str
    sources: tuple[Source, ...]
    pointers: tuple[Buffer, ...]
    allocations: tuple[Buffer, ...]
    aliases: tuple[tuple[Buffer, str], ...]


ProgramStep: TypeAlias = Launch | Library | Materialise | CopyBack


@dataclass(frozen=True, slots=True)
class Program:
    """Everything the emitted file needs: the C++ or CUDA text, and the steps of forward() in order."""

    plan: Plan
    target: str
    text: str
    steps: tuple[ProgramStep, ...]
    capability: tuple[int, int] = (0, 0)  # of the GPU it was generated for
    algebra: tuple[str, ...] = ()  # rules that made less work of the model, in words

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The calls of kernels; a step whose results are all empty makes none."""
        return tuple(step for step in self.steps if isinstance(step, Launch) and step.sources)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for launch in self.launches for source in launch.sources)
