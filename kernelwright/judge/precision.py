"""Trials that failed come in; the name of the arithmetic that the candidate can be shown to have used goes out.

An error of the right size is no evidence: half of the data gives one too. The reference is run with one rounding,
the same for all trials, and wherever the candidate fails it must agree with that run far better than with the truth;
wherever it passes, that run must pass as well, or nearly so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernelwright.judge.correctness import Tried, accurate, passes
from kernelwright.judge.criterion import Score, Yardstick, limits_for, score
from kernelwright.judge.modes import rounded
from kernelwright.judge.oracle import Oracle

__all__ = ["as_accurate_as", "reduced_precision", "shown_precision"]

Leaves = list[torch.Tensor]
MANY = 256  # elements, from which agreement by chance is out of the question
# How many times closer to the emulation than to the truth. What remains is the order of sums, and intermediate values
# that were rounded elsewhere; a single number could be as close by chance.
CLOSER_MANY, CLOSER_FEW = 4.0, 16.0
LEAST_TRIALS_FEW = 3
# An error that points where the emulation's does, and is about as long: some of the operators were rounded, not all.
LEAST_COSINE, LENGTHS = 0.5, 4.0
# A tensor core cuts its sums off: of 2,048 products of one sign an H200 loses a part in 100,000, as much as TF32 errs.
MOST_LOST = 2.0**-11
MOST_FAILED, MOST_PASSED = 8, 4  # trials looked at: a bound on the work that no clock sets
ODD_CLASSES = 0.01  # share of elements that overflow here and not there
ODD_OVERFLOWS = 0.5  # of the candidate's overflows, that the emulation does not share


@dataclass(frozen=True, slots=True)
class Emulation:
    """One way to round: what it is called, and the reference run so; None where the reference has nothing to round.

    partly  agreement in part counts; not where rounding shrinks everything, which a wrong factor does as well
    """

    precision: str
    run: Callable[[Oracle, Tried], Leaves | None]
    partly: bool = True


def _contractions(precision: str, rounding: str) -> Emulation:
    """Operands of products and convolutions are rounded, sums are not."""

    def run(oracle: Oracle, tried: Tried) -> Leaves | None:
        answers = oracle.rounded(tried.state, [tried.arguments], tried.seed, rounding)
        return answers.calls[0] if answers is not None else None

    return Emulation(precision, run, partly=precision == rounding)


def _products(precision: str, results: str) -> Emulation:
    """Products and convolutions are computed and stored in the format, everything between them is not."""

    def run(oracle: Oracle, tried: Tried) -> Leaves | None:
        answers = oracle.rounded(tried.state, [tried.arguments], tried.seed, precision, results)
        return answers.calls[0] if answers is not None else None

    return Emulation(precision, run)


def _throughout(precision: str) -> Emulation:
    """Everything is computed and stored in the format."""

    def run(oracle: Oracle, tried: Tried) -> Leaves | None:
        answers = oracle.in_format(tried.state, [tried.arguments], tried.seed, precision)
        return answers.calls[0] if answers is not None else None

    return Emulation(precision, run)


def _inputs(precision: str) -> Emulation:
    """Inputs and weights are rounded, and nothing after them."""

    def run(oracle: Oracle, tried: Tried) -> Leaves | None:
        return oracle.from_rounded(tried.state, [tried.arguments], tried.seed, precision).calls[0]

    return Emulation(precision, run)


EMULATIONS = (
    _contractions("tf32", "tf32"),
    _contractions("tf32", "tf32 cut off"),  # what a tensor core does with float32 operands
    _contractions("fp16", "fp16"),
    _throughout("fp16"),
    _products("fp16", "product"),
    _products("fp16", "sum"),
    _contractions("bf16", "bf16"),
    _contractions("bf16", "bf16 cut off"),
    _throughout("bf16"),
    _products("bf16", "product"),
    _products("bf16", "sum"),
    _inputs("tf32"),
    _inputs("fp16"),
    _inputs("bf16"),
)


def reduced_precision(tried: Sequence[Tried], oracle: Oracle) -> str:
    """The format in which the candidate computes; "" if none of them explains every trial."""
    tried = [t for t in tried if t.arguments]
    failed = [t for t in tried if not passes(t)][:MOST_FAILED]
    passed = [t for t in tried if passes(t)][:MOST_PASSED]
    if not failed or not _enough(failed):
        return ""
    for emulation in EMULATIONS:
        if all(_agrees(emulation, t, oracle) for t in failed) and all(_excuses(emulation, t, oracle) for t in passed):
            return emulation.precision
    return ""


def shown_precision(tried: Sequence[Tried], oracle: Oracle) -> str:
    """Where all trials pass, some of them just so: the format whose run each of those is far closer to than to the
    truth; "" if there is none.

    A candidate may look at its inputs first, and use TF32 where they are positive and its error is small. The other
    trials then say nothing of it.
    """
    rough = [t for t in tried if t.arguments and t.found and not accurate(t.yards, t.scores)][:MOST_FAILED]
    if not rough or not _enough(rough) or not all(map(passes, rough)):
        return ""
    emulations = (e for e in EMULATIONS if all(_is_it(e, t, oracle) for t in rough))
    return next((emulation.precision for emulation in emulations), "")


def _is_it(emulation: Emulation, tried: Tried, oracle: Oracle) -> bool:
    """Each output that is not accurate is the emulation's, but for the order of its sums and what these lose."""
    answers = emulation.run(oracle, tried)
    if answers is None:
        return False
    for found, answer, yard, s in zip(tried.found, answers, tried.yards, tried.scores, strict=True):
        if s.within(limits_for(yard.dtype)):
            continue
        g, c = yard.exact, found.reshape(-1).double()
        seen = torch.isfinite(c) & torch.isfinite(g) & torch.isfinite(answer.reshape(-1))
        off = _without_losses((c - g)[seen], g[seen])
        gap = _without_losses((c - answer.reshape(-1).double())[seen], g[seen])
        if not 0 < _rms(gap) * (CLOSER_MANY if off.numel() >= MANY else CLOSER_FEW) <= _rms(off):
            return False
    return True


