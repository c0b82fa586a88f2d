"""Random convolutions of few channels in our own CPU code, with an epilogue, against float64."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from random import Random

import pytest
import torch

from kernelwright.build import build_cpu_library
from kernelwright.build.cpu import load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate.generate import launch_of, program_text, ranked_choices
from kernelwright.generate.program import Launch
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Broadcast, Conv, Graph, Input, Map, Reshape, Shape
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.conv_rows import Config
from kernelwright.plan import Kernel, Routes, plan
from kernelwright.plan.steps import contiguous

CPU = resolve("cpu")
CASES_A_BATCH = 10


def leaf(name: str, position: int, shape: Shape) -> Input:
    return Input(name, position, shape, float32, contiguous(shape))


def random_conv(rng: Random) -> Conv:
    rank = rng.randint(1, 3)

    def each(low: int, high: int) -> Shape:
        return tuple(rng.randint(low, high) for _ in range(rank))

    kernel, stride, dilation, padding = each(1, 4), each(1, 3), each(1, 3), each(0, 3)
    groups, inner, outer = rng.choice(((1, 3, 11), (1, 1, 1), (5, 1, 1), (2, 2, 3), (3, 1, 2), (1, 16, 4)))
    wanted = (*each(1, 6)[1:], rng.choice((1, 5, 16, 40, 150)))
    space = tuple(max(x, d * (k - 1) + 1 - 2 * p) for x, d, k, p in zip(wanted, dilation, kernel, padding, strict=True))
    x = leaf("x", 0, (rng.randint(1, 2), groups * inner, *space))
    weight = leaf("weight", 1, (groups * outer, inner, *kernel))
    return Conv(x, weight, stride, padding, dilation, groups, False, (0,) * rank)


def with_epilogue(conv: Conv) -> Graph:
    """relu(conv + bias) * other, where `other` has the layout of the result."""
    bias, other = leaf("bias", 2, conv.shape[1:2]), leaf("other", 3, conv.shape)
    spread = Broadcast(Reshape(bias, (*bias.shape, *(1,) * len(conv.stride))), conv.shape)
    y = Map("mul", (Map("relu", (Map("add", (conv, spread)),)), other))
    return Graph((conv.x, conv.weight, bias, other), (y,), (), 0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    conv: Conv
    kernel: Kernel
    choice: Choice
    launch: Launch


def case_of(number: int, conv: Conv, pick: Random) -> Case:
    (kernel,) = plan(with_epilogue(conv), Routes(frozenset((conv,)))).kernels
    kernel = replace(kernel, name=f"c{number}_{kernel.name}")
    choice = pick.choice([c for c in ranked_choices(kernel, CPU) if isinstance(c, Config)])
    return Case(conv, kernel, choice, launch_of(f"run{number}", [kernel], {kernel.name: choice}))


def test_random_convolutions_are_right(request: pytest.FixtureRequest) -> None:
    for batch in range(max(1, int(request.config.getoption("--cases")))):
        rng = Random(batch)
        cases = [case_of(number, random_conv(rng), rng) for number in range(CASES_A_BATCH)]
        library = load_cpu_library(build_cpu_library(program_text([case.launch for case in cases], "cpu")))
        for case in cases:
            check(case, library)


def check(case: Case, library: ctypes.CDLL) -> None:
    torch.manual_seed(1)
    conv = case.conv
    x, weight, bias = torch.randn(conv.x.shape), torch.randn(conv.weight.shape), torch.randn(conv.shape[1])
    other, y = torch.randn(conv.shape), torch.full(conv.shape, torch.nan)
    tensors = {"x": x, "weight": weight, "bias": bias, "other": other}
    given = [tensors.get(buffer.name, y) for buffer in case.launch.pointers]
    getattr(library, case.launch.entry)(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in given))
    geometry = (conv.stride, conv.padding, conv.dilation, False, conv.output_padding, conv.groups)
    exact = torch.relu(torch.convolution(x.double(), weight.double(), bias.double(), *geometry)) * other.double()
    sizes = torch.convolution(x.double().abs(), weight.double().abs(), bias.double().abs(), *geometry)
    worst = ((y.double() - exact).abs() / (sizes * other.double().abs()).clamp_min(1e-30)).max().item()
    assert worst <= 2e-6, f"{conv} by {case.choice}: {worst}"


@pytest.mark.parametrize(("channels", "offered"), [(64, True), (65, False)])
def test_what_the_library_is_faster_at_is_not_offered(channels: int, offered: bool) -> None:
    x, weight = leaf("x", 0, (1, channels, 8, 8)), leaf("weight", 1, (4, channels, 3, 3))
    conv = Conv(x, weight, (1, 1), (1, 1), (1, 1), 1, False, (0, 0))
    (kernel,) = plan(with_epilogue(conv), Routes(frozenset((conv,)))).kernels
    assert bool(ranked_choices(kernel, CPU)) is offered
