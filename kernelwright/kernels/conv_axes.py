"""A `ConvShape` comes in; the same convolution with rows as long as its kernel and memory allow goes out.

An axis of one tap that moves nothing merges with the axis before it, if that has no stride: of (h, w) with W columns,
the output (q, c) lies at q * W + c, and its tap j reads the input at (q + x_first + j * x_step) * W + c. So all steps
along h are W times as long. What lies outside along h lies before the first place of all or behind the last one, and
nothing else does, for column c is always inside. The sums are of the same products, in the same order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from kernelwright.kernels.conv_shape import SINGLE, ConvShape
from kernelwright.plan.convolutions import Axis, Phase

T = TypeVar("T")

# Rows that fill tiles badly, and the most inputs between the first and the last tap of a place where they are merged.
# Of one channel a group rows must be shorter: a thread of conv_direct reads an input once for all its rows. By prices.
SHORT_ROW, SHORT_ROW_OF_ONE, MOST_BETWEEN = 24, 5, 64
# With a stride along w some templates do not take few channels: a column must be longer than this to be worth a row.
SHORT_COLUMN = 256


def with_longer_rows(shape: ConvShape) -> ConvShape:
    """With the last axis merged with those before it, as far as that can be and is worth it."""
    while can_be_joined(shape) and is_worth_it(shape):
        shape = joined(shape)
    return shape


def can_be_joined(shape: ConvShape) -> bool:
    """Whether the last two axes are one: in the convolution, and in the memory of its input."""
    extent, (*_, h_pitch, w_pitch) = shape.x_space[2], shape.x_pitches
    still = shape.kernel[2] == shape.strides[2] == 1 and shape.padding[2] == 0 and shape.y_space[2] == extent
    if not still or extent == 1:
        return still  # nothing but the other axis is left, whatever its strides
    return shape.strides[1] == 1 and (shape.x_space[1] == 1 or h_pitch == extent * w_pitch)


def is_worth_it(shape: ConvShape) -> bool:
    """Whether rows become longer, and no tile has to read much more beside its own places than it does now.

    A row that is merged with those around it has them between its taps. Where there is only one tap along h that is
    nothing, and where rows are short it is less than what tiles that are wider than a row, or many rows high, lose.
    """
    extent, between = shape.x_space[2], (shape.kernel[1] - 1) * shape.dilation[1] * shape.x_space[2]
    longer = math.prod(shape.y_space[:2]) > 1 and (shape.stride(1) == 1 or shape.y_space[1] > SHORT_COLUMN)
    short = extent <= (SHORT_ROW_OF_ONE if shape.channels == 1 else SHORT_ROW)
    return longer and (extent == 1 or between == 0 or (short and between <= MOST_BETWEEN))


def joined(shape: ConvShape) -> ConvShape:
    """With one axis instead of the last two; the one before them is next to it."""
    extent, (*_, h_pitch, w_pitch) = shape.x_space[2], shape.x_pitches
    one_tap = set(shape.kernel) == {1}  # no step is taken in the weight
    pointwise = one_tap and set(shape.strides) == {1} and not any(shape.padding)  # the same whether transposed or not

    def pushed(space: tuple[T, ...], both: T, missing: T) -> tuple[T, ...]:
        return (missing, space[0], both)

    w_pitches = (*shape.w_pitches[:3], *pushed(shape.w_pitches[3:], shape.w_pitches[4], 0))
    return replace(
        shape,
        x_space=pushed(shape.x_space, shape.x_space[1] * extent, 1),
        y_space=pushed(shape.y_space, shape.y_space[1] * extent, 1),
        x_pitches=(*shape.x_pitches[:2], *pushed(shape.x_pitches[2:], h_pitch if extent == 1 else w_pitch, 0)),
        w_pitches=shape.w_pitches if one_tap else w_pitches,
        transposed=shape.transposed and not pointwise,
        kernel=pushed(shape.kernel, shape.kernel[1], 1),
        strides=pushed(shape.strides, shape.strides[1], 1),
        padding=pushed(shape.padding, shape.padding[1] * extent, 0),
        dilation=pushed(shape.dilation, shape.dilation[1] * extent if shape.kernel[1] > 1 else 1, 1),
        phases=tuple(Phase(pushed(phase.axes, spread(phase.axes[1], extent), SINGLE)) for phase in shape.phases),
    )


def spread(axis: Axis, extent: int) -> Axis:
    """So many neighbours of each place, of which each reads those that are as many apart."""
    step = axis.x_step * extent if axis.taps > 1 else axis.x_step
    return replace(axis, count=axis.count * extent, x_first=axis.x_first * extent, x_step=step)
