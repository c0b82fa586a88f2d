"""Trials that were made come in; how many wrong answers, known beforehand, they would have rejected goes out.

A judgement is worth as much as the mistakes it can see. For each problem the obvious wrong answers are made up (zeros,
another input's answer, half of the data, lower precision, one element off) and judged by the same trials. What survives
is reported: the problem or its inputs cannot tell it from a right answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.correctness import Tried
from kernelwright.judge.criterion import Yardstick, chunks, limits_for, score
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.precision import as_accurate_as
from kernelwright.judge.shortage import is_shortage

__all__ = ["KillRate", "kill_rate"]

Leaves = list[torch.Tensor]
Mutant = Callable[[Tried, Sequence[Tried], Oracle], Leaves | None]


@dataclass(frozen=True, slots=True)
class KillRate:
    """Which wrong answers were made up, and which of them passed every trial.

    constant  those that look at no input and pass as long as the weights are the problem's own: a degenerate problem
    unmade    those that there was no memory for
    """

    made: tuple[str, ...]
    survivors: tuple[str, ...]
    constant: tuple[str, ...]
    unmade: tuple[str, ...] = ()

    @property
    def rate(self) -> float | None:
        return 1 - len(self.survivors) / len(self.made) if self.made else None


def kill_rate(trials: Sequence[Tried], oracle: Oracle, out_of_time: Callable[[], bool]) -> KillRate:
    """Judge every wrong answer by every trial until one rejects it."""
    made, survivors, constant, unmade = [], [], [], []
    trials = [tried for tried in trials if tried.arguments or not tried.yards]
    for name, mutant in MUTANTS.items():
        if out_of_time():
            break
        try:
            rejected, rejected_own, wrong = _tried_on(mutant, trials, oracle, thorough=name in CONSTANT)
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            unmade.append(name)
            continue
        if wrong:
            made.append(name)
            if not rejected:
                survivors.append(name)
            if name in CONSTANT and not rejected_own:
                constant.append(name)
    return KillRate(tuple(made), tuple(survivors), tuple(constant), tuple(unmade))


def _tried_on(mutant: Mutant, trials: Sequence[Tried], oracle: Oracle, *, thorough: bool) -> tuple[bool, bool, bool]:
    """Whether a trial rejects it, whether one with the problem's own weights does, and whether it is wrong anywhere.

    One trial that rejects it is enough, unless it is asked `thorough`ly, for one with the problem's own weights.
    """
    rejected = rejected_own = wrong = False
    for tried in trials:
        verdict = _rejected(mutant, tried, trials, oracle)
        wrong |= verdict is not None
        rejected |= bool(verdict)
        rejected_own |= bool(verdict) and tried.trial.own_weights
        if rejected_own or (rejected and not thorough):
            break
    return rejected, rejected_own, wrong


def _rejected(mutant: Mutant, tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> bool | None:
    """Whether this trial rejects the wrong answer; None if there it is no wrong answer, or cannot be made."""
    answer = mutant(tried, trials, oracle)
    if answer is None:
        return None
    return any(
        not score(c, yard).within_loose(limits_for(yard.dtype)) for c, yard in zip(answer, tried.yards, strict=True)
    )


# --- answers that do not depend on the input: if one passes, the problem hardly has an output


def zeros(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves:
    return [torch.zeros_like(yard.eager) for yard in tried.yards]


def mean(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    if all(yard.eager.numel() < 2 for yard in tried.yards):
        return None  # the mean of one number is that number
    return [torch.full_like(yard.eager, _mean(yard)) for yard in tried.yards]


def previous(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """The answer to other inputs of the same family."""
    others = [t for t in trials if t.trial.family is tried.trial.family and t.trial.seed != tried.trial.seed]
    return [yard.eager for yard in others[0].yards] if others else None


# --- answers that are wrong in part


def last_tile(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """The last 16 elements of each row were never written."""

    def cut(yard: Yardstick) -> torch.Tensor:
        answer = yard.eager.clone().reshape(yard.shape)
        if answer.dim():
            answer[..., -16:] = 0
        return answer

    return _if_different([cut(yard) for yard in tried.yards], tried)


def one_element(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """One element in the middle is off by a thousandth, or by one; by its own size where that much is rounding."""

    def spoil(yard: Yardstick) -> torch.Tensor:
        answer = yard.eager.clone()
        if answer.numel():
            at = answer.numel() // 2
            right = answer[at]
            wrong = right.logical_not() if answer.dtype is torch.bool else right + 1
            if answer.is_floating_point():
                coarse = yard.allowance_rms > 0 or yard.dtype.itemsize < 4
                wrong = right + (2 if coarse else 1e-3) * right.abs().clamp_min(yard.scale_rms)
            answer[at] = wrong
        return answer

    return _if_different([spoil(yard) for yard in tried.yards], tried)


def short_reduction(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """The last element along the last dimension of each input is left out."""

    def shorten(x: torch.Tensor) -> torch.Tensor:
        if x.dim() and x.numel() and x.is_floating_point():
            x = x.clone()
            x[..., -1] = 0
        return x

    return _on_other_inputs(tried, oracle, shorten)


def half_the_data(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """The first half of the batch stands for all of it."""

    def repeat(x: torch.Tensor) -> torch.Tensor:
        if x.dim() and x.shape[0] > 1 and x.is_floating_point():
            x, half = x.clone(), x.shape[0] // 2
            x[-half:] = x[:half]
        return x

    return _on_other_inputs(tried, oracle, repeat)


def the_input(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
    """An input is handed back, where it has the output's size."""
    _, tensors = flatten_arguments(tried.arguments)
    if len(tried.yards) != 1:
        return None
    yard = tried.yards[0]
    fitting = [t for t in tensors if t.numel() == yard.eager.numel() and t.dtype == yard.dtype]
    return _if_different([fitting[0].reshape(-1)], tried) if fitting else None


