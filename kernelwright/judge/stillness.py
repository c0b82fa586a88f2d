"""A small kernel of ours that can be timed comes in; whether anybody else's kernels run on the GPU goes out.

A process can be stopped between turns, its kernels cannot. One that is left running makes whoever comes next slow, and
the one who left it look fast. Kernels of two processes take turns on a GPU, so that ours then waits for its turn: a
millisecond instead of some microseconds. Every turn begins on a GPU that stands still.
"""

import time
from collections.abc import Callable
from statistics import median

import torch

__all__ = ["Stillness", "kernel_probe"]

TIMES_USUAL, AT_LEAST_S = 4.0, 100e-6  # a probe that takes longer than this waited for somebody
LIMIT_S = 0.5


class Stillness:
    """Waits until the GPU stands still, and remembers after whom it did not."""

    def __init__(
        self,
        probe: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._sleep = sleep
        self._longest_s = max(AT_LEAST_S, TIMES_USUAL * median(probe() for _ in range(16)))
        self.quiet: set[str] = set()
        self.noisy: set[str] = set()

    def wait_after(self, name: str) -> None:
        """After somebody's turn: at once if all is quiet, else for half a second at most."""
        end = self._clock() + LIMIT_S
        while min(self._probe() for _ in range(3)) > self._longest_s:
            if self._clock() > end:
                self.noisy.add(name)
                return
            self._sleep(0.001)
        self.quiet.add(name)

    def disturbed_by(self, name: str) -> bool:
        """Whether kernels ran on after this one's turns and after nobody else's: then they are its own."""
        return name in self.noisy and not self.noisy - {name} and bool(self.quiet - {name})


def kernel_probe(device: torch.device) -> Callable[[], float]:
    """Seconds that a tiny kernel takes, from here to here."""
    numbers = torch.zeros(32, device=device)

    def probe() -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        numbers.add_(1)
        torch.cuda.synchronize(device)
        return time.perf_counter() - start

    probe()
    return probe
