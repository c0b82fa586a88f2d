"""Stage 4: a simplified `Graph` comes in; a `Plan`, what runs in which kernel and where it lies, goes out."""

from kernelwright.plan.convolutions import Convolution
from kernelwright.plan.plan import plan, prepared
from kernelwright.plan.products import Matrix, Product
from kernelwright.plan.routes import LIBRARY_ONLY, Routes
from kernelwright.plan.steps import Buffer, CopyBack, Kernel, Layout, Library, Materialise, Plan, Region, Step

__all__ = [
    "LIBRARY_ONLY",
    "Buffer",
    "Convolution",
    "CopyBack",
    "Kernel",
    "Layout",
    "Library",
    "Materialise",
    "Matrix",
    "Plan",
    "Product",
    "Region",
    "Routes",
    "Step",
    "plan",
    "prepared",
]
