"""A pointwise `Kernel` comes in; its C++ struct, the same for CUDA and the CPU, goes out."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from kernelwright.device import Device
from kernelwright.generate.grid import (
    Access,
    Bound,
    BrickAccess,
    BrickGrid,
    Grid,
    grid_of,
    is_turned,
    picked_in_vectors,
    uniform_nodes,
    work_of,
)
from kernelwright.generate.literals import as_float32, camel, identifier, literal, local, names_in
from kernelwright.generate.program import Source
from kernelwright.generate.template import Extra, Template
from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Const, Gather, Iota, Map, Node, Shape
from kernelwright.ir.scalars import SCALARS, spell_cast
from kernelwright.kernels import pointwise
from kernelwright.kernels.pointwise import BrickConfig, Config, CpuConfig, PointwiseConfig, TileConfig, Work
from kernelwright.plan import Kernel, Layout, Region
from kernelwright.plan.layouts import base_of
from kernelwright.simplify.ranges import value_range

INFIX: Mapping[str, str] = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}

LANES = "KW_LANES for (int i = 0; i < N; ++i) {"

# A formula longer than this says less than the code below it.
LONGEST_FORMULA = 100


def pointwise_source(kernel: Kernel, choice: PointwiseConfig) -> Source:
    region = kernel.region
    grid = grid_of(region, "cpu" if isinstance(choice, CpuConfig) else "cuda")
    writer = WRITERS[grid.walk](region, grid)
    formula = formula_of(region)
    struct = writer.struct(camel(kernel.name), formula)
    template, parameters = template_of(choice)
    stream = ", stream" if template != "pointwise" or isinstance(choice, Config) else ""
    call = f"kw::{template}<{camel(kernel.name)}, {parameters}>({{{', '.join(writer.arguments)}}}{stream})"
    on_host = () if isinstance(choice, CpuConfig) else ("OnDevice",)
    needs = {*names_in(struct), template, *on_host}
    return Source(kernel, work_of(region, grid), choice, formula, struct, template, call, tuple(sorted(needs)))


def template_of(choice: PointwiseConfig) -> tuple[str, str]:
    """The template that a config belongs to, and its parameters after the struct."""
    match choice:
        case Config(threads, lanes, vectors):
            return "pointwise", f"{lanes}, {vectors}, {threads}"
        case TileConfig(threads, lanes, levels, columns):
            return "pointwise_tiles", f"{lanes}, {levels}, {columns}, {threads}"
        case BrickConfig(threads, lanes, layers, levels, columns):
            return "pointwise_bricks", f"{lanes}, {layers}, {levels}, {columns}, {threads}"
        case CpuConfig(lanes, grain):
            return "pointwise", f"{lanes}, {grain}"


class Writer:
    """What every walk shares: pointers and their names, addresses, and the body as SSA temporaries."""

    def __init__(self, region: Region, grid: Grid) -> None:
        self.region = region
        self.grid = grid
        self.pointers: dict[str, tuple[str, str]] = {}  # buffer -> (C++ type, name); one that is written over is both
        self.operands: dict[Layout, tuple[str, Access]] = {}  # distinct loads by name
        self.load_names: dict[Node, str] = {}
        written = {layout.buffer.name for _, layout in region.stores}
        every = [identifier(layout.buffer.name) for _, layout in region.loads]
        for (node, layout), access in zip(region.loads, grid.loads, strict=True):
            pointer = self.pointer(layout, writable=layout.buffer.name in written)
            if layout not in self.operands:
                taken = {name for name, _ in self.operands.values()}
                first = pointer not in taken
                self.operands[layout] = (pointer if first else unused(pointer, {*taken, *every}), access)
            self.load_names[node] = self.operands[layout][0]
        self.picked: dict[Gather, tuple[str, Access]] = {}  # what Gathers read, by name
        for (gather, source), access in zip(region.sources, grid.sources, strict=True):
            pointer = self.pointer(source.layout, writable=source.layout.buffer.name in written)
            self.load_names[gather] = unused(f"{pointer}_at", self.load_names.values())
            self.picked[gather] = (self.load_names[gather], access)
        self.in_vectors = picked_in_vectors(region, grid)
        self.uniform = uniform_nodes(region, grid, self.is_uniform) if region.sources else set()
        self.numbers: dict[Node, int] = {node: number for number, node in enumerate(region.maps)}
        for _, layout in region.stores:
            self.pointer(layout, writable=True)

    def is_uniform(self, access: Access) -> bool:
        """One value for all lanes of a vector."""
        return access.is_uniform

    def pointer(self, layout: Layout, writable: bool) -> str:
        if isinstance(layout.buffer.source, Iota):
            return identifier(layout.buffer.name)
        storage = layout.buffer.dtype.storage_cpp
        type_ = f"{storage}*" if writable else f"const {storage}*"
        return self.pointers.setdefault(layout.buffer.name, (type_, identifier(layout.buffer.name)))[1]

    @property
    def arguments(self) -> list[str]:
        return [name for _, name in self.pointers.values()]

    @property
    def accesses(self) -> list[tuple[str, Access]]:
        return list(self.operands.values())

    @property
    def read(self) -> list[tuple[str, Access]]:
        """Everything that is read: operands, and what Gathers pick from."""
        return [*self.accesses, *self.picked.values()]

    @property
    def results(self) -> list[tuple[Node, Access]]:
        return [(node, access) for (node, _), access in zip(self.region.stores, self.grid.stores, strict=True)]

    def struct(self, name: str, formula: str) -> str:
        members = " ".join(f"{type_} {pointer};" for type_, pointer in self.pointers.values())
        lines = [
            f"// {formula}",
            f"struct {name} {{",
            f"    using Index = {self.index_type};",
            f"    static constexpr int64_t {self.extents()};",
            f"    struct Args {{ {members} }};",
            *self.members(),
            "};",
        ]
        return "\n".join(lines)

    @property
    def index_type(self) -> str:
        return "int64_t" if self.grid.wide_index else "int"

    def extents(self) -> str:
        return f"rows = {self.grid.rows}, columns = {self.grid.columns}"

    def members(self) -> list[str]:
        raise NotImplementedError

    def address(self, access: Access) -> str:
        """A pointer to the element at (row, level, column)."""
        return " + ".join([f"a.{self.pointers[access.layout.buffer.name][1]}", *self.terms(access, "column")])

    def terms(self, access: Access, column: str) -> list[str]:
        """What adds up to the number of the element there."""
        offset = [str(access.offset)] if access.offset else []
        lanes = self.scaled("level", access.depth) + self.scaled(column, access.inner)
        return [*offset, *self.row_terms(access), *lanes]

    def element(self, access: Access, column: str = "column") -> str:
        """The element there; of an index, its number; outside the bounds, the value that fills the border."""
        index = " + ".join(self.terms(access, column)) or "0"
        if access.is_computed:
            value = f"int64_t({index})"
        else:
            value = f"a.{self.pointers[access.layout.buffer.name][1]}[{index}]"
        return self.bordered(access, value, column)

    def bordered(self, access: Access, value: str, column: str, index: Sequence[str] = ()) -> str:
        """The value, or what fills the border where it is outside the bounds."""
        if not access.bounds:
            return value
        inside = " && ".join(self.bound_text(bound, column, index) for bound in access.bounds)
        return f"{inside} ? {value} : {self.border(access)}"

    def border(self, access: Access) -> str:
        """What stands for elements outside the bounds."""
        return stored_literal(access.layout.fill, access.layout.buffer.dtype)

    def bound_text(self, bound: Bound, column: str, index: Sequence[str] = ()) -> str:
        """0 <= place < extent, as one comparison of unsigned numbers."""
        kind = "unsigned" if self.grid.has_narrow_places(bound) else "uint64_t"
        return f"{kind}({self.place_text(bound, column, index)}) < {bound.extent}"

    def place_text(self, bound: Bound, column: str, index: Sequence[str] = ()) -> str:
        terms = self.bound_terms(bound, column)
        terms += [
            term for text, stride in zip(index, bound.picks, strict=True) for term in offsets(text, stride, "int64_t")
        ]
        return sum_of([*terms, str(bound.offset)] if bound.offset else terms)

    def lane_stride(self, bound: Bound) -> int:
        """What the place moves by from one lane to the next."""
        return bound.strides[-1]

    def load_inside(self, access: Access, column: str) -> str | None:
        """Lanes of which some may be outside, `column` being the first; None where two bounds would part them."""
        parting = [bound for bound in access.bounds if self.lane_stride(bound)]
        if len(parting) > 1 or access.is_computed:
            return None
        inside = " && ".join(self.bound_text(b, column) for b in access.bounds if b not in parting) or "true"
        first, step, extent = "0", 0, 1
        for bound in parting:
            first, step, extent = self.place_text(bound, column), self.lane_stride(bound), bound.extent
        pointer, at = f"a.{self.pointers[access.layout.buffer.name][1]}", sum_of(self.terms(access, column))
        lanes = f"Index({first}), Index({extent}), {self.border(access)}"
        return f"kw::load_inside<N, {access.inner}, {step}>({pointer}, {at}, {inside}, {lanes})"

    def bound_terms(self, bound: Bound, column: str) -> list[str]:
        return [*self.bound_rows(bound), *self.placed(bound, column, bound.strides[-1])]

    def bound_rows(self, bound: Bound) -> list[str]:
        outer = zip(self.coordinates(), bound.strides[: len(self.grid.outer)], strict=True)
        return [term for name, stride in outer for term in self.placed(bound, name, stride)]

    def placed(self, bound: Bound, index: str, stride: int) -> list[str]:
        """What an index adds to the place that is compared with the bound."""
        if not self.grid.has_narrow_places(bound):
            return self.scaled(index, stride)
        return [] if stride == 0 else [index if stride == 1 else f"{index} * {stride}"]

    def scaled(self, index: str, stride: int) -> list[str]:
        wide = index if self.grid.wide_index else f"int64_t({index})"
        return [] if stride == 0 else [index if stride == 1 else f"{wide} * {stride}"]

    def row_terms(self, access: Access) -> list[str]:
        """The offset of a row: row times its length where rows follow each other, else by the coordinates."""
        expected, length = self.row_length
        dense = bool(self.grid.outer)
        for extent, stride in zip(reversed(self.grid.outer), reversed(access.outer), strict=True):
            dense = dense and stride == expected
            expected *= extent
        if dense:
            return [f"row * {length}"]
        names = self.coordinates()
        return [term for name, stride in zip(names, access.outer, strict=True) for term in self.scaled(name, stride)]

    @property
    def row_length(self) -> tuple[int, str]:
        """The elements of a row, and how the struct says it."""
        return self.grid.depth * self.grid.columns, "columns" if self.grid.depth == 1 else "(depth * columns)"

    def coordinates(self) -> list[str]:
        return ["row"] if len(self.grid.outer) == 1 else [f"i{axis}" for axis in range(len(self.grid.outer))]

    def coordinate_lines(self, accesses: Sequence[Access]) -> list[str]:
        """The coordinates of the row that any of the operands needs; divisors are constants, so no division is left."""
        rows = [term for access in accesses for term in self.row_terms(access)]
        bounds = [term for access in accesses for bound in access.bounds for term in self.bound_rows(bound)]
        text = " ".join([*rows, *bounds])
        lines = []
        below = 1
        for axis in reversed(range(len(self.grid.outer))):
            name = self.coordinates()[axis]
            if name != "row" and re.search(rf"\b{name}\b", text):
                extent = None if axis == 0 else self.grid.outer[axis]
                lines.append(f"const Index {name} = {self.row_digit(below, extent)};")
            below *= self.grid.outer[axis]
        return list(reversed(lines))

    def row_digit(self, below: int, extent: int | None) -> str:
        """The row, counted in units of `below` rows, up to `extent`."""
        shifted = "row" if below == 1 else f"row / {below}"
        return shifted if extent is None else f"{shifted} % {extent}"

    # --- what is read by index

    def indexing(self) -> set[Node]:
        """The values of the body that only say where to read."""
        return needed_for(self.region, [x for node in self.picked for x in node.indices])

    def computing(self) -> set[Node]:
        """The values of the body that make the results."""
        return needed_for(self.region, [node for node, _ in self.region.stores])

    def picked_fields(self) -> list[str]:
        fields = []
        for node, (name, access) in self.picked.items():
            storage = access.layout.buffer.dtype.storage_cpp
            fields.append(f"{storage} {name};" if node in self.uniform else f"kw::Vec<{storage}, N> {name};")
        return fields

    def pick(self, node: Gather, index: Sequence[str], column: str) -> str:
        """The element that is picked, or those of all lanes; outside, what a Gather gives there."""
        _, access = self.picked[node]
        kind = "int64_t" if access.layout.buffer.elements >= 2**31 else "int"
        places = [t for text, stride in zip(index, access.picks, strict=True) for t in offsets(text, stride, kind)]
        place = " + ".join([*self.terms(access, column), *places]) or "0"
        pointer = f"a.{self.pointers[access.layout.buffer.name][1]}"
        in_vector = access in self.in_vectors
        value = f"kw::load<N>({pointer} + {place})" if in_vector else f"{pointer}[{place}]"
        value = self.bordered(access, value, column, index)
        bounds = zip(index, node.indices, node.extents, strict=True)
        inside = [f"uint64_t({text}) < {extent}" for text, x, extent in bounds if not is_within(x, extent)]
        if not inside:
            return value
        dtype = access.layout.buffer.dtype
        nothing = stored_literal(node.nothing, dtype)
        outside = f"kw::fill<N>({dtype.storage_cpp}({nothing}))" if in_vector else nothing
        return f"{' && '.join(inside)} ? {f'({value})' if access.bounds else value} : {outside}"

    def result_name(self, node: Node) -> str:
        stored = [n for n, _ in self.region.stores]
        return f"y{stored.index(node)}" if len(stored) > 1 else "y"

    def body_lines(self, texts: Mapping[str, str], uniform_loads: set[str]) -> tuple[list[str], list[str], list[str]]:
        """What all lanes share, what each computes, and the value of each result.

        `texts` spells each operand; `uniform_loads` are those that are the same for all lanes.
        """
        body = BodyLines(self, texts, uniform_loads)
        computing = self.computing() if self.picked else None
        for node in self.region.maps:
            if computing is None or node in computing:
                body.compute(node)
        values = [self.stored(node, access, body.operand(node)) for node, access in self.results]
        return body.lines[True], body.lines[False], values

    @staticmethod
    def stored(node: Node, access: Access, value: str) -> str:
        dtype = access.layout.buffer.dtype
        return f"kw::convert<{dtype.storage_cpp}>({value})" if dtype.is_reduced_float else value


class BodyLines:
    """The lines of one generated function, in order: what all lanes share, and what each computes."""

    def __init__(self, writer: Writer, texts: Mapping[str, str], uniform_loads: set[str]) -> None:
        given = writer.region.given
        self.writer, self.texts, self.uniform_loads = writer, texts, uniform_loads
        self.names: dict[Node, str] = {} if given is None else {given: texts["given"]}
        self.lines: dict[bool, list[str]] = {True: [], False: []}
        self.uniform: set[Node] = set()
        self.widened: set[str] = set()

    def operand(self, x: Node) -> str:
        """The text of an operand: computed before, a constant, or loaded."""
        if x in self.names:
            return self.names[x]
        base = base_of(x)
        if isinstance(base, Const):
            self.names[x] = literal(base.value, base.dtype)
            self.uniform.add(x)
            return self.names[x]
        name = self.writer.load_names[x]
        if name in self.uniform_loads:
            self.uniform.add(x)
        self.names[x] = f"{name}_f" if x.dtype.is_reduced_float else self.texts[name]
        if x.dtype.is_reduced_float and name not in self.widened:
            self.widened.add(name)
            self.lines[x in self.uniform].append(f"const float {name}_f = kw::widen({self.texts[name]});")
        return self.names[x]

    def compute(self, node: Map) -> None:
        operands = [self.operand(x) for x in node.args]
        same = all(x in self.uniform for x in node.args)
        name = f"t{self.writer.numbers[node]}"
        self.lines[same].append(f"const {node.dtype.compute_cpp} {name} = {spelled(node, operands)};")
        self.names[node] = name
        if same:
            self.uniform.add(node)


class RowsWriter(Writer):
    """Operands are vectors along the columns, or one value where all columns see the same element."""

    def members(self) -> list[str]:
        return [
            "",
            f"    template <int N> struct Operands {{ {' '.join(self.operand_fields())} }};".replace("{  }", "{}"),
            "",
            "    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {",
            *(f"        {line}" for line in self.coordinate_lines([a for _, a in self.read])),
            "        Operands<N> x;",
            *(f"        {line}" for name, access in self.accesses for line in self.load_lines(name, access)),
            *(f"        {line}" for line in self.picking_lines()),
            "        return x;",
            "    }",
            "",
            "    template <int N>",
            "    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {",
            *(f"        {line}" for line in self.store_lines()),
            "    }",
        ]

    def operand_fields(self) -> list[str]:
        fields = []
        for name, access in self.accesses:
            storage = access.layout.buffer.dtype.storage_cpp
            fields.append(f"{storage} {name};" if self.is_uniform(access) else f"kw::Vec<{storage}, N> {name};")
        return [*fields, *self.picked_fields()]

    @property
    def texts(self) -> dict[str, str]:
        """What each operand is called in a lane."""
        texts = {name: f"x.{name}" if self.is_uniform(a) else f"x.{name}[i]" for name, a in self.accesses}
        same = {name: node in self.uniform for node, (name, _) in self.picked.items()}
        return texts | {name: f"x.{name}" if is_same else f"x.{name}[i]" for name, is_same in same.items()}

    @property
    def uniform_names(self) -> set[str]:
        picked = {name for node, (name, _) in self.picked.items() if node in self.uniform}
        return {name for name, a in self.accesses if self.is_uniform(a)} | picked

    def picking_lines(self) -> list[str]:
        """The indices, and what they pick: one after the other, as one may say where the next reads."""
        body = BodyLines(self, self.texts, self.uniform_names)
        indexing = self.indexing()
        for node in self.region.body:
            if isinstance(node, Map) and node in indexing:
                body.compute(node)
            elif isinstance(node, Gather):
                index = [body.operand(x) for x in node.indices]
                name, access = self.picked[node]
                whole = node in self.uniform or access in self.in_vectors
                value = self.pick(node, index, "column" if whole else self.lane_text)
                body.lines[whole].append(f"x.{name} = {value};" if whole else f"x.{name}[i] = {value};")
        shared, lanes = body.lines[True], body.lines[False]
        return [*shared, *([LANES, *(f"    {line}" for line in (*self.lane_lines, *lanes)), "}"] if lanes else [])]

    @property
    def lane_text(self) -> str:
        """The column of a lane."""
        return "(column + i)"

    @property
    def lane_lines(self) -> list[str]:
        """What a lane defines first."""
        return []

    def load_lines(self, name: str, access: Access) -> list[str]:
        if self.is_uniform(access):
            return [f"x.{name} = {self.element(access)};"]
        if access.is_vector:
            return [f"x.{name} = kw::load<N>({self.address(access)});"]
        if access.bounds:
            each = f"KW_LANES for (int i = 0; i < N; ++i) x.{name}[i] = {self.element(access, '(column + i)')};"
            lanes = self.load_inside(access, "column")
            return [f"x.{name} = {lanes};" if lanes else each]
        if access.is_computed:
            return [f"x.{name} = {self.counted(access)};"]
        return [f"x.{name} = kw::gather<N>({self.address(access)}, {access.inner});"]

    def counted(self, access: Access) -> str:
        """The numbers of N neighbours."""
        return f"kw::counted<N>({' + '.join(self.terms(access, 'column')) or '0'}, {access.inner})"

    def store_lines(self) -> list[str]:
        shared, lanes, values = self.body_lines(self.texts, self.uniform_names)
        names = [self.result_name(node) for node, _ in self.results]
        storages = [access.layout.buffer.dtype.storage_cpp for _, access in self.results]
        return [
            *self.coordinate_lines([access for _, access in self.results]),
            *shared,
            *(f"kw::Vec<{storage}, N> {name};" for storage, name in zip(storages, names, strict=True)),
            "KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
            *(self.store_line(name, access) for name, (_, access) in zip(names, self.results, strict=True)),
        ]

    def store_line(self, name: str, access: Access) -> str:
        if access.inner > 1:
            return f"kw::scatter<N>({self.address(access)}, {access.inner}, {name});"
        return f"kw::store<N>({self.address(access)}, {name});"


class FlatWriter(RowsWriter):
    """One long row: dense operands are vectors across the ends of rows; the others are looked up for each element."""

    def extents(self) -> str:
        columns = 1
        for extent in self.grid.axes:
            columns *= extent
        return f"rows = 1, columns = {columns}"

    def is_uniform(self, access: Access) -> bool:
        return not any(access.strides) and not any(any(bound.strides) for bound in access.bounds)

    def coordinate_lines(self, accesses: Sequence[Access]) -> list[str]:
        return []

    @property
    def lane_text(self) -> str:
        return "e"

    @property
    def lane_lines(self) -> list[str]:
        return ["const Index e = column + i;"]

    def load_lines(self, name: str, access: Access) -> list[str]:
        if self.is_uniform(access):
            return [f"x.{name} = {self.element(access)};"]
        if self.grid.is_dense(access):
            return [f"x.{name} = kw::load<N>({self.address(access)});"]
        return [
            "KW_LANES for (int i = 0; i < N; ++i) {",
            "    const Index e = column + i;",
            f"    x.{name}[i] = {self.element(access)};",
            "}",
        ]

    def terms(self, access: Access, column: str) -> list[str]:
        offset = [str(access.offset)] if access.offset else []
        return [*offset, *([column] if self.grid.is_dense(access) else self.lookup_terms(access.strides))]

    def bound_terms(self, bound: Bound, column: str) -> list[str]:
        return self.lookup_terms(bound.strides)

    def lookup_terms(self, strides: Shape) -> list[str]:
        """Element e's coordinate along each axis that has a stride, times that stride."""
        terms = []
        below = 1
        axes = list(zip(self.grid.axes, strides, strict=True))
        for number, (extent, stride) in reversed(list(enumerate(axes))):
            above = any(n > 1 for n, _ in axes[:number])
            if stride and extent > 1:
                shifted = "e" if below == 1 else f"e / {below}"
                coordinate = f"{shifted} % {extent}" if above else shifted
                wide = f"({coordinate})" if self.grid.wide_index else f"int64_t({coordinate})"
                terms.append(coordinate if stride == 1 else f"{wide} * {stride}")
            below *= extent
        return list(reversed(terms))


