"""Families keep what a problem promises, and expose what they say."""

import pytest
import torch

from kernelwright.judge.families import FAMILIES, Family, randomised_state, transformed

BY_NAME = {family.name: family for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_shape_and_dtype_stay(family: Family):
    for x in (torch.rand(17, 33), torch.rand(5), torch.rand(()), torch.rand(2, 3, 4, 5).half(), torch.empty(0, 4)):
        (y,) = transformed((x,), family)
        assert y.shape == x.shape
        assert y.dtype == x.dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_given_is_left_alone(family: Family, dtype: torch.dtype):
    x = torch.rand(40, 33, dtype=dtype)
    before = x.clone()
    transformed((x,), family)
    assert torch.equal(x, before)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_integers_and_numbers_stay_as_they_are(family: Family):
    indices = torch.arange(9)
    args = transformed((indices, 3, "mean", [indices, 2.5]), family)
    assert torch.equal(args[0], indices)
    assert args[1:3] == (3, "mean")
    assert args[3][1] == 2.5


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_triangular_matrix_stays_triangular(family: Family):
    (y,) = transformed((torch.rand(40, 40).triu(),), family)
    assert torch.equal(y, y.triu())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_symmetric_matrix_stays_symmetric(family: Family):
    x = torch.rand(20, 20)
    (y,) = transformed((x + x.T,), family)
    assert torch.equal(y, y.T)


def test_zero_mean_has_about_no_mean():
    (y,) = transformed((torch.rand(1000, 100),), BY_NAME["zero_mean"])
    assert abs(float(y.mean())) < 0.01
    assert torch.equal(y.abs(), y.abs())


def test_the_last_element_of_each_row_dominates_its_softmax():
    (y,) = transformed((torch.rand(8, 1000),), BY_NAME["last_spike"])
    assert bool((torch.softmax(y, 1)[:, -1] > 0.99).all())


def test_spikes_stand_at_the_edges_of_tiles():
    torch.manual_seed(0)
    (y,) = transformed((torch.rand(256, 256),), BY_NAME["spikes"])
    high = (y > 10).nonzero()
    columns = set(high[:, 1].tolist())
    assert {0, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255} <= columns


def test_integers_are_small():
    (y,) = transformed((torch.rand(50, 50),), BY_NAME["integers"])
    assert set(y.unique().tolist()) == {-1.0, 0.0, 1.0}


def test_other_weights_have_the_size_of_the_old_ones_and_nothing_stays_constant():
    torch.manual_seed(0)
    state = {
        "fc.weight": torch.randn(64, 64) * 0.1,
        "norm.weight": torch.ones(64),
        "norm.bias": torch.zeros(64),
        "norm.running_var": torch.ones(64),
        "norm.num_batches_tracked": torch.tensor(3),
    }
    other = randomised_state(state)
    assert float(other["fc.weight"].std()) == pytest.approx(0.1, rel=0.1)
    assert not torch.equal(other["fc.weight"], state["fc.weight"])
    assert float(other["norm.weight"].std()) > 0.1
    assert float(other["norm.bias"].abs().max()) > 0.1
    assert float(other["norm.running_var"].min()) > 0
    assert int(other["norm.num_batches_tracked"]) == 3
