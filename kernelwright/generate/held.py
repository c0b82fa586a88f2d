"""A `Kernel` whose rows are held in registers comes in; its C++ goes out.

The struct is that of `generate/woven.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import reduce_floor_us, reduces, scratch_of, work_of_rows
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS, WovenWriter, source_of_rows
from kernelwright.kernels import reduce_held
from kernelwright.plan import Kernel


class HeldWriter(WovenWriter):
    """The struct of a region whose rows are held: see kernels/cuda/reduce_held.cuh for how it is run."""

    # The compiler does not add a known number to a pointer after it has been added to an int: each of a thread's
    # vectors would have an address of its own.
    index_type = "int64_t"

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, reads_again=False)
        self.loads_late_by = "load"  # in the order that is written; else ptxas moves all of them before the first store


def held_configs(kernel: Kernel, device: Device) -> Sequence[reduce_held.Config]:
    return reduce_held.configs(work_of_rows(kernel), device) if reduces(kernel) else ()


def held_cost_us(choice: reduce_held.Config, kernel: Kernel, device: Device) -> float:
    return reduce_held.cost_us(choice, work_of_rows(kernel), device)


def held_extra(kernel: Kernel, choice: reduce_held.Config) -> Extra:
    return scratch_of(kernel, reduce_held.workspace_bytes(choice, work_of_rows(kernel)))


def held_source(kernel: Kernel, choice: reduce_held.Config) -> Source:
    shared_bytes = reduce_held.shared_bytes(choice, work_of_rows(kernel))
    return source_of_rows("reduce_held", kernel, choice, HeldWriter(kernel), shared_bytes, held_extra(kernel, choice))


TEMPLATES = (
    Template(
        name="reduce_held",
        target="cuda",
        headers=(*HEADERS, "reduce_woven", "reduce_ring", "reduce_held"),
        types=(reduce_held.Config,),
        configs=held_configs,
        cost_us=held_cost_us,
        floor_us=reduce_floor_us,
        source=held_source,
        extra=held_extra,
    ),
)
