"""Device memory comes in; the same memory, seen by another process, goes out: CUDA's driver calls, and nothing else.

Inputs lie in one plain cuMemAlloc allocation of the judge, which workers open by its IPC handle. Outputs lie where the
worker's torch put them; the worker exports the allocations around them, and the judge reads them there, from its own
context. Both need processes that share process ids (cell.py), and allocations that are not from a pool or expandable
segments: what cannot be exported is copied to one that can.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.utils.dlpack

from kernelwright.judge import wire
from kernelwright.judge.shortage import is_shortage

__all__ = [
    "DeviceMemory",
    "Graphed",
    "Segments",
    "exported",
    "meet_pages",
    "opened",
    "overlapping",
    "probe",
    "reset_persisting_cache",
    "telemetry",
    "tensor_at",
]

LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * wire.HANDLE_BYTES),)


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

PAGE_BYTES = 2 << 20  # of device memory, as drivers map large allocations


def in_whole_pages(size: int) -> int:
    """As PyTorch asks for memory too: what is no whole number of large pages is mapped by smaller ones throughout, and
    a kernel that walks over many of them waits for their addresses (docs/decisions/0024)."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


class DeviceMemory:
    """One allocation of our own; its IPC handle lets a worker in."""

    def __init__(self, size: int, device: torch.device) -> None:
        _ready(device)
        torch.cuda.empty_cache()
        pointer = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(in_whole_pages(size)))
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


class _DLTensor(ctypes.Structure):
    """dlpack.h: DLTensor"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    """dlpack.h: DLManagedTensor"""

    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_alive: dict[int, tuple[_DLManagedTensor, Any]] = {}


_forget = _Deleter(lambda address: _alive.pop(address, None) and None)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
DL_CPU, DL_CUDA, DL_UINT = 1, 2, 1


def tensor_at(pointer: int, size: int, dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    """A flat tensor over memory that somebody else owns; through DLPack, which needs no NumPy."""
    device = torch.device("cuda", torch.cuda.current_device()) if device is None else device
    if not size:
        return torch.empty(0, dtype=dtype, device=device)
    shape = (ctypes.c_int64 * 1)(size)
    kind, number = (DL_CUDA, device.index or 0) if device.type == "cuda" else (DL_CPU, 0)
    described = _DLTensor(pointer, kind, number, 1, DL_UINT, 8, 1, shape, None, 0)
    managed = _DLManagedTensor(described, None, _forget)
    address = ctypes.addressof(managed)
    _alive[address] = managed, shape
    capsule = _new_capsule(address, b"dltensor", None)
    found: torch.Tensor = torch.utils.dlpack.from_dlpack(capsule)
    return found.view(dtype)


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


def _allocation(pointer: int) -> tuple[int, int]:
    """Where the allocation around an address begins, and its size."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    return base.value, size.value


# --- the worker's side: outputs


def exported(tensor: torch.Tensor, known: dict[int, bytes]) -> torch.Tensor:
    """Note the allocation around a tensor in `known`; the tensor itself, or a copy in memory that can be exported."""
    base, size = _allocation(tensor.data_ptr())
    if base in known:
        return tensor
    try:
        known[base] = wire.SEGMENT.pack(base, size, _export(base))
    except DriverError:  # from a pool or mapped by the candidate itself
        copy = tensor.clone(memory_format=torch.contiguous_format)
        base, size = _allocation(copy.data_ptr())
        known.setdefault(base, wire.SEGMENT.pack(base, size, _export(base)))
        return copy
    return tensor


LOOKERS = 1024  # blocks, on all multiprocessors: each has its own memory of where pages lie


def meet_pages(tensor: torch.Tensor) -> None:
    """Read one element of each page, from everywhere on the GPU; cheap where the pages are known.

    After another process had the GPU, a relu of 6.4 GB took 4.05 ms instead of 3.03 on an H200, and the excess of other
    kernels grew with the pages they touch, by about a third of a microsecond each (docs/decisions/0024).
    """
    step = PAGE_BYTES // tensor.itemsize
    if tensor.is_contiguous() and tensor.numel() > step:
        tensor.reshape(-1)[::step].expand(LOOKERS, -1).ne(0).any(1)


# --- the judge's side: outputs


