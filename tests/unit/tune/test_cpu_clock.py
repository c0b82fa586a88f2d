"""How the tuner times a kernel on a CPU."""

from __future__ import annotations

import time

import torch

from kernelwright.tune.measure import cpu_clock


def test_what_others_do_is_not_in_the_time_of_one_thread() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slept_us = cpu_clock()(lambda: time.sleep(0.05))
    finally:
        torch.set_num_threads(threads)
    assert slept_us < 25_000
