"""Draws of a random model and of its candidate come in; whether both come from one distribution goes out, and whether
the candidate's are fresh ones each time."""

import math
from collections.abc import Callable

import torch

__all__ = ["CERTAIN", "ENOUGH_DRAWS", "Chances", "differences", "far_from", "misplaced", "unlike"]

# Of each call so many elements are looked at, and so many calls: two that share their random numbers stand out by far.
LOOKED_AT, MOST_CALLS = 2048, 1024
FEWEST_ELEMENTS = 64
CERTAIN = 4096  # elements that are the same in every call: chance has no part in them
SHIFTED_CALLS, SHIFTED_ELEMENTS = 24, 1 << 16  # compared at every shift against each other
# Draws that show nearly all values of an element that takes few; how many of the elements must then have them up to
# rounding, and how many may have others.
ENOUGH_DRAWS, MOST_VALUES, MOST_UNSEEN = 16, 0.9, 0.25
SOME_VALUES = 0.1  # the same with fewer draws, which do not show all values
FEWEST_IN_STEP = 16
SPLITS, SPLIT_SLACK = 8, 1.5
PLAIN_CHANCE = 5.0  # standard deviations of one number that is compared a few times
NEARBY = 0.02  # of a value: what is further off from it is another one
ALIKE = 1.25  # how far calls are from their mean: if theirs differ by less, so many are their elements that ours do too
FAR = 4.0  # times as far from the mean as any of a dozen others: no chance makes that
UNLIKELY = 9.0  # standard deviations; millions of pairs reach 5.5


