"""The problem's own inputs come in; variants that expose what those hide go out: one family a row of a table.

A transform changes floating-point tensors only, keeps exact zeros (a triangular matrix stays one) and keeps symmetric
matrices symmetric: a candidate may rely on what the problem promises. A variant on which the reference itself is not
finite or hopelessly ill-conditioned says nothing, and is dropped by the caller.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.criterion import chunks

__all__ = ["FAMILIES", "Family", "randomised_state", "transformed"]

Transform = Callable[[torch.Tensor], torch.Tensor]
AT_ONCE = 1 << 25  # elements that are sorted at a time
PRIMES = (7919, 104729, 1299709, 15485863, 32452843, 49979687, 67867967, 86028121)


@dataclass(frozen=True, slots=True)
class Family:
    """A way to make inputs, and what it is there to expose.

    ties  equal elements are common in them: which of two equal ones an index names is free
    """

    name: str
    transform: Transform
    exposes: str
    ties: bool = False


def own(x: torch.Tensor) -> torch.Tensor:
    return x


def zero_mean(x: torch.Tensor) -> torch.Tensor:
    """x -> s * x with random signs s; with s[i] * s[j] where x is symmetric."""
    if _is_symmetric(x):
        signs = _signs(x[0])
        return x * signs[:, None] * signs[None, :]
    return _signs(x).mul_(x)


def scaled(factor: float) -> Transform:
    return lambda x: x * factor


def offset(x: torch.Tensor) -> torch.Tensor:
    """1 plus or minus about a thousandth: sums cancel, variances are small beside an epsilon."""
    if x.numel() < 2:
        return x
    mean, spread = _mean(x), max(_deviation(x), 1e-30)
    y, old = torch.empty_like(x, memory_format=torch.contiguous_format), x.reshape(-1)
    new = y.view(-1)
    for part in chunks(old):
        shifted = (1 + 1e-3 * (old[part].double() - mean) / spread).to(x.dtype)
        new[part] = torch.where(old[part] == 0, old[part], shifted)
    return y


def spikes(x: torch.Tensor) -> torch.Tensor:
    """Large values at the first, last and tile-edge indices of each dimension: whatever skips one of them shows."""
    if not x.dim() or not x.numel() or _is_symmetric(x):
        return x
    y = zero_mean(x)
    count = max(1, min(x.numel() // 32, 1 << 18))
    where = tuple(_edges(size, count, x.device) for size in x.shape)
    height = 16 * max(1.0, _rms(x))
    # Two draws may name one place, and a GPU writes them in any order: a place has one value, whoever writes it.
    place = torch.stack([index * prime for index, prime in zip(where, PRIMES, strict=False)]).sum(0)
    values = (height * (1 + (place % 9973) / 9973)).to(x.dtype)
    old = y[where]
    y[where] = torch.where(old == 0, old, values)
    return y


def outliers(factor: float, most: int = 1 << 30) -> Transform:
    """The problem's own data, but for a few elements anywhere that are as many times as large as usual, of either sign.

    A kernel that looks at some elements to tell what the others are like takes this for ordinary data, if it sees none
    of them: the fewer there are, the surer.
    """

    def transform(x: torch.Tensor) -> torch.Tensor:
        if not x.numel() or _is_symmetric(x):
            return x
        y = x.clone(memory_format=torch.contiguous_format)
        flat = y.view(-1)
        count = max(2, min(x.numel() // 4096, most))
        turn = torch.arange(count, device=x.device) % 2  # both signs occur
        where = (torch.randint(0, x.numel(), (count,), device=x.device) // 2 * 2 + turn).clamp_max(x.numel() - 1)
        height = factor * max(1.0, _rms(x))
        sign = 1 - 2 * (where % 2)  # of the place, as two draws may name one
        flat[where] = torch.where(flat[where] == 0, flat[where], (height * sign).to(x.dtype))
        return y

    return transform


def last_spike(x: torch.Tensor) -> torch.Tensor:
    """The last element along the last dimension dominates: leaving out the tail of a reduction shows."""
    if not x.dim() or not x.numel() or _is_symmetric(x):
        return x
    y = zero_mean(x)
    height = 16 * max(1.0, _rms(x))
    last = y[..., -1]
    y[..., -1] = torch.where(last == 0, last, torch.full_like(last, height))
    return y


def integers(x: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1: sums of products are exact in float32, whatever their order."""
    if _is_symmetric(x):
        return x.sign()
    drawn = torch.randint(-1, 2, x.shape, device=x.device, dtype=torch.int8).to(x.dtype)
    return torch.where(x == 0, x, drawn)


