"""Values at the ends of float32's range through the arithmetic of gemm_sm90: what float32 gives, or within a bound.

The kernel step by step in torch, with its own integer formula for scales, the float16 conversions of the hardware and
the tensor core's cuts. The emulator runs the kernel itself; here thousands of hostile operands go through its scheme.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.unit.kernels.test_gemm_scheme import float32_sum, tensor_core, undo_truncation

PROMOTE = 32
EXPONENT_ONE = 1 << 23
LARGEST_FLOAT32 = torch.finfo(torch.float32).max


# --- split.cuh


def scale_of(largest: Tensor) -> Tensor:
    """scale_bits: biased exponents of a number and its scale add up to 268, and a scale is at most 2^126."""
    exponent = largest.view(torch.int32) & (255 * EXPONENT_ONE)
    return (
        torch.minimum(268 * EXPONENT_ONE - exponent.long(), torch.tensor(253 * EXPONENT_ONE)).int().view(torch.float32)
    )


def inverse_of(scale: Tensor) -> Tensor:
    return (254 * EXPONENT_ONE - scale.view(torch.int32)).view(torch.float32)


def to_pairs(scaled: Tensor) -> tuple[Tensor, Tensor]:
    hi = scaled.half()
    return hi, (scaled - hi.float()).half()


def largest_finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x.abs(), 0).amax(1, keepdim=True)


def packed(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """pack: hi, lo, and what undoes the scale; lo of Inf or NaN is 0, hi tells."""
    scale = scale_of(largest_finite(w))
    hi, lo = to_pairs(w * scale)
    return hi, torch.where(w.isfinite(), lo, torch.zeros_like(lo)), inverse_of(scale)


def kernel(a: Tensor, w: Tensor) -> Tensor:
    """gemm_sm90: chunks of k with a scale for each row, sums in float32, W's scale, and what is not finite again."""
    w_hi, w_lo, w_inverse = packed(w)
    total = torch.zeros(len(a), len(w))
    for first in range(0, a.shape[1], PROMOTE):
        chunk = slice(first, first + PROMOTE)
        part = a[:, chunk]
        # fmaxf passes NaN over, but not Inf
        scale = scale_of(torch.where(part.isnan(), 0, part.abs()).amax(1, keepdim=True))
        hi, lo = to_pairs(part * scale)
        sums = torch.zeros(len(a), len(w), dtype=torch.float64)
        for left, right in ((lo, w_hi), (hi, w_lo), (hi, w_hi)):
            sums = add_cut(sums, left, right[:, chunk])
        total = (sums.float().double() * inverse_of(scale).double() + total.double()).float()
    result = total * w_inverse.t()
    plain = float32_sum(a, (w_hi.float() + w_lo.float()) * w_inverse)
    return torch.where(result.isfinite(), undo_truncation(result), plain)


def add_cut(total: Tensor, a: Tensor, w: Tensor) -> Tensor:
    """One of the three products added to the sums so far."""
    for k in range(0, a.shape[1], 16):
        x, y = a[:, k : k + 16].double(), w[:, k : k + 16].double()
        clean = x.isfinite().all(1)[:, None] & y.isfinite().all(1)[None] & total.isfinite()
        cut = tensor_core(x.nan_to_num(0, 0, 0), y.nan_to_num(0, 0, 0), total.nan_to_num(0, 0, 0))
        total = torch.where(clean, cut, (x[:, None] * y[None]).sum(2) + total)
    return total


# --- scales


@given(st.integers(0, 255 * EXPONENT_ONE - 1))
@example(0)
@example(1)
@example(EXPONENT_ONE - 1)
@example(255 * EXPONENT_ONE - 1)
def test_a_scale_and_its_inverse_are_powers_of_two_that_fit_float16(bits: int) -> None:
    largest = torch.tensor([bits], dtype=torch.int32).view(torch.float32)
    scale = scale_of(largest)
    scaled = float(largest) * float(scale)
    assert math.frexp(float(scale))[0] == 0.5
    assert float(scale) * float(inverse_of(scale)) == 1.0
    assert scaled < 2.0**15
    assert scaled >= 2.0**14 or float(scale) == 2.0**126
    assert torch.tensor(scaled).half().isfinite()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 60))
def test_a_pair_keeps_22_bits_of_what_is_within_a_thousandth_of_the_largest(x: float, below: int) -> None:
    """hi + lo is within 2^-22 of the value, or within 2^-39 of the row's largest."""
    value = torch.tensor([[x]])
    largest = torch.tensor([[min(abs(x) * 2.0**below, LARGEST_FLOAT32)]])
    scale = scale_of(largest)
    hi, lo = to_pairs(value * scale)
    restored = (hi.double() + lo.double()) * inverse_of(scale).double()
    room = max(2.0**-22 * abs(x), 2.0**-39 * float(largest), 2.0**-149)
    assert abs(float(restored) - float(value)) <= room


