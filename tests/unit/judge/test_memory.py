"""Memory: what is a shortage and whose, what judging takes, what is kept; the GPU is a fake."""

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.device import resolve
from kernelwright.judge import case as cases
from kernelwright.judge import procedure
from kernelwright.judge.codec import flatten_arguments
from kernelwright.judge.correctness import Findings, Trial, Tried, _lighten_all_but, lightened
from kernelwright.judge.criterion import Score, yardstick
from kernelwright.judge.families import FAMILIES
from kernelwright.judge.memory import (
    Footprint,
    Room,
    batch_bytes,
    fair_bytes,
    full_bytes,
    least_bytes,
    most_kept,
    rows_bytes,
)
from kernelwright.judge.mutants import kill_rate
from kernelwright.judge.policy import Policy
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.shortage import is_shortage, shortage_words
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.judge.wire import Op, Status
from kernelwright.judge.worker import classify
from kernelwright.load import Problem

GB = 1 << 30
H200, SMALL_CARD = int(139.8 * GB), 24 * GB
CUDA = torch.device("cuda", 0)
TORCH_WORDS = (
    "CUDA error: {}\nCUDA kernel errors might be asynchronously reported at some other API call.\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU of which some is free, and some is ours."""
    fake = SimpleNamespace(free=100 * GB, total=H200, ours=0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (fake.free, fake.total))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: fake.ours)
    return fake


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB."),
        torch.AcceleratorError(TORCH_WORDS.format("out of memory")),
        RuntimeError("cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["torch", "context", "driver", "cublas", "host", "python"],
)
def test_a_shortage_is_one_in_whoevers_words(error: Exception) -> None:
    assert is_shortage(error)
    assert classify(error, Op.LOAD) in (Status.OUT_OF_GPU_MEMORY, Status.OUT_OF_MEMORY)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("an illegal memory access was encountered", Status.GPU_FAULT),
        ("device-side assert triggered", Status.GPU_FAULT),
        ("invalid configuration argument", Status.RUNTIME_ERROR),
    ],
)
def test_other_errors_of_cuda_are_no_shortage(words: str, status: Status) -> None:
    error = torch.AcceleratorError(TORCH_WORDS.format(words))
    assert not is_shortage(error)
    assert classify(error, Op.CALL) is status


def test_a_shortage_is_told_with_what_was_needed_what_is_free_and_the_cure(gpu: SimpleNamespace) -> None:
    gpu.free = int(7.6 * GB)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB. GPU 0 has a total capacity of ...")
    said = shortage_words("the float64 oracle", error, CUDA)
    assert said == (
        "the float64 oracle needs 14.00 GiB more GPU memory; 7.6 GiB of 139.8 GiB are free. "
        "Judge it with the GPU to itself, or on a larger one."
    )


def test_running_out_of_memory_is_a_shortage_and_a_crash_is_not() -> None:
    assert Failed(Verdict.OOM, "").shortage
    assert Failed(Verdict.JUDGE_ERROR, "", shortage=True).shortage
    assert not Failed(Verdict.CRASH, "").shortage


@pytest.mark.parametrize(("free_gb", "verdict"), [(100, Verdict.OOM), (3, Verdict.JUDGE_ERROR)])
def test_a_candidate_is_blamed_if_it_had_its_due(gpu: SimpleNamespace, free_gb: int, verdict: Verdict) -> None:
    gpu.free = free_gb * GB
    case: Any = SimpleNamespace(gpu=True, torch_device=CUDA, footprint=Footprint(2 * GB, 2 * GB, 0, 0))
    failed = procedure._cleared_of_shortage(Failed(Verdict.OOM, "CUDA out of memory"), case)
    assert failed.verdict is verdict
    assert failed.shortage


def test_a_share_bounds_what_is_free(gpu: SimpleNamespace) -> None:
    gpu.ours = 20 * GB
    assert Room(CUDA).left() == 100 * GB
    assert Room(CUDA).whole() == 120 * GB
    assert Room(CUDA, share=30 * GB).left() == Room(CUDA, share=30 * GB).whole() == 30 * GB
    assert Room(CUDA, share=110 * GB).left() == 100 * GB  # a neighbour took more than its own


RELU = Footprint(inputs=4096 * 393216 * 4, outputs=4096 * 393216 * 4, state=0, between=0)


