"""A `Kernel` that reduces comes in; its C++ struct, the same for CUDA and the CPU, goes out.

A vector of N neighbours is loaded by `load`; `step` of each phase adds it to the states of that phase, or stores what
is computed from it; `finish` turns the merged states into values of the row, which later phases use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kernelwright.device import Device
from kernelwright.generate.grid import Access, Bound
from kernelwright.generate.literals import camel, identifier, literal, local, names_in
from kernelwright.generate.phases import Phases, is_full, phases_of
from kernelwright.generate.pointwise import (
    LANES,
    LONGEST_FORMULA,
    Writer,
    formula_in_brief,
    map_formula,
    spelled,
    unwrapped,
)
from kernelwright.generate.program import Source
from kernelwright.generate.rows import RowAccess, RowGrid, is_dense, row_grid
from kernelwright.generate.template import Extra, Template
from kernelwright.ir.dtypes import by_name
from kernelwright.ir.nodes import Const, Gather, Map, Node, Reduce
from kernelwright.ir.reductions import REDUCTIONS
from kernelwright.ir.scalars import SCALARS
from kernelwright.kernels import reduce
from kernelwright.kernels.reduce import Config, CpuConfig, Operand, ReduceConfig, RowWork, struct_bytes
from kernelwright.plan import Buffer, Kernel, Region
from kernelwright.plan.layouts import base_of, loaded, made_of
from kernelwright.plan.steps import Layout, Origin

UINT8 = by_name("uint8")

# Stands for the lane of a vector in the number of an element.
LANE = "i"

# What a state holds for one lane, in elements; positions count as two.
STATE_ELEMENTS = {"Sum": 1, "Product": 1, "Largest": 1, "Smallest": 1, "Deviations": 3, "Exponentials": 2}
WITH_PLACE = frozenset({"LargestAt", "SmallestAt"})


class Values:
    """The lines of one generated function: what all lanes share, what each computes, and what each value is called."""

    def __init__(self, writer: RowsWriter, early: Iterable[str] = (), late: Iterable[str] = ()) -> None:
        self.writer = writer
        self.early, self.late = set(early), set(late)
        self.names: dict[Node, str] = {}
        self.uniform: set[Node] = set()
        self.lines: dict[bool, list[str]] = {True: [], False: []}

    def operand(self, x: Node) -> str:
        """The text of an operand: computed here, loaded, finished, or a constant."""
        node = self.writer.phases.resolved(x)
        if node not in self.names:
            if isinstance(node, Const):
                self.names[node] = literal(node.value, node.dtype)
                self.uniform.add(node)
            elif node is self.writer.region.given:
                self.names[node] = self.writer.given_text(node)
            elif node in self.writer.load_names:
                self.names[node] = self.loaded(node)
            else:
                self.names[node] = self.writer.row_text(node)
                if not self.writer.grid.across:
                    self.uniform.add(node)
        return self.names[node]

    def loaded(self, node: Node) -> str:
        name = self.writer.load_names[node]
        same = self.writer.is_same(node)
        place = f"x.{name}" if name in self.early else local(name) if name in self.late else f"r.{name}"
        text = place if same else f"{place}[i]"
        if same:
            self.uniform.add(node)
        if not node.dtype.is_reduced_float:
            return text
        wide = f"const float {name}_f = kw::widen({text});"
        if wide not in self.lines[same]:
            self.lines[same].append(wide)
        return f"{name}_f"

    def is_uniform(self, x: Node) -> bool:
        return self.writer.phases.resolved(x) in self.uniform

    def compute(self, node: Map) -> None:
        operands = [self.operand(x) for x in node.args]
        same = all(self.is_uniform(x) for x in node.args)
        if node.fn == "div" and node.dtype.kind == "float" and not same and self.is_of_row(node.args[1]):
            divide = "over" if self.is_exponential(node.args[0]) else "divided"
            self.define(node, f"kw::{divide}({operands[0]}, {self.divisor(node.args[1])})", same)
        elif self.writer.is_share(node):
            name = self.writer.value_name(self.writer.phases.resolved(node.args[1]))
            self.define(node, f"{operands[0]} * r.by_{name}[i]", same)
        else:
            self.define(node, spelled(node, operands), same)

    def is_of_row(self, x: Node) -> bool:
        """One value for the whole row, that is no constant."""
        return self.is_uniform(x) and not isinstance(self.writer.phases.resolved(x), Const)

    def is_exponential(self, x: Node) -> bool:
        """Rounded more than once already, so that one rounding more does not matter."""
        node = self.writer.phases.resolved(x)
        return isinstance(node, Map) and node.fn == "exp"

    def divisor(self, x: Node) -> str:
        """What is found once of a value that all lanes are divided by: with the row's values, where it is one."""
        value = self.operand(x)
        if self.writer.phases.resolved(x) in self.writer.divisors:
            return f"r.by_{value.rpartition('.')[2]}"
        name = f"by_{value.rpartition('.')[2]}"
        line = f"const kw::Divisor<{x.dtype.compute_cpp}> {name}({value});"
        if line not in self.lines[True]:
            self.lines[True].append(line)
        return name

    def define(self, node: Node, value: str, same: bool) -> None:
        name = self.writer.value_name(node)
        self.lines[same].append(f"const {node.dtype.compute_cpp} {name} = {value};")
        self.names[node] = name
        if same:
            self.uniform.add(node)


