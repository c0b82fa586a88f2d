"""A GPU or CPU as data: `resolve("h200")` gives its sizes and ceilings, whether or not one is here.

Ceilings are what a good kernel reaches, not what the datasheet prints: on the H200 a copy moves 4.2 of 4.8 TB/s
and a float16 matmul of random data runs at 790 of 989 TFLOP/s. `basis` says where a device's ceilings come from:

    measured    on the device itself
    datasheet   the vendor's figures, times the fractions measured on the H200
    derived     from what the driver or the system reports, times typical rates for the architecture
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from kernelwright.errors import EnvironmentProblem, UsageError

__all__ = ["Device", "Peaks", "describe_gpu", "known_gpus", "read_cpu", "resolve"]

Kind = Literal["cuda", "cpu"]
Basis = Literal["measured", "datasheet", "derived"]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Reachable TFLOP/s of a matmul, by arithmetic; float32 is IEEE, sums are float32 or wider."""

    float32: float
    tf32: float
    float16: float
    bfloat16: float
    float64: float


@dataclass(frozen=True, slots=True)
class Device:
    """What a planner, a template or a tuner needs to know of a device.

    arch                   "sm_90a", "sm_80", ...; "native" for the CPU
    multiprocessors        SMs of a GPU, physical cores of a CPU that this process may use
    max_threads_per_block  a CPU has none of the next five: 1 thread to a block, no shared memory, no register file
    smem_per_block_bytes   shared memory a block may opt in to
    l1_bytes               of one SM (carved from the same memory as shared memory) or one core
    l2_bytes               of the whole GPU, or of one core
    l3_bytes               0 on a GPU
    copy_gbps              bytes read plus bytes written in a second of a large copy, in 1e9
    vector_bytes           the widest load of one thread
    index                  its number in torch, None if it is not here
    """

    name: str
    kind: Kind
    arch: str
    multiprocessors: int
    max_threads_per_block: int
    max_threads_per_multiprocessor: int
    smem_per_block_bytes: int
    smem_per_multiprocessor_bytes: int
    registers_per_multiprocessor: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    copy_gbps: float
    peaks: Peaks
    vector_bytes: int
    basis: Basis
    present: bool
    index: int | None

    @property
    def capability(self) -> tuple[int, int]:
        """(9, 0) for sm_90a; (0, 0) for a CPU."""
        return capability_of(self.arch)

    @property
    def torch_name(self) -> str:
        """The name torch knows it by: "cuda:0", "cpu". A GPU that is not here is plain "cuda"."""
        return self.kind if self.kind == "cpu" or self.index is None else f"{self.kind}:{self.index}"


def resolve(spec: str) -> Device:
    """The device that `auto`, `cpu`, `cuda`, `cuda:N` or a GPU's name means on this machine."""
    wanted = spec.strip().lower().replace(" ", "").replace("_", "-")
    match wanted.partition(":"):
        case ("auto", "", ""):
            usable = [gpu for gpu in _present_gpus() if gpu.capability >= OLDEST_CAPABILITY]
            return usable[0] if usable else read_cpu()
        case ("cpu", "", ""):
            return read_cpu()
        case ("cuda", _, index) if index.isdecimal() or wanted == "cuda":
            return _gpu_number(int(index or 0), spec)
    if wanted in GPUS:
        return _named_gpu(wanted)
    raise UsageError(
        f"{spec!r} is not a device kernelwright knows.",
        where="--device",
        cure=f"Use auto, cpu, cuda, cuda:N or one of {', '.join(known_gpus())}.",
    )


def known_gpus() -> tuple[str, ...]:
    """The names `resolve` takes with no GPU present."""
    return tuple(GPUS)


def capability_of(arch: str) -> tuple[int, int]:
    """(9, 0) for "sm_90a", (12, 0) for "sm_120"; (0, 0) for "native"."""
    digits = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    return (int(digits[1]), int(digits[2])) if digits else (0, 0)


# --- GPUs: tables

OLDEST_CAPABILITY = (8, 0)  # the templates use cp.async and mma.sync on bfloat16, which begin with Ampere

