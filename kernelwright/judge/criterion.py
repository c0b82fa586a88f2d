"""A candidate's output, eager's and the float64 oracle's come in; how many times too far off it is goes out.

With g the oracle, e eager's output, u the unit roundoff of the output's dtype and s[i] how much g[i] moves when all
inputs and weights move by u (a Monte-Carlo condition estimate, which knows of cancellation and of outputs near zero):

    Y    = sqrt(rms(e - g)^2 + rms(s)^2 + (u * rms(g))^2)
    y[i] = rms(e - g) + |e - g|[i] / 4 + s[i] + u * |g[i]| + u^2 * rms(g)

A candidate passes if rms(c - g) <= 16 Y and max |c - g|[i] / y[i] <= 64. There is no absolute tolerance and no share of
elements that may be wrong. Eager's error at the element itself is there because errors need not be alike everywhere: a
norm that is off by a factor puts an element 200 times as large as the others off 200 times as far. An element may be
16 times as far off as eager there, as the whole may; eager's own bits score 4 at most. u^2 is there for elements that
vanish beside the others even in twice the precision, where eager happens to be exact: 0 for 1e-22 beside ones, as where
a sigmoid saturates. NaN and infinities must stand where eager has them; integers must be equal. Elements that jump when
the inputs move a little (`Jumps`) may lie anywhere between the answers that were seen there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

__all__ = [
    "LIMITS",
    "STEADY",
    "Jumps",
    "Limit",
    "Score",
    "Yardstick",
    "chunks",
    "limits_for",
    "score",
    "unit_roundoff",
    "yardstick",
]

# Elements at a time. On a CPU temporaries then stay in cache and heap: fresh pages would cost more than the sums.
# On a GPU they would be several times as large as the tensors.
CHUNKS = {"cpu": 1 << 18, "cuda": 1 << 24}


@dataclass(frozen=True, slots=True)
class Limit:
    """Largest ratios that pass; up to the loose ones the verdict carries a label."""

    rms: float
    worst: float
    loose_rms: float
    loose_worst: float


# 16-bit outputs: eager's own rounding fills Y, so that a right kernel scores about 1 and bfloat16 sums score 8.
LIMITS = {"wide": Limit(16, 64, 64, 256), "narrow": Limit(4, 16, 16, 64)}

FLUSHED_BELOW = 1e-30
ROUNDED_SHARE = 8  # integers are rounded numbers if a small move of the inputs changes one in so many
EAGER_SHARE = 1 / 4  # of eager's error at an element: `rms` / `worst` of all limits, so that the same multiple passes


def limits_for(dtype: torch.dtype) -> Limit:
    return LIMITS["narrow" if dtype.itemsize < 4 else "wide"]


def unit_roundoff(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) / 2


def nothing_beside(dtype: torch.dtype) -> float:
    """What is as good as zero: of wide exponents the smallest normal number, for kernels may flush what is below.

    Half precision is never flushed, and 6e-5, its smallest normal number, is a whole element of a long softmax.
    """
    numbers = torch.finfo(dtype)
    return float(numbers.tiny if numbers.tiny < FLUSHED_BELOW else numbers.tiny * numbers.eps)


@dataclass(frozen=True, slots=True)
class Jumps:
    """Elements at which rounding decides a comparison or an order: moved a little, inputs make them jump.

    low, high  the answers seen at each element, the exact one where it does not jump; None if none does; of integers,
               all that were seen
    spared     how many elements may be off besides: eager jumps at such as were not seen to
    flips      of integers, the most that one small move of the inputs changes
    """

    low: torch.Tensor | None = None
    high: torch.Tensor | None = None
    spared: int = 0
    flips: int = 0

    def nearest(self, candidate: torch.Tensor, exact: torch.Tensor, part: slice) -> torch.Tensor:
        """The right answer that is closest to the candidate's; float64."""
        if self.low is None or self.high is None:
            return exact
        return candidate.double().clamp(self.low[part], self.high[part])