def as_accurate_as(answer: torch.Tensor, yard: Yardstick, factor: float) -> bool:
    """Whether its error is no more than `factor` times eager's own."""
    if not yard.dtype.is_floating_point:
        return torch.equal(answer.reshape(-1), yard.eager)
    return score(answer, yard).error_rms <= factor * max(yard.eager_rms, 1e-300)


def _enough(failed: Sequence[Tried]) -> bool:
    elements = sum(yard.eager.numel() for t in failed for yard in t.yards)
    return elements >= MANY or len({t.trial for t in failed}) >= LEAST_TRIALS_FEW


def _agrees(emulation: Emulation, tried: Tried, oracle: Oracle) -> bool:
    """Where the candidate fails, each output that is off is off as the emulation's is."""
    answers = emulation.run(oracle, tried)
    if answers is None:
        return False
    return all(
        s.within_loose(limits_for(yard.dtype))
        or (not _leaves_the_range(s, yard, emulation) and _alike(found, answer, yard, emulation))
        for found, answer, yard, s in zip(tried.found, answers, tried.yards, tried.scores, strict=True)
    )


def _leaves_the_range(s: Score, yard: Yardstick, emulation: Emulation) -> bool:
    """NaN or infinity where there is a number: only a format of less range than float32's explains that."""
    return yard.dtype.is_floating_point and s.special and emulation.precision != "fp16"


def _excuses(emulation: Emulation, tried: Tried, oracle: Oracle) -> bool:
    """Where the candidate passes, the emulation does so too, or nearly."""
    answers = emulation.run(oracle, tried)
    if answers is None:
        return False
    for answer, yard, s in zip(answers, tried.yards, tried.scores, strict=True):
        if yard.dtype.is_floating_point:
            allowed = max(s.error_rms, limits_for(yard.dtype).loose_rms * yard.rms)
            if not score(answer.reshape(-1), yard).error_rms <= LENGTHS * allowed:
                return False
    return True


def _alike(found: torch.Tensor, answer: torch.Tensor, yard: Yardstick, emulation: Emulation) -> bool:
    """Whether the candidate's answer is the emulation's, as it is or rounded once more at the end."""
    if not yard.dtype.is_floating_point:
        wrong = found.reshape(-1) != yard.eager
        return bool((found.reshape(-1) == answer.reshape(-1))[wrong].double().mean() > 0.5)
    c, r, g = found.reshape(-1), answer.reshape(-1).to(found.dtype), yard.exact
    versions = r.double(), rounded(r, emulation.precision).double()
    return any(_matches(c, version, g, yard, partly=emulation.partly) for version in versions)


def _matches(c: torch.Tensor, r: torch.Tensor, g: torch.Tensor, yard: Yardstick, *, partly: bool) -> bool:
    odd = torch.isfinite(c) != torch.isfinite(r)
    if not float(odd.double().mean()) <= ODD_CLASSES:
        return False
    overflown = torch.isfinite(g) & ~torch.isfinite(c)
    if bool(overflown.any()) and float(torch.isfinite(r)[overflown].double().mean()) > ODD_OVERFLOWS:
        return False  # few as they may be, they are what is wrong, and the emulation does not have them
    seen = torch.isfinite(c) & torch.isfinite(r) & torch.isfinite(g)
    off, length, gap = (c.double() - g)[seen], (r - g)[seen], (c.double() - r)[seen]
    if not off.numel():
        return True  # nothing but overflow, in the same places
    if off.numel() < MANY:
        return _rms(gap) <= _rms(off) / CLOSER_FEW
    if _rms(gap) <= max(_rms(off) / CLOSER_MANY, limits_for(yard.dtype).rms * yard.rms):
        return True
    off, length = (_without_losses(error, g[seen]) for error in (off, length))
    ratio = _rms(length) / max(_rms(off), 1e-300)
    cosine = float((off * length).mean()) / max(_rms(off) * _rms(length), 1e-300)
    return partly and cosine >= LEAST_COSINE and 1 / LENGTHS <= ratio <= LENGTHS


def _without_losses(error: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """What is left of an error when everything being a little too small is taken off: who only has a wrong factor
    has nothing left that could be anybody's rounding."""
    lost = float((error * exact).sum() / exact.square().sum().clamp_min(1e-300))
    return error - max(-MOST_LOST, min(0.0, lost)) * exact


def _rms(x: torch.Tensor) -> float:
    return float(x.square().mean().sqrt())
