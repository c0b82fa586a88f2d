"""A pointwise `Kernel` comes in; its C++ struct, the same for CUDA and the CPU, goes out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kernelwright.generate.grid import Access, Grid, grid_of, work_of
from kernelwright.generate.literals import camel, identifier, literal
from kernelwright.generate.program import Choice, Source
from kernelwright.ir.nodes import Const, Map, Node
from kernelwright.ir.scalars import SCALARS, spell_cast
from kernelwright.kernels.pointwise import Config
from kernelwright.plan import Kernel, Layout, Region
from kernelwright.plan.layouts import base_of

INFIX: Mapping[str, str] = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}

# A formula longer than this says less than the code below it.
LONGEST_FORMULA = 100


def pointwise_source(kernel: Kernel, choice: Choice) -> Source:
    region, grid = kernel.region, grid_of(kernel.region)
    writer = Writer(region, grid)
    struct = writer.struct(camel(kernel.name), formula_of(region))
    names = sorted({*re.findall(r"kw::(\w+)", struct), "KW_DEVICE", "KW_LANES", "int64_t", "Vec"})
    call = call_text(kernel, choice, writer.arguments)
    return Source(kernel, work_of(region, grid), choice, formula_of(region), struct, call, tuple(names))


def call_text(kernel: Kernel, choice: Choice, arguments: Sequence[str]) -> str:
    body = camel(kernel.name)
    if isinstance(choice, Config):
        shape = f"{choice.lanes}, {choice.vectors}, {choice.threads}"
        return f"kw::pointwise<{body}, {shape}>({{{', '.join(arguments)}}}, stream)"
    return f"kw::pointwise<{body}, {choice.lanes}, {choice.grain}>({{{', '.join(arguments)}}})"


class Writer:
    """Writes the struct of one kernel: its arguments, how its operands are loaded, and how its results are made."""

    def __init__(self, region: Region, grid: Grid) -> None:
        self.region = region
        self.grid = grid
        self.pointers: dict[str, tuple[str, str]] = {}  # buffer -> (C++ type, name); an operand written over is both
        self.loads: dict[tuple[Layout, ...], str] = {}
        self.load_names: dict[Node, str] = {}
        self.accesses: list[tuple[str, Access]] = []
        written = {layout.buffer.name for _, layout in region.stores}
        for (node, layout), access in zip(region.loads, grid.loads, strict=True):
            pointer = self.pointer(layout, writable=layout.buffer.name in written)
            if (layout,) not in self.loads:
                repeats = sum(a.layout.buffer == layout.buffer for _, a in self.accesses)
                self.loads[(layout,)] = pointer if not repeats else f"{pointer}_{repeats + 1}"
                self.accesses.append((self.loads[(layout,)], access))
            self.load_names[node] = self.loads[(layout,)]
        for _, layout in region.stores:
            self.pointer(layout, writable=True)

    def pointer(self, layout: Layout, writable: bool) -> str:
        storage = layout.buffer.dtype.storage_cpp
        type_ = f"{storage}*" if writable else f"const {storage}*"
        return self.pointers.setdefault(layout.buffer.name, (type_, identifier(layout.buffer.name)))[1]

    @property
    def arguments(self) -> list[str]:
        return [name for _, name in self.pointers.values()]

    def struct(self, name: str, formula: str) -> str:
        grid = self.grid
        index = "int64_t" if grid.wide_index else "int"
        members = " ".join(f"{type_} {pointer};" for type_, pointer in self.pointers.values())
        lines = [
            f"// {formula}",
            f"struct {name} {{",
            f"    using Index = {index};",
            f"    static constexpr int64_t rows = {grid.rows}, columns = {grid.columns};",
            f"    struct Args {{ {members} }};",
            "",
            *self.operands_lines(),
            "",
            *self.load_lines(),
            "",
            *self.store_lines(),
            "};",
        ]
        return "\n".join(lines)

    def operands_lines(self) -> list[str]:
        fields = " ".join(f"{self.operand_type(a)} {name};" for name, a in self.accesses)
        return [f"    template <int N> struct Operands {{ {fields} }};".replace("{  }", "{}")]

    @staticmethod
    def operand_type(access: Access) -> str:
        """A vector, or one value where the columns all see the same element."""
        storage = access.layout.buffer.dtype.storage_cpp
        return f"kw::Vec<{storage}, N>" if access.inner else storage

    def load_lines(self) -> list[str]:
        used = [a for _, a in self.accesses]
        return [
            "    template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {",
            *self.coordinate_lines(used),
            "        Operands<N> x;",
            *(f"        x.{name} = {self.load_expression(access)};" for name, access in self.accesses),
            "        return x;",
            "    }",
        ]

    def load_expression(self, access: Access) -> str:
        pointer = self.pointers[access.layout.buffer.name][1]
        where = self.address(f"a.{pointer}", access)
        if access.inner == 0:
            return f"*({where})" if " " in where else f"*{where}"
        if access.inner == 1:
            return f"kw::load<N>({where})"
        return f"kw::gather<N>({where}, {access.inner})"

    def address(self, pointer: str, access: Access) -> str:
        terms = [pointer]
        if access.offset:
            terms.append(str(access.offset))
        terms += self.row_terms(access)
        if access.inner:
            terms.append("column" if access.inner == 1 else f"int64_t(column) * {access.inner}")
        return " + ".join(terms)

    def row_terms(self, access: Access) -> list[str]:
        """The offset of a row: row * columns where rows follow each other, else by the coordinates."""
        dense, expected = True, self.grid.columns
        for extent, stride in zip(reversed(self.grid.outer), reversed(access.outer), strict=True):
            dense = dense and stride == expected
            expected *= extent
        if dense and self.grid.outer:
            return ["row * columns"]
        wide = "int64_t({})" if not self.grid.wide_index else "{}"
        names = self.coordinate_names()
        pairs = [(names[i], stride) for i, stride in enumerate(access.outer) if stride]
        return [name if stride == 1 else f"{wide.format(name)} * {stride}" for name, stride in pairs]

    def coordinate_names(self) -> list[str]:
        return ["row"] if len(self.grid.outer) == 1 else [f"i{axis}" for axis in range(len(self.grid.outer))]

    def coordinate_lines(self, accesses: Sequence[Access]) -> list[str]:
        """The coordinates of the row that any of the operands needs; divisors are constants, so no division is left."""
        text = " ".join(term for access in accesses for term in self.row_terms(access))
        lines = []
        below = 1
        for axis in reversed(range(len(self.grid.outer))):
            name = self.coordinate_names()[axis]
            if name != "row" and re.search(rf"\b{name}\b", text):
                shifted = "row" if below == 1 else f"row / {below}"
                whole = axis == 0
                lines.append(f"        const Index {name} = {shifted if whole else f'{shifted} % {self.grid.outer[axis]}'};")
            below *= self.grid.outer[axis]
        return list(reversed(lines))

    def store_lines(self) -> list[str]:
        uniform, lanes = self.body_lines()
        results = [(node, access) for (node, _), access in zip(self.region.stores, self.grid.stores, strict=True)]
        stores = []
        vectors = []
        for node, access in results:
            pointer = self.pointers[access.layout.buffer.name][1]
            storage = access.layout.buffer.dtype.storage_cpp
            vectors.append(f"        kw::Vec<{storage}, N> {self.result_name(node)};")
            stores.append(f"        kw::store<N>({self.address(f'a.{pointer}', access)}, {self.result_name(node)});")
        return [
            "    template <int N>",
            "    KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {",
            *self.coordinate_lines([access for _, access in results]),
            *(f"        {line}" for line in uniform),
            *vectors,
            "        KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"            {line}" for line in lanes),
            "        }",
            *stores,
            "    }",
        ]

    def result_name(self, node: Node) -> str:
        stored = [n for n, _ in self.region.stores]
        return f"y{stored.index(node)}" if len(stored) > 1 else "y"

    def body_lines(self) -> tuple[list[str], list[str]]:
        """What is the same for all lanes, then what each lane computes, as SSA temporaries."""
        names: dict[Node, str] = {}
        uniform: list[str] = []
        lanes: list[str] = []
        is_uniform: set[Node] = set()
        widened: dict[str, str] = {}
        for node in self.region.body:
            for x in node.args:
                if x not in names:
                    names[x] = self.operand_text(x, widened, uniform, lanes, is_uniform)
            same = all(x in is_uniform for x in node.args)
            temporary = f"t{sum(n in names for n in self.region.body)}"
            line = f"const {node.dtype.compute_cpp} {temporary} = {spelled(node, [names[x] for x in node.args])};"
            (uniform if same else lanes).append(line)
            if same:
                is_uniform.add(node)
            names[node] = temporary
        for node, layout in self.region.stores:
            dtype = layout.buffer.dtype
            value = f"kw::convert<{dtype.storage_cpp}>({names[node]})" if dtype.is_reduced_float else names[node]
            lanes.append(f"{self.result_name(node)}[i] = {value};")
        return uniform, lanes

    def operand_text(
        self, x: Node, widened: dict[str, str], uniform: list[str], lanes: list[str], is_uniform: set[Node]
    ) -> str:
        base = base_of(x)
        if isinstance(base, Const):
            is_uniform.add(x)
            return literal(base.value, base.dtype)
        name = self.load_names[x]
        access = dict(self.accesses)[name]
        if not access.inner:
            is_uniform.add(x)
        element = f"x.{name}[i]" if access.inner else f"x.{name}"
        if not x.dtype.is_reduced_float:
            return element
        if name not in widened:
            widened[name] = f"{name}_f"
            line = f"const float {name}_f = kw::widen({element});"
            (lanes if access.inner else uniform).append(line)
        return widened[name]


def spelled(node: Map, operands: Sequence[str]) -> str:
    if node.to is not None:
        return spell_cast(operands[0], node.to)
    return SCALARS[node.fn].spell(*operands)


def formula_of(region: Region) -> str:
    """What the kernel computes, as one would say it; for long chains, how many functions it fuses."""
    names = {node: layout.buffer.name for node, layout in region.loads}
    texts: dict[Node, str] = {}
    for node in region.body:
        args = [operand_formula(x, names, texts) for x in node.args]
        texts[node] = map_formula(node, args)
    results = [f"{layout.buffer.name} = {unwrapped(texts[node])}" for node, layout in region.stores]
    text = "; ".join(results)
    if len(text) <= LONGEST_FORMULA:
        return text
    functions = [node.fn for node in region.body]
    targets = ", ".join(dict.fromkeys(layout.buffer.name for _, layout in region.stores))
    shown = " -> ".join(functions if len(functions) <= 10 else [*functions[:5], "...", *functions[-4:]])
    return f"{targets}: {len(functions)} functions, {shown}"


def operand_formula(x: Node, names: Mapping[Node, str], texts: Mapping[Node, str]) -> str:
    base = base_of(x)
    if isinstance(base, Const):
        return f"{base.value:g}" if isinstance(base.value, float) else str(base.value)
    return texts[x] if x in texts else names[x]


def map_formula(node: Map, args: Sequence[str]) -> str:
    if node.fn in INFIX:
        return f"({args[0]} {INFIX[node.fn]} {args[1]})"
    if node.to is not None:
        return f"{node.to.name}({unwrapped(args[0])})"
    return f"{node.fn}({', '.join(unwrapped(a) for a in args)})" if node.fn != "identity" else args[0]


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