def lower_precision(precision: str) -> Mutant:
    def mutant(tried: Tried, trials: Sequence[Tried], oracle: Oracle) -> Leaves | None:
        if oracle.precision == precision or (oracle.precision in ("bf16", "fp16") and precision == "tf32"):
            return None  # the user allows it
        if oracle.tf32_by_flags and precision in ("tf32", "fp16"):
            return None  # the reference's flags allow it; float16 has as many bits
        answers = oracle.rounded(tried.state, [tried.arguments], tried.seed, precision)
        if answers is None:
            return None
        leaves = answers.calls[0]
        if all(as_accurate_as(leaf, yard, 4.0) for leaf, yard in zip(leaves, tried.yards, strict=True)):
            return None  # eager itself computes so
        return leaves

    return mutant


MUTANTS: dict[str, Mutant] = {
    "zeros": zeros,
    "mean": mean,
    "previous output": previous,
    "the input": the_input,
    "last tile missing": last_tile,
    "one element wrong": one_element,
    "last element left out": short_reduction,
    "half of the data": half_the_data,
    "tf32": lower_precision("tf32"),
    "fp16": lower_precision("fp16"),
    "bf16": lower_precision("bf16"),
}


CONSTANT = ("zeros", "mean", "previous output")


def _on_other_inputs(tried: Tried, oracle: Oracle, change: Callable[[torch.Tensor], torch.Tensor]) -> Leaves | None:
    template, tensors = flatten_arguments(tried.arguments)
    args: tuple[Any, ...] = unflatten(template, [change(t) for t in tensors])
    return _if_different(oracle.eager(tried.state, [args], tried.seed).calls[0], tried)


def _if_different(answer: Leaves, tried: Tried) -> Leaves | None:
    """What equals the right answer is no wrong one."""
    equal = all(torch.equal(a.reshape(-1), yard.eager) for a, yard in zip(answer, tried.yards, strict=True))
    return None if equal else answer


def _mean(yard: Yardstick) -> float:
    total, count = 0.0, 0
    for part in chunks(yard.eager):
        some = yard.eager[part].double()
        finite = torch.isfinite(some)
        total += float(torch.where(finite, some, 0.0).sum())
        count += int(finite.sum())
    return total / count if count else 0.0
