"""What one call of a problem takes comes in; what judging it takes, with everything or at the least, goes out.

What the judge and its workers hold at the same time, in terms of one call's inputs I, outputs O, weights and buffers W,
and B, what a forward holds between its steps (all in the problem's own precision; float64 is twice that):

    pool          I a slot, and once more with gaps; 2 W; shared by all
    a worker      O + B + 3 W, and a CUDA context: its model, weights ready to be taken, packed ones
    the model     8 W: as it is and in float64, own and random weights, those that are moved a little
    one trial     I + 2 O: the arguments, and the candidate's outputs of two calls
    the oracle    2 I + 2 (O + B) + 4 O: moved inputs and a run in float64; eager's, exact and spread
    a kept trial  I + 4 O: known-bad answers, and the arithmetic of a wrong one, are tried on some
"""

from dataclasses import dataclass

import torch

from kernelwright.judge.process import available_bytes

__all__ = [
    "Footprint",
    "Room",
    "batch_bytes",
    "fair_bytes",
    "free_bytes",
    "full_bytes",
    "give_back",
    "least_bytes",
    "most_kept",
    "peak_of",
    "rows_bytes",
    "tuning_bytes",
]

CONTEXT_BYTES = 600 << 20  # of one process, with the code of the kernels it uses; 518 to 538 MiB were seen on an H200
SCRATCH_BYTES = 2 << 30  # parts of a tensor in float64 while they are compared, workspaces of cuBLAS and cuDNN
KEPT_TRIALS = 4
CONTESTANTS = 5  # candidate, eager twice, two more baselines
SLOW_STARTERS = 1
LEAST_SLOTS = 4  # of a pool to time in: two batches and two single calls


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one call: see above."""

    inputs: int
    outputs: int
    state: int
    between: int


def full_bytes(f: Footprint) -> int:
    """With which everything is done: trials in groups, known-bad answers, batches of calls side by side.

    A baseline that compiles starts beside the examination, with the pool in which it will be timed: an eighth.
    """
    examining = _examining(f, KEPT_TRIALS, spare=True) + SLOW_STARTERS * _worker(f)
    return max(examining * 8 // 7, _timing(f, LEAST_SLOTS))


def least_bytes(f: Footprint) -> int:
    """With which a problem is judged whose rows depend on each other: nothing is held that need not be."""
    return _examining(f, 1, spare=False)


def rows_bytes(f: Footprint) -> int:
    """With which a problem is judged some rows at a time: inputs in the pool, drawn, and changed; one contestant's
    outputs at a time, and another's that it is about to give back."""
    return _own(f) + 3 * f.inputs + 2 * _worker(f) + (CONTESTANTS - 2) * (CONTEXT_BYTES + 3 * f.state)


def tuning_bytes(f: Footprint) -> int:
    """With which its kernels are measured: what they read and write, more than once, so that no cache has it."""
    return CONTEXT_BYTES + SCRATCH_BYTES + 3 * (f.inputs + f.outputs + f.between + 2 * f.state)


def most_kept(f: Footprint, room_bytes: int) -> int:
    """Trials that are kept with all their numbers, where there is room for more than the few that are counted on."""
    return max(KEPT_TRIALS, room_bytes // 8 // max(1, f.inputs + 4 * f.outputs))


def batch_bytes(f: Footprint, left: int) -> int:
    """What inputs and outputs of one contestant's calls may take in a round: each of the others has its own."""
    return max(0, left - CONTESTANTS * _worker(f)) // 8


def fair_bytes(f: Footprint) -> int:
    """What a candidate may count on: what the reference itself takes, and as much again to work with."""
    return _worker(f) + max(f.outputs + f.between, f.state)


def _worker(f: Footprint) -> int:
    return CONTEXT_BYTES + f.outputs + f.between + 3 * f.state


def _own(f: Footprint) -> int:
    return CONTEXT_BYTES + SCRATCH_BYTES + 10 * f.state


def _examining(f: Footprint, kept: int, *, spare: bool) -> int:
    pool = (2 if spare else 1) * f.inputs
    trial = f.inputs + (2 if spare else 0) * f.outputs
    oracle = 2 * f.inputs + 2 * (f.outputs + f.between) + 4 * f.outputs
    return _own(f) + pool + _worker(f) + trial + oracle + kept * (f.inputs + 4 * f.outputs)


def _timing(f: Footprint, slots: int) -> int:
    """All inputs twice, as they were drawn and in the pool; each contestant's outputs, and what the judge reads."""
    workers = CONTESTANTS * _worker(f)
    return _own(f) + workers + slots * (2 * f.inputs + (CONTESTANTS + 1) * f.outputs)


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes on a device that a judgement and its workers may take together; `share` 0 for whatever is free."""

    device: torch.device
    share: int = 0

    def left(self) -> int:
        """What is free now. On a GPU others may be judging beside us, each within its own share."""
        return self._within(free_bytes(self.device))

    def whole(self) -> int:
        """What there is for this judgement in all: what is free, and what this process has already."""
        ours = torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0
        return self._within(free_bytes(self.device) + ours)

    def _within(self, count: int) -> int:
        return min(count, self.share) if self.share and self.device.type == "cuda" else count


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return available_bytes()


def give_back(device: torch.device) -> None:
    """Memory that torch keeps for this process's next tensors, and a worker or a neighbour may need now."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def peak_of(device: torch.device) -> int:
    """The most that this process's tensors took together, since it was asked the last time; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    peak = int(torch.cuda.max_memory_allocated(device))
    torch.cuda.reset_peak_memory_stats(device)
    return peak
