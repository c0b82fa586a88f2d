"""A `Kernel` with running values comes in; its C++ struct, the same for CUDA and the CPU, goes out.

N neighbours are loaded by `load`. `feed` computes what the scans of a stage take, `scan` hands it to the template, and
what they give takes its place; `store` computes and stores the results. A stage holds the scans that need no other
scan of the same stage: one scan of another is in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelwright.device import Device
from kernelwright.generate.grid import Access, Bound, Grid, merged_axes
from kernelwright.generate.literals import camel, identifier, literal, names_in
from kernelwright.generate.pointwise import (
    LONGEST_FORMULA,
    RowsWriter,
    formula_in_brief,
    map_formula,
    spelled,
    unwrapped,
)
from kernelwright.generate.program import Source
from kernelwright.generate.template import Extra, Template
from kernelwright.ir.dtypes import DType, by_name
from kernelwright.ir.nodes import Const, Map, Node, Scan, Shape
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.ir.scalars import spell_cast
from kernelwright.kernels import scan
from kernelwright.kernels.scan import AcrossConfig, AlongConfig, CpuConfig, ScanConfig, ScanWork
from kernelwright.plan import Buffer, Kernel, Region
from kernelwright.plan.layouts import base_of

UINT8 = by_name("uint8")

LANES = "KW_LANES for (int i = 0; i < N; ++i) {"

# Sums and products of float32 run in float64, as PyTorch's do on a CPU: the last of many would be far off otherwise.
WIDENED = frozenset({"Sum", "Product"})


@dataclass(frozen=True, slots=True)
class ScanGrid(Grid):
    """Along, a row's places are the columns. Across, they are the depth, and the columns are rows side by side."""

    across: bool

    @property
    def length(self) -> int:
        return self.depth if self.across else self.columns


def scan_grid(region: Region) -> ScanGrid:
    """Vectors run where most of the bytes have their neighbours."""
    (axis,) = region.axes
    layouts = [layout for _, layout in (*region.loads, *region.stores)]
    forms = [layout.strides for layout in layouts] + [guard.strides for layout in layouts for guard in layout.guards]
    length = region.shape[axis]
    places = tuple(form[axis] if length > 1 else 0 for form in forms)
    rest = merged_axes(without(region.shape, axis), [without(form, axis) for form in forms])

    def bytes_beside(strides: Sequence[int]) -> int:
        return sum(layout.touched_bytes for layout, stride in zip(layouts, strides, strict=False) if stride == 1)

    weights = [bytes_beside(strides) for _, strides in rest]
    across = max(weights, default=0) > bytes_beside(places)
    inner = weights.index(max(weights)) if across else len(rest)
    outer = [row for i, row in enumerate(rest) if i != inner]
    columns, lanes = rest[inner] if across else (length, places)
    steps = places if across else (0,) * len(forms)
    guards = iter([(*(s[i] for _, s in outer), steps[i], lanes[i]) for i in range(len(layouts), len(forms))])
    accesses = [
        Access(
            layout,
            tuple(s[i] for _, s in outer),
            steps[i],
            lanes[i],
            layout.offset,
            bounds=tuple(Bound(next(guards), guard.offset, guard.extent) for guard in layout.guards),
        )
        for i, layout in enumerate(layouts)
    ]
    split = len(region.loads)
    return ScanGrid(
        walk="rows",
        outer=tuple(extent for extent, _ in outer),
        depth=length if across else 1,
        columns=columns,
        loads=tuple(accesses[:split]),
        stores=tuple(accesses[split:]),
        across=across,
    )


def without(values: Shape, axis: int) -> Shape:
    return values[:axis] + values[axis + 1 :]


def scans_of(region: Region) -> list[Scan]:
    return [node for node in region.body if isinstance(node, Scan)]


def stages_of(region: Region) -> dict[Node, int]:
    """Of each value, how many stages must have run before it can be computed."""
    stage: dict[Node, int] = {}
    for node in region.body:
        reached = max((stage.get(base_of(x), 0) for x in node.operands), default=0)
        stage[node] = reached + 1 if isinstance(node, Scan) else reached
    return stage


