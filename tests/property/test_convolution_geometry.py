"""The phases of a convolution, walked through one by one, give what PyTorch gives in float64."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Conv, Input
from kernelwright.plan.convolutions import phases_of
from kernelwright.plan.steps import contiguous

PLAIN = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def leaf(name: str, position: int, shape: tuple[int, ...]) -> Input:
    return Input(name, position, shape, float32, contiguous(shape))


@st.composite
def convolutions(draw: st.DrawFn) -> Conv:
    rank = draw(st.integers(1, 3))
    largest = {1: 12, 2: 7, 3: 5}[rank]

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride, dilation, padding = each(1, 4), each(1, 4), each(1, 3), each(0, 3)
    groups, inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    space = each(1, largest)
    output_padding: tuple[int, ...] = (0,) * rank
    if transposed:
        output_padding = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
        extents = [
            (x - 1) * s - 2 * p + d * (k - 1) + 1 + o
            for x, s, p, d, k, o in zip(space, stride, padding, dilation, kernel, output_padding, strict=True)
        ]
        padding = tuple(p if e > 0 else 0 for p, e in zip(padding, extents, strict=True))
    else:
        space = tuple(
            max(x, d * (k - 1) + 1 - 2 * p) for x, d, k, p in zip(space, dilation, kernel, padding, strict=True)
        )
    x = leaf("x", 0, (draw(st.integers(1, 2)), groups * inner, *space))
    shape = (groups * inner, outer) if transposed else (groups * outer, inner)
    weight = leaf("weight", 1, (*shape, *kernel))
    return Conv(x, weight, stride, padding, dilation, groups, transposed, output_padding)


def by_phases(conv: Conv, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum, and how often each output was written."""
    y = torch.full(conv.shape, math.nan, dtype=torch.float64)
    written = torch.zeros(conv.shape[2:], dtype=torch.int64)
    grouped = x.unflatten(1, (conv.groups, -1))
    for phase in phases_of(conv):
        for q in itertools.product(*(range(axis.count) for axis in phase.axes)):
            place = tuple(a.y_first + i * a.y_step for a, i in zip(phase.axes, q, strict=True))
            total = torch.zeros(conv.shape[:2], dtype=torch.float64)
            for j in itertools.product(*(range(axis.taps) for axis in phase.axes)):
                at = tuple(i * a.stride + a.x_first + t * a.x_step for a, i, t in zip(phase.axes, q, j, strict=True))
                if not all(0 <= p < n for p, n in zip(at, x.shape[2:], strict=True)):
                    continue
                k = tuple(a.k_first + t * a.k_step for a, t in zip(phase.axes, j, strict=True))
                tap = weight[(slice(None), slice(None), *k)]
                if conv.transposed:  # [groups * inner, outer]
                    part = torch.einsum("bgi,gio->bgo", grouped[(..., *at)], tap.unflatten(0, (conv.groups, -1)))
                else:  # [groups * outer, inner]
                    part = torch.einsum("bgi,goi->bgo", grouped[(..., *at)], tap.unflatten(0, (conv.groups, -1)))
                total += part.flatten(1)
            y[(..., *place)] = total
            written[place] += 1
    return y, written


@settings(max_examples=150, deadline=None)
@given(convolutions(), st.integers(0, 2**31))
def test_phases_cover_every_output_once_and_sum_what_torch_sums(conv: Conv, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(conv.x.shape, generator=generator, dtype=torch.float64)
    weight = torch.randn(conv.weight.shape, generator=generator, dtype=torch.float64)
    rank = len(conv.stride)
    if conv.transposed:
        expected = TRANSPOSED[rank - 1](
            x, weight, None, conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation
        )
    else:
        expected = PLAIN[rank - 1](x, weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)
    y, written = by_phases(conv, x, weight)
    assert expected.shape == conv.shape
    assert bool((written == 1).all())
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert sum(phase.outputs for phase in phases_of(conv)) == math.prod(conv.shape[2:])
