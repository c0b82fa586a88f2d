"""A `Plan`, a choice for each kernel and a device come in; a `Program` goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from kernelwright.device import Device
from kernelwright.generate import conv, gemm, held, pointwise, reduce, ring, scan, sliding, spread, woven
from kernelwright.generate.folding import folded
from kernelwright.generate.literals import identifier
from kernelwright.generate.program import Launch, Program, ProgramStep, Source
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.twins import numbered, shared
from kernelwright.ir.nodes import Iota
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.template import inline_with_templates
from kernelwright.plan import Buffer, Kernel, Plan

Choices = Mapping[str, Choice]

# Every template, one row each. What a kernel is run by: the row whose config is the cheapest of all that can run it.
TEMPLATES: tuple[Template, ...] = (
    *pointwise.TEMPLATES,
    *reduce.TEMPLATES,
    *woven.TEMPLATES,
    *held.TEMPLATES,
    *ring.TEMPLATES,
    *spread.TEMPLATES,
    *sliding.TEMPLATES,
    *scan.TEMPLATES,
    *gemm.TEMPLATES,
    *conv.TEMPLATES,
)

# What entries themselves call, by target.
ENTRY_HEADERS: Mapping[str, tuple[str, ...]] = {"cuda": (), "cpu": ("memory",)}

# glibc takes every allocation above this from the system, page by page, and gives it back when it is freed.
MAPPED_ANEW_BYTES = 32 << 20

CUDA_INCLUDES = "#include <cuda_runtime.h>\n#include <cstdint>\n"


def default_choices(plan: Plan, device: Device) -> dict[str, Choice]:
    """For each kernel, by its name, the config that the cost model prefers."""
    choices: dict[str, Choice] = {}
    for kernel in plan.kernels:
        choices[kernel.name] = ranked_choices(kernel, device)[0]
    return choices


def ranked_choices(kernel: Kernel, device: Device) -> Sequence[Choice]:
    """Every config of every template that can run the kernel, the most promising first."""
    return [choice for _, choice in priced_choices(kernel, device)]


def priced_choices(kernel: Kernel, device: Device) -> list[tuple[float, Choice]]:
    """The same, each with the microseconds it is expected to take. A template's own order stands where prices tie."""
    priced = [
        (template.cost_us(choice, kernel, device), choice)
        for template in TEMPLATES
        if template.target == device.kind
        for choice in template.configs(kernel, device)
    ]
    return sorted(priced, key=lambda row: row[0])


def template_of(choice: Choice) -> Template:
    """The row that a choice belongs to."""
    return next(template for template in TEMPLATES if type(choice) in template.types)


def headers_of(target: str) -> tuple[str, ...]:
    """The files of all templates of a target, each after what it needs and once."""
    own = (name for t in TEMPLATES if t.target == target for name in t.headers)
    return tuple(dict.fromkeys((*ENTRY_HEADERS[target], *own)))


def source_of(kernel: Kernel, choice: Choice) -> Source:
    return template_of(choice).source(kernel, choice)


def extra_of(kernel: Kernel, choice: Choice) -> Extra:
    return template_of(choice).extra(kernel, choice)


def generate(plan: Plan, choices: Choices, device: Device) -> Program:
    """The text of all kernels and the steps that run them."""
    steps = with_equal_entries(shared(merged_launches(plan, choices)), device.kind)
    launches = [step for step in steps if isinstance(step, Launch) and step.sources]
    text = program_text(launches, device.kind) if launches else ""
    return Program(plan, device.kind, text, steps, device.capability if device.kind == "cuda" else (0, 0))


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
        extra = extra_of(kernel, choices[kernel.name])
        pointers |= {b.name: b for b in (*extra.reads, *extra.scratch) if b.name not in pointers}
        allocations |= {b.name: b for b in extra.scratch}
        for layout in kernel.region.reads:
            if not isinstance(layout.buffer.source, Iota):
                pointers.setdefault(layout.buffer.name, layout.buffer)
        for _, layout in kernel.region.stores:
            buffer = layout.buffer
            if buffer.name in kernel.writes_over:
                aliases[buffer.name] = (buffer, kernel.writes_over[buffer.name])
            elif buffer.source is None and buffer.name not in made:
                allocations.setdefault(buffer.name, buffer)
            pointers.setdefault(buffer.name, buffer)
    return Launch(entry, sources, tuple(pointers.values()), tuple(allocations.values()), tuple(aliases.values()))


def with_equal_entries(steps: Sequence[ProgramStep], kind: str) -> tuple[ProgramStep, ...]:
    """Launches whose entries differ in names alone call the same one; they are counted in the order of first calls."""
    entries: dict[str, str] = {}

    def entered(launch: Launch) -> Launch:
        pointers = {identifier(buffer.name) for buffer in launch.pointers}
        text = numbered(entry_text(replace(launch, entry="entry"), kind), pointers)
        return replace(launch, entry=entries.setdefault(text, f"run{len(entries)}"))

    return tuple(entered(step) if isinstance(step, Launch) and step.sources else step for step in steps)


def program_text(launches: Sequence[Launch], kind: str) -> str:
    """Device functions, the template, a struct a kernel, an entry a launch."""
    sources = [source for launch in launches for source in launch.sources]
    first: dict[str, Launch] = {}
    for launch in launches:
        first.setdefault(launch.entry, launch)
    needs = {name for source in sources for name in source.needs}
    if kind == "cpu" and any(map(mapped_anew, launches)):
        needs |= {"in_large_pages"}
    parts = [
        CUDA_INCLUDES if kind == "cuda" else "",
        inline_with_templates(needs, headers_of(kind), "cuda" if kind == "cuda" else "cpu"),
        "// --- generated: one struct a kernel",
        *(folded(source.struct) for source in sources),
        "// --- entries: each runs its kernels in order on the caller's stream",
        *(folded(entry_text(launch, kind)) for launch in first.values()),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def entry_text(launch: Launch, kind: str) -> str:
    written = {layout.buffer.name for s in launch.sources for _, layout in s.kernel.region.stores}
    written |= {buffer.name for buffer in launch.allocations}
    parameters = [parameter(buffer, buffer.name in written) for buffer in launch.pointers]
    if kind == "cuda":
        return cuda_entry(launch, parameters)
    calls = [f"kw::in_large_pages({identifier(b.name)}, {b.nbytes})" for b in mapped_anew(launch)]
    body = "".join(f"    {call};\n" for call in (*calls, *(source.call for source in launch.sources)))
    return f'extern "C" int {launch.entry}({", ".join(parameters)}) {{\n{body}    return 0;\n}}'


def mapped_anew(launch: Launch) -> list[Buffer]:
    """The results whose memory nobody has touched before the launch."""
    return [buffer for buffer in launch.allocations if buffer.nbytes > MAPPED_ANEW_BYTES]


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
