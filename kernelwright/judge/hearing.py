"""What one judgement is made of while it is under way: its parts come in, and what is known so far gathers here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelwright.judge.budget import WorkClock
from kernelwright.judge.candidate import Candidate, Facts
from kernelwright.judge.case import Case
from kernelwright.judge.memory import give_back
from kernelwright.judge.mutants import KillRate
from kernelwright.judge.policy import Policy
from kernelwright.judge.samples import Clocked
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.verdict import Errors, Label
from kernelwright.judge.workshop import Workshop

__all__ = ["NO_MEMORY", "Hearing", "Notes", "Progress", "Roots"]

Progress = Callable[[str, float], None]
NO_MEMORY = "there was no memory for it"


class Roots:
    """The secret that each phase starts from: drawn when the phase begins, or given by a record."""

    def __init__(self, given: dict[str, int]) -> None:
        self._given = given
        self.used: dict[str, int] = {}

    def __call__(self, phase: str) -> Seeds:
        seeds = Seeds(self._given[phase]) if phase in self._given else Seeds.from_entropy()
        self.used[phase] = seeds.root
        return seeds


@dataclass(slots=True)
class Notes:
    """What is known so far; a failure at any point still leaves a full record."""

    isolation: str = "none"
    busy: bool = False
    labels: set[Label] = field(default_factory=set)
    errors: Errors | None = None
    killed: KillRate | None = None
    clocked: Clocked | None = None
    shortage: bool = False
    phase: str = "read"
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hearing:
    """One judgement under way."""

    case: Case
    workshop: Workshop
    policy: Policy
    candidate: Candidate
    text: Facts
    notes: Notes
    roots: Roots
    listener: Progress
    busy: bool
    clock: WorkClock = field(default_factory=WorkClock)

    def report(self, phase: str, share: float) -> None:
        """Whoever listens may let us wait until a device is ours: the budget does not run meanwhile."""
        if share == 0.0:
            self.notes.phase = phase.partition(" ")[0]
            give_back(self.case.torch_device)
        with self.clock.stopped():
            self.listener(phase, share)