class TilesWriter(Writer):
    """Operands that lie along the depth go through a tile in shared memory; the others are read where they are used."""

    def extents(self) -> str:
        return f"rows = {self.grid.rows}, depth = {self.grid.depth}, columns = {self.grid.columns}"

    def members(self) -> list[str]:
        turned = [(name, a) for name, a in self.accesses if is_turned(a)]
        storage = [(a.layout.buffer.dtype.storage_cpp, name) for name, a in turned]
        tile = " ".join(f"{type_} {name}[Q][P + 1];" for type_, name in storage)
        vectors = " ".join(f"kw::Vec<{type_}, N> {name};" for type_, name in storage)
        place = "Index row, Index level, Index column"
        return [
            "",
            "    template <int N> struct Turned { " + vectors + " };",
            "    // One column more than it needs, so that reading it the other way meets fewer bank conflicts.",
            "    template <int P, int Q> struct Tile { " + tile + " };",
            "",
            f"    template <int N> KW_DEVICE static Turned<N> fetch(const Args& a, {place}) {{",
            *(f"        {line}" for line in self.coordinate_lines([a for _, a in turned])),
            "        Turned<N> x;",
            *(f"        x.{name} = kw::load<N>({self.address(a)});" for name, a in turned),
            "        return x;",
            "    }",
            "",
            "    template <int N, typename Tile>",
            "    KW_DEVICE static void keep(Tile& tile, const Turned<N>& x, int p, int q) {",
            *(f"        KW_LANES for (int i = 0; i < N; ++i) tile.{n}[q][p + i] = x.{n}[i];" for n, _ in turned),
            "    }",
            "",
            "    template <int N, typename Tile>",
            f"    KW_DEVICE static void store(const Args& a, const Tile& tile, {place}, int p, int q) {{",
            *(f"        {line}" for line in self.store_lines()),
            "    }",
        ]

    def store_lines(self) -> list[str]:
        direct = [(name, a) for name, a in self.accesses if not is_turned(a)]
        texts = {name: f"tile.{name}[q + i][p]" for name, _ in self.accesses}
        texts |= {name: local(name) if a.inner == 0 else f"{local(name)}[i]" for name, a in direct}
        shared, lanes, values = self.body_lines(texts, {name for name, a in direct if a.inner == 0})
        names = [self.result_name(node) for node, _ in self.results]
        storages = [access.layout.buffer.dtype.storage_cpp for _, access in self.results]
        return [
            *self.coordinate_lines([a for _, a in direct] + [a for _, a in self.results]),
            *(f"const auto {local(name)} = {self.direct_load(a)};" for name, a in direct),
            *shared,
            *(f"kw::Vec<{storage}, N> {name};" for storage, name in zip(storages, names, strict=True)),
            "KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
            *(f"kw::store<N>({self.address(a)}, {name});" for name, (_, a) in zip(names, self.results, strict=True)),
        ]

    def direct_load(self, access: Access) -> str:
        if access.inner == 0:
            return self.element(access)
        if access.inner == 1:
            return f"kw::load<N>({self.address(access)})"
        return f"kw::gather<N>({self.address(access)}, {access.inner})"


