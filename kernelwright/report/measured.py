"""A `Judgement` comes in; the lines that an emitted file's docstring carries of it go out."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.judge import Judgement
from kernelwright.report.words import baseline_name
from kernelwright.tune import Tuned

WHERE = {"device": "", "torch": "PyTorch "}


def measured_lines(judgement: Judgement, tuned: Sequence[Tuned]) -> list[str]:
    environment = judgement.environment
    where = ", ".join(f"{name}{environment[key]}" for key, name in WHERE.items() if environment.get(key))
    speed = f", {judgement.speed}" if judgement.speed else ""
    lines = [f"verdict {judgement.verdict}{speed}{f' on {where}' if where else ''}"]
    lines += [
        f"{ratio.median:.2f}x as fast as {baseline_name(name)} (95% interval {ratio.low:.2f} to {ratio.high:.2f})"
        for name, ratio in judgement.speedup.items()
    ]
    times = [f"{baseline_name(name)} {interval.median:.0f} us" for name, interval in judgement.times_us.items()]
    lines += [f"a call: {', '.join(times)}"] if times else []
    if judgement.errors is not None:
        ours, eager = judgement.errors.candidate_rms, judgement.errors.eager_rms
        lines.append(f"error against float64, relative rms: this file {ours:.2g}, PyTorch {eager:.2g}")
    lines += [kernel_line(row) for row in tuned if row.median_us is not None]
    return lines


def kernel_line(row: Tuned) -> str:
    assert row.median_us is not None
    share = row.floor_us / row.median_us
    return f"{row.kernel}: {row.median_us:.0f} us, floor {row.floor_us:.0f} us ({share:.0%} of it reached)"
