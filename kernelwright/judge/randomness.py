"""Draws of a random model and of its candidate come in; whether both come from one distribution goes out."""

import math

import torch

__all__ = ["differences"]


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
