"""Every rule about reductions by itself, and `simplify` on graphs that reduce: both sides have the same values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.ir.dtypes import DType, float32, float64, int32, int64
from kernelwright.ir.interpret import evaluate, interpret
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Graph,
    Input,
    Map,
    Node,
    Pad,
    Param,
    Permute,
    Reduce,
    Reshape,
    Windows,
)
from kernelwright.ir.rewrite import count_uses, rewrite
from kernelwright.ir.text import graph_text
from kernelwright.simplify import convolved, linear, pools, reductions, shifts, simplified, simplify
from kernelwright.simplify.convolved import pool_before_convolution
from kernelwright.simplify.linear import sum_before_product
from kernelwright.simplify.pools import maps_into_windows, merge_pools, monotone_after_pooling, scale_after_pooling
from kernelwright.simplify.reductions import (
    drop_axes_of_one,
    merge_reductions,
    monotone_after_reducing,
    one_pass_of_deviations,
    one_pass_of_exponentials,
    reduce_before_permuting,
    reduce_before_repeating,
    reduce_before_reshaping,
    repeat_after_reducing,
    scale_after_reducing,
    sign_after_reducing,
)
from kernelwright.simplify.shifts import (
    centre_before_scaling,
    drop_shift_of_both,
    drop_shift_that_cancels,
    drop_shift_under_reduction,
    shift_after_mean,
)

Build = Callable[[Random, DType], Node]
FLOATS = (float32, float64)
NUMBERS = (float32, float64, int64, int32)
SOME = ("sum", "max", "min")
CLOSE = {float32: 1e-5, float64: 1e-12}

seeds = st.integers(0, 2**32)


def leaf(rng: Random, dtype: DType, *shape: int) -> Input:
    return Input("x", 0, shape, dtype, (0,) * len(shape))


def some_shape(rng: Random, rank: int = 3) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 3, 4)) for _ in range(rank))


def some_axes(rng: Random, rank: int) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))


def reduction(rng: Random, x: Node) -> str:
    floats = ("deviations", "exponentials") if x.dtype.kind == "float" else ()
    return rng.choice((*SOME, "prod", "argmax", "argmin", *floats))


def with_ones(rng: Random, dtype: DType) -> Node:
    x = leaf(rng, dtype, *some_shape(rng))
    return Reduce(reduction(rng, x), x, some_axes(rng, 3))


def of_repeated(rng: Random, dtype: DType) -> Node:
    shape = some_shape(rng)
    x = leaf(rng, dtype, *(rng.choice((1, extent)) for extent in shape[rng.randint(0, 1) :]))
    fn = rng.choice((*SOME, *(("deviations", "exponentials") if dtype.kind == "float" else ())))
    return Reduce(fn, Broadcast(x, shape), some_axes(rng, 3))


def row(rng: Random, value: Node, shape: tuple[int, ...]) -> Node:
    """A row's value repeated along it, sometimes without the ones in front."""
    rank = next((i for i, extent in enumerate(value.shape) if extent != 1), len(value.shape))
    return Broadcast(Reshape(value, value.shape[rank:]) if rng.random() < 0.5 else value, shape)


def shifted_exponentials(rng: Random, dtype: DType) -> Node:
    x, axes = leaf(rng, dtype, *some_shape(rng)), some_axes(rng, 3)
    return Reduce("sum", Map("exp", (Map("sub", (x, row(rng, Reduce("max", x, axes), x.shape))),)), axes)


def squared_deviations(rng: Random, dtype: DType) -> Node:
    x, axes = leaf(rng, dtype, *some_shape(rng)), some_axes(rng, 3)
    total = Reduce("sum", x, axes)
    mean = Map("div", (total, Const(float(total.count), dtype)))
    if total.count & (total.count - 1) == 0 and rng.random() < 0.5:
        mean = Map("mul", (total, Const(1 / total.count, dtype)))
    apart = Map("sub", (x, row(rng, mean, x.shape)))
    return Reduce("sum", Map("mul", (apart, apart)), axes)


def twice(rng: Random, dtype: DType) -> Node:
    fn = rng.choice((*SOME, "prod"))
    return Reduce(fn, Reduce(fn, leaf(rng, dtype, *some_shape(rng)), some_axes(rng, 3)), some_axes(rng, 3))


def of_permuted(rng: Random, dtype: DType) -> Node:
    x = Permute(leaf(rng, dtype, *some_shape(rng)), tuple(rng.sample(range(3), 3)))
    return Reduce(reduction(rng, x), x, some_axes(rng, 3))


