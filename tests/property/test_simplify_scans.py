"""Every rule about running values: it fires where it should and nowhere else, and changes no bit."""

from __future__ import annotations

import pytest
import torch

from kernelwright.ir.dtypes import DType, float16, float32, int64
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Graph,
    Group,
    Input,
    Map,
    Node,
    Opaque,
    Pad,
    Scan,
    Shape,
    Slice,
    TensorType,
    walk,
)
from kernelwright.plan.steps import contiguous
from kernelwright.simplify import simplify

SHAPE = (3, 7, 4)


def leaf(dtype: DType = float32, position: int = 0) -> Input:
    return Input(f"x{position}", position, SHAPE, dtype, contiguous(SHAPE))


def flip(x: Node, *axes: int) -> Node:
    turned = {axis % len(x.shape) for axis in axes}
    start = tuple(extent - 1 if axis in turned else 0 for axis, extent in enumerate(x.shape))
    return Slice(x, start, tuple(-1 if axis in turned else 1 for axis in range(len(x.shape))), x.shape)


def cat(parts: tuple[Node, ...], axis: int) -> Node:
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Opaque("aten.cat.default", (parts, axis), (), (TensorType(tuple(shape), parts[0].dtype),))


def cut(x: Node, axis: int, begin: int, end: int) -> Node:
    start = tuple(begin if i == axis else 0 for i in range(len(x.shape)))
    shape = tuple(end - begin if i == axis else extent for i, extent in enumerate(x.shape))
    return Slice(x, start, (1,) * len(shape), shape)


def filled(value: float | int, like: Node, axis: int) -> Node:
    return Broadcast(Const(value, like.dtype), tuple(1 if i == axis else n for i, n in enumerate(like.shape)))


def edges(dtype: DType, seed: int) -> torch.Tensor:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)) * 2
    if dtype.kind == "float":
        x[0, 2, 1], x[1, 3, 2], x[1, 5, 2] = float("nan"), float("inf"), float("-inf")
        x[2, 6], x[2, :, 3] = float("nan"), -0.0
    return x.nan_to_num(1, 2, 3).to(dtype.to_torch()) if dtype.kind == "int" else x.to(dtype.to_torch())


def rewritten(output: Node) -> Node:
    """The simplified graph's output, held to what the graph gave before."""
    inputs = tuple(n for n in walk((output,)) if isinstance(n, Input))
    inputs = tuple(sorted(inputs, key=lambda n: n.position))
    before = Graph(inputs, (output,), (), Group("tuple", (0,)))
    after = simplify(before)
    tensors = [edges(x.dtype, x.position) for x in inputs]
    (old,), (new,) = interpret(before, tensors, {}), interpret(after, tensors, {})
    assert torch.equal(old.isnan(), new.isnan())
    assert torch.equal(old.nan_to_num(), new.nan_to_num())
    return after.outputs[0]


def ways(node: Node) -> list[tuple[bool, bool]]:
    """Of each Scan, whether it goes from the other end, and whether it leaves out the element itself."""
    return [(n.reverse, n.exclusive) for n in walk((node,)) if isinstance(n, Scan)]


def left(node: Node) -> list[str]:
    """What is not part of a Scan: concatenations and flips."""
    calls = [n.target for n in walk((node,)) if isinstance(n, Opaque)]
    return calls + ["flip" for n in walk((node,)) if isinstance(n, Slice) and min(n.step) < 0]


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(1,), (0, 1), (1, 2), (0, 1, 2)])
def test_a_scan_between_flips_goes_from_the_other_end(fn: str, axes: Shape) -> None:
    simple = rewritten(flip(Scan(fn, flip(leaf(), *axes), 1), *(axis - 3 for axis in axes)))
    assert (ways(simple), left(simple)) == ([(True, False)], [])


def test_a_flip_of_other_axes_leaves_the_direction() -> None:
    simple = rewritten(flip(Scan("sum", flip(leaf(), 0, 2), 1), 0, 2))
    assert (ways(simple), left(simple)) == ([(False, False)], [])


def test_flips_meet_through_casts_and_products() -> None:
    x, once = flip(leaf(float16), 1), Broadcast(cut(leaf(position=1), 1, 0, 1), SHAPE)
    product = Map("mul", (Map("cast", (x,), float32), once))
    simple = rewritten(flip(Map("cast", (Scan("sum", product, 1),), float16), 1))
    assert (ways(simple), left(simple)) == ([(True, False)], [])


