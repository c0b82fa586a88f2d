"""The Hopper template with TF32's accuracy (gemm_sm90_f16x1.cuh): its configs, which fit, their cost, its C++ entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelwright.device import Device
from kernelwright.kernels import gemm_sm90_half
from kernelwright.kernels.gemm_pairs import packer, passed, then
from kernelwright.kernels.gemm_rows import end_of, launched
from kernelwright.kernels.gemm_shape import Gemm, Operand, copy_us
from kernelwright.kernels.gemm_shape import floor_us as floor_at

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

HEADER = "gemm_sm90_f16x1.cuh"
HEADERS = ("launch", "ptx90", "gemm_prologue", "split", "gemm_epilogue", "gemm_sm90_half", "gemm_sm90_f16x1")
MOST_BATCHES = 65535


@dataclass(frozen=True, slots=True)
class Config:
    """As gemm_sm90_half's, which multiplies."""

    tile_n: int
    cluster: int
    vector: int
    own_tiles: bool = False

    @property
    def half(self) -> gemm_sm90_half.Config:
        return gemm_sm90_half.Config(self.tile_n, self.cluster, self.vector, self.own_tiles)


def why_not(config: Config, gemm: Gemm, device: Device) -> str | None:
    """The reason a config cannot run this product, in words; whether TF32's accuracy will do, the caller knows."""
    if (gemm.a.dtype, gemm.w.dtype) != ("float32", "float32"):
        return f"scaled float16 stands for float32; the operands are {gemm.a.dtype} and {gemm.w.dtype}."
    if gemm.batches > MOST_BATCHES:
        return f"{gemm.batches} batches; a grid has at most {MOST_BATCHES:,} along an axis."
    return gemm_sm90_half.why_not(config.half, _packed(gemm), device)


def configs(gemm: Gemm, device: Device) -> tuple[Config, ...]:
    """Every config that fits, the most promising first."""
    halves = gemm_sm90_half.configs(_packed(gemm), device)
    space = [Config(c.tile_n, c.cluster, c.vector, c.own_tiles) for c in halves]
    fitting = [config for config in space if why_not(config, gemm, device) is None]
    return tuple(sorted(fitting, key=lambda config: cost_us(config, gemm, device)))


def floor_us(gemm: Gemm, device: Device) -> float:
    """One float16 product at the device's rate, or the bytes; weights that were packed ahead have two an element."""
    saved = 2 * gemm.w_batches * gemm.n * gemm.k if gemm.w.constant else 0
    return floor_at(replace(gemm, epilogue_bytes=gemm.epilogue_bytes - saved), device, device.peaks.float16)


def cost_us(config: Config, gemm: Gemm, device: Device) -> float:
    """The half-precision product, the pass over A and, where W is not constant, the one over W."""
    a_elements, w_elements = gemm.batches * gemm.m * gemm.k, gemm.w_batches * gemm.n * gemm.k
    total = gemm_sm90_half.cost_us(config.half, _packed(gemm), device) + copy_us(4 * a_elements, 2 * a_elements, device)
    return total + (0.0 if gemm.w.constant else copy_us(4 * w_elements, 2 * w_elements, device))


def _packed(gemm: Gemm) -> Gemm:
    """The product as the half-precision kernel sees it."""
    pitch = _round_up(gemm.k, 64)
    a = Operand("float16", pitch, 1, pitch * gemm.m if gemm.batches > 1 else 0, constant=False)
    w = Operand("float16", pitch, 1, pitch * gemm.n if gemm.w_batches > 1 else 0, constant=gemm.w.constant)
    return replace(gemm, a=a, w=w)


# --- memory, as split.cuh lays it out


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _rows_bytes(rows: int, k: int, batches: int) -> int:
    """2 bytes an element of padded rows, a scale and a maximum for each padded row."""
    return batches * (2 * rows * _round_up(k, 64) + 8 * _round_up(rows, 768))


def packed_bytes(gemm: Gemm) -> int:
    return _rows_bytes(gemm.n, gemm.k, gemm.w_batches)


def row_parts(config: Config, gemm: Gemm) -> int:
    """As of the half-precision kernel."""
    return gemm_sm90_half.row_parts(config.half, gemm)


def workspace_bytes(config: Config, gemm: Gemm) -> int:
    """Scratch memory of a call: A's rows and, where W is not constant, W's; 256-byte aligned."""
    w = 0 if gemm.w.constant else packed_bytes(gemm)
    return _round_up(_rows_bytes(gemm.m, gemm.k, gemm.batches), 256) + w


# --- C++


def arithmetic(config: Config, gemm: Gemm) -> str:
    """How it multiplies and adds, for whoever reads the result."""
    return "float32 scaled and rounded to float16, as TF32 would be, summed in float32"


def entry(name: str, config: Config, gemm: Gemm, epilogue: str) -> str:
    """The config, a launcher `name`(a, w, workspace, epilogue arguments, stream) and, for constant W, `name`_pack."""
    sizes = f"{gemm.m}, {gemm.n}, {gemm.k}, {gemm.batches}, {gemm.w_batches}"
    a_pitches = f"{gemm.a.row_pitch}, {gemm.a.k_pitch}, {gemm.a.batch_pitch}"
    places = _pitches_and_sizes(gemm.w, gemm.n, gemm.k, gemm.w_batches)
    pack = f"{packer(1, gemm)}({{}}, {places}, {{}}, stream{passed(gemm.w.made_by)})"
    pack_ahead = f"""\
extern "C" int {name}_pack(const float* w, void* packed, cudaStream_t stream) {{
    return {pack.format("w", "packed")};
}}
"""
    pack_now = f"""\
    void* rows = (char*)workspace + {_round_up(_rows_bytes(gemm.m, gemm.k, gemm.batches), 256)};
    const cudaError_t packed = {pack.format("(const float*)w", "rows")};
    if (packed != cudaSuccess) return packed;
"""
    parts = row_parts(config, gemm)
    end = end_of(epilogue, parts, gemm)
    types = f"{name}_Config, {end}{then(gemm.a.made_by)}"
    launch = f"kw::gemm_sm90_f16x1::launch<{types}>(operands, workspace, *args, stream{passed(gemm.a.made_by)})"
    return f"""\
struct {name}_Config {{
    using Type = __half;
{gemm_sm90_half.config_members(config.half)}
}};
{pack_ahead if gemm.w.constant else ""}\
extern "C" int {name}(
    const float* a, const void* w, void* workspace, const {epilogue}::Args* args, cudaStream_t stream) {{
{"" if gemm.w.constant else pack_now}\
    const kw::gemm_sm90_f16x1::Operands operands = {{a, {a_pitches}, {"w" if gemm.w.constant else "rows"}, {sizes}}};
{launched(launch, epilogue, parts, gemm)}
}}
"""


def _pitches_and_sizes(operand: Operand, rows: int, k: int, batches: int) -> str:
    return f"{operand.row_pitch}, {operand.k_pitch}, {operand.batch_pitch}, {rows}, {k}, {batches}"
