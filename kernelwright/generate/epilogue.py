"""What becomes of the sums of a product: a `Region` comes in, the members of its C++ struct go out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from kernelwright.generate.grid import Access, Grid, merged_axes
from kernelwright.generate.literals import local
from kernelwright.generate.pointwise import BodyLines, RowsWriter, needed_for
from kernelwright.ir.dtypes import DType, float32
from kernelwright.ir.nodes import Map, Node
from kernelwright.ir.scalars import spell_cast
from kernelwright.plan import Layout, Region

FOUR = 4  # float32 that the copy engine counts in

# Functions that there are in few instructions too (`kw::near_tanh`), for arguments that have 11 bits.
IN_FEW_INSTRUCTIONS = "tanh|sigmoid|silu|mish|hardsigmoid|hardswish|gelu_erf|gelu_tanh"

# Of a result's own operands, what may be held until it leaves late: more makes the widest tile spill.
MOST_AHEAD_BYTES = 6


def in_few_instructions(struct: str, besides: str = "") -> str:
    """The struct with functions as accurate as arguments of 11 bits deserve; `besides`: one more of them."""
    names = "|".join(filter(None, (IN_FEW_INSTRUCTIONS, besides)))
    return re.sub(rf"\bkw::({names})\(", r"kw::near_\1(", struct)


def epilogue_grid(region: Region) -> Grid:
    """Rows by the columns of the product: the last axis stays apart, even where memory runs on into the next row."""
    layouts = [layout for _, layout in (*region.loads, *region.stores)]
    outer = merged_axes(region.shape[:-1], [layout.strides[:-1] for layout in layouts])
    accesses = [
        Access(layout, tuple(s[i] for _, s in outer), 0, layout.strides[-1], layout.offset)
        for i, layout in enumerate(layouts)
    ]
    split = len(region.loads)
    extents = tuple(n for n, _ in outer)
    return Grid("rows", extents, 1, region.shape[-1], tuple(accesses[:split]), tuple(accesses[split:]))


def vector_of(grid: Grid) -> int:
    """The most neighbours that every operand can load or store at once."""
    vectors = [a for a in (*grid.loads, *grid.stores) if a.inner == 1]
    starts = [n for a in vectors for n in (*a.outer, a.offset)] + [grid.columns]
    wide = max((a.layout.buffer.dtype.itemsize for a in vectors), default=4) <= 4
    return next(v for v in ((4, 2, 1) if wide else (2, 1)) if all(n % v == 0 for n in starts))


class EpilogueWriter(RowsWriter):
    """What happens to N neighbouring sums of one row: their operands are loaded, and the results stored, at once."""

    def members(self) -> list[str]:
        names = [self.result_name(node) for node, _ in self.results]
        lines = [
            *self.value_lines(),
            *(self.store_line(name, access) for name, (_, access) in zip(names, self.results, strict=True)),
        ]
        return [
            "",
            "    template <int N>",
            "    KW_DEVICE static void store(const Args& a, const float (&product)[N], int64_t row, int64_t column) {",
            *(f"        {line}" for line in lines),
            "    }",
        ]

    def value_lines(self) -> list[str]:
        """Coordinates, operands, and what becomes of the sums, in a vector for each result."""
        texts = {name: local(name) if self.is_uniform(a) else f"{local(name)}[i]" for name, a in self.accesses}
        given = self.region.given
        assert given is not None, "an epilogue is of a product"
        # PyTorch would have rounded a 16-bit product before anything is done to it.
        texts["given"] = spell_cast("product[i]", given.dtype) if given.dtype.is_reduced_float else "product[i]"
        shared, lanes, values = self.body_lines(texts, {name for name, a in self.accesses if self.is_uniform(a)})
        names = [self.result_name(node) for node, _ in self.results]
        storages = [access.layout.buffer.dtype.storage_cpp for _, access in self.results]
        read = [a for _, a in self.accesses] + [a for _, a in self.results]
        return [
            *self.coordinate_lines(read),
            *(f"const auto {local(name)} = {self.constant_load(a)};" for name, a in self.accesses),
            *shared,
            *(f"kw::Vec<{storage}, N> {name};" for storage, name in zip(storages, names, strict=True)),
            "KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
        ]

    def constant_load(self, access: Access) -> str:
        """No kernel writes these while this one runs, so that loads of several calls may be gathered."""
        if access.is_computed:
            return self.element(access) if self.is_uniform(access) else self.counted(access)
        if self.is_uniform(access):
            return f"kw::load_constant<1>({self.address(access)})[0]"
        if access.inner == 1:
            return f"kw::load_constant<N>({self.address(access)})"
        return f"kw::gather<N>({self.address(access)}, {access.inner})"


# --- float32 results that leave by the copy engine (gemm_sm90_sent.cuh)


def pitch_of_rows(layout: Layout) -> int:
    """From each row of the last axis to the next, where all are the same distance apart; 0 where they are not."""
    steps = [(n, s) for n, s in zip(layout.shape[:-1], layout.strides[:-1], strict=True) if n > 1]
    if not steps:
        return layout.shape[-1]
    even = all(s == step * n for (_, s), (n, step) in pairwise(steps))
    return steps[-1][1] if even and steps[-1][1] >= layout.shape[-1] else 0


def may_be_sent(region: Region) -> bool:
    """Whether it stores one float32 tensor, of rows that lie whole at multiples of 16 bytes."""
    if region.axes or region.sources or region.window or len(region.stores) != 1:
        return False
    _, layout = region.stores[0]
    pitch = pitch_of_rows(layout)
    whole = layout.buffer.dtype is float32 and layout.strides[-1] == 1 and pitch > 0
    return whole and not any(n % FOUR for n in (pitch, layout.shape[-1], layout.offset))


class SentWriter(EpilogueWriter):
    """What becomes of sums, and where the result lies: the copy engine takes it there."""

    def members(self) -> list[str]:
        ((node, access),) = self.results
        first = f"a.{self.pointers[access.layout.buffer.name][1]}{f' + {access.offset}' if access.offset else ''}"
        return [
            f"    static constexpr int64_t pitch = {pitch_of_rows(access.layout)};",
            "",
            f"    static float* result(const Args& a) {{ return {first}; }}",
            "    template <int N>",
            "    KW_DEVICE static kw::Vec<float, N> values(",
            "        const Args& a, const float (&product)[N], int64_t row, int64_t column) {",
            *(f"        {line}" for line in self.value_lines()),
            f"        return {self.result_name(node)};",
            "    }",
        ]


# --- results that leave while the next tile is multiplied (gemm_sm90_late.cuh)


def settled_node(region: Region) -> Node | None:
    """The value of 16 bits that all else is computed of: the product as PyTorch rounds it, with its bias if it has one;
    None where there is no such value."""
    node, stored = region.given, {result for result, _ in region.stores}
    while node is not None and not node.dtype.is_reduced_float:
        users = [user for user in region.maps if node in user.args]
        node = users[0] if len(users) == 1 and node not in stored else None
    return node


def unrounded(node: Node) -> Node:
    """What is rounded to this value of 16 bits; the value itself if it is made in another way."""
    if not isinstance(node, Map) or node.fn != "cast" or not node.dtype.is_reduced_float:
        return node
    return node.args[0] if node.args[0].dtype is float32 else node


@lru_cache(maxsize=256)  # asked for once a config
def may_leave_late(region: Region, dtype: DType) -> bool:
    """Whether sums can be rounded to this type before all else, with no operands but those that rows share."""
    settled = settled_node(region)
    if region.axes or region.sources or region.window or settled is None or settled.dtype is not dtype:
        return False
    if settled is not region.given and settled is unrounded(settled):
        return False
    writer = LateWriter(region, epilogue_grid(region))
    if sum(access.layout.buffer.dtype.itemsize for _, access in writer.ahead) > MOST_AHEAD_BYTES:
        return False
    return not any(access.is_computed or access.bounds or any(access.outer) for _, access in writer.early)


class LateWriter(EpilogueWriter):
    """The same in steps: sums are settled, which is to say rounded, and what is left to do is done later."""

    @property
    def settled(self) -> Node:
        node = settled_node(self.region)
        assert node is not None, "it may leave late"
        return node

    @property
    def early(self) -> list[tuple[str, Access]]:
        return self.loaded_for(self.before(), ())

    @property
    def late(self) -> list[tuple[str, Access]]:
        return self.loaded_for(self.after(self.last), self.last)

    @property
    def ahead(self) -> list[tuple[str, Access]]:
        """Operands of which every result has an element of its own: loaded long before, and so held in registers."""
        return [(name, a) for name, a in self.late if a.inner == 1 and any(a.outer) and not a.is_computed]

    @property
    def last(self) -> list[Node]:
        """What is stored, before it is rounded: that the store does, and once is enough."""
        return [node if node is self.settled else unrounded(node) for node, _ in self.region.stores]

    def before(self) -> set[Node]:
        """What settles the sums, but for the rounding."""
        return needed_for(self.region, [unrounded(self.settled)])

    def after(self, ends: Sequence[Node]) -> set[Node]:
        """What is computed of settled ones, up to these."""
        inside, found = set(self.region.maps), set[Node]()
        pending = list(ends)
        while pending:
            node = pending.pop()
            if isinstance(node, Map) and node in inside and node not in found and node is not self.settled:
                found.add(node)
                pending.extend(node.args)
        return found

    def residual(self) -> tuple[Node, str] | None:
        """Where the one result is the sum of two values of 16 bits, of which one is loaded ahead: the other, and that
        one's name. Such sums are taken as they lie, two at once."""
        last, dtype = self.last[0], self.settled.dtype
        if len(self.results) != 1 or not isinstance(last, Map) or last.fn != "add":
            return None
        values = [x.args[0] if isinstance(x, Map) and x.fn == "cast" else x for x in last.args]
        if any(x.dtype is not dtype for x in (self.results[0][0], *values)):
            return None
        names, ahead = [self.load_names.get(x, "") for x in values], {name for name, _ in self.ahead}
        return next(((values[1 - i], names[i]) for i in (1, 0) if names[i] in ahead and not names[1 - i]), None)

    def loaded_for(self, nodes: set[Node], besides: Sequence[Node]) -> list[tuple[str, Access]]:
        read = {x for node in nodes if isinstance(node, Map) for x in node.args}.union(besides)
        names = {self.load_names[x] for x in read if x in self.load_names}
        return [(name, access) for name, access in self.accesses if name in names]

    def members(self) -> list[str]:
        storage = self.settled.dtype.storage_cpp
        fields = " ".join(
            f"kw::Vec<{access.layout.buffer.dtype.storage_cpp}, N> {self.result_name(node)};"
            for node, access in self.results
        )
        place = "Index row, Index column"
        finish = f"Results<N> finish(const Args& a, const Operands<N>& x, const Settled<N>& settled, {place})"
        return [
            "",
            f"    template <int N> using Settled = kw::Vec<{storage}, N>;",
            f"    template <int N> struct Early {{ {self.fields(self.early)} }};".replace("{  }", "{}"),
            f"    template <int N> struct Operands {{ {self.fields(self.ahead)} }};".replace("{  }", "{}"),
            f"    template <int N> struct Results {{ {fields} }};",
            *self.function("Early<N> load_early(const Args& a, Index column)", self.loading("Early", self.early)),
            *self.function("void settle(const Early<N>& x, float (&product)[N])", self.settling()),
            *self.function(f"Operands<N> load(const Args& a, {place})", self.loading_ahead()),
            *self.function(finish, self.finishing()),
            *self.function(f"void store(const Args& a, const Results<N>& y, {place})", self.storing()),
        ]

    @staticmethod
    def function(head: str, lines: Sequence[str]) -> list[str]:
        body = [f"        {line}" for line in lines]
        return ["    template <int N>", f"    KW_DEVICE static {head} {{", *body, "    }"]

    def fields(self, accesses: Sequence[tuple[str, Access]]) -> str:
        types = [(name, access.layout.buffer.dtype.storage_cpp, self.is_uniform(access)) for name, access in accesses]
        return " ".join(
            f"{storage} {local(name)};" if is_uniform else f"kw::Vec<{storage}, N> {local(name)};"
            for name, storage, is_uniform in types
        )

    def loading(self, kind: str, accesses: Sequence[tuple[str, Access]]) -> list[str]:
        return [
            *self.coordinate_lines([a for _, a in accesses]),
            f"{kind}<N> x;",
            *(f"x.{local(name)} = {self.constant_load(a)};" for name, a in accesses),
            "return x;",
        ]

    def loading_ahead(self) -> list[str]:
        """A warp loads few neighbours of many rows; those beside them are wanted soon."""
        return [
            line.replace("kw::load_constant<N>", "kw::load_line<N>") for line in self.loading("Operands", self.ahead)
        ]

    def row_terms(self, access: Access) -> list[str]:
        """In the result's own index type: 64 bits take three instructions where 32 take one."""
        return [term.replace("row * columns", "row * Index(columns)") for term in super().row_terms(access)]

    def body(self, nodes: set[Node], known: dict[Node, str], held: Sequence[tuple[str, Access]]) -> BodyLines:
        """The lines that compute these values, with operands `held` in x."""
        names = {name: f"{'x.' if (name, a) in held else ''}{local(name)}" for name, a in self.accesses}
        texts = {name: names[name] if self.is_uniform(a) else f"{names[name]}[i]" for name, a in self.accesses}
        body = BodyLines(self, texts | {"given": "product[i]"}, {n for n, a in self.accesses if self.is_uniform(a)})
        body.names |= known
        for node in self.region.maps:
            if node in nodes:
                body.compute(node)
        return body

    def settling(self) -> list[str]:
        body = self.body(self.before(), {}, self.early)
        value = body.operand(unrounded(self.settled))
        lanes = [*body.lines[False], *([f"product[i] = {value};"] if value != "product[i]" else [])]
        return [*body.lines[True], *(self.in_lanes(lanes) if lanes else [])]

    def finishing(self) -> list[str]:
        residual = self.residual()
        if residual is not None and residual[0] is self.settled:
            return [f"return {{kw::sum_of(settled, x.{local(residual[1])})}};"]
        ends = self.last if residual is None else [unrounded(residual[0])]
        body = self.body(self.after(ends), {self.settled: "kw::widen(settled[i])"}, self.ahead)
        besides = [(name, access) for name, access in self.late if (name, access) not in self.ahead]
        values = [body.operand(node) for node in ends]
        computed = body.lines[False]
        return [
            *self.coordinate_lines([access for _, access in besides]),
            *(f"const auto {local(name)} = {self.constant_load(access)};" for name, access in besides),
            "Results<N> y;",
            *body.lines[True],
            *(
                self.storing_values(computed, values)
                if residual is None
                else self.adding(residual[1], computed, *values)
            ),
            "return y;",
        ]

    def storing_values(self, computed: Sequence[str], values: Sequence[str]) -> list[str]:
        stored = [
            f"y.{self.result_name(node)}[i] = {self.stored(node, access, value)};"
            for (node, access), value in zip(self.results, values, strict=True)
        ]
        return self.in_lanes([*computed, *stored])

    def adding(self, name: str, computed: Sequence[str], value: str) -> list[str]:
        """The value, rounded, plus the residual of that name."""
        result, storage = self.result_name(self.results[0][0]), self.settled.dtype.storage_cpp
        return [
            "float value[N];",
            *self.in_lanes([*computed, f"value[i] = {value};"]),
            f"y.{result} = kw::sum_of(kw::narrowed<{storage}>(value), x.{local(name)});",
        ]

    @staticmethod
    def in_lanes(lines: Sequence[str]) -> list[str]:
        return ["KW_LANES for (int i = 0; i < N; ++i) {", *(f"    {line}" for line in lines), "}"]

    def storing(self) -> list[str]:
        return [
            *self.coordinate_lines([access for _, access in self.results]),
            *(self.store_line(f"y.{self.result_name(node)}", access) for node, access in self.results),
        ]
