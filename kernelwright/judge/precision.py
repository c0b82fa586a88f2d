"""Trials that failed come in; the name of the arithmetic whose rounding explains them goes out, if one does."""

from collections.abc import Sequence

import torch

from kernelwright.judge.correctness import Tried, passes
from kernelwright.judge.criterion import Yardstick, score
from kernelwright.judge.oracle import Oracle

__all__ = ["as_accurate_as", "reduced_precision"]

# A candidate's error and that of the emulation agree within this factor: hardware truncates where we round to nearest,
# and sums in another order.
AGREEMENT = 4.0
FORMATS = ("tf32", "fp16", "bf16")


def reduced_precision(tried: Sequence[Tried], oracle: Oracle) -> str:
    """The format whose emulation has the candidate's error wherever the candidate fails; "" if none has."""
    tried = [t for t in tried if t.arguments]
    failed = [t for t in tried if not passes(t)][:4]
    passed = [t for t in tried if passes(t)][:4]
    for precision in FORMATS:
        if all(_explains(precision, t, oracle, must_match=True) for t in failed) and all(
            _explains(precision, t, oracle, must_match=False) for t in passed
        ):
            return precision
    return ""


def as_accurate_as(answer: torch.Tensor, yard: Yardstick, factor: float) -> bool:
    """Whether its error is no more than `factor` times eager's own."""
    if not yard.dtype.is_floating_point:
        return torch.equal(answer.reshape(-1), yard.eager)
    return score(answer, yard).error_rms <= factor * max(yard.eager_rms, 1e-300)


def _explains(precision: str, tried: Tried, oracle: Oracle, *, must_match: bool) -> bool:
    """Where the candidate fails, the emulation is as far off; where it passes, the emulation passes or nearly so."""
    for answers in _emulations(precision, tried, oracle):
        ratios = [
            score(leaf, yard).error_rms / max(s.error_rms, 1e-300)
            for leaf, yard, s in zip(answers, tried.yards, tried.scores, strict=True)
            if yard.dtype.is_floating_point
        ]
        if not ratios:
            continue
        if must_match and all(1 / AGREEMENT <= ratio <= AGREEMENT for ratio in ratios):
            return True
        if not must_match and all(ratio <= AGREEMENT for ratio in ratios):
            return True
    return False


def _emulations(precision: str, tried: Tried, oracle: Oracle) -> list[list[torch.Tensor]]:
    """Contractions with rounded operands; and, for the 16-bit formats, everything in that format."""
    found = []
    if (answers := oracle.rounded(tried.state, [tried.arguments], tried.seed, precision)) is not None:
        found.append(answers.calls[0])
    if precision != "tf32" and (whole := oracle.in_format(tried.state, [tried.arguments], tried.seed, precision)):
        found.append(whole.calls[0])
    return found
