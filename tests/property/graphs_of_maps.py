"""Random graphs of Maps and views: a seed and a vocabulary come in; a graph and tensors for its inputs go out.

A graph of n steps begins like the one of n + 1 steps and the same seed, so that hypothesis can look for the shortest
one that fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch

from kernelwright.ir.dtypes import DType, bool_
from kernelwright.ir.nodes import Broadcast, Graph, Input, Map, Node, Permute, Reshape, Shape, Slice
from kernelwright.ir.scalars import SCALARS
from tests.property.edge_values import constant, edge_values


@dataclass(frozen=True)
class Vocabulary:
    """What a random graph is made of."""

    dtype: DType
    functions: tuple[str, ...]
    constants: tuple[float, ...]
    values: torch.Tensor
    casts: tuple[DType, ...] = ()


def random_graph(seed: int, steps: int, words: Vocabulary) -> Graph:
    """Leaves, then so many steps, each a function or a view of what there is; the last one is an output."""
    rng = Random(seed)
    inputs = random_leaves(rng, words)
    nodes: list[Node] = list(inputs)
    for _ in range(steps):
        nodes.append(random_map(rng, words, nodes) if rng.random() < 0.7 else random_view(rng, recent(rng, nodes)))
    others = [rng.choice(nodes[len(inputs) :]) for _ in range(rng.choice((0, 0, 1, 2)))]
    return Graph(inputs, (nodes[-1], *others), (), 0)


def random_leaves(rng: Random, words: Vocabulary) -> tuple[Input, ...]:
    shapes = [random_shape(rng) for _ in range(2)]
    numbers = [Input(f"x{i}", i, s, words.dtype, (0,) * len(s)) for i, s in enumerate(shapes)]
    return (*numbers, Input("mask", 2, shapes[0], bool_, (0,) * len(shapes[0])))


def random_shape(rng: Random) -> Shape:
    return tuple(rng.choice((1, 2, 2, 3, 4)) for _ in range(rng.choice((0, 1, 2, 2, 3, 3))))


def recent(rng: Random, nodes: Sequence[Node]) -> Node:
    """Mostly one of the last two, so that functions meet functions and views meet views."""
    return rng.choice(nodes[-2:] if rng.random() < 0.7 else nodes)


def tensors(graph: Graph, words: Vocabulary) -> list[torch.Tensor]:
    """One tensor an input, its values taken in turn from the vocabulary's."""
    found = []
    for leaf in graph.inputs:
        source = words.values if leaf.dtype is words.dtype else edge_values(leaf.dtype)
        index = (torch.arange(leaf.size) * 7 + 3 * leaf.position) % len(source)
        found.append(source[index].reshape(leaf.shape))
    return found


def random_map(rng: Random, words: Vocabulary, nodes: Sequence[Node]) -> Node:
    """One scalar function on operands of one dtype, numbers among them; `where` takes a mask."""
    first = recent(rng, nodes)
    if words.casts and rng.random() < 0.3:
        return Map("cast", (first,), rng.choice(words.casts))
    usable = [fn for fn in words.functions if first.dtype.kind in SCALARS[fn].accepts]
    fn = rng.choice(usable) if usable else "logical_not"
    same = [n for n in nodes if n.dtype is first.dtype]
    args = [first]
    while len(args) < SCALARS[fn].arity:
        number = constant(rng.choice(words.constants), first.dtype)
        args.append(number if rng.random() < 0.5 else recent(rng, same))
    if len(args) == 2 and rng.random() < 0.3:
        args.reverse()
    if fn == "where":
        rng.shuffle(args)
        args[0] = rng.choice([constant(rng.random() < 0.5, bool_), *(n for n in nodes if n.dtype is bool_)])
    return Map(fn, agreed(args))


def agreed(args: Sequence[Node]) -> tuple[Node, ...]:
    """The operands under one shape: broadcast together if they can be, else cut to their first element."""
    shape: Shape = ()
    result: list[Node] = []
    for arg in args:
        both = together(shape, arg.shape)
        shape = shape if both is None else both
        result.append(first_element(arg) if both is None else arg)
    return tuple(a if a.shape in ((), shape) else Broadcast(a, shape) for a in result)


def together(a: Shape, b: Shape) -> Shape | None:
    try:
        return tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        return None


def first_element(x: Node) -> Node:
    rank = len(x.shape)
    return Reshape(Slice(x, (0,) * rank, (1,) * rank, (1,) * rank), ())


def random_view(rng: Random, x: Node) -> Node:
    kind = rng.choice(("reshape", "permute", "broadcast", "slice"))
    if kind == "reshape":
        return Reshape(x, random_factors(rng, x.size))
    if kind == "permute":
        return Permute(x, tuple(rng.sample(range(len(x.shape)), len(x.shape))))
    if kind == "broadcast" and x.size < 200:
        extents = [rng.choice((1, 2, 3)) if e == 1 else e for e in x.shape]
        return Broadcast(x, (*((rng.choice((1, 2)),) if len(extents) < 4 else ()), *extents))
    return random_slice(rng, x)


def random_factors(rng: Random, size: int) -> Shape:
    """The size split into factors, with ones anywhere."""
    extents: list[int] = []
    while size > 1 and len(extents) < 3:
        extents.append(rng.choice([d for d in range(1, size + 1) if size % d == 0]))
        size //= extents[-1]
    return (*extents, size) if size > 1 or rng.random() < 0.5 else tuple(extents)


def random_slice(rng: Random, x: Node) -> Node:
    starts, steps, extents = [], [], []
    for whole in x.shape:
        start, step = (0, 1) if rng.random() < 0.5 else (rng.randrange(whole), rng.choice((1, 1, 2)))
        most = (whole - start + step - 1) // step
        starts.append(start)
        steps.append(step)
        extents.append(most if rng.random() < 0.6 else rng.randint(1, most))
    return Slice(x, tuple(starts), tuple(steps), tuple(extents))
