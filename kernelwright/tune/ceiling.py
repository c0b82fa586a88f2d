"""A device and a number of bytes come in; the device with the speed at which it copies that many goes out.

For what is said of a kernel, not for choosing it: kernels are chosen by typical figures of a CPU, so that a model gives
the same ones from run to run, and a share of a typical figure may be more than all of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kernelwright.device import Device
from kernelwright.tune.measure import TYPICAL, WARM_UPS, clock_of

__all__ = ["at_measured_speed"]

ROUNDS = 9
# A copy of fewer bytes takes as long as calling it; one of more is as fast as this one, which no cache holds.
FEWEST_BYTES, MOST_BYTES = 2_000_000, 1 << 29


def at_measured_speed(device: Device, nbytes: int) -> Device:
    """The device as it is where its own figures were measured, or where it is not here to be measured."""
    if device.kind != "cpu" or not device.present or nbytes < FEWEST_BYTES:
        return device
    return replace(device, copy_gbps=cpu_copy_gbps(device, min(nbytes, MOST_BYTES)), basis="measured")


@lru_cache
def cpu_copy_gbps(device: Device, nbytes: int) -> float:
    """As kernels are timed: what was moved a moment ago may still be in a cache, for the copy as for the kernel."""
    import torch

    # Half of the bytes are read, half are written. A problem's file may have changed torch's default dtype.
    source = torch.ones(nbytes // 8, dtype=torch.float32)
    target = torch.empty_like(source)

    def run() -> None:
        target.copy_(source)

    clock = clock_of(device)
    for _ in range(WARM_UPS):
        run()
    return nbytes / TYPICAL[device.kind]([clock(run) for _ in range(ROUNDS)]) / 1e3
