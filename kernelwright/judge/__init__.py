"""Stage 8: a problem and a candidate come in; a verdict with its evidence, and how fast it is, go out."""

from kernelwright.judge.candidate import Candidate, extract
from kernelwright.judge.policy import Policy, Precision
from kernelwright.judge.procedure import judge, replay
from kernelwright.judge.process import shared_workers
from kernelwright.judge.verdict import Errors, Interval, Judgement, Label, Speed, Verdict

__all__ = [
    "Candidate",
    "Errors",
    "Interval",
    "Judgement",
    "Label",
    "Policy",
    "Precision",
    "Speed",
    "Verdict",
    "extract",
    "judge",
    "replay",
    "shared_workers",
]