class RowsWriter(Writer):
    """The struct of a region that reduces: see kernels/cuda/reduce.cuh for how it is run."""

    grid: RowGrid
    row_alignment = ""  # of several values of a row, where they are read together

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel.region, self.grid_of(kernel.region))
        self.phases: Phases = phases_of(kernel.region, list(kernel.writes_over))
        self.numbers: dict[Node, int] = {node: number for number, node in enumerate(kernel.region.body)}
        users: dict[str, set[int]] = {}
        for phase in range(self.phases.walks):
            for node in self.phases.operands_in(phase):
                if node in self.load_names:
                    users.setdefault(self.load_names[node], set()).add(phase)
        of_row = {name for name, access in self.operands.values() if rows_of(access).is_of_row}
        late = {name for name, phases in users.items() if len(phases) == 1 and 0 not in phases}
        # One element for all lanes is not worth a place beside its vector, where a row is held: it is in the cache.
        late |= {name for name, phases in users.items() if len(phases) > 1 and self.is_one_for_all(name)}
        late -= {name for name, _ in self.picked.values()}
        self.replaced, self.last = self.replacing()
        self.of_row = [name for name, _ in self.accesses if name in of_row and name not in self.replaced]
        self.early = [name for name, _ in self.read if name in users and name not in of_row | late]
        self.late = [name for name, _ in self.accesses if name in late - of_row]
        self.exported = self.exported_values()
        self.divisors = self.divisors_of_rows()

    def replacing(self) -> tuple[list[str], list[Map]]:
        """Operands whose place a row's new value takes, and what is computed from them: by whoever stores it, since
        nobody else may look at them by then."""
        stored = {layout.buffer.name for _, layout in self.phases.row_stores()}
        read = [(x, layout.buffer.name) for x, layout in self.region.loads if layout.buffer.name in stored]
        loads = [x for x, buffer in read if is_read_for_itself(x, buffer, self.region)]
        made = {node for x in loads for node in made_of(x, self.region.body)}
        names = {self.load_names[x] for x in loads}
        in_order = [node for node in self.region.body if node in made and isinstance(node, Map)]
        return [name for name, _ in self.accesses if name in names], in_order

    def grid_of(self, region: Region) -> RowGrid:
        return row_grid(region)

    # --- what things are called

    def given_text(self, given: Node) -> str:
        raise AssertionError("only the epilogue of a product is given a value")

    def access(self, name: str) -> RowAccess:
        return next(rows_of(access) for known, access in self.read if known == name)

    def is_same(self, node: Node) -> bool:
        """Whether what is loaded or picked is the same for all lanes."""
        return node in self.uniform if isinstance(node, Gather) else self.is_uniform(self.access(self.load_names[node]))

    def value_name(self, node: Node) -> str:
        return f"t{self.numbers[node]}"

    def row_text(self, node: Node) -> str:
        return f"r.{self.value_name(node)}[i]" if self.grid.across else f"r.{self.value_name(node)}"

    def exported_values(self) -> list[Node]:
        """The values of a row that are used in another function than the one that computes them."""
        wanted: set[Node] = {node for node, _ in self.phases.row_stores()}
        wanted |= {self.phases.resolved(x) for node in self.last for x in node.args}
        for phase in range(self.phases.walks):
            wanted.update(self.phases.operands_in(phase))
        for node in self.region.body:
            if not self.phases.is_full(node) and isinstance(node, Map):
                mine = self.phases.level[node]
                wanted.update(x for x in map(self.phases.resolved, node.args) if self.phases.level.get(x, mine) != mine)
        here = [node for node in self.region.body if node in wanted and node not in self.last]
        return [node for node in here if not self.phases.is_full(node)]

    def is_share(self, node: Map) -> bool:
        """e / sum(e), where every lane has a row, and e is exp(x - max(x)) of it: the sum is 1 or more, and e has been
        rounded more than once already, so that it may as well be multiplied by the inverse."""
        if node.fn != "div" or not self.grid.across:
            return False
        raised, total = map(self.phases.resolved, node.args)
        return isinstance(total, Reduce) and total.fn == "sum" and is_below_one(raised) and total.x is raised

    def divisors_of_rows(self) -> list[Node]:
        """The values of a row that whole vectors are divided by."""
        computed = [node for phase in range(self.phases.walks) for node in self.phases.computed_in(phase)]
        divides = [node for node in computed if node.fn == "div" and node.dtype.kind == "float"]
        if self.grid.across:
            divides = [node for node in divides if self.is_share(node)]
        by = {self.phases.resolved(node.args[1]) for node in divides}
        return [node for node in self.exported if node in by]

    # --- addresses

    def row_terms(self, access: Access) -> list[str]:
        for unit, text in ((1, "row"), (self.grid.columns, "row * columns")):
            if self.grid.outer and is_dense(self.grid.outer, access.outer, unit):
                return [text]
        pairs = zip(self.coordinates(), access.outer, strict=True)
        return [term for name, stride in pairs for term in self.scaled(name, stride)]

    def column_terms(self, strides: Sequence[int]) -> list[str]:
        """The offset of a column: by its number where one stride serves all axes, else by its coordinates."""
        if is_dense(self.grid.reduced, tuple(strides), strides[-1]):
            return self.scaled("column", strides[-1])
        return self.coordinate_terms(self.column_names(), strides)

    def coordinate_terms(self, names: Sequence[str], strides: Sequence[int]) -> list[str]:
        return [term for name, stride in zip(names, strides, strict=True) for term in self.scaled(name, stride)]

    def column_names(self) -> list[str]:
        return ["column"] if len(self.grid.reduced) == 1 else [f"j{axis}" for axis in range(len(self.grid.reduced))]

    def terms(self, access: Access, column: str) -> list[str]:
        """What adds up to the number of an element; `column` is empty for the first lane, else what adds the others."""
        offset = [str(access.offset)] if access.offset else []
        lane = self.scaled("i", access.inner) if column == LANE else []
        return [*offset, *self.row_terms(access), *self.column_terms(rows_of(access).reduced), *lane]

    def bound_terms(self, bound: Bound, column: str) -> list[str]:
        split = len(self.grid.outer)
        pairs = [*zip(self.coordinates(), bound.strides[:split], strict=True)]
        pairs += zip(self.column_names(), bound.strides[split:], strict=True)
        pairs += [("i", self.lane_stride(bound))] if column == LANE else []
        return [term for name, stride in pairs for term in self.placed(bound, name, stride)]

    def lane_stride(self, bound: Bound) -> int:
        return bound.strides[len(self.grid.outer) - 1 if self.grid.across else -1]

    def coordinate_lines(self, accesses: Sequence[Access]) -> list[str]:
        """Also the coordinates of the column that any of the operands needs."""
        split = len(self.grid.outer)
        terms = [term for a in accesses for term in self.column_terms(rows_of(a).reduced)]
        for bound in (bound for a in accesses for bound in a.bounds):
            terms += self.coordinate_terms(self.column_names(), bound.strides[split:])
        return [*super().coordinate_lines(accesses), *self.column_lines(" ".join(terms))]

    def column_lines(self, text: str) -> list[str]:
        lines = []
        below = 1
        for axis in reversed(range(len(self.grid.reduced))):
            name = self.column_names()[axis]
            if name != "column" and re.search(rf"\b{name}\b", text):
                shifted = "column" if below == 1 else f"column / {below}"
                wrapped = shifted if axis == 0 else f"{shifted} % {self.grid.reduced[axis]}"
                lines.append(f"const Index {name} = {wrapped};")
            below *= self.grid.reduced[axis]
        return list(reversed(lines))

    def load_lines(self, target: str, access: Access, declared: str = "") -> list[str]:
        """The operand as one generated function reads it: an element, neighbours, or elements apart."""
        if access.is_uniform:
            return [f"{declared and 'const auto '}{target} = {self.element(access)};"]
        if access.is_vector:
            return [f"{declared and 'const auto '}{target} = kw::load<N>({self.address(access)});"]
        inside = self.load_inside(access, "") if access.bounds else None
        if inside is not None:
            return [f"{declared and 'const auto '}{target} = {inside};"]
        if access.bounds or access.is_computed:
            lanes = f"KW_LANES for (int i = 0; i < N; ++i) {target}[i] = {self.element(access, LANE)};"
            return [f"{declared} {target};", lanes] if declared else [lanes]
        return [f"{declared and 'const auto '}{target} = kw::gather<N>({self.address(access)}, {access.inner});"]

    # --- the struct

    def extents(self) -> str:
        return f"rows = {self.grid.rows}, columns = {self.grid.columns}, line = {self.grid.line}"

    def members(self) -> list[str]:
        across = "true" if self.grid.across else "false"
        sections = [
            [
                f"static constexpr int phases = {self.phases.walks}, reductions = {self.phases.finishing};",
                f"static constexpr bool across = {across};",
            ],
            [f"template <int N> struct Operands {{ {' '.join(self.operand_fields())} }};".replace("{  }", "{}")],
            self.row_struct(),
            self.states(),
            self.load_function(),
            self.begin_function(),
            *(self.step_function(phase) for phase in range(self.phases.walks)),
            *(self.finish_function(phase) for phase in range(self.phases.finishing)),
            self.store_row_function(),
        ]
        return [line for section in sections for line in ("", *(f"    {line}" if line else "" for line in section))][1:]

    def operand_fields(self) -> list[str]:
        return [self.field(name) for name in self.early]

    def field(self, name: str) -> str:
        storage = self.access(name).layout.buffer.dtype.storage_cpp
        return f"{storage} {name};" if self.is_one_for_all(name) else f"kw::Vec<{storage}, N> {name};"

    def is_one_for_all(self, name: str) -> bool:
        """Whether the operand of this name is one element for all lanes."""
        return self.is_same(next(node for node, known in self.load_names.items() if known == name))

    def row_struct(self) -> list[str]:
        fields = [self.field(name) for name in self.of_row]
        for node in self.exported:
            kind, name = node.dtype.compute_cpp, self.value_name(node)
            fields.append(f"kw::Vec<{kind}, N> {name};" if self.grid.across else f"{kind} {name};")
        kind = "kw::Vec<{}, N>" if self.grid.across else "kw::Divisor<{}>"
        fields += [f"{kind.format(n.dtype.compute_cpp)} by_{self.value_name(n)};" for n in self.divisors]
        aligned = self.row_alignment if len(fields) > 1 else ""
        return [f"template <int N> struct {aligned}Row {{ {' '.join(fields)} }};".replace("{  }", "{}")]

    def states(self) -> list[str]:
        lines = [
            "template <int phase, int N> struct State {",
            "    KW_DEVICE void clear() {}",
            "    KW_DEVICE void merge(const State&) {}",
            "    KW_DEVICE State<phase, 1> folded() const { return {}; }",
            "};",
        ]
        for phase in range(self.phases.finishing):
            reduces = self.phases.reduced_in(phase)
            names = [self.value_name(node) for node in reduces]
            merges, folds = (f"{name}.merge(other.{name});" for name in names), (f"{name}.folded()" for name in names)
            lines += [
                f"template <int N> struct State<{phase}, N> {{",
                *(f"    {self.monoid(node)} {name};" for node, name in zip(reduces, names, strict=True)),
                f"    KW_DEVICE void clear() {{ {' '.join(f'{name}.clear();' for name in names)} }}",
                f"    KW_DEVICE void merge(const State& other) {{ {' '.join(merges)} }}",
                f"    KW_DEVICE State<{phase}, 1> folded() const {{ return {{{', '.join(folds)}}}; }}",
                *(f"    {line}" for line in self.state_members(phase, names)),
                "};",
            ]
        return lines

    def monoid(self, node: Reduce) -> str:
        """What the states of a reduction are, by the name of a C++ type."""
        return monoid(node)

    def state_members(self, phase: int, names: Sequence[str]) -> list[str]:
        """What the state of a phase can do besides."""
        return []

    def load_function(self) -> list[str]:
        picked = [name for name, _ in self.picked.values()]
        early = [name for name in self.early if name not in picked]
        values, only_here = self.picking()
        lines = [line for name in early for line in self.load_lines(f"x.{name}", self.access(name))]
        for name in only_here:
            declared = f"kw::Vec<{self.access(name).layout.buffer.dtype.storage_cpp}, N>"
            lines += self.load_lines(local(name), self.access(name), declared)
        lines += values.lines[True]
        if values.lines[False]:
            lines += [LANES, *(f"    {line}" for line in values.lines[False]), "}"]
        return [
            "template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {",
            *(f"    {line}" for line in self.coordinate_lines(list(map(self.access, (*early, *only_here, *picked))))),
            "    Operands<N> x;",
            *(f"    {line}" for line in lines),
            "    return x;",
            "}",
        ]

    def picking(self) -> tuple[Values, list[str]]:
        """The indices and what they pick, in order; and the operands that are loaded for them alone."""
        indexing = self.indexing()
        wanted = [x for node in (*indexing, *self.picked) for x in loaded(node)]
        names = {self.load_names[x] for x in map(self.phases.resolved, wanted) if x in self.load_names}
        only_here = [name for name, _ in self.accesses if name in names and name not in self.early]
        values = Values(self, self.early, only_here)
        for node in self.region.body:
            if isinstance(node, Map) and node in indexing:
                values.compute(node)
            elif isinstance(node, Gather):
                name, access = self.picked[node]
                whole = node in self.uniform or access in self.in_vectors
                value = self.pick(node, [values.operand(x) for x in node.indices], "" if whole else LANE)
                values.lines[whole].append(f"x.{name} = {value};" if whole else f"x.{name}[i] = {value};")
        return values, only_here

    def indexing(self) -> set[Node]:
        found: set[Node] = set()
        pending = [x for node in self.picked for x in node.indices]
        while pending:
            node = self.phases.resolved(pending.pop())
            if isinstance(node, Map) and node in self.numbers and node not in found:
                found.add(node)
                pending.extend(node.args)
        return found

    def begin_function(self) -> list[str]:
        accesses = [self.access(name) for name in self.of_row]
        values = self.row_computation(0)
        return [
            "template <int N> KW_DEVICE static Row<N> begin(const Args& a, Index row) {",
            *(f"    {line}" for line in self.coordinate_lines(accesses)),
            "    Row<N> r;",
            *(f"    {line}" for name in self.of_row for line in self.load_lines(f"r.{name}", self.access(name))),
            *(f"    {line}" for line in values),
            "    return r;",
            "}",
        ]

    def finish_function(self, phase: int) -> list[str]:
        return [
            f"template <int N> KW_DEVICE static void finish(const State<{phase}, N>& s, Row<N>& r) {{",
            *(f"    {line}" for line in self.row_computation(phase + 1)),
            "}",
        ]

    def row_computation(self, level: int) -> list[str]:
        """What becomes known of a row after so many phases, kept where others use it."""
        values = Values(self)
        kept = []
        for node in self.phases.row_values(level):
            if node in self.last:
                continue
            if isinstance(node, Reduce):
                lane = "i" if self.grid.across else "0"
                values.define(node, f"s.{self.value_name(node)}.value({lane})", not self.grid.across)
            else:
                values.compute(node)
            if node in self.exported:
                kept.append(f"{self.row_text(node)} = {values.names[node]};")
            if node in self.divisors:
                kind, value = node.dtype.compute_cpp, values.names[node]
                text = f"[i] = {kind}(1) / {value};" if self.grid.across else f" = kw::Divisor<{kind}>({value});"
                kept.append(f"r.by_{self.value_name(node)}{text}")
        lanes = [*values.lines[False], *kept]
        if not self.grid.across:
            return [*values.lines[True], *lanes]
        return [*values.lines[True], *([LANES, *(f"    {line}" for line in lanes), "}"] if lanes else [])]

    def step_function(self, phase: int) -> list[str]:
        row = "Row<N>" if self.grid.across else "Row<1>"
        head = "KW_DEVICE static void step("
        return [
            "template <int N>",
            f"{head}const Args& a, Index row, Index column, const Operands<N>& x, const {row}& r,",
            f"{' ' * len(head)}State<{phase}, N>& s) {{",
            *(f"    {line}" for line in self.step_body(phase)),
            "}",
        ]

    def step_body(
        self, phase: int, adds_it: bool = True, stores_it: bool = True, returns_it: bool = False
    ) -> list[str]:
        """What a phase computes of a vector: added to its states, and stored, or the one result returned instead."""
        reduces = self.phases.reduced_in(phase) if adds_it else []
        stores = self.phases.stores_in(phase) if stores_it else []
        accesses = dict(zip(self.region.stores, self.grid.stores, strict=True))
        results = [(self.result_name(node), node, accesses[node, layout]) for node, layout in stores]
        used = {self.load_names[n] for n in self.phases.operands_in(phase) if n in self.load_names}
        late = [name for name in self.late if name in used]
        values = Values(self, self.early, late)
        for node in self.phases.computed_in(phase):
            values.compute(node)
        adds = [self.add_line(node, values.operand(node.x), phase) for node in reduces]
        stored = [f"{name}[i] = {self.stored(node, a, values.operand(node))};" for name, node, a in results]
        places = " ".join(adds)
        reached = [*(self.access(name) for name in late), *(a for _, _, a in results if not returns_it)]
        lines = [*self.coordinate_lines(reached)]
        lines += [line for line in self.column_lines(places) if line not in lines]
        for name in late:
            access = self.access(name)
            declared = f"kw::Vec<{access.layout.buffer.dtype.storage_cpp}, N>"
            lines += self.load_lines(local(name), access, declared)
        for reduced in reduces:
            if monoid_name(reduced) == "Deviations":
                name = self.value_name(reduced)
                lines.append(f"const {reduced.dtype.compute_cpp} {name}_share = s.{name}.next();")
        lines += values.lines[True]
        lines += [f"kw::Vec<{a.layout.buffer.dtype.storage_cpp}, N> {name};" for name, _, a in results]
        lines += self.gathered_lines(reduces)
        lines += [LANES, *(f"    {line}" for line in (*values.lines[False], *adds, *stored)), "}"]
        lines += self.whole_adds(reduces)
        return [*lines, *(f"return {name};" if returns_it else self.store_line(name, a) for name, _, a in results)]

    def gathered_lines(self, reduces: Sequence[Reduce]) -> list[str]:
        """Vectors of what is added, for states that take all lanes at once."""
        return []

    def whole_adds(self, reduces: Sequence[Reduce]) -> list[str]:
        """How such states take them."""
        return []

    def add_line(self, node: Reduce, value: str, phase: int) -> str:
        name = self.value_name(node)
        match monoid_name(node):
            case "Deviations":
                return f"s.{name}.add(i, {value}, {name}_share);"
            case "LargestAt" | "SmallestAt":
                lane = [] if self.grid.across else self.scaled("i", self.grid.places[-1])
                place = " + ".join([*self.column_terms(self.grid.places), *lane])
                add = "add_next" if self.goes_forward(phase) else "add"
                return f"s.{name}.{add}(i, {value}, Index({place}));"
        return f"s.{name}.add(i, {value});"

    def goes_forward(self, phase: int) -> bool:
        """Whether each state meets the elements of its row in the order in which argmax counts them."""
        return phase % 2 == 0 and is_dense(self.grid.reduced, self.grid.places, self.grid.places[-1])

    def store_line(self, name: str, access: Access) -> str:
        if access.inner == 1:
            return f"kw::store<N>({self.address(access)}, {name});"
        return f"kw::scatter<N>({self.address(access)}, {access.inner}, {name});"

    def store_row_function(self) -> list[str]:
        accesses = dict(zip(self.region.stores, self.grid.stores, strict=True))
        results = [(self.result_name(n), n, accesses[n, layout]) for n, layout in self.phases.row_stores()]
        old = [(name, self.access(name)) for name in self.replaced]
        lines = self.coordinate_lines([*(access for _, access in old), *(access for _, _, access in results)])
        for name, access in old:
            lines += self.load_lines(local(name), access, f"kw::Vec<{access.layout.buffer.dtype.storage_cpp}, N>")
        values = Values(self, [], self.replaced)
        for node in self.last:
            values.compute(node)
        lines += values.lines[True]
        if self.grid.across:
            kinds = [(name, access.layout.buffer.dtype.storage_cpp) for name, _, access in results]
            lines += [f"kw::Vec<{kind}, N> {name};" for name, kind in kinds]
            new = [f"{name}[i] = {self.stored(node, a, values.operand(node))};" for name, node, a in results]
            lines += [LANES, *(f"    {line}" for line in (*values.lines[False], *new)), "}"] if new else []
            lines += [self.store_line(name, access) for name, _, access in results]
        else:
            lines += values.lines[False]
            lines += [f"{self.element(a)} = {self.stored(node, a, values.operand(node))};" for _, node, a in results]
        head = "template <int N> KW_DEVICE static void store_row(const Args& a, Index row, const Row<N>& r) {"
        return [head, *(f"    {line}" for line in lines), "}"] if lines else [head + "}"]


