"""A `Kernel` whose core is a convolution comes in; its epilogue struct and its launcher, as C++ text, go out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

from kernelwright.device import Device
from kernelwright.generate.epilogue import EpilogueWriter, in_few_instructions, vector_of
from kernelwright.generate.gemm import UINT8, flops_of, launcher_name, pointer_text
from kernelwright.generate.grid import Access, Grid, merged_axes
from kernelwright.generate.literals import camel, identifier, names_in
from kernelwright.generate.pointwise import Writer, formula_of
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import row_formula
from kernelwright.generate.rows import tile_grid
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.tile_rows import is_line, is_whole, lanes_of, tile_rows, writer_of
from kernelwright.ir.nodes import Conv, Shape
from kernelwright.kernels import conv_direct, conv_mma, conv_rows, conv_sm90, conv_sm90_kept, conv_sm90_ring
from kernelwright.kernels.conv_axes import with_longer_rows
from kernelwright.kernels.conv_mma import workspace_bytes
from kernelwright.kernels.conv_shape import CPP_TYPE, SINGLE, ConvShape
from kernelwright.plan import Buffer, Kernel, Layout, Region
from kernelwright.plan.convolutions import Axis, Convolution, Phase, phases_of

T = TypeVar("T")

# Where PyTorch's flags allow TF32 in a convolution, which is their default, `reference` means no more than that.
TF32_IS_ENOUGH = frozenset({"reference", "tf32", "bf16", "fp16"})


class Convolver(Protocol):
    """What each module kernels/conv_*.py offers."""

    @property
    def HEADERS(self) -> tuple[str, ...]: ...  # noqa: N802
    @property
    def Config(self) -> type[Any]: ...  # noqa: N802
    def configs(self, shape: ConvShape, device: Device) -> tuple[Any, ...]: ...
    def cost_us(self, config: Any, shape: ConvShape, device: Device) -> float: ...
    def floor_us(self, shape: ConvShape, device: Device) -> float: ...
    def packed_bytes(self, config: Any, shape: ConvShape) -> int: ...
    def arithmetic(self, config: Any, shape: ConvShape) -> str: ...
    def entry(self, name: str, config: Any, shape: ConvShape, epilogue: str) -> str: ...


# How a tile that reduces ends; mentioned by the launchers of those that do.
ENDS = ("conv_rows", "row_pieces", "conv_pieces", "conv_gathered", "conv_windows", "conv_lines")

CONVOLVERS: tuple[Convolver, ...] = (conv_sm90_kept, conv_sm90_ring, conv_sm90, conv_mma, conv_direct)


def core_of(kernel: Kernel) -> Convolution:
    assert isinstance(kernel.core, Convolution)
    return kernel.core


# --- the convolution as the templates take it


def shape_of(kernel: Kernel) -> ConvShape:
    shape = spatial_shape(kernel)
    return with_longer_rows(shape) if walks_evenly(kernel.region) else shape


@lru_cache(maxsize=256)  # asked for once a config
def walks_evenly(region: Region) -> bool:
    """Whether what follows walks through a plane with one stride in every operand, and asks for the end of no row."""
    if not region.axes:
        return is_flat(region)
    if region.window or is_line(region):
        return False
    grid = tile_grid(region, across=is_whole(region))
    assert isinstance(region.given, Conv)
    return (grid.outer if grid.across else grid.reduced)[-1] % math.prod(region.given.shape[2:]) == 0


def spatial_shape(kernel: Kernel) -> ConvShape:
    core, region = core_of(kernel), kernel.region
    node, rows = core.node, tile_rows(region) if region.axes else None
    outputs, channels = node.shape[1] // node.groups, node.x.shape[1] // node.groups
    return ConvShape(
        dtype=node.dtype.name,
        images=node.shape[0],
        groups=node.groups,
        channels=channels,
        outputs=outputs,
        x_space=in_three(node.x.shape[2:], 1),
        y_space=in_three(node.shape[2:], 1),
        x_pitches=(*core.x.strides[:2], *in_three(core.x.strides[2:], 0)),
        x_offset=core.x.offset,
        w_pitches=weight_pitches(core, channels, outputs),
        w_offset=core.weight.offset,
        transposed=node.transposed,
        kernel=in_three(node.weight.shape[2:], 1),
        strides=in_three(node.stride, 1),
        padding=in_three(node.padding, 0),
        dilation=in_three(node.dilation, 1),
        phases=tuple(Phase(in_three(tuple(map(ascending, phase.axes)), SINGLE)) for phase in phases_of(node)),
        flat=is_flat(region) if rows is None else not rows.window,
        vector=vector_of(epilogue_grid(region)) if rows is None else lanes_of(region),
        constant=core.constant,
        tf32=core.precision in TF32_IS_ENOUGH,
        epilogue_bytes=region.bytes_moved,
        epilogue_flops=flops_of(region.maps) if rows is None else 0,
        rows=rows,
        sendable=rows is None and is_sendable(region),
    )


def in_three(axes: Sequence[T], missing: T) -> tuple[T, ...]:
    """The axes of space as d, h and w."""
    return (*(missing,) * (3 - len(axes)), *axes)


def ascending(axis: Axis) -> Axis:
    """The same taps with the first input first."""
    if axis.x_step >= 0:
        return axis
    x_last, k_last = (axis.taps - 1) * axis.x_step, (axis.taps - 1) * axis.k_step
    return replace(
        axis,
        x_first=axis.x_first + x_last,
        x_step=-axis.x_step,
        k_first=axis.k_first + k_last,
        k_step=-axis.k_step,
    )


def weight_pitches(core: Convolution, channels: int, outputs: int) -> Shape:
    """Of group, output, channel, d, h, w. PyTorch has outputs first; channels first where transposed."""
    first, second, *space = core.weight.strides
    taps = in_three(space, 0)
    if core.node.transposed:
        return (channels * first, second, first, *taps)
    return (outputs * first, first, second, *taps)


# --- the epilogue


def is_flat(region: Region) -> bool:
    """Whether every operand walks through a plane of results with one stride."""
    return len(merged_axes(region.shape[2:], [layout.strides[2:] for layout in layouts_of(region)])) <= 1


def layouts_of(region: Region) -> list[Layout]:
    return [layout for _, layout in (*region.loads, *region.stores)]


def epilogue_grid(region: Region) -> Grid:
    """Planes by the places in them where that can be; else rows of the last axis."""
    layouts = layouts_of(region)
    flat = is_flat(region)
    depth = 2 if flat else len(region.shape) - 1
    outer = merged_axes(region.shape[:depth], [layout.strides[:depth] for layout in layouts])
    inner = merged_axes(region.shape[depth:], [layout.strides[depth:] for layout in layouts])
    strides = inner[0][1] if inner else (1,) * len(layouts)
    accesses = [
        Access(layout, tuple(s[i] for _, s in outer), 0, strides[i], layout.offset) for i, layout in enumerate(layouts)
    ]
    split = len(region.loads)
    extents, columns = tuple(n for n, _ in outer), math.prod(region.shape[depth:])
    return Grid("rows", extents, 1, columns, tuple(accesses[:split]), tuple(accesses[split:]))


class ConvEpilogueWriter(EpilogueWriter):
    """As after a product; but results may lie scattered, in channels-last order or inside a concatenation."""

    column = "Index"

    def row_digit(self, below: int, extent: int | None) -> str:
        # Unsigned, so that a channel is seen to be that of the row before, whatever the image: it is found once.
        if self.grid.wide_index:
            return super().row_digit(below, extent)
        shifted = "unsigned(row)" if below == 1 else f"unsigned(row) / {below}u"
        return shifted if extent is None else f"{shifted} % {extent}u"

    def members(self) -> list[str]:
        # A row is not cut to 32 bits: what is added to it then becomes part of an address.
        places = f"int64_t row, {self.column} column"
        lines = [line.replace("int64_t row, int64_t column", places) for line in super().members()]
        for node, access in self.results:
            if access.inner != 1:
                name, address = self.result_name(node), self.address(access)
                plain = f"kw::store<N>({address}, {name});"
                spread = f"kw::scatter<N>({address}, {access.inner}, {name});"
                lines = [line.replace(plain, spread) for line in lines]
        return lines


class SentEpilogueWriter(ConvEpilogueWriter):
    """What becomes of sums, and where the first of them lies, apart: others take the results to memory."""

    def members(self) -> list[str]:
        ((node, access),) = self.results
        return [
            *super().members(),
            "    template <int N>",
            "    KW_DEVICE static kw::Vec<float, N> values(",
            "        const Args& a, const float (&product)[N], int64_t row, Index column) {",
            *(f"        {line}" for line in self.value_lines()),
            f"        return {self.result_name(node)};",
            "    }",
            "    KW_DEVICE static float* place(const Args& a, int64_t row, Index column) {",
            *(f"        {line}" for line in self.coordinate_lines([access])),
            f"        return {self.address(access)};",
            "    }",
        ]


def is_sendable(region: Region) -> bool:
    """Whether `SentEpilogueWriter` can write it: one result whose rows lie whole in memory, all else by rows."""
    grid = epilogue_grid(region)
    if region.sources or len(grid.stores) != 1 or not all(access.is_uniform for access in grid.loads):
        return False
    return grid.stores[0].inner == 1 and grid.stores[0].layout.buffer.dtype.name == "float32"


class NeighbourEpilogueWriter(ConvEpilogueWriter):
    """For threads that store many places of a plane: what is added to a wide column becomes part of an address."""

    column = "int64_t"


# --- text


def conv_configs(module: Convolver, kernel: Kernel, device: Device) -> Sequence[Any]:
    """The configs of one template that can run this convolution under its precision, the most promising first."""
    return module.configs(shape_of(kernel), device) if isinstance(kernel.core, Convolution) else ()


def epilogue_of(module: Convolver, kernel: Kernel, choice: Any, scratch: Sequence[Buffer]) -> tuple[Writer, str]:
    """What writes the struct of the epilogue, and what it computes."""
    if not kernel.region.axes:
        of_template = NeighbourEpilogueWriter if module is conv_direct else ConvEpilogueWriter
        if isinstance(choice, conv_sm90_kept.Config) and is_sendable(kernel.region):
            of_template = SentEpilogueWriter
        return of_template(kernel.region, epilogue_grid(kernel.region)), formula_of(kernel.region)
    writer = writer_of(kernel, scratch, parted=module is conv_sm90_kept)
    return writer, row_formula(writer.region, writer.phases)


def as_accurate(struct: str, kernel: Kernel, choice: Any) -> str:
    """What becomes of a sum, as accurate as the sum is: after one product of scaled float16, TF32's 11 bits. Where
    channels are reduced, what is raised is what was taken of the largest: a softmax."""
    one_product = isinstance(choice, conv_mma.Config) and choice.products == 1
    if not one_product or core_of(kernel).node.dtype.name != "float32":
        return struct
    if not kernel.region.axes:
        return in_few_instructions(struct)
    return in_few_instructions(struct, besides="exp") if tile_rows(kernel.region).by_rows else struct


def conv_source(module: Convolver, kernel: Kernel, choice: Any) -> Source:
    core, shape = core_of(kernel), shape_of(kernel)
    extra = conv_extra(module, kernel, choice)
    packed_now = packed_in_call(module, kernel, choice)
    writer, formula = epilogue_of(module, kernel, choice, [b for b in extra.scratch if b not in packed_now])
    body, launcher = camel(kernel.name), launcher_name(kernel)
    struct = as_accurate(writer.struct(body, formula), kernel, choice)
    struct += "\n\n" + module.entry(launcher, choice, shape, body)
    packed = [identifier(b.name) for b in (*extra.reads, *packed_now) if b.packed_from is not None or b in packed_now]
    if packed_now:
        struct += "\n" + packing_entry(launcher, CPP_TYPE[shape.dtype], body)
        launcher = f"{launcher}_anew"
    arguments = f"kw::addressed({body}::Args{{{', '.join(writer.arguments)}}})"
    operands = [pointer_text(core.x), identifier(core.weight.buffer.name), *packed]
    call = f"::{launcher}({', '.join(operands)}, {arguments}, stream)"
    needs = {*names_in(struct), *module.HEADERS, "OnDevice", "addressed"}
    template, words = module.HEADERS[-1], module.arithmetic(choice, shape)
    return Source(kernel, shape, choice, formula, struct, template, call, tuple(sorted(needs)), words)


def packing_entry(launcher: str, type_: str, body: str) -> str:
    """`launcher`_anew: the weight, which an earlier step of the same call has computed, is packed first."""
    return f"""\
