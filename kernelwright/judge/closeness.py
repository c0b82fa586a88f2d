"""A candidate's output and eager's on the same inputs come in; whether they agree, by an older yardstick, goes out.

For calls without an oracle of their own: those that are timed, and rows that there was no time for.
"""

from dataclasses import replace

import torch

from kernelwright.judge.criterion import STEADY, Yardstick, chunks, limits_for, score

__all__ = ["around", "close_to_eager"]


def close_to_eager(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> bool:
    """Whether the output is as close to eager's as the yardstick of other inputs of that kind allows.

    If not, nothing is proven yet: the inputs are not those that made the yardstick. The caller asks the oracle.
    """
    if _close_at_once(candidate, eager, own):
        return True
    return score(candidate, around(eager, own)).within_loose(limits_for(eager.dtype))


def _close_at_once(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> bool:
    """So close that nothing finer need be asked; most outputs are, and this costs one pass."""
    if not eager.numel():
        return True
    if not eager.dtype.is_floating_point:
        return torch.equal(candidate, eager)
    limit = limits_for(eager.dtype)
    bound = min(limit.loose_worst * own.eager_rms, limit.loose_rms * own.rms)
    c, e = candidate.reshape(-1), eager.reshape(-1)
    return all(float((c[part] - e[part]).abs_().max()) <= bound for part in chunks(e))


def around(answer: torch.Tensor, own: Yardstick) -> Yardstick:
    """Another answer takes the oracle's place; the condition estimate of other inputs, at its largest, the spread's."""
    flat, shape = answer.reshape(-1), tuple(answer.shape)
    if not answer.dtype.is_floating_point:
        return replace(own, shape=shape, exact=flat, eager=flat, settled=None, jumps=STEADY)
    largest = float(own.spread.max()) if own.spread is not None and own.spread.numel() else 0.0
    unit = own.eager_rms + largest
    return replace(own, shape=shape, exact=flat.double(), eager=flat, spread=None, eager_rms=unit, jumps=STEADY)
