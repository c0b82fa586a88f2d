"""A `Kernel` that reduces what its core makes comes in; its C++ struct goes out.

It is the struct of a kernel that reduces (reduce.py), but one operand is not loaded: the template gives the sums of the
product. Where a tile has whole rows they are neighbouring rows of one column; where rows lie in pieces, or are windows,
columns of one row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

from kernelwright.generate.grid import Access
from kernelwright.generate.literals import identifier
from kernelwright.generate.phases import phases_of
from kernelwright.generate.reduce import RowsWriter, is_below_one, node_flops, starts_of, state_bytes
from kernelwright.generate.reduce import rows_of as as_rows
from kernelwright.generate.rows import RowAccess, RowGrid, tile_grid
from kernelwright.ir.nodes import Conv, Gather, Map, Node, Reduce, Scan, View
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.ir.scalars import spell_cast
from kernelwright.kernels.conv_shape import TileRows
from kernelwright.plan import Buffer, Kernel, Region, tiles
from kernelwright.plan.tiles import Pieces, pieces_of


class TileRowsWriter(RowsWriter):
    """What all epilogues that reduce share: the sums are given, and nobody writes what is loaded."""

    def grid_of(self, region: Region) -> RowGrid:
        return tile_grid(region, across=is_whole(region))

    def given_text(self, given: Node) -> str:
        """PyTorch would have rounded a 16-bit product before anything is done to it."""
        text = f"x.{self.given_name}[i]"
        return spell_cast(text, given.dtype) if given.dtype.is_reduced_float else text

    @property
    def given_name(self) -> str:
        """Another product may be loaded."""
        names = {name for name, _ in self.accesses}
        return next(name for n in range(len(names) + 1) if (name := f"product{'_' * n}") not in names)

    def goes_forward(self, phase: int) -> bool:
        """Pixels come in the order of the tile."""
        return False

    @property
    def is_placeless(self) -> bool:
        """Whether a step needs nothing of the columns that its sums lie in: no operand, no place, no store."""
        asks = any(re.search(r"\bcolumn\b", line) for line in self.step_body(0))
        return not (self.early or self.late or self.phases.stores_in(0) or asks)

    def operand_fields(self) -> list[str]:
        return [f"kw::Vec<float, N> {self.given_name};", *super().operand_fields()]

    def members(self) -> list[str]:
        head = "template <int N> KW_DEVICE static kw::Vec<float, N>& given(Operands<N>& x)"
        return [*super().members(), "", f"    {head} {{ return x.{self.given_name}; }}"]

    def load_lines(self, target: str, access: Access, declared: str = "") -> list[str]:
        """No kernel writes these while this one runs, so that loads of several steps may be gathered."""
        if access.is_computed:
            return super().load_lines(target, access, declared)
        definition = f"{'const auto ' if declared else ''}{target} = "
        if access.is_uniform:
            return [f"{definition}kw::load_constant<1>({self.address(access)})[0];"]
        if access.inner == 1:
            return [f"{definition}kw::load_constant<N>({self.address(access)});"]
        return [f"{definition}kw::gather<N>({self.address(access)}, {access.inner});"]


class StoredRowsWriter(TileRowsWriter):
    """Rows that are whole in a tile, so that the last phase may store what sees them again."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(replace(kernel, region=opened(kernel.region)))

    def members(self) -> list[str]:
        lines = self.leaving_functions() if leaves_by_rows(self) else []
        lines += self.adding_function() if self.stores_at_once else []
        return [*super().members(), *(["", *(f"    {line}" for line in lines)] if lines else [])]

    @property
    def stores_at_once(self) -> bool:
        """Whether the only phase both reduces and stores; then what it adds to a state is apart too."""
        return self.phases.walks == self.phases.finishing == 1 and bool(self.phases.stores_in(0))

    def adding_function(self) -> list[str]:
        row = "Row<N>" if self.grid.across else "Row<1>"
        return [
            "template <int N>",
            f"KW_DEVICE static void add(const Args& a, Index row, Index column, const Operands<N>& x, const {row}& r,",
            "                          State<0, N>& s) {",
            *(f"    {line}" for line in self.step_body(0, stores_it=False)),
            "}",
        ]

    def leaving_functions(self) -> list[str]:
        """What the last phase makes of sums, and where the first of that lies, apart: others take it to memory."""
        last, row = self.phases.walks - 1, "Row<N>" if self.grid.across else "Row<1>"
        (access,) = stored_of_sums(self)
        return [
            "template <int N> KW_DEVICE static kw::Vec<float, N> values(",
            f"    const Args& a, Index row, Index column, const Operands<N>& x, const {row}& r) {{",
            *(f"    {line}" for line in self.step_body(last, adds_it=False, returns_it=True)),
            "}",
            "KW_DEVICE static float* place(const Args& a, Index row, Index column) {",
            *(f"    {line}" for line in self.coordinate_lines([access])),
            f"    return {self.address(access)};",
            "}",
        ]


