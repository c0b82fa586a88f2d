"""Candidates and problems that break; each gets its name, and the judge goes on."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.judge import Candidate, Policy, Verdict, extract, judge
from kernelwright.judge.process import Zygote
from kernelwright.load import Problem
from tests.cheats.court import QUICK, TIMED, candidate, cpu, keep_workers, verdict_on

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
IMPATIENT = replace(QUICK, call_limit_s=3, build_limit_s=6)

V = Verdict
FAULTS: tuple[tuple[str, str, tuple[Verdict, ...], str, Policy], ...] = (
    ("f01_compile_error", "rectify", (V.COMPILE_ERROR,), "undeclared_name", QUICK),
    ("f02_compiler_hangs", "rectify", (V.COMPILE_TIMEOUT,), "compiler", IMPATIENT),
    ("f03_undefined_symbol", "rectify", (V.COMPILE_ERROR,), "nowhere", QUICK),
    ("f05_key_error", "rectify", (V.LOAD_ERROR,), "KeyError", QUICK),
    ("f06_endless_loop", "rectify", (V.TIMEOUT,), "calling forward", IMPATIENT),
    ("f09_segfault", "rectify", (V.CRASH,), "signal 11", QUICK),
    ("f09_abort", "rectify", (V.CRASH,), "signal 6", QUICK),
    ("f10_exit_in_forward", "rectify", (V.CRASH,), "exit code 0", QUICK),
    ("f10_exit_at_import", "rectify", (V.CRASH,), "exit code 0", QUICK),
    ("f10_system_exit_in_forward", "rectify", (V.RUNTIME_ERROR,), "SystemExit", QUICK),
    ("f10_system_exit_at_import", "rectify", (V.LOAD_ERROR,), "SystemExit", QUICK),
    ("f12_memory_bomb", "rectify", (V.OOM,), "memory", replace(QUICK, memory_bytes=2 << 30)),
    ("f13_fork_bomb", "rectify", (V.RUNTIME_ERROR, V.CRASH, V.TIMEOUT, V.OOM), "", IMPATIENT),
    ("f13_many_threads", "rectify", (V.RUNTIME_ERROR, V.CRASH, V.TIMEOUT, V.OOM), "", IMPATIENT),
    ("f14_floods_stdout", "rectify", (V.CORRECT,), "", QUICK),
    ("f15_fills_disk", "rectify", (V.OOM, V.RUNTIME_ERROR), "", replace(QUICK, disk_bytes=64 << 20)),
    ("f15_fills_tmp", "rectify", (V.OOM, V.RUNTIME_ERROR, V.CRASH), "", replace(QUICK, disk_bytes=64 << 20)),
    ("f15_litters_its_folder", "rectify", (V.CORRECT,), "", QUICK),
    ("f15_folders_in_folders", "rectify", (V.OOM,), "", QUICK),
    ("f15_folders_that_vanish", "rectify", (V.CORRECT,), "", QUICK),
    ("f16_cannot_be_printed", "rectify", (V.RUNTIME_ERROR,), "Unspeakable", QUICK),
    ("f16_forged_words", "rectify", (V.CRASH,), "exit code 3", QUICK),
    ("f16_closes_what_it_can", "rectify", (V.CRASH, V.RUNTIME_ERROR), "", QUICK),
    ("f16_returns_twice", "rectify", (V.RUNTIME_ERROR,), "two processes", QUICK),
    ("b08_other_signature", "linear", (V.LOAD_ERROR,), "TypeError", QUICK),
    ("raises_in_forward", "rectify", (V.RUNTIME_ERROR,), "another shape", QUICK),
)
WRONG_TYPES = ("tuple", "none", "list", "half", "extra_dimension", "number", "transposed", "other_device")


@pytest.mark.parametrize(("name", "task", "verdicts", "words", "policy"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_gets_its_name(name: str, task: str, verdicts: tuple[Verdict, ...], words: str, policy: Policy) -> None:
    judgement = verdict_on(candidate(HERE, name), task, policy)
    assert judgement.verdict in verdicts, judgement.detail
    assert words in judgement.detail
    assert all(char.isprintable() for char in judgement.detail), "nothing that moves a terminal's cursor"


@pytest.mark.parametrize(("mapped", "held"), [(5, 0), (0, 5)])
def test_memory_that_is_nobodys_own_counts_too(mapped: int, held: int) -> None:
    words = {"MAPPED": str(mapped), "HELD": str(held)}
    bomb = candidate(HERE, "f12_shared_memory_bomb", **words)
    judgement = verdict_on(bomb, "rectify", replace(QUICK, memory_bytes=768 << 20))
    assert judgement.verdict is Verdict.OOM, judgement.detail
    assert "memory" in judgement.detail


@pytest.mark.slow
@pytest.mark.parametrize("since", ["1", "40"], ids=["at once", "timed"])
@pytest.mark.parametrize(
    ("address", "stride"),
    [
        ("2**64 - 8", "0"),
        ("2**63 - 8", "0"),
        ("0", "1"),
        ("4096", "2**62"),
        ("2**63", "-(2**63)"),
        ("2**64 - 4096", "-1"),
    ],
)
def test_claims_that_make_no_sense_are_the_candidates_fault(address: str, stride: str, since: str) -> None:
    liar = candidate(HERE, "f17_nonsense_for_claims", ADDRESS=address, STRIDE=stride, FROM=since)
    judgement = verdict_on(liar, "batchnorm", TIMED)
    assert judgement.verdict in (V.INCORRECT, V.WRONG_OUTPUT_TYPE, V.TAMPERING), judgement.detail


@pytest.mark.parametrize("kind", WRONG_TYPES)
def test_an_output_of_another_type_is_named(kind: str) -> None:
    judgement = verdict_on(candidate(HERE, f"b10_{kind}"), "rectify")
    assert judgement.verdict is Verdict.WRONG_OUTPUT_TYPE, judgement.detail
    assert "reference" in judgement.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("class ModelNew(:\n", "not Python"),
        ("import torch\n", "does not define ModelNew"),
        ("x = 1\0", "null bytes"),
        ("# " + "x" * (10 << 20), "MiB"),
    ],
    ids=["empty", "blank", "syntax", "no_class", "binary", "ten_megabytes"],
)
def test_a_file_that_is_no_candidate_is_bad(text: str, words: str) -> None:
    judgement = verdict_on(Candidate(text), "rectify")
    assert judgement.verdict is Verdict.BAD_CANDIDATE
    assert words in judgement.detail


MODEL = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x) * 2.0\n"
INPUTS = "def get_inputs():\n    return [torch.randn(31, 37)]\n"
HONEST = Candidate(MODEL.replace("Model(", "ModelNew("))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (MODEL, "get_inputs"),
        ("import torch\n" + INPUTS, "Model"),
        (MODEL + "def get_inputs():\n    raise ValueError('no data')\n", "no data"),
        (MODEL.replace("torch.relu(x)", "undefined(x)") + INPUTS, "NameError"),
        (MODEL.replace("* 2.0", "* __import__('os').urandom(1)[0]") + INPUTS, "same inputs"),
        (MODEL.replace("* 2.0", "@ torch.empty(37, 1 << 50)") + INPUTS, "memory"),
        (MODEL.replace("return torch.relu(x) * 2.0", "x.mul_(2.0)") + INPUTS, "neither a tensor nor a number"),
        (MODEL.replace("torch.relu(x) * 2.0", "{'y': [x, x.numpy()]}") + INPUTS, "ndarray"),
    ],
    ids=[
        "no_inputs",
        "no_model",
        "inputs_raise",
        "forward_raises",
        "not_repeatable",
        "out_of_memory",
        "returns_nothing",
        "not_comparable",
    ],
)
def test_a_problem_that_does_not_work_is_not_the_candidates_fault(tmp_path: Path, source: str, words: str) -> None:
    keep_workers()
    broken = Problem("broken", source, tmp_path / "broken.py")
    judgement = judge(broken, HONEST, QUICK, cpu())
    assert judgement.verdict is Verdict.BAD_REFERENCE, judgement.detail
    assert words in judgement.detail


def test_a_build_that_was_killed_does_not_block_the_next_of_the_same_name() -> None:
    hanging = verdict_on(candidate(HERE, "f02_compiler_hangs"), "rectify", IMPATIENT)
    assert hanging.verdict is Verdict.COMPILE_TIMEOUT
    controls = HERE.parent / "controls"
    assert 'load_inline("rectify"' in candidate(controls, "p01_honest_kernel").text
    assert verdict_on(candidate(controls, "p01_honest_kernel"), "rectify").verdict is Verdict.CORRECT


def test_one_crash_does_not_touch_the_next_candidate() -> None:
    for name in ("f09_segfault", "f10_exit_in_forward"):
        verdict_on(candidate(HERE, name), "rectify")
        assert verdict_on(HONEST, "rectify").verdict is Verdict.CORRECT


def test_a_killed_judge_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """The judge dies while the candidate loops; keepers and zygote take everything down."""
    script = (
        "from tests.cheats.court import *\nfrom pathlib import Path\n"
        "judge(problem('rectify'), candidate(Path('tests/faults'), 'f06_endless_loop'), QUICK, cpu())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("kernelwright-judge-*/case-*/kept")) and time.monotonic() < deadline:
        if list(tmp_path.glob("kernelwright-judge-*/case-*/candidate/source/candidate.py")):
            break
        time.sleep(0.1)
    time.sleep(2.0)  # the worker is in its loop now
    family = _descendants(process.pid)
    assert len(family) >= 3, "zygote, keeper and worker are running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    while (_alive(family) or list(tmp_path.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(family)
    assert not list(tmp_path.glob("kernelwright-judge-*"))


@pytest.mark.parametrize("level", ["landlock", "limits"])
def test_the_judge_works_at_weaker_levels_of_isolation(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a container allows no namespaces: builds, verdicts and crashes are the same, and the level is said."""
    monkeypatch.setattr("kernelwright.judge.process._levels", {False: level})
    with Zygote() as zygote:
        if not zygote.starts(level, gpu=False):
            pytest.skip(f"{level} is not possible on this machine")
    controls, cheats = HERE.parent / "controls", HERE.parent / "cheats"
    honest = verdict_on(candidate(controls, "p01_honest_kernel"), "rectify")
    assert (honest.verdict, honest.isolation) == (Verdict.CORRECT, level), honest.detail
    assert verdict_on(candidate(HERE, "f09_segfault"), "rectify").verdict is Verdict.CRASH
    assert verdict_on(candidate(cheats, "x10_pointer_cache"), "linear").verdict is Verdict.INCORRECT
    assert (
        verdict_on(candidate(HERE, "f12_memory_bomb"), "rectify", replace(QUICK, memory_bytes=2 << 30)).verdict is V.OOM
    )


def test_an_answer_in_prose_is_judged_by_its_last_whole_block() -> None:
    answer = (
        f"First try:\n```python\n{HONEST.text.replace('2.0', '3.0')}```\nBetter:\n```python\n{HONEST.text}```\nDone."
    )
    taken = extract(answer, ".md")
    assert "block 2 of 2" in taken.origin
    assert verdict_on(taken, "rectify").verdict is Verdict.CORRECT


def _descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_descendants(child)]
    return found


def _alive(pids: list[int]) -> list[int]:
    def state(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    return [pid for pid in pids if state(pid) not in "ZX"]
