"""A `Plan`, a choice for each kernel and a device come in; a `Program` goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kernelwright.device import Device
from kernelwright.generate.gemm import gemm_of, gemm_source, packed_buffer, workspace_buffer
from kernelwright.generate.grid import grid_of, work_of
from kernelwright.generate.literals import identifier
from kernelwright.generate.pointwise import pointwise_source
from kernelwright.generate.program import Launch, Program, ProgramStep, Source
from kernelwright.ir.scalars import SCALARS
from kernelwright.kernels import gemm_sm90, pointwise
from kernelwright.kernels.choices import Choice, GemmConfig
from kernelwright.kernels.template import inline_with_templates
from kernelwright.plan import Buffer, Kernel, Plan

Choices = Mapping[str, Choice]

# The files that templates are in; only the parts that a program uses are in its text.
TEMPLATES = {
    "cuda": ("launch", "pointwise", "pointwise_tiles", "ptx90", "split", "gemm_epilogue", "gemm_sm90"),
    "cpu": ("pointwise",),
}

# The widest tile leaves few registers: a sigmoid or gelu after it spills (seen by compiling), sums and relu do not.
WIDEST_TILE = 256
HEAVY_EPILOGUE_FLOPS = 20

CUDA_INCLUDES = "#include <cuda_runtime.h>\n#include <cstdint>\n"


def default_choices(plan: Plan, device: Device) -> dict[str, Choice]:
    """For each kernel, by its name, the config that the cost model prefers."""
    choices: dict[str, Choice] = {}
    for kernel in plan.kernels:
        choices[kernel.name] = ranked_choices(kernel, device)[0]
    return choices


def ranked_choices(kernel: Kernel, device: Device) -> Sequence[Choice]:
    """Every config of the kernel's template that fits, the most promising first."""
    if kernel.core is not None:
        ranked = gemm_sm90.configs(gemm_of(kernel), device)
        narrow = [c for c in ranked if c.tile_n < WIDEST_TILE]
        return narrow if narrow and epilogue_flops(kernel) > HEAVY_EPILOGUE_FLOPS else ranked
    return pointwise.configs(work_of(kernel.region, grid_of(kernel.region, device.kind)), device)


def epilogue_flops(kernel: Kernel) -> int:
    return sum(SCALARS[node.fn].flops for node in kernel.region.body)


def source_of(kernel: Kernel, choice: Choice) -> Source:
    if isinstance(choice, GemmConfig):
        return gemm_source(kernel, choice)
    return pointwise_source(kernel, choice)


def generate(plan: Plan, choices: Choices, device: Device) -> Program:
    """The text of all kernels and the steps that run them."""
    steps = tuple(merged_launches(plan, choices))
    launches = [step for step in steps if isinstance(step, Launch) and step.sources]
    text = program_text(launches, device.kind) if launches else ""
    return Program(plan, device.kind, text, steps)


def merged_launches(plan: Plan, choices: Choices) -> list[ProgramStep]:
    """Consecutive kernels behind one entry; every other step as it is."""
    steps: list[ProgramStep] = []
    run: list[Kernel] = []
    made: set[str] = set()
    count = 0
    for step in (*plan.steps, None):
        if isinstance(step, Kernel):
            run.append(step)
            continue
        if run:
            launch = launch_of(f"run{count}", run, choices, made)
            made |= {buffer.name for buffer in launch.allocations}
            steps.append(launch)
            count += bool(launch.sources)
            run = []
        if step is not None:
            steps.append(step)
    return steps


def launch_of(entry: str, run: Sequence[Kernel], choices: Choices, made: AbstractSet[str] = frozenset()) -> Launch:
    """One entry for all of them. Kernels over nothing are left out, but their empty results are made.

    `made` are buffers that an earlier launch has allocated: of a concatenation, each launch may write some parts.
    """
    sources = tuple(source_of(kernel, choices[kernel.name]) for kernel in run if 0 not in kernel.region.shape)
    pointers: dict[str, Buffer] = {}
    allocations: dict[str, Buffer] = {}
    aliases: dict[str, tuple[Buffer, str]] = {}
    for kernel in run:
        for buffer in core_buffers(kernel, choices[kernel.name]):
            pointers.setdefault(buffer.name, buffer)
            if buffer.source is None and buffer.name.startswith("workspace"):
                allocations.setdefault(buffer.name, buffer)
        for _, layout in kernel.region.loads:
            pointers.setdefault(layout.buffer.name, layout.buffer)
        for _, layout in kernel.region.stores:
            buffer = layout.buffer
            if buffer.name in kernel.writes_over:
                aliases[buffer.name] = (buffer, kernel.writes_over[buffer.name])
            elif buffer.source is None and buffer.name not in made:
                allocations.setdefault(buffer.name, buffer)
            pointers.setdefault(buffer.name, buffer)
    return Launch(entry, sources, tuple(pointers.values()), tuple(allocations.values()), tuple(aliases.values()))


def core_buffers(kernel: Kernel, choice: Choice) -> list[Buffer]:
    """What the product itself reads, and the scratch memory it writes."""
    if kernel.core is None or not isinstance(choice, GemmConfig):
        return []
    w = packed_buffer(kernel) if kernel.core.constant else kernel.core.w.layout.buffer
    return [kernel.core.a.layout.buffer, w, *workspace_buffer(kernel, choice)]


def program_text(launches: Sequence[Launch], kind: str) -> str:
    """Device functions, the template, a struct a kernel, an entry a launch."""
    sources = [source for launch in launches for source in launch.sources]
    needs = {name for source in sources for name in source.needs}
    parts = [
        CUDA_INCLUDES if kind == "cuda" else "",
        inline_with_templates(needs, TEMPLATES[kind], "cuda" if kind == "cuda" else "cpu"),
        "// --- generated: one struct a kernel",
        *(source.struct for source in sources),
        "// --- entries: each runs its kernels in order on the caller's stream",
        *(entry_text(launch, kind) for launch in launches),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def entry_text(launch: Launch, kind: str) -> str:
    written = {layout.buffer.name for s in launch.sources for _, layout in s.kernel.region.stores}
    written |= {buffer.name for buffer in launch.allocations}
    parameters = [parameter(buffer, buffer.name in written) for buffer in launch.pointers]
    if kind == "cuda":
        return cuda_entry(launch, parameters)
    body = "".join(f"    {source.call};\n" for source in launch.sources)
    return f'extern "C" int {launch.entry}({", ".join(parameters)}) {{\n{body}    return 0;\n}}'


def parameter(buffer: Buffer, writable: bool) -> str:
    const = "" if writable else "const "
    return f"{const}{buffer.dtype.storage_cpp}* {identifier(buffer.name)}"


def cuda_entry(launch: Launch, parameters: Sequence[str]) -> str:
    """Returns 0, or 65536 times the number of the kernel that failed to launch plus its CUDA error."""
    signature = ", ".join([*parameters, "int device", "cudaStream_t stream"])
    lines = [f'extern "C" int {launch.entry}({signature}) {{', "    kw::OnDevice guard(device);"]
    for number, source in enumerate(launch.sources):
        lines.append(f"    if (const int error = {source.call}) return {number} * 65536 + error;")
    return "\n".join([*lines, "    return 0;", "}"])
