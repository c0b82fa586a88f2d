"""A `Kernel` whose core is a product comes in; its epilogue struct and its launcher, as C++ text, go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeGuard

from kernelwright.device import Device
from kernelwright.generate.epilogue import (
    EpilogueWriter,
    LateWriter,
    SentWriter,
    epilogue_grid,
    in_few_instructions,
    may_be_sent,
    may_leave_late,
    vector_of,
)
from kernelwright.generate.literals import camel, identifier, local, names_in
from kernelwright.generate.phases import is_full
from kernelwright.generate.pointwise import BodyLines, Writer, divides_by_number, formula_of
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import row_formula
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.tile_rows import RowPiecesWriter, lanes_of, state_of_rows
from kernelwright.ir.dtypes import by_name, float32
from kernelwright.ir.nodes import Iota, Map
from kernelwright.ir.scalars import SCALARS
from kernelwright.kernels import (
    gemm_simt,
    gemm_skinny,
    gemm_sm80,
    gemm_sm90,
    gemm_sm90_bricks,
    gemm_sm90_f16x1,
    gemm_sm90_half,
    gemm_sm90_turned,
    gemm_small,
)
from kernelwright.kernels.choices import GemmConfig
from kernelwright.kernels.gemm_rows import states_bytes
from kernelwright.kernels.gemm_shape import ITEMSIZE, Gemm, Operand
from kernelwright.plan import Buffer, Kernel, Layout, Matrix, Product, Region
from kernelwright.plan.steps import contiguous

UINT8 = by_name("uint8")

# The widest tile leaves few registers. Divisions and roots call a subroutine for denormal numbers, and room for such a
# call makes it spill (seen by compiling); other functions, also long ones, do not, nor does a division by a number.
WIDEST_TILE = 256
CALLING = frozenset(
    {
        *("div", "reciprocal", "sqrt", "hypot", "softsign", "softplus", "celu"),
        *("atan2", "asinh", "acosh", "atanh", "fmod", "remainder", "floor_divide", "trunc_divide"),
    }
)

ANY = frozenset({"reference", "ieee", "tf32", "bf16", "fp16"})
FAITHFUL = ANY - {"ieee"}  # as accurate as float32, but not float32's own operations
ROUNDED = frozenset({"tf32", "bf16", "fp16"})  # the user allows 11 bits of each operand, or less


class Multiplier(Protocol):
    """What each module kernels/gemm_*.py offers."""

    @property
    def HEADERS(self) -> tuple[str, ...]: ...  # noqa: N802
    @property
    def Config(self) -> type[Any]: ...  # noqa: N802
    def configs(self, gemm: Gemm, device: Device) -> tuple[Any, ...]: ...
    def cost_us(self, config: Any, gemm: Gemm, device: Device) -> float: ...
    def floor_us(self, gemm: Gemm, device: Device) -> float: ...
    def packed_bytes(self, gemm: Gemm) -> int: ...
    def row_parts(self, config: Any, gemm: Gemm) -> int: ...
    def workspace_bytes(self, config: Any, gemm: Gemm) -> int: ...
    def arithmetic(self, config: Any, gemm: Gemm) -> str: ...
    def entry(self, name: str, config: Any, gemm: Gemm, epilogue: str) -> str: ...


# How a tile that reduces ends, and how results leave late or by the copy engine; mentioned by the launchers of those
# that do.
ENDS = ("row_pieces", "gemm_rows")
LATE = ("gemm_sm90_late",)
SENT = ("gemm_sm90_sent", "gemm_sm90_beside")

# Each template and the precisions that allow its arithmetic.
MULTIPLIERS: tuple[tuple[Multiplier, frozenset[str]], ...] = (
    (gemm_sm90, FAITHFUL),
    (gemm_sm90_bricks, FAITHFUL),
    (gemm_sm90_turned, FAITHFUL),
    (gemm_sm80, FAITHFUL),
    (gemm_sm90_f16x1, ROUNDED),
    (gemm_sm90_half, ANY),
    (gemm_skinny, ANY),
    (gemm_simt, ANY),
)


def gemm_configs(module: Multiplier, allowed: frozenset[str], kernel: Kernel, device: Device) -> Sequence[GemmConfig]:
    """The configs of one template that can run this product under its precision, the most promising first."""
    core = kernel.core
    if not isinstance(core, Product) or core.precision not in allowed or core.node.a.dtype.name not in ITEMSIZE:
        return ()
    ranked: Sequence[GemmConfig] = module.configs(gemm_of(kernel), device)
    # Where k is split, what follows is in a kernel of its own; what comes before is not.
    after = any(map(calls, in_tiles(kernel.region)))
    before = core.of_a is not None and any(map(calls, core.of_a.maps))
    if not after and not before:
        return ranked
    return [c for c in ranked if not (is_widest(c) and (before or c.splits == 1)) and not is_widest_late(c)]


def calls(node: Map) -> bool:
    """Whether it wants room for a call."""
    return node.fn in CALLING and not divides_by_number(node)


def is_widest(choice: GemmConfig) -> TypeGuard[gemm_sm90.Config]:
    return isinstance(choice, gemm_sm90.Config) and choice.tile_n >= WIDEST_TILE


def leaves_late(choice: GemmConfig) -> TypeGuard[gemm_sm90_half.Config]:
    return isinstance(choice, gemm_sm90_half.Config) and choice.late


def is_sent(choice: GemmConfig) -> bool:
    return isinstance(choice, gemm_sm90.Config) and choice.sent


def is_widest_late(choice: GemmConfig) -> bool:
    return leaves_late(choice) and choice.tile_n >= WIDEST_TILE


def in_tiles(region: Region) -> list[Map]:
    """What is computed of every sum; what is made of finished rows alone is computed later."""
    return [node for node in region.maps if not region.axes or is_full(node, region)]


def gemm_source(module: Multiplier, kernel: Kernel, choice: GemmConfig) -> Source:
    core, gemm = core_of(kernel), gemm_of(kernel)
    writer, after = epilogue_of(module, kernel, choice)
    for region in core.prologues:
        share_pointers(writer, region)
    body, launcher = camel(kernel.name), launcher_name(kernel)
    formula = "; ".join([after, *(prologue_formula(*side) for side in computed_sides(core))])
    structs = [as_accurate(writer.struct(body, after), kernel), *prologue_structs(core, body)]
    struct = "\n\n".join([*structs, module.entry(launcher, choice, gemm, body)])
    extra = gemm_extra(module, kernel, choice)
    packed = [identifier(b.name) for b in extra.reads if b.packed_from is not None]
    w = packed[0] if packed else pointer_text(core.w.layout)
    workspace = "".join(identifier(b.name) for b in workspaces(module, kernel, choice)) or "nullptr"
    arguments = f"kw::addressed({body}::Args{{{', '.join(writer.arguments)}}})"
    call = f"::{launcher}({pointer_text(core.a.layout)}, {w}, {workspace}, {arguments}, stream)"
    needs = {*names_in(struct), *module.HEADERS, "OnDevice", "addressed"}
    template, words = module.HEADERS[-1], module.arithmetic(choice, gemm)
    return Source(kernel, gemm, choice, formula, struct, template, call, tuple(sorted(needs)), words)


def as_accurate(struct: str, kernel: Kernel) -> str:
    """What becomes of a sum, as accurate as it has to be: where operands and results have 16 bits, after 11."""
    dtypes = [core_of(kernel).node.a.dtype, *(node.dtype for node, _ in kernel.region.stores)]
    return in_few_instructions(struct) if not kernel.region.axes and all(d.itemsize == 2 for d in dtypes) else struct


def epilogue_of(module: Multiplier, kernel: Kernel, choice: GemmConfig) -> tuple[Writer, str]:
    """What writes the struct of the epilogue, and what it computes."""
    if not kernel.region.axes:
        written = SentWriter if is_sent(choice) else LateWriter if leaves_late(choice) else EpilogueWriter
        return written(kernel.region, epilogue_grid(kernel.region)), formula_of(kernel.region)
    writer = RowPiecesWriter(kernel, *states_of(module, kernel, choice))
    return writer, row_formula(kernel.region, writer.phases)


def gemm_extra(module: Multiplier, kernel: Kernel, choice: GemmConfig) -> Extra:
    """The operands, a constant weight as the template packs it; scratch memory for what is made in each call."""
    core, gemm = core_of(kernel), gemm_of(kernel)
    packed = module.packed_bytes(gemm) if core.constant else 0
    w = packed_buffer(kernel, packed) if packed else core.w.layout.buffer
    scratch = (*workspaces(module, kernel, choice), *states_of(module, kernel, choice))
    before = (layout.buffer for region in core.prologues for layout in region.reads)
    in_memory = (b for b in (core.a.layout.buffer, w, *before) if not isinstance(b.source, Iota))
    return Extra(tuple(dict.fromkeys(in_memory)), scratch)


def workspaces(module: Multiplier, kernel: Kernel, choice: GemmConfig) -> tuple[Buffer, ...]:
    """For what the template makes before and beside the product."""
    size = module.workspace_bytes(choice, gemm_of(kernel))
    return (Buffer(f"workspace_{launcher_name(kernel)}", (size,), UINT8, (1,)),) if size else ()


def states_of(module: Multiplier, kernel: Kernel, choice: GemmConfig) -> tuple[Buffer, ...]:
    """For what tiles know of the rows that the epilogue reduces."""
    gemm = gemm_of(kernel)
    size = states_bytes(module.row_parts(choice, gemm), gemm)
    return (Buffer(f"rows_{launcher_name(kernel)}", (size,), UINT8, (1,)),) if size else ()


def core_of(kernel: Kernel) -> Product:
    assert isinstance(kernel.core, Product)
    return kernel.core


def launcher_name(kernel: Kernel) -> str:
    return kernel.name.removesuffix("_kernel")


def pointer_text(layout: Layout) -> str:
    name = identifier(layout.buffer.name)
    return f"{name} + {layout.offset}" if layout.offset else name


def gemm_of(kernel: Kernel) -> Gemm:
    """The product as the template's descriptors take it."""
    core, region = core_of(kernel), kernel.region
    state, adding = state_of_rows(region) if region.axes else (0, 0)
    return Gemm(
        m=core.m,
        n=core.n,
        k=core.k,
        batches=core.batches,
        a=operand_of(core.a, False, core.of_a, f"{camel(kernel.name)}A"),
        w=operand_of(core.w, core.constant, core.of_w, f"{camel(kernel.name)}W"),
        vector=lanes_of(region) if region.axes else vector_of(epilogue_grid(region)),
        epilogue_bytes=region.bytes_moved,
        epilogue_flops=flops_of(in_tiles(region)),
        stored=not region.axes or any(is_full(node, region) for node, _ in region.stores),
        row_state_bytes=state,
        row_flops=adding,
        settles=may_leave_late(region, core.node.a.dtype),
        sendable=may_be_sent(region) and not kernel.writes_over,
    )


