"""Views between Maps move out of the way, each kind in its one direction, and nothing is computed twice for it."""

from __future__ import annotations

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import (
    Broadcast,
    Const,
    Contract,
    Graph,
    Input,
    Map,
    Node,
    Opaque,
    Param,
    Permute,
    Reduce,
    Reshape,
    Slice,
    TensorType,
    walk,
)
from kernelwright.simplify import simplify

X = Input("x", 0, (4, 6), float32, (6, 1))
Y = Input("y", 1, (4, 6), float32, (6, 1))
ROW = Param("row", (6,), float32, (1,))
HALF = Const(0.5, float32)


def simplified(*outputs: Node) -> tuple[Node, ...]:
    return simplify(Graph((X, Y), outputs, (), 0)).outputs


def fn(name: str, *args: Node) -> Map:
    return Map(name, args)


def left(x: Node) -> Slice:
    return Slice(x, (0, 0), (1, 1), (4, 3))


def right(x: Node) -> Slice:
    return Slice(x, (0, 3), (1, 1), (4, 3))


def test_a_permute_between_two_maps_moves_to_the_leaves() -> None:
    chain = fn("exp", Permute(fn("add", X, Y), (1, 0)))
    assert simplified(chain) == (fn("exp", fn("add", Permute(X, (1, 0)), Permute(Y, (1, 0)))),)


def test_a_reshape_between_two_maps_moves_to_the_leaves() -> None:
    chain = fn("exp", Reshape(fn("mul", X, HALF), (24,)))
    assert simplified(chain) == (fn("exp", fn("mul", Reshape(X, (24,)), HALF)),)


def test_a_chain_of_views_between_maps_moves_whole() -> None:
    chain = fn("exp", Permute(Reshape(fn("sin", X), (2, 2, 6)), (1, 0, 2)))
    assert simplified(chain) == (fn("exp", fn("sin", Permute(Reshape(X, (2, 2, 6)), (1, 0, 2)))),)


def test_a_view_that_two_maps_read_moves_once_for_both() -> None:
    view = Permute(fn("exp", X), (1, 0))
    inner = fn("exp", Permute(X, (1, 0)))
    assert simplified(fn("mul", view, fn("sigmoid", view))) == (fn("mul", inner, fn("sigmoid", inner)),)


def test_a_view_that_is_returned_or_goes_to_pytorch_stays_where_it_is() -> None:
    view = Permute(fn("exp", X), (1, 0))
    assert simplified(view) == (view,)
    total = Opaque("aten.cumsum.default", (view, 0), (), (TensorType((6, 4), float32),))
    assert simplified(total) == (total,)
    assert simplified(view, fn("sin", view)) == (view, fn("sin", view))


def test_a_view_of_something_that_is_used_elsewhere_stays_since_it_would_be_computed_twice() -> None:
    e = fn("exp", X)
    assert simplified(e, fn("sin", Permute(e, (1, 0)))) == (e, fn("sin", Permute(e, (1, 0))))


def test_a_reshape_over_an_operand_that_repeats_inside_the_joined_axes_moves_out_over_what_follows() -> None:
    inner = fn("add", X, Broadcast(ROW, X.shape))
    assert simplified(fn("exp", Reshape(inner, (24,)))) == (Reshape(fn("exp", inner), (24,)),)


def test_maps_before_and_after_a_norm_over_groups_take_its_shape() -> None:
    grouped = Reshape(fn("relu", X), (4, 2, 3))
    centred = fn("sub", grouped, Broadcast(Reduce("max", grouped, (2,)), (4, 2, 3)))
    (result,) = simplified(fn("mul", Reshape(centred, (4, 6)), Broadcast(ROW, (4, 6))))
    assert isinstance(result, Reshape)
    assert {n.shape for n in walk((result,)) if isinstance(n, Map) and n.size == 24} == {(4, 2, 3)}