def of_reshaped(rng: Random, dtype: DType) -> Node:
    shapes = ((2, 3, 4), (6, 4), (2, 12), (2, 3, 2, 2), (1, 6, 1, 4), (24,))
    x = Reshape(leaf(rng, dtype, *rng.choice(shapes)), rng.choice(shapes))
    return Reduce(reduction(rng, x), x, some_axes(rng, len(x.shape)))


def of_negative(rng: Random, dtype: DType) -> Node:
    fns = (*SOME, "argmax", "argmin") if dtype.kind == "float" else ("sum",)
    return Reduce(rng.choice(fns), Map("neg", (leaf(rng, dtype, 3, 4),)), some_axes(rng, 2))


def of_scaled(rng: Random, dtype: DType) -> Node:
    x = leaf(rng, dtype, 3, 4)
    return Reduce("sum", Map("mul", (x, Const(rng.choice((3.0, -7.5, 1.0, 1e3)), dtype))), some_axes(rng, 2))


def monotone(rng: Random, x: Node) -> Map:
    """A function that keeps or turns the order of x, with constants."""
    dtype = x.dtype

    def c(value: float) -> Const:
        return Const(value, dtype) if dtype.kind == "float" else Const(int(value), dtype)

    both = ("relu", "relu6", "identity", "maximum", "minimum", "hardtanh", "cast")
    floats = ("floor", "ceil", "round", "trunc", "neg", "add", "sub", "from", "mul", "minus", "div", "leaky_relu")
    match rng.choice((*both, *floats) if dtype.kind == "float" else both):
        case "maximum" | "minimum" as fn:
            return Map(fn, (x, c(2)))
        case "hardtanh":
            return Map("hardtanh", (x, c(-1), c(3)))
        case "cast":
            return Map("cast", (x,), float32)
        case "add" | "sub" as fn:
            return Map(fn, (x, c(0.3)))
        case "from":
            return Map("sub", (c(0.3), x))
        case "mul":
            return Map("mul", (x, c(rng.choice((0.1, 3.0)))))
        case "minus":
            return Map("mul", (x, c(-0.1)))
        case "div":
            return Map("div", (x, c(rng.choice((-3.0, 7.0)))))
        case "leaky_relu":
            return Map("leaky_relu", (x, c(0.01)))
        case fn:
            return Map(fn, (x,))


def of_monotone(rng: Random, dtype: DType) -> Node:
    return Reduce(rng.choice(("max", "min")), monotone(rng, leaf(rng, dtype, 3, 4)), some_axes(rng, 2))


def pooled_monotone(rng: Random, dtype: DType) -> Node:
    x: Node = monotone(rng, leaf(rng, dtype, 2, 6, 5))
    if rng.random() < 0.5 and x.dtype.kind == "float":
        x = Pad(x, (0, 1, 1), (0, 1, 0), -float("inf"))
    return Reduce("max", Windows(x, (1, 2), (3, 2), (rng.choice((1, 2)), 1), (1, 1)), (3, 4))


def pooled_map(rng: Random, dtype: DType) -> Node:
    """Cheap Maps of one or two operands under windows that meet or not, maybe with a border."""
    x: Node = leaf(rng, dtype, 2, 6, 7)
    x = Map(rng.choice(("abs", "relu")), (Map("mul", (x, Const(0.5, dtype))),))
    if rng.random() < 0.4:
        x = Map("add", (x, Broadcast(Input("c", 1, (2, 1, 1), dtype, (1, 0, 0)), x.shape)))
    if rng.random() < 0.5:
        x = Pad(x, (0, 1, 1), (0, 1, 0), 0.0)
    windows = Windows(x, (1, 2), (2, 2), rng.choice(((2, 2), (1, 2))), (1, rng.randint(1, 2)))
    return Reduce(rng.choice(("sum", "min")), windows, (3, 4))


def pooled_twice(rng: Random, dtype: DType) -> Node:
    fn = rng.choice(("max", "sum"))
    x: Node = leaf(rng, dtype, 2, rng.randint(9, 14), 13)
    size, step = (rng.randint(1, 3), 2), (rng.randint(1, 3), rng.randint(1, 2))
    once = Reduce(fn, Windows(x, (1, 2), size, size if rng.random() < 0.5 else step, (1, 1)), (3, 4))
    x = Reshape(once, once.shape[:3])
    if fn == "sum" and rng.random() < 0.5:
        x = Map("mul", (x, Const(0.25, dtype)))
    return Reduce(fn, Windows(x, (1, 2), (2, 3), (rng.randint(1, 2), 2), (1, 1)), (3, 4))


