"""Shapes of the arguments and weights come in; memory that the judge and its workers share, with guard bands, goes out.

Each tensor lies between bands of a known byte. A band that changed is a write outside; outputs that differ between two
bytes are a read outside. On a CPU the memory is an anonymous file that every process maps; on a GPU it is one plain
allocation, opened elsewhere by its IPC handle (channel_cuda.py).
"""

import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernelwright.errors import InternalError

__all__ = ["FILLS", "GUARD_BYTES", "Placement", "Planner", "Pool", "as_it_lies", "make_pool", "sealed_memory"]

GUARD_BYTES = 16 << 10
ALIGNMENT = 512  # what torch's CUDA allocator gives; a candidate may count on it
# As float32, float64, float16 and bfloat16 the first is NaN, the second a large finite number.
FILLS = (0xFF, 0x7B)
# A tensor with gaps between its elements keeps them if it does not take more than so many times its bytes.
MOST_ROOM = 2
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 1, 2, 4  # fcntl(2)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor lies in a pool; strides in elements, offset and span in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    span: int

    def as_json(self) -> list[Any]:
        return [self.dtype, list(self.shape), list(self.strides), self.offset, self.span]


class Planner:
    """Lays tensors out one behind the other, a guard band between any two."""

    def __init__(self) -> None:
        self.size = GUARD_BYTES
        self.placed: list[Placement] = []

    def place(self, like: torch.Tensor, *, strides: tuple[int, ...] | None = None) -> Placement:
        """A place for a tensor of that dtype and shape, dense unless strides are given."""
        strides = tuple(torch.empty(like.shape, device="meta").stride()) if strides is None else strides
        reach = sum((size - 1) * stride for size, stride in zip(like.shape, strides, strict=True))
        span = (reach + 1) * like.itemsize if like.numel() else 0
        offset = -(-self.size // ALIGNMENT) * ALIGNMENT
        self.size = offset + span + GUARD_BYTES
        name = str(like.dtype).removeprefix("torch.")
        placement = Placement(name, tuple(like.shape), strides, offset, span)
        self.placed.append(placement)
        return placement

    def bands(self) -> list[tuple[int, int]]:
        """Offset and length of everything that is no tensor's."""
        ends = [0, *(p.offset + p.span for p in self.placed)]
        starts = [*(p.offset for p in self.placed), self.size]
        return [(end, start - end) for end, start in zip(ends, starts, strict=True)]


def as_it_lies(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Its own strides: channels-last, say. None where elements share a place, so that nobody can write them one by
    one, or lie far apart."""
    last = 0  # the place of the last element of the axes so far
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= last:
            return None
        last += (size - 1) * stride
    return tensor.stride() if tensor.numel() and last < MOST_ROOM * tensor.numel() else None


class Memory(Protocol):
    """The bytes of a pool, on whichever device."""

    fd: int
    handle: str | None
    bytes: torch.Tensor

    def close(self) -> None: ...


class Pool:
    """Shared memory with tensors in it."""

    def __init__(self, memory: Memory, planner: Planner) -> None:
        self.memory = memory
        self.size = planner.size
        self._bands = planner.bands()
        self._fill = FILLS[0]
        self.fill_bands(FILLS[0])

    @property
    def fd(self) -> int:
        return self.memory.fd

    @property
    def address(self) -> dict[str, Any]:
        """How a worker finds the memory."""
        return {"pool": self.memory.handle, "pool_bytes": self.size}

    def view(self, place: Placement) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, place.dtype)
        flat = self.memory.bytes[place.offset : place.offset + place.span].view(dtype)
        return flat.as_strided(place.shape, place.strides)

    def fill_bands(self, byte: int) -> None:
        self._fill = byte
        for offset, length in self._bands:
            self.memory.bytes[offset : offset + length].fill_(byte)

    def damaged_bands(self) -> int:
        """How many bands no longer hold what they were filled with."""
        return sum(
            not bool((self.memory.bytes[offset : offset + length] == self._fill).all())
            for offset, length in self._bands
        )

    def close(self) -> None:
        self.memory.close()


class HostMemory:
    """An anonymous file: it has no name that anyone could open, and goes with its last user."""

    def __init__(self, size: int) -> None:
        self.handle: str | None = None
        self.fd = sealed_memory("pool", size)
        self._map = mmap.mmap(self.fd, size)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        # The mapping goes when the last tensor over it does; Python refuses to close it before.
        self.bytes = torch.empty(0, dtype=torch.uint8)
        os.close(self.fd)


def sealed_memory(name: str, size: int) -> int:
    """An anonymous file whose size nobody can change: a worker that cut it off would crash the judge, which maps it."""
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
    return file


def make_pool(planner: Planner, device: torch.device) -> Pool:
    if device.type == "cpu":
        return Pool(HostMemory(planner.size), planner)
    if device.type == "cuda":
        from kernelwright.judge import channel_cuda

        return Pool(channel_cuda.DeviceMemory(planner.size, device), planner)
    raise InternalError(f"no memory can be shared on {device}.", where="judge")
