"""What a call must move comes in; the time below which no device can do it goes out."""

import random

import torch

from kernelwright.device import Device
from kernelwright.judge.case import Case
from kernelwright.judge.codec import flatten_arguments, flatten_output, unflatten
from kernelwright.judge.large import sliced
from kernelwright.judge.reference import Refused

__all__ = ["floor_us", "needed_bytes"]

PROBES = 8


def floor_us(bytes_moved: int, device: Device) -> float:
    """Zero where the bytes fit in a cache: there the memory's speed is no bound."""
    cache = max(device.l3_bytes, device.l2_bytes * (device.multiprocessors if device.kind == "cpu" else 1))
    if bytes_moved < 4 * cache:
        return 0.0
    rate = device.copy_gbps * (1.0 if device.basis == "measured" else 2.0)  # what was not measured may be too low
    return bytes_moved / rate / 1e3


def needed_bytes(case: Case) -> int:
    """Every output is written; of an input as much is read as matters: elements are changed and the output watched."""
    total = case.output_bytes
    if case.large and case.rows is None:
        return total
    args = case.arguments()
    whole = [tensor.numel() * tensor.itemsize for tensor in flatten_arguments(args)[1]]
    if case.rows is not None:  # what is cut is changed in a few rows, and counts with all of them
        args = sliced(args, case.rows, slice(0, min(case.rows.batch, 4)))
    template, tensors = flatten_arguments(args)
    before = _output(case, args)
    rng = random.Random(0)
    for position, tensor in enumerate(tensors):
        little = not whole[position] or whole[position] < case.output_bytes / 16
        if not tensor.is_floating_point() or tensor.itemsize == 1 or little:
            continue
        felt = 0
        for _ in range(PROBES):
            changed = tensor.clone(memory_format=torch.contiguous_format)
            at = rng.randrange(tensor.numel())
            changed.view(-1)[at] = changed.view(-1)[at].abs() * 1e3 + 1e3
            other = unflatten(template, [changed if i == position else t for i, t in enumerate(tensors)])
            felt += _feels(case, other, before)
        total += int(felt / PROBES * whole[position])
    return total


def _feels(case: Case, args: tuple[object, ...], before: list[torch.Tensor]) -> bool:
    """Whether the answer is another; a reference that raises at what was changed has read it."""
    try:
        return any(not torch.equal(a, b) for a, b in zip(before, _output(case, args), strict=True))
    except Refused:
        return True


def _output(case: Case, args: tuple[object, ...]) -> list[torch.Tensor]:
    _, leaves = flatten_output(case.reference.attempt(case.oracle.model, args))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