def operand_of(matrix: Matrix, constant: bool, prologue: Region | None, name: str) -> Operand:
    """A pitch that no step is taken along says nothing: an axis of extent 1 has the pitch 0, which alignment allows."""
    dtype = matrix.layout.buffer.dtype
    aligned = matrix.layout.offset * dtype.itemsize % 16 == 0
    made = (name, flops_of(prologue.maps), prologue.bytes_moved) if prologue is not None else ("", 0, 0)
    return Operand(dtype.name, matrix.row_pitch, matrix.k_pitch or 1, matrix.batch_pitch, constant, aligned, *made)


def flops_of(maps: Sequence[Map]) -> int:
    return sum(SCALARS[node.fn].flops for node in maps)


def packed_buffer(kernel: Kernel, size: int) -> Buffer:
    """The weight in the order in which the kernel reads it."""
    layout, entry = core_of(kernel).w.layout, f"{launcher_name(kernel)}_pack"
    name = f"{layout.buffer.name}_for_{launcher_name(kernel)}"  # two products may want one weight in different orders
    return Buffer(name, (size,), UINT8, (1,), None, layout.buffer, entry, layout.offset)


# --- what is computed of operands before they are multiplied


class PrologueWriter(EpilogueWriter):
    """What happens to N neighbours of an operand along k, as they lie in memory. Its arguments are the epilogue's."""

    def __init__(self, region: Region, epilogue: str) -> None:
        super().__init__(region, epilogue_grid(region))
        self.epilogue = epilogue

    def struct(self, name: str, formula: str) -> str:
        lines = [
            f"// {formula}",
            f"struct {name} {{",
            f"    using Index = {'int64_t' if self.grid.wide_index else 'int'};",
            f"    static constexpr int64_t {self.extents()};",
            f"    using Args = {self.epilogue}::Args;",
            f"    static constexpr int vector = {4 if vector_of(self.grid) == 4 else 1};",
            *self.members(),
            "};",
        ]
        return "\n".join(lines)

    def members(self) -> list[str]:
        shared, lanes, value = self.computed("x[i]")
        lines = [
            *self.coordinate_lines([a for _, a in self.accesses]),
            *(f"const auto {local(name)} = {self.constant_load(a)};" for name, a in self.accesses),
            *shared,
            "KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"    {line}" for line in lanes),
            f"    x[i] = {value};",
            "}",
        ]
        return [
            "",
            "    template <int N>",
            "    KW_DEVICE static void apply(const Args& a, float (&x)[N], int64_t row, int64_t column) {",
            *(f"        {line}" for line in lines),
            "    }",
        ]

    def computed(self, given: str) -> tuple[list[str], list[str], str]:
        """What all lanes share, what each computes, and the value of the operand."""
        texts = {name: local(name) if self.is_uniform(a) else f"{local(name)}[i]" for name, a in self.accesses}
        body = BodyLines(self, texts | {"given": given}, {name for name, a in self.accesses if self.is_uniform(a)})
        for node in self.region.maps:
            body.compute(node)
        return body.lines[True], body.lines[False], body.operand(self.region.maps[-1])


