"""The speed that floors are told by: this machine's own, where typical figures chose the kernels."""

from __future__ import annotations

import time

from kernelwright.device import resolve
from kernelwright.tune.ceiling import at_measured_speed

CPU = resolve("cpu")
ENOUGH = 8_000_000


def test_a_cpu_is_told_by_what_it_copies_and_asked_once() -> None:
    measured = at_measured_speed(CPU, ENOUGH)
    assert measured.basis == "measured"
    assert measured.copy_gbps > 0
    assert measured.peaks == CPU.peaks
    begin = time.perf_counter()
    assert at_measured_speed(CPU, ENOUGH) == measured
    assert time.perf_counter() - begin < ENOUGH / measured.copy_gbps / 1e9 * 5 + 1e-3


def test_what_is_measured_not_here_or_too_small_to_measure_stays_as_it_is() -> None:
    h200 = resolve("h200")
    assert at_measured_speed(h200, ENOUGH) is h200
    assert at_measured_speed(CPU, 1000) is CPU
