"""The intermediate representation on one page: every node a graph can hold, and the graph itself.

    leaf      Input          a tensor argument of forward()
              Param          a parameter, buffer or tensor attribute of the model, by its dotted path
              Const          one scalar
              Table          a small constant tensor written in forward()
              Iota           0, 1, 2, ...
    compute   Map            one scalar function (scalars.py) on operands of one shape; rank-0 operands are spread
              Reduce         one reduction (reductions.py) over some axes, which stay with extent 1
              Scan           the reductions of all beginnings of an axis: a running sum, product or extreme
              Contract       a sum of products of two tensors, as an einsum equation
              Conv           a convolution without its bias
              Gather         elements picked by computed indices
              Opaque         a PyTorch operator we do not look into; it runs in PyTorch
              Item           one of the results of an Opaque
    view      Reshape Permute Broadcast Slice    the same elements, seen another way
              Pad            a border of one number around them
              Windows        the elements under each position of a sliding window

Nodes are values: frozen, and interned, so that equal nodes are one object and common subexpressions cost nothing.
Every node knows its shape and dtype. Values have no strides: where a value lies in memory is the planner's matter.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform
from weakref import WeakValueDictionary

from .dtypes import DType, bool_, float32, int64
from .reductions import REDUCTIONS
from .scalars import SCALARS

Shape: TypeAlias = tuple[int, ...]
# What an operator of PyTorch takes besides tensors, frozen: lists are tuples here.
Argument: TypeAlias = "Node | bool | int | float | complex | str | Symbol | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A torch constant that is not a number (a dtype, a layout, a device), by the text that names it."""

    text: str


@dataclass(frozen=True, slots=True)
class TensorType:
    """The shape and dtype of one result."""

    shape: Shape
    dtype: DType


def identity_key(value: object) -> object:
    """What makes two field values the same: type and bits, since 0.0 is not -0.0, 1 is not True and NaN is itself."""
    if isinstance(value, float):
        return (float, struct.pack("<d", value))
    if isinstance(value, complex):
        return (complex, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, (bool, int)):
        return (type(value), value)
    if isinstance(value, tuple):
        return tuple(identity_key(item) for item in value)
    return value


class Interned(type):
    """Makes equal constructor calls return one object, so that `is` compares whole expressions."""

    _known: ClassVar[WeakValueDictionary[object, Any]] = WeakValueDictionary()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        fresh = super().__call__(*args, **kwargs)
        key = (cls, *(identity_key(getattr(fresh, f.name)) for f in fields(fresh) if f.init))
        return Interned._known.setdefault(key, fresh)


@dataclass_transform(frozen_default=True, eq_default=False)
class Node(metaclass=Interned):
    """One value of the graph."""

    __slots__ = ("__weakref__",)

    if TYPE_CHECKING:  # at run time a property here would become the default of a field of that name

        @property
        def shape(self) -> Shape: ...

        @property
        def dtype(self) -> DType: ...

    @property
    def operands(self) -> tuple[Node, ...]:
        """The nodes this one is computed from, in order."""
        return ()

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        """The same operation on other operands."""
        assert not operands
        return self

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Input(Node):
    name: str
    position: int
    shape: Shape
    dtype: DType
    strides: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Param(Node):
    path: str
    shape: Shape
    dtype: DType
    strides: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Const(Node):
    value: bool | int | float
    dtype: DType
    shape: ClassVar[Shape] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Table(Node):
    values: tuple[bool | int | float, ...]
    shape: Shape
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Iota(Node):
    """0, 1, ... extent - 1: an element's place along an axis. It is computed where it is used."""

    extent: int
    dtype: ClassVar[DType] = int64

    @property
    def shape(self) -> Shape:
        return (self.extent,)