def pooled_affine(rng: Random, dtype: DType) -> Node:
    x: Node = leaf(rng, dtype, 2, 3, 7, 6)
    channel = Broadcast(Input("c", 1, rng.choice(((3, 1, 1), (2, 3, 1, 1), (1, 1))), dtype, (0,) * 3), x.shape)
    other = rng.choice((channel, Const(0.5, dtype)))
    fn = rng.choice(("add", "sub", "mul", "div"))
    x = Map(fn, (other, x) if fn in ("add", "mul") and rng.random() < 0.3 else (x, other))
    return Reduce("sum", Windows(x, (2, 3), (3, 2), (rng.randint(1, 3), 1), (1, 2)), (4, 5))


def shifted(rng: Random, dtype: DType, axes: tuple[int, ...]) -> Node:
    """x + r, r + x or x - r, r being a parameter with one value a row."""
    x = leaf(rng, dtype, 2, 3, 4)
    r = Param("r", tuple(1 if axis in axes else e for axis, e in enumerate(x.shape)), dtype, (0, 0, 0))
    row = Broadcast(r, x.shape)
    return Map(rng.choice(("add", "sub")), (x, row)) if rng.random() < 0.7 else Map("add", (row, x))


def reduced_shift(rng: Random, dtype: DType) -> Node:
    axes = some_axes(rng, 3)
    return Reduce(rng.choice(("deviations", "exponentials")), shifted(rng, dtype, axes), axes)


def cancelled_shift(rng: Random, dtype: DType) -> Node:
    axes = some_axes(rng, 3)
    x = shifted(rng, dtype, axes)
    total = Reduce("sum", x, axes)
    mean = Map("div", (total, Const(float(total.count), dtype)))
    return Map("sub", (x, Broadcast(rng.choice((mean, Reduce("max", x, axes))), x.shape)))


def summed_product(rng: Random, dtype: DType) -> Node:
    """A matrix product, maybe with a bias, a factor or a sign, summed over one operand's indices or over both's."""
    left = rng.choice(("ay,zy->az", "ay,yz->az", "bay,zy->baz", "bay,byz->baz", "yx,yzw->xzw"))
    extents = dict(zip("abyzxw", (2, 3, 4, 5, 2, 3), strict=True))
    labels = left.split("->")[0].split(",")
    a, b = (Input("xy"[i], i, tuple(extents[v] for v in own), dtype, (0,) * len(own)) for i, own in enumerate(labels))
    x: Node = Contract(a, b, left)
    bias = Broadcast(Input("bias", 2, x.shape[-1:], dtype, (1,)), x.shape)
    if rng.random() < 0.5:
        x = Map(rng.choice(("add", "sub")), (x, bias) if rng.random() < 0.7 else (bias, x))
    if rng.random() < 0.5:
        x = Map("mul", (x, Const(-0.5, dtype)))
    if rng.random() < 0.3:
        x = Map("neg", (Map("sub", (x, Const(0.25, dtype))),))
    return Reduce("sum", x, some_axes(rng, len(x.shape)))


def summed_convolution(rng: Random, dtype: DType) -> Node:
    x = leaf(rng, dtype, 2, 3, *(rng.randint(2, 4) for _ in range(2)))
    w = Input("w", 1, (3, 4, 2, rng.randint(1, 3)), dtype, (0,) * 4)
    step = (rng.randint(1, 3), rng.randint(1, 2))
    y = Conv(x, w, step, (0, 0), (1, rng.randint(1, 2)), 1, True, (0, step[1] - 1))
    return Reduce("sum", Map("add", (y, Const(1.5, dtype))), (2, 3))


def some_convolution(rng: Random, dtype: DType, rank: int, dilation: int = 1) -> Conv:
    """With a border that is cut off or added, in steps, transposed or not."""
    transposed = rng.random() < 0.6
    kernel = tuple(rng.randint(1, 4) for _ in range(rank))
    stride = tuple(rng.randint(1, 3) for _ in range(rank))
    padding = tuple(rng.randint(0, min(2, k - 1)) for k in kernel)
    wider = tuple(rng.randint(0, s - 1) if transposed else 0 for s in stride)
    x = leaf(rng, dtype, 2, 3, *(rng.randint(7, 9) for _ in range(rank)))
    w = Input("w", 1, (*((3, 4) if transposed else (4, 3)), *kernel), dtype, (0,) * (rank + 2))
    return Conv(x, w, stride, padding, (dilation,) * rank, 1, transposed, wider)