def share_pointers(writer: Writer, prologue: Region) -> None:
    """What a prologue loads is among the arguments of the epilogue."""
    for _, layout in prologue.loads:
        writer.pointer(layout, writable=False)


def computed_sides(core: Product) -> list[tuple[str, Region, Matrix]]:
    """The operands that are computed, a or w, of what, and where that lies."""
    sides = (("a", core.of_a, core.a), ("w", core.of_w, core.w))
    return [(letter, region, matrix) for letter, region, matrix in sides if region is not None]


def prologue_structs(core: Product, epilogue: str) -> list[str]:
    """One struct for each operand that is computed, named after the epilogue and the operand."""
    return [
        PrologueWriter(region, epilogue).struct(f"{epilogue}{letter.upper()}", prologue_formula(letter, region, matrix))
        for letter, region, matrix in computed_sides(core)
    ]


def prologue_formula(letter: str, region: Region, matrix: Matrix) -> str:
    """What is multiplied, as one would say it."""
    assert region.given is not None
    read = (*region.loads, (region.given, named(matrix.layout.buffer.name, region)))
    return formula_of(replace(region, loads=read, stores=((region.maps[-1], named(letter, region)),), given=None))


def named(name: str, region: Region) -> Layout:
    return Layout(
        Buffer(name, region.shape, float32, contiguous(region.shape)), region.shape, contiguous(region.shape), 0
    )