class ScanWriter(RowsWriter):
    """The struct of a region with running values: see kernels/cuda/scan.cuh for how it is run."""

    grid: ScanGrid

    def __init__(self, region: Region) -> None:
        super().__init__(region, scan_grid(region))
        self.scans = scans_of(region)
        self.stage = stages_of(region)
        self.stages = max(self.stage[node] for node in self.scans)
        self.numbers = {node: number for number, node in enumerate(region.body)}
        self.names = {node: f"{node.fn}{number}" for number, node in enumerate(self.scans)}

    def extents(self) -> str:
        grid = self.grid
        depth = f"depth = {grid.depth}, " if grid.across else ""
        return f"rows = {grid.rows}, {depth}columns = {grid.columns}"

    @property
    def place(self) -> str:
        return "Index row, Index level, Index column" if self.grid.across else "Index row, Index column"

    def bound_rows(self, bound: Bound) -> list[str]:
        return [*super().bound_rows(bound), *self.scaled("level", bound.strides[-2])]

    def members(self) -> list[str]:
        reverse = "true" if self.scans[0].reverse else "false"
        running = " ".join(f"kw::Vec<{n.dtype.compute_cpp}, N> {self.names[n]}[V];" for n in self.scans)
        states = " ".join(f"{monoid(n)} {self.names[n]};" for n in self.scans)
        return [
            f"    static constexpr int stages = {self.stages};",
            f"    static constexpr bool reverse = {reverse};",
            "",
            f"    template <int N> struct Operands {{ {' '.join(self.operand_fields())} }};".replace("{  }", "{}"),
            "    // Of N neighbours at V places, what each scan takes and then gives; of N rows, where each stands.",
            f"    template <int N, int V> struct Running {{ {running} }};",
            f"    template <int N> struct State {{ {states} }};",
            "",
            "    template <int stage, typename F, typename... S> KW_DEVICE static void each(F f, S&... s) {",
            *self.by_stage(lambda stage: [f"f(s.{self.names[n]}...);" for n in self.scans_in(stage)]),
            "    }",
            "",
            "    template <int stage, typename Walk, typename R, typename S>",
            "    KW_DEVICE static void scan(Walk& walk, R& r, S& s) {",
            *self.by_stage(lambda stage: [self.scan_line(n) for n in self.scans_in(stage)]),
            "    }",
            "",
            f"    template <int N> KW_DEVICE static Operands<N> load(const Args& a, {self.place}) {{",
            *(f"        {line}" for line in self.coordinate_lines([a for _, a in self.accesses])),
            "        Operands<N> x;",
            *(f"        {line}" for name, access in self.accesses for line in self.load_lines(name, access)),
            "        return x;",
            "    }",
            "",
            "    template <int stage, int N, int V>",
            "    KW_DEVICE static void feed(const Operands<N>& x, Running<N, V>& r, int u) {",
            *self.by_stage(self.feed_lines),
            "    }",
            "",
            "    template <int N, int V>",
            f"    KW_DEVICE static void store(const Args& a, {self.place}, const Operands<N>& x,",
            "                                const Running<N, V>& r, int u) {",
            *(f"        {line}" for line in self.store_lines()),
            "    }",
        ]

    def scans_in(self, stage: int) -> list[Scan]:
        return [node for node in self.scans if self.stage[node] == stage + 1]

    def by_stage(self, lines: Callable[[int], list[str]]) -> list[str]:
        """The lines of each stage, in a branch of its own where there are several."""
        if self.stages == 1:
            return [f"        {line}" for line in lines(0)]
        found = []
        for stage in range(self.stages):
            found.append(f"        if constexpr (stage == {stage}) {{")
            found += [f"            {line}" for line in lines(stage)]
            found.append("        }")
        return found

    def scan_line(self, node: Scan) -> str:
        exclusive = "true" if node.exclusive else "false"
        return f"walk.template scan<{exclusive}>(r.{self.names[node]}, s.{self.names[node]});"

    def feed_lines(self, stage: int) -> list[str]:
        scans = self.scans_in(stage)
        shared, lanes, texts = self.computed([node.x for node in scans])
        takes = [f"r.{self.names[n]}[u][i] = {text};" for n, text in zip(scans, texts, strict=True)]
        return [*shared, LANES, *(f"    {line}" for line in (*lanes, *takes)), "}"]

    def store_lines(self) -> list[str]:
        shared, lanes, texts = self.computed([node for node, _ in self.results])
        whole = [i for i, (_, access) in enumerate(self.results) if not self.is_of_row(access)]
        names = [self.result_name(node) for node, _ in self.results]
        storages = [access.layout.buffer.dtype.storage_cpp for _, access in self.results]
        values = [self.stored(n, access, text) for (n, access), text in zip(self.results, texts, strict=True)]
        lines = [
            *self.coordinate_lines([access for _, access in self.results]),
            *shared,
            *(f"kw::Vec<{storage}, N> {name};" for storage, name in zip(storages, names, strict=True)),
            LANES,
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
        ]
        for i, (name, (_, access)) in enumerate(zip(names, self.results, strict=True)):
            lines.append(self.store_line(name, access) if i in whole else self.row_store_line(name, access))
        return lines

    def store_line(self, name: str, access: Access) -> str:
        if access.inner == 1:
            return f"kw::store<N>({self.address(access)}, {name});"
        return f"kw::scatter<N>({self.address(access)}, {access.inner}, {name});"

    def row_store_line(self, name: str, access: Access) -> str:
        """One value a row: stored where the row begins."""
        if self.grid.across:
            return f"if (level == 0) {self.store_line(name, access)}"
        return f"if (column == 0) {self.element(access)} = {name}[0];"

    def is_of_row(self, access: Access) -> bool:
        return self.grid.length > 1 and (access.depth if self.grid.across else access.inner) == 0

    def computed(self, wanted: Sequence[Node]) -> tuple[list[str], list[str], list[str]]:
        """What all lanes share, what each computes, and the text of each wanted value."""
        texts: dict[Node, str] = {}
        uniform: set[Node] = set()
        lines: dict[bool, list[str]] = {True: [], False: []}

        def text_of(x: Node) -> str:
            node = x if x in self.load_names else base_of(x)
            if node in texts:
                return texts[node]
            if isinstance(node, Const):
                texts[node] = literal(node.value, node.dtype)
                uniform.add(node)
            elif isinstance(node, Scan) and node in self.names:
                texts[node] = in_registers(f"r.{self.names[node]}[u][i]", node.dtype)
            else:
                name = self.load_names[node]
                same = self.is_uniform(dict(self.accesses)[name])
                texts[node] = f"x.{name}" if same else f"x.{name}[i]"
                if same:
                    uniform.add(node)
                if node.dtype.is_reduced_float:
                    wide = f"const float {name}_f = kw::widen({texts[node]});"
                    lines[same] += [] if wide in lines[same] else [wide]
                    texts[node] = f"{name}_f"
            return texts[node]

        def is_uniform(x: Node) -> bool:
            return (x if x in self.load_names else base_of(x)) in uniform

        for node in self.needed(wanted):
            operands = [text_of(x) for x in node.args]
            same = all(is_uniform(x) for x in node.args)
            name = f"t{self.numbers[node]}"
            lines[same].append(f"const {node.dtype.compute_cpp} {name} = {spelled(node, operands)};")
            texts[node] = name
            if same:
                uniform.add(node)
        results = [text_of(x) for x in wanted]
        return lines[True], lines[False], results

    def needed(self, wanted: Iterable[Node]) -> list[Map]:
        """The Maps to compute for these, in order; scans have run."""
        found: set[Node] = set()
        pending = list(wanted)
        while pending:
            x = pending.pop()
            node = x if x in self.load_names else base_of(x)
            if isinstance(node, Map) and node in self.numbers and node not in found:
                found.add(node)
                pending += node.args
        return [node for node in self.region.maps if node in found]


