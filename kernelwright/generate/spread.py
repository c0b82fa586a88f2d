"""A `Kernel` of few long rows that all threads store comes in; its C++ goes out.

The struct is that of `generate/woven.py`, but what is read may stay in the caches for the last phase.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import reduce_floor_us, reduces, scratch_of, work_of_rows
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS, WovenWriter, source_of_rows
from kernelwright.kernels import reduce_spread
from kernelwright.plan import Kernel


class SpreadWriter(WovenWriter):
    """The struct of a region whose rows are stored by all threads: see kernels/cuda/reduce_spread.cuh."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, reads_again=False)
        self.loads_by = "load"


def spread_configs(kernel: Kernel, device: Device) -> Sequence[reduce_spread.Config]:
    return reduce_spread.configs(work_of_rows(kernel), device) if reduces(kernel) else ()


def spread_cost_us(choice: reduce_spread.Config, kernel: Kernel, device: Device) -> float:
    return reduce_spread.cost_us(choice, work_of_rows(kernel), device)


def spread_extra(kernel: Kernel, choice: reduce_spread.Config) -> Extra:
    row_bytes = SpreadWriter(kernel).row_bytes
    return scratch_of(kernel, reduce_spread.workspace_bytes(choice, work_of_rows(kernel), row_bytes))


def spread_source(kernel: Kernel, choice: reduce_spread.Config) -> Source:
    return source_of_rows("reduce_spread", kernel, choice, SpreadWriter(kernel), 0, spread_extra(kernel, choice))


TEMPLATES = (
    Template(
        name="reduce_spread",
        target="cuda",
        headers=(*HEADERS, "reduce_spread"),
        types=(reduce_spread.Config,),
        configs=spread_configs,
        cost_us=spread_cost_us,
        floor_us=reduce_floor_us,
        source=spread_source,
        extra=spread_extra,
    ),
)
