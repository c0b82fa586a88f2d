"""What is fused, what stays apart, and where results lie: one small graph a rule."""

from __future__ import annotations

from kernelwright.generate.scan import work_of_scan
from kernelwright.ir.dtypes import DType, float32, float64
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Conv,
    Graph,
    Group,
    Input,
    Item,
    Map,
    Node,
    Opaque,
    Param,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Shape,
    Slice,
    TensorType,
    Update,
)
from kernelwright.plan import CopyBack, Kernel, Library, Materialise, Plan, plan
from kernelwright.plan.fuse import MOST_POINTERS
from kernelwright.plan.routes import Routes
from kernelwright.plan.steps import contiguous

LARGE = (64, 128)


def leaf(number: int, shape: Shape = LARGE, dtype: DType = float32, strides: Shape | None = None) -> Input:
    return Input(f"x{number}", number, shape, dtype, contiguous(shape) if strides is None else strides)


def state(path: str, shape: Shape = LARGE, dtype: DType = float32) -> Param:
    return Param(path, shape, dtype, contiguous(shape))


def fn(name: str, *args: Node) -> Map:
    return Map(name, args)


def half(x: Node) -> Map:
    return fn("mul", x, Const(0.5, x.dtype))


def cumsum(x: Node) -> Opaque:
    return Opaque("aten.cumsum.default", (x, 0), (), (TensorType(x.shape, x.dtype),))


def total(x: Node) -> Opaque:
    return Opaque("aten.sum.default", (x,), (), (TensorType((), x.dtype),))


def planned(*outputs: Node, updates: tuple[Update, ...] = ()) -> Plan:
    graph = Graph((), outputs, updates, Group("tuple", tuple(range(len(outputs)))))
    inputs = [n for n in graph.nodes() if isinstance(n, Input)]
    return plan(Graph(tuple(sorted(inputs, key=lambda n: n.position)), outputs, updates, graph.structure))


def bodies(made: Plan) -> list[list[str]]:
    return [[node.fn for node in kernel.region.body] for kernel in made.kernels]


def kinds(made: Plan) -> list[type]:
    return [type(step) for step in made.steps]


# --- fusion


def test_a_chain_is_one_kernel() -> None:
    made = planned(fn("relu", half(fn("add", leaf(0), leaf(1)))))
    assert bodies(made) == [["add", "mul", "relu"]]
    (kernel,) = made.kernels
    assert kernel.region.bytes_moved == 3 * 4 * 64 * 128


def test_a_running_sum_of_two_halves_reads_both() -> None:
    x = leaf(0, (64, 256))
    left, right = (Slice(x, (0, first), (1, 1), (64, 128)) for first in (0, 128))
    (kernel,) = planned(Scan("sum", fn("mul", left, right), 1)).kernels
    assert work_of_scan(kernel.region).read_bytes == kernel.region.bytes_read == 4 * 64 * 256
    assert kernel.bytes_moved == 4 * 64 * (256 + 128)


def test_several_results_come_from_one_kernel() -> None:
    shared = fn("exp", leaf(0))
    made = planned(fn("relu", shared), fn("neg", shared), shared)
    assert len(made.kernels) == 1
    assert len(made.kernels[0].region.stores) == 3


def test_chains_that_share_an_operand_share_a_kernel_and_strangers_do_not() -> None:
    assert len(planned(fn("relu", leaf(0)), fn("neg", leaf(0))).kernels) == 1
    assert len(planned(fn("relu", leaf(0)), fn("neg", leaf(1))).kernels) == 2


def test_small_strangers_are_launched_together() -> None:
    assert len(planned(fn("relu", leaf(0, (8,))), fn("neg", leaf(1, (8,)))).kernels) == 1


def test_a_library_call_ends_a_kernel_and_another_begins_after_it() -> None:
    made = planned(half(cumsum(half(leaf(0)))))
    assert kinds(made) == [Kernel, Library, Kernel]


def test_a_value_before_and_after_a_library_call_is_made_where_it_is_used() -> None:
    """exp(x) is needed only after the sum: it is computed there, not carried across it."""
    x = leaf(0)
    made = planned(fn("mul", fn("exp", x), total(x)))
    assert kinds(made) == [Library, Kernel]
    assert bodies(made) == [["exp", "mul"]]


def test_a_cheap_small_value_is_computed_by_whoever_broadcasts_it() -> None:
    scale = half(leaf(1, (128,)))
    made = planned(fn("mul", leaf(0), Broadcast(scale, LARGE)))
    assert bodies(made) == [["mul", "mul"]]


def test_an_expensive_small_value_is_computed_once() -> None:
    scale = fn("pow", leaf(1, (128,)), leaf(2, (128,)))
    made = planned(fn("mul", leaf(0), Broadcast(scale, LARGE)))
    assert bodies(made) == [["pow"], ["mul"]]