@dataclass(frozen=True, slots=True, eq=False)
class Map(Node):
    """fn(operands) element by element. `to` is set for `cast` alone, whose result dtype its operand does not tell."""

    fn: str
    args: tuple[Node, ...]
    to: DType | None = None
    # Found once: asked for again and again down a long chain, they would be looked up all the way to its leaves.
    shape: Shape = field(init=False, repr=False)
    dtype: DType = field(init=False, repr=False)

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.args

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Map(self.fn, operands, self.to)

    def __post_init__(self) -> None:
        row = SCALARS[self.fn]
        shapes = {a.shape for a in self.args} - {()}
        dtypes = {a.dtype for a in (self.args[1:] if self.fn == "where" else self.args)}
        assert len(self.args) == row.arity, f"{self.fn} takes {row.arity} operands, got {len(self.args)}"
        assert len(shapes) <= 1, f"{self.fn} on operands of different shapes {sorted(shapes)}: Broadcast them first"
        assert len(dtypes) == 1, f"{self.fn} on operands of different dtypes {dtypes}: cast them first"
        assert (self.to is not None) == (self.fn == "cast"), "cast alone names its result dtype"
        object.__setattr__(self, "shape", next(iter(shapes), ()))
        object.__setattr__(self, "dtype", self.to or (bool_ if row.result == "bool" else self.args[-1].dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Node):
    """fn over the elements of x along `axes`, which are in order and stay with extent 1."""

    fn: str
    x: Node
    axes: Shape
    shape: Shape = field(init=False, repr=False)

    @property
    def count(self) -> int:
        """How many elements make one of the result."""
        return math.prod(self.x.shape[axis] for axis in self.axes)

    @property
    def dtype(self) -> DType:
        return int64 if REDUCTIONS[self.fn].result == "int64" else self.x.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.x,)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Reduce(self.fn, operands[0], self.axes)

    def __post_init__(self) -> None:
        in_order = list(self.axes) == sorted(set(self.axes)) and set(self.axes) <= set(range(len(self.x.shape)))
        assert self.axes, f"{self.fn} over no axes"
        assert in_order, f"{self.fn} over axes {self.axes} of {self.x.shape}"
        assert self.count > 0, f"{self.fn} of nothing: {self.x.shape} over {self.axes}"
        assert self.x.dtype.kind in REDUCTIONS[self.fn].accepts, f"{self.fn} of {self.x.dtype}"
        shape = tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.x.shape))
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Node):
    """fn over x[..., 0 .. i, ...] along `axis`, for each i; with `reverse`, over x[..., i .. last, ...].

    `exclusive` leaves out element i itself, so that the first result is what fn gives of nothing.
    """

    fn: str
    x: Node
    axis: int
    reverse: bool = False
    exclusive: bool = False

    @property
    def axes(self) -> Shape:
        return (self.axis,)

    @property
    def shape(self) -> Shape:
        return self.x.shape

    @property
    def dtype(self) -> DType:
        return int64 if REDUCTIONS[self.fn].result == "int64" else self.x.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.x,)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return replace(self, x=operands[0])

    def __post_init__(self) -> None:
        assert REDUCTIONS[self.fn].scan is not None, f"{self.fn} has no running form"
        assert 0 <= self.axis < len(self.x.shape), f"{self.fn} along axis {self.axis} of {self.x.shape}"
        assert self.x.dtype.kind in REDUCTIONS[self.fn].accepts, f"{self.fn} of {self.x.dtype}"


@dataclass(frozen=True, slots=True, eq=False)
class Contract(Node):
    """einsum(equation, a, b) in the operands' own dtype; of 16-bit operands, a wide one gives its float32 sums."""

    a: Node
    b: Node
    equation: str
    wide: bool = False
    shape: Shape = field(init=False, repr=False)

    @property
    def labels(self) -> tuple[str, str, str]:
        """The index letters of a, of b and of the result."""
        operands, result = self.equation.split("->")
        a, b = operands.split(",")
        return a, b, result

    @property
    def extents(self) -> Mapping[str, int]:
        a, b, _ = self.labels
        return dict(zip(a + b, self.a.shape + self.b.shape, strict=True))

    @property
    def dtype(self) -> DType:
        return float32 if self.wide else self.a.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.a, self.b)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Contract(operands[0], operands[1], self.equation, self.wide)

    def __post_init__(self) -> None:
        a, b, result = self.labels
        assert len(set(a)) == len(a) == len(self.a.shape), f"{self.equation} does not fit {self.a.shape}"
        assert len(set(b)) == len(b) == len(self.b.shape), f"{self.equation} does not fit {self.b.shape}"
        assert set(result) <= set(a + b), f"{self.equation} has a result index that no operand has"
        assert self.a.dtype is self.b.dtype, "cast the operands of a contraction to one dtype first"
        extents = self.extents
        assert all(extents[i] == e for i, e in zip(a, self.a.shape, strict=True)), f"{self.equation}: extents differ"
        object.__setattr__(self, "shape", tuple(extents[label] for label in result))