def is_below_one(x: Node) -> bool:
    """exp(y - max(y)), of which one of a row is 1."""
    match x:
        case Map("exp", (Map("sub", (y, largest)),)):
            row = base_of(largest)
            return isinstance(row, Reduce) and row.fn == "max" and row.x is y
    return False


def rows_of(access: Access) -> RowAccess:
    assert isinstance(access, RowAccess)
    return access


def monoid_name(node: Reduce) -> str:
    return REDUCTIONS[node.fn].monoid


def monoid(node: Reduce) -> str:
    name = monoid_name(node)
    index = "Index, " if name in WITH_PLACE else ""
    return f"kw::{name}<{node.x.dtype.compute_cpp}, {index}N>"


# --- what the templates are told


def work_of_rows(kernel: Kernel) -> RowWork:
    """What a config must fit, and what it costs."""
    return work_of_region(kernel.region, tuple(sorted(kernel.writes_over.items())))


@lru_cache(maxsize=256)  # asked for once a config
def work_of_region(region: Region, written_over: tuple[tuple[str, str], ...]) -> RowWork:
    kernel = Kernel("", region, dict(written_over))
    writer = RowsWriter(kernel)
    grid, phases = writer.grid, writer.phases
    accesses = [rows_of(a) for a in (*grid.loads, *grid.stores)]
    vectors = [*(a for a in accesses if a.is_vector), *map(rows_of, writer.in_vectors)]
    early = [writer.access(name) for name in writer.early]
    again = [a for a in early if used_later(writer, a)]
    flops = [node_flops(node) for phase in range(phases.walks) for node in phases.computed_in(phase)]
    stored = {layout.buffer.name for _, layout in phases.row_stores()}
    return RowWork(
        across=grid.across,
        rows=max(1, grid.rows),  # a kernel without rows is left out, but has a choice
        columns=grid.columns,
        line=grid.line,
        itemsizes=tuple(a.layout.buffer.dtype.itemsize for a in vectors) or (4,),
        alignments=tuple(sorted({n for a in vectors for n in starts_of(a, grid)} - {0})),
        bytes_moved=kernel.region.bytes_moved,
        written_bytes=sum(access.layout.touched_bytes for access in grid.stores),
        again_bytes=sum(touched_bytes(a) for a in again),
        operands=tuple(
            Operand(a.layout.buffer.dtype.itemsize, writer.is_one_for_all(name), a in again, step_of(writer, a))
            for name, a in zip(writer.early, early, strict=True)
        ),
        state_bytes=tuple(state_bytes(phases.reduced_in(phase)) for phase in range(phases.finishing)),
        phases=phases.walks,
        flops=sum(flops) + sum(REDUCTIONS[node.fn].flops for node in phases.reduces),
        repeated_bytes=repeated_bytes(writer),
        in_place=any(layout.buffer.name in stored for layout in reads_for_more(region)),
        sent=bool(early) and all(a.is_vector for a in early) and not writer.picked,
        late_bytes=sum(a.layout.buffer.dtype.itemsize for a in map(writer.access, writer.late) if a.is_vector),
        late_shared=late_is_shared(writer, kernel),
    )


