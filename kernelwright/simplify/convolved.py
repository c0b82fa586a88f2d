"""Sums of a convolution's result over windows or over all of space, without the result.

A convolution is linear in its input. What a window sums of the result is a convolution again, with larger steps and
summed weights, and far fewer products; the sum over all of space is a product of sums of the input with the weight.
Each equation holds in real arithmetic for all operands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.ir.nodes import (
    Broadcast,
    Contract,
    Conv,
    Map,
    Node,
    Pad,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
    Windows,
)

# Where the result is needed for something else too: so many products may be computed for each of its elements rather
# than read it again. By arithmetic, not measured: a GPU reads an element of 4 bytes in the time of some 50 products.
MOST_PRODUCTS_AGAIN = 16
# And the input may be read again if the result has so many times its elements. Not measured.
LEAST_GROWTH = 2
# Inputs at each end of an axis that some taps have and others have not: each is a value that is added.
MOST_EDGES = 4


# --- windows


def pool_before_convolution(n: Node, uses: Counter[Node]) -> Node | None:
    """sum(windows(conv(x, w), k, s))  ->  conv(x, sum(windows(w)), stride s * t)  for a convolution of stride t

    sum(windows(conv_transpose(x, w), k, s))  ->  conv(x, sum(windows(w from its end)), stride s / t)  where t divides s

    Where an input is infinite and weights that are summed have both signs, PyTorch has NaN and this an infinity.
    """
    match n:
        case Reduce("sum", Windows(Conv() as conv) as windows, axes) if uses[windows] == 1:
            rank = len(conv.shape)
            floats = n.dtype.kind == "float" and not n.dtype.is_reduced_float
            trailing = axes == tuple(range(rank, len(windows.shape)))
            if not (floats and trailing and conv.groups == 1 and min(windows.axes) >= 2 and set(conv.dilation) == {1}):
                return None
            pool = window_of(windows)
            if leaves_gaps(conv, pool):
                return None
            pooled = (pooled_transposed if conv.transposed else pooled_plain)(conv, pool)
            if pooled is None or pooled.shape != windows.shape[:rank] or not is_worth_it(conv, pooled, uses):
                return None
            return Reshape(pooled, n.shape)
    return None


def is_worth_it(conv: Conv, pooled: Conv, uses: Counter[Node]) -> bool:
    fewer = products(pooled) < products(conv)
    return fewer and (uses[conv] == 1 or products(pooled) <= MOST_PRODUCTS_AGAIN * conv.size)


def products(n: Conv) -> int:
    """How many there are; those with a border of zeros included."""
    channels, taps = n.weight.shape[:2], math.prod(n.weight.shape[2:])
    return math.prod(channels) * taps * n.shape[0] * math.prod((n.x if n.transposed else n).shape[2:])


@dataclass(frozen=True, slots=True)
class Window:
    """Along one axis of space."""

    size: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        return (self.size - 1) * self.dilation


def window_of(windows: Windows) -> list[Window]:
    """Of each axis of space; one that is not pooled has a window of one place."""
    rows = zip(windows.window, windows.stride, windows.dilation, strict=True)
    known = dict(zip(windows.axes, rows, strict=True))
    return [Window(*known.get(axis, (1, 1, 1))) for axis in range(2, len(windows.x.shape))]


def leaves_gaps(n: Conv, pool: Sequence[Window]) -> bool:
    """Whether the pooled convolution would have taps between others that no output of a window has."""
    steps = [window.dilation * (1 if n.transposed else t) for window, t in zip(pool, n.stride, strict=True)]
    return any(window.size > 1 and s > k for window, s, k in zip(pool, steps, n.weight.shape[2:], strict=True))


def pooled_plain(n: Conv, pool: Sequence[Window]) -> Conv:
    """Output o reads x at o * t + k - p, so that a window from q * s on reads x at q * s * t + (j * d * t + k) - p."""
    steps = [window.dilation * t for window, t in zip(pool, n.stride, strict=True)]
    borders = [(window.size - 1) * step for window, step in zip(pool, steps, strict=True)]
    around = (0, 0, *borders)
    weight = summed_weight(Pad(n.weight, around, around, 0.0), pool, [1] * len(pool), steps)
    stride = tuple(window.stride * t for window, t in zip(pool, n.stride, strict=True))
    return Conv(n.x, weight, stride, n.padding, n.dilation, 1, False, (0,) * len(pool))


@dataclass(frozen=True, slots=True)
class Taps:
    """Along one axis: a window from output q * s on reads x at q * stride + m, for m from `first` on.

    In the weight from its end, the places that are summed for tap m start t after those of the tap before it; those of
    the first start at `start`, which may lie before the weight.
    """

    first: int
    count: int
    stride: int
    start: int
    length: int  # of all places of the weight that some tap sums, some outside it


def taps_of(window: Window, t: int, padding: int, kernel: int) -> Taps | None:
    """Input i adds to output i * t - p + k: i = (o + p - k) / t, where o = q * s + j * d.

    So m * t = j * d + p - k; k = kernel - 1 - u in the weight from its end.
    """
    if window.stride % t:
        return None
    first, last = -((kernel - 1 - padding) // t), (window.reach + padding) // t
    start = kernel - 1 - padding - window.reach + first * t
    count = last - first + 1
    return Taps(first, count, window.stride // t, start, (count - 1) * t + window.reach + 1) if count > 0 else None


def pooled_transposed(n: Conv, pool: Sequence[Window]) -> Conv | None:
    """A plain convolution; None where a phase has no part in it, or the windows start before x does at one end only."""
    sizes = zip(pool, n.stride, n.padding, n.weight.shape[2:], strict=True)
    found = [taps_of(*row) for row in sizes]
    taps = [row for row in found if row is not None]
    if len(taps) < len(pool):
        return None
    x = begun(n.x, [max(0, row.first) for row in taps])
    if x is None:
        return None
    turned = Permute(from_the_end(n.weight), (1, 0, *range(2, len(n.shape))))
    cut = stretch(turned, [row.start for row in taps], [row.length for row in taps])
    weight = summed_weight(cut, pool, n.stride, [window.dilation for window in pool])
    padding = tuple(max(0, -row.first) for row in taps)
    return Conv(x, weight, tuple(row.stride for row in taps), padding, n.dilation, 1, False, (0,) * len(pool))


def summed_weight(w: Node, pool: Sequence[Window], strides: Sequence[int], dilations: Sequence[int]) -> Node:
    axes = tuple(range(2, len(w.shape)))
    seen = Windows(w, axes, tuple(window.size for window in pool), tuple(strides), tuple(dilations))
    rank = len(w.shape)
    return Reshape(Reduce("sum", seen, tuple(range(rank, len(seen.shape)))), seen.shape[:rank])


def from_the_end(w: Node) -> Slice:
    """The weight with its taps turned round."""
    space = len(w.shape) - 2
    return Slice(w, (0, 0, *(e - 1 for e in w.shape[2:])), (1, 1, *(-1 for _ in range(space))), w.shape)


def begun(x: Node, first: Sequence[int]) -> Node | None:
    """x from these places of space on."""
    if not any(first):
        return x
    shape = (*x.shape[:2], *(e - f for e, f in zip(x.shape[2:], first, strict=True)))
    return Slice(x, (0, 0, *first), (1,) * len(shape), shape) if min(shape) > 0 else None


def stretch(w: Node, start: Sequence[int], length: Sequence[int]) -> Node:
    """Places of w from `start` on, along the axes of space; those outside of it are zeros."""
    extents = w.shape[2:]
    inside = [(max(0, s), min(e, s + n)) for s, n, e in zip(start, length, extents, strict=True)]
    shape = (*w.shape[:2], *(end - begin for begin, end in inside))
    before = (0, 0, *(begin - s for (begin, _), s in zip(inside, start, strict=True)))
    after = (0, 0, *(s + n - end for (_, end), s, n in zip(inside, start, length, strict=True)))
    cut = w if shape == w.shape else Slice(w, (0, 0, *(begin for begin, _ in inside)), (1,) * len(shape), shape)
    return Pad(cut, before, after, 0.0) if any((*before, *after)) else cut


# --- all of space


def convolved_sum(n: Conv, axes: Shape) -> Node | None:
    """sum_s(conv(x, w)[n, o, s]) = sum_ik(w[i, o, k] * sum(x[n, i] over the inputs that tap k has outputs for))

    Where all taps have all inputs, as without a border that is cut off, weights are summed too, and it is
    sum_i(sum_s(x[n, i, s]) * sum_k(w[i, o, k])).
    """
    space = tuple(range(2, len(n.shape)))
    if axes != space or n.groups != 1:
        return None
    ranges = [inputs_of_taps(n, axis) for axis in range(len(space))]
    if any(row is None for row in ranges):
        return None
    x, w = n.x, n.weight
    for axis, row in zip(space, ranges, strict=True):
        assert row is not None
        if len(set(row)) == 1:
            begin, end = row[0]
            x, w = summed(along(x, axis, begin, end), axis), summed(w, axis)
        else:
            x = summed_for_taps(x, axis, row)
    cut = [axis for axis in space if w.shape[axis] > 1]
    x, w = (Reshape(v, (*v.shape[:2], *(v.shape[axis] for axis in cut))) for v in (x, w))
    taps, order = "".join("defghk"[axis] for axis in cut), "io" if n.transposed else "oi"
    return Reshape(Contract(x, w, f"ni{taps},{order}{taps}->no"), (*n.shape[:2], *(1 for _ in space)))


def ends_in_statistics(n: Conv) -> Node:
    """What takes the place of a sum over space at the end of the convolution's kernel: those over images too."""
    return Reduce("deviations", n, (0, *range(2, len(n.shape))))


