"""Kernels that reduce, as text: phases in order, each value where it belongs, the walk that memory asks for."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import ranked_choices
from kernelwright.generate.grid import Bound
from kernelwright.generate.phases import phases_of
from kernelwright.generate.reduce import RowsWriter, reduce_source, work_of_rows
from kernelwright.generate.rows import row_grid
from kernelwright.ir.dtypes import DType, float16, float32
from kernelwright.ir.nodes import Broadcast, Const, Graph, Input, Map, Node, Permute, Reduce, Shape
from kernelwright.kernels import reduce
from kernelwright.kernels.reduce import Config, CpuConfig, Operand
from kernelwright.plan import Kernel, plan
from kernelwright.plan.steps import contiguous

CPU, H200 = resolve("cpu"), resolve("h200")


def leaf(number: int, shape: Shape, dtype: DType = float32) -> Input:
    return Input(f"x{number}", number, shape, dtype, contiguous(shape))


def kernel_of(*outputs: Node) -> Kernel:
    inputs = sorted({n for n in Graph((), outputs, (), 0).nodes() if isinstance(n, Input)}, key=lambda n: n.position)
    (kernel,) = plan(Graph(tuple(inputs), outputs, (), 0)).kernels
    return kernel


def softmax(x: Node, axes: Shape) -> Node:
    apart = Map("sub", (x, Broadcast(Reduce("max", x, axes), x.shape)))
    return Map("div", (Map("exp", (apart,)), Broadcast(Reduce("exponentials", x, axes), x.shape)))


def text_of(*outputs: Node) -> str:
    return reduce_source(kernel_of(*outputs), CpuConfig(16, 2048, 0, 1)).struct


def test_a_kernel_reads_like_code() -> None:
    x, w = leaf(0, (64, 100)), leaf(1, (100,))
    length = Map("sqrt", (Reduce("sum", Map("mul", (x, x)), (1,)),))
    text = text_of(Map("mul", (Map("div", (x, Broadcast(length, x.shape))), Broadcast(w, x.shape))))
    assert text == dedent(
        """\
        // y = (x0 / sqrt(sum(x0 * x0))) * x1
        struct SumMul {
            using Index = int;
            static constexpr int64_t rows = 64, columns = 100, line = 100;
            struct Args { const float* x0; const float* x1; float* y; };
            static constexpr int phases = 2, reductions = 1;
            static constexpr bool across = false;

            template <int N> struct Operands { kw::Vec<float, N> x0; };

            template <int N> struct Row { float t2; kw::Divisor<float> by_t2; };

            template <int phase, int N> struct State {
                KW_DEVICE void clear() {}
                KW_DEVICE void merge(const State&) {}
                KW_DEVICE State<phase, 1> folded() const { return {}; }
            };
            template <int N> struct State<0, N> {
                kw::Sum<float, N> t1;
                KW_DEVICE void clear() { t1.clear(); }
                KW_DEVICE void merge(const State& other) { t1.merge(other.t1); }
                KW_DEVICE State<0, 1> folded() const { return {t1.folded()}; }
            };

            template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
                Operands<N> x;
                x.x0 = kw::load<N>(a.x0 + row * columns + column);
                return x;
            }

            template <int N> KW_DEVICE static Row<N> begin(const Args& a, Index row) {
                Row<N> r;
                return r;
            }

            template <int N>
            KW_DEVICE static void step(const Args& a, Index row, Index column, const Operands<N>& x, const Row<1>& r,
                                       State<0, N>& s) {
                KW_LANES for (int i = 0; i < N; ++i) {
                    const float t0 = x.x0[i] * x.x0[i];
                    s.t1.add(i, t0);
                }
            }

            template <int N>
            KW_DEVICE static void step(const Args& a, Index row, Index column, const Operands<N>& x, const Row<1>& r,
                                       State<1, N>& s) {
                const auto x1 = kw::load<N>(a.x1 + column);
                kw::Vec<float, N> y;
                KW_LANES for (int i = 0; i < N; ++i) {
                    const float t3 = kw::divided(x.x0[i], r.by_t2);
                    const float t4 = t3 * x1[i];
                    y[i] = t4;
                }
                kw::store<N>(a.y + row * columns + column, y);
            }

            template <int N> KW_DEVICE static void finish(const State<0, N>& s, Row<N>& r) {
                const float t1 = s.t1.value(0);
                const float t2 = kw::sqrt(t1);
                r.t2 = t2;
                r.by_t2 = kw::Divisor<float>(t2);
            }

            template <int N> KW_DEVICE static void store_row(const Args& a, Index row, const Row<N>& r) {}
        };"""
    )


@pytest.mark.parametrize("shape", [(0, 100), (0, 393216)])
def test_no_rows_have_a_choice_too(shape: Shape) -> None:
    """Their kernel is left out of the program, after it was chosen."""
    for output in (Reduce("sum", leaf(0, shape), (1,)), softmax(leaf(0, shape), (1,))):
        assert ranked_choices(kernel_of(output), H200)


def test_a_row_of_almost_two_to_the_31_has_wide_indices_where_blocks_would_step_beyond() -> None:
    long = Map("div", (leaf(0, (1, 2**31 - 2**21)), Const(2.0, float32)))
    assert "using Index = int64_t;" in text_of(Map("div", (long, Broadcast(Reduce("sum", long, (1,)), long.shape))))


def test_the_struct_is_the_same_for_both_devices() -> None:
    kernel = kernel_of(softmax(leaf(0, (64, 100)), (1,)))
    config = Config(128, 4, 32, 1, "again", 1, False)
    cuda, cpu = reduce_source(kernel, config).struct, reduce_source(kernel, CpuConfig(16, 2048, 0, 1)).struct
    assert cuda.startswith(cpu)
    assert cuda.removeprefix(cpu).strip().startswith("struct")


def test_what_only_the_last_phase_needs_is_loaded_there() -> None:
    x, bias = leaf(0, (64, 100)), leaf(1, (100,))
    text = text_of(Map("add", (softmax(x, (1,)), Broadcast(bias, x.shape))))
    assert "struct Operands { kw::Vec<float, N> x0; }" in text
    assert text.count("kw::load<N>(a.x1 + column)") == 1
    assert text.index("kw::load<N>(a.x1 + column)") > text.index("State<1, N>& s")


@pytest.mark.parametrize("name", ["r", "s", "columns", "x", "t1", "j0"])
def test_an_operand_may_be_called_like_a_variable_of_the_kernel(name: str) -> None:
    x, late = leaf(0, (64, 100)), Input(name, 1, (64, 100), float32, contiguous((64, 100)))
    text = text_of(Map("mul", (softmax(x, (1,)), late)))
    assert f"const auto {name}_ = kw::load<N>(a.{name} + row * columns + column);" in text


def test_what_belongs_to_a_row_is_loaded_and_computed_once_a_row() -> None:
    x, scale = leaf(0, (64, 100)), leaf(1, (64, 1))
    text = text_of(Reduce("sum", Map("mul", (x, Broadcast(scale, x.shape))), (1,)))
    begin = text[text.index("Row<N> begin") : text.index("static void step")]
    assert "r.x1 = a.x1[row];" in begin
    assert "const float t0 = x.x0[i] * r.x1;" in text


def test_phases_follow_the_reductions() -> None:
    x = leaf(0, (8, 50))
    mean = Map("div", (Reduce("sum", x, (1,)), Const(50.0, float32)))
    rest = Map("sub", (x, Broadcast(mean, x.shape)))
    largest = Reduce("max", rest, (1,))
    region = kernel_of(Map("div", (rest, Broadcast(largest, x.shape)))).region
    phases = phases_of(region, ())
    assert (phases.walks, phases.finishing) == (3, 2)
    assert [node.fn for node in phases.reduced_in(0)] == ["sum"]
    assert [node.fn for node in phases.reduced_in(1)] == ["max"]
    assert [node.fn for node in phases.computed_in(2)] == ["sub", "div"]
    assert [node.fn for node in phases.row_values(1)] == ["sum", "div"]


def test_a_result_that_is_known_in_the_first_phase_is_stored_there() -> None:
    x = leaf(0, (8, 50))
    doubled = Map("add", (x, x))
    region = kernel_of(doubled, Reduce("sum", doubled, (1,))).region
    phases = phases_of(region, ())
    assert phases.walks == 1
    assert [node for node, _ in phases.stores_in(0)] == [doubled]
    over = phases_of(kernel_of(doubled, softmax(doubled, (1,))).region, ["add"])
    assert over.walks == 2


@pytest.mark.parametrize(
    ("shape", "axes", "order", "across"),
    [
        ((8, 50), (1,), (0, 1), False),
        ((50, 64), (0,), (0, 1), True),
        ((8, 50), (1,), (1, 0), True),
        ((4, 64, 7, 9), (0, 2, 3), (0, 1, 2, 3), False),
        ((4, 64, 7, 9), (1,), (0, 2, 3, 1), False),  # channels last
        ((4, 64, 7, 9), (2, 3), (0, 2, 3, 1), True),
        ((1000, 3), (1,), (0, 1), True),  # rows so short that vectors go over many of them
    ],
)
def test_vectors_run_along_memory(shape: Shape, axes: Shape, order: Shape, across: bool) -> None:
    stored = leaf(0, tuple(shape[axis] for axis in order))
    x: Node = Permute(stored, tuple(order.index(axis) for axis in range(len(shape))))
    grid = row_grid(kernel_of(Reduce("sum", x, axes)).region)
    assert grid.across == across


def test_an_axis_kept_between_two_that_are_reduced_leaves_two_axes_of_columns() -> None:
    x = leaf(0, (4, 64, 7, 9))
    grid = row_grid(kernel_of(Reduce("sum", x, (0, 2, 3))).region)
    assert (grid.outer, grid.reduced, grid.line) == ((64,), (4, 63), 63)
    text = text_of(Reduce("sum", x, (0, 2, 3)))
    assert "const Index j0 = column / 63;" in text
    assert "const Index j1 = column % 63;" in text


def test_argmax_counts_as_pytorch_does_whatever_the_order_in_memory() -> None:
    stored = leaf(0, (4, 7, 9, 64))
    x = Permute(stored, (0, 3, 1, 2))
    text = text_of(Reduce("argmax", x, (1, 2, 3)))
    assert "* 63" in text, "one step along the channels is 63 elements further"


def test_sixteen_bit_operands_are_held_in_sixteen_bits() -> None:
    x = leaf(0, (64, 100), float16)
    kernel = kernel_of(Map("cast", (softmax(Map("cast", (x,), float32), (1,)),), float16))
    assert work_of_rows(kernel).operands == (Operand(2),)
    assert "kw::Vec<kw::half, N> x0;" in RowsWriter(kernel).struct("Softmax", "")


def test_what_is_one_for_all_lanes_is_not_held_with_its_vector() -> None:
    x, bias = leaf(0, (128, 8, 4, 64516)), leaf(1, (8, 4, 1))
    kernel = kernel_of(softmax(Map("add", (x, Broadcast(bias, x.shape))), (2, 3)))
    assert work_of_rows(kernel).operands == (Operand(4),)
    source = reduce_source(kernel, Config(1024, 4, 1024, 8, "shared", 8, True))
    assert "struct Operands { kw::Vec<float, N> x0; };" in source.struct
    assert "static constexpr int64_t shared_bytes = 131072;" in source.struct


def test_a_split_reduction_asks_for_a_workspace() -> None:
    kernel = kernel_of(Reduce("sum", leaf(0, (1 << 22,)), (0,)))
    source = reduce_source(kernel, Config(256, 4, 256, 4, "again", 64, False))
    assert "kw::reduce_split<Sum, SumConfig>({x0, y}, workspace_sum, stream)" in source.call
    assert f"workspace_bytes = {reduce.workspace_bytes(source.choice, work_of_rows(kernel))}" in source.struct  # type: ignore[arg-type]


def test_a_place_along_a_line_with_borders_may_need_64_bits() -> None:
    grid = row_grid(kernel_of(Reduce("sum", leaf(0, (64, 100)), (1,))).region)
    assert not grid.wide_index
    bound = Bound((1, 1), 0, 2**31)
    assert replace(grid, loads=(replace(grid.loads[0], bounds=(bound,)),)).wide_index