# What the H200 reaches of its datasheet, applied to GPUs we have not measured. Matmuls are held back by power.
REACHED_OF_BANDWIDTH = 0.87
REACHED_OF_MATMUL = 0.78


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a compute capability fixes; `flops` are per SM and clock, a fused multiply-add counted as two."""

    arch: str
    max_threads_per_multiprocessor: int
    smem_per_block_bytes: int
    smem_per_multiprocessor_bytes: int
    l1_bytes: int
    float32_flops: int
    tf32_flops: int
    half_flops: int
    float64_flops: int


KIB = 1024
MIB = 1024 * 1024

# CUDA C++ Programming Guide, "Compute Capabilities", and the architecture white papers. The "a" variants
# are needed for wgmma, setmaxnreg and tcgen05; they run on that capability and no other.
ARCHITECTURES: dict[tuple[int, int], Architecture] = {
    (7, 0): Architecture("sm_70", 2048, 96 * KIB, 96 * KIB, 128 * KIB, 128, 0, 1024, 64),
    (7, 5): Architecture("sm_75", 1024, 64 * KIB, 64 * KIB, 96 * KIB, 128, 0, 512, 4),
    (8, 0): Architecture("sm_80", 2048, 163 * KIB, 164 * KIB, 192 * KIB, 128, 1024, 2048, 128),
    (8, 6): Architecture("sm_86", 1536, 99 * KIB, 100 * KIB, 128 * KIB, 256, 256, 512, 4),
    (8, 9): Architecture("sm_89", 1536, 99 * KIB, 100 * KIB, 128 * KIB, 256, 256, 512, 4),
    (9, 0): Architecture("sm_90a", 2048, 227 * KIB, 228 * KIB, 256 * KIB, 256, 2048, 4096, 256),
    (10, 0): Architecture("sm_100a", 2048, 227 * KIB, 228 * KIB, 256 * KIB, 256, 4096, 8192, 128),
    (10, 3): Architecture("sm_103a", 2048, 227 * KIB, 228 * KIB, 256 * KIB, 256, 4096, 8192, 4),
    (12, 0): Architecture("sm_120a", 1536, 99 * KIB, 100 * KIB, 128 * KIB, 256, 256, 512, 4),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A product: what its datasheet says, and `measured` ceilings where we have had one under our hands."""

    name: str  # as the driver says it, up to the memory size or the form factor
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    memory_gbps: float
    peaks: Peaks
    measured: bool = False


# memory GB/s, then dense TFLOP/s (float32, TF32, float16, bfloat16, float64; float32 sums), without sparsity.
GPUS: dict[str, Gpu] = {
    # Measured: copy 4.18-4.3 TB/s; cuBLAS float32 49-50, TF32 353-382; 788 TFLOP/s of float16 products of random data.
    # float64 is the datasheet's.
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 50 * MIB, 4200, Peaks(50, 382, 790, 790, 60), measured=True),
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 126 * MIB, 8000, Peaks(75, 1100, 2250, 2250, 37)),
    "gh200": Gpu("NVIDIA GH200", (9, 0), 132, 50 * MIB, 4000, Peaks(67, 495, 989, 989, 67)),
    "h100": Gpu("NVIDIA H100", (9, 0), 132, 50 * MIB, 3350, Peaks(67, 495, 989, 989, 67)),
    "h100-pcie": Gpu("NVIDIA H100 PCIe", (9, 0), 114, 50 * MIB, 2000, Peaks(51, 378, 756, 756, 51)),
    "h20": Gpu("NVIDIA H20", (9, 0), 78, 60 * MIB, 4000, Peaks(44, 74, 148, 148, 1)),
    "a100": Gpu("NVIDIA A100", (8, 0), 108, 40 * MIB, 2039, Peaks(19.5, 156, 312, 312, 19.5)),
    "a100-40gb": Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 108, 40 * MIB, 1555, Peaks(19.5, 156, 312, 312, 19.5)),
    "l40s": Gpu("NVIDIA L40S", (8, 9), 142, 96 * MIB, 864, Peaks(91.6, 183, 362, 362, 1.4)),
    "l40": Gpu("NVIDIA L40", (8, 9), 142, 96 * MIB, 864, Peaks(90.5, 90.5, 181, 181, 1.4)),
    "l4": Gpu("NVIDIA L4", (8, 9), 58, 48 * MIB, 300, Peaks(30.3, 60, 121, 121, 0.47)),
    "a6000": Gpu("NVIDIA RTX A6000", (8, 6), 84, 6 * MIB, 768, Peaks(38.7, 77.4, 154.8, 154.8, 0.6)),
    "a40": Gpu("NVIDIA A40", (8, 6), 84, 6 * MIB, 696, Peaks(37.4, 74.8, 149.7, 149.7, 0.58)),
    "a10": Gpu("NVIDIA A10", (8, 6), 72, 6 * MIB, 600, Peaks(31.2, 62.5, 125, 125, 0.49)),
    "rtx5090": Gpu("NVIDIA GeForce RTX 5090", (12, 0), 170, 96 * MIB, 1792, Peaks(104.8, 104.8, 209.5, 209.5, 1.6)),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 72 * MIB, 1008, Peaks(82.6, 82.6, 165.2, 165.2, 1.3)),
    "rtx3090": Gpu("NVIDIA GeForce RTX 3090", (8, 6), 82, 6 * MIB, 936, Peaks(35.6, 35.6, 71, 71, 0.56)),
}

