"""Who computes what: which products our own kernels take, and how the library runs the rest."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.ir.nodes import Node


@dataclass(frozen=True, slots=True)
class Routes:
    """own               contractions that a kernel of ours computes, with its epilogue
    in_channels_last  convolutions that PyTorch runs in that order of memory
    """

    own: frozenset[Node] = frozenset()
    in_channels_last: frozenset[Node] = frozenset()


LIBRARY_ONLY = Routes()
