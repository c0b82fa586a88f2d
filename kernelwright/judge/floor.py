"""What a call must move comes in; the time below which no device can do it goes out."""

from kernelwright.device import Device

__all__ = ["floor_us"]


def floor_us(needed_bytes: int, device: Device) -> float:
    """Zero where the bytes fit in a cache: there the memory's speed is no bound."""
    cache = device.l3_bytes or device.l2_bytes
    if needed_bytes < 4 * cache:
        return 0.0
    rate = device.copy_gbps * (1.0 if device.basis == "measured" else 2.0)  # a ceiling that was not measured may be low
    return needed_bytes / rate / 1e3
