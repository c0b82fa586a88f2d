"""A `Region` comes in; how a kernel walks over it, with as few axes as possible, goes out.

Rows    rows and columns: vectors run along the columns. What the CPU always does.
Flat    one long row, for rows that vectors do not divide: dense operands are read in vectors across the ends of
        rows, and the coordinates of the others are computed for each element.
Tiles   rows, depth and columns: an operand whose neighbours lie along the depth, while results lie along the
        columns, is turned around in shared memory.
Bricks  rows, height, depth and columns: the same where operands lie along two axes that are not the results'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from kernelwright.ir.nodes import Const, Gather, Iota, Map, Node, Shape
from kernelwright.kernels.pointwise import Walk, Work
from kernelwright.plan import Layout, Region
from kernelwright.plan.layouts import base_of
from kernelwright.plan.steps import Origin

# Fewer elements than this are not worth a tile, or a computed coordinate.
LARGE = 1 << 16

# Rows shorter than this are joined on a CPU, unless vectors fill them: seen 4 to 8 times faster for 7 to 33 columns.
SHORT_ROW = 64

# An axis shorter than this fills no tile.
TILE_EXTENT = 8

# So many tiles of 32 by 32 elements of 8 bytes each fit into a block's shared memory.
MOST_TURNED = 5

# Of so many operands do the registers of a thread hold their share of the smallest brick: 2 elements of 8 bytes each.
MOST_HELD = 12


@dataclass(frozen=True, slots=True)
class Bound:
    """There is an element only where 0 <= offset + sum(i * strides) < extent; strides as those of the access."""

    strides: Shape
    offset: int
    extent: int
    picks: Shape = ()  # of a Gather's source: the strides of its indices


@dataclass(frozen=True, slots=True)
class Access:
    """How one operand is reached: strides of the outer axes, along the depth and along the columns, and the offset."""

    layout: Layout
    outer: Shape
    depth: int
    inner: int
    offset: int
    bounds: tuple[Bound, ...] = field(default=(), kw_only=True)
    picks: Shape = field(default=(), kw_only=True)  # of a Gather's source: the strides of its indices

    @property
    def strides(self) -> Shape:
        return (*self.outer, self.depth, self.inner)

    @property
    def is_computed(self) -> bool:
        """An index: no memory is read."""
        return isinstance(self.layout.buffer.source, Iota)

    @property
    def is_vector(self) -> bool:
        """Neighbours can be read at once."""
        return self.inner == 1 and not self.bounds and not self.is_computed

    @property
    def is_uniform(self) -> bool:
        """All columns see one element."""
        return self.inner == 0 and not any(bound.strides[-1] for bound in self.bounds)


@dataclass(frozen=True, slots=True)
class Grid:
    """Outer axes, whose product is the number of rows, the depth (1 but for Tiles), and the columns."""

    walk: Walk
    outer: Shape
    depth: int
    columns: int
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    sources: tuple[Access, ...] = field(default=(), kw_only=True)

    @property
    def rows(self) -> int:
        return math.prod(self.outer)

    @property
    def axes(self) -> Shape:
        return (*self.outer, self.depth, self.columns)

    @property
    def wide_index(self) -> bool:
        """Whether an element's number needs 64 bits; a block may run past the end, so leave it room."""
        reach = max((self.reach(a) for a in (*self.loads, *self.stores, *self.sources)), default=0)
        return max(reach, math.prod(self.axes)) >= 2**31 - 2**20

    def has_narrow_places(self, bound: Bound) -> bool:
        """Whether 32 bits hold every place that is compared with the bound, inside or not."""
        reach = abs(bound.offset) + sum(abs(s) * n for n, s in zip(self.axes, bound.strides, strict=True))
        return not bound.picks and not self.wide_index and max(reach, bound.extent) < 2**31 - 2**20

    def reach(self, access: Access) -> int:
        return access.offset + sum((n - 1) * abs(s) for n, s in zip(self.axes, access.strides, strict=True))

    def is_dense(self, access: Access) -> bool:
        """Whether the operand's elements lie in the order in which the grid counts them."""
        if access.bounds or access.is_computed:
            return False
        expected = 1
        for extent, stride in zip(reversed(self.axes), reversed(access.strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True


@dataclass(frozen=True, slots=True)
class BrickAccess(Access):
    """An access with a stride along the height."""

    height: int

    @property
    def lies_along(self) -> Literal["columns", "depth", "height"] | None:
        """The axis along which neighbours lie side by side; None if no vector can be read."""
        if self.inner in (0, 1):
            return "columns" if self.inner == 1 else None
        return "depth" if self.depth == 1 else "height" if self.height == 1 else None

    @property
    def strides(self) -> Shape:
        return (*self.outer, self.height, self.depth, self.inner)


@dataclass(frozen=True, slots=True)
class BrickGrid(Grid):
    """Outer axes, the height, the depth and the columns; every access is a `BrickAccess`."""

    height: int

    @property
    def axes(self) -> Shape:
        return (*self.outer, self.height, self.depth, self.columns)

    @property
    def wide_index(self) -> bool:
        """Always: a thread's vectors lie at known distances, which nvcc adds to one address of 64 bits, not of 32."""
        return True


def grid_of(region: Region, kind: str) -> Grid:
    """The walk that suits the operands and the device, of which `kind` is known: a CPU has no use for tiles."""
    grid = rows_grid(region)
    if kind == "cpu":
        return flat_grid(grid) if is_short(grid) and can_be_flat(grid) else grid
    if math.prod(region.shape) < LARGE:
        return grid
    turned = bricks_grid(grid) or tiles_grid(grid)
    return turned or (flat_grid(grid) if grid.columns % 4 and can_be_flat(grid) else grid)


def is_short(grid: Grid) -> bool:
    """Rows that fill few vectors of a CPU: of 20 columns, one pass is a vector and four are single elements."""
    return grid.columns < SHORT_ROW and grid.columns % 16 != 0


def rows_grid(region: Region) -> Grid:
    layouts = layouts_of(region)
    forms = [layout.strides for layout in layouts] + [guard.strides for layout in layouts for guard in layout.guards]
    *outer, (columns, inner) = merged_axes(region.shape, forms) or [(1, (0,) * len(forms))]
    bound = iter([(*(s[i] for _, s in outer), 0, inner[i]) for i in range(len(layouts), len(forms))])
    accesses = [
        Access(
            layout,
            tuple(s[i] for _, s in outer),
            0,
            inner[i],
            layout.offset,
            bounds=tuple(Bound(next(bound), guard.offset, guard.extent) for guard in layout.guards),
        )
        for i, layout in enumerate(layouts)
    ]
    loads, stores, sources = parted(region, accesses)
    return Grid("rows", tuple(n for n, _ in outer), 1, columns, loads, stores, sources=sources)


def layouts_of(region: Region) -> list[Layout]:
    """Where everything lies that the region reads and writes: its loads, its stores, what it picks from."""
    sources = [source.layout for _, source in region.sources]
    return [*(layout for _, layout in region.loads), *(layout for _, layout in region.stores), *sources]


AnyAccess = TypeVar("AnyAccess", bound=Access)


def parted(
    region: Region, accesses: Sequence[AnyAccess]
) -> tuple[tuple[AnyAccess, ...], tuple[AnyAccess, ...], tuple[AnyAccess, ...]]:
    """Accesses in the order of `layouts_of` as loads, stores and sources, these with the strides of their indices."""
    first, second = len(region.loads), len(region.loads) + len(region.stores)
    origins = [origin for _, origin in region.sources]
    sources = tuple(picking(access, origin) for access, origin in zip(accesses[second:], origins, strict=True))
    return tuple(accesses[:first]), tuple(accesses[first:second]), sources


def picking(access: AnyAccess, origin: Origin) -> AnyAccess:
    """The access with the strides of the indices, in memory and in what is guarded."""
    bounds = tuple(replace(b, picks=own) for b, own in zip(access.bounds, origin.guarded, strict=True))
    return replace(access, picks=origin.strides, bounds=bounds)


def picked_in_vectors(region: Region, grid: Grid) -> list[Access]:
    """The sources whose neighbours are picked at once: they lie side by side, and all lanes have one index."""
    if grid.walk == "flat":
        return []
    uniform = uniform_nodes(region, grid, lambda access: access.is_uniform)
    return [
        access
        for (node, _), access in zip(region.sources, grid.sources, strict=True)
        if access.inner == 1 and not access.bounds and all(is_one_of(x, uniform) for x in node.indices)
    ]


def uniform_nodes(region: Region, grid: Grid, is_uniform: Callable[[Access], bool]) -> set[Node]:
    """What all lanes of a vector have in common: loads, and what is computed of those and of constants."""
    uniform: set[Node] = {x for (x, _), access in zip(region.loads, grid.loads, strict=True) if is_uniform(access)}
    sources = {node: access for (node, _), access in zip(region.sources, grid.sources, strict=True)}
    for node in region.body:
        if isinstance(node, Map) and all(is_one_of(x, uniform) for x in node.args):
            uniform.add(node)
        if isinstance(node, Gather) and is_uniform(sources[node]) and all(is_one_of(x, uniform) for x in node.indices):
            uniform.add(node)
    return uniform


def is_one_of(x: Node, uniform: set[Node]) -> bool:
    return x in uniform or isinstance(base_of(x), Const)


def merged_axes(shape: Shape, strides: list[Shape]) -> list[tuple[int, Shape]]:
    """(extent, stride of each operand), outermost first; neighbours merge where one stride serves both, for all."""
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


def turned_axes(grid: Grid) -> list[int]:
    """The outer axis that each scattered operand lies along; none where tiles cannot be."""
    if grid.sources or any(a.inner != 1 for a in grid.stores) or any(a.bounds or a.is_computed for a in grid.loads):
        return []
    scattered = [a for a in grid.loads if a.inner not in (0, 1)]
    return [i for a in scattered for i, stride in enumerate(a.outer) if stride == 1]


def bricks_grid(grid: Grid) -> Grid | None:
    """The same with the two axes that most scattered operands lie along as depth and height; None if there is one."""
    turned = [axis for axis in turned_axes(grid) if grid.outer[axis] >= TILE_EXTENT]
    axes = sorted(sorted(set(turned)), key=turned.count, reverse=True)[:2]
    if len(axes) < 2 or grid.columns < TILE_EXTENT or len(grid.loads) > MOST_HELD:
        return None
    depth, height = axes
    if turned.count(depth) + turned.count(height) > MOST_TURNED:
        return None

    def outer(of: Shape) -> Shape:
        return tuple(n for axis, n in enumerate(of) if axis not in axes)

    def brick(a: Access) -> BrickAccess:
        return BrickAccess(a.layout, outer(a.outer), a.outer[depth], a.inner, a.offset, a.outer[height])

    loads, stores = tuple(map(brick, grid.loads)), tuple(map(brick, grid.stores))
    if not any(a.lies_along == "height" for a in loads):
        return None  # windows that overlap lie along two axes, and one of them is enough
    return BrickGrid("bricks", outer(grid.outer), grid.outer[depth], grid.columns, loads, stores, grid.outer[height])


def tiles_grid(grid: Grid) -> Grid | None:
    """The same with the axis that most scattered operands lie along as depth; None if none is scattered."""
    depths = turned_axes(grid)
    if not depths:
        return None
    axis = max(sorted(set(depths)), key=depths.count)
    if min(grid.outer[axis], grid.columns) < TILE_EXTENT or depths.count(axis) > MOST_TURNED:
        return None

    def turned(a: Access) -> Access:
        return Access(a.layout, a.outer[:axis] + a.outer[axis + 1 :], a.outer[axis], a.inner, a.offset)

    loads, stores = tuple(map(turned, grid.loads)), tuple(map(turned, grid.stores))
    return Grid("tiles", grid.outer[:axis] + grid.outer[axis + 1 :], grid.outer[axis], grid.columns, loads, stores)


def can_be_flat(grid: Grid) -> bool:
    """There are rows to join, and every result is dense."""
    return len(grid.outer) > 0 and all(grid.is_dense(a) and not a.offset % 4 for a in grid.stores)


def flat_grid(grid: Grid) -> Grid:
    """One row of everything."""
    return Grid("flat", grid.outer, 1, grid.columns, grid.loads, grid.stores, sources=grid.sources)


def work_of(region: Region, grid: Grid) -> Work:
    """What the template needs to know to rank its configs."""
    if isinstance(grid, BrickGrid):
        return work_of_bricks(region, grid)
    flat = grid.walk == "flat"
    accesses = (*grid.loads, *grid.stores)
    vectors = [a for a in accesses if (grid.is_dense(a) if flat else a.is_vector or a.depth == 1)]
    vectors += picked_in_vectors(region, grid)
    starts = [a.offset for a in vectors] if flat else [n for a in vectors for n in steps_of(a)]
    itemsizes = tuple(a.layout.buffer.dtype.itemsize for a in vectors)
    return Work(
        walk=grid.walk,
        rows=1 if flat else grid.rows,
        depth=grid.depth,
        columns=math.prod(grid.axes) if flat else grid.columns,
        itemsizes=itemsizes or (4,),
        alignments=tuple(sorted({n for n in starts if n})),
        bytes_moved=region.bytes_moved,
        operands=sum(is_turned(a) for a in grid.loads) if grid.walk == "tiles" else len(grid.loads) + len(grid.sources),
        picked=len(grid.sources) - len(picked_in_vectors(region, grid)),
    )


def work_of_bricks(region: Region, grid: BrickGrid) -> Work:
    accesses = [a for a in (*grid.loads, *grid.stores) if isinstance(a, BrickAccess)]
    vectors = [(a, a.lies_along) for a in accesses if a.lies_along]
    starts = [n for a, axis in vectors for n in (*a.outer, *brick_steps(a, axis), a.offset)]
    itemsizes = {
        axis: tuple(a.layout.buffer.dtype.itemsize for a, own in vectors if own == axis)
        for axis in ("columns", "depth", "height")
    }
    return Work(
        walk="bricks",
        rows=grid.rows,
        depth=grid.depth,
        columns=grid.columns,
        itemsizes=itemsizes["columns"],
        alignments=tuple(sorted({n for n in starts if n})),
        bytes_moved=region.bytes_moved,
        operands=len(grid.loads),
        height=grid.height,
        along_depth=itemsizes["depth"],
        along_height=itemsizes["height"],
    )


def brick_steps(access: BrickAccess, axis: str | None) -> list[int]:
    """The steps along the axes of a brick but that from one lane to the next."""
    steps = {"columns": access.inner, "depth": access.depth, "height": access.height}
    return [step for name, step in steps.items() if name != axis]


def steps_of(access: Access) -> list[int]:
    """What must be whole vectors: every step but that from one lane to the next."""
    across_lanes = access.depth if access.inner == 1 else access.inner
    return [*access.outer, across_lanes, *access.picks, access.offset]


def is_turned(access: Access) -> bool:
    """Its neighbours lie along the depth: it goes through a tile."""
    return access.depth == 1 and access.inner not in (0, 1)
