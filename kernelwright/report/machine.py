"""Results come in; the one JSON object that `--json` prints goes out."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.judge import Interval, Judgement
    from kernelwright.report.summary import Summary
    from kernelwright.result import Result


def judgement_object(judgement: Judgement) -> dict[str, Any]:
    """The keys that scripts rely on; `record` is written by `check --record`, not here."""
    return {
        "verdict": str(judgement.verdict),
        "labels": [str(label) for label in judgement.labels],
        "speed": None if judgement.speed is None else str(judgement.speed),
        "speedup": {name: interval_object(i) for name, i in judgement.speedup.items()},
        "times_us": {name: interval_object(i) for name, i in judgement.times_us.items()},
        "error": None if judgement.errors is None else finite(asdict(judgement.errors)),
        "kill_rate": judgement.kill_rate,
        "isolation": judgement.isolation,
        "detail": judgement.detail,
        "environment": judgement.environment,
    }


def interval_object(interval: Interval) -> dict[str, float | None]:
    return finite({"median": interval.median, "low": interval.low, "high": interval.high})


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def result_object(result: Result, output: str | None) -> dict[str, Any]:
    """A judgement, with what was made and how long each stage took."""
    judged = {"verdict": None, "detail": f"{result.device.name} is not here: generated and compiled, not run"}
    return {
        **(judgement_object(result.judgement) if result.judgement is not None else judged),
        "problem": result.problem.name,
        "device": result.device.name,
        "output": output,
        "algebra": list(result.program.algebra),
        "kernels": [
            {
                "name": row.kernel,
                "config": asdict(row.choice),
                "median_us": row.median_us,
                "floor_us": row.floor_us,
                "origin": row.origin,
            }
            for row in result.tuned
        ],
        "seconds": result.seconds,
    }


def summary_object(summary: Summary) -> dict[str, Any]:
    """What `suite report --json` prints."""
    return {
        **{name: getattr(summary, name) for name in ("total", "with_errors", "accurate")},
        "standings": dict(summary.standings),
        "verdicts": dict(summary.verdicts),
        "degenerate": list(summary.degenerate),
        "against": [finite(asdict(row) | {"best": list(row.best)}) for row in summary.against],
    }
