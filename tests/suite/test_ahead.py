"""What is compiled ahead is what tuning then asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.load import load
from kernelwright.plan import plan
from kernelwright.settings import read_settings
from kernelwright.simplify import simplify
from kernelwright.suite import ahead
from kernelwright.tune import measure as measuring
from kernelwright.tune.routes import choose_routes
from kernelwright.tune.tune import short_list

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Asked(Exception):
    """Carries the builds that were asked for."""


@pytest.mark.parametrize("name", ["pointwise_chain", "linear_bias_relu", "conv_divide_leakyrelu", "layernorm_gate"])
def test_tuning_asks_for_exactly_what_was_compiled_ahead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device, settings = resolve("h200"), read_settings()
    graph = simplify(capture(load(EXAMPLES / f"{name}.py")))
    planned = plan(graph, choose_routes(graph, replace(device, present=False), 0.0, settings))

    def caught(jobs: Any, settings: Any) -> None:
        raise Asked(jobs)

    monkeypatch.setattr(measuring, "build_all", caught)
    monkeypatch.setattr(measuring, "tensors_of", lambda buffers, device: {})
    kernels = list(ahead.tunable(planned.kernels))
    assert kernels
    for kernel in kernels:
        with pytest.raises(Asked) as asked:
            measuring.measure(kernel, short_list(kernel, device), device, settings)
        wanted = [(job.func, job.args) for job in asked.value.args[0]]
        assert [(job.func, job.args) for job in ahead.builds_of(kernel, device, settings)] == wanted  # type: ignore[attr-defined]