class WholeRowsWriter(StoredRowsWriter):
    """Every lane is a row: see kernels/cuda/conv_rows.cuh for how it is run."""

    # Rows are read again and again by all who have some of their channels: in one load.
    row_alignment = "alignas(16) "

    def state_members(self, phase: int, names: Sequence[str]) -> list[str]:
        lanes = ", ".join(f"{name}.lane(i)" for name in names)
        return [f"KW_DEVICE State<{phase}, 1> lane(int i) const {{ return {{{lanes}}}; }}"]

    def members(self) -> list[str]:
        return [*super().members(), "", *(f"    {line}" for line in self.beside_function())]

    def beside_function(self) -> list[str]:
        scalars = [name for name in self.of_row if self.is_uniform(self.access(name))]
        vectors = [name for name in self.of_row if name not in scalars] + [self.value_name(n) for n in self.exported]
        vectors += [f"by_{self.value_name(node)}" for node in self.divisors]
        lanes = " ".join(f"r.{name}[i] = rows[i].{name}[0];" for name in vectors)
        return [
            "template <int N> KW_DEVICE static Row<N> beside(const Row<1>* rows) {",
            "    Row<N> r;",
            *(f"    r.{name} = rows[0].{name};" for name in scalars),
            *([f"    KW_LANES for (int i = 0; i < N; ++i) {{ {lanes} }}"] if lanes else []),
            "    return r;",
            "}",
        ]


class RowPiecesWriter(TileRowsWriter):
    """Lanes are columns of one row: see kernels/cuda/row_pieces.cuh for how it is run."""

    def __init__(self, kernel: Kernel, workspace: Buffer) -> None:
        super().__init__(kernel)
        self.workspace = identifier(workspace.name)
        self.pointers[workspace.name] = ("uint8_t*", self.workspace)

    def members(self) -> list[str]:
        lines = [
            f"KW_DEVICE static uint8_t* workspace(const Args& a) {{ return a.{self.workspace}; }}",
            f"static constexpr bool placeless = {str(self.is_placeless).lower()};",
        ]
        return [*super().members(), "", *(f"    {line}" for line in lines)]


class PartedStepWriter(RowPiecesWriter):
    """What a step adds to the state of a row and what it stores apart: sums are added where they are, in registers, and
    stored from where a warp has many of a row."""

    def members(self) -> list[str]:
        place = "const Args& a, Index row, Index column, const Operands<N>& x, const Row<1>& r"
        stores = bool(self.phases.stores_in(0))
        lines = [
            f"static constexpr bool stores = {str(stores).lower()};",
            "template <int N>",
            f"KW_DEVICE static void add({place}, State<0, N>& s) {{",
            *(f"    {line}" for line in self.step_body(0, stores_it=False)),
            "}",
        ]
        if stores:
            lines += [
                "template <int N>",
                f"KW_DEVICE static void store({place}) {{",
                *(f"    {line}" for line in self.step_body(0, adds_it=False)),
                "}",
            ]
        return [*super().members(), "", *(f"    {line}" for line in lines)]


def stored_of_sums(writer: TileRowsWriter) -> list[RowAccess]:
    """Where the results are stored that every sum has."""
    stores = zip(writer.region.stores, writer.grid.stores, strict=True)
    return [as_rows(access) for (node, _), access in stores if writer.phases.is_full(node)]


def leaves_by_rows(writer: TileRowsWriter) -> bool:
    """Whether the last phase stores the one result of every sum, as rows of neighbours in memory. Along w, where one
    warp has a row, that may be the only phase."""
    stored, phases = stored_of_sums(writer), writer.phases
    if len(stored) != 1 or not phases.stores_in(phases.walks - 1):
        return False
    if phases.walks == phases.finishing and (writer.grid.across or phases.walks > 1):
        return False
    return stored[0].inner == 1 and stored[0].layout.buffer.dtype.name == "float32"


