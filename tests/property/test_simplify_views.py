"""Every rule about views by itself: both sides of its equation hold the same elements, wherever it fires."""

from __future__ import annotations

from random import Random

import pytest
import torch

from kernelwright.ir.dtypes import float32, int64
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import Broadcast, Const, Contract, Input, Map, Node, Permute, Reshape, Table
from kernelwright.ir.rewrite import Rule
from kernelwright.simplify import constants, contractions, motion, views
from kernelwright.simplify.views import blocks
from tests.property.edge_values import difference
from tests.property.graphs_of_maps import agreed, random_shape, random_slice, random_view


def two_views(rng: Random) -> Node:
    shape = random_shape(rng)
    return random_view(rng, random_view(rng, Input("x", 0, shape, int64, (0,) * len(shape))))


def two_slices(rng: Random) -> Node:
    """Long axes, so that one step can stand on another."""
    return random_slice(rng, random_slice(rng, Input("x", 0, (24, 17), int64, (17, 1))))


def map_of_views(rng: Random) -> Node:
    shapes = [random_shape(rng) for _ in range(2)]
    leaves = [Input("xy"[i], i, s, int64, (0,) * len(s)) for i, s in enumerate(shapes)]
    operands: list[Node] = [random_view(rng, leaf) for leaf in leaves]
    constant: Node = Const(3, int64)
    return Map("add", agreed(rng.sample([*operands, constant, Broadcast(constant, (2, 3))], 2)))


def map_of_held_reshape(rng: Random) -> Node:
    """A sum with a value that is repeated along a part of an axis, its axes joined, and a Map of that."""
    x, y = Input("x", 0, (2, 3, 4), int64, (12, 4, 1)), Input("y", 1, (2, 12), int64, (12, 1))
    repeated = Broadcast(Input("r", 2, (2, 3, 1), int64, (3, 1, 1)), x.shape)
    joined = Reshape(Map("add", (x, repeated)), (2, 12))
    column = Broadcast(Input("c", 3, (12,), int64, (1,)), (2, 12))
    other = rng.choice((Const(3, int64), y, column, joined, Map("neg", (y,)), Reshape(x, (2, 12))))
    return Map(rng.choice(("add", "sub", "maximum")), (joined, other) if rng.random() < 0.5 else (other, joined))


def view_of_table(rng: Random) -> Node:
    shape = random_shape(rng)
    size = torch.Size(shape).numel()
    return random_view(rng, Table(tuple(range(size)), shape, int64))


def contraction_of_views(rng: Random) -> Node:
    extents = {label: rng.choice((1, 2, 3)) for label in "bijk"}
    operands: list[Node] = []
    for position, labels in enumerate(("bij", "bjk")):
        shape = tuple(extents[label] for label in labels)
        order = tuple(rng.sample(range(3), 3))
        stored = tuple(1 if rng.random() < 0.3 else shape[axis] for axis in order)
        leaf = Input(labels, position, stored, float32, (0, 0, 0))
        operands.append(Permute(leaf, tuple(order.index(axis) for axis in range(3))))
        operands[-1] = operands[-1] if operands[-1].shape == shape else Broadcast(operands[-1], shape)
    return Contract(operands[0], operands[1], "bij,bjk->bik")


PATTERNS = (
    *((rule, two_views) for rule in views.RULES),
    (views.merge_slices, two_slices),
    *((rule, map_of_views) for rule in motion.RULES if rule is not motion.map_before_reshape),
    (motion.map_before_reshape, map_of_held_reshape),
    *((rule, contraction_of_views) for rule in contractions.RULES),
    (constants.fold_table, view_of_table),
)


@pytest.mark.parametrize(
    ("rule", "pattern"), PATTERNS, ids=[f"{rule.__name__} of {pattern.__name__}" for rule, pattern in PATTERNS]
)
def test_both_sides_of_each_equation_hold_the_same_elements(rule: Rule, pattern: object) -> None:
    assert callable(pattern)
    fired = 0
    for seed in range(600):
        left = pattern(Random(seed))
        right = rule(left)
        if right is None:
            continue
        fired += 1
        leaves = {n: filled(n) for n in inputs_of(left)}
        values = evaluate([left, right], leaves)
        assert (right.shape, right.dtype) == (left.shape, left.dtype)
        assert difference(values[left], values[right]) == "", f"seed {seed}: {left} -> {right}"
        if fired == 40:
            return
    assert fired >= 5, "the patterns do not show this rule at work"


def inputs_of(root: Node) -> list[Input]:
    found: list[Input] = []
    stack = [root]
    while stack:
        node = stack.pop()
        found += [node] if isinstance(node, Input) else []
        stack += node.operands
    return found


def filled(leaf: Input) -> torch.Tensor:
    return (torch.arange(leaf.size) + 10 * leaf.position).to(leaf.dtype.to_torch()).reshape(leaf.shape)


def test_blocks_are_the_finest_that_a_reshape_maps_onto_each_other() -> None:
    assert blocks((2, 3, 4), (6, 4)) == [((0, 1), (0,)), ((2,), (1,))]
    assert blocks((2, 1, 6), (2, 2, 3, 1)) == [((0,), (0,)), ((2,), (1, 2))]
    assert blocks((4, 3), (6, 2)) == [((0, 1), (0, 1))]
    assert blocks((1, 1), ()) == []