def test_a_large_pointwise_problem_fits_on_an_h200_twice() -> None:
    assert full_bytes(RELU) > H200  # so its rows are judged
    assert 2 * rows_bytes(RELU) < H200
    assert least_bytes(RELU) < H200  # even if they could not be


def test_twelve_gigabytes_are_judged_by_rows_on_a_card_of_24() -> None:
    """The pool, inputs as they are drawn and changed; then the pool and one output. Never both, never two outputs."""
    problem = Footprint(6 * 10**9, 6 * 10**9, 0, 0)
    contexts = 5 * (600 << 20)
    rows_at_once = 30 * (64 << 20)
    assert 3 * problem.inputs + contexts + rows_at_once < SMALL_CARD
    assert problem.inputs + problem.outputs + contexts + rows_at_once < SMALL_CARD


@pytest.mark.parametrize(("share_gb", "large"), [(0, False), (60, False), (20, True)])
def test_a_problem_is_large_beside_its_share(gpu: SimpleNamespace, share_gb: int, large: bool) -> None:
    footprint = Footprint(GB, GB, 0, 0)
    assert cases._is_large(footprint, Room(CUDA, share_gb * GB)) is large


def test_batches_leave_room_for_every_contestant() -> None:
    hungry = Footprint(inputs=GB, outputs=GB, state=0, between=10 * GB)
    assert batch_bytes(hungry, 100 * GB) < 100 * GB // 16
    assert batch_bytes(hungry, 10 * GB) == 0
    assert fair_bytes(hungry) > 2 * (hungry.outputs + hungry.between)


def tried(seed: int, *, right: bool = True) -> Tried:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    yard = yardstick(exact.float(), exact, torch.full((100,), 1e-9), None, pooled_rms=0.0, allowance_rms=0.0)
    score = Score(0.0, 0.0 if right else 1e9, 0.0, 0.0, (0,), 0.0, 0.0, False)
    return Tried(Trial(FAMILIES[0], seed, True), {}, 0, (exact,), [yard], [score], () if right else (exact,))


def test_of_many_trials_the_first_stay_whole_and_some_that_failed() -> None:
    findings = Findings(tried=[tried(i, right=i != 5) for i in range(8)])
    _lighten_all_but(2, findings)
    assert [bool(t.arguments) for t in findings.tried] == [i in (0, 1, 5) for i in range(8)]
    assert all(t.scores for t in findings.tried)


def test_a_trial_that_was_lightened_still_says_how_far_outputs_may_be_off() -> None:
    light = lightened(tried(0)).yards[0]
    assert (light.exact.numel(), light.eager.numel()) == (0, 0)
    assert light.spread is not None
    assert float(light.spread.max()) == pytest.approx(1e-9)
    assert light.shape == (100,)


def test_more_trials_are_kept_where_there_is_room() -> None:
    assert most_kept(RELU, H200) == 4
    assert most_kept(Footprint(1 << 20, 1 << 20, 0, 0), H200) > 100


def test_a_known_bad_answer_that_there_is_no_memory_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    oracle: Any = None
    monkeypatch.setattr(
        "kernelwright.judge.mutants.MUTANTS", {"hungry": hungry, "zeros": lambda t, *_: [t.yards[0].eager * 0]}
    )
    killed = kill_rate([tried(0)], oracle, lambda: False)
    assert (killed.made, killed.survivors, killed.unmade) == (("zeros",), (), ("hungry",))
    monkeypatch.setattr("kernelwright.judge.mutants.MUTANTS", {"broken": broken})
    with pytest.raises(RuntimeError, match="a bug"):
        kill_rate([tried(0)], oracle, lambda: False)


def test_nothing_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    """Gigabytes would: a trial's inputs, and what the oracle made of them."""
    source = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return {'y': [torch.relu(x)]}\n"
        "def get_inputs():\n    return [torch.rand(300, 41)]\n"
    )
    problem = Problem("here", source, tmp_path / "here.py")
    case = cases.open_case(problem, Policy(), resolve("cpu"), Seeds.from_entropy())
    gc.collect()
    gc.disable()
    try:
        seen = [weakref.ref(t) for t in flatten_arguments(case.arguments())[1]]
        truth = case.oracle.truth(case.state, [case.arguments()], 1)
        seen += [weakref.ref(yard.exact) for row in truth.calls for yard in row]
        del truth
        assert [ref() for ref in seen] == [None] * len(seen)
    finally:
        gc.enable()
