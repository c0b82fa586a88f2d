"""One problem's result as plain data: what a run's JSON lines hold, and what every report is made from.

Needs no torch, so that reports can be made anywhere and at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kernelwright.errors import UsageError

__all__ = [
    "OUTCOMES",
    "SCHEMA",
    "Contraction",
    "Errors",
    "KernelFacts",
    "Row",
    "Span",
    "Terms",
    "Work",
    "identity_of",
    "read_row",
    "row_line",
]

SCHEMA = 1

Standing = Literal["right", "unchanged", "wrong", "broken", "unjudged"]

# Every verdict a row can have, and how it counts: the judge's own words, then those of the suite.
OUTCOMES: Mapping[str, Standing] = {
    "CORRECT": "right",
    "INCORRECT": "wrong",
    "REDUCED_PRECISION": "wrong",
    "NONDETERMINISTIC": "wrong",
    "WRONG_OUTPUT_TYPE": "wrong",
    "MEMORY_VIOLATION": "wrong",
    "TAMPERING": "wrong",
    "BAD_CANDIDATE": "broken",
    "COMPILE_ERROR": "broken",
    "COMPILE_TIMEOUT": "broken",
    "LOAD_ERROR": "broken",
    "RUNTIME_ERROR": "broken",
    "CRASH": "broken",
    "GPU_FAULT": "broken",
    "OOM": "broken",
    "TIMEOUT": "broken",
    "BAD_REFERENCE": "unjudged",
    "JUDGE_ERROR": "unjudged",
    "NOTHING_TO_DO": "unchanged",  # no kernel of ours would help: the model stays as it is
    "UNSUPPORTED": "unchanged",  # well formed, but it uses what we cannot compile
    "BAD_PROBLEM": "unjudged",  # the file does not follow the protocol
    "BUILD_ERROR": "broken",  # a compiler rejected our source
    "ENVIRONMENT": "unjudged",  # this machine lacks something
    "BUG": "broken",  # an exception of ours that nobody expected
    "NOT_RUN": "unjudged",  # for a device that is not here: generated and compiled only
    "OUT_OF_TIME": "unjudged",  # the suite's limit for one problem
    "OUT_OF_MEMORY": "unjudged",
    "DIED": "unjudged",  # its process ended without a word
}


@dataclass(frozen=True, slots=True)
class Span:
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative to the output's rms, against float64, on the problem's own inputs."""

    candidate_rms: float
    candidate_max: float
    eager_rms: float
    eager_max: float


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel as it was chosen.

    formula     what it computes
    library_us  what PyTorch takes for the same
    registers   of a thread, and the bytes that did not fit in them: the most of its variants; None on a CPU
    """

    name: str
    formula: str
    template: str
    config: str
    median_us: float | None
    floor_us: float
    library_us: float | None
    origin: str
    bytes_moved: int
    flops: int
    registers: int | None = None
    spill_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Contraction:
    """A product or a convolution: what it is, who computes it, and in which arithmetic."""

    what: str
    by: str
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Work:
    """What the problem asks of a device, and the time below which no program can do it there."""

    family: str
    flops: int
    bytes_moved: int
    floor_us: float
    bound: str  # "memory" or "arithmetic"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a problem was run under, as far as the result depends on it."""

    device: str
    precision: str
    baselines: tuple[str, ...]
    budget_s: float
    effort: str


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, once: the verdict and what it rests on.

    problem     its name in the run: folder/file
    noise       the logarithm by which eager differs from itself in the same run
    degenerate  an answer that looks at no input passes: a speed-up says nothing
    skipped     steps of the judge that did not fit into its time, and why
    shortage    memory was short, its own or ours: what ran beside it may be the cause
    peers_us    times of others, brought in from elsewhere, by whose they are
    wall_s      from the start of its process to its end
    """

    problem: str
    path: str
    sha256: str
    terms: Terms
    verdict: str
    speed: str | None = None
    detail: str = ""
    labels: tuple[str, ...] = ()
    speedup: Mapping[str, Span] = field(default_factory=dict)
    times_us: Mapping[str, Span] = field(default_factory=dict)
    noise: float | None = None
    errors: Errors | None = None
    kill_rate: float | None = None
    degenerate: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)
    shortage: bool = False
    work: Work | None = None
    kernels: tuple[KernelFacts, ...] = ()
    contractions: tuple[Contraction, ...] = ()
    peers_us: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return identity_of(self.problem, self.sha256, self.terms)

    @property
    def standing(self) -> Standing:
        return OUTCOMES.get(self.verdict, "unjudged")

    @property
    def family(self) -> str:
        return self.work.family if self.work else "other"

    @property
    def ours_us(self) -> Span | None:
        return self.times_us.get("candidate")

    @property
    def is_unclear(self) -> bool:
        """The judge measured it and cannot say: such a ratio is nobody's."""
        return self.speed in ("INCONCLUSIVE", "IMPOSSIBLE")

    def is_timed(self, baseline: str) -> bool:
        """Whether it counts among those that are right and faster or slower than that baseline."""
        return self.standing == "right" and baseline in self.speedup and not self.is_unclear

    def over(self, baseline: str) -> float | None:
        """How many times faster than that baseline; None where nothing was timed, or not well enough."""
        span = self.speedup.get(baseline)
        return None if span is None or self.is_unclear else span.median


def identity_of(problem: str, sha256: str, terms: Terms) -> str:
    """The same for the same text, called the same, under the same terms."""
    parts = json.dumps([problem, sha256, asdict(terms)], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def row_line(row: Row) -> str:
    """One line of JSON, without NaN and infinities, which JSON lacks."""
    fields = {"schema": SCHEMA, "identity": row.identity, **asdict(row)}
    return json.dumps(finite(fields), allow_nan=False) + "\n"


def read_row(fields: Mapping[str, Any]) -> Row:
    """A row from its JSON object."""
    if fields.get("schema") != SCHEMA:
        raise UsageError(
            f"a row has schema {fields.get('schema')}; this version reads schema {SCHEMA}.",
            cure="Read it with the version of kernelwright that wrote it, or run the problem again.",
        )
    known = {name: fields[name] for name in Row.__dataclass_fields__ if name in fields}
    return Row(**known | {name: build(known[name]) for name, build in NESTED.items() if known.get(name) is not None})


def spans(fields: Mapping[str, Any]) -> dict[str, Span]:
    return {name: Span(**span) for name, span in fields.items() if None not in span.values()}


NESTED: Mapping[str, Any] = {
    "terms": lambda fields: Terms(**fields | {"baselines": tuple(fields["baselines"])}),
    "labels": tuple,
    "speedup": spans,
    "times_us": spans,
    "errors": lambda fields: None if None in fields.values() else Errors(**fields),
    "work": lambda fields: Work(**fields),
    "kernels": lambda rows: tuple(KernelFacts(**fields) for fields in rows),
    "contractions": lambda rows: tuple(Contraction(**fields) for fields in rows),
}


def finite(value: Any) -> Any:
    """The same value with null for what is no number."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
