"""Rows made up for tests: a name and what matters comes in, a whole row goes out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kernelwright.report.boxes import Arrow, Box, Picture
from kernelwright.report.exhibit import Exhibit
from kernelwright.report.row import Contraction, Errors, KernelFacts, Row, Span, Terms, Work

TERMS = Terms("Made-up GPU", "reference", ("eager", "compile"), 20.0, "quick")
ENVIRONMENT = {
    "device": "Made-up GPU",
    "torch": "2.11.0",
    "commit": "abc1234",
    "date": "2026-11-15",
    "command": "made up",
}
KERNEL = KernelFacts(
    "add_relu_kernel", "y = relu(x + 1)", "pointwise", "threads=256", 60.0, 50.0, None, "measured", 10**7, 0
)
FAMILIES = ("gemm", "conv", "norm", "elementwise", "attention", "pooling", "loss")


def around(median: float, spread: float = 0.01) -> Span:
    return Span(median, median * math.exp(-spread), median * math.exp(spread))


def make_row(problem: str, over_eager: float = 2.0, *, spread: float = 0.01, **fields: Any) -> Row:
    """A right row that is so many times as fast as eager, and half as much over torch.compile."""
    ours = 100.0
    times = {
        "candidate": ours,
        "eager": ours * over_eager,
        "eager again": ours * over_eager,
        "compile": ours * over_eager / 2,
    }
    made = Row(
        problem=problem,
        path=f"{problem}.py",
        sha256="0" * 64,
        terms=TERMS,
        verdict="CORRECT",
        speed="FASTER",
        labels=("vendor_library",),
        speedup={"eager": around(over_eager, spread), "compile": around(over_eager / 2, spread)},
        times_us={name: around(value, spread) for name, value in times.items()},
        noise=0.005,
        errors=Errors(1e-7, 2e-6, 1.2e-7, 3e-6),
        kill_rate=1.0,
        work=Work("gemm", 10**9, 10**7, 50.0, "memory"),
        kernels=(KERNEL,),
        contractions=(Contraction("64×64 by 64×64 (ab,bc->ac)", "PyTorch", "float32 under PyTorch's own flags"),),
        seconds={"capture": 1.0, "judge": 5.0},
        wall_s=9.0,
        environment=ENVIRONMENT,
    )  # fmt: skip
    return replace(made, **fields)


def failed_row(problem: str, verdict: str, detail: str = "a made-up reason") -> Row:
    return Row(problem, f"{problem}.py", "0" * 64, TERMS, verdict, detail=detail, environment=ENVIRONMENT)


PICTURE = Picture(
    (
        Box("input", "x", ("float32 64×64",), ()),
        Box("library", "matrix product", ("64×64 by 64×64",), ("weight 64×64",)),
        Box("kernel", "add_relu_kernel", ("add", "relu"), ("bias 64",)),
        Box("output", "result", ("float32 64×64",), ()),
    ),
    (Arrow(0, 1, "64×64"), Arrow(1, 2, "64×64"), Arrow(2, 3, "")),
)


def many_exhibits(count: int) -> list[Exhibit]:
    """As many problems as KernelBench has, of all families, with every kind of verdict among them."""
    exhibits = []
    for i in range(count):
        name = f"level{1 + i % 3}/{i}_A_problem_with_quite_a_long_name_as_they_have"
        work = Work(FAMILIES[i % len(FAMILIES)], 10**9, 10**7, 20.0 + i, "memory")
        row = make_row(name, 0.6 * 1.01**i, work=work, degenerate=i == 7)
        if i % 25 == 3:
            row = failed_row(name, ("INCORRECT", "NOTHING_TO_DO", "OUT_OF_TIME", "BUG")[i // 25 % 4])
        exhibits.append(Exhibit(row, PICTURE, files=()))
    return exhibits
