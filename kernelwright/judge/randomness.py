"""Draws of a random model and of its candidate come in; whether both come from one distribution goes out, and whether
the candidate's are fresh ones each time."""

import math

import torch

__all__ = ["Chances", "differences", "misplaced"]

# Of each call so many elements are looked at, and so many calls: two that share their random numbers stand out by far.
LOOKED_AT, MOST_CALLS = 2048, 1024
FEWEST_ELEMENTS = 64
SHIFTED_CALLS, SHIFTED_ELEMENTS = 24, 1 << 16  # compared at every shift against each other
NEARBY = 0.02  # of a value: what is further off from it is another one
UNLIKELY = 9.0  # standard deviations; millions of pairs reach 5.5


def differences(candidate: torch.Tensor, reference: torch.Tensor) -> str:
    """Why two sets of draws, one call a row on the same input, differ in distribution; "" if they do not.

    Elementwise means and variances, the pooled values, the share of zeros, and how much the mean of a whole output
    moves from call to call (which one mask for all elements, or for all calls, would change).
    """
    c, r = candidate.double().flatten(1), reference.double().flatten(1)
    calls = c.shape[0]
    if not bool(torch.isfinite(c).all()):
        return "an output is not finite"
    if bool((c[0] == c[1:]).all()) and not bool((r[0] == r[1:]).all()):
        return "it gives the same output in every call"
    noise = ((c.var(0) + r.var(0)) / calls).sqrt()
    gap = (c.mean(0) - r.mean(0)).abs()
    fixed = noise == 0
    scale = float(r.square().mean().sqrt())
    if bool((gap[fixed] > 1e-4 * scale).any()):
        return "elements that should not vary have another value"
    z = gap[~fixed] / noise[~fixed]
    if z.numel():
        # With few calls the estimate of the noise is itself noisy: Student's t, not a normal distribution.
        widening = math.sqrt((calls - 1) / max(calls - 3, 1))
        if float(z.square().mean().sqrt()) > widening * (1 + 6 / math.sqrt(2 * z.numel())) + 0.05:
            return f"means differ by {float(z.square().mean().sqrt()):.2f} standard errors"
    if not 0.8 <= _ratio(c.var(0).mean(), r.var(0).mean()) <= 1.25:
        return "variances differ"
    if not 0.33 <= _ratio(c.mean(1).var(), r.mean(1).var()) <= 3:
        return "calls or elements are not independent as the reference's are"
    if abs(float((c == 0).double().mean() - (r == 0).double().mean())) > 0.02:
        return "the share of zeros differs"
    statistic, limit = _kolmogorov_smirnov(c, r)
    return f"the values are distributed differently (KS {statistic:.3f} > {limit:.3f})" if statistic > limit else ""


def misplaced(candidate: torch.Tensor, reference: torch.Tensor, allowed_rms: float) -> str:
    """Why the candidate's values are not the reference's, although chance may pick other ones of them; "" if they are.

    `candidate` is one call, `reference` several on the same input, one a row. Where these repeat a value bit by bit (of
    dropout, what is kept), it is known exactly: numbers of less precision have the same distribution, and show here.
    """
    c = candidate.double().flatten()[:LOOKED_AT]
    r = reference.double().flatten(1)[:, :LOOKED_AT].sort(0).values
    few = (r[1:] != r[:-1]).sum(0) < max(1, len(r) // 4)
    gap, nearest = (c - r).abs().min(0)
    value = r.gather(0, nearest[None])[0].abs()
    off = gap[few & (gap < NEARBY * value)]
    # The median: another value of an element may lie nearby too, and may not have been seen.
    usual = float(off.median()) if off.numel() >= FEWEST_ELEMENTS else 0.0
    return f"values that repeat are off by {usual:.3g}, {allowed_rms:.3g} passes" if usual > allowed_rms else ""


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
    return (rows.flatten(1)[:calls, :elements].double() - reference.flatten(1)[:calls, :elements].double()).float()


def _alike(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether two calls of the candidate are more alike than chance makes any; eager's calls tell what it makes."""
    usual = _correlations(_standardised(reference))
    # Elements that hang together are fewer numbers than they seem, and vary more.
    deviation = max(float(usual.square().mean().sqrt()), 1 / math.sqrt(candidate.shape[1]))
    return bool(usual.any()) and float(_correlations(_standardised(candidate)).abs().max()) > UNLIKELY * deviation


def _alike_when_shifted(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """The same at any shift: of millions of correlations the largest is always much the same."""
    usual = _largest_when_shifted(_standardised(reference))
    return usual > 0 and _largest_when_shifted(_standardised(candidate)) > 2 * usual


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


def _ratio(a: torch.Tensor, b: torch.Tensor) -> float:
    if float(b) == 0:
        return 1.0 if float(a) == 0 else math.inf
    return float(a / b)


def _kolmogorov_smirnov(c: torch.Tensor, r: torch.Tensor) -> tuple[float, float]:
    """The largest gap between both distribution functions, and what chance alone exceeds once in a million."""
    a, b = c.flatten()[:100_000].sort().values, r.flatten()[:100_000].sort().values
    both = torch.cat([a, b])
    gap = torch.searchsorted(a, both, right=True) / len(a) - torch.searchsorted(b, both, right=True) / len(b)
    # Elements of one call share their input: fewer independent numbers than there are elements.
    independent = min(len(a), len(b)) / 4
    return float(gap.abs().max()), 2.7 * math.sqrt(2 / independent)
