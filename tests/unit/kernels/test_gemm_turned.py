"""gemm_sm90_turned: chosen where the first operand is cheaper to pack, tried where it may be, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import ranked_choices, template_of
from kernelwright.kernels import gemm_sm90, gemm_sm90_turned
from kernelwright.kernels.gemm_shape import Gemm, Operand
from kernelwright.plan import Kernel
from kernelwright.tune.tune import short_list
from tests.unit.kernels.test_gemm_bricks import BATCHES, MATRICES, kernel_of

H200, A100 = resolve("h200"), resolve("a100")
ACROSS = "ki,kj->ij"
CHOSEN = {
    "128 x 512x2048x1024": (kernel_of(BATCHES, (128, 512, 1024), (128, 1024, 2048)), "gemm_sm90_turned"),
    "128 x 2048x512x1024": (kernel_of(BATCHES, (128, 2048, 1024), (128, 1024, 512)), "gemm_sm90"),
    "both across k": (kernel_of(ACROSS, (4096, 4096), (4096, 4096)), "gemm_sm90_turned"),
    "both along k": (kernel_of("ik,jk->ij", (4096, 4096), (4096, 4096)), "gemm_sm90"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_operand_that_is_cheaper_to_pack_is_packed(name: str) -> None:
    kernel, template = CHOSEN[name]
    assert template_of(ranked_choices(kernel, H200)[0]).name == template


@pytest.mark.parametrize(
    "kernel",
    [kernel_of(BATCHES, (16, 1024, 1024), (16, 1024, 1024)), kernel_of(MATRICES, (4096, 4096), (4096, 4096))],
    ids=["16 x 1024^3", "4096^3"],
)
def test_the_tuner_tries_both_roles(kernel: Kernel) -> None:
    tried = {template_of(choice).name for choice in short_list(kernel, H200)}
    assert tried >= {"gemm_sm90", "gemm_sm90_turned"}


def product(m: int, n: int, k: int, batches: int = 1) -> Gemm:
    a = Operand("float32", k, 1, m * k if batches > 1 else 0, constant=False)
    w = Operand("float32", 1, n, n * k if batches > 1 else 0, constant=False)
    return Gemm(m, n, k, batches, a, w, 4, 4 * batches * m * n)


SQUARE = product(256, 256, 1024)
REFUSED = {
    "k along memory": (replace(SQUARE, w=Operand("float32", 1024, 1, 0, False)), "side by side"),
    "a constant": (replace(SQUARE, w=replace(SQUARE.w, constant=True)), "each call brings"),
    "a computed one": (replace(SQUARE, a=replace(SQUARE.a, made_by="A")), "as it lies"),
    "lines off 16 bytes": (replace(SQUARE, w=replace(SQUARE.w, k_pitch=257)), "16 bytes"),
    "one for all batches": (replace(product(256, 256, 1024, 2), w=SQUARE.w), "every batch"),
    "rows neither along k nor across": (replace(SQUARE, a=Operand("float32", 4096, 2, 0, False)), "along k"),
    "rows that no block can hold": (product(256, 256, 16384), "held in registers"),
    "rows that are reduced": (replace(SQUARE, row_state_bytes=8), "reduced"),
    "odd columns": (replace(SQUARE, vector=1), "4 neighbours"),
    "short k": (product(256, 256, 16), "less accurate"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_products_are_refused_in_words(name: str) -> None:
    gemm, reason = REFUSED[name]
    said = gemm_sm90_turned.why_not(gemm_sm90_turned.Config(256, 64, 1, 4), gemm, H200)
    assert said is not None
    assert reason in said


def test_no_other_gpu_has_it() -> None:
    assert gemm_sm90_turned.configs(SQUARE, H200) != ()
    assert gemm_sm90_turned.configs(SQUARE, A100) == ()


def test_a_first_operand_for_all_batches_is_packed_once() -> None:
    shared = replace(product(512, 512, 1024, 8), a=Operand("float32", 1024, 1, 0, False))
    config = gemm_sm90_turned.configs(shared, H200)[0]
    each = gemm_sm90_turned.workspace_bytes(config, product(512, 512, 1024, 8))
    assert gemm_sm90_turned.workspace_bytes(config, shared) * 8 == each
    assert gemm_sm90_turned.cost_us(config, shared, H200) < gemm_sm90_turned.cost_us(
        config, product(512, 512, 1024, 8), H200
    )


def test_the_entry_packs_the_first_operand_and_reads_the_second_as_it_lies() -> None:
    gemm = product(512, 2048, 1024, 128)
    text = gemm_sm90_turned.entry("g", gemm_sm90_turned.Config(256, 64, 1, 4), gemm, "E")
    assert "kw::split::pack_by<2, kw::split::ByWarps, kw::gemm::AsItLies, kw::split::InOrder>(" in text
    assert "a, 1024, 1, 524288, 512, 1024, 128, workspace, stream)" in text
    assert "(const float*)w, 2048, 2097152, workspace, 2048, 512, 1024, 128, 128}" in text
    assert "packed_before = true" in text
    across = replace(gemm, a=Operand("float32", 1, 512, 512 * 1024, False))
    text = gemm_sm90_turned.entry("g", gemm_sm90_turned.Config(256, 64, 1, 4), across, "E")
    assert "kw::split::ByPanels" in text
    assert "panels = true" in text


def test_only_a_product_that_follows_its_packing_may_begin_early() -> None:
    config = gemm_sm90.Config(256, 64, 1, 4)
    assert "packed_before = true" in gemm_sm90.entry("g", config, SQUARE, "E")
    constant = replace(SQUARE, w=replace(SQUARE.w, constant=True))
    assert "packed_before = false" in gemm_sm90.entry("g", config, constant, "E")
