"""A contestant that takes long to start comes in; the same one, started beside other work, or why not, goes out.

The judge's main thread goes on meanwhile. What runs here only talks to that one worker: nothing is drawn at random, and
no process is forked.
"""

import os
import signal
import threading
from collections.abc import Callable

import torch

from kernelwright.judge.contestant import Contestant
from kernelwright.judge.verdict import Failed

__all__ = ["Beginning"]


class Beginning:
    """A start under way in a thread of its own."""

    def __init__(self, contestant: Contestant, start: Callable[[], None], device: torch.device) -> None:
        self.contestant = contestant
        self._start = start
        self._device = device
        self._why = ""
        self.shortage = False
        self._thread = threading.Thread(target=self._run, name=f"starts {contestant.name}", daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> str:
        """ "" once it is ready; else, after so long, why not. One that is not ready is ended."""
        self._thread.join(max(0.0, limit_s))
        if self._thread.is_alive():
            self.end()
            return "it was not ready in time"
        return self._why

    def join(self, limit_s: float) -> None:
        """Wait for it, and no longer; whether it is ready is asked later."""
        self._thread.join(limit_s)

    def end(self) -> None:
        """Take the worker down, whatever it is doing. Safe to call twice."""
        for pid in self.contestant.worker.tree() if self._thread.is_alive() else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._thread.join()
        self.contestant.close()

    def _run(self) -> None:
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            self._start()
        except Failed as failed:
            self._why, self.shortage = failed.detail, failed.shortage