@dataclass(frozen=True, slots=True, eq=False)
class Conv(Node):
    """A convolution of any rank without bias: x is (batch, channels, space...), weight as PyTorch has it."""

    x: Node
    weight: Node
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int
    transposed: bool
    output_padding: Shape
    shape: Shape = field(init=False, repr=False)

    def __post_init__(self) -> None:
        channels = self.weight.shape[1] * self.groups if self.transposed else self.weight.shape[0]
        extent = self._transposed_extent if self.transposed else self._extent
        spatial = tuple(extent(axis) for axis in range(len(self.stride)))
        object.__setattr__(self, "shape", (self.x.shape[0], channels, *spatial))

    def _extent(self, axis: int) -> int:
        reach = self.dilation[axis] * (self.weight.shape[2 + axis] - 1) + 1
        return (self.x.shape[2 + axis] + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def _transposed_extent(self, axis: int) -> int:
        reach = self.dilation[axis] * (self.weight.shape[2 + axis] - 1) + 1
        inner = (self.x.shape[2 + axis] - 1) * self.stride[axis] - 2 * self.padding[axis]
        return inner + reach + self.output_padding[axis]

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.x, self.weight)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return replace(self, x=operands[0], weight=operands[1])


@dataclass(frozen=True, slots=True, eq=False)
class Gather(Node):
    """x[i, indices[0][i], indices[1][i], ...] for every place i: from the last axes of x, one for each index, it picks.

    The other axes of x are those of the result; what is the same for all places is a Broadcast of x. Indices of shape
    [] are spread. One that is negative or past the end of its axis picks `nothing`.
    """

    x: Node
    indices: tuple[Node, ...]
    fn: ClassVar[str] = "gather"

    @property
    def shape(self) -> Shape:
        return self.x.shape[: -len(self.indices)]

    @property
    def extents(self) -> Shape:
        """How long the axes are that are picked from."""
        return self.x.shape[-len(self.indices) :]

    @property
    def nothing(self) -> bool | int | float:
        """What there is outside of x: a value that shows, but for booleans and unsigned integers, which have none."""
        return math.nan if self.dtype.kind == "float" else self.dtype.lowest

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.x, *self.indices)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Gather(operands[0], operands[1:])

    def __post_init__(self) -> None:
        assert self.indices, "a gather without an index"
        assert all(index.shape in ((), self.shape) for index in self.indices), f"{self.shape} is not indexed everywhere"
        assert all(index.dtype.kind == "int" for index in self.indices), "an index is an integer"
        assert self.dtype.kind != "complex", "complex numbers are PyTorch's"
        assert 0 not in self.extents, "there is nothing to pick from"


@dataclass(frozen=True, slots=True, eq=False)
class Opaque(Node):
    """An ATen operator by name, with all its arguments. `serial` tells apart calls that draw random numbers; in a plan,
    each of those comes `after` the one before."""

    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[TensorType | None, ...]
    serial: int = -1
    after: Node | None = None

    @property
    def shape(self) -> Shape:
        return self.only.shape

    @property
    def dtype(self) -> DType:
        return self.only.dtype

    @property
    def only(self) -> TensorType:
        """The type of the single result; of several, Item picks one."""
        (result,) = self.results
        assert result is not None, f"the result of {self.target} is not a tensor"
        return result

    @property
    def is_random(self) -> bool:
        return self.serial >= 0

    @property
    def given(self) -> tuple[Node, ...]:
        """What the call is given: its operands but for the draw it only waits for."""
        return (*nodes_in(self.args), *nodes_in(tuple(value for _, value in self.kwargs)))

    @property
    def operands(self) -> tuple[Node, ...]:
        return (*self.given, *nodes_in(self.after))

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        rest = iter(operands)
        args = substitute(self.args, rest)
        kwargs = tuple((name, substitute(value, rest)) for name, value in self.kwargs)
        assert isinstance(args, tuple)
        return replace(self, args=args, kwargs=kwargs, after=next(rest, None))


