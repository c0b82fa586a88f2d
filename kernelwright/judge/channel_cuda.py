"""Device memory comes in; the same memory, seen by another process, goes out: CUDA's driver calls, and nothing else.

Inputs lie in one plain cuMemAlloc allocation of the judge, which workers open by its IPC handle. Outputs lie where the
worker's torch put them; the worker exports the allocation around them, and the judge reads them there, from its own
context. Both need processes that share process ids (cell.py), and allocations that are not from a pool or expandable
segments: what cannot be exported is copied to one that can.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

__all__ = [
    "DeviceMemory",
    "Graphed",
    "borrowed",
    "exportable",
    "exported",
    "forget",
    "opened",
    "probe",
    "tensor_at",
    "touch",
]

HANDLE_BYTES = 64
COPY_BELOW_BYTES = 1 << 30
LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class DriverError(RuntimeError):
    """A CUDA driver call failed."""


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *args: Any) -> None:
    code = getattr(_driver(), name)(*args)
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'error').decode()} ({code})")


def _ready(device: torch.device | None = None) -> None:
    """torch's primary context, current on this thread."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.cuda.set_device(device if device is not None and device.index is not None else torch.cuda.current_device())
    torch.cuda.synchronize()


# --- the judge's memory


class DeviceMemory:
    """One allocation of our own; its IPC handle lets a worker in."""

    def __init__(self, size: int, device: torch.device) -> None:
        _ready(device)
        torch.cuda.empty_cache()
        pointer = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self._pointer = pointer.value
        self.handle: str | None = _export(self._pointer).hex()
        self.bytes = tensor_at(self._pointer, size, torch.uint8)
        self.fd = os.memfd_create("pool", os.MFD_CLOEXEC)  # nothing is in it: a worker expects a file all the same

    def close(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)
        torch.cuda.synchronize()
        _call("cuMemFree_v2", ctypes.c_uint64(self._pointer))
        os.close(self.fd)


# --- both sides


class _Array:
    """Device memory in the form that torch.as_tensor takes without copying."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


def tensor_at(pointer: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """A flat tensor over memory that somebody else owns."""
    device = torch.device("cuda", torch.cuda.current_device())
    if not size:
        return torch.empty(0, dtype=dtype, device=device)
    return torch.as_tensor(_Array(pointer, size), device=device).view(dtype)


def opened(handle: bytes) -> int:
    """The address at which this process sees another's allocation."""
    _ready()
    pointer = ctypes.c_uint64()
    packed = _Handle.from_buffer_copy(handle)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), packed, ctypes.c_uint(LAZY_PEER_ACCESS))
    return pointer.value


def _export(pointer: int) -> bytes:
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
    return bytes(handle)


def _allocation(pointer: int) -> int:
    """Where the allocation around an address begins."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    return base.value


# --- the worker's side: outputs

_known: dict[int, bytes] = {}


def exported(pointer: int) -> tuple[bytes, int]:
    """The handle of the allocation around an output, and how far into it the output begins."""
    base = _allocation(pointer)
    if base not in _known:
        _known[base] = _export(base)
    return _known[base], pointer - base


def exportable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy in memory that can be exported."""
    if not tensor.numel():
        return tensor
    try:
        exported(tensor.data_ptr())
    except DriverError:
        return tensor.clone(memory_format=torch.preserve_format)
    return tensor


# --- the judge's side: outputs

_borrowed: dict[int, dict[bytes, int]] = {}


def borrowed(owner: int, handle: bytes, offset: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """A worker's memory as a tensor here; a copy, unless it is so large that two would not fit."""
    known = _borrowed.setdefault(owner, {})
    if handle not in known:
        known[handle] = opened(handle)
    found = tensor_at(known[handle] + offset, size, dtype)
    return found.clone() if size < COPY_BELOW_BYTES else found


def touch(owner: int, handle: bytes, offset: int) -> None:
    """Read one byte of a worker's output, from our own context, and wait for it."""
    known = _borrowed.setdefault(owner, {})
    if handle not in known:
        known[handle] = opened(handle)
    tensor_at(known[handle] + offset, 1, torch.uint8).cpu()


def forget(owner: int) -> None:
    """Close what was opened of a worker's; before the worker goes, if it still can."""
    torch.cuda.synchronize()
    for pointer in _borrowed.pop(owner, {}).values():
        _driver().cuIpcCloseMemHandle(ctypes.c_uint64(pointer))  # fails if the worker died first


def probe() -> bool:
    """Whether the GPU still works, from this process: allocate, compute, compare."""
    try:
        x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
        total = float((x * 2).double().sum())
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return total == float(1 << 20) * ((1 << 20) - 1)


# --- the CUDA-graph baseline


class Graphed:
    """A model captured once for each set of argument addresses, then replayed: launches without Python between them.

    Outputs of one graph lie in one place and are overwritten by its next replay; the judge gives each call its own
    arguments, so each has its own graph and output.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._pool: Any = None

    def __call__(self, *args: Any) -> Any:
        key = tuple(arg.data_ptr() if isinstance(arg, torch.Tensor) else hash(arg) for arg in args)
        if key not in self._graphs:
            self._graphs[key] = self._captured(args)
        graph, output = self._graphs[key]
        graph.replay()
        return output

    def _captured(self, args: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, Any]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._model(*args)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Graphs run one after the other, so that they may share memory for what lies between their kernels.
        with torch.cuda.graph(graph, pool=self._pool):
            output = self._model(*args)
        self._pool = graph.pool()
        return graph, output