def summed_with_border(rng: Random, dtype: DType) -> Node:
    rank = rng.randint(1, 3)
    y = some_convolution(rng, dtype, rank, rng.randint(1, 2))
    return Reduce("sum", y, tuple(range(2, 2 + rank)))


def pooled_convolution(rng: Random, dtype: DType) -> Node:
    rank = rng.randint(1, 3)
    y = some_convolution(rng, dtype, rank)
    pooled = tuple(axis for axis in range(2, 2 + rank) if y.shape[axis] >= 4)
    steps = [y.stride[axis - 2] for axis in pooled]
    window = tuple(rng.randint(1, 4 if rng.random() < 0.8 else 2) for _ in pooled)
    stride = tuple(step * rng.randint(1, 3) for step in steps)
    if not pooled or y.size == 0:
        return Reduce("sum", y, (0,))
    seen = Windows(y, pooled, window, stride, (1,) * len(pooled))
    return Reduce("sum", seen, tuple(range(2 + rank, 2 + rank + len(pooled))))


def mean_of(x: Node, axes: tuple[int, ...]) -> Node:
    total = Reduce("sum", x, axes)
    return Map("div", (total, Const(float(total.count), x.dtype)))


def shifted_mean(rng: Random, dtype: DType) -> Node:
    axes = some_axes(rng, 3)
    return mean_of(shifted(rng, dtype, axes), axes)


def deviations_without_shift(mean: Node) -> tuple[Node, ...]:
    """What stands beside a mean in a normalisation: of the same rows, but without the shift."""
    total = mean.operands[0]
    assert isinstance(total, Reduce)
    plain = shifts.unshifted(total.x, total.axes)
    return () if plain is None else (Reduce("deviations", plain, total.axes),)


def shift_of_both(rng: Random, dtype: DType) -> Node:
    x = leaf(rng, dtype, 2, 3, 4)
    r = Reshape(Param("r", (3,), dtype, (1,)), (3, 1))
    mean = Reduce("max", x, (0, 2))
    shifted_row = Map("add", (mean, Reshape(r, (1, 3, 1))))
    source = Reshape(shifted_row, (3, 1)) if rng.random() < 0.5 else shifted_row
    return Map("sub", (Map("add", (x, Broadcast(r, x.shape))), Broadcast(source, x.shape)))


def normalised_then_centred(rng: Random, dtype: DType) -> Node:
    x = leaf(rng, dtype, 3, 2, 4, 5)
    axes = rng.choice(((2, 3), (3,)))
    spread = Map("add", (Reduce("deviations", x, (0, 2, 3)), Const(0.5, dtype)))
    scale = Map("mul", (Map("rsqrt", (spread,)), Const(1.25, dtype)))
    apart = Map("sub", (x, Broadcast(mean_of(x, (0, 2, 3)), x.shape)))
    y = Map("mul", (apart, Broadcast(scale, x.shape)))
    return Map("sub", (y, Broadcast(mean_of(y, axes), x.shape)))


@dataclass(frozen=True)
class Case:
    rule: Callable[..., Node | None]
    left: Build
    dtypes: tuple[DType, ...]
    exact: bool  # to the bit but for signs of zeros; else up to the order of sums
    beside: Callable[[Node], tuple[Node, ...]] = lambda left: ()  # what the graph has too, for the rule to fire


