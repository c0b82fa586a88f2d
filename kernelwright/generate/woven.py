"""A `Kernel` whose rows are woven into each other comes in; its C++ goes out.

The struct is that of `generate/reduce.py`. Where rows are woven it also says how long each operand is wanted: a row is
read once and its result not at all, so both may leave the caches first, while the weights of the next row stay there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TypeAlias

from kernelwright.device import Device
from kernelwright.generate.grid import Access
from kernelwright.generate.literals import camel, identifier, names_in
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import (
    RowsWriter,
    config_struct,
    monoid_name,
    reduce_floor_us,
    reduces,
    row_formula,
    rows_of,
    scratch_of,
    work_of_rows,
)
from kernelwright.generate.template import Extra, Template
from kernelwright.ir.nodes import Reduce
from kernelwright.kernels import reduce_held, reduce_ring, reduce_spread, reduce_woven
from kernelwright.plan import Kernel

RowsConfig: TypeAlias = reduce_woven.Config | reduce_ring.Config | reduce_held.Config | reduce_spread.Config


class WovenWriter(RowsWriter):
    """The struct of a region whose rows are woven: see kernels/cuda/reduce_woven.cuh for how it is run."""

    def __init__(self, kernel: Kernel, reads_again: bool) -> None:
        super().__init__(kernel)
        self.reads_again = reads_again
        self.loads_by = "load_once"
        self.loads_late_by = "load_constant"
        self.given: list[str] = []  # operands that a function has as `late`
        written = {layout.buffer.name for _, layout in kernel.region.stores}
        self.changing = {*written, *kernel.writes_over.values()}
        self.late_accesses = [self.access(name) for name in self.late]

    @property
    def row_bytes(self) -> int:
        """No less than the values of a row take in memory."""
        return 16 * (len(self.of_row) + len(self.exported) + len(self.divisors))

    def way_of(self, access: Access) -> str:
        """What only the last phase wants is loaded there, so that the first has its registers; where nothing changes
        it, even before the stores of the vectors ahead of it."""
        if access in self.late_accesses:
            return self.loads_late_by if access.layout.buffer.name not in self.changing else "load"
        return self.loads_by if any(rows_of(access).outer) else "load"

    def load_lines(self, target: str, access: Access, declared: str = "") -> list[str]:
        name = next((name for name in self.given if self.access(name) == access), None)
        if name is not None:
            return [f"const auto& {target} = late.{name};"]
        lines = super().load_lines(target, access, declared)
        return [line.replace("kw::load<N>(", f"kw::{self.way_of(access)}<N>(") for line in lines]

    def store_line(self, name: str, access: Access) -> str:
        return super().store_line(name, access).replace("kw::store<N>(", "kw::store_once<N>(")

    def load_function(self) -> list[str]:
        lines = super().load_function()
        if not self.reads_again:
            return lines
        self.loads_by = "load"
        again = super().load_function()
        self.loads_by = "load_once"
        return [*lines, "", again[0].replace(" load(", " load_again("), *again[1:]]

    def step_function(self, phase: int) -> list[str]:
        """The last one in two: what it alone wants of several vectors is on its way before the first is stored."""
        if phase < self.phases.finishing:
            return super().step_function(phase)
        wanted = {self.load_names[node] for node in self.phases.operands_in(phase) if node in self.load_names}
        late = [name for name in self.late if name in wanted and self.is_given(self.access(name))]
        fields = " ".join(map(self.field, late))
        lines = [line for name in late for line in self.load_lines(f"y.{name}", self.access(name))]
        coordinates = self.coordinate_lines([self.access(name) for name in late])
        self.given = late
        stored = self.step_body(phase)
        self.given = []
        place = "const Args& a, Index row, Index column"
        return [
            f"template <int N> struct Late {{ {fields} }};".replace("{  }", "{}"),
            "",
            f"template <int N> KW_DEVICE static Late<N> late({place}) {{",
            *(f"    {line}" for line in coordinates),
            *(["    Late<N> y;", *(f"    {line}" for line in lines), "    return y;"] if late else ["    return {};"]),
            "}",
            "",
            "template <int N>",
            f"KW_DEVICE static void store_vector({place}, const Operands<N>& x, const Late<N>& late,",
            "                                    const Row<1>& r) {",
            *(f"    {line}" for line in stored),
            "}",
            "",
            "template <int N>",
            f"KW_DEVICE static void step({place}, const Operands<N>& x, const Row<1>& r,",
            f"                           State<{phase}, N>&) {{",
            "    store_vector<N>(a, row, column, x, late<N>(a, row, column), r);",
            "}",
        ]

    # The exponentials of a vector are scaled together.

    def monoid(self, node: Reduce) -> str:
        return super().monoid(node).replace("kw::Exponentials<", "kw::ExponentialsAlong<")

    def add_line(self, node: Reduce, value: str, phase: int) -> str:
        if monoid_name(node) == "Exponentials":
            return f"{self.value_name(node)}_x[i] = {value};"
        return super().add_line(node, value, phase)

    def gathered_lines(self, reduces: Sequence[Reduce]) -> list[str]:
        exponentials = [node for node in reduces if monoid_name(node) == "Exponentials"]
        return [f"kw::Vec<{node.x.dtype.compute_cpp}, N> {self.value_name(node)}_x;" for node in exponentials]

    def whole_adds(self, reduces: Sequence[Reduce]) -> list[str]:
        names = [self.value_name(node) for node in reduces if monoid_name(node) == "Exponentials"]
        return [f"s.{name}.add({name}_x);" for name in names]

    def goes_forward(self, phase: int) -> bool:
        """After the first phase what is read again comes before what is held, last first."""
        return phase == 0 and super().goes_forward(phase)

    def is_given(self, access: Access) -> bool:
        return access.is_vector and access in self.late_accesses and access.layout.buffer.name not in self.changing


def woven_configs(kernel: Kernel, device: Device) -> Sequence[reduce_woven.Config]:
    return reduce_woven.configs(work_of_rows(kernel), device) if reduces(kernel) else ()


def woven_cost_us(choice: reduce_woven.Config, kernel: Kernel, device: Device) -> float:
    return reduce_woven.cost_us(choice, work_of_rows(kernel), device)


def woven_extra(kernel: Kernel, choice: reduce_woven.Config) -> Extra:
    return scratch_of(kernel, reduce_woven.workspace_bytes(choice, work_of_rows(kernel)))


def woven_source(kernel: Kernel, choice: reduce_woven.Config) -> Source:
    work = work_of_rows(kernel)
    writer = WovenWriter(kernel, reduce_woven.left(choice, work) > 0)
    shared_bytes = reduce_woven.shared_bytes(choice, work)
    return source_of_rows("reduce_woven", kernel, choice, writer, shared_bytes, woven_extra(kernel, choice))


def source_of_rows(
    template: str, kernel: Kernel, choice: RowsConfig, writer: WovenWriter, shared_bytes: int, extra: Extra
) -> Source:
    """The struct, the numbers of its config by their own names, and the call of the template with its workspace."""
    name, formula = camel(kernel.name), row_formula(kernel.region, writer.phases)
    sizes = {key: int(value) for key, value in asdict(choice).items()} | {"team": choice.threads}
    memory = {"shared_bytes": shared_bytes, "workspace_bytes": sum(b.nbytes for b in extra.scratch)}
    struct = writer.struct(name, formula) + "\n\n" + config_struct(f"{name}Config", sizes, memory)
    workspace = identifier(extra.scratch[0].name) if extra.scratch else "nullptr"
    call = f"kw::{template}<{name}, {name}Config>({{{', '.join(writer.arguments)}}}, {workspace}, stream)"
    needs = tuple(sorted({*names_in(struct), template, "OnDevice"}))
    return Source(kernel, work_of_rows(kernel), choice, formula, struct, template, call, needs)


# --- the rows of the table of templates

HEADERS = ("launch", "pointwise", "reduce")

TEMPLATES = (
    Template(
        name="reduce_woven",
        target="cuda",
        headers=(*HEADERS, "reduce_woven"),
        types=(reduce_woven.Config,),
        configs=woven_configs,
        cost_us=woven_cost_us,
        floor_us=reduce_floor_us,
        source=woven_source,
        extra=woven_extra,
    ),
)
