"""A `Kernel` whose rows pass through a ring comes in; its C++ goes out.

The struct is that of `generate/woven.py`, which also says how a vector's operands are copied to shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.literals import camel, identifier, names_in
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import config_struct, reduce_floor_us, reduces, row_formula, scratch_of, work_of_rows
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS, WovenWriter
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
    work = work_of_rows(kernel)
    writer = RingWriter(kernel)
    name, formula = camel(kernel.name), row_formula(kernel.region, writer.phases)
    scratch = ring_extra(kernel, choice).scratch
    sizes = {"threads": choice.threads, "lanes": choice.lanes, "team": choice.threads, "vectors": choice.vectors}
    sizes |= {"ahead": choice.ahead, "step": choice.step, "blocks": choice.blocks}
    sizes |= {
        "together": choice.together,
        "each": choice.each,
        "holds": choice.holds,
        "clerks": choice.clerks,
    }
    memory = {
        "shared_bytes": reduce_ring.shared_bytes(choice, work),
        "workspace_bytes": sum(b.nbytes for b in scratch),
    }
    struct = writer.struct(name, formula) + "\n\n" + config_struct(f"{name}Config", sizes, memory)
    workspace = identifier(scratch[0].name) if scratch else "nullptr"
    call = f"kw::reduce_ring<{name}, {name}Config>({{{', '.join(writer.arguments)}}}, {workspace}, stream)"
    needs = tuple(sorted({*names_in(struct), "reduce_ring", "OnDevice"}))
    return Source(kernel, work, choice, formula, struct, "reduce_ring", call, needs)


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
