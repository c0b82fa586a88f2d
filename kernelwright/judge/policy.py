"""What the user asks of a judgement: how long, against what, and which precision is allowed."""

from dataclasses import dataclass
from typing import Literal

from kernelwright.errors import UsageError
from kernelwright.judge.families import FAMILIES
from kernelwright.judge.verdict import Label

__all__ = ["BASELINES", "COMPILED", "Policy", "Precision"]

Precision = Literal["reference", "ieee", "tf32", "bf16", "fp16"]
BASELINES = ("eager", "compile", "max-autotune", "graph")
COMPILED = ("compile", "max-autotune")  # of these, the ones that take tens of seconds to start


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults judge a small problem in less than a minute.

    budget_s    time for correctness and timing together; the candidate's own build has its own limit
    families    names of input families, see families.py; the problem's own inputs are always among them
    baselines   what it is timed against: eager, compile (torch.compile), max-autotune (torch.compile in that mode),
                graph (CUDA-graphed eager, on a GPU only)
    precision   reference: as accurate as the original under its own flags; ieee: float32 throughout;
                tf32, bf16, fp16: contractions may round their operands so
    timing      whether it is timed at all
    restarts    process restarts of each contestant
    restart_s   of measuring in each, if the budget has more
    extensions  restarts beyond these and beyond the budget, at most, where noise leaves too little to say of the speed
    memory_bytes  host memory of a worker and what it starts; 0 for four fifths of what is free
    gpu_bytes   memory of the GPU that the judge and its workers may take together; 0 for what is free
    disk_bytes  of its private folder, and of any one file
    forbid      labels that turn a pass into INCORRECT
    sanitize    compute-sanitizer on a GPU, where it is installed
    """

    budget_s: float = 40.0
    families: tuple[str, ...] = tuple(family.name for family in FAMILIES)
    baselines: tuple[str, ...] = ("eager", "compile")
    precision: Precision = "reference"
    timing: bool = True
    restarts: int = 3
    restart_s: float = 60.0
    extensions: int = 3
    build_limit_s: float = 300.0
    load_limit_s: float = 120.0
    call_limit_s: float = 60.0
    memory_bytes: int = 0
    gpu_bytes: int = 0
    disk_bytes: int = 4 << 30
    forbid: frozenset[Label] = frozenset({Label.MUTATES_INPUTS, Label.ALIASES_INPUT})
    mutants: bool = True
    robustness: bool = True
    sanitize: bool = True
    sanitize_limit_s: float = 20.0

    def __post_init__(self) -> None:
        known = {family.name for family in FAMILIES}
        for name in self.families:
            if name not in known:
                raise UsageError(
                    f"{name!r} is no family of inputs.", where="policy", cure=f"Use some of {sorted(known)}."
                )
        for name in self.baselines:
            if name not in BASELINES:
                raise UsageError(f"{name!r} is no baseline.", where="policy", cure=f"Use some of {BASELINES}.")