def late_is_shared(writer: RowsWriter, kernel: Kernel) -> bool:
    """Whether what only the last phase reads is the same for every row: vectors of one size, which nothing writes."""
    late = [writer.access(name) for name in writer.late]
    written = {*(access.layout.buffer.name for access in writer.grid.stores), *kernel.writes_over.values()}
    return (
        writer.phases.finishing == 1
        and len({access.layout.buffer.dtype.itemsize for access in late}) == 1
        and all(a.is_vector and not any(rows_of(a).outer) for a in late)
        and not any(access.layout.buffer.name in written for access in late)
    )


def reads_for_more(region: Region) -> list[Layout]:
    """What is read for more than the row's value that is stored in its place: blocks that share the row all need it."""
    picked = [origin.layout for _, origin in region.sources]
    return picked + [layout for x, layout in region.loads if not is_read_for_itself(x, layout.buffer.name, region)]


def is_read_for_itself(x: Node, buffer: str, region: Region) -> bool:
    made = made_of(x, region.body)
    stores = [layout.buffer.name for node, layout in region.stores if node in made]
    return all(isinstance(node, Map) and not is_full(node, region) for node in made) and stores == [buffer]


def step_of(writer: RowsWriter, access: RowAccess) -> int:
    """Elements from one lane to the next, where each is a load of its own; 0 where they are loaded at once."""
    at_once = access.is_vector or access.is_computed or access in writer.in_vectors
    return 0 if at_once else max(1, abs(access.inner))


