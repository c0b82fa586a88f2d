"""The criterion on small tensors: what must pass, what must not, and where the worst element stands."""

import math

import pytest
import torch

from kernelwright.judge.criterion import limits_for, score, unit_roundoff, yardstick


def measured(eager: torch.Tensor, exact: torch.Tensor, spread: torch.Tensor | None = None):
    return yardstick(eager, exact, spread, None, pooled_rms=0.0, allowance_rms=0.0)


@pytest.fixture
def matmul():
    torch.manual_seed(0)
    a, b = torch.randn(48, 512), torch.randn(512, 48)
    return a, b, a @ b, a.double() @ b.double()


def test_eager_itself_scores_about_one(matmul):
    _, _, eager, exact = matmul
    found = score(eager, measured(eager, exact))
    assert 0.1 < found.rms <= 1.0
    assert found.within(limits_for(torch.float32))


def test_another_order_of_additions_passes(matmul):
    a, b, eager, exact = matmul
    other = sum(a[:, k : k + 8] @ b[k : k + 8] for k in range(0, 512, 8))
    assert score(other, measured(eager, exact)).within(limits_for(torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_operands_fail_by_far(matmul, dtype):
    a, b, eager, exact = matmul
    coarse = a.to(dtype).float() @ b.to(dtype).float()
    assert score(coarse, measured(eager, exact)).rms > 10 * limits_for(torch.float32).loose_rms


@pytest.fixture
def norm_off_by_a_factor():
    """x / norm(x) where eager's norm is too small: what is 200 times as large as the others is off 200 times as far."""
    torch.manual_seed(0)
    x = torch.rand(100_000, dtype=torch.float64)
    x[7] = 200
    exact = x / x.norm()
    return exact, (exact * (1 + 5e-4)).float()


@pytest.mark.parametrize("error", [0.0, 2.5e-4, 5e-4, -5e-4, 5e-3])
def test_a_candidate_about_as_far_off_as_eager_passes_where_eagers_errors_differ_by_element(
    norm_off_by_a_factor, error: float
):
    exact, eager = norm_off_by_a_factor
    assert score((exact * (1 + error)).float(), measured(eager, exact)).within(limits_for(torch.float32))


def test_an_element_much_farther_off_than_eager_fails_where_eagers_errors_differ_by_element(norm_off_by_a_factor):
    exact, eager = norm_off_by_a_factor
    for place, error in ((7, 0.04), (8, 1.0)):
        wrong = eager.clone()
        wrong[place] *= 1 + error
        found = score(wrong, measured(eager, exact))
        assert found.where == (place,)
        assert not found.within(limits_for(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("power", [1, 4, 16])
def test_eagers_own_bits_pass_however_unevenly_it_errs(dtype: torch.dtype, power: int):
    torch.manual_seed(power)
    exact = torch.randn(50_000, dtype=torch.float64)
    eager = (exact + 1e-3 * torch.randn_like(exact) ** power).to(dtype)
    eager[3] = math.inf
    found = score(eager.clone(), measured(eager, exact))
    assert found.within(limits_for(dtype))
    assert found.worst <= 4


def test_one_wrong_element_is_found_and_named(matmul):
    _, _, eager, exact = matmul
    wrong = eager.clone()
    wrong[7, 11] *= 1.01
    found = score(wrong, measured(eager, exact))
    assert found.where == (7, 11)
    assert not found.within_loose(limits_for(torch.float32))


def test_tiny_outputs_are_judged_by_their_own_size():
    exact = torch.rand(1000, dtype=torch.float64) * 1e-9
    eager = exact.float()
    assert not score(torch.zeros(1000), measured(eager, exact)).within_loose(limits_for(torch.float32))


def test_no_share_of_elements_may_be_wrong():
    exact = torch.rand(100_000, dtype=torch.float64) + 1
    eager = exact.float()
    wrong = eager.clone()
    wrong[5] = 0
    assert not score(wrong, measured(eager, exact)).within_loose(limits_for(torch.float32))


def test_nan_must_stand_where_eager_has_it():
    exact = torch.tensor([1.0, math.nan, math.inf, -math.inf, 2.0], dtype=torch.float64)
    eager = exact.float()
    assert score(eager, measured(eager, exact)).worst <= 1
    for position, value in ((0, math.nan), (1, 0.0), (2, -math.inf), (3, math.nan), (4, math.inf)):
        wrong = eager.clone()
        wrong[position] = value
        found = score(wrong, measured(eager, exact))
        assert found.worst == math.inf
        assert found.special
        assert found.where == (position,)


def test_where_eager_overflows_and_the_truth_does_not_both_answers_are_right():
    exact = torch.tensor([1.0, 3e38 * 10], dtype=torch.float64)
    eager = torch.tensor([1.0, math.inf])
    assert score(eager, measured(eager, exact)).worst <= 1
    assert math.isfinite(score(torch.tensor([1.0, 3.4e38]), measured(eager, exact)).worst)


def test_integers_must_be_equal():
    eager = torch.tensor([3, 1, 2])
    yard = yardstick(eager, eager, None, None, pooled_rms=0, allowance_rms=0)
    assert score(eager.clone(), yard).worst == 0
    found = score(torch.tensor([3, 1, 1]), yard)
    assert found.worst == math.inf
    assert (found.where, found.got, found.want) == ((2,), 1.0, 2.0)


def test_indices_that_hang_on_rounding_are_free():
    eager = torch.tensor([3, 1, 2])
    settled = torch.tensor([True, True, False])
    yard = yardstick(eager, eager, None, settled, pooled_rms=0, allowance_rms=0)
    assert score(torch.tensor([3, 1, 0]), yard).worst == 0
    assert score(torch.tensor([3, 0, 2]), yard).worst == math.inf


def test_cancellation_loosens_the_yardstick_only_where_it_happens():
    exact = torch.tensor([1e-8, 1.0], dtype=torch.float64)
    eager = torch.tensor([1e-8, 1.0])
    spread = torch.tensor([1e-7, 1e-7], dtype=torch.float64)
    near = torch.tensor([2e-8, 1.0])
    assert score(near, measured(eager, exact, spread)).within(limits_for(torch.float32))
    assert not score(near, measured(eager, exact)).within_loose(limits_for(torch.float32))


def test_an_empty_output_has_nothing_wrong():
    empty = torch.empty(0, 3)
    assert score(empty, measured(empty, empty.double())).worst == 0


def test_unit_roundoff_is_half_an_epsilon():
    assert unit_roundoff(torch.float32) == 2.0**-24
    assert unit_roundoff(torch.bfloat16) == 2.0**-8


def test_an_allowed_precision_widens_the_yardstick(matmul):
    a, b, eager, exact = matmul
    coarse = a.bfloat16().float() @ b.bfloat16().float()
    error = float((coarse.double() - exact).square().mean().sqrt())
    yard = yardstick(eager, exact, None, None, pooled_rms=0, allowance_rms=error)
    assert score(coarse, yard).within(limits_for(torch.float32))


def test_nothing_beside_ones_is_no_error_where_eager_is_exact():
    """A sigmoid of 50 and -50; by way of a tanh the small ones are 0."""
    exact = torch.tensor([1.0, 1.9e-22, 1.0, 1.9e-22], dtype=torch.float64)
    yard = measured(exact.float(), exact)
    assert score(torch.tensor([1.0, 0.0, 1.0, 0.0]), yard).within(limits_for(torch.float32))
    assert not score(torch.tensor([1.0, 1e-5, 1.0, 0.0]), yard).within_loose(limits_for(torch.float32))
