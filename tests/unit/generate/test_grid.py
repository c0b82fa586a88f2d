"""How a kernel walks over its region: axes merged, rows, flat or tiles, and what the templates are told."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.device import resolve
from kernelwright.generate.grid import BrickAccess, BrickGrid, Grid, grid_of, merged_axes, work_of
from kernelwright.ir.dtypes import DType, float16, float32
from kernelwright.ir.nodes import Broadcast, Input, Map, Node, Permute, Shape, Slice
from kernelwright.kernels.pointwise import configs
from kernelwright.plan import Kernel, plan
from kernelwright.plan.steps import contiguous
from tests.property.random_graphs import Builder
from tests.unit.plan.test_plan import planned


def leaf(number: int, shape: Shape, dtype: DType = float32) -> Input:
    return Input(f"x{number}", number, shape, dtype, contiguous(shape))


def kernel_of(*outputs: Node) -> Kernel:
    (kernel,) = planned(*outputs).kernels
    return kernel


def grid(kind: str, *outputs: Node) -> Grid:
    return grid_of(kernel_of(*outputs).region, kind)


def test_a_dense_computation_is_one_row_whatever_its_rank() -> None:
    made = grid("cuda", Map("add", (leaf(0, (4, 5, 6, 8)), leaf(1, (4, 5, 6, 8)))))
    assert (made.walk, made.rows, made.columns) == ("rows", 1, 4 * 5 * 6 * 8)


def test_a_bias_leaves_rows_and_columns() -> None:
    made = grid("cpu", Map("add", (leaf(0, (4, 5, 64)), Broadcast(leaf(1, (64,)), (4, 5, 64)))))
    assert (made.rows, made.columns) == (20, 64)
    assert [a.inner for a in made.loads] == [1, 1]
    assert made.loads[1].outer == (0,)


def test_a_column_vector_is_one_value_for_all_columns() -> None:
    made = grid("cpu", Map("add", (leaf(0, (16, 64)), Broadcast(leaf(1, (16, 1)), (16, 64)))))
    assert made.loads[1].inner == 0


def test_large_rows_that_vectors_do_not_divide_are_walked_flat_on_a_gpu() -> None:
    shape = (1000, 333)
    biased = Map("add", (leaf(0, shape), Broadcast(leaf(1, (333,)), shape)))
    assert grid("cuda", biased).walk == "flat"
    assert grid("cpu", biased).walk == "rows"


def test_short_rows_are_walked_flat_on_a_cpu() -> None:
    for columns, walk in ((3, "flat"), (20, "flat"), (16, "rows"), (48, "rows"), (100, "rows")):
        shape = (500, columns)
        assert grid("cpu", Map("add", (leaf(0, shape), Broadcast(leaf(1, (columns,)), shape)))).walk == walk


def test_a_large_transposed_operand_goes_through_tiles_on_a_gpu() -> None:
    turned = Map("add", (Permute(leaf(0, (512, 640)), (1, 0)), leaf(1, (640, 512))))
    made = grid("cuda", turned)
    assert (made.walk, made.depth, made.columns) == ("tiles", 640, 512)
    assert grid("cpu", turned).walk == "rows"


def test_more_transposed_operands_than_tiles_fit_are_gathered() -> None:
    turned: Node = leaf(0, (640, 512))
    for number in range(1, 9):
        turned = Map("add", (turned, Permute(leaf(number, (512, 640)), (1, 0))))
    kernel = kernel_of(turned)
    assert grid_of(kernel.region, "cuda").walk == "rows"
    assert configs(work_of(kernel.region, grid_of(kernel.region, "cuda")), resolve("h200"))


def permuted(number: int, axes: Shape, shape: Shape, dtype: DType = float32) -> Node:
    """An operand of this shape whose axes lie in this order."""
    back = tuple(axes.index(axis) for axis in range(len(shape)))
    return Permute(leaf(number, tuple(shape[axis] for axis in axes), dtype), back)


IMAGES = (4, 24, 40, 64)


def test_operands_along_two_other_axes_go_through_bricks_on_a_gpu() -> None:
    last, turned = permuted(1, (0, 2, 3, 1), IMAGES), permuted(2, (0, 1, 3, 2), IMAGES)
    summed = Map("add", (Map("add", (leaf(0, IMAGES), last)), turned))
    made = grid("cuda", summed)
    assert isinstance(made, BrickGrid)
    assert (made.walk, made.rows, made.height, made.depth, made.columns) == ("bricks", 4, 40, 24, 64)
    assert [a.lies_along for a in made.loads if isinstance(a, BrickAccess)] == ["columns", "depth", "height"]
    assert grid("cpu", summed).walk == "rows"


def test_two_operands_along_one_axis_need_no_bricks() -> None:
    last = [permuted(number, (0, 2, 3, 1), IMAGES) for number in (1, 2)]
    assert grid("cuda", Map("add", (Map("add", (leaf(0, IMAGES), last[0])), last[1]))).walk == "tiles"


def test_an_axis_too_short_for_a_brick_is_gathered_along() -> None:
    shape = (64, 3, 40, 56)
    last, turned = permuted(1, (0, 2, 3, 1), shape), permuted(2, (0, 1, 3, 2), shape)
    made = grid("cuda", Map("add", (Map("add", (leaf(0, shape), last)), turned)))
    assert made.walk != "bricks"


def test_more_operands_along_two_axes_than_bricks_hold_are_gathered() -> None:
    total: Node = leaf(0, IMAGES)
    for number in range(1, 9):
        total = Map("add", (total, permuted(number, ((0, 2, 3, 1), (0, 1, 3, 2))[number % 2], IMAGES)))
    kernel = kernel_of(total)
    walked = grid_of(kernel.region, "cuda")
    assert walked.walk != "bricks"
    assert configs(work_of(kernel.region, walked), resolve("h200"))


def test_the_template_hears_which_operands_lie_along_which_edge() -> None:
    last, turned = permuted(1, (0, 2, 3, 1), IMAGES, float16), permuted(2, (0, 1, 3, 2), IMAGES)
    kernel = kernel_of(Map("add", (Map("cast", (last,), float32), turned)))
    work = work_of(kernel.region, grid_of(kernel.region, "cuda"))
    assert (work.itemsizes, work.along_depth, work.along_height) == ((4,), (2,), (4,))
    assert (work.height, work.depth, work.columns, work.size) == (40, 24, 64, math.prod(IMAGES))
    assert all(n % 8 == 0 for n in work.alignments)


def test_many_elements_are_counted_in_64_bits() -> None:
    assert grid("cuda", Map("relu", (leaf(0, (2**31,)),))).wide_index
    assert not grid("cuda", Map("relu", (leaf(0, (2**30,)),))).wide_index


def test_far_elements_are_counted_in_64_bits_however_few_they_are() -> None:
    sliced = Slice(leaf(0, (2**16, 2**16)), (0, 0), (2, 1), (2**15, 64))
    assert grid("cuda", Map("relu", (sliced,))).wide_index


def test_the_template_hears_of_every_misaligned_start() -> None:
    sliced = Slice(leaf(0, (64, 130)), (0, 2), (1, 1), (64, 128))
    kernel = kernel_of(Map("relu", (sliced,)))
    work = work_of(kernel.region, grid_of(kernel.region, "cuda"))
    assert {2, 130} <= set(work.alignments)
    assert work.itemsizes == (4, 4)


def test_the_widest_of_mixed_operands_is_told() -> None:
    kernel = kernel_of(Map("cast", (leaf(0, (64, 128), float16),), float32))
    assert work_of(kernel.region, grid_of(kernel.region, "cuda")).itemsizes == (2, 4)


@given(data=st.data())
def test_merged_axes_reach_the_same_elements_in_the_same_order(data: st.DataObject) -> None:
    builder = Builder(data.draw)
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=5)))
    operands = [builder.strides(shape) for _ in range(2)]
    merged = merged_axes(shape, operands)
    extents = tuple(extent for extent, _ in merged)
    assert math.prod(extents) == math.prod(shape)
    for number, strides in enumerate(operands):
        reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        memory = torch.arange(reach)
        after = tuple(own[number] for _, own in merged)
        assert torch.equal(memory.as_strided(shape, strides).flatten(), memory.as_strided(extents, after).flatten())


def test_the_plan_is_not_needed_to_be_a_tuple_of_one() -> None:
    """A region of rank 0 has one element, and a grid of one."""
    made = plan(planned(Map("relu", (leaf(0, ()),))).graph)
    only = grid_of(made.kernels[0].region, "cuda")
    assert (only.rows, only.columns) == (1, 1)