def in_registers(text: str, dtype: DType) -> str:
    """A running value as what follows it computes with: of a 16-bit float, rounded; a truth value is a byte before."""
    if dtype.is_reduced_float:
        return spell_cast(text, dtype)
    return f"bool({text})" if dtype.kind == "bool" else text


def monoid(node: Scan) -> str:
    name, type_ = REDUCTIONS[node.fn].monoid, node.dtype.compute_cpp
    return f"kw::{name}<{'double' if type_ == 'float' and name in WIDENED else type_}, N>"


# --- what the templates are told


def work_of_scan(region: Region) -> ScanWork:
    grid = scan_grid(region)
    accesses = (*grid.loads, *grid.stores)
    vectors = [a for a in accesses if a.is_vector]
    starts = {n for a in vectors for n in (*a.outer, a.depth, a.offset)} - {0}
    return ScanWork(
        across=grid.across,
        rows=grid.rows,
        length=grid.length,
        columns=grid.columns if grid.across else 1,
        itemsizes=tuple(a.layout.buffer.dtype.itemsize for a in vectors) or (4,),
        alignments=tuple(sorted(starts)),
        bytes_moved=region.bytes_moved,
        read_bytes=region.bytes_read,
        operands=sum(not a.is_uniform for a in grid.loads),
        scans=len(scans_of(region)),
        stages=max(stages_of(region)[node] for node in scans_of(region)),
    )


