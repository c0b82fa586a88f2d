"""One kernel and several configs come in; the median time of each, measured here and now, goes out."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelwright.build import (
    build_all,
    build_cpu_library,
    build_cuda_library,
    compile_cubin,
    library_resources,
    load_cpu_library,
)
from kernelwright.build.cubin import Cubin
from kernelwright.device import Device
from kernelwright.errors import BuildError
from kernelwright.generate.generate import headers_of, launch_of, program_text, source_of
from kernelwright.generate.literals import camel
from kernelwright.generate.pointwise import template_of
from kernelwright.generate.program import Launch, Source
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.pointwise import LAUNCH_US, Config, TileConfig, Work
from kernelwright.kernels.template import inline_with_templates
from kernelwright.plan import Buffer, Convolution, Kernel, Product
from kernelwright.settings import Settings
from kernelwright.tune.conv_library import adds_bias_itself
from kernelwright.tune.gate import is_right

WARM_UPS = 2
# A config is timed until this long has been spent on it, in rounds with the others; others disturb a CPU more.
ENOUGH_S = {"cuda": 0.02, "cpu": 0.1}
MOST_ROUNDS = 25
FEWEST_ROUNDS = {"cuda": 3, "cpu": 5}

# A config this much slower than the best after the first rounds is not timed further.
HOPELESS = 1.3


# What stands for the times of one config. What else a CPU does only ever adds to them: the least is the kernel's own.
TYPICAL: Mapping[str, Callable[[Sequence[float]], float]] = {"cuda": statistics.median, "cpu": min}


@dataclass(frozen=True, slots=True)
class Trial:
    """A config and its time: the median of several, on a CPU the least."""

    choice: Choice
    median_us: float


def measure(kernel: Kernel, choices: Sequence[Choice], device: Device, settings: Settings) -> list[Trial]:
    """Every config that builds, on random data, in interleaved rounds, so that drift hits all alike."""
    sources = [source_of(kernel, choice) for choice in choices]
    if device.kind == "cuda" and not all(isinstance(choice, (Config, TileConfig)) for choice in choices):
        return rounds(choices, product_runs(kernel, choices, device, settings), device)
    launch = launch_of("run", [kernel], {kernel.name: choices[0]})
    pointers = tensors_of(launch.pointers, device)
    if device.kind == "cuda":
        return rounds(choices, cuda_runs(sources, pointers, device, settings), device)
    return rounds(choices, cpu_runs(sources, pointers, settings), device)


def rounds(choices: Sequence[Choice], runs: Sequence[Callable[[], None] | None], device: Device) -> list[Trial]:
    clock, typical = clock_of(device), TYPICAL[device.kind]
    fewest, enough_us = FEWEST_ROUNDS[device.kind], ENOUGH_S[device.kind] * 1e6
    alive = {i: run for i, run in enumerate(runs) if run is not None}
    times: dict[int, list[float]] = {i: [] for i in alive}
    for run in alive.values():
        for _ in range(WARM_UPS):
            run()
    for number in range(MOST_ROUNDS):
        for i, run in alive.items():
            times[i].append(clock(run))
        if number + 1 == fewest:
            best = min(typical(t) for t in times.values()) if times else 0.0
            alive = {i: run for i, run in alive.items() if typical(times[i]) <= HOPELESS * best}
        if number + 1 >= fewest and all(sum(times[i]) >= enough_us for i in alive):
            break
    return [Trial(choices[i], typical(t)) for i, t in times.items() if t]


def cpu_clock() -> Callable[[Callable[[], None]], float]:
    """Wall-clock time; of one thread alone the time that it ran, whatever others do at the same time."""
    import torch

    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def clock(run: Callable[[], None]) -> float:
        begin = now()
        run()
        return (now() - begin) * 1e6

    return clock


def clock_of(device: Device) -> Callable[[Callable[[], None]], float]:
    return cuda_clock(device) if device.kind == "cuda" else cpu_clock()


def cuda_clock(device: Device) -> Callable[[Callable[[], None]], float]:
    import torch

    def clock(run: Callable[[], None]) -> float:
        with torch.cuda.device(device.torch_name):
            begin: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            run()
            end.record()
            end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    return clock


def tensors_of(buffers: Sequence[Buffer], device: Device) -> dict[str, Any]:
    """A tensor for each buffer, random where it is read: zeros would draw less power and run faster than real data."""
    import torch

    tensors: dict[str, torch.Tensor] = {}
    # Configs may want scratch memory of one name and different sizes: the largest serves all.
    for buffer in {buffer.name: buffer for buffer in sorted(buffers, key=lambda buffer: buffer.nbytes)}.values():
        extent = 1 + sum((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True))
        tensors[buffer.name] = random_tensor(extent, buffer, device.torch_name)
    return tensors


def random_tensor(extent: int, buffer: Buffer, device: str) -> Any:
    import torch

    dtype = buffer.dtype.to_torch()
    if buffer.dtype.kind == "float":
        tensor = torch.empty(extent, dtype=dtype, device=device)
        return tensor.uniform_(-1.0, 1.0)
    return torch.randint(0, 2, (extent,), dtype=torch.int32, device=device).to(dtype)


def cpu_runs(sources: Sequence[Source], tensors: dict[str, Any], settings: Settings) -> list[Callable[[], None] | None]:
    """Each config in a library of its own, built in parallel."""
    texts = []
    pointers: tuple[Buffer, ...] = ()
    for source in sources:
        launch = launch_of("run", [source.kernel], {source.kernel.name: source.choice})
        texts.append(program_text([launch], "cpu"))
        pointers = launch.pointers
    built = build_all([partial(build_cpu_library, text, settings) for text in texts], settings)
    arguments = [ctypes.c_void_p(tensors[buffer.name].data_ptr()) for buffer in pointers]
    return [None if isinstance(b, BuildError) else partial(load_cpu_library(b).run, *arguments) for b in built]


def cuda_runs(
    sources: Sequence[Source], tensors: dict[str, Any], device: Device, settings: Settings
) -> list[Callable[[], None] | None]:
    """Each config compiled to machine code by NVRTC and launched through the driver."""
    built = build_all([partial(compile_cubin, cubin_text(s), device.arch, settings) for s in sources], settings)
    return [
        None if isinstance(b, BuildError) or spills(b) else driver_launch(b, source, tensors, device)
        for b, source in zip(built, sources, strict=True)
    ]


def product_runs(
    kernel: Kernel, choices: Sequence[Choice], device: Device, settings: Settings
) -> list[Callable[[], None] | None]:
    """Each config of what launches itself (products, reductions) in a library of its own, its weight packed once."""
    launches = [launch_of("run", [kernel], {kernel.name: choice}) for choice in choices]
    texts = [program_text([launch], "cuda") for launch in launches]
    built = build_all([partial(build_cuda_library, text, device.arch, settings) for text in texts], settings)
    buffers = [b for launch in launches for b in with_sources(launch.pointers) if b.packed_from is None]
    tensors = tensors_of(buffers, device)
    runs: list[Callable[[], None] | None] = []
    for library, launch in zip(built, launches, strict=True):
        ok = not isinstance(library, BuildError) and not any(r.spills for r in library_resources(library))
        # A weight packed for one template is noise to another, and noise has infinities, which take their own time.
        packed = tensors_of([b for b in launch.pointers if b.packed_from is not None], device) if ok else {}
        runs.append(product_run(ctypes.CDLL(str(library)), launch, tensors | packed, device) if ok else None)
    if isinstance(kernel.core, Convolution):
        return [run if run is not None and is_right(kernel, run, tensors) else None for run in runs]
    return runs


def with_sources(buffers: Sequence[Buffer]) -> list[Buffer]:
    return [b for buffer in buffers for b in (buffer, buffer.packed_from) if b is not None]


def product_run(library: ctypes.CDLL, launch: Launch, tensors: dict[str, Any], device: Device) -> Callable[[], None]:
    import torch

    def address(buffer: Buffer, offset: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensors[buffer.name].data_ptr() + offset * buffer.dtype.itemsize)

    def stream() -> ctypes.c_void_p:
        return ctypes.c_void_p(torch.cuda.current_stream(device.torch_name).cuda_stream)

    for buffer in launch.pointers:
        if buffer.packed_from is not None:
            weight = address(buffer.packed_from, buffer.packed_offset)
            check(getattr(library, buffer.packed_by)(weight, address(buffer), stream()), "packing")
    addresses = [address(buffer) for buffer in launch.pointers]

    def run() -> None:
        check(library.run(*addresses, device.index or 0, stream()), launch.sources[0].kernel.name)
        _ = tensors  # the addresses are theirs, so they live as long as this function

    return run


def library_us(kernel: Kernel, device: Device) -> float:
    """PyTorch's time for the product alone, and the bytes of the passes before and after it."""
    import torch

    core = kernel.core
    assert isinstance(core, Product)
    contract = core.node
    dtype = contract.a.dtype.to_torch()
    a = torch.randn(contract.a.shape, device=device.torch_name).to(dtype)
    b = torch.randn(contract.b.shape, device=device.torch_name).to(dtype)
    clock = clock_of(device)
    a_labels, b_labels, result = contract.labels
    is_linear = len(b_labels) == 2 and a_labels[-1] == b_labels[1] and result == a_labels[:-1] + b_labels[0]

    def run() -> None:
        if is_linear:  # einsum takes longer to decide what to call than a small product takes
            torch.nn.functional.linear(a, b)
        else:
            torch.einsum(contract.equation, a, b)

    with torch.no_grad():
        for _ in range(WARM_UPS):
            run()
        samples = [clock(run) for _ in range(5)]
    return TYPICAL[device.kind](samples) + passes_before_us(core, device) + pass_after_us(kernel, device)


