"""What `optimize` made comes in; the row that a run keeps of it goes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelwright.build import KernelResources
from kernelwright.generate import Program
from kernelwright.generate.literals import camel
from kernelwright.ir.nodes import Contract, Conv, Node, Opaque
from kernelwright.judge import Judgement
from kernelwright.plan import Library
from kernelwright.report.picture import library_title, shape_text
from kernelwright.report.row import Contraction, Errors, KernelFacts, Row, Span, Terms
from kernelwright.report.work import work_of
from kernelwright.result import Result
from kernelwright.tune import Tuned

__all__ = ["row_of"]

# No call is shorter. On a machine so busy that a batch takes less than what is subtracted for starting it, nothing was
# measured, whatever the ratio says.
SHORTEST_US = 0.1
UNCLEAR = "it is right, and was not timed: what else ran on the machine took longer than its calls"


def row_of(
    result: Result,
    problem: str,
    sha256: str,
    terms: Terms,
    environment: Mapping[str, Any],
    resources: Sequence[KernelResources] = (),
) -> Row:
    """The result as a row; of a device that is not here, without a verdict of the judge's.

    `resources` are what the compiler said of the program's kernels, where it was asked.
    """
    return Row(
        problem=problem,
        path=str(result.problem.path),
        sha256=sha256,
        terms=terms,
        work=work_of(result.program.plan.graph, result.device),
        kernels=tuple(kernel_facts(result.program, result.tuned, resources)),
        contractions=tuple(contractions(result.program, result.device.kind)),
        seconds=dict(result.seconds),
        **judged(result.judgement, environment),
    )


def judged(judgement: Judgement | None, environment: Mapping[str, Any]) -> dict[str, Any]:
    if judgement is None:
        detail = "this device is not here: generated and compiled, not run"
        return {"verdict": "NOT_RUN", "detail": detail, "environment": dict(environment)}
    errors, record = judgement.errors, judgement.record
    spans = {name: Span(i.median, i.low, i.high) for name, i in judgement.times_us.items()}
    ratios = {name: Span(i.median, i.low, i.high) for name, i in judgement.speedup.items()}
    unclear = any(s.median < SHORTEST_US for s in spans.values()) or any(map(says_nothing, ratios.values()))
    return {
        "verdict": str(judgement.verdict),
        "speed": "INCONCLUSIVE" if unclear else None if judgement.speed is None else str(judgement.speed),
        "detail": UNCLEAR if unclear else judgement.detail,
        "labels": tuple(str(label) for label in judgement.labels),
        "speedup": {} if unclear else ratios,
        "times_us": {} if unclear else spans,
        "noise": number_of(record.get("noise")),
        "errors": None
        if errors is None
        else Errors(errors.candidate_rms, errors.candidate_max, errors.eager_rms, errors.eager_max),
        "kill_rate": judgement.kill_rate,
        "degenerate": bool(record.get("known_bad", {}).get("constant")),
        "skipped": {str(step): str(why) for step, why in record.get("skipped", {}).items()},
        "shortage": judgement.shortage,
        "environment": {**judgement.environment, "isolation": judgement.isolation, **environment},
    }


def says_nothing(ratio: Span) -> bool:
    """An interval in which both are a hundred times as fast as the other."""
    return not (ratio.low > 0 and ratio.high / ratio.low < 100)


def number_of(value: Any) -> float | None:
    """A record writes infinities as words."""
    return float(value) if isinstance(value, (int, float)) else None


def kernel_facts(
    program: Program, tuned: tuple[Tuned, ...], resources: Sequence[KernelResources]
) -> Iterator[KernelFacts]:
    rows = {row.kernel: row for row in tuned}
    for source in program.sources:
        kernel, row = source.kernel, rows.get(source.kernel.name)
        used = resources_of(source.twin_of or kernel.name, resources)
        yield KernelFacts(
            name=kernel.name,
            formula=source.formula,
            template=source.template,
            config=str(source.choice).partition("(")[2].removesuffix(")"),
            median_us=row.median_us if row else None,
            floor_us=row.floor_us if row else 0.0,
            library_us=row.library_us if row else None,
            origin=row.origin if row else "model",
            bytes_moved=kernel.bytes_moved,
            flops=kernel.core.flops if kernel.core is not None else 0,
            registers=max((r.registers for r in used), default=None),
            spill_bytes=max((r.spill_store_bytes + r.spill_load_bytes for r in used), default=None),
        )


def resources_of(kernel: str, resources: Sequence[KernelResources]) -> list[KernelResources]:
    """Those of its variants: a mangled name holds the struct's, with its length before it."""
    struct = camel(kernel)
    return [row for row in resources if f"{len(struct)}{struct}" in row.name]


def contractions(program: Program, kind: str) -> Iterator[Contraction]:
    """Every product and convolution, ours first."""
    for source in program.sources:
        if source.kernel.core is not None:
            yield Contraction(contraction_text(source.kernel.core.node), source.kernel.name, source.arithmetic)
    for step in program.steps:
        if isinstance(step, Library) and is_contraction(step.node):
            yield Contraction(contraction_text(step.node), "PyTorch", library_arithmetic(step.node, kind))


def is_contraction(node: Node) -> bool:
    words = ("scaled_dot_product", "lstm", "gru", "rnn_", "mm", "bilinear")
    return isinstance(node, (Contract, Conv)) or (isinstance(node, Opaque) and any(w in node.target for w in words))


def contraction_text(node: Node) -> str:
    match node:
        case Contract():
            return f"{shape_text(node.a.shape)} by {shape_text(node.b.shape)} ({node.equation})"
        case Conv():
            return f"{library_title(node)}: {shape_text(node.x.shape)} by {shape_text(node.weight.shape)}"
    return library_title(node)


def library_arithmetic(node: Node, kind: str) -> str:
    dtype = node.operands[0].dtype.name if node.operands else "float32"
    if dtype != "float32" or kind == "cpu":
        return f"{dtype}, as PyTorch computes it"
    return "TF32 where PyTorch's flags allow it" if isinstance(node, Conv) else "float32 under PyTorch's own flags"
