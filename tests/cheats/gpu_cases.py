"""The cases that need a GPU, as a table: candidate, problem, and what the judge may say.

Run by the tests marked gpu, and by benchmarks/judge_gpu_cases.py.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.judge import Candidate, Judgement, Label, Policy, Speed, Verdict, extract
from kernelwright.load import Problem, load

HERE = Path(__file__).parent / "gpu"

QUICK = Policy(
    budget_s=15,
    timing=False,
    mutants=False,
    robustness=False,
    sanitize=False,
    build_limit_s=120,
    call_limit_s=8,
    families=("own", "zero_mean", "scaled_1e-2", "last_spike"),
)
SANITIZED = replace(QUICK, sanitize=True)
TIMED = replace(QUICK, timing=True, restarts=2, baselines=("eager",), budget_s=12)
LONGER = replace(TIMED, budget_s=30)
SHORT = replace(QUICK, build_limit_s=20, call_limit_s=4)
FULL = Policy(budget_s=40, baselines=("eager", "compile", "graph"))


@dataclass(frozen=True)
class GpuCase:
    """`candidate` is a file, or "itself": the problem's own model."""

    name: str
    candidate: str
    problem: str
    verdicts: tuple[Verdict, ...]
    policy: Policy = QUICK
    speeds: tuple[Speed | None, ...] = ()
    labels: tuple[Label, ...] = ()
    speedup: tuple[float, float] | None = None
    alone: bool = False  # nobody else can work beside it
    card_bytes: int = 0  # as if the GPU had no more memory

    def text(self) -> Candidate:
        if self.candidate == "itself":
            source = (HERE / "problems" / f"{self.problem}.py").read_text()
            return Candidate(source.replace("class Model(", "class ModelNew("), "itself")
        return extract((HERE / "candidates" / f"{self.candidate}.py").read_text(), ".py")

    def task(self) -> Problem:
        return load(HERE / "problems" / f"{self.problem}.py")

    def complaints(self, judgement: Judgement) -> list[str]:
        """What is not as it should be; empty if the judge is right."""
        found = []
        if judgement.verdict not in self.verdicts:
            found.append(f"{judgement.verdict} is not among {[str(v) for v in self.verdicts]}: {judgement.detail}")
        if self.speeds and judgement.speed not in self.speeds:
            found.append(f"speed {judgement.speed}: {judgement.speedup}")
        if missing := set(self.labels) - set(judgement.labels):
            found.append(f"labels {sorted(missing)} are missing")
        if self.speedup and "eager" in judgement.speedup:
            low, high = self.speedup
            if not low <= judgement.speedup["eager"].median <= high:
                found.append(f"speed-up {judgement.speedup['eager']}")
        return found


V, S, L = Verdict, Speed, Label
TWICE = (0.475, 0.525)
UNEARNED = (S.SAME, S.SLOWER, S.INCONCLUSIVE, None)
GPU_CASES = (
    GpuCase("P1 honest kernel", "p01_honest_kernel", "rectify", (V.CORRECT,), SANITIZED),
    GpuCase("P2 twice the work", "p02_twice_at_full_size", "linear_full", (V.CORRECT,), TIMED, (S.SLOWER,), (), TWICE),
    # Bound by launches, of which eager makes some while its kernels run: between a half and one.
    GpuCase("P2 twice the work, tiny", "p02_twice_the_work", "linear", (V.CORRECT,), LONGER, (S.SLOWER,)),
    GpuCase("P3 float16 pairs", "p03_split_halves", "matmul", (V.CORRECT,)),
    GpuCase("P5 joined stream", "p05_joined_stream", "linear", (V.CORRECT,)),
    GpuCase("P6 graph by address", "p06_graphed", "linear", (V.CORRECT,)),
    GpuCase("P10 itself", "itself", "linear_full", (V.CORRECT,), TIMED, (S.SAME,), (), (0.95, 1.05)),
    # Launching takes longer than the kernels, and in one process than in another: nobody is faster by that.
    GpuCase("P10 itself, tiny", "itself", "linear", (V.CORRECT,), LONGER, (S.SAME, S.INCONCLUSIVE)),
    GpuCase("P11 wide softmax", "itself", "softmax_large", (V.CORRECT,)),
    GpuCase("outputs of more than a gigabyte", "itself", "mish_twice", (V.CORRECT,)),
    GpuCase("convolution and batch norm", "itself", "conv", (V.CORRECT,)),
    GpuCase("probabilities, which the GPU asserts", "itself", "probabilities", (V.CORRECT,)),
    GpuCase("F1 compile error", "f01_compile_error", "rectify", (V.COMPILE_ERROR,)),
    GpuCase("F7 spinning kernel", "f07_spinning_kernel", "rectify", (V.TIMEOUT,), SHORT, alone=True),
    GpuCase("after F7", "itself", "rectify", (V.CORRECT,)),
    GpuCase("F8 illegal address", "f08_illegal_address", "rectify", (V.GPU_FAULT,)),
    GpuCase("after F8", "itself", "rectify", (V.CORRECT,)),
    GpuCase("F11 out of memory", "f11_out_of_memory", "rectify", (V.OOM,)),
    GpuCase("F16 bad launch", "f16_bad_launch", "rectify", (V.INCORRECT,)),
    GpuCase("X1 side stream", "x01_side_stream", "linear", (V.CORRECT, V.INCORRECT, V.TAMPERING), TIMED, UNEARNED),
    GpuCase("X10 pointer cache", "x10_pointer_cache", "linear", (V.INCORRECT,)),
    GpuCase("X26 stale memory", "x26_stale_memory", "rectify", (V.INCORRECT,)),
    GpuCase("X27 TF32", "x27_tf32", "matmul", (V.REDUCED_PRECISION,), QUICK, (), (L.FLAGS_CHANGED,)),
    GpuCase("X28 zeros for softmax", "x28_zeros", "softmax_large", (V.INCORRECT,)),
    GpuCase("X32 reads outside", "x32_reads_outside", "rectify", (V.MEMORY_VIOLATION,), SANITIZED),
    GpuCase("X32 writes outside", "x32_writes_far_outside", "rectify", (V.MEMORY_VIOLATION,), SANITIZED),
    GpuCase("X33 race", "x33_race", "rectify", (V.INCORRECT, V.NONDETERMINISTIC, V.MEMORY_VIOLATION), SANITIZED),
    GpuCase("X37 persisting L2", "x37_persisting_l2", "rectify", (V.CORRECT,), TIMED),
    GpuCase("X47 lingering kernel", "x47_lingering_kernel", "linear", (V.CORRECT, V.TAMPERING), TIMED, UNEARNED),
    GpuCase("X49 batches calls", "x49_batches_unless_one_by_one", "tiny", (V.CORRECT,), TIMED, UNEARNED),
)
LARGE_CASES = (
    GpuCase("linear at full size", "itself", "linear_full", (V.CORRECT,), FULL, (S.SAME,)),
    GpuCase("relu of 6.4 GB", "itself", "relu_large", (V.CORRECT,), replace(TIMED, budget_s=30), (S.SAME,)),
    # Inputs and outputs are 12.9 GB together.
    GpuCase("relu of 6.4 GB on a card of 24", "itself", "relu_large", (V.CORRECT,), card_bytes=24_000_000_000),
)