def passes_before_us(core: Product, device: Device) -> float:
    """The kernels that would compute its operands."""
    sides = ((core.of_a, core.a), (core.of_w, core.w))
    moved = [2 * x.layout.touched_bytes + made.bytes_moved for made, x in sides if made is not None]
    return sum(LAUNCH_US + size / device.copy_gbps / 1e3 for size in moved)


def pass_after_us(kernel: Kernel, device: Device) -> float:
    """The kernel that would follow if the library made the product: it reads that too. A bias the library adds, after
    most convolutions of a GPU in such a pass of its own."""
    region, given = kernel.region, kernel.region.given
    steps = [node.fn for node in region.maps if node.fn != "cast"]
    channel = 1 if isinstance(kernel.core, Convolution) else len(region.shape) - 1
    along = [sum(s != 0 for i, s in enumerate(layout.strides) if i != channel) for _, layout in region.loads]
    free = not isinstance(kernel.core, Convolution) or adds_bias_itself(kernel.core, device)
    biased = free and steps == ["add"] and not any(along)
    if given is None or ((not steps or biased) and not region.axes):
        return 0.0
    return LAUNCH_US + (region.bytes_moved + given.nbytes) / device.copy_gbps / 1e3


def spills(cubin: Cubin) -> bool:
    """A config that spills registers is never the best, and never shipped."""
    return any(kernel.spills for kernel in cubin.kernels)