def in_order(x: torch.Tensor) -> torch.Tensor:
    """Sorted along the last dimension: neighbours are alike, maxima stand at the end."""
    if not x.dim() or _is_symmetric(x) or bool((x == 0).any()):
        return x
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, into = x.reshape(-1, x.shape[-1]), y.view(-1, x.shape[-1])
    at_once = max(1, AT_ONCE // max(1, x.shape[-1]))  # its indices take twice the memory
    for start in range(0, len(rows), at_once):
        into[start : start + at_once] = rows[start : start + at_once].sort(dim=-1).values
    return y


def zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


# In the order in which they are worth their time, should that run out.
FAMILIES: tuple[Family, ...] = (
    Family("own", own, "everything the problem's own data can show"),
    Family("zero_mean", zero_mean, "low precision, which positive data averages away"),
    Family("scaled_1e-2", scaled(1e-2), "a wrong epsilon, absolute tolerances"),
    Family("last_spike", last_spike, "a reduction that stops early"),
    Family("outliers", outliers(16), "guesses about all elements from some"),
    Family("spikes", spikes, "tiles left out, edges read twice"),
    Family("offset", offset, "cancellation, epsilon, half precision"),
    Family("scaled_1e3", scaled(1e3), "overflow, saturation"),
    Family("integers", integers, "accumulation in low precision", ties=True),
    Family("scaled_1e-3", scaled(1e-3), "a wrong epsilon again, flushing to zero"),
    Family("extremes", outliers(200, most=4), "the same, and exponentials without their maximum"),
    Family("in_order", in_order, "data-dependent shortcuts"),
    Family("zeros", zeros, "division by zero, missing constants", ties=True),
)


def transformed(args: tuple[Any, ...], family: Family) -> tuple[Any, ...]:
    """The same arguments with the family's transform on each floating-point tensor."""
    template, tensors = flatten_arguments(args)
    # Of eight bits there is no arithmetic: such tensors stay as they are.
    changed = [family.transform(t) if t.is_floating_point() and t.itemsize > 1 else t for t in tensors]
    result: tuple[Any, ...] = unflatten(template, changed)
    return result


def randomised_state(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Other weights, biases, scales and running statistics of the same size; counters stay."""
    return {name: _randomised(name, tensor) for name, tensor in state.items()}


def _randomised(name: str, x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point() or not x.numel():
        return x.clone()
    noise = torch.rand_like(x, dtype=torch.float32)
    if "var" in name.rpartition(".")[2]:  # a variance stays positive
        return (0.5 + noise).to(x.dtype)
    centre, spread = float(x.double().mean()), float(x.double().std()) if x.numel() > 1 else 0.0
    if spread > 1e-12:
        return (centre + spread * torch.randn_like(x, dtype=torch.float32)).to(x.dtype)
    # A constant: ones and zeros are what a lazy kernel leaves out.
    return (centre * (0.5 + noise) if centre else noise - 0.5).to(x.dtype)


def _mean(x: torch.Tensor) -> float:
    flat = x.reshape(-1)
    return sum(float(flat[part].double().sum()) for part in chunks(flat)) / max(1, x.numel())


def _rms(x: torch.Tensor) -> float:
    flat = x.reshape(-1)
    return math.sqrt(sum(float(flat[part].double().square().sum()) for part in chunks(flat)) / max(1, x.numel()))


def _deviation(x: torch.Tensor) -> float:
    flat, mean = x.reshape(-1), _mean(x)
    total = sum(float((flat[part].double() - mean).square_().sum()) for part in chunks(flat))
    return math.sqrt(total / max(1, x.numel() - 1))


def _signs(x: torch.Tensor) -> torch.Tensor:
    return (torch.randint(0, 2, x.shape, device=x.device, dtype=torch.int8) * 2 - 1).to(x.dtype)


def _is_symmetric(x: torch.Tensor) -> bool:
    return x.dim() == 2 and x.shape[0] == x.shape[1] > 1 and bool((x == x.T).all())


def _edges(size: int, count: int, device: torch.device) -> torch.Tensor:
    """Random indices below `size`, half of them beside a boundary of tiles."""
    edges = {0, size - 1} | {k * tile + d for tile in (16, 32, 128) for k in (1, size // tile) for d in (-1, 0, 1)}
    kept = torch.tensor(sorted(e for e in edges if 0 <= e < size), device=device)
    anywhere = torch.randint(0, size, (count,), device=device)
    at_edge = kept[torch.randint(0, len(kept), (count,), device=device)]
    return torch.where(torch.rand(count, device=device) < 0.5, at_edge, anywhere)