static int {launcher}_anew(
    const {type_}* x, const {type_}* weight, void* packed, const {body}::Args* args, cudaStream_t stream) {{
    const int error = {launcher}_pack(weight, packed, stream);
    return error ? error : {launcher}(x, weight, packed, args, stream);
}}
"""


def packed_in_call(module: Convolver, kernel: Kernel, choice: Any) -> tuple[Buffer, ...]:
    """Memory for a weight that is packed in each call: one that is not kept."""
    size = 0 if core_of(kernel).constant else module.packed_bytes(choice, shape_of(kernel))
    return (Buffer(f"packed_{launcher_name(kernel)}", (size,), UINT8, (1,)),) if size else ()


def conv_extra(module: Convolver, kernel: Kernel, choice: Any) -> Extra:
    """The operands, the weight as the template packs it, and room for what tiles know of rows."""
    core, shape = core_of(kernel), shape_of(kernel)
    weight, size = core.weight.buffer, module.packed_bytes(choice, shape)
    name, entry = f"packed_{launcher_name(kernel)}", f"{launcher_name(kernel)}_pack"
    ahead = (Buffer(name, (size,), UINT8, (1,), packed_from=weight, packed_by=entry),) if size and core.constant else ()
    states = workspace_bytes(choice, shape) if isinstance(choice, conv_mma.Config) else 0
    scratch = (Buffer(f"workspace_{launcher_name(kernel)}", (states,), UINT8, (1,)),) if states else ()
    return Extra((core.x.buffer, weight, *ahead), (*scratch, *packed_in_call(module, kernel, choice)))


def row_of(module: Convolver) -> Template:
    return Template(
        name=module.HEADERS[-1],
        target="cuda",
        headers=(*module.HEADERS, *ENDS),
        types=(module.Config,),
        configs=partial(conv_configs, module),
        cost_us=lambda choice, kernel, device: module.cost_us(choice, shape_of(kernel), device),
        floor_us=lambda kernel, device: module.floor_us(shape_of(kernel), device),
        source=partial(conv_source, module),
        extra=partial(conv_extra, module),
    )


# --- on a CPU: few channels in our own code, the rest is the library's


def shape_on_cpu(kernel: Kernel) -> ConvShape:
    """Rows are what threads share, and ends of rows cost little: only where there is one tap is a plane one row."""
    shape = spatial_shape(kernel)
    return shape_of(kernel) if set(shape.kernel) == {1} else shape


def rows_configs(kernel: Kernel, device: Device) -> Sequence[conv_rows.Config]:
    if not isinstance(kernel.core, Convolution) or device.kind != "cpu" or kernel.region.axes:
        return ()  # nor does it reduce its own result
    return conv_rows.configs(shape_on_cpu(kernel), device)


def rows_source(kernel: Kernel, choice: conv_rows.Config) -> Source:
    core, shape = core_of(kernel), shape_on_cpu(kernel)
    writer = ConvEpilogueWriter(kernel.region, epilogue_grid(kernel.region))
    body, name = camel(kernel.name), launcher_name(kernel)
    struct = f"{writer.struct(body, formula_of(kernel.region))}\n\n{conv_rows.entry(name, choice, shape)}"
    operands = f"{pointer_text(core.x)}, {pointer_text(core.weight)}"
    call = f"kw::conv_rows::convolve<{name}_Config, {body}>({operands}, {{{', '.join(writer.arguments)}}})"
    needs = tuple(sorted({*names_in(struct), *conv_rows.HEADERS}))
    words = conv_rows.arithmetic(choice, shape)
    return Source(kernel, shape, choice, formula_of(kernel.region), struct, "conv_rows", call, needs, words)


ROWS = Template(
    name="conv_rows",
    target="cpu",
    headers=("pointwise", *conv_rows.HEADERS),
    types=(conv_rows.Config,),
    configs=rows_configs,
    cost_us=lambda choice, kernel, device: conv_rows.cost_us(choice, shape_on_cpu(kernel), device),
    floor_us=lambda kernel, device: conv_rows.floor_us(shape_on_cpu(kernel), device),
    source=rows_source,
    extra=lambda kernel, choice: Extra((core_of(kernel).x.buffer, core_of(kernel).weight.buffer)),
)

TEMPLATES = (*(row_of(module) for module in CONVOLVERS), ROWS)
