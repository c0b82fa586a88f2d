"""Epilogues that reduce, as text: sums are given, lanes are rows or columns, and a launcher says how a tile ends."""

from __future__ import annotations

from pathlib import Path

from kernelwright.device import resolve
from kernelwright.generate.conv import conv_extra, conv_source, shape_of
from kernelwright.generate.program import Source
from kernelwright.generate.tile_rows import tile_rows
from kernelwright.ir.nodes import Conv, Map, Node, Reduce
from kernelwright.kernels import conv_direct, conv_mma, conv_sm90_kept
from kernelwright.plan import Kernel
from kernelwright.plan.tiles import Pieces
from tests.products import program_of
from tests.unit.plan.test_tiles import conv, norm, planned, softmax, windows

H200 = resolve("h200")


def joined(node: Conv, result: Node) -> Kernel:
    return planned(node, result).kernels[0]


def source(kernel: Kernel) -> Source:
    return conv_source(conv_mma, kernel, conv_mma.configs(shape_of(kernel), H200)[0])


def test_lanes_are_pixels_where_a_tile_has_whole_rows() -> None:
    node = conv()
    made = source(joined(node, softmax(Map("relu", (node,)), (1,))))
    assert "static constexpr bool across = true;" in made.struct
    assert "template <int N> struct Operands { kw::Vec<float, N> product; };" in made.struct
    assert "const float t0 = kw::relu(x.product[i]);" in made.struct
    assert "r.t1[i] = rows[i].t1[0]; r.t4[i] = rows[i].t4[0];" in made.struct
    assert "ConvMaxExponentialsDiv, kw::conv_rows::Reduced>" in made.struct
    assert {"conv_rows", "Largest", "Sum"} <= set(made.needs)
    assert "conv_pieces" not in made.needs


def test_rows_in_pieces_leave_their_states_in_a_workspace() -> None:
    node = conv()
    kernel = joined(node, norm(node, (2, 3)))
    config = conv_mma.configs(shape_of(kernel), H200)[0]
    (workspace,) = conv_extra(conv_mma, kernel, config).scratch
    parts = conv_mma.parts_of_a_row(config, shape_of(kernel))
    assert workspace.nbytes == 4 * 12 * parts * 16  # a sum, and a count, a mean and a square
    text = source(kernel).struct
    assert "static constexpr bool across = false;" in text
    assert f"kw::conv_pieces::Kept<1, false>, {workspace.nbytes}>(*args, stream)" in text
    assert f"return a.{workspace.name};" in text


def test_windows_say_their_size_along_every_axis() -> None:
    node = conv()
    made = source(joined(node, Reduce("max", windows(node, 2, 2), (4, 5))))
    assert "kw::conv_windows::Pooled<1, 2, 2>>" in made.struct
    assert "rows = 3456, columns = 4," in made.struct


def test_what_a_template_is_told_of_the_rows() -> None:
    node = conv()
    whole = tile_rows(joined(node, softmax(Map("relu", (node,)), (1,))).region)
    assert (whole.pieces, whole.window, whole.rows, whole.phases) == (None, (), 4 * 16 * 18, 3)
    assert (whole.by_rows, whole.line, whole.alike) == (True, False, True)
    pieces = tile_rows(joined(node, norm(node, (0, 2, 3))).region)
    assert (pieces.pieces, pieces.rows, pieces.phases) == (Pieces(1, all_images=True), 12, 1)


def test_a_softmax_of_registers_is_taken_apart() -> None:
    """Its largest first, then the sum, whose inverse is found once."""
    node = conv()
    text = source(joined(node, softmax(node, (1,)))).struct
    assert "static constexpr int phases = 3, reductions = 2;" in text
    assert "r.by_t3[i] = float(1) / t3;" in text
    assert "= t2 * r.by_t3[i];" in text


def test_rows_along_the_last_axis_are_whole_where_weights_stay() -> None:
    node = conv()
    kernel = joined(node, softmax(node, (3,)))
    rows = tile_rows(kernel.region)
    assert (rows.pieces, rows.line, rows.by_rows) == (None, True, True)
    assert conv_mma.configs(shape_of(kernel), H200) == ()
    config = conv_sm90_kept.configs(shape_of(kernel), H200)[0]
    made = conv_source(conv_sm90_kept, kernel, config)
    assert "kw::conv_lines::Lined>" in made.struct
    assert "conv_lines" in made.needs


def test_no_config_has_a_tile_without_what_it_reduces() -> None:
    many = conv("Conv2d(8, 300, 3)")
    assert conv_mma.configs(shape_of(joined(many, Reduce("max", many, (1,)))), H200) == ()
    node = conv()
    assert conv_direct.configs(shape_of(joined(node, Reduce("max", node, (1,)))), H200) == ()
    pooled = shape_of(joined(node, Reduce("max", windows(node, 2, 2), (4, 5))))
    for config in conv_mma.configs(pooled, H200):
        assert config.tile_h % 2 == config.tile_w % 2 == 0
    for config in conv_mma.configs(shape_of(joined(node, norm(node, (2, 3)))), H200):
        assert config.tile_b == 1


def test_a_product_says_how_many_parts_a_row_has_and_finishes_it(tmp_path: Path) -> None:
    made = program_of(
        tmp_path, "F.silu(self.layer(x0)).sum(1)", ("torch.rand(1024, 8192)",), "nn.Linear(8192, 8192)", "h200"
    )
    (found,) = made.sources
    assert "kw::gemm_sm90::launch<gemm_sum_Config, kw::gemm_rows::Kept<GemmSum, 32>>(" in found.struct
    assert "return kw::row_pieces::finish<GemmSum, 1024, 32, 262144>(*args, stream);" in found.struct
    assert [buffer.nbytes for buffer in made.launches[0].allocations if buffer.name == "rows_gemm_sum"] == [262144]
    assert "// --- cuda/gemm_rows.cuh" in made.text
    assert "conv_pieces" not in made.text