def test_flips_of_different_axes_stay() -> None:
    assert len(left(rewritten(flip(Scan("sum", flip(leaf(), 1), 1), 0)))) == 2


def test_a_flipped_scan_of_a_plain_value_stays() -> None:
    assert len(left(rewritten(flip(Scan("sum", leaf(), 1), 1)))) == 1


@pytest.mark.parametrize(("fn", "value"), [("sum", 0.0), ("prod", 1.0)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scan_pushed_by_one_place_is_exclusive(fn: str, value: float, axis: int) -> None:
    x = leaf()
    short = Scan(fn, cut(x, axis, 0, SHAPE[axis] - 1), axis)
    simple = rewritten(cat((filled(value, short, axis), short), axis - 3))
    assert (ways(simple), left(simple)) == ([(False, True)], [])
    late = cut(Scan(fn, x, axis), axis, 0, SHAPE[axis] - 1)
    simple = rewritten(cat((filled(value, late, axis), late), axis))
    assert (ways(simple), left(simple)) == ([(False, True)], [])


def test_from_the_other_end_it_is_pushed_the_other_way() -> None:
    short = Scan("sum", cut(leaf(), 1, 1, 7), 1, reverse=True)
    simple = rewritten(cat((short, filled(0.0, short, 1)), 1))
    assert (ways(simple), left(simple)) == ([(True, True)], [])


def test_what_feeds_a_pushed_scan_grows_with_it() -> None:
    a, b = leaf(), leaf(position=1)
    product = Map("mul", (cut(a, 1, 0, 6), Map("add", (cut(b, 1, 0, 6), Const(1.0, float32)))))
    short = Scan("sum", product, 1)
    simple = rewritten(cat((filled(0.0, short, 1), short), 1))
    assert (ways(simple), left(simple)) == ([(False, True)], [])


@pytest.mark.parametrize("value", [1.0, -0.0])
def test_another_number_before_a_scan_stays(value: float) -> None:
    short = Scan("sum", cut(leaf(), 1, 0, 6), 1)
    assert left(rewritten(cat((filled(value, short, 1), short), 1))) == ["aten.cat.default"]


@pytest.mark.parametrize(("begin", "end"), [(1, 7), (0, 7)])
def test_a_scan_with_nothing_cut_off_its_end_stays_beside_its_zero(begin: int, end: int) -> None:
    short = Scan("sum", cut(leaf(), 1, begin, end), 1)
    assert left(rewritten(cat((filled(0.0, short, 1), short), 1))) == ["aten.cat.default"]


def test_a_scan_beside_a_border_is_exclusive() -> None:
    x = leaf()
    simple = rewritten(Pad(Scan("sum", x, 1), (0, 1, 0), (0, 0, 0), 0.0))
    assert isinstance(simple, Scan)
    assert simple.exclusive
    assert isinstance(simple.x, Pad)
    simple = rewritten(Pad(Scan("prod", x, 2, reverse=True), (0, 0, 0), (0, 0, 1), 1.0))
    assert ways(simple) == [(True, True)]
    late = cut(Scan("sum", x, 1), 1, 0, 6)
    assert isinstance(rewritten(Pad(late, (0, 1, 0), (0, 0, 0), 0.0)), Scan)


@pytest.mark.parametrize("before", [(1, 0, 0), (0, 2, 0), (1, 1, 0)])
def test_another_border_stays(before: Shape) -> None:
    simple = rewritten(Pad(Scan("sum", leaf(), 1), before, (0, 0, 0), 0.0))
    assert ways(simple) == [(False, False)]


def test_a_sum_of_integers_less_its_last_element_is_exclusive() -> None:
    x = leaf(int64)
    assert ways(rewritten(Map("sub", (Scan("sum", x, 1), x)))) == [(False, True)]


def test_a_sum_of_floats_less_its_last_element_stays_as_it_is() -> None:
    x = leaf()
    assert ways(rewritten(Map("sub", (Scan("sum", x, 1), x)))) == [(False, False)]


@pytest.mark.parametrize("fn", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [float32, int64])
def test_a_scan_of_one_element_is_that_element(fn: str, dtype: DType) -> None:
    assert ways(rewritten(Scan(fn, cut(leaf(dtype), 1, 3, 4), 1))) == []


@pytest.mark.parametrize("fn", ["sum", "prod"])
def test_an_exclusive_scan_of_one_element_is_a_constant(fn: str) -> None:
    assert ways(rewritten(Scan(fn, cut(leaf(), 1, 3, 4), 1, exclusive=True))) == []