class BricksWriter(Writer):
    """Operands that lie along the depth or the height go through shared memory, the others are vectors or one value."""

    grid: BrickGrid

    def extents(self) -> str:
        height = f"height = {self.grid.height}, depth = {self.grid.depth}"
        return f"rows = {self.grid.rows}, {height}, columns = {self.grid.columns}"

    @property
    def row_length(self) -> tuple[int, str]:
        return self.grid.height * self.grid.depth * self.grid.columns, "(height * depth * columns)"

    def terms(self, access: Access, column: str) -> list[str]:
        assert isinstance(access, BrickAccess)
        offset = [str(access.offset)] if access.offset else []
        layer = self.scaled("layer", access.height)
        return [
            *offset,
            *self.row_terms(access),
            *layer,
            *self.scaled("level", access.depth),
            *self.scaled(column, access.inner),
        ]

    def along(self, *axes: str) -> list[tuple[str, Access]]:
        """The operands that lie along one of these axes and go through shared memory."""
        return [(name, a) for name, a in self.accesses if isinstance(a, BrickAccess) and a.lies_along in axes]

    @property
    def direct(self) -> list[tuple[str, Access]]:
        turned = self.along("depth", "height")
        return [operand for operand in self.accesses if operand not in turned]

    def members(self) -> list[str]:
        vectors = [f"kw::Vec<{storage_of(a)}, N> {name};" for name, a in self.along("depth", "height")]
        tiles = [f"kw::Brick<{storage_of(a)}, R, Q, P> {name};" for name, a in self.along("depth")]
        tiles += [f"kw::Brick<{storage_of(a)}, P, Q, R> {name};" for name, a in self.along("height")]
        direct = [
            f"{storage_of(a)} {name};" if a.is_uniform else f"kw::Vec<{storage_of(a)}, N> {name};"
            for name, a in self.direct
        ]
        place = "Index row, Index layer, Index level, Index column"
        return [
            "",
            "    // What lies along the depth (in levels) or the height (in layers) is turned around in shared memory.",
            f"    template <int N> struct Turned {{ {' '.join(vectors)} }};",
            f"    template <int R, int P, int Q> struct Tile {{ {' '.join(tiles)} }};",
            f"    template <int N> struct Operands {{ {' '.join(direct)} }};".replace("{  }", "{}"),
            *self.fetching("levels", "depth", place),
            *self.fetching("layers", "height", place),
            *self.keeping("levels", "depth", "at.r, at.q, at.p + i"),
            *self.keeping("layers", "height", "at.p, at.q, at.r + i"),
            "",
            f"    template <int N> KW_DEVICE static Operands<N> load(const Args& a, {place}) {{",
            *(f"        {line}" for line in self.coordinate_lines([a for _, a in self.direct])),
            "        Operands<N> x;",
            *(f"        x.{name} = {self.direct_load(a)};" for name, a in self.direct),
            "        return x;",
            "    }",
            "",
            "    template <int N, typename Tile>",
            "    KW_DEVICE static void store(const Args& a, const Tile& tile, const Operands<N>& x, kw::BrickPlace at,",
            f"                                {place}) {{",
            *(f"        {line}" for line in self.store_lines()),
            "    }",
        ]

    def fetching(self, levels: str, axis: str, place: str) -> list[str]:
        """The function that reads what lies along an axis."""
        along = self.along(axis)
        return [
            "",
            "    template <int N>",
            f"    KW_DEVICE static void fetch_{levels}(const Args& a, Turned<N>& x, {place}) {{",
            *(f"        {line}" for line in self.coordinate_lines([a for _, a in along])),
            *(f"        x.{name} = kw::load<N>({self.address(a)});" for name, a in along),
            "    }",
        ]

    def keeping(self, levels: str, axis: str, place: str) -> list[str]:
        """The function that puts it into shared memory."""
        lanes = "KW_LANES for (int i = 0; i < N; ++i)"
        return [
            "",
            "    template <int N, typename Tile>",
            f"    KW_DEVICE static void keep_{levels}(Tile& tile, const Turned<N>& x, kw::BrickPlace at) {{",
            *(f"        {lanes} tile.{name}.at({place}) = x.{name}[i];" for name, _ in self.along(axis)),
            "    }",
        ]

    def direct_load(self, access: Access) -> str:
        if access.is_uniform:
            return self.element(access)
        if access.is_vector:
            return f"kw::load<N>({self.address(access)})"
        return f"kw::gather<N>({self.address(access)}, {access.inner})"

    def store_lines(self) -> list[str]:
        texts = {name: f"x.{name}" if a.is_uniform else f"x.{name}[i]" for name, a in self.direct}
        texts |= {name: f"tile.{name}.at(at.r, at.q + i, at.p)" for name, _ in self.along("depth")}
        texts |= {name: f"tile.{name}.at(at.p, at.q + i, at.r)" for name, _ in self.along("height")}
        shared, lanes, values = self.body_lines(texts, {name for name, a in self.direct if a.is_uniform})
        names = [self.result_name(node) for node, _ in self.results]
        return [
            *self.coordinate_lines([a for _, a in self.results]),
            *shared,
            *(f"kw::Vec<{storage_of(a)}, N> {name};" for name, (_, a) in zip(names, self.results, strict=True)),
            LANES,
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
            *(f"kw::store<N>({self.address(a)}, {name});" for name, (_, a) in zip(names, self.results, strict=True)),
        ]


