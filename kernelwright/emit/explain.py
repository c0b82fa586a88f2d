"""A `Program` comes in; the docstring of the emitted file, which says what was done and what it saves, goes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelwright.generate import Program, Source
from kernelwright.ir.nodes import Const, Contract, Conv, Gather, Map, Node, Opaque, Reduce, Scan
from kernelwright.load import Problem
from kernelwright.plan import Convolution, Library, Product
from kernelwright.plan.layouts import base_of

NEEDS = {"cuda": "nvcc", "cpu": "a C++ compiler"}


def docstring(program: Program, problem: Problem, measured: Sequence[str]) -> str:
    launches = Counter(source.twin_of or source.kernel.name for source in program.sources)
    own = (source for source in program.sources if not source.twin_of)
    done = [
        line
        for number, source in enumerate(own)
        for line in (*kernel_lines(number, source), *launches_lines(launches[source.kernel.name]))
    ]
    left = library_lines(program)
    lines = [
        f"ModelNew for {problem.path.name}. Written by kernelwright; needs PyTorch 2.0+ and {NEEDS[program.target]}.",
        "",
        "What was done",
        *(f"  {line}" for line in (*algebra_lines(program), *done, *left)),
        "Measured",
        *(f"  {line}" for line in (measured or ["not on this device: generated and compiled only"])),
    ]
    return '"""' + "\n".join(lines).replace("\\", "/").replace('"""', "'''") + '\n"""'


def kernel_lines(number: int, source: Source) -> list[str]:
    region = source.kernel.region
    if source.kernel.core is not None:
        return core_lines(number, source, source.kernel.core)
    operators = len([node for node in region.body if node.fn not in ("cast", "identity")]) or len(region.body)
    before = sum(eager_bytes(node) for node in region.body)
    instead = f"one kernel instead of {operators}" if operators > 1 else "one kernel"
    return [
        f"kernel {number}  {source.formula}",
        f"          {instead}: {size_text(before)} of memory traffic -> {size_text(region.bytes_moved)}",
    ]


def algebra_lines(program: Program) -> list[str]:
    """Equations that hold in real arithmetic and leave less to compute; their sums may round in another order."""
    return [f"algebra   {', '.join(program.algebra)}"] if program.algebra else []


def launches_lines(count: int) -> list[str]:
    return [f"          launched {count} times, each time with other buffers"] if count > 1 else []


def core_lines(number: int, source: Source, core: Product | Convolution) -> list[str]:
    functions = len(source.kernel.region.body)
    after = f", with the {functions} functions after it" if functions else ""
    earlier = sum(len(region.maps) for region in core.prologues) if isinstance(core, Product) else 0
    before = f" and the {earlier} before" if earlier and after else f", with the {earlier} functions before it"
    return [
        f"kernel {number}  {source.formula}",
        f"          {core_text(core)}{after}{before if earlier else ''}, by {source.template}",
        f"          arithmetic: {source.arithmetic}",
    ]


def core_text(core: Product | Convolution) -> str:
    if isinstance(core, Product):
        batches = f"{core.batches} x " if core.batches > 1 else ""
        return f"product of {batches}{core.m} x {core.n} x {core.k}"
    node = core.node
    kernel = " x ".join(map(str, node.weight.shape[2:]))
    groups = f" in {node.groups} groups" if node.groups > 1 else ""
    kind = "transposed convolution" if node.transposed else "convolution"
    return f"{kind} of {node.x.shape[1]} to {node.shape[1]} channels{groups} by {kernel}"


def eager_bytes(node: Map | Gather | Reduce | Scan) -> int:
    """What the operator moves by itself: its tensor operands in, its result out. A Gather reads what it picks."""
    if isinstance(node, Gather):
        return 2 * node.nbytes + sum(base_of(index).nbytes for index in node.indices)
    operands = {base_of(x): x.nbytes for x in node.operands if not isinstance(base_of(x), Const)}
    return node.nbytes + sum(min(x.nbytes, seen) if is_tensor(x) else 0 for x, seen in operands.items())


def is_tensor(node: Node) -> bool:
    return not (isinstance(node, Opaque) and len(node.results) != 1)


def library_lines(program: Program) -> list[str]:
    """What PyTorch still runs, each kind once."""
    counts: dict[str, int] = {}
    for step in program.steps:
        if isinstance(step, Library):
            name = library_name(step)
            counts[name] = counts.get(name, 0) + 1
    return [f"{name}{f' ({n} calls)' if n > 1 else ''} left to PyTorch" for name, n in counts.items()]


def library_name(step: Library) -> str:
    bias = ", without its bias," if step.bias is None and isinstance(step.node, (Contract, Conv)) else ""
    match step.node:
        case Contract():
            return f"matrix product{bias}" if bias else "matrix product"
        case Conv():
            turned = " in channels-last order, TF32 where PyTorch's flags allow it," if step.in_channels_last else ""
            return f"convolution{bias}{turned}"
        case Opaque(target):
            return target.removeprefix("aten.").split(".")[0]
    raise AssertionError(f"no library call: {step.node}")


def size_text(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