# --- GPUs: from a table row or from the driver to a Device


class GpuProperties(Protocol):
    """The part of torch.cuda.get_device_properties(i) that every supported PyTorch has."""

    name: str
    major: int
    minor: int
    multi_processor_count: int


def _named_gpu(key: str) -> Device:
    """The GPU of that name if one is in this machine, else the table's row, marked as not present."""
    described = _from_table(GPUS[key])
    return next((gpu for gpu in _present_gpus() if gpu.name == described.name), described)


def _gpu_number(index: int, spec: str) -> Device:
    present = _present_gpus()
    if not present:
        raise EnvironmentProblem(
            f"{spec!r} needs an NVIDIA GPU and {_why_no_gpu()}.",
            where="--device",
            cure="Use --device cpu, or name a GPU (--device h200) to plan and compile for it without running.",
        )
    if index >= len(present):
        raise EnvironmentProblem(
            f"{spec!r} does not exist: torch sees {len(present)} GPU(s), numbered from 0.",
            where="--device",
            cure=f"Use cuda:0 to cuda:{len(present) - 1}, or check CUDA_VISIBLE_DEVICES.",
        )
    gpu = present[index]
    if gpu.capability < OLDEST_CAPABILITY:
        raise EnvironmentProblem(
            f"{gpu.name} is {gpu.arch}; kernelwright's kernels need sm_80 (Ampere) or newer.",
            where="--device",
            cure="Use --device cpu.",
        )
    return gpu


def _present_gpus() -> tuple[Device, ...]:
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(describe_gpu(torch.cuda.get_device_properties(i), index=i) for i in range(torch.cuda.device_count()))


def _why_no_gpu() -> str:
    import torch

    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is a build without CUDA"
    return f"torch {torch.__version__} finds none (is the driver loaded, is CUDA_VISIBLE_DEVICES set?)"


def _from_table(gpu: Gpu) -> Device:
    architecture = ARCHITECTURES[gpu.capability]
    return Device(
        name=gpu.name,
        kind="cuda",
        arch=architecture.arch,
        multiprocessors=gpu.multiprocessors,
        max_threads_per_block=1024,
        max_threads_per_multiprocessor=architecture.max_threads_per_multiprocessor,
        smem_per_block_bytes=architecture.smem_per_block_bytes,
        smem_per_multiprocessor_bytes=architecture.smem_per_multiprocessor_bytes,
        registers_per_multiprocessor=65536,
        l1_bytes=architecture.l1_bytes,
        l2_bytes=gpu.l2_bytes,
        l3_bytes=0,
        copy_gbps=gpu.memory_gbps if gpu.measured else gpu.memory_gbps * REACHED_OF_BANDWIDTH,
        peaks=gpu.peaks if gpu.measured else _scaled(gpu.peaks, REACHED_OF_MATMUL),
        vector_bytes=16,
        basis="measured" if gpu.measured else "datasheet",
        present=False,
        index=None,
    )


