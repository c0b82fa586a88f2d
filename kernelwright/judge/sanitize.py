"""A candidate on a GPU comes in; what compute-sanitizer finds in one call of it goes out.

memcheck sees reads and writes outside any allocation, where guard bands see only those beside the inputs; racecheck
sees threads of a block that do not wait for each other. Both slow kernels down tenfold and more, so that they get one
call, a limit, and a process of their own, as confined as any worker.
"""

import re
import shutil
import sys
from dataclasses import dataclass

import torch

from kernelwright.judge.case import Case
from kernelwright.judge.sources import kernel_names
from kernelwright.judge.workshop import SOURCE, Workshop
from kernelwright.settings import read_settings

__all__ = ["Finding", "sanitize"]

ERROR_EXIT = 77
MOST_INPUT_BYTES = 512 << 20

# Runs in the worker's cell, under compute-sanitizer; needs nothing but torch.
PROGRAM = """
import importlib.util, json, sys, torch
folder = sys.argv[1]
sys.path.insert(0, folder + "/source")
given = torch.load(folder + "/sanitize.pt", weights_only=True)
spec = importlib.util.spec_from_file_location("candidate", folder + "/source/candidate.py")
module = importlib.util.module_from_spec(spec)
sys.modules["candidate"] = module
spec.loader.exec_module(module)
torch.manual_seed(given["seed"])
model = module.ModelNew(*given["args"], **given["kwargs"]).to("cuda")
move = lambda v: v.cuda() if isinstance(v, torch.Tensor) else v
with torch.no_grad():
    model(*[move(v) for v in given["inputs"]])
torch.cuda.synchronize()
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a tool said: how it went (clean, found, no time, not here, did not run), and its first complaint."""

    tool: str
    outcome: str
    complaint: str = ""


def sanitize(case: Case, workshop: Workshop, text: str, limit_s: float) -> list[Finding]:
    """memcheck, and racecheck where the candidate's own kernels use shared memory."""
    program = _program()
    if program is None:
        return [Finding("memcheck", "not here")]
    if case.input_bytes > MOST_INPUT_BYTES:
        return [Finding("memcheck", "no time")]
    findings = [_run(case, workshop, program, "memcheck", limit_s, set())]
    if "__shared__" in text and findings[0].outcome != "no time":
        findings.append(_run(case, workshop, program, "racecheck", limit_s, kernel_names(text)))
    return findings


def _program() -> str | None:
    settings = read_settings()
    if settings.cuda_home and (found := settings.cuda_home / "bin" / "compute-sanitizer").exists():
        return str(found)
    return shutil.which("compute-sanitizer", path=settings.search_path) or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )


def _run(case: Case, workshop: Workshop, program: str, tool: str, limit_s: float, kernels: set[str]) -> Finding:
    workshop.restore()
    args, kwargs = case.reference.constructor_arguments(case.model_seed)
    given = {"seed": case.model_seed, "args": list(args), "kwargs": kwargs, "inputs": list(case.arguments())}
    torch.save(given, workshop.folder / "sanitize.pt")
    (workshop.folder / SOURCE / "sanitize.py").write_text(PROGRAM)
    command = [
        program,
        "--tool",
        tool,
        "--error-exitcode",
        str(ERROR_EXIT),
        "--report-api-errors",
        "no",
        "--print-limit",
        "4",
        sys.executable,
        "-I",
        "-P",
        str(workshop.folder / SOURCE / "sanitize.py"),
        str(workshop.folder),
    ]
    code, log = workshop.run(command, limit_s, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    if code is None:
        return Finding(tool, "no time")
    if "ERROR SUMMARY" not in log and "RACECHECK SUMMARY" not in log:
        return Finding(tool, "did not run", (log.strip().splitlines() or [""])[-1][:300])
    if code != ERROR_EXIT:
        return Finding(tool, "clean")
    complaint = _complaint(log, kernels)
    return Finding(tool, "found" if complaint else "clean", complaint)


def _complaint(log: str, kernels: set[str]) -> str:
    """The first complaint, with where it was; of races only those in kernels of the candidate's own."""
    lines = [re.sub(r"^=+ ?", "", line).strip() for line in log.splitlines() if line.startswith("=====")]
    for number, line in enumerate(lines):
        around = " ".join(lines[number : number + 3])
        if re.match(r"(Invalid|Misaligned|.*[Rr]ace reported|.*hazard)", line) and (
            not kernels or any(name in around for name in kernels)
        ):
            return around[:300]
    return ""