def storage_of(access: Access) -> str:
    return access.layout.buffer.dtype.storage_cpp


def stored_literal(value: bool | int | float, dtype: DType) -> str:
    """A constant as it lies in memory."""
    text = literal(value, dtype)
    return f"kw::convert<{dtype.storage_cpp}>({text})" if dtype.is_reduced_float else text


def unused(wish: str, taken: Collection[str]) -> str:
    """The name, with a number if it is taken."""
    numbered = (f"{wish}_{number}" for number in range(2, len(taken) + 3))
    return wish if wish not in taken else next(name for name in numbered if name not in taken)


def needed_for(region: Region, roots: Sequence[Node]) -> set[Node]:
    """The Maps of the body that these values are computed by, from what is loaded or picked."""
    inside = set(region.maps)
    found: set[Node] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if isinstance(node, Map) and node in inside and node not in found:
            found.add(node)
            pending.extend(node.args)
    return found


def offsets(index: str, stride: int, kind: str) -> list[str]:
    """index * stride in this type: gathers of a CPU take as many numbers of 32 bits again as of 64."""
    return [] if stride == 0 else [f"{kind}({index})" if stride == 1 else f"{kind}({index}) * {stride}"]


def is_within(index: Node, extent: int) -> bool:
    """Whether the graph tells that the index is one of an axis so long."""
    low, high = value_range(index)
    return low >= 0 and high < extent


