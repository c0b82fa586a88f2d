"""A judgement comes in; a dictionary for JSON goes out, with everything needed to judge again; and back.

Seeds are in it: they were secret while the candidate ran, and are of no use to it afterwards.
"""

import math
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernelwright import device as devices
from kernelwright.errors import UsageError
from kernelwright.judge.candidate import Candidate
from kernelwright.judge.correctness import Findings
from kernelwright.judge.policy import Policy
from kernelwright.judge.verdict import Judgement, Label
from kernelwright.load import Problem

__all__ = ["VERSION", "plain", "read_record", "record_of", "trials_of"]

VERSION = 1


def record_of(
    judgement: Judgement, problem: Problem, candidate: Candidate, policy: Policy, spec: str
) -> dict[str, Any]:
    """The judgement with what it was made from; numbers that JSON lacks become strings."""
    found: dict[str, Any] = plain(
        {
            "version": VERSION,
            "verdict": judgement.verdict,
            "speed": judgement.speed,
            "labels": judgement.labels,
            "detail": judgement.detail,
            "errors": asdict(judgement.errors) if judgement.errors else None,
            "speedup": {name: asdict(found) for name, found in judgement.speedup.items()},
            "times_us": {name: asdict(found) for name, found in judgement.times_us.items()},
            "kill_rate": judgement.kill_rate,
            "shortage": judgement.shortage,
            "isolation": judgement.isolation,
            "environment": judgement.environment,
            "device": spec,
            "policy": asdict(policy) | {"forbid": sorted(policy.forbid)},
            "problem": {
                "name": problem.name,
                "path": str(problem.path),
                "sha256": _digest(problem.source),
                "source": problem.source,
            },
            "candidate": asdict(candidate) | {"sha256": _digest(candidate.text)},
            **judgement.record,
        }
    )
    return found


def trials_of(findings: Findings) -> dict[str, Any]:
    """Each trial with its family, seed and scores."""
    return {
        "trials": [
            {
                "family": tried.trial.family.name,
                "seed": tried.trial.seed,
                "own_weights": tried.trial.own_weights,
                "scores": [{"rms": s.rms, "max": s.worst, "where": list(s.where)} for s in tried.scores],
            }
            for tried in findings.tried
        ],
        "dropped": [{"family": name, "why": why} for name, why in findings.dropped],
        "buffers": {name: {"rms": s.rms, "max": s.worst} for name, _, s in findings.state_scores},
    }


def read_record(record: dict[str, Any]) -> tuple[Problem, Candidate, Policy, devices.Device, dict[str, int]]:
    """What a judgement was made from, and its seeds."""
    if record.get("version") != VERSION:
        raise UsageError(
            f"this record has version {record.get('version')}; version {VERSION} can be replayed.",
            where="replay",
            cure="Judge the candidate again.",
        )
    problem, text = record["problem"], record["candidate"]
    for part, content in ((problem, problem["source"]), (text, text["text"])):
        if _digest(content) != part["sha256"]:
            raise UsageError("the record's text does not have the hash it gives.", where="replay")
    policy = dict(record["policy"])
    policy |= {
        "families": tuple(policy["families"]),
        "baselines": tuple(policy["baselines"]),
        "forbid": frozenset(Label(name) for name in policy["forbid"]),
    }
    return (
        Problem(problem["name"], problem["source"], Path(problem["path"])),
        Candidate(text["text"], text["name"], text["origin"]),
        Policy(**policy),
        devices.resolve(record["device"]),
        {name: int(root) for name, root in record.get("seeds", {}).items()},
    )


def plain(value: Any) -> Any:
    """Only what JSON has: NaN and infinities as strings, tuples and sets as lists."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float():
            return value
    return str(value)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
