"""A convolution whose rows were merged reads, for every output, the same inputs under the same weights as before."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelwright.generate.conv import shape_of, spatial_shape
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Conv, Graph, Input
from kernelwright.kernels.conv_shape import ConvShape
from kernelwright.plan import Kernel, Routes, plan
from kernelwright.plan.steps import contiguous


@st.composite
def merging(draw: st.DrawFn) -> Conv:
    """Kernels of which most axes have one tap, on inputs that may be parts of larger ones."""
    rank = draw(st.integers(2, 3))

    def each(choices: list[int]) -> tuple[int, ...]:
        return tuple(draw(st.sampled_from(choices)) for _ in range(rank))

    kernel, space, dilation = each([1, 1, 2, 3]), each([1, 2, 3, 4, 5]), each([1, 1, 2])
    still = [k == 1 and draw(st.booleans()) for k in kernel]
    padding = tuple(0 if s else draw(st.integers(0, 2)) for s in still)
    stride = tuple(1 if s else draw(st.sampled_from([1, 1, 1, 2])) for s in still)
    transposed = draw(st.booleans())
    extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    output_padding = extra if transposed and draw(st.booleans()) else (0,) * rank
    shape = (1, 2, *space)
    held = (1, 2, *(n + draw(st.sampled_from([0, 0, 0, 1])) for n in space))
    x = Input("x", 0, shape, float32, contiguous(held))
    taps = (2, 3, *kernel) if transposed else (3, 2, *kernel)
    node = Conv(
        x, Input("weight", 1, taps, float32, contiguous(taps)), stride, padding, dilation, 1, transposed, output_padding
    )
    assume(min(node.shape) > 0)
    return node


def place_in(coordinates: Sequence[int], pitches: Sequence[int]) -> int:
    return sum(i * pitch for i, pitch in zip(coordinates, pitches, strict=True))


def reads(shape: ConvShape) -> dict[int, list[tuple[int, int]]]:
    """Of every place of a plane: where in memory its inputs and their weights lie, in the order of the taps."""
    found: dict[int, list[tuple[int, int]]] = {}
    for phase in shape.phases:
        for q in itertools.product(*(range(axis.count) for axis in phase.axes)):
            d, h, w = (a.y_first + i * a.y_step for a, i in zip(phase.axes, q, strict=True))
            pairs = []
            for taps in itertools.product(*(range(axis.taps) for axis in phase.axes)):
                steps = list(zip(phase.axes, q, taps, strict=True))
                at = [i * a.stride + a.x_first + t * a.x_step for a, i, t in steps]
                if all(0 <= p < n for p, n in zip(at, shape.x_space, strict=True)):
                    k = [a.k_first + t * a.k_step for a, _, t in steps]
                    pairs.append((place_in(at, shape.x_pitches[2:]), place_in(k, shape.w_pitches[3:])))
            found[(d * shape.y_space[1] + h) * shape.y_space[2] + w] = pairs
    return found


def from_fields(shape: ConvShape) -> dict[int, set[tuple[int, int]]]:
    """The same as `conv_direct` finds it: from kernel, strides, padding and dilation."""
    found: dict[int, set[tuple[int, int]]] = {n: set() for n in range(math.prod(shape.y_space))}
    axes = list(zip(shape.strides, shape.padding, shape.dilation, strict=True))
    walked = shape.x_space if shape.transposed else shape.y_space
    for place in itertools.product(*map(range, walked)):
        for k in itertools.product(*map(range, shape.kernel)):
            other = tuple(i * s - p + t * e for i, t, (s, p, e) in zip(place, k, axes, strict=True))
            x, y = (place, other) if shape.transposed else (other, place)
            both = [*zip(x, shape.x_space, strict=True), *zip(y, shape.y_space, strict=True)]
            if all(0 <= at < extent for at, extent in both):
                read = (place_in(x, shape.x_pitches[2:]), place_in(k, shape.w_pitches[3:]))
                found[(y[0] * shape.y_space[1] + y[1]) * shape.y_space[2] + y[2]].add(read)
    return found


def kernel_of(node: Conv) -> Kernel:
    assert isinstance(node.x, Input)
    assert isinstance(node.weight, Input)
    graph = Graph((node.x, node.weight), (node,), (), 0)
    (kernel,) = plan(graph, Routes(frozenset({node}), frozenset(), "tf32")).kernels
    return kernel


@settings(max_examples=300, deadline=None)
@given(merging())
def test_merged_rows_read_the_same_inputs_and_weights(node: Conv) -> None:
    kernel = kernel_of(node)
    before, after = spatial_shape(kernel), shape_of(kernel)
    expected = reads(before)
    assert reads(after) == expected
    assert from_fields(after) == {place: set(pairs) for place, pairs in expected.items()}
    assert math.prod(after.y_space) == math.prod(before.y_space)
    assert after.y_space[2] >= before.y_space[2]


def test_short_rows_become_long_ones() -> None:
    """Problem 59 of KernelBench's level 1: 3 x 3 x 1 on rows of 10."""
    held, taps = (16, 3, 256, 256, 10), (64, 3, 3, 3, 1)
    x, weight = (Input(n, i, s, float32, contiguous(s)) for i, (n, s) in enumerate((("x", held), ("weight", taps))))
    shape = shape_of(kernel_of(Conv(x, weight, (1, 1, 1), (0, 1, 0), (1, 1, 1), 1, False, (0, 0, 0))))
    assert (shape.x_space, shape.y_space) == ((1, 256, 2560), (1, 254, 2560))
    assert (shape.kernel, shape.padding, shape.dilation) == ((1, 3, 3), (0, 0, 10), (1, 1, 10))
    assert shape.x_pitches[2:] == (0, 2560, 1)
    assert shape.w_pitches[3:] == (0, 3, 1)
    last = shape.phases[0].axes[2]
    assert (last.count, last.taps, last.x_first, last.x_step, last.k_step) == (2560, 3, -10, 10, 1)


def test_long_rows_with_taps_across_them_stay_as_they_are() -> None:
    """A tile of one merged row would read two rows more than its own."""
    held, taps = (1, 8, 64, 64), (8, 8, 3, 1)
    x, weight = (Input(n, i, s, float32, contiguous(s)) for i, (n, s) in enumerate((("x", held), ("weight", taps))))
    kernel = kernel_of(Conv(x, weight, (1, 1), (1, 0), (1, 1), 1, False, (0, 0)))
    assert shape_of(kernel) == spatial_shape(kernel)
