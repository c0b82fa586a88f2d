"""The closed list of verdicts, speeds and labels, and the `Judgement` that carries them out of the judge."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Errors", "Failed", "Interval", "Judgement", "Label", "Speed", "Verdict"]


class Verdict(StrEnum):
    """One of these is the judge's word on a candidate; only the last is a pass."""

    BAD_REFERENCE = "BAD_REFERENCE"  # the problem cannot be judged: it raises, runs out of memory, is ill-conditioned
    BAD_CANDIDATE = "BAD_CANDIDATE"  # no Python, or no ModelNew in it
    COMPILE_ERROR = "COMPILE_ERROR"
    COMPILE_TIMEOUT = "COMPILE_TIMEOUT"
    LOAD_ERROR = "LOAD_ERROR"  # importing or constructing raised
    RUNTIME_ERROR = "RUNTIME_ERROR"  # forward raised
    CRASH = "CRASH"  # the process ended
    GPU_FAULT = "GPU_FAULT"
    OOM = "OOM"
    TIMEOUT = "TIMEOUT"
    WRONG_OUTPUT_TYPE = "WRONG_OUTPUT_TYPE"  # structure, shape, dtype or device
    INCORRECT = "INCORRECT"
    REDUCED_PRECISION = "REDUCED_PRECISION"
    NONDETERMINISTIC = "NONDETERMINISTIC"  # the same inputs give a right answer once and a wrong one again
    MEMORY_VIOLATION = "MEMORY_VIOLATION"  # reads or writes outside its tensors
    TAMPERING = "TAMPERING"
    JUDGE_ERROR = "JUDGE_ERROR"  # our fault, never the candidate's
    CORRECT = "CORRECT"


class Speed(StrEnum):
    """Said of a correct candidate that was timed."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    INCONCLUSIVE = "INCONCLUSIVE"
    IMPOSSIBLE = "IMPOSSIBLE"  # below the time that moving the bytes takes


class Label(StrEnum):
    """Remarks; none of them decides, except where the policy forbids one."""

    NO_CUSTOM_KERNEL = "no_custom_kernel"
    VENDOR_LIBRARY = "vendor_library"
    MUTATES_INPUTS = "mutates_inputs"
    ALIASES_INPUT = "aliases_input"
    REUSES_OUTPUT_BUFFER = "reuses_output_buffer"
    SHAPE_SPECIALISED = "shape_specialised"
    CONTIGUOUS_ONLY = "contiguous_only"
    ALIGNED_ONLY = "aligned_only"
    USES_SIDE_STREAMS = "uses_side_streams"
    SPAWNS_THREADS = "spawns_threads"
    SPAWNS_PROCESSES = "spawns_processes"
    WEAK_TASK = "weak_task"
    FLAGS_CHANGED = "flags_changed"
    IMPORTS_REFERENCE = "imports_reference"
    LOOSE_ACCURACY = "loose_accuracy"
    INEXACT_INTEGERS = "inexact_integers"
    NONDETERMINISTIC_ROUNDING = "nondeterministic_rounding"
    WEIGHTS_BY_SEED = "weights_by_seed"
    STRIDED_OUTPUT = "strided_output"
    RANDOM = "random"
    BATCHES_CALLS = "batches_calls"
    UNSEEDED = "unseeded"


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors against float64, as fractions of the output's rms, worst over all trials on the problem's own inputs;
    and the largest ratio of the candidate's error to the yardstick over all trials (passing: 16 and 64)."""

    candidate_rms: float
    candidate_max: float
    eager_rms: float
    eager_max: float
    yardstick_rms: float
    yardstick_max: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge says, and why.

    detail     one sentence; for a wrong output its family, coordinate, value and the right value
    speedup    baseline -> how many times faster than it
    times_us   contestant -> time of one call
    kill_rate  how many of the known-bad answers to this problem these trials reject, as a fraction
    shortage   memory was short, the candidate's or the judge's, and the verdict or the times suffer from it
    isolation  the level of the worker's cell
    record     everything above and all it rests on, ready for JSON and `replay`
    """

    verdict: Verdict
    speed: Speed | None
    labels: tuple[Label, ...]
    detail: str
    errors: Errors | None
    speedup: dict[str, Interval]
    times_us: dict[str, Interval]
    kill_rate: float | None
    shortage: bool
    isolation: str
    environment: dict[str, Any]
    record: dict[str, Any] = field(repr=False)

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.CORRECT


class Failed(Exception):
    """Ends the procedure with a verdict; never leaves the judge.

    shortage  memory was short: with more of it, the verdict may be another
    """

    def __init__(self, verdict: Verdict, detail: str, *, shortage: bool = False) -> None:
        super().__init__(f"{verdict}: {detail}")
        self.verdict = verdict
        self.detail = detail
        self.shortage = shortage or verdict is Verdict.OOM