def test_a_chain_of_scalars_is_computed_inside_the_kernel_that_uses_it() -> None:
    count = Map("cast", (state("count", ()),), float64)
    scalar = Map("cast", (fn("sqrt", half(count)),), float32)
    made = planned(fn("mul", leaf(0), scalar))
    assert bodies(made) == [["cast", "mul", "sqrt", "cast", "mul"]]


def test_a_scalar_that_is_returned_too_is_computed_before_what_is_made_of_it() -> None:
    """The order in which a kernel computes is the graph's, wherever its values come from."""
    first = fn("neg", leaf(0, ()))
    second = fn("abs", first)
    third = fn("relu", second)
    made = planned(first, third, fn("mul", leaf(1), second))
    for kernel in made.kernels:
        seen: set[Node] = {node for node, _ in kernel.region.loads}
        for node in kernel.region.body:
            assert all(x in seen for x in node.args)
            seen.add(node)


def test_a_kernel_never_has_more_pointers_than_a_launch_takes() -> None:
    value: Node = leaf(0)
    for number in range(1, 120):
        value = fn("add", value, leaf(number))
    made = planned(value)
    assert len(made.kernels) > 1
    assert all(len(k.region.loads) + len(k.region.stores) <= MOST_POINTERS + 2 for k in made.kernels)


def test_a_bias_with_nothing_after_it_is_added_by_the_library() -> None:
    product = Contract(leaf(0), state("weight", (32, 128)), "ak,zk->az")
    biased = fn("add", product, Broadcast(state("bias", (32,)), (64, 32)))
    made = planned(biased)
    assert kinds(made) == [Library]
    assert isinstance(made.steps[0], Library)
    assert made.steps[0].bias is not None
    more = planned(fn("relu", biased))
    assert kinds(more) == [Library, Kernel]
    assert bodies(more) == [["add", "relu"]]


def test_the_bias_of_a_convolution_is_split_off_where_something_follows() -> None:
    geometry = ((1, 1), (0, 0), (1, 1), 1, False, (0, 0))
    conv = Conv(leaf(0, (2, 3, 8, 8)), state("weight", (4, 3, 3, 3)), *geometry)
    column = Broadcast(Reshape(state("bias", (4,)), (4, 1, 1)), conv.shape)
    assert kinds(planned(fn("add", conv, column))) == [Library]
    assert bodies(planned(fn("relu", fn("add", conv, column)))) == [["add", "relu"]]


def test_small_epilogues_stay_with_their_products() -> None:
    """Other small values share a kernel; what follows a product has one already."""
    products = [Contract(leaf(0, (8, 16)), state(f"w{i}", (16, 8)), "ab,bc->ac") for i in range(2)]
    ends = [fn("relu", product) for product in products]
    loose = [half(leaf(1, (8, 8))), half(leaf(2, (8, 8)))]
    inputs = (leaf(0, (8, 16)), leaf(1, (8, 8)), leaf(2, (8, 8)))
    graph = Graph(inputs, (*ends, *loose), (), Group("tuple", (0, 1, 2, 3)))
    made = plan(graph, Routes(frozenset(products)))
    assert sorted([node.fn for node in kernel.region.body] for kernel in made.kernels) == [
        ["mul", "mul"],
        ["relu"],
        ["relu"],
    ]


# --- views


def test_views_that_strides_can_say_cost_nothing() -> None:
    made = planned(fn("add", Permute(leaf(0, (128, 64)), (1, 0)), leaf(1)))
    assert kinds(made) == [Kernel]
    assert made.kernels[0].region.loads[0][1].strides == (1, 64)


def test_a_view_that_strides_cannot_say_is_not_copied_for_a_kernel() -> None:
    flat = Reshape(Permute(leaf(0, (128, 64)), (1, 0)), (64 * 128,))
    made = planned(fn("relu", flat), cumsum(fn("neg", flat)))
    assert Materialise not in kinds(made)


def test_views_beyond_one_that_is_read_by_index_do_not_multiply_what_it_is_read_from() -> None:
    """Windows put together again: each Reshape by itself could be read by index, both together could not."""
    windows = Permute(Reshape(cumsum(leaf(0, (32, 3, 49, 8))), (32, 3, 49, 8)), (0, 2, 1, 3))
    image = Permute(Reshape(windows, (2, 4, 4, 7, 7, 24)), (0, 1, 3, 2, 4, 5))
    made = planned(half(Reshape(image, (2, 784, 24))))
    copies = [step.result for step in made.steps if isinstance(step, Materialise)]
    assert all(copy.nbytes <= leaf(0, (32, 3, 49, 8)).nbytes for copy in copies)
    assert sum(kernel.bytes_moved for kernel in made.kernels) <= 2 * 32 * 3 * 49 * 8 * 4


