"""A `Kernel` of windows that overlap comes in; its C++, which loads what neighbouring windows see once, goes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from kernelwright.device import Device
from kernelwright.generate.grid import Bound
from kernelwright.generate.literals import camel, names_in
from kernelwright.generate.pointwise import sum_of
from kernelwright.generate.program import Source
from kernelwright.generate.reduce import RowsWriter, config_struct, reduces, row_formula, state_bytes, work_of_rows
from kernelwright.generate.rows import RowAccess
from kernelwright.generate.template import Extra, Template
from kernelwright.generate.woven import HEADERS
from kernelwright.kernels import reduce_sliding
from kernelwright.kernels.reduce_sliding import WORD_BYTES, Config, Sliding
from kernelwright.plan import Kernel, Region


class SlidingWriter(RowsWriter):
    """The struct of a region of windows: see kernels/cuda/reduce_sliding.cuh for how it is run."""

    def __init__(self, kernel: Kernel, sliding: Sliding) -> None:
        super().__init__(kernel)
        self.sliding = sliding

    def state_members(self, phase: int, names: Sequence[str]) -> list[str]:
        lanes = ", ".join(f"{name}.lane(i)" for name in names)
        return [f"KW_DEVICE State<{phase}, 1> lane(int i) const {{ return {{{lanes}}}; }}"]

    def members(self) -> list[str]:
        return [*super().members(), "", *(f"    {line}" for line in self.run_functions())]

    def run_functions(self) -> list[str]:
        (name,) = self.early
        access, s = self.access(name), self.sliding
        storage = access.layout.buffer.dtype.storage_cpp
        last = parting(access)
        inside = " && ".join(self.bound_text(b, "") for b in access.bounds if b is not last) or "true"
        place = self.place_text(last, "") if last else sum_of(self.scaled(self.coordinates()[-1], s.step))
        extent = last.extent if last else whole_extent(self)
        lead = f" - {s.lead}" if s.lead else ""
        at = f"a.{self.pointers[access.layout.buffer.name][1]} + ({sum_of(self.terms(access, ''))}{lead})"
        reach = s.lead + (s.places - 1) * s.apart + 1
        run = f"({reach} + (N - 1) * {s.step} + {s.word - 1}) / {s.word} * {s.word}"
        lanes = f"x.{name}[i] = run[{s.lead} + i * {s.step} + place * {s.apart}];"
        return [
            f"static constexpr int places = {s.places};",
            f"template <int N> using Run = kw::Vec<{storage}, {run}>;",
            "template <int N> KW_DEVICE static Run<N> run(const Args& a, Index row, Index column) {",
            *(f"    {line}" for line in self.coordinate_lines([access])),
            *([] if last or self.coordinates()[-1] in self.text_of(access) else self.last_coordinate()),
            f"    return kw::load_run<{run}, {s.word}>({at}, {inside}, Index({place}{lead}), Index({extent}),",
            f"                        {self.border(access) if access.bounds else f'{storage}(0)'});",
            "}",
            "template <int N> KW_DEVICE static Operands<N> seen(const Run<N>& run, int place) {",
            "    Operands<N> x;",
            f"    KW_LANES for (int i = 0; i < N; ++i) {lanes}",
            "    return x;",
            "}",
        ]

    def text_of(self, access: RowAccess) -> str:
        return " ".join(self.coordinate_lines([access]))

    def last_coordinate(self) -> list[str]:
        """The number of a window in its line, where no address needs it."""
        name = self.coordinates()[-1]
        return [] if name == "row" else [f"    const Index {name} = row % {self.grid.outer[-1]};"]


def parting(access: RowAccess) -> Bound | None:
    """The bound along the line that the lanes lie in."""
    found = [bound for bound in access.bounds if bound.strides[len(access.outer) - 1]]
    return found[0] if len(found) == 1 else None


def whole_extent(writer: RowsWriter) -> int:
    """Of a line that no window leaves: as far as whole words reach that some window sees."""
    word = WORD_BYTES // writer.access(writer.early[0]).layout.buffer.dtype.itemsize
    return math.ceil(seen_extent(writer) / word) * word


def seen_extent(writer: RowsWriter) -> int:
    access = writer.access(writer.early[0])
    return (writer.grid.outer[-1] - 1) * access.inner + (writer.grid.reduced[-1] - 1) * access.reduced[-1] + 1


def sliding_of(kernel: Kernel) -> Sliding | None:
    """What a kernel of overlapping windows is to the template; None if it is of another kind, or its lines of memory do
    not start and end where words do."""
    return sliding_in(kernel.region, tuple(sorted(kernel.writes_over.items()))) if reduces(kernel) else None


@lru_cache(maxsize=256)  # asked for once a config
def sliding_in(region: Region, written_over: tuple[tuple[str, str], ...]) -> Sliding | None:
    writer = RowsWriter(Kernel("", region, dict(written_over)))
    grid = writer.grid
    simple = writer.phases.walks == writer.phases.finishing == 1 and not writer.picked and not writer.replaced
    if not (grid.across and simple and len(writer.early) == 1 and not writer.late and not writer.of_row):
        return None
    access = writer.access(writer.early[0])
    step, apart, word = access.inner, access.reduced[-1], WORD_BYTES // access.layout.buffer.dtype.itemsize
    if access.is_computed or step < 1 or apart < 1 or not lies_in_words(writer, access, word):
        return None
    last = parting(access)
    if last is None and not grid.wide_index and whole_extent(writer) >= 2**31:
        return None
    return Sliding(
        results=grid.rows,
        line=grid.line,
        lines=grid.columns // grid.reduced[-1],
        places=grid.reduced[-1],
        apart=apart,
        step=step,
        lead=(last.offset if last else access.offset) % word,
        itemsize=access.layout.buffer.dtype.itemsize,
        state_bytes=state_bytes(writer.phases.reduced_in(0)),
        bytes_moved=region.bytes_moved,
    )


def lies_in_words(writer: RowsWriter, access: RowAccess, word: int) -> bool:
    """Whether the lines of memory that windows slide along start and end where words of 16 bytes do."""
    others = (*access.outer[:-1], *access.reduced[:-1])
    if any(stride % word for stride in others):
        return False
    kept, last = len(access.outer), parting(access)
    along = [bound for bound in access.bounds if bound.strides[kept - 1] or bound.strides[-1]]
    if last is not None:
        sliding = [0] * len(last.strides)
        sliding[kept - 1], sliding[-1] = access.inner, access.reduced[-1]
        ends = last.extent % word == 0 and (access.offset - last.offset) % word == 0
        return along == [last] and last.strides == tuple(sliding) and ends
    if along or access.offset % word:
        return False
    extent = whole_extent(writer)
    return extent == seen_extent(writer) or (not access.bounds and extent <= room_of_line(writer, access))


def room_of_line(writer: RowsWriter, access: RowAccess) -> int:
    """How far a line may be read: to the next one, and to the end of the buffer."""
    extents = (*writer.grid.outer[:-1], *writer.grid.reduced[:-1])
    strides = (*access.outer[:-1], *access.reduced[:-1])
    last = access.offset + sum((n - 1) * stride for n, stride in zip(extents, strides, strict=True))
    return min([*(abs(stride) for stride in strides if stride), math.prod(access.layout.buffer.shape) - last])


def sliding_configs(kernel: Kernel, device: Device) -> Sequence[Config]:
    sliding = sliding_of(kernel)
    return reduce_sliding.configs(sliding, device) if sliding is not None else ()


def known(kernel: Kernel) -> Sliding:
    sliding = sliding_of(kernel)
    assert sliding is not None, "a kernel that has configs"
    return sliding


def sliding_cost_us(choice: Config, kernel: Kernel, device: Device) -> float:
    return reduce_sliding.cost_us(choice, known(kernel), device)


def sliding_floor_us(kernel: Kernel, device: Device) -> float:
    return reduce_sliding.floor_us(known(kernel), device)


def sliding_source(kernel: Kernel, choice: Config) -> Source:
    writer = SlidingWriter(kernel, known(kernel))
    name, formula = camel(kernel.name), row_formula(kernel.region, writer.phases)
    sizes = {"threads": choice.threads, "lanes": choice.lanes, "vectors": choice.vectors}
    alone = {"team": 1, "blocks": 1, "beside": 4}  # of operands that are off their alignment
    struct = writer.struct(name, formula) + "\n\n" + config_struct(f"{name}Config", {**sizes, **alone}, {})
    call = f"kw::reduce_sliding<{name}, {name}Config>({{{', '.join(writer.arguments)}}}, stream)"
    needs = tuple(sorted({*names_in(struct), "reduce_sliding", "OnDevice"}))
    return Source(kernel, work_of_rows(kernel), choice, formula, struct, "reduce_sliding", call, needs)


def sliding_extra(kernel: Kernel, choice: Config) -> Extra:
    return Extra()


TEMPLATES = (
    Template(
        name="reduce_sliding",
        target="cuda",
        headers=(*HEADERS, "reduce_sliding"),
        types=(Config,),
        configs=sliding_configs,
        cost_us=sliding_cost_us,
        floor_us=sliding_floor_us,
        source=sliding_source,
        extra=sliding_extra,
    ),
)
