"""Graphs whose rows are reduced and stored, in float32 and in float64, for tests of templates and for measurements."""

from __future__ import annotations

import torch

from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.nodes import Broadcast, Const, Graph, Group, Input, Map, Reduce, Shape
from kernelwright.plan.steps import contiguous
from tests.property.graphs_of_rows import Case


def weighted_case(shape: Shape, seed: int = 2) -> Case:
    """LayerNorm with a weight and a bias of a row's length, which only its last phase reads."""

    def built(dtype: DType) -> Graph:
        x = Input("x0", 0, shape, dtype, contiguous(shape))
        weight, bias = (Input(f"x{i}", i, shape[1:], dtype, contiguous(shape[1:])) for i in (1, 2))
        mean = Map("div", (Reduce("sum", x, (1,)), Const(float(shape[1]), dtype)))
        variance = Map("div", (Reduce("deviations", x, (1,)), Const(float(shape[1]), dtype)))
        scale = Map("rsqrt", (Map("add", (variance, Const(1e-5, dtype))),))
        rest = Map("mul", (Map("sub", (x, Broadcast(mean, shape))), Broadcast(scale, shape)))
        y = Map("add", (Map("mul", (rest, Broadcast(weight, shape))), Broadcast(bias, shape)))
        return Graph((x, weight, bias), (y,), (), Group("tuple", (0,)))

    chance = torch.Generator().manual_seed(seed)
    tensors = (torch.randn(shape, generator=chance), *(torch.randn(shape[1:], generator=chance) for _ in range(2)))
    return Case(built(float32), built(float64), tensors)


def softmax_case(x: torch.Tensor) -> Case:
    shape = tuple(x.shape)

    def built(dtype: DType) -> Graph:
        leaf = Input("x0", 0, shape, dtype, contiguous(shape))
        largest = Broadcast(Reduce("max", leaf, (1,)), shape)
        total = Broadcast(Reduce("exponentials", leaf, (1,)), shape)
        y = Map("div", (Map("exp", (Map("sub", (leaf, largest)),)), total))
        return Graph((leaf,), (y,), (), Group("tuple", (0,)))

    return Case(built(float32), built(float64), (x,))


def three_reductions(x: torch.Tensor) -> Case:
    """Each of what the one before has found; the last is also an argument."""
    shape = tuple(x.shape)

    def built(dtype: DType) -> Graph:
        x, count = Input("x0", 0, shape, dtype, contiguous(shape)), Const(float(shape[1]), dtype)
        apart = Map("sub", (x, Broadcast(Map("div", (Reduce("sum", x, (1,)), count)), shape)))
        variance = Map("div", (Reduce("sum", Map("mul", (apart, apart)), (1,)), count))
        y = Map("div", (apart, Broadcast(variance, shape)))
        z = Map("div", (y, Broadcast(Reduce("max", y, (1,)), shape)))
        return Graph((x,), (z, Reduce("argmax", y, (1,))), (), Group("tuple", (0, 1)))

    return Case(built(float32), built(float64), (x,))