def ways_out(module: Multiplier) -> tuple[str, ...]:
    """Of results, besides the one that every template has."""
    return LATE if module is gemm_sm90_half else SENT if issubclass(module.Config, gemm_sm90.Config) else ()


def row_of(module: Multiplier, allowed: frozenset[str]) -> Template:
    return Template(
        name=module.HEADERS[-1],
        target="cuda",
        headers=(*module.HEADERS, *ENDS, *ways_out(module)),
        types=(module.Config,),
        configs=partial(gemm_configs, module, allowed),
        cost_us=lambda choice, kernel, device: module.cost_us(choice, gemm_of(kernel), device),
        floor_us=lambda kernel, device: module.floor_us(gemm_of(kernel), device),
        source=partial(gemm_source, module),
        extra=partial(gemm_extra, module),
    )


# --- on a CPU: few rows in our own code, the rest is the library's


def small_configs(kernel: Kernel, device: Device) -> Sequence[gemm_small.Config]:
    core = kernel.core
    if not isinstance(core, Product) or core.node.dtype is not float32 or device.kind != "cpu":
        return ()
    if kernel.region.axes or core.prologues:
        return ()  # nor does it reduce its own result, or compute its operands
    return gemm_small.configs(gemm_of(kernel), device)


def small_source(kernel: Kernel, choice: gemm_small.Config) -> Source:
    core, gemm = core_of(kernel), gemm_of(kernel)
    writer = EpilogueWriter(kernel.region, epilogue_grid(kernel.region))
    body, launcher = camel(kernel.name), launcher_name(kernel)
    struct = f"{writer.struct(body, formula_of(kernel.region))}\n\n{gemm_small.entry(launcher, choice, gemm)}"
    sides = [pointer_text(matrix.layout) for matrix in ((core.a, core.w) if choice.few_is_a else (core.w, core.a))]
    arguments = f"{', '.join(sides)}, {{{', '.join(writer.arguments)}}}"
    call = f"kw::gemm_small::multiply<{launcher}_Config, {body}>({arguments})"
    needs = tuple(sorted({*names_in(struct), *gemm_small.HEADERS}))
    words = gemm_small.arithmetic(choice, gemm)
    return Source(kernel, gemm, choice, formula_of(kernel.region), struct, "gemm_small", call, needs, words)


def small_extra(kernel: Kernel, choice: gemm_small.Config) -> Extra:
    core = core_of(kernel)
    return Extra((core.a.layout.buffer, core.w.layout.buffer))


SMALL = Template(
    name="gemm_small",
    target="cpu",
    headers=gemm_small.HEADERS,
    types=(gemm_small.Config,),
    configs=small_configs,
    cost_us=lambda choice, kernel, device: gemm_small.cost_us(choice, gemm_of(kernel), device),
    floor_us=lambda kernel, device: gemm_small.floor_us(gemm_of(kernel), device),
    source=small_source,
    extra=small_extra,
)

TEMPLATES = (*(row_of(module, allowed) for module, allowed in MULTIPLIERS), SMALL)