WRITERS: Mapping[str, type[Writer]] = {
    "rows": RowsWriter,
    "flat": FlatWriter,
    "tiles": TilesWriter,
    "bricks": BricksWriter,
}


def sum_of(terms: Sequence[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ") or "0"


def spelled(node: Map, operands: Sequence[str]) -> str:
    if node.to is not None:
        return spell_cast(operands[0], node.to)
    return f"kw::over_number({', '.join(operands)})" if divides_by_number(node) else SCALARS[node.fn].spell(*operands)


def divides_by_number(node: Map) -> bool:
    """Whether it divides, in float32, by a number by which `kw::over_number` does in a few instructions."""
    if node.fn != "div" or node.dtype.compute_cpp != "float":
        return False
    divisor = base_of(node.args[1])
    if not isinstance(divisor, Const) or not isinstance(divisor.value, float):
        return False
    fraction, exponent = math.frexp(as_float32(divisor.value))
    return math.isfinite(fraction) and fraction != 0 and -100 < exponent <= 100 and abs(fraction) != 1 - 2.0**-24


def formula_of(region: Region) -> str:
    """What the kernel computes, as one would say it; for long chains, how many functions it fuses."""
    names = {node: layout.buffer.name for node, layout in region.loads}
    texts: dict[Node, str] = {} if region.given is None else {region.given: "product"}
    picked = {node: source.layout.buffer.name for node, source in region.sources}
    for node in region.body:
        operands = node.indices if isinstance(node, Gather) else node.operands
        args = [operand_formula(x, names, texts) for x in operands]
        if isinstance(node, Map):
            texts[node] = map_formula(node, args)
        elif isinstance(node, Gather):
            texts[node] = f"{picked[node]}[{', '.join(map(unwrapped, args))}]"
    results = [f"{layout.buffer.name} = {unwrapped(texts[node])}" for node, layout in region.stores]
    text = "; ".join(results)
    if len(text) <= LONGEST_FORMULA:
        return text
    return formula_in_brief(region, [node.fn for node in region.body])


def formula_in_brief(region: Region, functions: Sequence[str]) -> str:
    """What it makes and by which functions, where the whole would be too long to read."""
    targets = list(dict.fromkeys(layout.buffer.name for _, layout in region.stores))
    return f"{', '.join(few(targets))}: {len(functions)} functions, {' -> '.join(few(functions))}"


def few(names: Sequence[str]) -> Sequence[str]:
    """Of more than ten, the first and the last."""
    return names if len(names) <= 10 else [*names[:5], "...", *names[-4:]]


def operand_formula(x: Node, names: Mapping[Node, str], texts: Mapping[Node, str]) -> str:
    base = base_of(x)
    if isinstance(base, Const):
        return f"{base.value:g}" if isinstance(base.value, float) else str(base.value)
    return texts[x] if x in texts else names[x]


def map_formula(node: Map, args: Sequence[str]) -> str:
    """Cut where it is too long to be shown: what is used twice is written twice, and doubles with every step."""
    if node.fn in INFIX:
        text = f"({args[0]} {INFIX[node.fn]} {args[1]})"
    elif node.to is not None:
        text = f"{node.to.name}({unwrapped(args[0])})"
    else:
        text = f"{node.fn}({', '.join(unwrapped(a) for a in args)})" if node.fn != "identity" else args[0]
    return text[: 2 * LONGEST_FORMULA]


def unwrapped(text: str) -> str:
    """(a + b) -> a + b, where the outer brackets are one pair."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(text) - 1:
            return text
    return text[1:-1]


def work_on(kernel: Kernel, kind: str) -> Work:
    return work_of(kernel.region, grid_of(kernel.region, kind))


def pointwise_configs(kernel: Kernel, device: Device) -> Sequence[PointwiseConfig]:
    return (
        () if kernel.core is not None or kernel.region.axes else pointwise.configs(work_on(kernel, device.kind), device)
    )


def pointwise_cost_us(choice: PointwiseConfig, kernel: Kernel, device: Device) -> float:
    return pointwise.cost_us(choice, work_on(kernel, device.kind), device)


def pointwise_floor_us(kernel: Kernel, device: Device) -> float:
    return pointwise.floor_us(work_on(kernel, device.kind), device)


def row_of(target: str, headers: tuple[str, ...], *types: type[PointwiseConfig]) -> Template:
    return Template(
        name="pointwise",
        target=target,
        headers=headers,
        types=types,
        configs=pointwise_configs,
        cost_us=pointwise_cost_us,
        floor_us=pointwise_floor_us,
        source=pointwise_source,
        extra=lambda kernel, choice: Extra(),
    )


TEMPLATES = (
    row_of("cuda", ("launch", "pointwise", "pointwise_tiles", "pointwise_bricks"), Config, TileConfig, BrickConfig),
    row_of("cpu", ("pointwise",), CpuConfig),
)
