"""Random graphs for property tests: hypothesis draws; graphs of every kind of node, and operands for them, come out.

A graph holds only what capture makes: 16-bit floats are computed in float32, floats are bounded before they become
integers, and no output is an old value of state that is updated. Results are either exact, so that any correct program
gives the same bits, or, behind a function that is not correctly rounded, `approximate`; of those nothing exact is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

from kernelwright.capture.indexing import along, along_indexed
from kernelwright.ir.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Graph,
    Group,
    Input,
    Iota,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    Permute,
    Reshape,
    Shape,
    Slice,
    Symbol,
    Table,
    TensorType,
    Update,
    View,
    walk,
)
from kernelwright.ir.scalars import SCALARS
from kernelwright.ir.text import graph_text

Draw = Callable[[st.SearchStrategy], object]

FLOATS = (float32, float16, bfloat16, float64)
INTS = (int32, int64, uint8, int8, int16)
DTYPES = (*FLOATS, *INTS, bool_)

# Small enough to run in no time; with 4096 and 16384 among the sizes, where planner and template change their ways.
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 40, 64)
MOST_ELEMENTS = 40_000


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Correctly rounded, so the same bits from any correct program. By kind: functions of one, two and three operands.
EXACT: dict[str, tuple[str, ...]] = {
    "float": words(
        "add sub mul div neg abs reciprocal minimum maximum fmin fmax floor ceil round trunc relu relu6 hardtanh "
        "leaky_relu threshold hardshrink softshrink nan_to_num identity eq lt ge isnan isfinite signbit logical_and "
        "logical_not"
    ),
    "int": words(
        "add sub mul neg abs sign minimum maximum relu hardtanh threshold bitwise_and bitwise_or bitwise_xor "
        "bitwise_not identity eq ne lt le gt ge logical_or logical_not"
    ),
    "bool": words(
        "logical_and logical_or logical_xor logical_not eq ne bitwise_and bitwise_xor add mul maximum identity"
    ),
}
INEXACT = words("exp tanh sigmoid gelu_erf gelu_tanh silu log1p erf sin expm1 hardswish mish softsign sqrt")

# On 16-bit floats these work directly; others in float32, rounded once.
UNROUNDED = frozenset(
    words("identity where minimum maximum eq ne lt le gt ge isnan isinf isfinite signbit relu neg abs")
)

# Of the operators that PyTorch runs, those that add floats up.
SUMMING = ("aten.sum.dim_IntList", "aten.softmax.int")

# Of the operators that PyTorch runs, those whose result lies in the memory of their operand.
GIVES_A_VIEW = ("aten.diagonal.default", "aten.unfold.default")

# What may follow an approximate value: relative errors stay what they are.
GENTLE = ("neg", "abs", "identity", "relu")


FLOAT_CONSTANTS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 3.7, -6.0, 1e-3, math.inf, -math.inf, math.nan)


@dataclass
class Builder:
    """A graph under construction: `pool` is every value so far."""

    draw: Draw
    pool: list[Node] = field(default_factory=list)
    approximate: set[Node] = field(default_factory=set)
    inputs: list[Input] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    draws: int = 0
    wild: bool = False  # for graphs that are planned and not run

    def choose(self, options: Sequence[object]) -> object:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        value = self.draw(st.integers(low, high))
        assert isinstance(value, int)
        return value

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def add(self, node: Node, approximate: bool = False) -> Node:
        if approximate:
            self.approximate.add(node)
        if node not in self.pool:
            self.pool.append(node)
        return node

    # --- leaves

    def shape(self) -> Shape:
        rank = self.number(0, 4)
        extents: list[int] = []
        for _ in range(rank):
            fitting = [n for n in EXTENTS if n * math.prod(extents) <= MOST_ELEMENTS]
            extents.append(self.choose(fitting))  # type: ignore[arg-type]
        if self.chance(5) and extents:  # a size above those at which planner and template change their ways
            wished = self.choose((4097, 4100, 6000, 16385, 20000))
            assert isinstance(wished, int)
            others = math.prod(extents[1:])
            extents[0] = max(1, wished // others)
        return tuple(extents)

    def broadcast_of(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`."""
        kept = self.number(0, len(shape))
        return tuple(1 if self.chance(3) else n for n in shape[len(shape) - kept :])

    def leaf(self, shape: Shape, dtype: DType) -> Node:
        strides = self.strides(shape)
        if self.chance(3):
            node: Node = Param(f"p{len(self.params)}", shape, dtype, strides)
            assert isinstance(node, Param)
            self.params.append(node)
        else:
            node = Input(f"x{len(self.inputs)}", len(self.inputs), shape, dtype, strides)
            assert isinstance(node, Input)
            self.inputs.append(node)
        return self.add(node)

    def strides(self, shape: Shape) -> Shape:
        """Dense mostly; else permuted, with gaps, or repeating an axis."""
        dense = row_major(shape)
        if not shape or not self.chance(4):
            return dense
        order = self.draw(st.permutations(range(len(shape))))
        assert isinstance(order, list)
        gap = self.number(1, 3)
        inner = row_major(tuple(shape[axis] for axis in order))
        strides = [0] * len(shape)
        for place, axis in enumerate(order):
            strides[axis] = inner[place] * gap
        if self.chance(4):
            strides[self.number(0, len(shape) - 1)] = 0
        return tuple(strides)

    def constant(self, dtype: DType) -> Const:
        match dtype.kind:
            case "float":
                value = self.choose(FLOAT_CONSTANTS)
                return Const(value, dtype)  # type: ignore[arg-type]
            case "int":
                return Const(self.number(0 if dtype.lowest == 0 else -9, 9), dtype)
        return Const(self.chance(2), dtype)

    # --- finding and fitting operands

    def exact_value(self) -> Node:
        fitting = [n for n in self.pool if n not in self.approximate]
        # The youngest are taken more often, so that chains grow.
        recent = fitting[-3:] if self.chance(2) else fitting
        node = self.choose(recent)
        assert isinstance(node, Node)
        return node

    def operand(self, shape: Shape, dtype: DType) -> Node:
        """Something of this dtype that a Map over this shape may take."""
        kind = self.number(0, 5)
        if kind == 0:
            return self.constant(dtype)
        if kind == 1:
            small = self.leaf(self.broadcast_of(shape), dtype)
            return small if small.shape in ((), shape) else Broadcast(small, shape)
        fitting = [f for n in self.pool if n not in self.approximate if (f := fitted(n, shape)) is not None]
        if not fitting or kind == 2:
            return self.leaf(shape, dtype)
        picked = self.choose(fitting)
        assert isinstance(picked, Node)
        return self.cast(picked, dtype)

    def cast(self, x: Node, to: DType) -> Node:
        if x.dtype is to:
            return x
        if x.dtype.kind == "float" and to.kind == "int":
            # Out of range, a cast to an integer is undefined in C++ and in PyTorch.
            wide = self.cast(x, float32) if x.dtype.is_reduced_float else x
            zero = Const(0.0, wide.dtype)
            finite = Map("nan_to_num", (wide, zero, zero, zero))
            low = 0.0 if to.lowest == 0 else -99.0
            x = Map("hardtanh", (finite, Const(low, wide.dtype), Const(99.0, wide.dtype)))
        return Map("cast", (x,), to)

    # --- one more node

    def grow(self) -> None:
        step = self.choose(
            (
                *(self.map, self.map, self.map, self.map, self.map, self.choice, self.view, self.view, self.conversion),
                *(self.reduction, self.opaque, self.inexact, self.gentle, self.random, self.contraction, self.scalar),
                *(self.concatenation, self.picking, self.picking),
            )
        )
        assert callable(step)
        step()

    def map(self) -> None:
        x = self.exact_value()
        fn = self.choose(EXACT[x.dtype.kind])
        assert isinstance(fn, str)
        self.add(self.applied(fn, x))

    def applied(self, fn: str, x: Node) -> Node:
        dtype = x.dtype
        compute = float32 if dtype.is_reduced_float and fn not in UNROUNDED else dtype
        args = [self.cast(x, compute)]
        for place in range(1, SCALARS[fn].arity):
            if fn in ATTRIBUTED:
                args.append(self.attribute(fn, place, compute))
            else:
                args.append(self.operand(x.shape, compute) if x.shape else self.constant(compute))
        if self.chance(4) and fn not in ATTRIBUTED:
            args.reverse()
        result = Map(fn, tuple(args))
        if result.shape != x.shape:  # every operand was a scalar, as capture would not have it
            result = Map(fn, (Broadcast(args[0], x.shape), *args[1:]))
        return result if result.dtype is bool_ else self.cast(result, dtype) if compute is not dtype else result

    def attribute(self, fn: str, place: int, dtype: DType) -> Const:
        low, high = (-1.5, 2.5) if dtype.kind == "float" else (-1 if dtype.lowest else 0, 3)
        return Const(low if place == 1 and fn in ("hardtanh", "threshold") else high, dtype)

    def choice(self) -> None:
        """where(condition, a, b)"""
        x = self.exact_value()
        if not x.shape:
            return
        condition = self.operand(x.shape, bool_)
        self.add(Map("where", (condition, x, self.operand(x.shape, x.dtype))))

    def conversion(self) -> None:
        x = self.exact_value()
        to = self.choose(DTYPES)
        assert isinstance(to, DType)
        self.add(self.cast(x, to))

    def view(self) -> None:
        node = self.choose(self.pool[-6:])
        assert isinstance(node, Node)
        self.add(self.seen_otherwise(node), approximate=node in self.approximate)

    def seen_otherwise(self, x: Node) -> Node:
        kind = self.number(0, 3)
        if kind == 0 and x.shape:
            order = self.draw(st.permutations(range(len(x.shape))))
            assert isinstance(order, list)
            return Permute(x, tuple(order))
        if kind == 1 and x.shape:
            return self.sliced(x)
        if kind == 2:
            return Reshape(x, self.factored(x.size))
        grown = tuple(self.choose((2, 3)) if n == 1 else n for n in x.shape)  # type: ignore[misc]
        shape: Shape = (self.number(1, 3), *grown) if self.chance(2) else grown
        return Broadcast(x, shape) if math.prod(shape) <= MOST_ELEMENTS and shape != x.shape else x

    def sliced(self, x: Node) -> Node:
        starts, steps, extents = [], [], []
        for whole in x.shape:
            if self.chance(2) or whole == 1:
                starts.append(0), steps.append(1), extents.append(whole)
                continue
            start = self.number(0, min(3, whole - 1))
            step = self.number(1, 3)
            most = (whole - start + step - 1) // step
            extent = max(1, most - self.number(0, 2))
            if self.chance(4):
                start, step = start + step * (extent - 1), -step
            starts.append(start), steps.append(step), extents.append(extent)
        if tuple(extents) == x.shape and min(steps) > 0:
            return x
        return Slice(x, tuple(starts), tuple(steps), tuple(extents))

    def factored(self, size: int) -> Shape:
        shape: list[int] = []
        while size > 1 and len(shape) < 3:
            divisors = [d for d in range(2, min(size, 64) + 1) if size % d == 0] or [size]
            divisor = self.choose(divisors)
            assert isinstance(divisor, int)
            shape.append(divisor)
            size //= divisor
        if size > 1:
            shape.append(size)
        if self.chance(4):
            shape.insert(self.number(0, len(shape)), 1)
        return tuple(self.draw(st.permutations(shape))) if shape else ()  # type: ignore[arg-type]

    def scalar(self) -> None:
        """A value of rank 0, or a small table."""
        dtype = self.choose(DTYPES)
        assert isinstance(dtype, DType)
        if self.chance(2):
            self.leaf((), dtype)
        else:
            length = self.number(1, 4)
            values = tuple(self.constant(dtype).value for _ in range(length))
            self.add(Table(values, (length,), dtype))

    # --- what PyTorch runs

    def reduction(self) -> None:
        """Over one axis or all; those of exact values whose result does not depend on the order."""
        x = self.exact_value()
        if not x.shape:
            return
        axis = self.number(0, len(x.shape) - 1)
        keep = self.chance(2)
        axes = tuple(range(len(x.shape))) if self.chance(3) else (axis,)
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
        if x.dtype.kind == "bool":
            self.add(Opaque("aten.any.dims", (x, axes, keep), (), (TensorType(shape, bool_),)))
        elif x.dtype.kind == "int":
            self.add(Opaque("aten.sum.dim_IntList", (x, axes, keep), (), (TensorType(shape, int64),)))
        elif self.chance(2):
            self.add(Opaque("aten.amax.default", (x, axes, keep), (), (TensorType(shape, x.dtype),)))
        else:
            bounded = self.bounded(x)
            total = Opaque("aten.sum.dim_IntList", (bounded, axes, keep), (), (TensorType(shape, bounded.dtype),))
            self.add(total, approximate=True)

    def bounded(self, x: Node) -> Node:
        """x between 0.25 and 4 in at least float32: sums of such lose nothing."""
        wide = self.cast(x, float32) if x.dtype.is_reduced_float else x
        return Map("hardtanh", (wide, Const(0.25, wide.dtype), Const(4.0, wide.dtype)))

    def opaque(self) -> None:
        x = self.exact_value()
        if not x.shape or x.dtype.kind == "bool":
            return
        axis = self.number(0, len(x.shape) - 1)
        type_ = TensorType(x.shape, x.dtype)
        kind = self.choose(("flip", "sort", "cummax", "softmax", "diagonal", "unfold", "roll", "cumsum"))
        if kind == "flip":
            self.add(Opaque("aten.flip.default", (x, (axis,)), (), (type_,)))
        elif kind == "roll":
            self.add(Opaque("aten.roll.default", (x, (1,), (axis,)), (), (type_,)))
        elif kind == "sort":
            sort = Opaque(
                "aten.sort.stable", (x,), (("stable", True), ("dim", axis)), (type_, TensorType(x.shape, int64))
            )
            self.add(Item(sort, 0))
            if self.chance(2):
                self.add(Item(sort, 1))
        elif kind == "cummax":
            both = Opaque("aten.cummax.default", (x, axis), (), (type_, TensorType(x.shape, int64)))
            self.add(Item(both, self.number(0, 1)))
        elif kind == "softmax" and x.dtype.kind == "float":
            bounded = self.bounded(x)
            self.add(Opaque("aten.softmax.int", (bounded, axis), (), (TensorType(x.shape, bounded.dtype),)), True)
        elif kind == "cumsum" and x.dtype.kind == "int":
            self.add(Opaque("aten.cumsum.default", (x, axis), (), (TensorType(x.shape, int64),)))
        elif kind == "diagonal" and len(x.shape) >= 2:
            length = min(x.shape[0], x.shape[1])
            shape = (*x.shape[2:], length)
            self.add(Opaque("aten.diagonal.default", (x,), (), (TensorType(shape, x.dtype),)))
        elif kind == "unfold" and x.shape[axis] >= 2 and 2 * x.size <= MOST_ELEMENTS:
            step = self.number(1, 2)
            rest = tuple((n - 2) // step + 1 if i == axis else n for i, n in enumerate(x.shape))
            self.add(Opaque("aten.unfold.default", (x, axis, 2, step), (), (TensorType((*rest, 2), x.dtype),)))

    def concatenation(self) -> None:
        """Parts of one value, each through some function, put side by side."""
        x = self.exact_value()
        if not x.shape or x.size > MOST_ELEMENTS // 3:
            return
        axis = self.number(0, len(x.shape) - 1)
        parts: list[Node] = []
        for _ in range(self.number(2, 3)):
            extent = self.number(1, x.shape[axis])
            shape = tuple(extent if i == axis else n for i, n in enumerate(x.shape))
            zeros, ones = (0,) * len(shape), (1,) * len(shape)
            part = x if shape == x.shape else Slice(x, zeros, ones, shape)
            fn = self.choose(EXACT[x.dtype.kind])
            assert isinstance(fn, str)
            parts.append(self.cast(self.applied(fn, part), x.dtype) if not self.chance(5) else part)
        total = sum(part.shape[axis] for part in parts)
        shape = tuple(total if i == axis else n for i, n in enumerate(x.shape))
        place = axis - len(shape) if self.chance(2) else axis
        self.add(Opaque("aten.cat.default", (tuple(parts), place), (), (TensorType(shape, x.dtype),)))

    def picking(self) -> None:
        """Elements of a value by index: whole slices, or one for each place; now and then the index is past the end."""
        x = self.exact_value()
        if not x.shape:
            return
        axis = self.number(0, len(x.shape) - 1)
        if self.chance(2):
            length = self.number(1, 5)
            shape = tuple(length if i == axis else n for i, n in enumerate(x.shape))
            if math.prod(shape) <= MOST_ELEMENTS:
                vector = Iota(length) if self.chance(3) else self.leaf((length,), self.index_dtype())
                self.add(along(x, {axis: self.within(vector, x.shape[axis])}))
        else:
            index = self.operand(x.shape, self.index_dtype())
            index = index if index.shape else Broadcast(index, x.shape)
            self.add(along_indexed(x, axis, self.within(index, x.shape[axis])))

    def index_dtype(self) -> DType:
        dtype = self.choose((int64, int32))
        assert isinstance(dtype, DType)
        return dtype

    def within(self, index: Node, extent: int) -> Node:
        low = Const(self.choose((0, 0, -1)), index.dtype)  # type: ignore[arg-type]
        return Map("hardtanh", (index, low, Const(extent - 1 + self.chance(4), index.dtype)))

    def contraction(self) -> None:
        """x times a matrix, perhaps with a bias, of values in whose sums nothing cancels; any values, if `wild`."""
        x = self.exact_value()
        if x.dtype is not float32 or not 1 <= len(x.shape) <= 3 or x.size > 4000:
            return
        columns, k = self.number(1, 5), x.shape[-1]
        leaf = self.leaf((columns, k), float32)
        weight: Node = leaf if self.wild else self.bounded(leaf)
        rows = "abc"[: len(x.shape) - 1]
        turned = self.chance(3)
        matrix = Permute(weight, (1, 0)) if turned else weight
        equation = f"{rows}k,{'kz' if turned else 'zk'}->{rows}z"
        product: Node = Contract(x if self.wild else self.bounded(x), matrix, equation)
        if self.chance(2):
            bias = self.bounded(self.leaf((columns,), float32))
            wide = bias if bias.shape == product.shape else Broadcast(bias, product.shape)
            product = Map("add", (product, wide))
        self.add(product, approximate=True)

    def inexact(self) -> None:
        x = self.exact_value()
        if x.dtype.kind != "float":
            return
        fn = self.choose(INEXACT)
        assert isinstance(fn, str)
        compute = float32 if x.dtype.is_reduced_float else x.dtype
        # Far out PyTorch's own gelu loses most of its digits: what these give there is a matter of their own tests.
        tame = Map("hardtanh", (self.cast(x, compute), Const(-2.0, compute), Const(2.0, compute)))
        self.add(self.cast(Map(fn, (tame,)), x.dtype), approximate=True)

    def gentle(self) -> None:
        fitting = [n for n in self.pool if n in self.approximate]
        if fitting:
            x = self.choose(fitting)
            fn = self.choose(GENTLE)
            assert isinstance(x, Node)
            assert isinstance(fn, str)
            self.add(Map(fn, (x,)), approximate=True)

    def random(self) -> None:
        shape = self.exact_value().shape
        kwargs = (("dtype", Symbol("torch.float32")), ("device", Symbol("device")))
        self.add(Opaque("aten.rand.default", (shape,), kwargs, (TensorType(shape, float32),), self.draws))
        self.draws += 1

    # --- the whole

    def finished(self) -> Graph:
        updates = self.updates()
        targets = {u.target for u in updates}
        outputs: list[Node] = []
        made = [n for n in self.pool if not isinstance(n, (Input, Param, Table))] or self.pool
        for _ in range(self.number(1, 4)):
            node = self.choose(made[-4:] if self.chance(2) else self.pool)
            assert isinstance(node, Node)
            if memory_of(node) & targets or isinstance(base(node), (Const, Table)) or node in outputs:
                node = Map("identity", (node,))
            if node not in outputs:
                outputs.append(node)
        structure = Group("tuple", tuple(range(len(outputs))))
        return Graph(tuple(self.inputs), tuple(outputs), tuple(updates), structure)

    def updates(self) -> list[Update]:
        """New values for some of the leaves."""
        updates: list[Update] = []
        for target in (*self.params, *self.inputs):
            overlapping = any(stride == 0 and n > 1 for n, stride in zip(target.shape, target.strides, strict=True))
            if overlapping or not self.chance(4):
                continue
            fitting = [f for n in self.pool if n not in self.approximate if (f := fitted(n, target.shape)) is not None]
            value = self.choose(fitting[-4:])
            assert isinstance(value, Node)
            wide = value if value.shape == target.shape else Broadcast(value, target.shape)
            updates.append(Update(target, self.cast(wide, target.dtype)))
        return [u for u in updates if u.value is not u.target]


ATTRIBUTED = frozenset(words("leaky_relu threshold hardtanh hardshrink softshrink nan_to_num"))


class Case:
    """A graph, shown as text."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __repr__(self) -> str:
        return "\n" + graph_text(self.graph)


@st.composite
def graphs(draw: Draw, most_steps: int = 16, wild: bool = False) -> Case:
    builder = Builder(draw, wild=wild)
    shape = builder.shape()
    for _ in range(builder.number(1, 3)):
        dtype = builder.choose((*DTYPES, float32, float32, float32))
        assert isinstance(dtype, DType)
        builder.leaf(shape if builder.chance(2) else builder.broadcast_of(shape), dtype)
    for _ in range(builder.number(1, most_steps)):
        builder.grow()
    return Case(builder.finished())


def is_approximate(node: Node) -> bool:
    """Whether correct programs may differ: behind functions that are not correctly rounded, and sums of floats."""
    return any(
        isinstance(n, Contract)
        or (isinstance(n, Map) and (n.fn in INEXACT or not SCALARS[n.fn].exact))
        or (isinstance(n, Opaque) and n.target in SUMMING and n.results[0] is not None and n.dtype.kind == "float")
        for n in walk((node,))
    )


def base(node: Node) -> Node:
    while isinstance(node, View):
        node = node.x
    return node


def memory_of(node: Node) -> set[Node]:
    """The leaves whose memory a value may lie in: through views, and through operators that give views."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        current = base(pending.pop())
        if isinstance(current, Opaque) and current.target in GIVES_A_VIEW:
            pending += current.operands
        elif isinstance(current, (Input, Param)):
            found.add(current)
    return found


def fitted(x: Node, shape: Shape) -> Node | None:
    """x as an operand of a Map over this shape, if views can make it one."""
    if x.shape in ((), shape):
        return x
    lead = len(shape) - len(x.shape)
    if lead >= 0 and all(have in (1, want) for have, want in zip(x.shape, shape[lead:], strict=True)):
        return Broadcast(x, shape)
    if x.size == math.prod(shape):
        return Reshape(x, shape)
    if lead == 0 and all(have >= want for have, want in zip(x.shape, shape, strict=True)):
        return Slice(x, tuple(h - w for h, w in zip(x.shape, shape, strict=True)), (1,) * len(shape), shape)
    return None


def row_major(shape: Shape) -> Shape:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


# --- operands


def tensor_for(leaf: Input | Param, seed: int) -> torch.Tensor:
    """Values of the leaf's dtype, at its strides: plain numbers, among them NaN, infinities and both zeros."""
    generator = torch.Generator().manual_seed(seed)
    reach = 1 + sum((n - 1) * s for n, s in zip(leaf.shape, leaf.strides, strict=True))
    return values(leaf.dtype, reach, generator).as_strided(leaf.shape, leaf.strides)


def values(dtype: DType, count: int, generator: torch.Generator) -> torch.Tensor:
    kind = dtype.to_torch()
    if dtype.kind == "bool":
        return torch.rand(count, generator=generator) < 0.5
    if dtype.kind == "int":
        small = torch.randint(-20 if dtype.lowest else 0, 21, (count,), generator=generator)
        wild = torch.randint(-(2**62), 2**62, (count,), generator=generator)
        return torch.where(torch.rand(count, generator=generator) < 0.1, wild, small).to(kind)
    plain = torch.randn(count, generator=generator, dtype=torch.float64) * 3
    finite = torch.finfo(kind)
    special = torch.tensor(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            math.inf,
            -math.inf,
            math.nan,
            finite.max,
            finite.tiny,
            finite.tiny * finite.eps,
            1e4,
        ],
        dtype=torch.float64,
    )
    picked = special[torch.randint(0, len(special), (count,), generator=generator)]
    return torch.where(torch.rand(count, generator=generator) < 0.15, picked, plain).to(kind)


def operands_for(graph: Graph) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Fresh inputs and state for one run; the same every time."""
    leaves = [*graph.inputs, *(n for n in all_nodes(graph) if isinstance(n, Param))]
    inputs = [tensor_for(leaf, 100 + leaf.position) for leaf in graph.inputs]
    state = {leaf.path: tensor_for(leaf, 1000 + int(leaf.path[1:])) for leaf in leaves if isinstance(leaf, Param)}
    return inputs, state


def all_nodes(graph: Graph) -> tuple[Node, ...]:
    """Every node, and the leaves that are written but not read."""
    return tuple(walk((*graph.roots, *(u.target for u in graph.updates))))
