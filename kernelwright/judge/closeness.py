"""A candidate's output and eager's on the same inputs come in; whether they agree, by an older yardstick, goes out.

For calls without an oracle of their own: those that are timed, and rows that there was no time for.
"""

from dataclasses import replace

import torch

from kernelwright.judge.criterion import Score, Yardstick, limits_for, score

__all__ = ["close_to_eager"]


def close_to_eager(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> Score | None:
    """None if the output is as close to eager's as the yardstick of other inputs allows, else how far it is off."""
    if _close_at_once(candidate, eager, own):
        return None
    found = score(candidate, _around(eager, own))
    limit = limits_for(eager.dtype)
    # Both sides are off from the truth here, and the inputs are not those that made the yardstick: four times as much.
    if found.rms <= 4 * limit.loose_rms and found.worst <= 4 * limit.loose_worst:
        return None
    return None if _rounding_decides(candidate, eager, own) else found


def _close_at_once(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> bool:
    """So close that nothing finer need be asked; most outputs are, and this costs one pass."""
    if not eager.numel():
        return True
    if not eager.dtype.is_floating_point:
        return torch.equal(candidate, eager)
    limit = limits_for(eager.dtype)
    bound = min(limit.loose_worst * own.eager_rms, limit.loose_rms * own.rms)
    return float((candidate - eager).abs().max()) <= bound


def _around(eager: torch.Tensor, own: Yardstick) -> Yardstick:
    """Eager's answer takes the oracle's place; the condition estimate of other inputs, at its largest, the spread's."""
    flat, shape = eager.reshape(-1), tuple(eager.shape)
    if not eager.dtype.is_floating_point:
        return replace(own, shape=shape, exact=flat, eager=flat, settled=None)
    largest = float(own.spread.max()) if own.spread is not None and own.spread.numel() else 0.0
    return replace(own, shape=shape, exact=flat.double(), eager=flat, spread=None, eager_rms=own.eager_rms + largest)


def _rounding_decides(candidate: torch.Tensor, eager: torch.Tensor, own: Yardstick) -> bool:
    """Indices of near ties may differ; about as many as were unsettled on the inputs that made the yardstick."""
    if eager.dtype.is_floating_point or own.settled is None:
        return False
    unsettled = 1 - float(own.settled.double().mean())
    return float((candidate != eager).double().mean()) <= 3 * unsettled + 1e-3 * (unsettled > 0)
