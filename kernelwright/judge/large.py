"""A problem too large to hold several times comes in; the same findings, made row by row, go out.

Where rows of the first argument do not touch each other (found by trying), the oracle needs only some rows at a time:
inputs lie once in the shared pool, outputs once in the worker, and everything else is a slice. Every row is compared
with eager; rows are given to the float64 oracle for as long as there is time, the first and last ones always.
"""

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import torch

from kernelwright.judge.codec import flatten_arguments, flatten_output, unflatten
from kernelwright.judge.shortage import is_shortage

__all__ = ["Rows", "fingerprint", "row_slices", "rows_of", "sliced"]

MOST_CHUNK_BYTES = 64 << 20
WORD = 8  # bytes
WEIGHTS = 4093  # a prime: strides in the data do not meet the period
ROWS = 2048  # of so many words, at a time: 64 MiB
MULTIPLIER = 1_000_003


@dataclass(frozen=True, slots=True)
class Rows:
    """How arguments and outputs can be cut.

    batch      rows in all
    arguments  positions of the argument tensors that are cut; the others are given whole
    chunk      rows at a time
    """

    batch: int
    arguments: tuple[int, ...]
    chunk: int


def rows_of(
    call: Callable[[tuple[Any, ...]], Any], args: tuple[Any, ...], row_bytes: int, memory_bytes: int
) -> Rows | None:
    """How this model's calls can be cut; None if its rows depend on each other."""
    _, tensors = flatten_arguments(args)
    if not tensors or tensors[0].dim() < 1 or tensors[0].shape[0] < 4:
        return None
    batch = tensors[0].shape[0]
    chunk = max(1, min(memory_bytes, MOST_CHUNK_BYTES) // max(row_bytes, 1))
    alike = tuple(i for i, t in enumerate(tensors) if t.dim() and t.shape[0] == batch)
    for positions in dict.fromkeys((alike, (0,))):
        rows = Rows(batch, positions, min(chunk, batch))
        if _independent(call, args, rows):
            return rows
    return None


def sliced(args: tuple[Any, ...], rows: Rows, part: slice) -> tuple[Any, ...]:
    template, tensors = flatten_arguments(args)
    result: tuple[Any, ...] = unflatten(
        template, [t[part] if i in rows.arguments else t for i, t in enumerate(tensors)]
    )
    return result


def row_slices(rows: Rows, seed: int) -> Iterator[slice]:
    """All chunks: the first, the last, then the others in random order."""
    starts = list(range(0, rows.batch, rows.chunk))
    middle = starts[1:-1]
    random.Random(seed).shuffle(middle)
    for start in dict.fromkeys([starts[0], starts[-1], *middle]):
        yield slice(start, min(start + rows.chunk, rows.batch))


def _independent(call: Callable[[tuple[Any, ...]], Any], args: tuple[Any, ...], rows: Rows) -> bool:
    """Whether rows computed apart are the rows of the whole, up to rounding; tried on four rows."""
    try:
        four = _leaves(call(sliced(args, rows, slice(0, 4))))
        apart = [_leaves(call(sliced(args, rows, slice(i, i + 2)))) for i in (0, 2)]
    except (RuntimeError, ValueError, IndexError) as error:
        if is_shortage(error):
            raise
        return False
    for whole, first, second in zip(four, *apart, strict=True):
        if not whole.dim() or whole.shape[0] != 4 or first.shape[0] != 2:
            return False
        together = torch.cat([first, second])
        if whole.is_floating_point():
            gap = torch.nan_to_num((whole - together).double()).abs().max()
            if float(gap) > 1e-4 * float(torch.nan_to_num(whole.double()).square().mean().sqrt()):
                return False
        elif not torch.equal(whole, together):
            return False
    return True


def _leaves(output: Any) -> list[torch.Tensor]:
    return [leaf for leaf in flatten_output(output)[1] if isinstance(leaf, torch.Tensor)]


def fingerprint(tensors: Sequence[torch.Tensor], seed: int) -> list[int]:
    """A secret hash of each tensor's bytes: whoever does not know the seed cannot change them unnoticed."""
    if all(t.device.type == "cpu" for t in tensors):
        return [_keyed_hash(t.contiguous(), seed) for t in tensors]
    return [int(_linear_hash(t, _weights(seed, t.device))) for t in tensors]


@lru_cache(maxsize=4)
def _weights(seed: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**62), 2**62, (WEIGHTS,), generator=generator).to(device)


def _keyed_hash(tensor: torch.Tensor, seed: int) -> int:
    size = tensor.numel() * tensor.itemsize
    data = (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""
    return int.from_bytes(blake2b(data, key=seed.to_bytes(8, "little"), digest_size=8).digest(), "little")


def _linear_hash(tensor: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Modulo 2^64, on the tensor's own device: the bytes are read once, eight at a time."""
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    if flat.storage_offset() % WORD:
        flat = flat.clone()
    whole = flat.numel() // WORD * WORD
    words = flat[:whole].view(torch.int64)
    total = (_padded(flat[whole:], WORD).view(torch.int64) * weights[-1]).sum()
    for start in range(0, words.numel(), ROWS * WEIGHTS):
        part = words[start : start + ROWS * WEIGHTS]
        rows = part if part.numel() % WEIGHTS == 0 else _padded(part, WEIGHTS)
        sums = (rows.view(-1, WEIGHTS) * weights).sum(1)
        total = total * MULTIPLIER + (sums * weights[: len(sums)]).sum()
    return total


def _padded(x: torch.Tensor, multiple: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, -x.numel() % multiple))