def repeated_bytes(writer: RowsWriter) -> int:
    """Of operands that every row reads anew, such as the weights of a normalisation."""
    if writer.grid.rows == 1:
        return 0
    accesses = [writer.access(name) for name in (*writer.early, *writer.late)]
    return sum(touched_bytes(a) for a in accesses if not any(a.outer) and any(a.reduced) and not a.picks)


def touched_bytes(access: RowAccess) -> int:
    return Origin(access.layout, access.picks, ()).touched_bytes if access.picks else access.layout.touched_bytes


def used_later(writer: RowsWriter, access: RowAccess) -> bool:
    """Whether a phase after the first reads the operand too."""
    names = {name for name in writer.early if writer.access(name) == access}
    later = [node for phase in range(1, writer.phases.walks) for node in writer.phases.operands_in(phase)]
    return any(writer.load_names.get(node) in names for node in later)


def starts_of(access: RowAccess, grid: RowGrid) -> list[int]:
    """Steps that must be whole vectors: all but that from one lane to the next."""
    steps = (*access.outer[:-1], *access.reduced) if grid.across else (*access.outer, *access.reduced[:-1])
    return [*steps, *access.picks, access.offset]


def node_flops(node: Map) -> int:
    return SCALARS[node.fn].flops


def state_bytes(reduces: Sequence[Reduce]) -> int:
    """The most one lane takes in memory; a state of few lanes is filled up to words."""
    fields = []
    for node in reduces:
        item = max(4, by_name(node.x.dtype.name).itemsize)
        name = monoid_name(node)
        fields.append((16, 8) if name in WITH_PLACE else (item * STATE_ELEMENTS[name], item))
    return math.ceil(struct_bytes(fields) / 8) * 8