# --- the source


def scan_source(kernel: Kernel, choice: ScanConfig) -> Source:
    region = kernel.region
    writer = ScanWriter(region)
    work = work_of_scan(region)
    name, formula = camel(kernel.name), scan_formula(region)
    struct = writer.struct(name, formula)
    template = "scan_across" if work.across else "scan_along"
    scratch = scan_extra(kernel, choice).scratch
    workspace = identifier(scratch[0].name) if scratch else "nullptr"
    on_host = () if isinstance(choice, CpuConfig) else ("OnDevice",)
    stream = "" if isinstance(choice, CpuConfig) else ", stream"
    call = f"kw::{template}<{name}, {parameters(choice, work)}>({{{', '.join(writer.arguments)}}}, {workspace}{stream})"
    needs = {*names_in(struct), template, *on_host}
    return Source(kernel, work, choice, formula, struct, template, call, tuple(sorted(needs)))


def parameters(choice: ScanConfig, work: ScanWork) -> str:
    """The template's parameters after the struct; a chunk counts places."""
    match choice:
        case AlongConfig(threads, rows, lanes, vectors, chunks):
            chunk = scan.chunk_of(work.length, chunks, threads * vectors * lanes)
            return f"{threads}, {rows}, {lanes}, {vectors}, {chunk}"
        case AcrossConfig(threads, lanes, places, chunks):
            return f"{threads}, {lanes}, {places}, {scan.chunk_of(work.length, chunks, places)}"
        case CpuConfig(lanes, together, chunk):
            return f"{lanes}, {together}, {chunk}" if work.across else f"{lanes}, {chunk}"


def scan_extra(kernel: Kernel, choice: ScanConfig) -> Extra:
    """Memory for the totals of chunks, where rows are cut."""
    size = scan.workspace_bytes(choice, work_of_scan(kernel.region))
    name = f"workspace_{kernel.name.removesuffix('_kernel')}"
    return Extra(scratch=(Buffer(name, (size,), UINT8, (1,)),) if size else ())


def scan_formula(region: Region) -> str:
    """What the kernel computes, as one would say it; for long chains, how many functions it fuses."""
    texts: dict[Node, str] = {node: layout.buffer.name for node, layout in region.loads}

    def text_of(x: Node) -> str:
        node = x if x in texts else base_of(x)
        if isinstance(node, Const):
            return f"{node.value:g}" if isinstance(node.value, float) else str(node.value)
        return texts[node]

    for node in region.body:
        operands = [text_of(x) for x in node.operands]
        assert isinstance(node, (Map, Scan)), "a kernel that scans does not reduce"
        text = spoken(node, operands[0]) if isinstance(node, Scan) else map_formula(node, operands)
        texts[node] = text if len(text) <= LONGEST_FORMULA else "..."
    text = "; ".join(f"{layout.buffer.name} = {unwrapped(texts[node])}" for node, layout in region.stores)
    if len(text) <= LONGEST_FORMULA and "..." not in text:
        return text
    functions = [f"cum{node.fn}" if isinstance(node, Scan) else node.fn for node in region.body]
    return formula_in_brief(region, functions)


def spoken(node: Scan, operand: str) -> str:
    ways = [way for way, is_so in (("reverse", node.reverse), ("exclusive", node.exclusive)) if is_so]
    return "_".join([*ways, f"cum{node.fn}"]) + f"({unwrapped(operand)})"


# --- the table


def has_scans(kernel: Kernel) -> bool:
    return kernel.core is None and bool(scans_of(kernel.region))


def scan_configs(kernel: Kernel, device: Device) -> Sequence[ScanConfig]:
    return scan.configs(work_of_scan(kernel.region), device) if has_scans(kernel) else ()


def row_of(target: str, headers: tuple[str, ...], *types: type[ScanConfig]) -> Template:
    return Template(
        name="scan",
        target=target,
        headers=headers,
        types=types,
        configs=scan_configs,
        cost_us=lambda choice, kernel, device: scan.cost_us(choice, work_of_scan(kernel.region), device),
        floor_us=lambda kernel, device: scan.floor_us(work_of_scan(kernel.region), device),
        source=scan_source,
        extra=scan_extra,
    )


TEMPLATES = (
    row_of("cuda", ("launch", "pointwise", "scan"), AlongConfig, AcrossConfig),
    row_of("cpu", ("pointwise", "scan"), CpuConfig),
)