def opened(region: Region) -> Region:
    """exponentials(x)  ->  sum(exp(x - max(x)))  where that exponential is computed in any case.

    One walk instead of two is for rows that are read from memory. Sums that are in registers may be walked over again,
    and to add an exponential takes a fourth of the instructions of a sum that is scaled whenever its largest grows.
    """
    done: dict[Node, Node] = {}

    def now(x: Node) -> Node:
        if isinstance(x, View) and x not in done:
            below = now(x.x)
            done[x] = x if below is x.x else x.rebuild((below,))
        return done.get(x, x)

    for node in region.body:
        raised = raised_above_the_largest(node, region)
        if isinstance(node, Reduce) and raised is not None:
            done[node] = Reduce("sum", now(raised), node.axes)
        else:
            operands = tuple(map(now, node.operands))
            done[node] = node if operands == node.operands else node.rebuild(operands)
    body = tuple(cast("Map | Gather | Reduce | Scan", done[node]) for node in region.body)
    return replace(region, body=body, stores=tuple((now(node), layout) for node, layout in region.stores))


def raised_above_the_largest(node: Node, region: Region) -> Node | None:
    """exp(x - max(x)) for exponentials(x), where it is computed before."""
    if not isinstance(node, Reduce) or node.fn != "exponentials":
        return None
    before = region.body[: region.body.index(node)]
    raised = (x for x in before if is_below_one(x) and isinstance(x, Map) and x.args[0].operands[0] is node.x)
    return next(raised, None)


def pieces_in(region: Region) -> Pieces | None:
    """How the rows of a region lie in the tiles of a convolution; None if each is whole in one."""
    assert isinstance(region.given, Conv)
    return None if region.window else pieces_of(region.shape, region.axes, region.given)


def is_whole(region: Region) -> bool:
    """Whether a row is all channels of a pixel. No tile of a product has all of its columns."""
    if not isinstance(region.given, Conv) or region.window or is_line(region):
        return False
    return pieces_in(region) is None


def is_line(region: Region) -> bool:
    """Whether a row is one of the last axis of space."""
    conv = region.given
    return isinstance(conv, Conv) and not region.window and tiles.is_line(region.shape, region.axes, conv)


def writer_of(kernel: Kernel, scratch: Sequence[Buffer], parted: bool = False) -> TileRowsWriter:
    if is_whole(kernel.region):
        return WholeRowsWriter(kernel)
    if is_line(kernel.region):
        return StoredRowsWriter(kernel)
    if kernel.region.window:
        return TileRowsWriter(kernel)
    return (PartedStepWriter if parted else RowPiecesWriter)(kernel, *scratch)


def lanes_of(region: Region) -> int:
    """The most neighbours that every operand can load or store at once; of windows, one."""
    if region.window:
        return 1
    grid = tile_grid(region, across=is_whole(region))
    vectors = [as_rows(access) for access in (*grid.loads, *grid.stores) if access.is_vector]
    starts = [n for access in vectors for n in starts_of(access, grid)]
    wide = max((access.layout.buffer.dtype.itemsize for access in vectors), default=4) <= 4
    return next(v for v in ((4, 2, 1) if wide else (2, 1)) if all(n % v == 0 for n in starts))


def state_of_rows(region: Region) -> tuple[int, int]:
    """Of rows in pieces: the bytes of what is known of a part, and the instructions that add one sum to it."""
    phases = phases_of(region, ())
    reduces = phases.reduced_in(0)
    return state_bytes(reduces), sum(REDUCTIONS[node.fn].flops for node in reduces)


def row_bytes(writer: TileRowsWriter) -> int:
    """The most that is known of a finished row takes."""
    items = [writer.access(name).layout.buffer.dtype.itemsize for name in writer.of_row]
    items += [node.dtype.itemsize for node in (*writer.exported, *writer.divisors)]
    return math.ceil(sum(max(4, n) for n in items) / 16) * 16


@lru_cache(maxsize=256)  # asked for once a config
def tile_rows(region: Region) -> TileRows:
    """What a template must know of the rows that its tiles reduce."""
    whole, line = is_whole(region), is_line(region)
    writer = (WholeRowsWriter if whole else StoredRowsWriter if line else TileRowsWriter)(Kernel("", region, {}))
    phases = writer.phases
    flops = [node_flops(node) for phase in range(phases.walks) for node in phases.computed_in(phase)]
    once = [node_flops(node) for node in writer.region.maps if phases.is_full(node) and not phases.level[node]]
    return TileRows(
        state_bytes=tuple(state_bytes(phases.reduced_in(phase)) for phase in range(phases.finishing)),
        row_bytes=row_bytes(writer),
        phases=phases.walks,
        flops=sum(flops) - sum(once) + sum(REDUCTIONS[node.fn].flops for node in phases.reduces),
        rows=writer.grid.rows,
        pieces=pieces_in(region),
        placeless=writer.is_placeless,
        window=(*(1,) * (3 - len(region.window)), *region.window) if region.window else (),
        line=line,
        by_rows=(whole or line) and leaves_by_rows(writer),
        alike=not any(access.bounds or access.is_computed or any(access.outer) for _, access in writer.read),
    )