STEADY = Jumps()


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What one output tensor is measured with; flat tensors.

    exact     the oracle: float64, or the integers themselves
    eager     eager's output in its own dtype
    spread    s above; zeros where it was not estimated
    settled   for integers: where the reference's answer does not hang on rounding
    eager_rms  of its error, or what it is allowed to be: by more draws, or by a precision that the flags allow
    shown_rms  of its error as it is, for people to see
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    exact: torch.Tensor
    eager: torch.Tensor
    spread: torch.Tensor | None
    settled: torch.Tensor | None
    eager_rms: float
    eager_worst: float
    scale_rms: float
    rms: float
    allowance_rms: float
    jumps: "Jumps"
    shown_rms: float = 0.0

    @property
    def conditioning(self) -> float:
        """Y as a fraction of the output's size: at 1 nothing can be said of any candidate."""
        return self.rms / self.scale_rms if self.scale_rms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """How far off an output is, in units of the yardstick, and where it is worst."""

    rms: float
    worst: float
    error_rms: float
    error_worst: float
    where: tuple[int, ...]
    got: float
    want: float
    special: bool
    """The worst mismatch is one of class: NaN, infinity or an integer."""

    def within(self, limit: Limit) -> bool:
        return self.rms <= limit.rms and self.worst <= limit.worst

    def within_loose(self, limit: Limit) -> bool:
        return self.rms <= limit.loose_rms and self.worst <= limit.loose_worst


def yardstick(
    eager: torch.Tensor,
    exact: torch.Tensor,
    spread: torch.Tensor | None,
    settled: torch.Tensor | None,
    *,
    pooled_rms: float,
    allowance_rms: float,
    jumps: Jumps = STEADY,
) -> Yardstick:
    """`pooled_rms` is eager's error over more draws, for outputs too small to show it; `allowance_rms` that of a
    precision which the user allows."""
    shape, dtype = tuple(eager.shape), eager.dtype
    if not dtype.is_floating_point:
        flat = eager.reshape(-1)
        return Yardstick(shape, dtype, exact.reshape(-1), flat, None, settled, 0.0, 0.0, 0.0, 0.0, 0.0, jumps)
    e, g = eager.reshape(-1), exact.reshape(-1)
    s = spread.reshape(-1) if spread is not None else None
    error, worst, size, moved, count = 0.0, 0.0, 0.0, 0.0, 0
    for part in chunks(g):
        gap = e[part].double() - jumps.nearest(e[part], g[part], part)
        finite = torch.isfinite(gap)
        whole = bool(finite.all())
        kept = (lambda x: x) if whole else (lambda x, finite=finite: torch.where(finite, x, 0.0))
        gap = kept(gap)
        error += float(gap.square().sum())
        worst = max(worst, float(gap.abs().max()))
        size += float(kept(g[part]).square().sum())
        if s is not None:
            moved += float(kept(s[part].double()).square().sum())
        count += gap.numel() if whole else int(finite.sum())
    n = max(count, 1)
    shown_rms = math.sqrt(error / n)
    eager_rms = max(shown_rms, pooled_rms, allowance_rms)
    u = unit_roundoff(dtype)
    total = math.sqrt(eager_rms**2 + moved / n + u**2 * size / n)
    scale = math.sqrt(size / n)
    return Yardstick(shape, dtype, g, e, s, None, eager_rms, worst, scale, total, allowance_rms, jumps, shown_rms)


def score(candidate: torch.Tensor, yard: Yardstick) -> Score:
    """The candidate's error in units of the yardstick."""
    if not yard.dtype.is_floating_point:
        return _score_integers(candidate.reshape(-1), yard)
    u = unit_roundoff(yard.dtype)
    tiny = nothing_beside(yard.dtype)
    c, total, count, largest = candidate.reshape(-1), 0.0, 0, 0.0
    highest: list[tuple[float, float, int, bool]] = []  # ratio, error, place, of another class
    for part in chunks(c):
        size, ratio, wrong_class = _errors(c[part], part, yard, u, tiny)
        total += float(size.square().sum())
        count += size.numel() if wrong_class is None else int((torch.isfinite(yard.exact[part]) & ~wrong_class).sum())
        largest = max(largest, float(size.max()))
        spare = yard.jumps.spared
        top = ratio.topk(min(spare + 1, ratio.numel())).indices.tolist() if spare else [int(ratio.argmax())]
        highest += [
            (float(ratio[at]), float(size[at]), part.start + at, wrong_class is not None and bool(wrong_class[at]))
            for at in top
        ]
    if not highest:  # no elements
        return Score(0.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, False)
    highest.sort(key=lambda found: (not found[3], -found[0]))
    spared = 0 if highest[0][3] else yard.jumps.spared  # NaN and infinities are nobody's jump
    for _, error, _, _ in highest[:spared]:
        total = max(0.0, total - error**2)
    worst, _, where, special = highest[min(spared, len(highest) - 1)]
    error_rms = math.sqrt(total / max(count, 1))
    rms = _ratio(error_rms, yard.rms + tiny)
    got, want = float(c[where]), float(yard.eager[where] if special else yard.exact[where])
    return Score(rms, worst, error_rms, largest, _coordinate(where, yard.shape), got, want, special)


