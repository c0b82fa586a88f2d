"""Builds every GEMM template, checks it against float64 on hostile inputs and times it against PyTorch, on one GPU.

    python benchmarks/gemm_templates.py --out results.jsonl [--only exact errors special times half] [--keep BUILD_DIR]

Every measurement is a line of JSON in the file given; a short table comes last. Each phase runs in a process of its own
with a time limit, so that a kernel that hangs takes only its own phase along.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HEADERS = Path(__file__).resolve().parent.parent / "kernelwright" / "kernels" / "cuda"
NVCC = [
    "nvcc",
    "-O3",
    "-std=c++17",
    "-fmad=false",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-Xptxas",
    "-v",
    "-Xcompiler",
    "-fPIC",
]
PHASES = {"exact": 45, "errors": 45, "special": 30, "times": 75, "half": 40}  # seconds each may take at most

# --- what is built: one library for each config, sizes given at run time

EPILOGUES = """
struct Plain {
  struct Args { float* c; const float* bias; int64_t pitch; };
  template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
    float* c = args.c + m * args.pitch + n;
    if constexpr (N == 4) *(float4*)c = make_float4(x[0], x[1], x[2], x[3]);
    else if constexpr (N == 2) *(float2*)c = make_float2(x[0], x[1]);
    else c[0] = x[0];
  }
};
struct BiasRelu {  // relu(x + bias) / 2
  using Args = Plain::Args;
  template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
    float bias[N], y[N];
    if constexpr (N == 4) *(float4*)bias = __ldg((const float4*)(args.bias + n));
    else for (int i = 0; i < N; i++) bias[i] = __ldg(args.bias + n + i);
    for (int i = 0; i < N; i++) y[i] = fmaxf(x[i] + bias[i], 0.f) * 0.5f;
    Plain::store<N>(args, y, m, n);
  }
};
template <class T> struct Narrow {  // rounded to T
  using Args = Plain::Args;
  template <int N> KW_DEVICE static void store(const Args& args, const float (&x)[N], int64_t m, int64_t n) {
    struct alignas(sizeof(T) * N) { T v[N]; } y;
    for (int i = 0; i < N; i++) y.v[i] = T(x[i]);
    *(decltype(y)*)((T*)args.c + m * args.pitch + n) = y;
  }
};
"""

SM90 = """
#include "gemm_sm90.cuh"
{epilogues}
struct Config : kw::gemm_sm90::DefaultConfig {{
  static constexpr int tile_m = {tile_m}, tile_n = {tile_n}, promote = {promote}, splits = {splits};
  static constexpr int vector = {vector};
  static constexpr bool undo_truncation = {restore};
}};
using namespace kw;
extern "C" int run(const gemm_sm90::Operands* o, void* workspace, const Plain::Args* args, int relu, cudaStream_t s) {{
  if (relu) return gemm_sm90::launch<Config, {relu}>(*o, workspace, *args, s);
  return gemm_sm90::launch<Config, Plain>(*o, workspace, *args, s);
}}
extern "C" int pack(
    const float* w, int64_t row, int64_t k, int64_t batch, int rows, int ks, int batches, void* to, cudaStream_t s) {{
  return split::pack(w, row, k, batch, rows, ks, batches, to, s);
}}
extern "C" int pad(
    const float* a, int64_t row, int64_t k, int64_t batch, int rows, int ks, int batches, float* to, cudaStream_t s) {{
  return split::pad(a, row, k, batch, rows, ks, batches, to, s);
}}
extern "C" int64_t packed_bytes(int rows, int k, int batches) {{ return split::packed_bytes(rows, k, batches); }}
extern "C" int64_t workspace_bytes(int m, int n, int batches) {{
  return gemm_sm90::workspace_bytes<Config>(m, n, batches);
}}
"""

SM80 = """
#include "gemm_sm80.cuh"
{epilogues}
struct Config {{
  static constexpr int tile_m = {tile_m}, tile_n = {tile_n}, vector = {vector};
}};
using namespace kw;
extern "C" int run(const gemm_sm80::Operands* o, void*, const Plain::Args* args, int relu, cudaStream_t s) {{
  if (relu) return gemm_sm80::launch<Config, BiasRelu>(*o, *args, s);
  return gemm_sm80::launch<Config, Plain>(*o, *args, s);
}}
extern "C" int pack(
    const float* w, int64_t row, int64_t k, int64_t batch, int rows, int ks, int batches, void* to, cudaStream_t s) {{
  return split::pack(w, row, k, batch, rows, ks, batches, to, s);
}}
extern "C" int pad(
    const float* a, int64_t row, int64_t k, int64_t batch, int rows, int ks, int batches, float* to, cudaStream_t s) {{
  return split::pad(a, row, k, batch, rows, ks, batches, to, s);
}}
extern "C" int64_t packed_bytes(int rows, int k, int batches) {{ return split::packed_bytes(rows, k, batches); }}
extern "C" int64_t workspace_bytes(int m, int n, int batches) {{ return 0; }}
"""

SIMT = """
#include "gemm_simt.cuh"
{epilogues}
struct Config {{
  using AType = {type};
  using WType = {type};
  static constexpr int tile_m = {tile}, tile_n = {tile}, tile_k = {tile_k}, vector = {vector};
  static constexpr int a_width = {width}, w_width = {width};
  static constexpr bool a_along_k = {a_along_k}, w_along_k = {w_along_k}, blocked = {blocked};
}};
extern "C" int run(const kw::gemm_simt::Problem* p, const Plain::Args* args, cudaStream_t s) {{
  return kw::gemm_simt::launch<Config, Plain>(*p, *args, s);
}}
"""

SKINNY = """
#include "gemm_skinny.cuh"
{epilogues}
struct Config {{
  using Type = float;
  static constexpr int few = {few}, rows = {rows}, k_warps = {k_warps}, load_bytes = {load_bytes};
  static constexpr bool few_is_a = {few_is_a};
}};
extern "C" int run(const kw::gemm_skinny::Problem* p, const Plain::Args* args, cudaStream_t s) {{
  return kw::gemm_skinny::launch<Config, Plain>(*p, *args, s);
}}
"""

HALF = """
#include "gemm_sm90_half.cuh"
{epilogues}
struct Config {{
  using Type = {type};
  static constexpr int tile_n = {tile_n}, cluster = {cluster}, vector = 4, raster = 16;
  static constexpr bool own_tiles = false;
}};
extern "C" int run(const kw::gemm_sm90_half::Operands* o, const Plain::Args* args, int narrow, cudaStream_t s) {{
  if (narrow) return kw::gemm_sm90_half::launch<Config, Narrow<{type}>>(*o, *args, s);
  return kw::gemm_sm90_half::launch<Config, Plain>(*o, *args, s);
}}
"""


F16X1 = """
#include "gemm_sm90_f16x1.cuh"
{epilogues}
struct Config {{
  using Type = __half;
  static constexpr int tile_n = {tile_n}, cluster = {cluster}, vector = {vector}, raster = 16;
  static constexpr bool own_tiles = false;
}};
using namespace kw;
extern "C" int run(
    const gemm_sm90_f16x1::Operands* o, void* workspace, const Plain::Args* args, int relu, cudaStream_t s) {{
  if (relu) return gemm_sm90_f16x1::launch<Config, BiasRelu>(*o, workspace, *args, s);
  return gemm_sm90_f16x1::launch<Config, Plain>(*o, workspace, *args, s);
}}
extern "C" int pack(
    const float* w, int64_t row, int64_t k, int64_t batch, int rows, int ks, int batches, void* to, cudaStream_t s) {{
  return split::pack<1>(w, row, k, batch, rows, ks, batches, to, s);
}}
extern "C" int64_t packed_bytes(int rows, int k, int batches) {{ return split::packed_bytes(rows, k, batches, 1); }}
"""


def sm90(tile_n: int, promote: int, splits: int = 1, vector: int = 4, restore: str = "true", tile_m: int = 128) -> str:
    relu = "BiasRelu" if (tile_n, splits) == (256, 1) else "Plain"  # the fused epilogue is timed on one tile
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "promote": promote, "splits": splits, "vector": vector}
    return SM90.format(epilogues=EPILOGUES, restore=restore, relu=relu, **sizes)


def sm80(tile_m: int, tile_n: int, vector: int = 4) -> str:
    return SM80.format(epilogues=EPILOGUES, tile_m=tile_m, tile_n=tile_n, vector=vector)


def simt(
    tile: int, blocked: bool, vector: int = 4, a_along_k: bool = True, w_along_k: bool = True, half: bool = False
) -> str:
    sizes = {"tile": tile, "tile_k": 8 if tile == 128 else 16, "width": 1 if vector == 1 else 4}
    flags = {"blocked": blocked, "a_along_k": a_along_k, "w_along_k": w_along_k}
    spelled = {name: str(value).lower() for name, value in flags.items()}
    return SIMT.format(epilogues=EPILOGUES, type="__half" if half else "float", vector=vector, **sizes, **spelled)


def skinny(few: int, rows: int, k_warps: int, few_is_a: bool = True, load_bytes: int = 16) -> str:
    return SKINNY.format(
        epilogues=EPILOGUES, few=few, rows=rows, k_warps=k_warps, load_bytes=load_bytes, few_is_a=str(few_is_a).lower()
    )


def half(kind: str, tile_n: int, cluster: int) -> str:
    return HALF.format(epilogues=EPILOGUES, type=kind, tile_n=tile_n, cluster=cluster)


def f16x1(tile_n: int, cluster: int, vector: int = 4) -> str:
    return F16X1.format(epilogues=EPILOGUES, tile_n=tile_n, cluster=cluster, vector=vector)


BUILDS = {
    "sm90 256/64": sm90(256, 64),
    "sm90 256/32": sm90(256, 32),
    "sm90 192/64": sm90(192, 64),
    "sm90 192/32": sm90(192, 32),
    "sm90 128/64": sm90(128, 64),
    "sm90 128/32": sm90(128, 32),
    "sm90 256/64 bare": sm90(256, 64, restore="false"),
    "sm90 256/64 odd": sm90(256, 64, vector=1),
    "sm90 256/32 odd": sm90(256, 32, vector=1),
    "sm90 192/64 odd": sm90(192, 64, vector=1),
    "sm90 256/64 pairs": sm90(256, 64, vector=2),
    "sm90 256/64 split4": sm90(256, 64, splits=4),
    "sm90 256/64 split8": sm90(256, 64, splits=8),
    "sm90 256/64 split66": sm90(256, 64, splits=66),
    "sm90 128/64 split8": sm90(128, 64, splits=8),
    "sm90 128/64 split33": sm90(128, 64, splits=33),
    "sm90 128/64 split3 odd": sm90(128, 64, splits=3, vector=1),
    "sm90 64x256/64 split4": sm90(256, 64, splits=4, tile_m=64),
    "sm90 64x128/64 split2": sm90(128, 64, splits=2, tile_m=64),
    "sm90 64x256/64": sm90(256, 64, tile_m=64),
    "sm90 64x128/32 odd": sm90(128, 32, vector=1, tile_m=64),
    "sm90 128x64/64 split2": sm90(64, 64, splits=2),
    "sm90 128x64/32 odd": sm90(64, 32, vector=1),
    "sm80 128x128": sm80(128, 128),
    "sm80 64x64": sm80(64, 64),
    "sm80 128x64 odd": sm80(128, 64, vector=1),
    "simt 128": simt(128, False),
    "simt 128 odd": simt(128, False, vector=1),
    "simt 64": simt(64, False),
    "simt 64 blocked": simt(64, True),
    "simt 64 blocked odd": simt(64, True, vector=1),
    "simt 64 odd": simt(64, False, vector=1),
    "simt 128 transposed": simt(128, False, a_along_k=False, w_along_k=False),
    "simt 64 transposed odd": simt(64, False, vector=1, a_along_k=False, w_along_k=False),
    "simt 64 half": simt(64, False, half=True),
    "skinny 1": skinny(1, 4, 1),
    "skinny 1 rows8": skinny(1, 8, 8),
    "skinny 1 k8": skinny(1, 4, 8),
    "skinny 2 k8": skinny(2, 4, 8),
    "skinny 2 rows8": skinny(2, 8, 8),
    "skinny 4": skinny(4, 4, 1),
    "skinny 4 k2": skinny(4, 4, 2),
    "skinny 4 k8": skinny(4, 4, 8),
    "skinny 8": skinny(8, 4, 1),
    "skinny 8 k8": skinny(8, 4, 8),
    "skinny 16": skinny(16, 4, 1),
    "skinny 16 rows2": skinny(16, 2, 1),
    "skinny 8 columns": skinny(8, 4, 1, few_is_a=False),
    "skinny 8 odd": skinny(8, 4, 1, load_bytes=4),
    "skinny 2 odd": skinny(2, 4, 2, load_bytes=4),
    "f16x1 256/2": f16x1(256, 2),
    "f16x1 128/2": f16x1(128, 2),
    "f16x1 128/1 odd": f16x1(128, 1, vector=1),
    "half 256/2": half("__half", 256, 2),
    "half 256/1": half("__half", 256, 1),
    "half 192/2": half("__half", 192, 2),
    "half 128/1": half("__half", 128, 1),
    "half 64/1": half("__half", 64, 1),
    "bfloat16 256/2": half("__nv_bfloat16", 256, 2),
    "bfloat16 128/2": half("__nv_bfloat16", 128, 2),
}


def library_path(folder: Path, name: str) -> Path:
    return folder / (name.replace(" ", "_").replace("/", "-") + ".so")


def build_all(folder: Path) -> list[dict[str, Any]]:
    """Every library, as many at a time as there are cores; registers and spills of each."""
    jobs = max(2, os.cpu_count() or 2)
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda item: build_one(folder, *item), BUILDS.items()))


def build_one(folder: Path, name: str, source: str) -> dict[str, Any]:
    library = library_path(folder, name)
    if library.exists():
        return {"name": name, "seconds": 0.0, "failed": "", "spills": 0, "registers": 0}
    path = library.with_suffix(".cu")
    path.write_text(source)
    start = time.perf_counter()
    command = [*NVCC, "-shared", f"-I{HEADERS}", "-o", str(library), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    log = done.stdout + done.stderr
    words = log.replace(",", " ").split()
    spills = sum(int(a) for a, b, c in zip(words, words[1:], words[2:], strict=False) if (b, c) == ("bytes", "spill"))
    registers = max((int(a) for a, b in pairwise(words) if b == "registers"), default=0)
    failed = "" if done.returncode == 0 else log[-1500:]
    seconds = time.perf_counter() - start
    return {"name": name, "seconds": round(seconds, 1), "failed": failed, "spills": spills, "registers": registers}


# --- calling what was built

P, N, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64


class Args(ctypes.Structure):
    _fields_ = (("c", P), ("bias", P), ("pitch", L))


class Sm90Operands(ctypes.Structure):
    _fields_ = (
        ("a", P), ("a_row_pitch", L), ("a_batch_pitch", L), ("w", P),
        ("m", N), ("n", N), ("k", N), ("batches", N), ("w_batches", N),
    )  # fmt: skip


class F16x1Operands(ctypes.Structure):
    _fields_ = (
        ("a", P), ("a_row_pitch", L), ("a_k_pitch", L), ("a_batch_pitch", L), ("w", P),
        ("m", N), ("n", N), ("k", N), ("batches", N), ("w_batches", N),
    )  # fmt: skip


class SimtProblem(ctypes.Structure):
    _fields_ = (
        ("a", P), ("a_row", L), ("a_k", L), ("a_batch", L), ("w", P), ("w_row", L), ("w_k", L), ("w_batch", L),
        ("m", N), ("n", N), ("k", N), ("batches", N),
    )  # fmt: skip


class SkinnyProblem(ctypes.Structure):
    _fields_ = (
        ("few", P), ("few_row", L), ("few_batch", L), ("many", P), ("many_row", L), ("many_batch", L),
        ("few_rows", N), ("many_rows", N), ("k", N), ("batches", N), ("m", N),
    )  # fmt: skip


class HalfOperands(ctypes.Structure):
    _fields_ = (
        ("a", P), ("w", P), ("a_row", L), ("a_batch", L), ("w_row", L), ("w_batch", L),
        ("m", N), ("n", N), ("k", N), ("batches", N), ("w_batches", N),
    )  # fmt: skip


def stream() -> ctypes.c_void_p:
    return P(torch.cuda.current_stream().cuda_stream)


def checked(code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"{what} returned CUDA error {code}")


def batched(x: Tensor) -> Tensor:
    return x if x.dim() == 3 else x.unsqueeze(0)


def result_like(a: Tensor, w: Tensor, dtype: torch.dtype) -> Tensor:
    """Poisoned: an element that is not written shows as NaN."""
    return torch.full((batched(a).shape[0], a.shape[-2], w.shape[-2]), float("nan"), device="cuda", dtype=dtype)


@dataclass(slots=True)
class Call:
    """One product, ready to be launched again and again: `launch()`, then read `out`.

    It owns every buffer that the launch reads or writes: as long as the launch may run, the Call has to live.
    """

    launch: Callable[[], None]
    out: Tensor
    keep: tuple[Tensor | None, ...]


class Library:
    """A built config; `prepare(a, w)` gives a Call. a: [m, k] or [b, m, k]; w: [n, k] or [b, n, k]; any strides."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.binary = ctypes.CDLL(str(library_path(folder, name)))
        self.family = name.split()[0]

    def prepare(
        self, a: Tensor, w: Tensor, bias: Tensor | None = None, repack: bool = False, narrow: bool = False
    ) -> Call:
        families = {"sm90": self.sm90, "sm80": self.sm90, "f16x1": self.f16x1, "simt": self.simt, "skinny": self.skinny}
        return families.get(self.family, self.half)(a, w, bias, repack or narrow)

    def __call__(self, a: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        call = self.prepare(a, w, bias)
        call.launch()
        torch.cuda.synchronize()
        return call.out if a.dim() == 3 else call.out[0]

    def sm90(self, a: Tensor, w: Tensor, bias: Tensor | None, repack: bool) -> Call:
        a3, w3 = batched(a), batched(w)
        batches, m, k = a3.shape
        w_batches, n, _ = w3.shape
        self.binary.packed_bytes.restype = self.binary.workspace_bytes.restype = L
        packed = torch.empty(self.binary.packed_bytes(n, k, w_batches), dtype=torch.uint8, device="cuda")
        workspace = torch.empty(max(16, self.binary.workspace_bytes(m, n, batches)), dtype=torch.uint8, device="cuda")
        out = result_like(a, w, torch.float32)
        readable = a3.stride(2) == 1 and a3.stride(1) % 4 == 0 and a3.stride(0) % 4 == 0 and a.data_ptr() % 16 == 0
        pitch = a3.stride(1) if readable else (k + 31) // 32 * 32
        copied = a3 if readable else torch.empty(batches, m, pitch, device="cuda")
        batch_pitch = a3.stride(0) if readable else m * pitch
        operands = Sm90Operands(copied.data_ptr(), pitch, batch_pitch, packed.data_ptr(), m, n, k, batches, w_batches)
        args = Args(out.data_ptr(), bias.data_ptr() if bias is not None else 0, n)

        def pack() -> None:
            checked(
                self.binary.pack(
                    P(w.data_ptr()), L(w3.stride(1)), L(w3.stride(2)), L(w3.stride(0)), n, k, w_batches,
                    P(packed.data_ptr()), stream(),
                ), "pack",
            )  # fmt: skip

        def launch() -> None:
            if repack:
                pack()
            if not readable:
                checked(
                    self.binary.pad(
                        P(a.data_ptr()), L(a3.stride(1)), L(a3.stride(2)), L(a3.stride(0)), m, k, batches,
                        P(copied.data_ptr()), stream(),
                    ), "pad",
                )  # fmt: skip
            relu = int(bias is not None)
            code = self.binary.run(ctypes.byref(operands), P(workspace.data_ptr()), ctypes.byref(args), relu, stream())
            checked(code, "run")

        pack()
        return Call(launch, out, (a, w, packed, workspace, copied, bias))

    def f16x1(self, a: Tensor, w: Tensor, bias: Tensor | None, repack: bool) -> Call:
        a3, w3 = batched(a), batched(w)
        batches, m, k = a3.shape
        w_batches, n, _ = w3.shape
        self.binary.packed_bytes.restype = L
        packed, workspace = (
            torch.empty(self.binary.packed_bytes(*sizes), dtype=torch.uint8, device="cuda")
            for sizes in ((n, k, w_batches), (m, k, batches))
        )
        out = result_like(a, w, torch.float32)
        operands = F16x1Operands(
            a.data_ptr(), a3.stride(1), a3.stride(2), a3.stride(0), packed.data_ptr(), m, n, k, batches, w_batches
        )
        args = Args(out.data_ptr(), bias.data_ptr() if bias is not None else 0, n)

        def pack() -> None:
            code = self.binary.pack(
                P(w.data_ptr()), L(w3.stride(1)), L(w3.stride(2)), L(w3.stride(0)), n, k, w_batches,
                P(packed.data_ptr()), stream(),
            )  # fmt: skip
            checked(code, "pack")

        def launch() -> None:
            if repack:
                pack()
            relu = int(bias is not None)
            code = self.binary.run(ctypes.byref(operands), P(workspace.data_ptr()), ctypes.byref(args), relu, stream())
            checked(code, "run")

        pack()
        return Call(launch, out, (a, w, packed, workspace, bias))

    def simt(self, a: Tensor, w: Tensor, bias: Tensor | None, repack: bool) -> Call:
        a3, w3 = batched(a), batched(w)
        batches, m, k = a3.shape
        n = w3.shape[1]
        out = result_like(a, w, torch.float32)
        w_batch = w3.stride(0) if w3.shape[0] > 1 else 0
        problem = SimtProblem(
            a.data_ptr(), a3.stride(1), a3.stride(2), a3.stride(0), w.data_ptr(), w3.stride(1), w3.stride(2), w_batch,
            m, n, k, batches,
        )  # fmt: skip
        args = Args(out.data_ptr(), 0, n)
        launch = lambda: checked(self.binary.run(ctypes.byref(problem), ctypes.byref(args), stream()), "run")
        return Call(launch, out, (a, w))

    def skinny(self, a: Tensor, w: Tensor, bias: Tensor | None, repack: bool) -> Call:
        few_is_a = "columns" not in self.name
        few, many = (batched(a), batched(w)) if few_is_a else (batched(w), batched(a))
        out = result_like(a, w, torch.float32)

        def pitch(x: Tensor) -> int:
            return x.stride(0) if x.shape[0] > 1 else 0

        problem = SkinnyProblem(
            few.data_ptr(), few.stride(1), pitch(few), many.data_ptr(), many.stride(1), pitch(many),
            few.shape[1], many.shape[1], a.shape[-1], batched(a).shape[0], a.shape[-2],
        )  # fmt: skip
        args = Args(out.data_ptr(), 0, w.shape[-2])
        launch = lambda: checked(self.binary.run(ctypes.byref(problem), ctypes.byref(args), stream()), "run")
        return Call(launch, out, (a, w))

    def half(self, a: Tensor, w: Tensor, bias: Tensor | None, narrow: bool) -> Call:
        a3, w3 = batched(a), batched(w)
        batches, m, k = a3.shape
        out = result_like(a, w, a.dtype if narrow else torch.float32)
        operands = HalfOperands(
            a.data_ptr(), w.data_ptr(), a3.stride(1), a3.stride(0), w3.stride(1), w3.stride(0),
            m, w3.shape[1], k, batches, w3.shape[0],
        )  # fmt: skip
        args = Args(out.data_ptr(), 0, w3.shape[1])
        launch = lambda: checked(
            self.binary.run(ctypes.byref(operands), ctypes.byref(args), int(narrow), stream()), "run"
        )
        return Call(launch, out, (a, w))


# --- inputs


def generator(seed: int) -> torch.Generator:
    g = torch.Generator(device="cuda")
    g.manual_seed(1234 + seed)
    return g


def inputs(kind: str, m: int, n: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = generator(seed)
    rand: Callable[..., Tensor] = partial(torch.rand, device="cuda", generator=g)
    randn: Callable[..., Tensor] = partial(torch.randn, device="cuda", generator=g)
    bound = 1 / math.sqrt(k)
    if kind == "rand x kaiming":
        return rand(m, k), (rand(n, k) * 2 - 1) * bound
    if kind == "rand x rand":
        return rand(m, k), rand(n, k)
    a, w = randn(m, k), randn(n, k)
    if kind.startswith("randn * "):
        return a * float(kind.removeprefix("randn * ")), w
    if kind == "spike":  # one huge element
        a[m // 2, k // 2] = 1e6
    elif kind == "column of 1e6":
        a[:, k // 3] *= 1e6
    elif kind == "wide rows":  # magnitudes over 2^60 between rows, over e^8 inside a row
        a = (
            a
            * torch.exp(2 * randn(m, k))
            * torch.exp2(torch.randint(-30, 30, (m, 1), device="cuda", generator=g).float())
        )
    elif kind == "denormal":
        a = a * 1e-40
    elif kind == "small weights":
        w = w * 1e-25
    elif kind == "near one":  # cancellation
        a, w = 1 + 1e-3 * a, w - w.mean(1, keepdim=True)
    else:
        assert kind == "randn", kind
    return a, w


def integers(m: int, n: int, k: int, batches: int = 0, w_batches: int = 0, seed: int = 5) -> tuple[Tensor, Tensor]:
    g = generator(seed + m + n + k)

    def whole(*shape: int) -> Tensor:
        return torch.randint(-8, 9, shape, device="cuda", generator=g).float()

    a = whole(batches, m, k) if batches else whole(m, k)
    w = whole(w_batches, n, k) if w_batches else whole(n, k)
    return a, w


def reference(a: Tensor, w: Tensor) -> Tensor:
    return a.double() @ w.double().transpose(-1, -2)


def errors(out: Tensor, exact: Tensor) -> tuple[float, float]:
    """Root of the summed squares over that of the result; worst element over the root mean square of its row."""
    difference = out.double() - exact
    scale = exact.pow(2).mean(-1, keepdim=True).sqrt().clamp_min(1e-300)
    return (difference.norm() / exact.norm()).item(), (difference.abs() / scale).max().item()


# --- phases: each yields lines


def exact_phase(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    """Integers must come out exact: any wrong index, missing tail or race shows."""
    even = [
        (128, 256, 64),
        (256, 512, 512),
        (1152, 768, 1024),
        (200, 300, 192),
        (1, 4, 64),
        (129, 260, 100),
        (300, 1000, 2948),
        (8, 16, 40000),
    ]
    odd = [(77, 129, 100), (129, 257, 33), (2, 3, 37), (300, 1001, 2949), (513, 511, 77)]
    for name in BUILDS:
        family = name.split()[0]
        if family in ("half", "bfloat16"):
            continue
        if family == "skinny":
            cases = skinny_cases(name)
        else:
            cases = [*even, *odd] if "odd" in name else even
        if name == "simt 128 transposed":  # it loads four rows at once
            cases = [case for case in cases if case[0] % 4 == 0]
        library = libraries(name)
        wrong = []
        for m, n, k in cases:
            a, w = integers(m, n, k)
            if "transposed" in name:
                a, w = a.t().contiguous().t(), w.t().contiguous().t()
            if name == "simt 64 half":
                a, w = a.half(), w.half()
            out = library(a, w)
            bad = int((out.double() != reference(a, w)).sum())
            if bad:
                wrong.append(f"{m}x{n}x{k}: {bad} of {m * n}")
            if not torch.equal(out, library(a, w)):
                wrong.append(f"{m}x{n}x{k}: not the same twice")
        yield {"check": "integers", "name": name, "cases": len(cases), "wrong": wrong}
    yield from layouts(libraries)


def skinny_cases(name: str) -> list[tuple[int, int, int]]:
    few = int(name.split()[1])
    many = [1, 7, 64, 1000]
    ks = [64, 1000, 4096] if "odd" not in name else [3, 61, 4097]
    cases = [(few, n, k) for n in many for k in ks] + [(max(1, few - 1), 37, ks[1])]
    return [(n, m, k) for m, n, k in cases] if "columns" in name else cases


def layouts(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    """Batches, shared weights, transposed and misaligned operands, a graph."""
    names = ("sm90 256/64", "sm90 192/64", "sm90 128/64 split8", "sm90 64x256/64", "sm90 128x64/64 split2")
    for name in (*names, "sm80 128x128", "f16x1 256/2", "simt 128", "simt 64 odd"):
        library = libraries(name)
        wrong = []
        for label, (a, w) in {
            "batched": integers(130, 260, 96, batches=3, w_batches=3),
            "shared w": integers(257, 132, 640, batches=5),
            "many batches": integers(8, 16, 64, batches=300, w_batches=300),
        }.items():
            if not torch.equal(library(a, w).double(), reference(a, w)):
                wrong.append(label)
        a, w = integers(300, 520, 260)
        for label, x, y in (
            ("a transposed", a.t().contiguous().t(), w),
            ("w transposed", a, w.t().contiguous().t()),
            ("both transposed", a.t().contiguous().t(), w.t().contiguous().t()),
            ("a misaligned", torch.cat([a.new_zeros(1), a.flatten()])[1:].view_as(a), w),
            ("a in a wider row", torch.cat([a, a], 1)[:, :260], w),
        ):
            if name == "simt 128" and ("transposed" in label or "misaligned" in label):
                continue  # it loads four neighbours along k at once
            if not torch.equal(library(x, y).double(), reference(x, y)):
                wrong.append(label)
        call = library.prepare(a, w)
        call.launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call.launch()
        call.out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(call.out[0].double(), reference(a, w)):
            wrong.append("graph")
        yield {"check": "layouts", "name": name, "wrong": wrong}


def error_phase(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    """Errors against float64 beside cuBLAS's: over k, and on hostile inputs."""
    torch.backends.cuda.matmul.allow_tf32 = False
    kinds = ("rand x kaiming", "rand x rand", "randn")
    for k in (16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384):
        names = ["simt 64 blocked"] if k < 128 else []
        names += ["sm90 256/32", "sm80 128x128"] if k >= 32 else []
        names += ["sm90 256/64", "sm90 256/64 bare"] if k >= 64 else []
        for kind in kinds:
            a, w = inputs(kind, 1024, 1024, k, seed=k)
            exact = reference(a, w)
            ours = {name: errors(libraries(name)(a, w), exact) for name in names}
            yield {"check": "k", "k": k, "kind": kind, "eager": errors(a @ w.t(), exact), "ours": ours}
    hostile = ("randn * 1e-6", "randn * 1e-3", "randn * 1e4", "randn * 1e6", "randn * 1e-30", "randn * 1e30", "spike",
               "column of 1e6", "wide rows", "denormal", "small weights", "near one")  # fmt: skip
    for kind in hostile:
        a, w = inputs(kind, 512, 768, 1024)
        exact = reference(a, w)
        ours = {
            name: errors(libraries(name)(a, w), exact) for name in ("sm90 256/64", "sm90 256/32", "sm90 128/64 split8")
        }
        yield {"check": "hostile", "kind": kind, "eager": errors(a @ w.t(), exact), "ours": ours}
    a, w = inputs("rand x kaiming", 1024, 8192, 8192)
    exact = reference(a, w)
    names = ["sm90 256/64", "sm90 256/64 bare", "sm90 192/64", "sm90 128/64", "sm90 256/64 split4"]
    ours = {name: errors(libraries(name)(a, w), exact) for name in names}
    yield {"check": "k", "k": 8192, "kind": "the linear layer", "eager": errors(a @ w.t(), exact), "ours": ours}
    library = libraries("sm90 256/64")
    first = library(a, w)
    yield {"check": "repeats", "equal": all(torch.equal(first, library(a, w)) for _ in range(100))}


def classes(x: Tensor) -> Tensor:
    """0 finite, 1 Inf, 2 -Inf, 3 NaN."""
    return torch.isposinf(x).int() + 2 * torch.isneginf(x).int() + 3 * torch.isnan(x).int()


def special_phase(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    """Inf, NaN and overflow give what float32 gives, and leave the rest alone."""
    torch.backends.cuda.matmul.allow_tf32 = False
    inf, nan = float("inf"), float("nan")
    base_a, base_w = inputs("randn", 300, 520, 1024)
    cases: dict[str, Callable[[Tensor, Tensor], object]] = {
        "Inf in a": lambda a, w: put(a, 3, 5, inf),
        "-Inf in a": lambda a, w: put(a, 299, 1023, -inf),
        "NaN in a": lambda a, w: put(a, 130, 64, nan),
        "Inf and -Inf in a row": lambda a, w: (put(a, 7, 5, inf), put(a, 7, 900, -inf)),
        "Inf in w": lambda a, w: put(w, 11, 17, inf),
        "NaN in w": lambda a, w: put(w, 519, 0, nan),
        "Inf in both": lambda a, w: (put(a, 20, 100, inf), put(w, 30, 100, -inf)),
        "Inf times zero": lambda a, w: (put(a, 20, 100, inf), put(w, 30, 100, 0.0)),
        "a row that overflows": lambda a, w: a[40].mul_(1e36),
        "results that overflow": lambda a, w: (a[50].mul_(1e20), w.mul_(1e20)),
        "all NaN": lambda a, w: a.fill_(nan),
    }
    for name in ("sm90 256/64", "sm90 128/32", "sm90 256/64 odd", "sm90 128/64 split8", "sm90 64x256/64", "sm80 64x64"):
        library = libraries(name)
        clean = library(base_a, base_w)
        for label, poison in cases.items():
            a, w = base_a.clone(), base_w.clone()
            poison(a, w)
            out, eager, exact = library(a, w), a @ w.t(), reference(a, w)
            touched_rows, touched_columns = (a != base_a).any(1), (w != base_w).any(1)  # NaN != NaN counts as touched
            alone = ~(touched_rows[:, None] | touched_columns[None, :])
            finite = torch.isfinite(eager) & torch.isfinite(out) & (exact.abs() > 1e-2 * exact.abs().nanmedian())
            relative = ((out.double() - exact).abs() / exact.abs())[finite]
            excused = torch.isfinite(exact) & ~torch.isfinite(eager)  # eager overflowed where the true sum does not
            yield {
                "check": "special",
                "name": name,
                "case": label,
                "class_differs": int(((classes(out) != classes(eager)) & ~excused).sum()),
                **neighbours(out, clean, eager, exact, alone),
                "worst_relative": relative.max().item() if relative.numel() else 0.0,
            }
    a, w = inputs("randn", 1024, 8192, 8192)
    library = libraries("sm90 256/64")
    poisoned = {
        "none": a,
        "one Inf": put(a.clone(), 3, 5, inf),
        "one NaN": put(a.clone(), 3, 5, nan),
        "all NaN": torch.full_like(a, nan),
    }
    for label, x in poisoned.items():
        call = library.prepare(x, w)
        yield {"check": "special time", "case": label, "ms": cold_ms(call.launch, 7)}


def neighbours(out: Tensor, clean: Tensor, eager: Tensor, exact: Tensor, alone: Tensor) -> dict[str, Any]:
    """Results that share a vector of four with one that is not finite are computed again with it, in plain float32.

    They may differ from what the tensor cores gave, but not be worse than eager's.
    """
    changed = (out != clean) & alone
    ours, eagers = ((x.double() - exact)[changed].norm().item() for x in (out, eager))
    return {"others_changed": int(changed.sum()), "others_error": ours, "others_error_of_eager": eagers}


def put(x: Tensor, i: int, j: int, value: float) -> Tensor:
    x[i, j] = value
    return x


FLUSH: list[Tensor] = []
WARM_UPS = 3  # the first launch loads the module, the next ones bring the clock up


def cold_ms(launch: Callable[[], Any], count: int = 15) -> float:
    """Median time with the L2 cache flushed before every run."""
    assert count >= 7, "a median of fewer runs is noise"
    if not FLUSH:
        FLUSH.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    for _ in range(WARM_UPS):
        launch()
    event: Callable[[], Any] = partial(torch.cuda.Event, enable_timing=True)
    pairs = [(event(), event()) for _ in range(count)]
    for before, after in pairs:
        FLUSH[0].zero_()
        before.record()
        launch()
        after.record()
    torch.cuda.synchronize()
    return float(sorted(before.elapsed_time(after) for before, after in pairs)[count // 2])


def compare(
    label: str, ours: dict[str, Call], eager: Callable[[], Any], floor_ms: float, count: int = 15
) -> dict[str, Any]:
    """Two interleaved rounds of everything; the better median of each."""
    everything = {**{name: call.launch for name, call in ours.items()}, "eager": eager}
    rounds = [{name: cold_ms(launch, count) for name, launch in everything.items()} for _ in range(2)]
    best = {name: round(min(r[name] for r in rounds), 5) for name in everything}
    spread = {name: round(max(r[name] for r in rounds) / best[name], 3) for name in everything}
    spoiled = [name for name, call in ours.items() if not torch.isfinite(call.out).all()]
    return {
        "check": "time", "label": label, "ms": best, "spread": spread, "spoiled": spoiled,
        "floor_ms": round(floor_ms, 5),
    }  # fmt: skip


def floor_ms(m: int, n: int, k: int, batches: int = 1, products: int = 3, size: int = 4) -> float:
    flops_ms = products * 2 * batches * m * n * k / 790e9
    return max(flops_ms, batches * (size * (m * k + n * k) + 4 * m * n) / 4.2e9)


def time_phase(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    torch.backends.cuda.matmul.allow_tf32 = False
    linear = torch.nn.functional.linear

    def plain(
        label: str, a: Tensor, w: Tensor, names: list[str], repack: bool = False, count: int = 15
    ) -> dict[str, Any]:
        batches, (m, k), n = batched(a).shape[0], a.shape[-2:], w.shape[-2]
        calls = {name: libraries(name).prepare(a, w, repack=repack) for name in names}
        return compare(label, calls, lambda: a @ w.transpose(-1, -2), floor_ms(m, n, k, batches), count)

    a, w = inputs("rand x kaiming", 1024, 8192, 8192)
    bias = torch.rand(8192, device="cuda")
    names = ["sm90 256/64", "sm90 256/64 bare", "sm90 256/32"]
    calls = {name: libraries(name).prepare(a, w, bias) for name in names}
    eager = lambda: torch.relu(linear(a, w, bias)) / 2
    yield compare("1024x8192x8192 +bias relu /2", calls, eager, floor_ms(1024, 8192, 8192))
    out = libraries("sm90 256/64")(a, w, bias)
    yield {"check": "epilogue", "error": errors(out, torch.relu(reference(a, w) + bias.double()) / 2)}
    yield plain("1024x8192x8192", a, w, ["sm90 256/64", "sm90 192/64", "sm90 128/64", "sm80 128x128"])
    yield plain("1024x8192x8192 packed each time", a, w, ["sm90 256/64"], repack=True)
    flat = ["sm90 64x256/64 split4", "sm90 64x128/64 split2"]
    yield plain("64x8192x8192", a[:64], w, ["sm90 256/64 split4", *flat])
    for m, names in {
        1: ["skinny 1", "skinny 1 rows8", "skinny 1 k8"],
        2: ["skinny 2 k8", "skinny 2 rows8"],
        4: ["skinny 4", "skinny 4 k2", "skinny 4 k8"],
        8: ["skinny 8", "skinny 8 k8"],
        16: ["skinny 16", "skinny 16 rows2"],
    }.items():
        yield plain(f"{m}x8192x8192", a[:m], w, [*names, *flat])
    yield plain("8192x8x8192", w, a[:8], ["skinny 8 columns", "sm90 128x64/64 split2"])
    for size in (4096, 8192):
        a, w = inputs("randn", size, size, size)
        yield plain(f"{size}^3", a, w, ["sm90 256/64", "sm90 192/64"], count=15 if size == 4096 else 7)
    a, w = inputs("randn", 4096, 4096, 4096)
    yield plain("4096^3 a transposed", a.t(), w, ["sm90 256/64"], repack=True)
    yield plain("4096^3 w transposed", a, w.t(), ["sm90 256/64"], repack=True)
    yield plain("4096^3 both transposed", a.t(), w.t(), ["sm90 256/64"], repack=True)
    a, w = inputs("randn", 2949, 2949, 2949)
    yield plain("2949^3", a, w, ["sm90 192/64 odd", "sm90 256/64 odd"])
    yield plain("2949^3 packed each time", a, w, ["sm90 192/64 odd"], repack=True)
    a, w = inputs("randn", 256, 256, 524288)
    yield plain("256x256x524288", a, w, ["sm90 256/64 split66", "sm90 128/64 split33"], count=9)
    yield plain("256x256x524288 packed each time", a, w, ["sm90 256/64 split66"], repack=True, count=9)
    del a, w
    for k in (16, 32, 64, 128, 256, 512):
        a, w = inputs("randn", 4096, 4096, k)
        names = ["simt 64 blocked", "simt 128"] if k <= 64 else []
        names += ["sm90 256/32"] if k >= 32 else []
        yield plain(f"4096x4096x{k}", a, w, [*names, *(["sm90 256/64"] if k >= 256 else [])])
    a, w = inputs("randn", 512, 512, 512)
    yield plain("512^3", a, w, ["sm90 128/64", "sm90 128/64 split8", "sm80 64x64", "simt 64"])
    a, w = inputs("randn", 4096, 4096, 1024)
    yield plain("4096x4096x1024 on CUDA cores", a, w, ["simt 128", "simt 64"])
    g = generator(9)
    a, w = (
        torch.randn(16, 1024, 1024, device="cuda", generator=g),
        torch.randn(16, 1024, 1024, device="cuda", generator=g),
    )
    yield plain("16 x 1024^3", a, w, ["sm90 256/64", "sm90 192/64"])
    yield plain("16 x 1024^3 packed each time", a, w, ["sm90 256/64"], repack=True)


def half_phase(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    for name in (name for name in BUILDS if name.split()[0] in ("half", "bfloat16")):
        dtype = torch.float16 if name.startswith("half") else torch.bfloat16
        library, wrong = libraries(name), []
        for m, n, k, batches in (
            (128, 256, 64, 0),
            (300, 520, 200, 0),
            (1152, 768, 1024, 0),
            (64, 8, 72, 0),
            (130, 260, 96, 3),
            (1, 4, 8, 0),
        ):
            a, w = (x.to(dtype) for x in integers(m, n, k, batches, batches))
            out = library(a, w)
            bad = int((out.double() != reference(a, w)).sum())
            if bad:
                wrong.append(f"{batches}x{m}x{n}x{k}: {bad} of {out.numel()}")
        yield {"check": "integers", "name": name, "cases": 6, "wrong": wrong}
    yield from tf32_rows(libraries)
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096), (1024, 8192, 8192), (512, 4096, 4096)):
        for dtype, names in (
            (torch.float16, ["half 256/2", "half 256/1", "half 192/2", "half 128/1"]),
            (torch.bfloat16, ["bfloat16 256/2", "bfloat16 128/2"]),
        ):
            a, w = (x.to(dtype) for x in inputs("randn", m, n, k))
            calls = {name: libraries(name).prepare(a, w, narrow=True) for name in names}
            label = f"{str(dtype).removeprefix('torch.')} {m}x{n}x{k}"
            yield compare(label, calls, partial(torch.matmul, a, w.t()), floor_ms(m, n, k, products=1, size=2))
            exact = reference(a[:256], w)
            error = {name: errors(call.out[0][:256], exact) for name, call in calls.items()}
            yield {"check": "half error", "label": label, "eager": errors(a[:256] @ w.t(), exact), "ours": error}


def tf32_rows(libraries: Callable[[str], Library]) -> Iterator[dict[str, Any]]:
    """One scaled float16 product beside PyTorch with TF32 allowed: times, and errors on benign and hostile inputs."""
    torch.backends.cuda.matmul.allow_tf32 = True
    linear, names = torch.nn.functional.linear, ["f16x1 256/2", "f16x1 128/2"]
    a, w = inputs("rand x kaiming", 1024, 8192, 8192)
    bias = torch.rand(8192, device="cuda")
    calls = {name: libraries(name).prepare(a, w, bias) for name in names}
    eager = lambda: torch.relu(linear(a, w, bias)) / 2
    yield compare("TF32 1024x8192x8192 +bias relu /2", calls, eager, floor_ms(1024, 8192, 8192, products=1))
    for kind in ("rand x kaiming", "rand x rand", "randn", "randn * 1e6", "randn * 1e-30", "spike", "wide rows"):
        a, w = inputs(kind, 1024, 4096, 8192)
        exact = reference(a, w)
        ours = {name: errors(libraries(name)(a, w), exact) for name in names[:1]}
        yield {"check": "half error", "label": f"TF32 {kind}", "eager": errors(a @ w.t(), exact), "ours": ours}
    for m, n, k in ((4096, 4096, 4096), (512, 4096, 4096)):
        a, w = inputs("randn", m, n, k)
        for repack in (False, True):
            calls = {name: libraries(name).prepare(a, w, repack=repack) for name in names}
            label = f"TF32 {m}x{n}x{k}" + (" packed each time" if repack else "")
            yield compare(label, calls, partial(torch.matmul, a, w.t()), floor_ms(m, n, k, products=1))
    torch.backends.cuda.matmul.allow_tf32 = False


RUN = {"exact": exact_phase, "errors": error_phase, "special": special_phase, "times": time_phase, "half": half_phase}


def run_phase(phase: str, folder: Path, out: Path) -> None:
    """In a process of its own: every line as soon as it is known."""
    loaded: dict[str, Library] = {}

    def libraries(name: str) -> Library:
        if name not in loaded:
            loaded[name] = Library(folder, name)
        return loaded[name]

    with out.open("a") as file:
        for line in RUN[phase](libraries):
            file.write(json.dumps({"phase": phase, **line}) + "\n")
            file.flush()


# --- the parent: builds, runs the phases, prints the table


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """What a reader wants to know first."""
    for line in lines:
        match line.get("check"):
            case "build" if line["failed"] or line["spills"]:
                yield f"BUILD {line['name']}: {line['spills']} bytes spilled {line['failed'][:300]}"
            case "integers" | "layouts" if line["wrong"]:
                yield f"WRONG {line['name']}: {'; '.join(line['wrong'][:4])}"
            case "phase" if line["code"] != 0:
                yield f"PHASE {line['name']} ended with {line['code']}: {line['tail'][-400:]}"
            case "special" if not special_is_right(line):
                counts = f"{line['class_differs']} classes, {line['others_changed']} others"
                error = f"{line['others_error']:.1e} (eager {line['others_error_of_eager']:.1e})"
                yield f"SPECIAL {line['name']}, {line['case']}: {counts} {error}, worst {line['worst_relative']:.1e}"
            case "time" if line["spoiled"]:
                yield f"SPOILED {line['label']}: {', '.join(line['spoiled'])} wrote results that are not finite"
            case "special time":
                yield f"special {line['case']:10s} {line['ms']:.3f} ms"
            case "repeats":
                yield f"100 runs equal: {line['equal']}"
    good = [line for line in lines if line.get("check") in ("integers", "layouts") and not line["wrong"]]
    yield f"{len(good)} checks of integers and layouts exact; {special_summary(lines)}"
    yield from error_rows(lines)
    yield "ms (times eager's speed, share of the floor):"
    for line in lines:
        if line.get("check") == "time":
            eager = line["ms"]["eager"]
            ours = [
                f"{name} {ms:.4f} ({eager / ms:.2f}x, {100 * line['floor_ms'] / ms:.0f}%)"
                for name, ms in line["ms"].items()
                if name != "eager"
            ]
            yield f"  {line['label']:34s} eager {eager:.4f}  " + "  ".join(ours)


def special_is_right(line: dict[str, Any]) -> bool:
    """Inf and NaN where eager has them, and no other result worse than eager's."""
    neighbours_fine = line["others_error"] <= line["others_error_of_eager"]
    return bool(line["class_differs"] == 0 and neighbours_fine and line["worst_relative"] < 1e-2)


def special_summary(lines: list[dict[str, Any]]) -> str:
    special = [line for line in lines if line.get("check") == "special"]
    right = sum(map(special_is_right, special))
    ratios = [line["others_error"] / line["others_error_of_eager"] for line in special if line["others_changed"]]
    neighbours_error = f"neighbours of Inf have at most {max(ratios, default=0):.2f} of eager's error"
    return f"{right} of {len(special)} special cases OK; {neighbours_error}"


def error_rows(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Ratios of rms errors; a worst element that is worse than eager's by more than a half is shown too."""
    yield "rms error over eager's (k: rand x kaiming, rand x rand, randn):"
    by_k: dict[int, dict[str, list[str]]] = {}
    for line in lines:
        shown = {name: shown_ratio(error, line["eager"]) for name, error in line.get("ours", {}).items()}
        if line.get("check") == "k" and line["kind"] != "the linear layer":
            for name, text in shown.items():
                by_k.setdefault(line["k"], {}).setdefault(name, []).append(text)
    for k, columns in by_k.items():
        yield f"  {k:6d}  " + "; ".join(f"{name} {' '.join(texts)}" for name, texts in columns.items())
    for line in lines:
        if line.get("check") in ("hostile", "half error") or line.get("kind") == "the linear layer":
            shown = {name: shown_ratio(error, line["eager"]) for name, error in line["ours"].items()}
            yield f"  {line.get('label') or line['kind']:24s} " + "; ".join(f"{n} {text}" for n, text in shown.items())


def shown_ratio(ours: list[float], eager: list[float]) -> str:
    worse = not ours[1] <= 1.5 * eager[1]
    return ratio(ours[0], eager[0]) + (f" (worst {ratio(ours[1], eager[1])})" if worse else "")


def ratio(a: float, b: float) -> str:
    return f"{a / b:.2f}" if b > 0 else f"{a:.1e}!"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines go here")
    parser.add_argument("--only", nargs="+", choices=list(PHASES), default=list(PHASES))
    parser.add_argument("--keep", type=Path, help="build here and reuse what is there")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--phase", choices=list(PHASES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        run_phase(options.phase, options.keep, options.out)
        return 0
    start = time.perf_counter()
    options.out.write_text(json.dumps(environment()) + "\n")
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        lines += [{"check": "build", **line} for line in build_all(folder)]
        print(f"built {len(lines)} libraries in {time.perf_counter() - start:.0f} s", flush=True)
        for phase in [] if options.build_only else options.only:
            lines.append(run_in_child(phase, folder, options.out))
            print(f"{phase}: {lines[-1]['seconds']:.0f} s, exit {lines[-1]['code']}", flush=True)
    measured = [json.loads(line) for line in options.out.read_text().splitlines()]
    with options.out.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for row in table([*lines, *measured]):
        print(row)
    print(f"{time.perf_counter() - start:.0f} s in all")
    return 0 if all(line.get("code", 0) == 0 and not line.get("failed") for line in lines) else 1


def environment() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "check": "environment",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
        "command": "python benchmarks/gemm_templates.py",
    }


def run_in_child(phase: str, folder: Path, out: Path) -> dict[str, Any]:
    start = time.perf_counter()
    command = [sys.executable, __file__, "--phase", phase, "--keep", str(folder), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PHASES[phase], check=False)
        code, tail = done.returncode, (done.stdout + done.stderr)[-2000:]
    except subprocess.TimeoutExpired:
        code, tail = -1, f"stopped after {PHASES[phase]} s"
    return {
        "check": "phase",
        "name": phase,
        "code": code,
        "seconds": round(time.perf_counter() - start, 1),
        "tail": tail,
    }


if __name__ == "__main__":
    sys.exit(main())
