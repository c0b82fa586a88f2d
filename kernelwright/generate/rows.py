"""A `Region` that reduces comes in; how a kernel walks over its rows, with as few axes as possible, goes out.

Every reduced element of a row is one of its columns.

along    neighbours in memory lie in one row: vectors run along the columns
across   neighbours in memory lie in different rows: each lane of a vector is a row of its own
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernelwright.generate.grid import Access, Bound, Grid, layouts_of, merged_axes, parted
from kernelwright.ir.nodes import Reduce, Shape
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.plan import Layout, Region

# A row of fewer neighbours than this is walked over by the lanes of other rows, if those have more neighbours.
SHORT_LINE = 16


@dataclass(frozen=True, slots=True)
class RowAccess(Access):
    """`outer` are the strides of the kept axes, `reduced` of the others; `inner` is that of the lanes of a vector."""

    reduced: Shape
    across: bool

    @property
    def strides(self) -> Shape:
        return (*self.outer, *self.reduced)

    @property
    def is_of_row(self) -> bool:
        """One value for all columns."""
        return not any(self.reduced) and not any(any(b.strides[len(self.outer) :]) for b in self.bounds)

    @property
    def is_uniform(self) -> bool:
        """One value for all lanes."""
        return self.inner == 0 and not any(self.lane_stride(bound) for bound in self.bounds)

    def lane_stride(self, bound: Bound) -> int:
        return bound.strides[len(self.outer) - 1 if self.across else -1]


@dataclass(frozen=True, slots=True)
class RowGrid(Grid):
    """Kept axes, whose product is the number of rows, and reduced ones, whose product is the number of columns.

    `places` are the weights of the reduced coordinates in an element's number within its row, as argmax counts.
    """

    across: bool
    reduced: Shape
    places: Shape

    @property
    def axes(self) -> Shape:
        return (*self.outer, *self.reduced)

    @property
    def wide_index(self) -> bool:
        """Whether a row's or a column's number needs 64 bits, or a place along a line with borders; offsets in memory
        have them in any case."""
        extents = (bound.extent for access in self.loads for bound in access.bounds)
        return max(self.rows, self.columns, *extents) >= 2**31 - 2**23

    @property
    def line(self) -> int:
        """How many neighbours there are before memory jumps: what a vector must not run past."""
        axes = self.outer if self.across else self.reduced
        return axes[-1] if axes else 1


def row_grid(region: Region) -> RowGrid:
    layouts = layouts_of(region)
    order = axes_in_memory_order(region.shape, [own_strides(layout) for layout in layouts], layouts)
    kept, reduced = axes_of(region, order)
    inner = next(axis for axis in reversed(order) if region.shape[axis] > 1)
    short = bool(kept) and reduced[-1][0] < SHORT_LINE < kept[-1][0]
    return grid_over(region, kept, reduced, across=inner not in region.axes or short)


def tile_grid(region: Region, across: bool) -> RowGrid:
    """Rows and columns as the region's own axes count them, since a tile comes by those."""
    kept, reduced = axes_of(region, range(len(region.shape)))
    still: Shape = (0,) * len(layouts_of(region))  # no step is taken along an axis of one element
    return grid_over(region, kept or [(1, still)], reduced or [(1, (*still, 0))], across)


def axes_of(region: Region, order: Sequence[int]) -> tuple[list[tuple[int, Shape]], list[tuple[int, Shape]]]:
    """The kept axes and the reduced ones in this order, each with the strides of all operands and guards."""
    strides = [own_strides(layout) for layout in layouts_of(region)]
    strides += [guard.strides for layout in layouts_of(region) for guard in layout.guards]
    kept = merged([axis for axis in order if axis not in region.axes], region.shape, strides)
    reduced = merged([axis for axis in order if axis in region.axes], region.shape, [*strides, place_strides(region)])
    return kept, reduced


def grid_over(
    region: Region, kept: Sequence[tuple[int, Shape]], reduced: Sequence[tuple[int, Shape]], across: bool
) -> RowGrid:
    accesses = accesses_of(layouts_of(region), kept, reduced, across)
    loads, stores, sources = parted(region, accesses)
    return RowGrid(
        walk="rows",
        outer=tuple(n for n, _ in kept),
        depth=1,
        columns=math.prod(n for n, _ in reduced),
        loads=loads,
        stores=stores,
        sources=sources,
        across=across,
        reduced=tuple(n for n, _ in reduced),
        places=tuple(s[-1] for _, s in reduced),
    )


def merged(axes: Sequence[int], shape: Shape, strides: Sequence[Shape]) -> list[tuple[int, Shape]]:
    """These axes in this order, as few as serve all operands."""
    return merged_axes(picked(shape, axes), [picked(s, axes) for s in strides])


def accesses_of(
    layouts: Sequence[Layout], kept: Sequence[tuple[int, Shape]], reduced: Sequence[tuple[int, Shape]], across: bool
) -> list[RowAccess]:
    def strides(form: int) -> tuple[Shape, Shape]:
        return tuple(s[form] for _, s in kept), tuple(s[form] for _, s in reduced)

    accesses = []
    form = len(layouts)
    for number, layout in enumerate(layouts):
        outer, columns = strides(number)
        bounds = []
        for guard in layout.guards:
            bounds.append(Bound(sum(strides(form), ()), guard.offset, guard.extent))
            form += 1
        inner = (outer if across else columns)[-1]
        accesses.append(RowAccess(layout, outer, 0, inner, layout.offset, columns, across, bounds=tuple(bounds)))
    return accesses


def own_strides(layout: Layout) -> Shape:
    """0 along axes that no step is taken on: those of extent 1, and the reduced ones of a row's result."""
    return tuple(stride if n > 1 else 0 for n, stride in zip(layout.shape, layout.strides, strict=True))


def axes_in_memory_order(shape: Shape, strides: Sequence[Shape], layouts: Sequence[Layout]) -> list[int]:
    """From the largest step to the smallest, as most of the bytes lie; where they tell nothing, in their own order."""
    heaviest = sorted(range(len(layouts)), key=lambda i: -layouts[i].touched_bytes)

    def step(axis: int) -> int:
        return next((abs(strides[i][axis]) for i in heaviest if strides[i][axis]), math.prod(shape[axis:]))

    return sorted(range(len(shape)), key=lambda axis: -step(axis))


def place_strides(region: Region) -> Shape:
    """For argmax and argmin, what a step along each axis adds to the number of the element; else nothing."""
    reduces = [node for node in region.body if isinstance(node, Reduce)]
    if all(REDUCTIONS[node.fn].result == "same" for node in reduces):
        return (0,) * len(region.shape)
    below = {axis: math.prod(region.shape[later] for later in region.axes if later > axis) for axis in region.axes}
    return tuple(below.get(axis, 0) for axis in range(len(region.shape)))


def picked(values: Shape, axes: Sequence[int]) -> Shape:
    return tuple(values[axis] for axis in axes)


def is_dense(extents: Shape, strides: Shape, unit: int) -> bool:
    """Whether the elements follow each other `unit` apart, in the order in which the axes count them."""
    steps = [*(s for n, s in zip(extents, strides, strict=True) if n > 1), unit]
    sizes = [n for n in extents if n > 1]
    inner = [*sizes[1:], 1] if sizes else []
    return all(now == after * n for (now, after), n in zip(pairwise(steps), inner, strict=True))
