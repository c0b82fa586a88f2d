"""How thoroughly a problem is judged, by name: a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["EFFORTS", "Effort"]


@dataclass(frozen=True, slots=True)
class Effort:
    """restarts    of each contestant's process while it is timed
    restart_s   of measuring in each at the most: others wait for the device meanwhile
    robustness  whether strided, unaligned and differently shaped inputs are tried for the labels
    budget_s    of one problem, where the user names none
    judging     the judge's share of it for checking and timing; tuning has its own
    tuning      whether configs are measured; if not, the cost model's choice is taken
    families    of inputs beyond the problem's own; None for all
    """

    restarts: int
    restart_s: float
    robustness: bool
    budget_s: float
    judging: float
    tuning: bool
    families: tuple[str, ...] | None


# The ones that expose most for their time: low precision, a wrong epsilon, a tail or a tile left out.
QUICK_FAMILIES = ("own", "zero_mean", "scaled_1e-2", "last_spike", "spikes")

EFFORTS: Mapping[str, Effort] = {
    # Whether everything is right, at the least cost to a GPU that many wait for. Its times are not our best.
    "glance": Effort(1, 1.5, robustness=False, budget_s=8.0, judging=1.0, tuning=False, families=QUICK_FAMILIES),
    # Enough for a large suite; one restart says nothing of what lies between restarts.
    "quick": Effort(1, 3.0, robustness=False, budget_s=16.0, judging=0.5, tuning=True, families=QUICK_FAMILIES),
    "normal": Effort(3, 10.0, robustness=True, budget_s=60.0, judging=0.35, tuning=True, families=None),
    "thorough": Effort(5, 20.0, robustness=True, budget_s=180.0, judging=0.5, tuning=True, families=None),
}
