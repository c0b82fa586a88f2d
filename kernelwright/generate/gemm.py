"""A `Kernel` whose core is a product comes in; its epilogue struct and its launcher, as C++ text, go out."""

from __future__ import annotations

import re

from kernelwright.generate.grid import Access, Grid, merged_axes
from kernelwright.generate.literals import camel, identifier, local
from kernelwright.generate.pointwise import RowsWriter, formula_of
from kernelwright.generate.program import Source
from kernelwright.ir.dtypes import by_name
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.choices import GemmConfig
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.plan import Buffer, Kernel, Layout, Matrix, Product, Region

UINT8 = by_name("uint8")

HEADERS = ("ptx90", "split", "gemm_epilogue", "gemm_sm90")


def gemm_source(kernel: Kernel, choice: GemmConfig) -> Source:
    core, gemm = core_of(kernel), gemm_of(kernel)
    writer = EpilogueWriter(kernel.region, epilogue_grid(kernel.region))
    body, launcher = camel(kernel.name), launcher_name(kernel)
    struct = writer.struct(body, formula_of(kernel.region)) + "\n\n" + gemm_sm90.entry(launcher, choice, gemm, body)
    a = pointer_text(core.a.layout)
    w = identifier(packed_buffer(kernel).name) if core.constant else pointer_text(core.w.layout)
    workspace = "".join(identifier(b.name) for b in workspace_buffer(kernel, choice)) or "nullptr"
    arguments = f"kw::addressed({body}::Args{{{', '.join(writer.arguments)}}})"
    call = f"{launcher}({a}, {w}, {workspace}, {arguments}, stream)"
    names = {*re.findall(r"\bkw::(\w+)", struct), *re.findall(r"\b(KW_\w+|u?int\d+_t)\b", struct)}
    needs = {*names, *HEADERS, "OnDevice", "addressed"}
    return Source(kernel, gemm, choice, formula_of(kernel.region), struct, "gemm_sm90", call, tuple(sorted(needs)))


def core_of(kernel: Kernel) -> Product:
    assert kernel.core is not None
    return kernel.core


def launcher_name(kernel: Kernel) -> str:
    return kernel.name.removesuffix("_kernel")


def pointer_text(layout: Layout) -> str:
    name = identifier(layout.buffer.name)
    return f"{name} + {layout.offset}" if layout.offset else name


def gemm_of(kernel: Kernel) -> Gemm:
    """The product as the template's descriptors take it."""
    core = core_of(kernel)
    grid = epilogue_grid(kernel.region)
    return Gemm(
        m=core.m,
        n=core.n,
        k=core.k,
        batches=core.batches,
        a=operand_of(core.a, constant=False),
        w=operand_of(core.w, constant=core.constant),
        vector=vector_of(grid),
        epilogue_bytes=kernel.region.bytes_moved,
    )


def operand_of(matrix: Matrix, constant: bool) -> Operand:
    """A pitch that no step is taken along says nothing: an axis of extent 1 has the pitch 0, which alignment allows."""
    dtype = matrix.layout.buffer.dtype
    aligned = matrix.layout.offset * dtype.itemsize % 16 == 0
    return Operand(dtype.name, matrix.row_pitch, matrix.k_pitch or 1, matrix.batch_pitch, constant, aligned)


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


def packed_buffer(kernel: Kernel) -> Buffer:
    """The weight as pairs of float16, in the order the kernel reads it."""
    core = core_of(kernel)
    weight = core.w.layout.buffer
    size = gemm_sm90.packed_bytes(gemm_of(kernel))
    name = f"{weight.name}_packed"
    return Buffer(name, (size,), UINT8, (1,), packed_from=weight, packed_by=f"{launcher_name(kernel)}_pack")


def workspace_buffer(kernel: Kernel, choice: GemmConfig) -> list[Buffer]:
    size = gemm_sm90.workspace_bytes(choice, gemm_of(kernel))
    return [Buffer(f"workspace_{launcher_name(kernel)}", (size,), UINT8, (1,))] if size else []


class EpilogueWriter(RowsWriter):
    """What happens to N neighbouring sums of one row: their operands are loaded, and the results stored, at once."""

    def members(self) -> list[str]:
        texts = {name: local(name) if self.is_uniform(a) else f"{local(name)}[i]" for name, a in self.accesses}
        texts["given"] = "product[i]"
        shared, lanes, values = self.body_lines(texts, {name for name, a in self.accesses if self.is_uniform(a)})
        names = [self.result_name(node) for node, _ in self.results]
        storages = [access.layout.buffer.dtype.storage_cpp for _, access in self.results]
        read = [a for _, a in self.accesses] + [a for _, a in self.results]
        lines = [
            *self.coordinate_lines(read),
            *(f"const auto {local(name)} = {self.constant_load(a)};" for name, a in self.accesses),
            *shared,
            *(f"kw::Vec<{storage}, N> {name};" for storage, name in zip(storages, names, strict=True)),
            "KW_LANES for (int i = 0; i < N; ++i) {",
            *(f"    {line}" for line in lanes),
            *(f"    {name}[i] = {value};" for name, value in zip(names, values, strict=True)),
            "}",
            *(f"kw::store<N>({self.address(a)}, {name});" for name, (_, a) in zip(names, self.results, strict=True)),
        ]
        return [
            "",
            "    template <int N>",
            "    KW_DEVICE static void store(const Args& a, const float (&product)[N], int64_t row, int64_t column) {",
            *(f"        {line}" for line in lines),
            "    }",
        ]

    def constant_load(self, access: Access) -> str:
        """No kernel writes these while this one runs, so that loads of several calls may be gathered."""
        if self.is_uniform(access):
            return f"kw::load_constant<1>({self.address(access)})[0]"
        if access.inner == 1:
            return f"kw::load_constant<N>({self.address(access)})"
        return f"kw::gather<N>({self.address(access)}, {access.inner})"