# --- whole products


def rows(count: int, values: st.SearchStrategy[float]) -> st.SearchStrategy[list[list[float]]]:
    return st.lists(st.lists(values, min_size=8, max_size=8), min_size=count, max_size=count)


def spread_out(values: list[list[float]], k: int, seed: int) -> Tensor:
    """The drawn values somewhere in rows of k, among others of their own size."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.tensor(values, dtype=torch.float32)
    filler = torch.where(drawn.isfinite(), drawn, 1.0)[:, torch.randint(0, 8, (k,), generator=generator)]
    # a finite product may be made infinite by a factor above 1; below, it stays what it is
    row = filler * torch.rand(len(drawn), k, generator=generator)
    row[:, torch.randperm(k, generator=generator)[:8]] = drawn
    return row


wide = st.builds(
    lambda m, e, negative: math.ldexp(-m if negative else m, e),
    st.floats(1, 1.75, width=32), st.integers(-149, 127), st.booleans(),
)  # fmt: skip
any_float = st.one_of(wide, st.sampled_from([0.0, -0.0, 1.0, 65504.0, 6e-8, 3e38, -3e38, 1e-40, 1e-45]))
special = st.one_of(any_float, st.sampled_from([math.inf, -math.inf, math.nan]))


@settings(max_examples=40, deadline=None)
@given(rows(2, any_float), rows(3, any_float), st.sampled_from([32, 48]), st.integers(0, 99))
def test_finite_products_of_any_range_are_within_the_bound(
    a_values: list[list[float]], w_values: list[list[float]], k: int, seed: int
) -> None:
    a, w = spread_out(a_values, k, seed), spread_out(w_values, k, seed + 1)
    exact = a.double() @ w.double().t()
    size = a.double().abs() @ w.double().abs().t()
    result = kernel(a, w).double()
    a_largest, w_largest = (x.double().abs().amax(1, keepdim=True) for x in (a, w))
    thin = k * 2.0**-38 * a_largest * w_largest.t()
    # A's row below 2^-140: its sums are denormal until W's scale is taken out
    denormal = 2.0**-149 * (2 + k / PROMOTE) * (1 + w_largest.t() / 2.0**13)
    bound = (3 * 2.0**-22 + (8 + k / PROMOTE) * 2.0**-24) * size + thin + denormal
    in_range = size < LARGEST_FLOAT32 / 2
    assert bool(((result - exact).abs() <= bound)[in_range].all())


@settings(max_examples=40, deadline=None)
@given(rows(2, special), rows(3, special), st.sampled_from([32, 48]), st.integers(0, 99))
@example([[math.inf] + [0.0] * 7, [1.0] * 8], [[0.0] * 8, [1.0] * 8, [-1.0] * 8], 32, 0)
@example([[math.nan] * 8, [math.inf] * 8], [[math.inf] * 8, [-math.inf] * 8, [0.0] * 8], 32, 0)
def test_infinities_and_nans_come_out_where_float32_has_them(
    a_values: list[list[float]], w_values: list[list[float]], k: int, seed: int
) -> None:
    a, w = spread_out(a_values, k, seed), spread_out(w_values, k, seed + 1)
    exact = (a.double()[:, None] * w.double()[None]).sum(2)  # no product of two float32 overflows float64
    touched = ~a.isfinite().all(1)[:, None] | ~w.isfinite().all(1)[None]
    result = kernel(a, w)
    assert torch.equal(result.isnan() & touched & exact.isnan(), exact.isnan() & touched)
    # An infinity of an operand's, and no NaN: the same one, unless float32's own finite sums overflow against it
    finite_part = (a.double().nan_to_num(0, 0, 0).abs() @ w.double().nan_to_num(0, 0, 0).abs().t()) < LARGEST_FLOAT32
    clear = touched & exact.isinf() & finite_part
    assert torch.equal(result[clear].double(), exact[clear])


@settings(max_examples=60, deadline=None)
@given(st.floats(2.0**50, 2.0**100, width=32), st.sampled_from([32, 64]), st.booleans())
def test_a_sum_that_overflows_is_the_infinity_of_float32(size: float, k: int, negative: bool) -> None:
    assume(size * size * k > 2.0 * LARGEST_FLOAT32)
    a, w = torch.full((1, k), size), torch.full((1, k), -size if negative else size)
    assert torch.equal(kernel(a, w), float32_sum(a, w))


@pytest.mark.parametrize("size", [1e30, 3e38])
def test_scaled_sums_that_overflow_where_float32_does_not_are_computed_again(size: float) -> None:
    """|a| above 1e30 and a weight that is scaled up: sums before W's scale is taken out leave float32's range."""
    a, w = torch.full((1, 32), size), torch.full((1, 32), 1e-9)
    torch.testing.assert_close(kernel(a, w), float32_sum(a, w), rtol=1e-6, atol=0)
