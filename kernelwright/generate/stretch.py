"""A `Kernel` of few long rows, of each of which a block has a stretch, comes in; its C++ goes out."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.device import Device
from kernelwright.generate.literals import camel, identifier, names_in
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import config_struct, reduce_floor_us, reduces, row_formula, scratch_of, work_of_rows
from kernelwright.generate.spread import SpreadWriter
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS
from kernelwright.kernels import reduce_stretch
from kernelwright.plan import Kernel


def stretch_configs(kernel: Kernel, device: Device) -> Sequence[reduce_stretch.Config]:
    if not reduces(kernel):
        return ()
    work = work_of_rows(kernel)
    found = reduce_stretch.configs(work, device)
    row_bytes = SpreadWriter(kernel).row_bytes if found else 0
    return tuple(c for c in found if reduce_stretch.why_not(c, work, device, row_bytes) is None)


def stretch_cost_us(choice: reduce_stretch.Config, kernel: Kernel, device: Device) -> float:
    return reduce_stretch.cost_us(choice, work_of_rows(kernel), device)


def stretch_extra(kernel: Kernel, choice: reduce_stretch.Config) -> Extra:
    return scratch_of(kernel, reduce_stretch.workspace_bytes(choice, work_of_rows(kernel)))


def stretch_source(kernel: Kernel, choice: reduce_stretch.Config) -> Source:
    writer = SpreadWriter(kernel)
    work = work_of_rows(kernel)
    name, formula = camel(kernel.name), row_formula(kernel.region, writer.phases)
    (scratch,) = stretch_extra(kernel, choice).scratch
    sizes = {"threads": choice.threads, "lanes": choice.lanes, "team": choice.threads, "vectors": choice.vectors}
    sizes |= {"blocks": choice.blocks, "together": 1, "stays": choice.stays}
    memory = {"shared_bytes": reduce_stretch.shared_bytes(choice, work), "workspace_bytes": scratch.nbytes}
    struct = writer.struct(name, formula) + "\n\n" + config_struct(f"{name}Config", sizes, memory)
    arguments = f"{{{', '.join(writer.arguments)}}}, {identifier(scratch.name)}, stream"
    call = f"kw::reduce_stretch<{name}, {name}Config>({arguments})"
    needs = tuple(sorted({*names_in(struct), "reduce_stretch", "OnDevice"}))
    return Source(kernel, work, choice, formula, struct, "reduce_stretch", call, needs)


TEMPLATES = (
    Template(
        name="reduce_stretch",
        target="cuda",
        headers=(*HEADERS, "reduce_woven", "reduce_ring", "reduce_stretch"),
        types=(reduce_stretch.Config,),
        configs=stretch_configs,
        cost_us=stretch_cost_us,
        floor_us=reduce_floor_us,
        source=stretch_source,
        extra=stretch_extra,
    ),
)