def cubin_text(source: Source) -> str:
    """The kernel without its host side, under the name `tuned`."""
    block = f"{source.template}_block"
    body = camel(source.kernel.name)
    assert isinstance(source.choice, (Config, TileConfig)), "products and CPU kernels are not tuned as cubins"
    _, parameters = template_of(source.choice)
    head = inline_with_templates({*source.needs, block} - {"OnDevice", source.template}, headers_of("cuda"), "cuda")
    signature = f'extern "C" __global__ void __launch_bounds__({threads_of(source.choice)}) tuned({body}::Args args)'
    return f"{head}\n{source.struct}\n{signature} {{ kw::{block}<{body}, {parameters}>(args); }}\n"


def threads_of(choice: Choice) -> int:
    assert isinstance(choice, (Config, TileConfig)), "a CPU has no blocks"
    return choice.threads


def blocks_of(source: Source) -> int:
    """The blocks that the template's own launch would take."""
    work, choice = source.work, source.choice
    assert isinstance(work, Work), "a product launches itself"
    if isinstance(choice, TileConfig):
        return work.rows * -(-work.depth // choice.levels) * -(-work.columns // choice.columns)
    assert isinstance(choice, Config)
    return max(1, -(-work.rows * (work.columns // choice.lanes) // (choice.threads * choice.vectors)))


def driver_launch(cubin: Cubin, source: Source, tensors: dict[str, Any], device: Device) -> Callable[[], None]:
    """A call that launches the kernel on torch's current stream."""
    import torch

    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device=device.torch_name)  # the driver's functions need torch's context to be current
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuModuleLoadData(ctypes.byref(module), cubin.image), "cuModuleLoadData")
    check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"tuned"), "cuModuleGetFunction")
    names = [b.name for b in launch_of("run", [source.kernel], {source.kernel.name: source.choice}).pointers]
    packed = (ctypes.c_void_p * len(names))(*(tensors[name].data_ptr() for name in names))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
    blocks, threads = blocks_of(source), threads_of(source.choice)

    def run() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream(device.torch_name).cuda_stream)
        code = driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, None)
        check(code, "cuLaunchKernel")
        _ = packed  # the launch reads it, so it lives as long as this function

    return run


def check(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call} failed with CUDA driver error {code} while tuning")