CASES = (
    Case(drop_axes_of_one, with_ones, NUMBERS, exact=True),
    Case(maps_into_windows, pooled_map, FLOATS, exact=True),
    Case(reduce_before_repeating, of_repeated, NUMBERS, exact=False),
    Case(repeat_after_reducing, of_repeated, NUMBERS, exact=False),
    Case(one_pass_of_exponentials, shifted_exponentials, FLOATS, exact=False),
    Case(one_pass_of_deviations, squared_deviations, FLOATS, exact=False),
    Case(merge_reductions, twice, NUMBERS, exact=False),
    Case(reduce_before_permuting, of_permuted, NUMBERS, exact=False),
    Case(reduce_before_reshaping, of_reshaped, NUMBERS, exact=False),
    Case(sign_after_reducing, of_negative, NUMBERS, exact=False),
    Case(scale_after_reducing, of_scaled, FLOATS, exact=False),
    Case(monotone_after_reducing, of_monotone, NUMBERS, exact=True),
    Case(monotone_after_pooling, pooled_monotone, NUMBERS, exact=True),
    Case(merge_pools, pooled_twice, FLOATS, exact=False),
    Case(centre_before_scaling, normalised_then_centred, FLOATS, exact=False),
)
# These hold for finite numbers: inf - inf is NaN where nothing is subtracted any more.
FINITE = (
    Case(sum_before_product, summed_product, FLOATS, exact=False),
    Case(sum_before_product, summed_convolution, FLOATS, exact=False),
    Case(scale_after_pooling, pooled_affine, FLOATS, exact=False),
    Case(drop_shift_under_reduction, reduced_shift, FLOATS, exact=False),
    Case(drop_shift_that_cancels, cancelled_shift, FLOATS, exact=False),
    Case(sum_before_product, summed_with_border, FLOATS, exact=False),
    Case(pool_before_convolution, pooled_convolution, FLOATS, exact=False),
    Case(shift_after_mean, shifted_mean, FLOATS, exact=False, beside=deviations_without_shift),
    Case(drop_shift_of_both, shift_of_both, FLOATS, exact=False),
)


def values_of(node: Input | Param, rng: Random, edges: bool) -> torch.Tensor:
    """Numbers of moderate size; with edges, a few NaN, infinities and zeros of both signs among them."""
    generator = torch.Generator().manual_seed(rng.randrange(2**32))
    moderate = (torch.randn(node.shape, generator=generator, dtype=torch.float64) * 3).to(node.dtype.to_torch())
    if node.dtype.kind != "float":
        return moderate
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0]).to(moderate)
    mask = torch.rand(node.shape, generator=generator) < (0.15 if edges else 0)
    return torch.where(mask, special[torch.randint(0, 5, node.shape, generator=generator)], moderate)


def applied(rule: Callable[..., Node | None], node: Node, beside: tuple[Node, ...] = ()) -> Node | None:
    return rule(node) if rule in reductions.RULES else rule(node, count_uses(Graph((), (node, *beside), (), 0)))


