"""Whose fault a failure is while contestants are timed."""

import pytest

from kernelwright.judge.samples import AGAIN, CANDIDATE, speed_of
from kernelwright.judge.timing import BaselineFailed, _blaming
from kernelwright.judge.verdict import Failed, Interval, Speed, Verdict


@pytest.mark.parametrize(
    ("name", "raised"),
    [(CANDIDATE, Verdict.CRASH), ("eager", Verdict.JUDGE_ERROR), (AGAIN, Verdict.JUDGE_ERROR)],
)
def test_the_candidate_and_eager_end_the_judgement(name: str, raised: Verdict) -> None:
    with pytest.raises(Failed) as caught, _blaming(name):
        raise Failed(Verdict.CRASH, "gone")
    assert caught.value.verdict is raised


@pytest.mark.parametrize("name", ["compile", "max-autotune", "graph"])
def test_any_other_baseline_is_left_out(name: str) -> None:
    with pytest.raises(BaselineFailed) as caught, _blaming(name):
        raise Failed(Verdict.CRASH, "gone")
    assert caught.value.name == name
    assert "gone" in caught.value.why


def test_turns_that_agree_on_a_noisy_day_say_nothing() -> None:
    narrow = Interval(1.36, 1.359, 1.361)
    assert speed_of(narrow, noise=0.02) is Speed.FASTER
    assert speed_of(narrow, noise=0.5) is Speed.INCONCLUSIVE