@dataclass(frozen=True, slots=True, eq=False)
class Item(Node):
    source: Opaque
    index: int

    @property
    def type(self) -> TensorType:
        result = self.source.results[self.index]
        assert result is not None, f"result {self.index} of {self.source.target} is not a tensor"
        return result

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.source,)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        (source,) = operands
        assert isinstance(source, Opaque)
        return Item(source, self.index)


# What a kernel computes element by element: a Gather is one too, though its source must be in memory before.
Pointwise: TypeAlias = Map | Gather


class View(Node):
    """The elements of `x` seen another way."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def x(self) -> Node: ...

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.x,)


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(View):
    """The elements in row-major order under another shape."""

    x: Node
    shape: Shape

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Reshape(operands[0], self.shape)

    def __post_init__(self) -> None:
        assert math.prod(self.shape) == self.x.size, f"{self.x.shape} cannot take the shape {self.shape}"


@dataclass(frozen=True, slots=True, eq=False)
class Permute(View):
    """Axis i of the result is axis order[i] of x."""

    x: Node
    order: Shape

    @property
    def shape(self) -> Shape:
        return tuple(self.x.shape[axis] for axis in self.order)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Permute(operands[0], self.order)

    def __post_init__(self) -> None:
        assert sorted(self.order) == list(range(len(self.x.shape))), f"{self.order} does not permute {self.x.shape}"


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast(View):
    """Axes aligned at the right; an axis of extent 1 or a missing one repeats."""

    x: Node
    shape: Shape

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Broadcast(operands[0], self.shape)

    def __post_init__(self) -> None:
        tail = self.shape[len(self.shape) - len(self.x.shape) :]
        fits = all(have in (1, want) for have, want in zip(self.x.shape, tail, strict=True))
        assert fits, f"{self.x.shape} does not broadcast to {self.shape}"


@dataclass(frozen=True, slots=True, eq=False)
class Slice(View):
    """Every step[i]-th element of axis i from start[i] on, shape[i] of them."""

    x: Node
    start: Shape
    step: Shape
    shape: Shape

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Slice(operands[0], self.start, self.step, self.shape)

    def __post_init__(self) -> None:
        for begin, step, extent, whole in zip(self.start, self.step, self.shape, self.x.shape, strict=True):
            last = begin + step * (extent - 1)
            assert extent == 0 or (0 <= begin < whole and 0 <= last < whole), f"slice outside {self.x.shape}"


@dataclass(frozen=True, slots=True, eq=False)
class Pad(View):
    """x with `before[i]` and `after[i]` elements of the value around it along axis i."""

    x: Node
    before: Shape
    after: Shape
    value: bool | int | float

    @property
    def shape(self) -> Shape:
        sizes = zip(self.before, self.x.shape, self.after, strict=True)
        return tuple(before + extent + after for before, extent, after in sizes)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return Pad(operands[0], self.before, self.after, self.value)

    def __post_init__(self) -> None:
        assert len(self.before) == len(self.after) == len(self.x.shape), f"{self.x.shape} has other axes"
        assert min((*self.before, *self.after), default=0) >= 0, "a border is not negative: slice instead"


@dataclass(frozen=True, slots=True, eq=False)
class Windows(View):
    """What a window sees: axis axes[j] becomes the window's position, every stride[j]; a new axis at the end, window[j]
    long, is the place in it, dilation[j] apart."""

    x: Node
    axes: Shape
    window: Shape
    stride: Shape
    dilation: Shape

    @property
    def shape(self) -> Shape:
        shape = list(self.x.shape)
        for axis, size, stride, dilation in zip(self.axes, self.window, self.stride, self.dilation, strict=True):
            shape[axis] = (shape[axis] - dilation * (size - 1) - 1) // stride + 1
        return (*shape, *self.window)

    def rebuild(self, operands: tuple[Node, ...]) -> Node:
        return replace(self, x=operands[0])

    def __post_init__(self) -> None:
        reach = [d * (n - 1) + 1 for n, d in zip(self.window, self.dilation, strict=True)]
        fits = all(self.x.shape[axis] >= r for axis, r in zip(self.axes, reach, strict=True))
        assert fits, f"a window of {self.window} does not fit into {self.x.shape}"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant that forward() returns as it is."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Updated:
    """An argument that forward() has changed and returns itself."""

    target: Input


@dataclass(frozen=True, slots=True)
class Detached:
    """Another tensor in the same memory: what `y.detach()` and `self.weight.data` are to what they are taken from."""

    of: int | Updated


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple or a list that forward() returns: `kind` is its type, by the name that Python knows it by."""

    kind: str
    items: tuple[Structure, ...]