def test_coordinates_are_computed_where_they_are_used() -> None:
    shuffled = Reshape(
        Permute(Reshape(leaf(0, (2, 12, 6, 10)), (2, 3, 2, 2, 6, 10)), (0, 1, 4, 2, 5, 3)), (2, 3, 12, 20)
    )
    made = planned(half(Permute(shuffled, (0, 2, 3, 1))))
    (kernel,) = made.kernels
    assert kinds(made) == [Kernel]
    assert [layout.buffer.dtype for _, layout in kernel.region.stores] == [float32]


def test_a_view_with_short_rows_that_strides_cannot_say_is_read_by_index() -> None:
    flat = Reshape(Permute(leaf(0, (8, 64)), (1, 0)), (64 * 8,))
    made = planned(fn("relu", flat))
    assert [origin.strides for _, origin in made.kernels[0].region.sources] == [(1, 64)]


def test_each_operand_is_loaded_once_a_layout() -> None:
    x = leaf(0)
    made = planned(fn("mul", fn("relu", x), x), fn("neg", x))
    assert len(made.kernels[0].region.loads) == 1


# --- memory


def test_a_dead_value_of_the_same_size_gives_its_memory() -> None:
    made = planned(half(cumsum(half(leaf(0)))))
    second = made.kernels[1]
    assert list(second.writes_over.values()) == ["cumsum"]


def test_a_value_that_is_needed_later_keeps_its_memory() -> None:
    middle = cumsum(half(leaf(0)))
    made = planned(cumsum(half(middle)), middle)
    assert all(not kernel.writes_over for kernel in made.kernels)


def test_an_input_is_never_written_over() -> None:
    made = planned(half(leaf(0)))
    assert not made.kernels[0].writes_over


def test_memory_seen_through_an_operator_that_gives_a_view_is_kept() -> None:
    """unfold gives a view of t, and u would else be written over t before the view is read."""
    t = half(leaf(0, (8,)))
    view = Opaque("aten.unfold.default", (t, 0, 2, 2), (), (TensorType((4, 2), float32),))
    u = fn("add", t, Opaque("aten.amax.default", (t, (0,)), (), (TensorType((), float32),)))
    made = planned(cumsum(u), half(Opaque("aten.flip.default", (view, (0,)), (), (TensorType((4, 2), float32),))))
    order = [step.node.target if isinstance(step, Library) else "kernel" for step in made.steps]  # type: ignore[union-attr]
    over = [name for kernel in made.kernels for name in kernel.writes_over.values()]
    assert "mul" not in over or order.index("aten.flip.default") < order.index("aten.cumsum.default")


def test_an_operand_read_out_of_place_is_not_written_over() -> None:
    square = (64, 64)
    x = cumsum(half(leaf(0, square)))
    made = planned(fn("add", x, Permute(x, (1, 0))))
    assert all(not kernel.writes_over for kernel in made.kernels)


# --- state


def test_state_that_only_its_update_reads_is_updated_in_place() -> None:
    count = state("count")
    made = planned(half(leaf(0)), updates=(Update(count, fn("add", count, Const(1.0, float32))),))
    assert CopyBack not in kinds(made)
    assert "count" in [layout.buffer.name for k in made.kernels for _, layout in k.region.stores]


def test_state_that_is_read_later_is_copied_back_at_the_end() -> None:
    count = state("count")
    after = fn("mul", cumsum(half(leaf(0))), count)
    made = planned(after, updates=(Update(count, fn("add", count, Const(1.0, float32))),))
    writers = [i for i, s in enumerate(made.steps) if isinstance(s, Kernel) and s.region.stores[0][1].buffer.source]
    readers = [i for i, s in enumerate(made.steps) if isinstance(s, Kernel) and count in dict(s.region.loads)]
    assert kinds(made)[-1] is CopyBack or max(readers) <= min(writers)


def test_state_that_is_written_but_never_read_has_a_place() -> None:
    made = planned(half(leaf(0)), updates=(Update(state("last"), leaf(1)),))
    assert kinds(made)[-1] is CopyBack


def test_two_states_that_change_places_go_through_copies() -> None:
    a, b = state("a"), state("b")
    made = planned(half(leaf(0)), updates=(Update(a, b), Update(b, a)))
    assert sum(node.fn == "identity" for kernel in made.kernels for node in kernel.region.body) == 2


def running(x: Node, mean: Param) -> Map:
    """A sum over columns, mixed with what it was."""
    return fn("add", half(Reduce("sum", x, (0,))), half(Reshape(mean, (1, *mean.shape))))


def test_a_running_value_of_each_row_is_written_where_the_old_one_was() -> None:
    mean = state("mean", (128,))
    made = planned(half(leaf(0)), updates=(Update(mean, Reshape(running(leaf(0), mean), (128,))),))
    assert CopyBack not in kinds(made)
    assert "mean" in [layout.buffer.name for k in made.kernels for _, layout in k.region.stores]