def differences(
    candidate: torch.Tensor, reference: torch.Tensor, close: Callable[[torch.Tensor, torch.Tensor], bool]
) -> str:
    """Why two sets of draws, one call a row on the same input, differ in distribution; "" if they do not. `close` says
    whether elements that do not vary are right.

    Elementwise means and variances, the pooled values, the share of zeros, and how much the mean of a whole output
    moves from call to call (which one mask for all elements, or for all calls, would change).
    """
    c, r = _rows(candidate).double(), _rows(reference).double()
    calls = c.shape[0]
    if not bool(torch.isfinite(c).all()):
        return "an output is not finite"
    if bool((c[0] == c[1:]).all()) and int((r[1:] != r[:-1]).any(1).sum()) > calls // 4:
        return "it gives the same output in every call"
    noise = ((c.var(0) + r.var(0)) / calls).sqrt()
    gap = (c.mean(0) - r.mean(0)).abs()
    fixed = noise == 0
    if bool(fixed.any()) and not close(_rows(candidate)[0, fixed], _rows(reference)[0, fixed]):
        return "elements that should not vary have another value"
    if r.numel() >= CERTAIN and bool((r == r[0]).all()):  # no chance; a candidate may still round now so, now so
        steady = all(close(row, _rows(reference)[0]) for row in _rows(candidate))
        return "" if steady else "it varies and should not"
    z = gap[~fixed] / noise[~fixed]
    if z.numel():
        # With few calls the estimate of the noise is itself noisy: Student's t, not a normal distribution.
        widening = math.sqrt((calls - 1) / max(calls - 3, 1))
        if float(z.square().mean().sqrt()) > widening * (1 + 6 / math.sqrt(2 * _independent(r[:, ~fixed]))) + 0.05:
            return f"means differ by {float(z.square().mean().sqrt()):.2f} standard errors"
    # A sum of numbers in another order varies with their rounding: what a norm makes to have no mean has one of that.
    rounding = 1e-12 * float(r.square().mean())
    if not _same_variance(c, r, 0.2, rounding):
        return "variances differ"
    if not _same_variance(c.mean(1, keepdim=True), r.mean(1, keepdim=True), 0.67, rounding):
        return "calls or elements are not independent as the reference's are"
    if _in_step(c) > 2 * _in_step(r) + max(FEWEST_IN_STEP, c.shape[1] // 64):
        return "elements of one call share their random numbers"
    if _repeats_itself(c, r):
        return "elements of one call share their random numbers, shifted"
    if not _same_mean((c == 0).double().mean(1), (r == 0).double().mean(1), 0.002):
        return "the share of zeros differs"
    statistic, limit = _kolmogorov_smirnov(c, r)
    limit = limit if statistic <= limit else max(limit, SPLIT_SLACK * _between_calls(r))
    return f"the values are distributed differently (KS {statistic:.3f} > {limit:.3f})" if statistic > limit else ""


def misplaced(candidate: torch.Tensor, reference: torch.Tensor, allowed_rms: float) -> str:
    """Why the candidate's values are not the reference's, although chance may pick other ones of them; "" if they are.

    `candidate` is one call, `reference` several on the same input, one a row. Where these repeat a value bit by bit (of
    dropout, what is kept), it is known exactly: numbers of less precision have the same distribution, and show here.
    """
    looked_at = _anywhere(candidate.numel()).to(candidate.device)
    c = candidate.flatten()[looked_at].double()
    r = _rows(reference)[:, looked_at].double().sort(0).values
    few = (r[1:] != r[:-1]).sum(0) < max(1, len(r) // 4)
    gap, nearest = (c - r).abs().min(0)
    value = r.gather(0, nearest[None])[0].abs()
    near = gap < NEARBY * value
    off = gap[few & near]
    known = int(few.sum()) if len(r) >= ENOUGH_DRAWS else 0
    if known >= FEWEST_ELEMENTS and int((few & ~near & (gap > allowed_rms)).sum()) > MOST_UNSEEN * known:
        return "elements that take few values have other ones"
    # Not all: another value of an element may lie nearby too, and may not have been seen.
    most = MOST_VALUES if len(r) >= ENOUGH_DRAWS else SOME_VALUES
    usual = float(off.quantile(most)) if off.numel() >= FEWEST_ELEMENTS else 0.0
    return f"values that repeat are off by {usual:.3g}, {allowed_rms:.3g} passes" if usual > allowed_rms else ""


def unlike(candidate: torch.Tensor, reference: torch.Tensor) -> str:
    """Why one call cannot be one of the reference's, several on the same input, one a row; "" if it can.

    For calls that are too few to know their distribution: of many elements, each call is as far from the mean as any
    other. Who leaves chance out lies closer, or somewhere else.
    """
    found, low, high = _distances(candidate, reference)
    if not 0 < high < ALIKE * low:
        return ""
    off = not low / ALIKE <= found <= high * ALIKE
    return f"a call is {found:.3g} off the mean, where the reference's are {low:.3g} to {high:.3g}" if off else ""


def far_from(candidate: torch.Tensor, reference: torch.Tensor) -> str:
    """Why one tensor is none of the reference's, several, one a row, however few its elements are; "" if it may be."""
    found, _, high = _distances(candidate, reference)
    far = high > 0 and not found <= FAR * high
    return f"{found:.3g} off the mean, where the reference's are up to {high:.3g}" if far else ""


def _distances(candidate: torch.Tensor, reference: torch.Tensor) -> tuple[float, float, float]:
    """How far from the mean it is; the least and the most that one of the reference's is from that of the others."""
    c, r = candidate.flatten().double(), _rows(reference).double()
    total, calls = r.sum(0), len(r)
    usual = [float((row - (total - row) / (calls - 1)).square().mean().sqrt()) for row in r]
    return float((c - total / calls).square().mean().sqrt()), min(usual), max(usual)


def _anywhere(count: int) -> torch.Tensor:
    """Places that nobody could foresee: who knew them would need to be right only there."""
    entropy = torch.Generator()
    entropy.seed()
    return torch.randint(0, count, (min(count, LOOKED_AT),), generator=entropy)


def _in_step(rows: torch.Tensor) -> int:
    """Elements that are above and below their mean in the same calls as another one, or in just the others.

    In 63 calls hardly any two are by chance, unless an element is hardly ever hit; then so are the reference's.
    """
    above = rows[:63] > rows[:63].mean(0)
    names = torch.zeros(rows.shape[1], dtype=torch.int64, device=rows.device)
    for call, row in enumerate(above):
        names |= (row ^ above[0]).long() << call
    _, counts = torch.unique(names[names != 0], return_counts=True)
    return int(counts[counts > 1].sum())


class Chances:
    """What chance did in each call of one process: the candidate's output less eager's on the same input.

    That is independent from call to call, whatever the inputs. Who draws masks ahead and uses them again, as they are
    or shifted, does the same thing twice.
    """

    def __init__(self) -> None:
        self._candidate: list[torch.Tensor] = []
        self._reference: list[torch.Tensor] = []
        self._long: tuple[torch.Tensor, ...] | None = None

    @property
    def room(self) -> int:
        """For so many calls more."""
        return MOST_CALLS - len(self._candidate)

    def add(self, candidate: torch.Tensor, reference: torch.Tensor, again: torch.Tensor) -> None:
        """Outputs on the same inputs, one call a row: the candidate's, and two draws of eager's."""
        ours, usual = (_chance(rows, reference, self.room, LOOKED_AT) for rows in (candidate, again))
        self._candidate += ours.unbind()
        self._reference += usual.unbind()
        if self._long is None and len(candidate) >= SHIFTED_CALLS:
            ours, usual = (_chance(rows, reference, SHIFTED_CALLS, SHIFTED_ELEMENTS) for rows in (candidate, again))
            self._long = ours, usual

    def repeated(self) -> str:
        """Two calls that share their random numbers; "" if none are seen to."""
        if len(self._candidate) < 2 or self._candidate[0].numel() < FEWEST_ELEMENTS:
            return ""
        if _alike(torch.stack(self._candidate), torch.stack(self._reference)):
            return "two calls use the same random numbers"
        if self._long and _alike_when_shifted(*self._long):
            return "two calls use the same random numbers, shifted"
        self._long = self._long if self._long is None else ()  # looked at once
        return ""


def _chance(rows: torch.Tensor, reference: torch.Tensor, calls: int, elements: int) -> torch.Tensor:
    return (_rows(rows)[:calls, :elements].double() - _rows(reference)[:calls, :elements].double()).float()


def _alike(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether two calls of the candidate are more alike than chance makes any; eager's calls tell what it makes."""
    usual = _correlations(_standardised(reference))
    # Elements that hang together are fewer numbers than they seem, and vary more.
    deviation = max(float(usual.square().mean().sqrt()), 1 / math.sqrt(candidate.shape[1]))
    # Of rare events a few that coincide are much.
    most = max(UNLIKELY * deviation, 1.5 * float(usual.abs().max()))
    return bool(usual.any()) and float(_correlations(_standardised(candidate)).abs().max()) > most


def _alike_when_shifted(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """The same at any shift: of millions of correlations the largest is always much the same."""
    usual = _largest_when_shifted(_standardised(reference))
    return usual > 0 and _largest_when_shifted(_standardised(candidate)) > 2 * usual


def _independent(rows: torch.Tensor) -> float:
    """As how many independent elements these say: n^2 / the sum of all squared correlations. One, where one number
    decides a whole call."""
    calls, elements = rows.shape
    moved = rows - rows.mean(0)
    deviation = moved.square().mean(0).sqrt()
    moved = moved[:, deviation > 0] / deviation[deviation > 0]
    # Of as many calls chance alone makes each correlation 1 / calls, in the square.
    squares = float((moved @ moved.T / calls).square().sum()) - elements**2 / calls
    return max(1.0, min(float(elements), elements**2 / max(squares, 1.0)))


def _repeats_itself(c: torch.Tensor, r: torch.Tensor) -> bool:
    """Whether the candidate's calls are more like themselves at some shift than the reference's. Who draws half of the
    numbers, and uses them twice at places that change from call to call, is neither in step nor like another call."""
    if min(c.shape[1], _moving_elements(r)) < FEWEST_ELEMENTS:  # of rare events a few are like others by chance
        return False
    ours, usual = _most_alike_when_shifted(c), _most_alike_when_shifted(r)
    return float(ours.mean()) > float(usual.mean()) and not _same_mean(ours, usual, 0.2 * float(usual.mean()))


def _moving_elements(rows: torch.Tensor) -> float:
    """As how many elements that move alike those of a call are, which the largest moves may decide."""
    squares = (rows - rows.mean(0)).square()
    share = squares.sum(1).square() / squares.square().sum(1).clamp_min(1e-300)
    return float(share.mean())


def _most_alike_when_shifted(rows: torch.Tensor) -> torch.Tensor:
    """Of each call, how much it is like itself at the shift at which it is most."""
    some = rows[:SHIFTED_CALLS, :SHIFTED_ELEMENTS] - rows[:, :SHIFTED_ELEMENTS].mean(0)
    length = some.shape[1]
    spectra = torch.fft.rfft(_standardised(some), 2 * length)
    across = torch.fft.irfft(spectra.abs().square(), 2 * length)[:, 1:length]
    found: torch.Tensor = across.abs().amax(1) / length
    return found


def _standardised(rows: torch.Tensor) -> torch.Tensor:
    rows = rows - rows.mean(1, keepdim=True)
    return rows / rows.square().mean(1, keepdim=True).sqrt().clamp_min(1e-30)


def _correlations(rows: torch.Tensor) -> torch.Tensor:
    """Of each row with each other one."""
    products = rows @ rows.T / rows.shape[1]
    return products.fill_diagonal_(0.0)


def _largest_when_shifted(rows: torch.Tensor) -> float:
    """Of each row with each other one, one of the two shifted by any number of elements."""
    length = 2 * rows.shape[1]
    spectra = torch.fft.rfft(rows, length)
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    pairs = zip(torch.chunk(first, 16), torch.chunk(second, 16), strict=True)
    across = (torch.fft.irfft(spectra[a] * spectra[b].conj(), length) for a, b in pairs)
    return max(float(some.abs().max()) for some in across) / rows.shape[1]


def _same_variance(c: torch.Tensor, r: torch.Tensor, least: float, rounding: float) -> bool:
    """Up to a share of `least`, or to what chance does to few numbers: a scalar's over 64 calls is known by a third.
    What varies by less than `rounding` does not."""
    ours, theirs = ((rows - rows.mean(0)).square().mean(1) for rows in (c, r))
    level = max(float(theirs.mean()), rounding)
    return level == 0 or _same_mean(ours / level, theirs / level, least)


def _same_mean(a: torch.Tensor, b: torch.Tensor, least: float) -> bool:
    """Whether two rows of independent numbers, one a call, have the same mean: up to `least`, or to their noise."""
    error = math.sqrt(float(a.var() + b.var()) / len(a))
    return abs(float(a.mean() - b.mean())) <= max(least, PLAIN_CHANCE * error)


def _rows(calls: torch.Tensor) -> torch.Tensor:
    """One call a row, of a scalar too."""
    return calls.reshape(len(calls), -1)


def _between_calls(r: torch.Tensor) -> float:
    """How much one half of the reference's calls differs from the other, at most, by the same statistic: of elements
    that hang together, as zeros that a norm has moved do, fewer numbers are independent than it counts."""
    entropy = torch.Generator().manual_seed(0)
    orders = (torch.randperm(len(r), generator=entropy).to(r.device) for _ in range(SPLITS))
    return max(_kolmogorov_smirnov(r[order[::2]], r[order[1::2]])[0] for order in orders)


def _kolmogorov_smirnov(c: torch.Tensor, r: torch.Tensor) -> tuple[float, float]:
    """The largest gap between both distribution functions, and what chance alone exceeds once in a million."""
    a, b = c.flatten()[:100_000].sort().values, r.flatten()[:100_000].sort().values
    both = torch.cat([a, b])
    gap = torch.searchsorted(a, both, right=True) / len(a) - torch.searchsorted(b, both, right=True) / len(b)
    # Elements of one call share their input: fewer independent numbers than there are elements. Where one number
    # decides a whole call there are as many as calls.
    independent = min(len(a) / 4, len(b) / 4, _independent(r) * len(b) / r.shape[1])
    return float(gap.abs().max()), 2.7 * math.sqrt(2 / independent)