# --- the source


def reduce_source(kernel: Kernel, choice: ReduceConfig) -> Source:
    writer = RowsWriter(kernel)
    name, formula = camel(kernel.name), row_formula(kernel.region, writer.phases)
    struct = writer.struct(name, formula)
    pointers = f"{{{', '.join(writer.arguments)}}}"
    extra = reduce_extra(kernel, choice)
    if isinstance(choice, CpuConfig):
        sizes = f"{choice.lanes}, {choice.chunk}, {choice.grain}, {choice.together}"
        template, call = "reduce", f"kw::reduce<{name}, {sizes}>({pointers})"
    else:
        template = template_of(choice)
        arguments = [pointers, *(identifier(buffer.name) for buffer in extra.scratch), "stream"]
        call = f"kw::{template}<{name}, {name}Config>({', '.join(arguments)})"
        memory = {"shared_bytes": reduce.shared_bytes(choice, work_of_rows(kernel))}
        memory |= {"workspace_bytes": sum(b.nbytes for b in extra.scratch)}
        struct += "\n\n" + plain_config_struct(f"{name}Config", choice, memory)
    on_host = () if isinstance(choice, CpuConfig) else ("OnDevice",)
    needs = {*names_in(struct), template, *on_host}
    return Source(kernel, work_of_rows(kernel), choice, formula, struct, "reduce", call, tuple(sorted(needs)))