def test_of_two_norms_over_other_groups_one_takes_what_follows_both() -> None:
    halves, thirds = (Broadcast(Reduce("max", Reshape(X, s), (2,)), s) for s in ((4, 2, 3), (4, 3, 2)))
    first = Reshape(fn("sub", Reshape(X, (4, 2, 3)), halves), (4, 6))
    second = Reshape(fn("sub", Reshape(X, (4, 3, 2)), thirds), (4, 6))
    assert simplified(fn("add", first, second)) == (Reshape(fn("add", first.x, Reshape(second.x, (4, 2, 3))), (4, 6)),)


def test_a_chain_of_views_of_which_one_cannot_move_stays_whole() -> None:
    views = Reshape(Permute(fn("add", X, Broadcast(ROW, (4, 6))), (1, 0)), (24,))
    assert simplified(fn("exp", views)) == (fn("exp", views),)


def test_a_reshape_moves_over_an_operand_that_repeats_whole_axes() -> None:
    chain = fn("exp", Reshape(fn("add", Reshape(X, (2, 2, 6)), Broadcast(ROW, (2, 2, 6))), (4, 6)))
    assert simplified(chain) == (fn("exp", fn("add", X, Broadcast(ROW, (4, 6)))),)


def test_the_halves_of_a_gate_are_computed_from_the_halves_of_its_operands() -> None:
    h = fn("add", X, Broadcast(ROW, (4, 6)))
    gate = fn("mul", left(h), fn("sigmoid", right(h)))
    (simple,) = simplified(gate)
    assert simple is fn(
        "mul",
        fn("add", left(X), Broadcast(Slice(ROW, (0,), (1,), (3,)), (4, 3))),
        fn("sigmoid", fn("add", right(X), Broadcast(Slice(ROW, (3,), (1,), (3,)), (4, 3)))),
    )


def test_slices_that_overlap_stay_since_the_shared_part_would_be_computed_twice() -> None:
    h = fn("exp", X)
    most = Slice(h, (0, 0), (1, 1), (4, 5))
    rest = Slice(h, (0, 1), (1, 1), (4, 5))
    assert simplified(fn("mul", most, rest)) == (fn("mul", most, rest),)


def test_a_single_slice_moves_in_even_if_it_is_returned_as_less_is_computed() -> None:
    assert simplified(left(fn("exp", X))) == (fn("exp", left(X)),)


def test_a_broadcast_moves_out_so_that_fewer_elements_are_computed() -> None:
    wide = fn("exp", fn("mul", Broadcast(ROW, (4, 6)), HALF))
    assert simplified(fn("add", X, wide)) == (fn("add", X, Broadcast(fn("exp", fn("mul", ROW, HALF)), (4, 6))),)


def test_a_row_and_a_column_meet_in_the_smallest_shape_that_holds_both() -> None:
    column = Param("column", (4, 1), float32, (1, 1))
    both = fn("add", Broadcast(ROW, (2, 4, 6)), Broadcast(column, (2, 4, 6)))
    small = fn("add", Broadcast(ROW, (4, 6)), Broadcast(column, (4, 6)))
    (result,) = simplified(fn("mul", both, Broadcast(fn("exp", X), (2, 4, 6))))
    assert result is fn("identity", Broadcast(fn("mul", small, fn("exp", X)), (2, 4, 6)))


def test_permutes_of_the_operands_of_a_contraction_become_its_labels() -> None:
    product = Contract(X, Permute(Y, (1, 0)), "ij,jk->ik")
    assert simplified(product) == (Contract(X, Y, "ij,kj->ik"),)


def test_a_contraction_of_two_operands_that_repeat_is_computed_once() -> None:
    a, b = Broadcast(X, (5, 4, 6)), Broadcast(Permute(Y, (1, 0)), (5, 6, 4))
    (result,) = simplified(fn("exp", Contract(a, b, "bij,bjk->bik")))
    assert result is fn("identity", Broadcast(fn("exp", Contract(X, Y, "ij,kj->ik")), (5, 4, 4)))
