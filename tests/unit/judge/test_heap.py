"""The heap of a worker: what calls allocate has been touched before."""

import subprocess
import sys

PROGRAM = """
import resource, torch
from kernelwright.judge.heap import make_room, set_up_malloc
set_up_malloc(0)
size = 40 << 20
torch.empty(size // 4).fill_(1.0)
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def kept(): return [torch.empty(size // 4).fill_(float(i)) for i in range(3)]
for _ in range(3):
    {room}
    before = faults()
    tensors = kept()
    print(faults() - before)
    assert [t[-1].item() for t in tensors] == [0.0, 1.0, 2.0]
    tensors.clear()
"""


def faults(room: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(room=room)], capture_output=True, text=True, timeout=120, check=True
    )
    return [int(line) for line in done.stdout.split()]


def test_outputs_that_are_held_together_cause_no_page_faults() -> None:
    pages = 3 * (40 << 20) // 4096
    assert max(faults("make_room(5 * size)")) < pages / 20


def test_outputs_that_are_too_large_are_left_to_the_system() -> None:
    assert len(faults("make_room(1 << 40)")) == 3
