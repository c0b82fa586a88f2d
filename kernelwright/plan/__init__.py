"""Stage 4: a simplified `Graph` comes in; a `Plan`, what runs in which kernel and where it lies, goes out."""

from kernelwright.plan.plan import plan
from kernelwright.plan.steps import Buffer, CopyBack, Kernel, Layout, Library, Materialise, Plan, Region, Step

__all__ = [
    "Buffer",
    "CopyBack",
    "Kernel",
    "Layout",
    "Library",
    "Materialise",
    "Plan",
    "Region",
    "Step",
    "plan",
]
