"""One problem as it is handed to a process of its own: plain data, through a command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kernelwright.report.row import Terms
from kernelwright.suite.cores import Cores

__all__ = ["Job", "job_json", "read_job"]


@dataclass(frozen=True, slots=True)
class Job:
    """device   as torch and `--device` know it: cpu, cuda:1, h200
    folder   where the result and everything made on the way goes
    locks    folder of the devices' lock files
    alone    nobody else may be on the device, not even while checking
    compilers  that it may run at a time, beside those of its neighbours
    cores    where its processes run
    commit   of the tree that runs, for the row
    isolations  of workers, as earlier problems of this run found them: the strongest need not be looked for again
    """

    problem: str
    path: str
    sha256: str
    terms: Terms
    device: str
    folder: str
    locks: str
    alone: bool
    compilers: int
    cores: Cores
    commit: str
    command: str
    isolations: tuple[str, ...] = ()


def job_json(job: Job) -> str:
    return json.dumps(asdict(job))


def read_job(text: str) -> Job:
    fields = json.loads(text)
    terms = fields["terms"]
    cores = Cores(*(tuple(fields["cores"][name]) for name in ("quiet", "others")))
    plain = {"cores": cores, "isolations": tuple(fields["isolations"])}
    return Job(**fields | plain | {"terms": Terms(**terms | {"baselines": tuple(terms["baselines"])})})
