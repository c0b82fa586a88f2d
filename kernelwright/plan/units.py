"""What runs at once: a group of Maps and Reduces that share a kernel, or one node that PyTorch computes."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.ir.nodes import Contract, Conv, Gather, Item, Map, Node, Reduce, Scan, Shape, Windows


@dataclass(frozen=True, slots=True)
class Prologue:
    """An operand of a product, `result`, that its kernel computes by these Maps of what it reads, `given`."""

    result: Map
    given: Node
    maps: tuple[Map, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A group of Maps, by itself or after a product or convolution of ours; or such a group over `shape` that reduces
    `axes`, maybe of what its core makes, or of windows of it; or one node that PyTorch computes, maybe with a bias.
    `prologues` compute operands of its core."""

    position: int
    maps: tuple[Map | Gather | Reduce | Scan, ...] = ()
    shape: Shape = ()
    axes: Shape = ()
    core: Contract | Conv | None = None
    library: Node | None = None
    bias: Node | None = None
    biased: Map | None = None
    window: Windows | None = None
    prologues: tuple[Prologue, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What others may read of it."""
        own = (*self.maps, self.core, self.library, self.biased)
        return tuple(n for n in own if n is not None)

    @property
    def operands(self) -> tuple[Node, ...]:
        before = [n for prologue in self.prologues for n in prologue.maps]
        inside = {*self.nodes, *before}
        return tuple(x for n in (*before, *self.nodes) for x in n.operands if x not in inside)


def made_by(node: Node) -> Node:
    """An Item is made by its Opaque."""
    return node.source if isinstance(node, Item) else node