def _errors(
    c: torch.Tensor, part: slice, yard: Yardstick, u: float, tiny: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Error and error in units of the yardstick, element by element; and which are of another class, if any can be."""
    g, e = yard.exact[part], yard.eager[part]
    size = (c.double() - yard.jumps.nearest(c, g, part)).abs_()
    unit = g.abs().mul_(u).add_(yard.eager_rms + u * u * yard.scale_rms + tiny)
    unit += _eager_errors(e, g, part, yard) * EAGER_SHARE
    if yard.spread is not None:
        unit += yard.spread[part]
    if bool(torch.isfinite(size).all()) and bool(torch.isfinite(e).all()):
        return size, size / unit, None
    # Eager overflowed and the oracle did not: both the true value and the infinity are right.
    overflowed = torch.isinf(e) & torch.isfinite(g)
    wrong_class = (_classes(c) != _classes(e)) & ~(overflowed & torch.isfinite(c))
    size = torch.where(torch.isfinite(g) & torch.isfinite(c), size, 0.0)
    return size, torch.where(wrong_class, math.inf, torch.where(size > 0, size / unit, 0.0)), wrong_class


def _eager_errors(e: torch.Tensor, g: torch.Tensor, part: slice, yard: Yardstick) -> torch.Tensor:
    """Element by element; 0 where one of the two is no number."""
    return torch.nan_to_num_((e.double() - yard.jumps.nearest(e, g, part)).abs_(), nan=0.0, posinf=0.0)


def _score_integers(c: torch.Tensor, yard: Yardstick) -> Score:
    wrong = c != yard.eager
    # Where rounding decides, an honest candidate differs from eager in fewer places than one that moves the inputs.
    if yard.settled is not None and int(wrong.sum()) <= 2 * yard.jumps.flips + 4:
        wrong &= _beyond_rounding(c, yard, yard.settled)
    if not bool(wrong.any()):
        return Score(0.0, 0.0, 0.0, 0.0, (), 0.0, 0.0, False)
    at = int(wrong.to(torch.uint8).argmax())
    got, want = float(c[at]), float(yard.eager[at])
    return Score(math.inf, math.inf, 0.0, abs(got - want), _coordinate(at, yard.shape), got, want, True)


def _beyond_rounding(c: torch.Tensor, yard: Yardstick, settled: torch.Tensor) -> torch.Tensor:
    """Integers that no rounding makes: other ones where it decides nothing, and where it does, such as are farther from
    those that were seen there than these are from each other (of a hundred ties a few dozen draws miss some)."""
    low, high = yard.jumps.low, yard.jumps.high
    if low is None or high is None:
        return settled
    found, slack = c.to(torch.int64), high - low + 1
    beyond = settled | (found < low - slack) | (found > high + slack)
    if yard.jumps.flips < c.numel() / ROUNDED_SHARE:
        return beyond
    # Numbers that were rounded: of large ones, the arithmetic before it has a rounding of its own.
    usual = yard.eager.to(torch.int64)
    near = (found - usual).abs() <= LIMITS["wide"].rms * unit_roundoff(torch.float32) * usual.abs()
    return beyond & ~near


def _classes(x: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf"""
    return torch.isnan(x).to(torch.int8) + 2 * torch.isposinf(x).to(torch.int8) + 3 * torch.isneginf(x).to(torch.int8)


def _ratio(error: float, unit: float) -> float:
    return error / unit if unit > 0 else (0.0 if error == 0 else math.inf)


def chunks(flat: torch.Tensor) -> Iterator[slice]:
    """Slices that cover a flat tensor."""
    step = CHUNKS.get(flat.device.type, 1 << 24)
    for start in range(0, flat.numel(), step):
        yield slice(start, min(start + step, flat.numel()))


def _coordinate(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    coordinate = []
    for size in reversed(shape):
        coordinate.append(flat % size)
        flat //= size
    return tuple(reversed(coordinate))
