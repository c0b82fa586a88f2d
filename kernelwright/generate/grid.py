"""A `Region` comes in; the same region over as few axes as possible, split into rows and columns, goes out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.ir.nodes import Shape
from kernelwright.kernels.pointwise import Work
from kernelwright.plan import Layout, Region


@dataclass(frozen=True, slots=True)
class Access:
    """How one operand is reached: strides of the outer axes, stride along the columns, offset."""

    layout: Layout
    outer: Shape
    inner: int
    offset: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Outer axes, whose product is the number of rows, and the columns that vectors run along."""

    outer: Shape
    columns: int
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]

    @property
    def rows(self) -> int:
        return math.prod(self.outer)

    @property
    def wide_index(self) -> bool:
        """Whether an element's number needs 64 bits; a block may run past the end, so leave it room."""
        reach = max((extent_of(a, self) for a in (*self.loads, *self.stores)), default=0)
        return max(reach, self.rows * self.columns) >= 2**31 - 2**20


def extent_of(access: Access, grid: Grid) -> int:
    reach = sum((n - 1) * abs(s) for n, s in zip(grid.outer, access.outer, strict=True))
    return access.offset + reach + (grid.columns - 1) * abs(access.inner)


def grid_of(region: Region) -> Grid:
    layouts = [layout for _, layout in region.loads] + [layout for _, layout in region.stores]
    axes = merged_axes(region.shape, [layout.strides for layout in layouts])
    *outer, (columns, strides) = axes or [(1, (0,) * len(layouts))]
    accesses = [
        Access(layout, tuple(s[i] for _, s in outer), strides[i], layout.offset) for i, layout in enumerate(layouts)
    ]
    split = len(region.loads)
    return Grid(tuple(n for n, _ in outer), columns, tuple(accesses[:split]), tuple(accesses[split:]))


def merged_axes(shape: Shape, strides: list[Shape]) -> list[tuple[int, Shape]]:
    """(extent, stride of each operand), outermost first: neighbours merge where one stride walks through both for all."""
    axes: list[tuple[int, Shape]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        own = tuple(s[axis] for s in strides)
        if axes and all(before == now * extent for before, now in zip(axes[-1][1], own, strict=True)):
            axes[-1] = (axes[-1][0] * extent, own)
        else:
            axes.append((extent, own))
    return axes


def work_of(region: Region, grid: Grid) -> Work:
    """What the template needs to know to rank its configs."""
    vectors = [a for a in (*grid.loads, *grid.stores) if a.inner == 1]
    starts = [n for a in vectors for n in (*a.outer, a.offset) if n]
    itemsizes = tuple(a.layout.buffer.dtype.itemsize for a in vectors)
    return Work(
        rows=grid.rows,
        columns=grid.columns,
        itemsizes=itemsizes or (4,),
        alignments=tuple(sorted(set(starts))),
        bytes_moved=region.bytes_moved,
        operands=len(grid.loads),
    )
