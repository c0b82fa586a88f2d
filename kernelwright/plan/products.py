"""A `Contract` comes in; the matrix product that it is, with its operands as rows along k, goes out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.ir.nodes import Contract, Node
from kernelwright.plan.steps import Layout, Region


@dataclass(frozen=True, slots=True)
class Form:
    """Which index letters are batches, rows, columns and summed; `a` gives the rows and `w` the columns."""

    a: Node
    w: Node
    a_labels: str
    w_labels: str
    batch: str
    rows: str
    columns: str
    summed: str


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand as [batches, rows, k] in a buffer: one pitch for each, in elements; batch_pitch 0 if all share it."""

    layout: Layout
    batch_pitch: int
    row_pitch: int
    k_pitch: int


@dataclass(frozen=True, slots=True)
class Product:
    """C[b, m, n] = sum over k of a[b, m, k] * w[b, n, k]; the core of a kernel.

    constant   w is a parameter
    precision  what it may round its operands to, as in Routes
    routed     the node that routes name: this one, or the call that it was part of
    of_a, of_w what is computed of a or w before it is multiplied, over [batches..., rows..., k]; None: it is as it lies
    """

    node: Contract
    batches: int
    m: int
    n: int
    k: int
    a: Matrix
    w: Matrix
    constant: bool
    precision: str
    routed: Node
    of_a: Region | None = None
    of_w: Region | None = None

    @property
    def prologues(self) -> tuple[Region, ...]:
        return tuple(region for region in (self.of_a, self.of_w) if region is not None)

    @property
    def flops(self) -> int:
        return 2 * self.batches * self.m * self.n * self.k

    @property
    def bytes_read(self) -> int:
        beside = sum(region.bytes_moved for region in self.prologues)
        return self.a.layout.touched_bytes + self.w.layout.touched_bytes + beside


def form_of(node: Contract) -> Form | None:
    """The product's form, if its result lies as batches of rows of one axis of columns, in either order of operands."""
    a, b, result = node.labels
    return read_form(node.a, node.b, a, b, result) or read_form(node.b, node.a, b, a, result)


def read_form(a: Node, w: Node, a_labels: str, w_labels: str, result: str) -> Form | None:
    both = set(a_labels) & set(w_labels)
    batch = "".join(x for x in result if x in both)
    rows = "".join(x for x in result if x in set(a_labels) - both)
    columns = "".join(x for x in result if x in set(w_labels) - both)
    summed = "".join(x for x in a_labels if x in both and x not in result)
    complete = set(a_labels) == set(batch + rows + summed) and set(w_labels) == set(batch + columns + summed)
    if result != batch + rows + columns or not summed or len(columns) != 1 or not complete:
        return None
    return Form(a, w, a_labels, w_labels, batch, rows, columns, summed)


def matrix_of(layout: Layout, labels: str, batch: str, rows: str, summed: str) -> Matrix | None:
    """The operand with each group of letters walked through by one stride; None if some group is not, or if an element
    is repeated along k, which no template reads."""
    axes = dict(zip(labels, zip(layout.shape, layout.strides, strict=True), strict=True))
    pitches = [pitch_of([axes[label] for label in group]) for group in (batch, rows, summed)]
    repeated = any(extent > 1 and stride == 0 for extent, stride in (axes[label] for label in summed))
    if None in pitches or repeated:
        return None
    batch_pitch, row_pitch, k_pitch = (p for p in pitches if p is not None)
    return Matrix(layout, batch_pitch, row_pitch, k_pitch)


def pitch_of(axes: list[tuple[int, int]]) -> int | None:
    """The one stride of several axes, outermost first."""
    axes = [(extent, stride) for extent, stride in axes if extent > 1]
    if not axes:
        return 0
    pitch = axes[-1][1]
    expected = pitch
    for extent, stride in reversed(axes):
        if stride != expected:
            return None
        expected = stride * extent
    return pitch


def extent_of(node: Contract, labels: str) -> int:
    extents = node.extents
    return math.prod(extents[label] for label in labels)
