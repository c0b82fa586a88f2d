"""What trials are planned, and what is concluded from outputs that differ between two calls."""

import random

import pytest
import torch

from kernelwright.judge.correctness import _bytes_decide, plan_trials
from kernelwright.judge.families import FAMILIES, transformed
from kernelwright.judge.pool import FILLS
from kernelwright.judge.seeds import Seeds

NAMES = [family.name for family in FAMILIES]


def test_own_inputs_and_random_weights_come_first():
    trials = plan_trials(NAMES, Seeds(1), 3, weights=True)
    assert [(t.family.name, t.own_weights) for t in trials[:4]] == [
        ("own", True),
        ("zero_mean", False),
        ("own", False),
        ("zero_mean", True),
    ]
    assert sum(t.family.name == "own" for t in trials) == 4
    assert {t.family.name for t in trials} == set(NAMES)
    again = [t for t in trials if t.seed == trials[0].seed]
    assert [(t.family.name, t.own_weights) for t in again] == [("own", True), ("own", False), ("outliers", True)]
    assert len({t.seed for t in trials}) == len(trials) - 2


def answers_of(call) -> bool:
    first = {fill: call(fill) for fill in FILLS}
    return _bytes_decide(call, first, Seeds(3))


def test_outputs_that_follow_the_bytes_around_the_inputs_are_told_from_chance():
    assert answers_of(lambda fill: [[torch.tensor([float(fill)])]])
    late = random.Random(0)
    found = [answers_of(lambda fill: [[torch.tensor([float(late.random() < 0.5)])]]) for _ in range(200)]
    assert sum(found) <= 3


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_gives_the_same_inputs_from_the_same_seed_in_any_order_of_writes(family):
    x = torch.rand(7, 300)
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(transformed((x,), family)[0])
    assert torch.equal(*drawn)


def test_a_place_that_two_spikes_hit_has_one_value(monkeypatch: pytest.MonkeyPatch):
    """Which of two writes to one place comes last is anybody's guess on a GPU."""
    spikes = next(family for family in FAMILIES if family.name == "spikes")
    monkeypatch.setattr(
        "kernelwright.judge.families._edges", lambda size, count, device: torch.arange(count) % min(size, 5)
    )
    x = torch.rand(64, 64)
    torch.manual_seed(0)
    forwards = transformed((x,), spikes)[0]
    monkeypatch.setattr(
        "kernelwright.judge.families._edges", lambda size, count, device: (torch.arange(count) % min(size, 5)).flip(0)
    )
    torch.manual_seed(0)
    assert torch.equal(transformed((x,), spikes)[0], forwards)