def template_of(config: Config) -> str:
    """The function of kernels/cuda/reduce.cuh that runs it."""
    if config.beside > 1:
        return "reduce_beside"
    return "reduce_split" if config.is_split else "reduce"


def plain_config_struct(name: str, config: Config, memory: Mapping[str, int]) -> str:
    sizes = {"threads": config.threads, "lanes": config.lanes, "team": config.team}
    sizes |= {"vectors": config.vectors, "blocks": config.blocks}
    beside = [f"int beside = {config.beside}"] if config.beside > 1 else []
    return config_struct(name, sizes, memory, [f"kw::Keep keep = kw::Keep::{config.keep}", *beside])


def config_struct(name: str, sizes: Mapping[str, int], memory: Mapping[str, int], more: Sequence[str] = ()) -> str:
    """The named numbers that a template asks for."""
    numbers = ", ".join(f"{key} = {value}" for key, value in sizes.items())
    constants = [f"int {numbers}", *more, *(f"int64_t {key} = {value}" for key, value in memory.items() if value)]
    return "\n".join([f"struct {name} {{", *(f"    static constexpr {constant};" for constant in constants), "};"])


def row_formula(region: Region, phases: Phases) -> str:
    """What the kernel computes, as one would say it; for long chains, how many functions it fuses."""
    texts: dict[Node, str] = {} if region.given is None else {region.given: "product"}
    texts |= {node: layout.buffer.name for node, layout in region.loads}

    def text_of(x: Node) -> str:
        node = phases.resolved(x)
        if isinstance(node, Const):
            return f"{node.value:g}" if isinstance(node.value, float) else str(node.value)
        return texts[node]

    picked = {node: source.layout.buffer.name for node, source in region.sources}
    for node in region.body:
        operands = [unwrapped(text_of(x)) for x in loaded(node)]
        match node:
            case Map():
                texts[node] = map_formula(node, [text_of(x) for x in node.args])
            case Gather():
                texts[node] = f"{picked[node]}[{', '.join(operands)}]"
            case _:
                texts[node] = f"{node.fn}({operands[0]})"
        if len(texts[node]) > LONGEST_FORMULA:
            texts[node] = "..."
    text = "; ".join(f"{layout.buffer.name} = {unwrapped(texts[node])}" for node, layout in region.stores)
    if len(text) <= LONGEST_FORMULA and "..." not in text:
        return text
    return formula_in_brief(region, [node.fn for node in region.body])


