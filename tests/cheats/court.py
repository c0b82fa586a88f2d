"""What the judge's case tests stand on: small problems, candidates from files, one set of workers, quick policies."""

import atexit
import contextlib
import functools
from pathlib import Path

from kernelwright.device import Device, resolve
from kernelwright.judge import Candidate, Judgement, Policy, extract, judge, shared_workers
from kernelwright.load import Problem, load

HERE = Path(__file__).parent
PROBLEMS = HERE / "problems"

# Enough to see a wrong answer; the cases that need more say so. The budget is no limit: on a slow machine trials would
# be left out for want of time, and time must not decide a test.
QUICK = Policy(
    budget_s=300,
    timing=False,
    robustness=False,
    mutants=False,
    build_limit_s=90,
    load_limit_s=90,
    call_limit_s=90,
    families=("own", "zero_mean", "scaled_1e-2", "last_spike", "spikes"),
)
# The cases in which speed is the point: eager only, few restarts.
TIMED = Policy(
    extensions=0,
    budget_s=5,
    timing=True,
    restarts=2,
    baselines=("eager",),
    robustness=False,
    mutants=False,
    build_limit_s=90,
    families=("own", "zero_mean"),
)


def problem(name: str) -> Problem:
    return load(PROBLEMS / f"{name}.py")


def candidate(folder: Path, name: str, **words: str) -> Candidate:
    """The file's text; `@WORD@` in it stands for what the test gives."""
    text = (folder / "candidates" / f"{name}.py").read_text()
    for word, meaning in words.items():
        text = text.replace(f"@{word}@", meaning)
    return extract(text, ".py")


def verdict_on(accused: Candidate, name: str, policy: Policy = QUICK) -> Judgement:
    keep_workers()
    return judge(problem(name), accused, policy, cpu())


@functools.cache
def cpu() -> Device:
    return resolve("cpu")


@functools.cache
def keep_workers() -> None:
    """One zygote for the whole run: importing torch for each of a hundred judgements would take minutes."""
    stack = contextlib.ExitStack()
    stack.enter_context(shared_workers())
    atexit.register(stack.close)