def test_a_running_value_is_copied_back_where_the_old_one_has_other_readers() -> None:
    mean = state("mean", (128,))
    new = running(leaf(0), mean)
    update = (Update(mean, Reshape(new, (128,))),)
    old = Broadcast(Reshape(mean, (1, 128)), LARGE)
    in_the_row = planned(fn("mul", leaf(0), old), Reduce("sum", fn("mul", leaf(0), old), (0,)), updates=update)
    returned = planned(new, updates=update)
    turned = planned(half(leaf(0)), updates=(Update(mean, Slice(Reshape(new, (128,)), (127,), (-1,), (128,))),))
    for made in (in_the_row, returned, turned):
        kernels = [kernel for kernel in made.kernels if kernel.region.axes]
        assert "mean" not in [layout.buffer.name for kernel in kernels for _, layout in kernel.region.stores]
    elsewhere = planned(fn("mul", cumsum(half(leaf(0))), old), updates=update)
    last = max(i for i, k in enumerate(elsewhere.kernels) if "mean" in [at.buffer.name for at in k.region.reads])
    first = min(i for i, k in enumerate(elsewhere.kernels) if "mean" in [at.buffer.name for _, at in k.region.stores])
    assert last <= first


def batch_norm(x: Node, mean: Param, var: Param) -> Opaque:
    channels = mean.shape
    results = (TensorType(x.shape, x.dtype), *(TensorType(channels, x.dtype),) * 4)
    args = (x, None, None, mean, var, True, 0.1, 1e-5)
    return Opaque("aten._native_batch_norm_legit_functional.default", args, (), results)


def test_batch_norm_updates_its_own_statistics_unless_somebody_else_sees_them() -> None:
    mean, var = state("mean", (128,)), state("var", (128,))
    norm = batch_norm(leaf(0), mean, var)
    updates = (Update(mean, Item(norm, 3)), Update(var, Item(norm, 4)))
    (quiet,) = [s for s in planned(half(Item(norm, 0)), updates=updates).steps if isinstance(s, Library)]
    assert quiet.in_place
    seen = planned(half(Item(norm, 0)), Item(norm, 3), updates=updates)
    (call,) = [s for s in seen.steps if isinstance(s, Library)]
    assert not call.in_place
    assert kinds(seen).count(CopyBack) == 2


# --- concatenations


def test_parts_of_a_concatenation_are_written_where_they_belong() -> None:
    parts = (half(leaf(0)), fn("relu", leaf(1)))
    whole = Opaque("aten.cat.default", (parts, 1), (), (TensorType((64, 256), float32),))
    made = planned(whole)
    assert Library not in kinds(made)
    offsets = sorted(layout.offset for kernel in made.kernels for _, layout in kernel.region.stores)
    assert offsets == [0, 128]


def test_a_part_that_something_else_needs_is_copied_to_its_place() -> None:
    part = half(leaf(0))
    whole = Opaque("aten.cat.default", ((part, fn("relu", leaf(1))), 1), (), (TensorType((64, 256), float32),))
    made = planned(whole, part)
    assert Library not in kinds(made)
    stored = [layout.buffer.shape for kernel in made.kernels for _, layout in kernel.region.stores]
    assert sorted(stored) == [LARGE, (64, 256), (64, 256)]


def test_a_part_that_only_adds_a_bias_is_written_where_it_belongs_too() -> None:
    product = Contract(leaf(0), state("w", (128, 128)), "ab,cb->ac")
    part = fn("add", product, Broadcast(state("bias", (128,)), LARGE))
    whole = Opaque("aten.cat.default", ((part, fn("relu", leaf(1))), 1), (), (TensorType((64, 256), float32),))
    made = planned(fn("exp", Permute(whole, (1, 0))))
    assert [step.bias for step in made.steps if isinstance(step, Library)] == [None]


# --- random draws


def test_random_draws_stay_in_their_order() -> None:
    def draw(serial: int) -> Opaque:
        return Opaque("aten.rand.default", (LARGE,), (), (TensorType(LARGE, float32),), serial)

    first, second = draw(0), draw(1)
    made = planned(fn("add", half(second), first))
    serials = [s.node.serial for s in made.steps if isinstance(s, Library) and isinstance(s.node, Opaque)]
    assert serials == [0, 1]


def test_what_a_draw_needs_shares_no_kernel_with_what_needs_a_later_one() -> None:
    type_ = TensorType(LARGE, float32)
    chance = half(leaf(0))
    first = Opaque("aten.bernoulli.default", (chance,), (), (type_,), 0)
    second = Opaque("aten.rand.default", (LARGE,), (), (type_,), 1)
    made = planned(first, chance, fn("add", half(leaf(0)), second))
    assert kinds(made) == [Kernel, Library, Library, Kernel]