def describe_gpu(properties: GpuProperties, *, index: int) -> Device:
    """The Device for a GPU that is here: sizes from the driver, ceilings from the table if it is a known product."""
    known = _known_product(properties.name)
    base = _from_table(known) if known else _from_table(_derived_gpu(properties))
    capability = (properties.major, properties.minor)
    described = replace(
        base,
        # A cubin for another architecture does not load, so one the table does not know goes by its own number.
        arch=ARCHITECTURES[capability].arch if capability in ARCHITECTURES else "sm_{}{}".format(*capability),
        multiprocessors=properties.multi_processor_count,
        smem_per_block_bytes=getattr(properties, "shared_memory_per_block_optin", base.smem_per_block_bytes),
        smem_per_multiprocessor_bytes=getattr(
            properties, "shared_memory_per_multiprocessor", base.smem_per_multiprocessor_bytes
        ),
        max_threads_per_multiprocessor=getattr(
            properties, "max_threads_per_multi_processor", base.max_threads_per_multiprocessor
        ),
        registers_per_multiprocessor=getattr(properties, "regs_per_multiprocessor", base.registers_per_multiprocessor),
        l2_bytes=getattr(properties, "L2_cache_size", base.l2_bytes),
        basis=base.basis if known else "derived",
        present=True,
        index=index,
    )
    return (
        _slice_of(described, base, properties.name) if described.multiprocessors < base.multiprocessors else described
    )


def _slice_of(part: Device, whole: Device, name: str) -> Device:
    """A part of a GPU (MIG, or a product with fewer SMs) under its own name, with its share of the ceilings."""
    share = part.multiprocessors / whole.multiprocessors
    return replace(
        part, name=name, copy_gbps=whole.copy_gbps * share, peaks=_scaled(whole.peaks, share), basis="derived"
    )


def _known_product(driver_name: str) -> Gpu | None:
    """The row whose name begins the driver's name; the longest such, so an H100 PCIe is not taken for an H100 SXM."""
    rows = [gpu for gpu in GPUS.values() if re.match(re.escape(gpu.name) + r"(?![0-9A-Za-z])", driver_name)]
    return max(rows, key=lambda gpu: len(gpu.name), default=None)


def _derived_gpu(properties: GpuProperties) -> Gpu:
    """An unknown product, from what the driver tells and what its architecture usually reaches."""
    capability = _nearest_capability((properties.major, properties.minor))
    architecture = ARCHITECTURES[capability]
    # clock_rate, memory_clock_rate (kHz) and memory_bus_width (bits) are not in every PyTorch.
    clock_ghz = getattr(properties, "clock_rate", 1_500_000) / 1e6
    memory_khz, bus_bits = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
    double_data_rate = 2
    memory_gbps = double_data_rate * memory_khz * 1e3 * bus_bits / 8 / 1e9 or 500.0
    tflops_per_rate = properties.multi_processor_count * clock_ghz / 1e3
    half = architecture.half_flops * tflops_per_rate
    return Gpu(
        name=properties.name,
        capability=capability,
        multiprocessors=properties.multi_processor_count,
        l2_bytes=4 * MIB,
        memory_gbps=memory_gbps,
        peaks=Peaks(
            float32=architecture.float32_flops * tflops_per_rate,
            tf32=architecture.tf32_flops * tflops_per_rate,
            float16=half,
            bfloat16=half,
            float64=architecture.float64_flops * tflops_per_rate,
        ),
    )


def _nearest_capability(capability: tuple[int, int]) -> tuple[int, int]:
    """Itself if the table has it, else the newest one before it."""
    return max((known for known in ARCHITECTURES if known <= capability), default=min(ARCHITECTURES))


def _scaled(peaks: Peaks, share: float) -> Peaks:
    return Peaks(
        float32=peaks.float32 * share,
        tf32=peaks.tf32 * share,
        float16=peaks.float16 * share,
        bfloat16=peaks.bfloat16 * share,
        float64=peaks.float64 * share,
    )


