"""What `optimize` gives back: the emitted file, the judge's word, and what every stage made on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kernelwright.device import Device
from kernelwright.generate import Program
from kernelwright.judge import Judgement
from kernelwright.load import Problem, candidate_module
from kernelwright.tune import Tuned

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Result:
    """What `optimize` made: the emitted file, what the judge says of it, and what every stage made on the way."""

    problem: Problem
    device: Device
    source: str
    program: Program
    tuned: tuple[Tuned, ...]
    judgement: Judgement | None
    dumps: dict[str, str] = field(repr=False)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str | None:
        """The judge's word; None for a device that is not here, on which nothing could be run."""
        return None if self.judgement is None else str(self.judgement.verdict)

    @property
    def speedup(self) -> dict[str, float]:
        """How many times faster than each baseline, as the median of paired ratios."""
        if self.judgement is None:
            return {}
        return {name: interval.median for name, interval in self.judgement.speedup.items()}

    @cached_property
    def module(self) -> nn.Module:
        """A ModelNew of the emitted source, on the device it was planned for, with the problem's own weights."""
        return candidate_module(self.problem, self.source, self.device.torch_name)
