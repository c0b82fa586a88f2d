"""A `Kernel` whose rows pass through a ring comes in; its C++ goes out.

The struct is that of `generate/woven.py`, which also says how a vector's operands are copied to shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import reduce_floor_us, reduces, scratch_of, work_of_rows
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS, WovenWriter, source_of_rows
from kernelwright.kernels import reduce_ring
from kernelwright.plan import Kernel


class RingWriter(WovenWriter):
    """The struct of a region whose rows pass through a ring: see kernels/cuda/reduce_ring.cuh for how it is run."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel, reads_again=False)

    def load_function(self) -> list[str]:
        accesses = [(name, self.access(name)) for name in self.early]
        head = "template <int N> KW_DEVICE static void send("
        return [
            *super().load_function(),
            "",
            f"{head}const Args& a, Index row, Index column, Operands<N>& x) {{",
            *(f"    {line}" for line in self.coordinate_lines([access for _, access in accesses])),
            *(f"    kw::send<N>(x.{name}, {self.address(access)});" for name, access in accesses),
            "}",
        ]


def ring_configs(kernel: Kernel, device: Device) -> Sequence[reduce_ring.Config]:
    """A clerk has room for few values of a row."""
    found = reduce_ring.configs(work_of_rows(kernel), device) if reduces(kernel) else ()
    if any(config.clerks for config in found) and RingWriter(kernel).row_bytes > reduce_ring.ROW_BYTES:
        return [config for config in found if not config.clerks]
    return found


def ring_cost_us(choice: reduce_ring.Config, kernel: Kernel, device: Device) -> float:
    return reduce_ring.cost_us(choice, work_of_rows(kernel), device)


def ring_extra(kernel: Kernel, choice: reduce_ring.Config) -> Extra:
    return scratch_of(kernel, reduce_ring.workspace_bytes(choice, work_of_rows(kernel)))


def ring_source(kernel: Kernel, choice: reduce_ring.Config) -> Source:
    shared_bytes = reduce_ring.shared_bytes(choice, work_of_rows(kernel))
    return source_of_rows("reduce_ring", kernel, choice, RingWriter(kernel), shared_bytes, ring_extra(kernel, choice))


TEMPLATES = (
    Template(
        name="reduce_ring",
        target="cuda",
        headers=(*HEADERS, "reduce_woven", "reduce_ring"),
        types=(reduce_ring.Config,),
        configs=ring_configs,
        cost_us=ring_cost_us,
        floor_us=reduce_floor_us,
        source=ring_source,
        extra=ring_extra,
    ),
)