# --- the rows of the table of templates


def reduces(kernel: Kernel) -> bool:
    return kernel.core is None and any(isinstance(node, Reduce) for node in kernel.region.body)


def reduce_configs(kernel: Kernel, device: Device) -> Sequence[ReduceConfig]:
    return reduce.configs(work_of_rows(kernel), device) if reduces(kernel) else ()


def reduce_cost_us(choice: ReduceConfig, kernel: Kernel, device: Device) -> float:
    return reduce.cost_us(choice, work_of_rows(kernel), device)


def reduce_floor_us(kernel: Kernel, device: Device) -> float:
    return reduce.floor_us(work_of_rows(kernel), device)


def reduce_extra(kernel: Kernel, choice: ReduceConfig) -> Extra:
    return scratch_of(kernel, reduce.workspace_bytes(choice, work_of_rows(kernel)))


def scratch_of(kernel: Kernel, size: int) -> Extra:
    """So many bytes that the blocks of a kernel leave for each other."""
    name = f"workspace_{kernel.name.removesuffix('_kernel')}"
    return Extra(scratch=(Buffer(name, (size,), UINT8, (1,)),) if size else ())


def row_of(target: str, headers: tuple[str, ...], *types: type[ReduceConfig]) -> Template:
    return Template(
        name="reduce",
        target=target,
        headers=headers,
        types=types,
        configs=reduce_configs,
        cost_us=reduce_cost_us,
        floor_us=reduce_floor_us,
        source=reduce_source,
        extra=reduce_extra,
    )


TEMPLATES = (
    row_of("cuda", ("launch", "pointwise", "reduce"), Config),
    row_of("cpu", ("pointwise", "reduce"), CpuConfig),
)
