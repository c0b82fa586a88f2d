"""gemm_sm90 with the operands' roles traded: the first is packed (gemm_sm90_turned.cuh). Configs, cost, C++ entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90
from kernelwright.kernels import gemm_sm90_beside as beside
from kernelwright.kernels.gemm_pairs import (
    BUFFER_ALIGNMENT_BYTES,
    HELD_RATE,
    K_OF_BLOCK,
    rate_of_rows,
    round_up,
    way_of,
)
from kernelwright.kernels.gemm_pairs import packed_bytes as packed_bytes_of
from kernelwright.kernels.gemm_shape import Gemm, copy_us, is_as_it_lies
from kernelwright.kernels.gemm_sm90 import arithmetic, floor_us

__all__ = [
    "HEADERS",
    "Config",
    "arithmetic",
    "configs",
    "cost_us",
    "entry",
    "floor_us",
    "packed_bytes",
    "row_parts",
    "why_not",
    "workspace_bytes",
]

HEADER = "gemm_sm90_turned.cuh"
HEADERS = (*gemm_sm90.HEADERS, "gemm_sm90_turned")
LONGEST_HELD = K_OF_BLOCK  # of k, in a block's registers while it is packed


@dataclass(frozen=True, slots=True)
class Config(gemm_sm90.Config):
    """As gemm_sm90 has it, of the result's columns by its rows: tile_m columns and tile_n rows."""


def turned(gemm: Gemm) -> Gemm:
    """The same product with the result's columns as rows."""
    return replace(gemm, m=gemm.n, n=gemm.m, a=gemm.w, w=gemm.a)


def packed_first(gemm: Gemm) -> Gemm:
    """The same, for what asks how the packed operand lies: the other one is read as it lies, whichever way."""
    wanted = turned(gemm)
    return replace(wanted, a=replace(wanted.a, row_pitch=gemm.k, k_pitch=1))


def is_packed_by_panels(gemm: Gemm) -> bool:
    """The first operand's rows lie side by side."""
    return gemm.a.k_pitch != 1


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words."""
    if not is_as_it_lies(gemm) or gemm.w.constant:
        return "its second operand is one that each call brings, as it lies."
    if gemm.w.row_pitch != 1 or gemm.w.k_pitch == 1:
        return "it reads the second operand as columns that lie side by side."
    if not gemm.w.aligned or gemm.w.k_pitch % 4 or gemm.w.batch_pitch % 4:
        return "the copy engine reads lines that begin at multiples of 16 bytes."
    if gemm.batches > 1 and gemm.w.batch_pitch == 0:
        return "every batch has the same second operand, which the copy engine cannot say."
    if is_packed_by_panels(gemm) and gemm.a.row_pitch != 1:
        return "rows that are packed lie along k or side by side."
    if not is_packed_by_panels(gemm) and gemm.k > LONGEST_HELD:
        return f"k = {gemm.k}; rows of up to {LONGEST_HELD:,} are held in registers while they are packed."
    if gemm.row_state_bytes:
        return "neighbours of a row lie in other warps: it cannot be reduced there."
    if gemm.vector % config.vector or gemm.n % config.vector:
        return f"the epilogue cannot store {config.vector} neighbours of {gemm.n} columns at once."
    # What is asked of a product's columns there is asked of rows here, but for the neighbours of one store.
    if config.sent and (reason := gemm_sm90.why_not_sent(config, gemm)):
        return reason
    if config.is_beside and (reason := gemm_sm90.why_not_beside(config, packed_first(gemm))):
        return reason
    elsewhere = replace(gemm_sm90.packed_before(config), vector=1, sent=False)
    return gemm_sm90.why_not(elsewhere, turned(gemm), device)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits and is accurate at this k, the most promising first."""
    promote = 32 if gemm.k < gemm_sm90.LONG_K else 64
    vector = next(v for v in (4, 2, 1) if gemm.vector % v == 0 and gemm.n % v == 0)
    space = [
        Config(tile_n, promote, splits, vector, tile_m, sent)
        for tile_m, tile_n in gemm_sm90.tiles(turned(gemm))
        for splits in gemm_sm90.split_counts(turned(gemm), device, tile_m, tile_n)
        for sent in gemm_sm90.ways_out(turned(gemm), device, tile_m, tile_n)
    ]
    space += [c for config in space for c in gemm_sm90.with_packers(config, packed_first(gemm), device)]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """The product as gemm_sm90 multiplies it, after the first operand was packed."""
    if config.is_beside:
        packing_us = gemm_sm90.packing_beside_us(config, packed_first(gemm), device)
        return beside.share(config.aside) * gemm_sm90.multiplying_us(config, turned(gemm), device) + packing_us
    rate = rate_of_rows(gemm.k) if is_packed_by_panels(gemm) else HELD_RATE
    moved = 4 * turned(gemm).w_batches * gemm.m * gemm.k / rate
    return gemm_sm90.multiplying_us(config, turned(gemm), device) + copy_us(moved, moved, device)


def row_parts(config: Config, gemm: Gemm) -> int:
    """No row is reduced."""
    return 0


# --- memory: the packed first operand, then the parts of k


def packed_bytes(gemm: Gemm) -> int:
    """Nothing is packed ahead."""
    return 0


def prepared_bytes(gemm: Gemm) -> int:
    return round_up(packed_bytes_of(turned(gemm), is_packed_by_panels(gemm)), BUFFER_ALIGNMENT_BYTES)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    parts = gemm_sm90.part_bytes(config, gemm)
    return prepared_bytes(gemm) + round_up(parts, BUFFER_ALIGNMENT_BYTES)


# --- C++


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config and a launcher `name`(a, w, workspace, epilogue arguments, stream)."""
    panels, batches = is_packed_by_panels(gemm), turned(gemm).w_batches
    packing = "kw::split::ByPanels" if panels else way_of(1, gemm.m, gemm.k, batches)
    pitches = f"{gemm.a.row_pitch}, {gemm.a.k_pitch}, {gemm.a.batch_pitch}"
    sizes = f"{gemm.n}, {gemm.m}, {gemm.k}, {gemm.batches}, {batches}"
    order = "kw::gemm_sm90_turned::Turned"
    if config.is_beside:
        used, types = beside.struct(name, config.way, turned(gemm), order), f"{name}_W"
        from_where = f", a, {gemm.a.row_pitch}, {gemm.a.batch_pitch}"
        packing_before, packing_after = "", beside.called(name)
    else:
        used, types, from_where, packing_after = "", order, "", ""
        packing_before = f"""\
    cudaError_t packed = kw::split::pack_by<2, {packing}, kw::gemm::AsItLies, kw::split::InOrder>(
        a, {pitches}, {gemm.m}, {gemm.k}, {batches}, workspace, stream);
    if (packed != cudaSuccess) return packed;
"""
    types = f"{name}_Config, {epilogue}, kw::gemm::AsItLies, {types}"
    return f"""\
struct {name}_Config {{
{gemm_sm90.config_members(config, turned(gemm), panels, packed_before=True)}
}};
{used}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{packing_before}\
    const kw::gemm_sm90::Operands operands = {{
        (const float*)w, {gemm.w.k_pitch}, {gemm.w.batch_pitch}, workspace, {sizes}{from_where}}};
{packing_after}\
{gemm_sm90.parts_line(config, prepared_bytes(gemm))}\
    return {gemm_sm90.launched_as(config, types)};
}}
"""