@pytest.mark.parametrize("edges", [False, True], ids=["moderate", "edges"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.__name__)
def test_both_sides_of_each_equation_are_the_same(case: Case, edges: bool) -> None:
    check(case, edges)


@pytest.mark.parametrize("case", FINITE, ids=lambda case: case.left.__name__)
def test_both_sides_of_each_equation_for_finite_numbers_are_the_same(case: Case) -> None:
    check(case, edges=False)


def check(case: Case, edges: bool) -> None:
    fired = Counter[DType]()
    for seed in range(160):
        rng = Random(seed)
        dtype = case.dtypes[seed % len(case.dtypes)]
        left = case.left(rng, dtype)
        right = applied(case.rule, left, case.beside(left))
        if right is None:
            continue
        fired[dtype] += 1
        inputs = [n for n in Graph((), (left,), (), 0).nodes() if isinstance(n, (Input, Param))]
        found = evaluate([left, right], {n: values_of(n, rng, edges) for n in inputs})
        one, other = found[left], found[right].expand(left.shape)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        near = 0.0 if case.exact else CLOSE.get(left.dtype, 0.0)
        largest = one.double().nan_to_num(0, 0, 0).abs().max().item()
        same = torch.allclose(one, other, rtol=near, atol=near * (1 + largest), equal_nan=True)
        assert same, f"seed {seed}: {one} is not {other}"
    assert min(fired[dtype] for dtype in case.dtypes if dtype in fired) >= 5
    assert fired


def test_every_rule_has_a_case() -> None:
    rules = {*reductions.RULES, *reductions.USE_RULES, *linear.USE_RULES, *shifts.USE_RULES}
    rules |= {*pools.USE_RULES, *pools.MOTION, *convolved.USE_RULES}
    assert rules == {case.rule for case in (*CASES, *FINITE)}


UNTRUE: tuple[tuple[str, Node], ...] = tuple(
    (why, node)
    for x in [Input("x", 0, (3, 3), float32, (3, 1))]
    for row_of in [Reduce("max", x, (1,))]
    for why, node in (
        (
            "a row of the other axis",
            Reduce("sum", Map("exp", (Map("sub", (x, Broadcast(Reshape(row_of, (3,)), (3, 3)))),)), (1,)),
        ),
        ("the largest of other axes", Reduce("sum", Map("exp", (Map("sub", (x, Broadcast(row_of, (3, 3)))),)), (0, 1))),
        ("infinity times zero is NaN", Reduce("max", Map("mul", (x, Const(0.0, float32))), (1,))),
        ("inf - inf is NaN", Reduce("max", Map("add", (x, Const(float("inf"), float32))), (1,))),
        ("abs is not monotone", Reduce("max", Map("abs", (x,)), (1,))),
        ("exp is rounded on each device as it likes", Reduce("max", Map("exp", (x,)), (1,))),
        ("a small factor keeps the sum from overflowing", Reduce("sum", Map("mul", (x, Const(0.1, float32))), (1,))),
        ("max of sums is not the sum of maxima", Reduce("max", Reduce("sum", x, (0,)), (1,))),
        ("places of other orders", Reduce("argmax", Permute(x, (1, 0)), (0, 1))),
        ("half of an axis", Reduce("sum", Reshape(Input("y", 1, (4, 3), float32, (3, 1)), (2, 2, 3)), (1,))),
    )
)


@pytest.mark.parametrize(("why", "left"), UNTRUE, ids=[why for why, _ in UNTRUE])
def test_what_is_untrue_is_left_alone(why: str, left: Node) -> None:
    assert [rule for rule in (*reductions.RULES, *reductions.USE_RULES) if applied(rule, left) is not None] == []


@settings(max_examples=150)
@given(seeds)
def test_simplified_graphs_that_reduce_keep_their_values(seed: int) -> None:
    rng = Random(seed)
    builds = [case.left for case in CASES]
    ends = tuple(rng.choice(builds)(rng, float64) for _ in range(3))
    ends = tuple(Map("add", (end, Const(1.5, float64))) if end.dtype is float64 else end for end in ends)
    inputs = {n.shape: n for end in ends for n in Graph((), (end,), (), 0).nodes() if isinstance(n, Input)}
    named = {n: Input(f"x{i}", i, n.shape, n.dtype, n.strides) for i, n in enumerate(inputs.values())}
    graph = Graph((), ends, (), 0)
    graph = rewrite(graph, [lambda n: named.get(n) if isinstance(n, Input) else None])
    graph = Graph(tuple(named.values()), graph.outputs, (), 0)
    tensors = [values_of(n, rng, edges=rng.random() < 0.5) for n in named.values()]
    simple = simplify(graph)
    for before, after in zip(interpret(graph, tensors, {}), interpret(simple, tensors, {}), strict=True):
        assert torch.allclose(before, after, rtol=1e-11, atol=1e-11, equal_nan=True), graph_text(simple)
    assert simplify(simple) == simple, graph_text(simple)


def test_softmax_written_by_hand_becomes_one_pass() -> None:
    x = Input("x", 0, (4, 6), float32, (6, 1))
    raised = Map("exp", (Map("sub", (x, Broadcast(Reduce("max", x, (1,)), x.shape))),))
    soft = Map("div", (raised, Broadcast(Reduce("sum", raised, (1,)), x.shape)))
    simple = simplify(Graph((x,), (soft,), (), 0))
    assert sorted(n.fn for n in simple.nodes() if isinstance(n, Reduce)) == ["exponentials", "max"]


def test_values_of_rows_lose_reshapes_that_undo_each_other() -> None:
    x = Input("x", 0, (4, 6), float32, (6, 1))
    mean = Reshape(Map("div", (Reduce("sum", x, (1,)), Const(6.0, float32))), (4,))
    centred = Map("sub", (x, Broadcast(Reshape(mean, (4, 1)), x.shape)))
    simple = simplify(Graph((x,), (centred,), (), 0))
    assert not any(isinstance(n, Reshape) for n in simple.nodes()), graph_text(simple)


def test_a_linear_layer_that_is_summed_is_a_product_with_a_vector_and_is_named() -> None:
    x, w = Input("x", 0, (8, 16), float32, (16, 1)), Input("w", 1, (32, 16), float32, (16, 1))
    graph = Graph((x, w), (Reduce("sum", Contract(x, w, "xy,zy->xz"), (1,)),), (), 0)
    simple = simplify(graph)
    assert not any(isinstance(n, Contract) for n in simple.nodes()), graph_text(simple)
    assert simplified(graph)[1] == ("sum before product",)
    assert simplified(simple)[1] == ()