# --- the CPU

# Typical figures, used because a measured one would make the same model give different kernels from run to run.
NOMINAL_GHZ = 2.5
COPY_GBPS_PER_CORE = 12.0
COPY_GBPS_LIMIT = 200.0
FMA_PIPES = 2

# The widest vector register an instruction set gives, widest first; the names are those of /proc/cpuinfo.
VECTOR_BYTES: tuple[tuple[str, int], ...] = (("avx512f", 64), ("avx2", 32), ("avx", 32), ("sse2", 16), ("asimd", 16))


def read_cpu(root: Path = Path("/")) -> Device:
    """This machine's CPU, from /proc and /sys below `root`; typical values for what is not told there."""
    cpus = _usable_cpus()
    records = _cpuinfo(root / "proc/cpuinfo")
    flags = _cpu_flags(records)
    cores = _physical_cores(records, cpus)
    vector_bytes = next((width for flag, width in VECTOR_BYTES if flag in flags), 16)
    caches = _caches(root / "sys/devices/system/cpu" / f"cpu{min(cpus)}" / "cache")
    float32 = cores * NOMINAL_GHZ * FMA_PIPES * 2 * (vector_bytes / 4) / 1e3
    return Device(
        name=_cpu_name(records),
        kind="cpu",
        arch="native",
        multiprocessors=cores,
        max_threads_per_block=1,
        max_threads_per_multiprocessor=max(1, len(cpus) // cores),
        smem_per_block_bytes=0,
        smem_per_multiprocessor_bytes=0,
        registers_per_multiprocessor=0,
        l1_bytes=caches.get(1, 32 * KIB),
        l2_bytes=caches.get(2, 512 * KIB),
        l3_bytes=caches.get(3, 0),
        copy_gbps=min(COPY_GBPS_LIMIT, COPY_GBPS_PER_CORE * cores),
        # Half types are widened to float32, so they run at its rate.
        peaks=Peaks(float32, tf32=float32, float16=float32, bfloat16=float32, float64=float32 / 2),
        vector_bytes=vector_bytes,
        basis="derived",
        present=True,
        index=None,
    )


def _usable_cpus() -> frozenset[int]:
    """Logical CPUs this process may run on: fewer than the machine has in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _cpuinfo(path: Path) -> list[dict[str, str]]:
    """One dict for each logical CPU; empty where there is no such file (macOS, Windows)."""
    if not path.is_file():
        return []
    blocks = path.read_text(errors="replace").strip().split("\n\n")
    split = ([line.partition(":") for line in block.splitlines()] for block in blocks)
    return [{key.strip(): value.strip() for key, _, value in lines} for lines in split]


def _cpu_flags(records: Sequence[dict[str, str]]) -> frozenset[str]:
    """`flags` on x86, `Features` on Arm."""
    first = records[0] if records else {}
    return frozenset((first.get("flags") or first.get("Features") or "").split())


def _cpu_name(records: Sequence[dict[str, str]]) -> str:
    """`model name` on x86; Arm gives only part numbers."""
    first = records[0] if records else {}
    part = first.get("CPU part")
    return first.get("model name") or (f"Arm CPU part {part}" if part else "CPU")


def _physical_cores(records: Sequence[dict[str, str]], cpus: frozenset[int]) -> int:
    """Cores behind the logical CPUs: two hardware threads of a core share its vector units."""
    cores = {
        (record.get("physical id"), record["core id"])
        for record in records
        if "core id" in record and record.get("processor", "").isdecimal() and int(record["processor"]) in cpus
    }
    return len(cores) or max(1, len(cpus))


def _caches(folder: Path) -> dict[int, int]:
    """Level to bytes, data and unified caches only."""
    found = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = (_first_line(index / name) for name in ("level", "type", "size"))
        if kind in ("Data", "Unified") and level.isdecimal() and (digits := re.fullmatch(r"(\d+)([KM]?)", size)):
            found[int(level)] = int(digits[1]) * {"": 1, "K": KIB, "M": MIB}[digits[2]]
    return found


def _first_line(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""
