"""Which template multiplies: by type, shape, device and what the user allows; the library where ours would not win."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.device import resolve
from kernelwright.generate.generate import source_of
from kernelwright.ir.nodes import Contract
from kernelwright.kernels import gemm_sm90_half
from kernelwright.plan import Routes, plan, prepared
from kernelwright.tune.routes import library_us
from tests.products import graph_of, program_of

LINEAR = ("torch.relu(self.layer(x0)) / 2", ("torch.rand(1024, 8192)",), "nn.Linear(8192, 8192)")
HALF = (
    "F.gelu(self.layer(x0)) + x1",
    ("torch.rand(4096, 4096).half()", "torch.rand(4096, 4096).half()"),
    "nn.Linear(4096, 4096).half()",
)
BFLOAT16 = (
    "torch.relu(self.layer(x0)) * 2",
    ("torch.rand(1024, 8192).bfloat16()",),
    "nn.Linear(8192, 8192, bias=False).bfloat16()",
)
ONE_ROW = ("torch.relu(self.layer(x0))", ("torch.rand(1, 8192)",), "nn.Linear(8192, 8192)")
EIGHT_ROWS = ("torch.relu(self.layer(x0))", ("torch.rand(8, 8192)",), "nn.Linear(8192, 8192)")
TINY_K = ("torch.relu(x0 @ x1) + 1", ("torch.rand(4096, 16)", "torch.rand(16, 4096)"), "None")

CASES = {
    "float32 on Hopper": (LINEAR, "h200", "reference", "gemm_sm90"),
    "float32 on Ampere": (LINEAR, "a100", "reference", "gemm_sm80"),
    "float32 where TF32 is allowed": (LINEAR, "h200", "tf32", "gemm_sm90_f16x1"),
    "float32 where bfloat16 is allowed": (LINEAR, "h200", "bf16", "gemm_sm90_f16x1"),
    "float32's own operations: the library is faster": (LINEAR, "h200", "ieee", "pointwise"),
    "float16 with bias, gelu and residual": (HALF, "h200", "reference", "gemm_sm90_half"),
    "bfloat16": (BFLOAT16, "h200", "reference", "gemm_sm90_half"),
    "bfloat16 on Ampere: left to the library": (BFLOAT16, "a100", "reference", "pointwise"),
    "one row": (ONE_ROW, "h200", "reference", "gemm_skinny"),
    "one row, float32's own operations": (ONE_ROW, "h200", "ieee", "gemm_skinny"),
    "eight rows on Ampere": (EIGHT_ROWS, "a100", "reference", "gemm_skinny"),
    "k of 16": (TINY_K, "h200", "reference", "gemm_simt"),
    "k of 16 on Ampere": (TINY_K, "a100", "reference", "gemm_simt"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_template_suits_the_product(tmp_path: Path, name: str) -> None:
    model, device, precision, template = CASES[name]
    (source,) = program_of(tmp_path, *model, device, precision).sources
    assert source.template == template


ROUNDING = ("gemm_sm90_f16x1",)
NOT_IEEE = ("gemm_sm90", "gemm_sm90_bricks", "gemm_sm90_turned", "gemm_sm80", *ROUNDING)


@pytest.mark.parametrize(("precision", "never"), [("reference", ROUNDING), ("ieee", NOT_IEEE)])
@pytest.mark.parametrize("device", ["h200", "a100", "l40s", "b200"])
def test_no_choice_rounds_more_than_is_allowed(
    tmp_path: Path, precision: str, never: tuple[str, ...], device: str
) -> None:
    for number, model in enumerate((LINEAR, ONE_ROW, EIGHT_ROWS, TINY_K)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not {s.template for s in program_of(folder, *model, device, precision).sources} & set(never)


def test_a_float16_layer_of_ours_rounds_once_after_its_bias(tmp_path: Path) -> None:
    (source,) = program_of(tmp_path, *HALF, "h200").sources
    functions = [node.fn for node in source.kernel.region.maps]
    assert functions[:3] == ["cast", "add", "cast"]  # the bias widened, added to float32 sums, and one rounding
    assert "= product[i] + t0;" in source.struct


def test_a_float16_product_without_bias_is_rounded_before_what_follows(tmp_path: Path) -> None:
    (source,) = program_of(tmp_path, *BFLOAT16, "h200").sources
    assert isinstance(source.choice, gemm_sm90_half.Config)
    late = replace(source.choice, late=True), "Settled = kw::Vec<kw::bfloat16, N>;", "kw::widen(settled[i])"
    at_once = replace(source.choice, late=False), "kw::cast<kw::bfloat16>(product[i])", "const float t0"
    for choice, rounded, used in (late, at_once):
        struct = source_of(source.kernel, choice).struct
        assert rounded in struct
        assert used in struct


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("k of 16", {"gemm_simt", "gemm_epilogue", "gemm_prologue"}),
        ("one row", {"gemm_skinny", "ptx80", "ptx90"}),
        ("bfloat16", {"gemm_sm90_half", "gemm_epilogue", "ptx90"}),
    ],
)
def test_the_file_carries_only_the_headers_of_its_template(tmp_path: Path, name: str, headers: set[str]) -> None:
    model, device, precision, _ = CASES[name]
    text = program_of(tmp_path, *model, device, precision).text
    carried = {
        line.split("cuda/")[1].removesuffix(".cuh") for line in text.splitlines() if line.startswith("// --- cuda/")
    }
    assert carried - {"launch"} == headers


# m, n, k and the milliseconds that cuBLAS took for float32 on an H200 (docs/gemm.md).
CUBLAS = {
    (1024, 8192, 8192): 2.750,
    (4096, 4096, 512): 0.365,
    (4096, 4096, 256): 0.196,
    (4096, 4096, 128): 0.129,
    (4096, 4096, 64): 0.0763,
    (4096, 4096, 32): 0.0525,
    (4096, 4096, 16): 0.0381,
    (64, 8192, 8192): 0.211,
    (16, 8192, 8192): 0.148,
    (8, 8192, 8192): 0.146,
    (1, 8192, 8192): 0.0986,
}


@pytest.mark.parametrize("sizes", CUBLAS)
def test_the_model_of_the_library_is_near_what_was_measured(tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    graph = graph_of(tmp_path, "x0 @ x1", (f"torch.rand({m}, {k})", f"torch.rand({k}, {n})"), "None")
    own = frozenset(node for node in prepared(graph).nodes() if isinstance(node, Contract))
    (kernel,) = plan(graph, Routes(own)).kernels
    assert library_us(kernel, resolve("h200")) == pytest.approx(CUBLAS[sizes] * 1e3, rel=0.2)


def test_strict_weights_are_packed_in_the_call_itself(tmp_path: Path) -> None:
    (ahead,) = program_of(tmp_path, *LINEAR, "h200").launches
    (strict,) = program_of(tmp_path, *LINEAR, "h200", strict_weights=True).launches
    assert [b.packed_from is not None for b in ahead.pointers].count(True) == 1
    assert not any(b.packed_from for b in strict.pointers)
    assert "kw::split::pack_by<" in strict.sources[0].struct
    assert any(b.name.startswith("workspace") for b in strict.allocations)


def test_the_flag_of_pytorch_that_allows_tf32_holds_for_our_products(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    (source,) = program_of(tmp_path, *LINEAR, "h200").sources
    torch.set_float32_matmul_precision(before)
    assert source.template == "gemm_sm90_f16x1"


def test_one_weight_in_two_products_is_packed_for_each(tmp_path: Path) -> None:
    body = "torch.relu(x0 @ self.layer.weight) @ self.layer.weight.t() + 1"
    (launch,) = program_of(tmp_path, body, ("torch.rand(2048, 2048)",), "nn.Linear(2048, 2048)", "h200").launches
    packed = [b for b in launch.pointers if b.packed_from is not None]
    assert len({b.name for b in packed}) == len({b.packed_by for b in packed}) == 2
