"""A forward call comes in; whether code of the candidate's own wrote any of its output goes out. A hint, for labels.

Every ATen operator passes a dispatch mode. A tensor whose bytes changed since the last operator that wrote them was
written by something else: a kernel of the candidate. That origin is followed through the operators to the output. A
kernel whose result goes nowhere therefore does not count. Loaded in the worker; imports only torch.
"""

import sys
from collections.abc import Sequence
from enum import IntFlag
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelwright.judge.modes import CONTRACTIONS

__all__ = ["Origin", "Provenance", "following"]

SAMPLED_BYTES = 8 << 20
FRESH = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class Origin(IntFlag):
    """Where the numbers of a tensor come from, besides plain operators."""

    PLAIN = 0
    OWN_KERNEL = 1
    VENDOR_LIBRARY = 2


class Provenance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows origins through one forward call."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would hide the mode from torch.compile, and import all of that, for seconds, to do so: `following`."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._prints: dict[int, int] = {}
        self._origins: dict[int, Origin] = {}
        self._kept: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        taken = Origin.PLAIN
        for tensor in _tensors((args, kwargs)):
            taken |= self.origin(tensor)
        result = func(*args, **kwargs)
        if func.overloadpacket.__name__ in CONTRACTIONS:
            taken |= Origin.VENDOR_LIBRARY
        if func.overloadpacket.__name__ in FRESH:
            _scribble(result, len(self._kept))  # or a kernel that writes what an older one left there would not show
        for tensor in _tensors(result):
            key = _storage(tensor)
            self._origins[key] = self._origins.get(key, Origin.PLAIN) | taken
            self._prints[key] = _fingerprint(tensor)
            self._kept.append(tensor)  # its address must not be given to another meanwhile
        for tensor in _tensors((args, kwargs)):  # operators that write into an argument
            self._prints[_storage(tensor)] = _fingerprint(tensor)
        return result

    def origin(self, tensor: torch.Tensor) -> Origin:
        key = _storage(tensor)
        found = self._origins.get(key, Origin.PLAIN)
        if key not in self._prints:
            # Not made by an operator that we saw: an argument, a weight, or memory from elsewhere.
            self._prints[key] = _fingerprint(tensor)
        elif self._prints[key] != _fingerprint(tensor):
            found |= Origin.OWN_KERNEL
            self._origins[key] = found
        return found


def following() -> Provenance:
    """A mode for one call; hidden from torch.compile only where the candidate brought it along."""
    if "torch._dynamo" in sys.modules and not hasattr(Provenance.__torch_dispatch__, "__wrapped__"):
        Provenance.__torch_dispatch__ = _disable_dynamo(Provenance.__torch_dispatch__)  # type: ignore[method-assign]
    return Provenance()


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _scribble(tensor: torch.Tensor, number: int) -> None:
    flat = _bytes(tensor)
    if flat.numel():
        pattern = (torch.arange(251, device=flat.device) * 37 + number) % 251
        flat.copy_(pattern.repeat(flat.numel() // 251 + 1)[: flat.numel()])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _fingerprint(tensor: torch.Tensor) -> int:
    storage = tensor.untyped_storage()
    if not storage.nbytes() or not storage.data_ptr():
        return 0
    flat = _bytes(tensor)
    step = max(1, flat.numel() // SAMPLED_BYTES)
    sampled = flat[::step]
    weights = torch.arange(1, 252, device=flat.device).repeat(sampled.numel() // 251 + 1)[: sampled.numel()]
    return int((sampled.long() * weights).sum())
