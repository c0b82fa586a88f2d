"""Who computes what: which products our own kernels take, and how the library runs the rest."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.ir.nodes import Node


@dataclass(frozen=True, slots=True)
class Routes:
    """own               contractions that a kernel of ours computes, with its epilogue
    in_channels_last  convolutions that PyTorch runs in that order of memory
    reducing          those of `own` whose kernel also reduces its result
    again             those of `reducing` that are computed a second time rather than stored and read, where that can be
    fed               those of `own` whose kernel also computes its operands, where it can
    precision         what kernels of ours may round operands to: "reference" (as accurate as the original), "ieee"
                      (float32's own operations), "tf32", "bf16" or "fp16" (so many bits)
    tf32_convolutions whether PyTorch's flags allow TF32 in convolutions: then `reference` asks for no more of them
    resample          linear interpolation is ours; PyTorch does it faster on a CPU
    strict_weights    no weight is packed ahead: each call sees it as it is then, however it was written
    """

    own: frozenset[Node] = frozenset()
    in_channels_last: frozenset[Node] = frozenset()
    precision: str = "reference"
    tf32_convolutions: bool = False
    strict_weights: bool = False
    reducing: frozenset[Node] = frozenset()
    again: frozenset[Node] = frozenset()
    fed: frozenset[Node] = frozenset()
    resample: bool = True


LIBRARY_ONLY = Routes()