# What forward() returns: an int is the position of a tensor in Graph.outputs.
Structure: TypeAlias = "int | Fixed | Updated | Detached | Group"


@dataclass(frozen=True, slots=True)
class Update:
    """State that forward() changes: `target` (a Param or an Input) holds `value` afterwards."""

    target: Param | Input
    value: Node


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python scalar among forward()'s arguments: the graph holds for this value alone."""

    name: str
    position: int
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Looks:
    """A value that cannot be written down, by how it looks."""

    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """An attribute of a module that the graph may have baked in: it holds for this value alone."""

    path: str
    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Graph:
    """What forward() computes: its outputs, how they are returned, the state it changes, what it assumes."""

    inputs: tuple[Input, ...]
    outputs: tuple[Node, ...]
    updates: tuple[Update, ...]
    structure: Structure
    scalars: tuple[Scalar, ...] = ()
    settings: tuple[Setting, ...] = ()
    default_dtype: DType = float32  # of what forward() makes without naming one, or of integers that it divides

    @property
    def roots(self) -> tuple[Node, ...]:
        """Everything that must be computed; random draws first and in their order, so that it never changes."""
        ends = (*self.outputs, *(update.value for update in self.updates))
        draws = [n for n in walk(ends) if isinstance(n, Opaque) and n.is_random]
        return (*sorted(draws, key=lambda n: n.serial), *ends)

    def nodes(self) -> tuple[Node, ...]:
        """Every node once, operands before their users."""
        return tuple(walk(self.roots))

    def map(self, change: Callable[[Node], Node]) -> Graph:
        """The graph with every output and every updated value replaced by change(it)."""
        updates = tuple(Update(u.target, change(u.value)) for u in self.updates)
        return replace(self, outputs=tuple(change(n) for n in self.outputs), updates=updates)


def walk(roots: tuple[Node, ...]) -> Iterator[Node]:
    """Every node the roots depend on, operands first, each once; a loop, as graphs are deeper than Python's stack."""
    seen: set[Node] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in seen:
                continue
            if ready:
                seen.add(node)
                yield node
                continue
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.operands) if operand not in seen)


def nodes_in(argument: Argument | tuple[Argument, ...]) -> tuple[Node, ...]:
    """The nodes inside an operator's argument, in order."""
    if isinstance(argument, Node):
        return (argument,)
    if isinstance(argument, tuple):
        return tuple(node for item in argument for node in nodes_in(item))
    return ()


def substitute(argument: Argument, rest: Iterator[Node]) -> Argument:
    """The argument with its nodes replaced, in order, by the next ones of `rest`."""
    if isinstance(argument, Node):
        return next(rest)
    if isinstance(argument, tuple):
        return tuple(substitute(item, rest) for item in argument)
    return argument