class Segments:
    """Allocations of one worker, opened here: an address of the worker's becomes one of ours."""

    def __init__(self) -> None:
        self._opened: dict[bytes, tuple[int, int, int]] = {}

    def learn(self, board: mmap.mmap) -> None:
        """Open what the worker has listed since."""
        count = min(int.from_bytes(board[wire.SEGMENTS_AT : wire.SEGMENTS_AT + 8], "little"), wire.MAX_SEGMENTS)
        for number in range(1, count + 1):
            base, size, handle = wire.SEGMENT.unpack_from(board, wire.SEGMENTS_AT + number * wire.SEGMENT.size)
            if handle not in self._opened:
                try:
                    pointer = opened(handle)
                except DriverError as error:  # the worker has freed it since, to make room
                    if is_shortage(error):
                        raise
                    continue
                _, real_size = _allocation(pointer)
                self._forget(base, size)
                self._opened[handle] = base, min(size, real_size), pointer

    def _forget(self, base: int, size: int) -> None:
        """What lay at the worker's addresses before: it was freed there, and lives on only because we see it."""
        for handle in overlapping(self._opened, base, size):
            _, _, pointer = self._opened.pop(handle)
            _driver().cuIpcCloseMemHandle(ctypes.c_uint64(pointer))

    def find(self, address: int, size: int) -> int | None:
        """Where we see `size` bytes at the worker's `address`; None if they lie in no allocation we know."""
        for base, length, pointer in self._opened.values():
            if base <= address and address + size <= base + length:
                return pointer + address - base
        return None

    def tensor(self, address: int, size: int, dtype: torch.dtype) -> torch.Tensor | None:
        """The worker's memory, where it lies, as a tensor."""
        if not size:
            return tensor_at(0, 0, dtype)
        pointer = self.find(address, size)
        return None if pointer is None else tensor_at(pointer, size, dtype)

    def gather(self, addresses: torch.Tensor, width: int) -> torch.Tensor | None:
        """`width` bytes at each address, read by a kernel of ours and waited for; None if one is not in sight."""
        result = torch.empty(len(addresses), width, dtype=torch.uint8)
        left = torch.ones(len(addresses), dtype=torch.bool)
        for base, length, pointer in self._opened.values():
            here = left & (addresses >= base) & (addresses + width <= base + length)
            if bool(here.any()):
                offsets = (addresses[here] - base)[:, None] + torch.arange(width)
                segment = tensor_at(pointer, length, torch.uint8)
                result[here] = segment[offsets.to(segment.device)].cpu()
                left &= ~here
        return None if bool(left.any()) else result

    def close(self) -> None:
        """Before the worker frees them, if it still can."""
        if self._opened:
            torch.cuda.synchronize()
        for _, _, pointer in self._opened.values():
            _driver().cuIpcCloseMemHandle(ctypes.c_uint64(pointer))  # fails if the worker died first
        self._opened.clear()


def overlapping(opened: Mapping[bytes, tuple[int, int, int]], base: int, size: int) -> list[bytes]:
    """The handles of allocations that share addresses with this one."""
    return [handle for handle, (start, length, _) in opened.items() if start < base + size and base < start + length]


def reset_persisting_cache() -> None:
    """Lines that L2 was asked to keep become ordinary ones: what one call leaves is no head start for the next."""
    _driver().cuCtxResetPersistingL2Cache()  # not known to old drivers or GPUs, where nothing can persist either


def telemetry() -> dict[str, str]:
    """What the driver says of the GPU now: clocks, temperature, power, and who else is on it; {} without nvidia-smi."""
    fields = (
        "name",
        "uuid",
        "driver_version",
        "clocks.sm",
        "clocks.mem",
        "temperature.gpu",
        "power.draw",
        "power.limit",
    )
    found = _nvidia_smi(f"--query-gpu={','.join(fields)}", torch.cuda.current_device())
    if not found:
        return {}
    told = dict(zip(fields, (value.strip() for value in found.split(",")), strict=False))
    told["processes"] = str(len(_nvidia_smi("--query-compute-apps=pid", torch.cuda.current_device()).splitlines()))
    return told


def _nvidia_smi(query: str, index: int) -> str:
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/bin:/usr/local/bin")
    if program is None:
        return ""
    command = [program, query, "--format=csv,noheader", f"--id={index}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except subprocess.TimeoutExpired:
        return ""


def probe() -> bool:
    """Whether the GPU still works, from this process: allocate, compute, compare."""
    try:
        x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
        total = float((x * 2).double().sum())
        torch.cuda.synchronize()
    except RuntimeError as error:
        return is_shortage(error)  # then it answers, if only that it is full
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