def inputs_of_taps(n: Conv, axis: int) -> list[tuple[int, int]] | None:
    """For each tap, which inputs it multiplies: from one on and up to another; None if they are not neighbours."""
    t, p, d, x, y = n.stride[axis], n.padding[axis], n.dilation[axis], n.x.shape[2 + axis], n.shape[2 + axis]
    ways = range(n.weight.shape[2 + axis])
    if n.transposed:
        ranges = [(max(0, -((k * d - p) // t)), min(x, (y - 1 + p - k * d) // t + 1)) for k in ways]
    elif t == 1:
        ranges = [(max(0, k * d - p), min(x, y - p + k * d)) for k in ways]
    else:
        return None
    begins, ends = zip(*ranges, strict=True)
    edges = max(begins) - min(begins), max(ends) - min(ends)
    return ranges if max(begins) < min(ends) and max(edges) <= MOST_EDGES else None


def summed_for_taps(x: Node, axis: int, ranges: Sequence[tuple[int, int]]) -> Node:
    """In place of the axis, one of taps: what all of them have, and each input that some have, for those."""
    begins, ends = zip(*ranges, strict=True)
    inner = summed(along(x, axis, max(begins), min(ends)), axis)
    shape = resized(x.shape, axis, len(ranges))
    total: Node = Broadcast(inner, shape)
    for place in (*range(min(begins), max(begins)), *range(min(ends), max(ends))):
        having = [k for k, (begin, end) in enumerate(ranges) if begin <= place < end]
        edge = Broadcast(along(x, axis, place, place + 1), resized(x.shape, axis, len(having)))
        before, after = (resized((0,) * len(shape), axis, e) for e in (having[0], len(ranges) - 1 - having[-1]))
        total = Map("add", (total, Pad(edge, before, after, 0.0)))
    return total


def along(x: Node, axis: int, begin: int, end: int) -> Node:
    if (begin, end) == (0, x.shape[axis]):
        return x
    start = resized((0,) * len(x.shape), axis, begin)
    return Slice(x, start, (1,) * len(x.shape), resized(x.shape, axis, end - begin))


def summed(x: Node, axis: int) -> Node:
    return Reduce("sum", x, (axis,))


def resized(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


USE_RULES = (pool_before_convolution,)
