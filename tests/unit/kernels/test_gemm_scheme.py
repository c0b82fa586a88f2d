"""Why gemm_sm90 is as it is: its arithmetic with the tensor core's rounding, in float64, against float32's own sum.

The model of the tensor core (16 products and the sum so far are cut to 25 bits below the largest exponent, added, and
cut towards zero to float32) was checked on an H200: it gave the hardware's bits in 4096 of 4096 results.
"""

from __future__ import annotations

import pytest
import torch

F64 = torch.float64


def exponent(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, -9999, torch.frexp(x).exponent - 1)


def cut_to_float32(x: torch.Tensor) -> torch.Tensor:
    """Towards zero."""
    nearest = x.float()
    too_far = nearest.double().abs() > x.abs()
    return torch.where(too_far, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest).double()


def tensor_core(a: torch.Tensor, w: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """total + a w^T for 16 of k, as wgmma does it."""
    products = a[:, None, :] * w[None, :, :]
    smallest = -14  # denormal float16 count as having the smallest exponent
    places = exponent(a).clamp_min(smallest)[:, None, :] + exponent(w).clamp_min(smallest)[None, :, :]
    places = torch.where(products == 0, -9999, places)
    largest = torch.maximum(places.amax(2), exponent(total)).clamp_min(-900)
    scale = torch.ldexp(torch.ones_like(total), 25 - largest)
    kept = torch.trunc(products * scale[:, :, None]).sum(2) + torch.trunc(total * scale)
    return cut_to_float32(kept / scale)


def scaled_pairs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """hi, lo and the power of two that brings each row's largest magnitude to [2^14, 2^15)."""
    scale = torch.ldexp(torch.ones(len(x), 1, dtype=F64), 14 - exponent(x.double().abs().amax(1, keepdim=True)))
    scaled = x.double() * scale
    hi = scaled.half().double()
    return hi, (scaled - hi).half().double(), scale


def float16_pairs(a: torch.Tensor, w: torch.Tensor, promote: int) -> torch.Tensor:
    """The kernel, without its last step: sums in float32."""
    padding = -a.shape[1] % promote
    a, w = (torch.nn.functional.pad(x, (0, padding)) for x in (a, w))
    w_hi, w_lo, w_scale = scaled_pairs(w)
    total = torch.zeros(len(a), len(w))
    for first in range(0, a.shape[1], promote):
        chunk = slice(first, first + promote)
        a_hi, a_lo, a_scale = scaled_pairs(a[:, chunk])
        sums = torch.zeros(len(a), len(w), dtype=F64)
        for left, right in ((a_lo, w_hi[:, chunk]), (a_hi, w_lo[:, chunk]), (a_hi, w_hi[:, chunk])):
            for k in range(0, promote, 16):
                sums = tensor_core(left[:, k : k + 16], right[:, k : k + 16], sums)
        total = (sums / a_scale + total.double()).float()
    return total / w_scale.t().float()


def undo_truncation(x: torch.Tensor) -> torch.Tensor:
    bits = x.view(torch.int32)
    return (bits + (bits & 15 != 0).int()).view(torch.float32)


def float32_sum(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One fused multiply-add after the other."""
    total = torch.zeros(len(a), len(w))
    for k in range(a.shape[1]):
        total = (a[:, k : k + 1].double() * w[:, k].double()[None] + total.double()).float()
    return total


def error(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> float:
    exact = a.double() @ w.double().t()
    return float((x.double() - exact).norm() / exact.norm())


def operands(kind: str, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(k)
    if kind == "randn":
        return torch.randn(24, k, generator=random), torch.randn(24, k, generator=random)
    return torch.rand(24, k, generator=random), torch.rand(24, k, generator=random)


@pytest.mark.parametrize("kind", ["randn", "rand"])
@pytest.mark.parametrize(("k", "promote"), [(32, 32), (64, 32), (128, 32), (256, 64), (1024, 64)])
def test_three_products_are_at_least_as_accurate_as_float32(kind: str, k: int, promote: int) -> None:
    a, w = operands(kind, k)
    ours = error(undo_truncation(float16_pairs(a, w, promote)), a, w)
    assert ours <= error(float32_sum(a, w), a, w)


def test_one_scaled_product_has_the_error_of_rounded_tf32() -> None:
    a, w = operands("randn", 512)
    a_hi, _, a_scale = scaled_pairs(a)
    w_hi, _, w_scale = scaled_pairs(w)
    sums = torch.zeros(len(a), len(w), dtype=F64)
    for k in range(0, 512, 16):
        sums = tensor_core(a_hi[:, k : k + 16], w_hi[:, k : k + 16], sums)
    single = error(sums / a_scale / w_scale.t(), a, w)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        """To TF32's 10 stored bits, to nearest."""
        return ((x.view(torch.int32) + 0xFFF + (x.view(torch.int32) >> 13 & 1)) & ~0x1FFF).view(torch.float32)

    tf32 = error(rounded(a).double() @ rounded(w).double().t(), a, w)
    assert 2e-4 < single < 4e-4
    assert single == pytest.approx(tf32, rel=0.1)


def test_giving_back_what_truncation_took_halves_the_error_of_positive_data() -> None:
    a, w = operands("rand", 1024)
    sums = float16_pairs(a, w, 64)
    assert error(undo_truncation(sums), a, w) < 0.7 * error(sums, a, w)


def test_without_promotion_the_error_grows_with_k() -> None:
    a, w = operands("rand", 1024)
    assert error(float16_pairs(a, w, 1024), a, w) > 5 * error(float16_pairs(a, w, 64), a, w)


def test_sums_of_integers_stay_exact() -> None:
    random = torch.Generator().manual_seed(3)
    a, w = (torch.randint(-8, 9, (24, 512), generator=random).float() for _ in range(2))
    assert torch.equal(undo_truncation(float16_pairs(a, w, 64)), a @ w.t())


@pytest.mark.parametrize("factor", [1e-38, 1e-30, 1e-6, 1e6, 1e28])
def test_the_scale_of_a_row_does_not_matter(factor: float) -> None:
    a, w = operands("randn", 256)
    assert error(undo_truncation(float16_pairs(a * factor, w, 64)), a * factor, w) < 2e-7
