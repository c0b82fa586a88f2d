"""A `Plan`, a device and a budget come in; the fastest config of each kernel goes out, measured or remembered."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from kernelwright import kernels
from kernelwright.device import Device
from kernelwright.generate import default_choices
from kernelwright.generate.generate import TEMPLATES, ranked_choices, source_of, template_of
from kernelwright.generate.twins import nameless
from kernelwright.kernels import conv_sm90_kept, gemm_sm90, reduce
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.pointwise import BrickConfig, Config, TileConfig
from kernelwright.plan import Convolution, Kernel, Plan
from kernelwright.settings import Settings
from kernelwright.tune.ceiling import at_measured_speed
from kernelwright.tune.layouts import library_conv_us
from kernelwright.tune.measure import library_us, measure
from kernelwright.tune.store import TuningKey, TuningStore, tuning_store

# Configs of one kernel that are worth compiling: the cost model ranks all, and the best is among its first few.
SHORT_LIST = 6

# A product takes seconds to compile, and its model is closer; models of different templates less so.
GEMM_SHORT_LIST = 3
MOST_TEMPLATES = 3

# Below this many bytes a kernel takes as long as its launch, whatever its config.
NOT_WORTH_TUNING_BYTES = 2_000_000

Progress = Callable[[str, float], None]
AnyChoice = TypeVar("AnyChoice", bound=Choice)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen for one kernel, and how: its time, its floor, and whether it was measured now or before."""

    kernel: str
    choice: Choice
    median_us: float | None
    floor_us: float
    origin: str  # "measured", "remembered", "model"
    tried: int
    library_us: float | None  # for a product: what PyTorch takes for it and the pass that would follow


def tune(
    plan: Plan, device: Device, budget_s: float, settings: Settings, progress: Progress | None = None
) -> tuple[dict[str, Choice], tuple[Tuned, ...]]:
    """A choice for each kernel. A device that is not here, or a spent budget: what the cost model prefers."""
    choices = default_choices(plan, device)
    store = tuning_store(settings)
    deadline = time.monotonic() + budget_s
    rows = []
    for number, kernel in enumerate(plan.kernels):
        if progress is not None:
            progress(f"tuning {kernel.name}", number / len(plan.kernels))
        row = tune_kernel(kernel, choices[kernel.name], device, store, settings, deadline)
        choices[kernel.name] = row.choice
        rows.append(row)
    return choices, tuple(rows)


def tune_kernel(
    kernel: Kernel, default: Choice, device: Device, store: TuningStore, settings: Settings, deadline: float
) -> Tuned:
    floor = floor_of(kernel, device)
    small = kernel.bytes_moved < NOT_WORTH_TUNING_BYTES and kernel.core is None
    if not device.present or small or 0 in kernel.region.shape or time.monotonic() > deadline:
        return Tuned(kernel.name, default, None, floor, "model", 0, None)
    key = tuning_key(kernel, device)
    known = store.get(key)
    if known is not None:
        choice, library = read_choice(known.config)
        return Tuned(kernel.name, choice, known.median_us, floor, "remembered", 0, library)
    trials = measure(kernel, short_list(kernel, device), device, settings)
    if not trials:
        return Tuned(kernel.name, default, None, floor, "model", 0, None)
    best = min(trials, key=lambda trial: trial.median_us)
    library = library_of(kernel, device)
    store.put(key, choice_text(best.choice, library), best.median_us)
    return Tuned(kernel.name, best.choice, best.median_us, floor, "measured", len(trials), library)


def library_of(kernel: Kernel, device: Device) -> float | None:
    """What PyTorch takes for the core of a kernel and the pass that would follow; None where there is no core."""
    if isinstance(kernel.core, Convolution):
        return library_conv_us(kernel, device)
    return library_us(kernel, device) if kernel.core is not None else None


def floor_of(kernel: Kernel, device: Device) -> float:
    """No kernel that computes and moves this much is faster."""
    here = at_measured_speed(device, kernel.bytes_moved)
    return template_of(ranked_choices(kernel, device)[0]).floor_us(kernel, here)


def short_list(kernel: Kernel, device: Device) -> Sequence[Choice]:
    """The most promising configs. The model cannot tell lanes from vectors well: they differ before threads do.

    Nor what a row costs that is read again: each way to keep it, and each number of blocks to share it, comes once; and
    the best of each template does.
    """
    ranked = ranked_choices(kernel, device)
    if kernel.core is not None:
        return best_of_each(ranked) if device.kind == "cuda" else ranked[:SHORT_LIST]
    spread: dict[Choice, Choice] = {}
    for config in ranked:
        if isinstance(config, reduce.Config):
            alike: Choice = replace(config, threads=0, team=0, vectors=0)
        else:
            alike = replace(config, threads=0) if isinstance(config, (Config, TileConfig, BrickConfig)) else config
        spread.setdefault(alike, config)
    first = first_of_each_template(list(spread.values()))
    few = list(spread.values())[: SHORT_LIST + 1 - len(first)]
    return list(dict.fromkeys([*few, *first, *spread.values()]))[:SHORT_LIST]


def best_of_each(ranked: Sequence[Choice]) -> list[Choice]:
    """The first few of all, and the first of every other template that is among the most promising; of convolutions
    that keep their weights, the first of each kind, whose prices are least sure beside each other's; of products whose
    results the copy engine takes, the first as its threads would store it; and of those whose W is packed beside them,
    the first for each who may pack, and one that leaves them nothing."""
    few = first_of_each(ranked, lambda c: replace(c, sent=0, stages=0) if isinstance(c, conv_sm90_kept.Config) else c)
    templates = first_of_each_template(ranked)[:MOST_TEMPLATES]
    kept = [c for c in ranked if isinstance(c, conv_sm90_kept.Config)]
    kinds = first_of_each(kept, kind_of_kept) if {*kept} & {*templates} else []
    sent = [c for c in ranked if isinstance(c, gemm_sm90.Config) and c.sent]
    ways: list[Choice] = [replace(gemm_sm90.packed_before(c), sent=False) for c in sent[:1]]
    for first in [c for c in sent if c.is_beside][:1]:
        before = gemm_sm90.packed_before(first)
        alike = [c for c in sent if c.is_beside and gemm_sm90.packed_before(c) == before]
        ways += [*first_of_each(alike, lambda c: (c.packers > 0, c.aside > 0)), before]
    return list(dict.fromkeys([*few[:GEMM_SHORT_LIST], *templates, *kinds, *ways]))


def kind_of_kept(config: conv_sm90_kept.Config) -> Hashable:
    return config.sent > 0, config.abreast, config.laps > 1, config.sets, config.streamed > 0


def first_of_each_template(ranked: Sequence[Choice]) -> list[Choice]:
    return first_of_each(ranked, lambda choice: template_of(choice).name)


def first_of_each(ranked: Sequence[AnyChoice], kind_of: Callable[[AnyChoice], Hashable]) -> list[AnyChoice]:
    first: dict[Hashable, AnyChoice] = {}
    for choice in ranked:
        first.setdefault(kind_of(choice), choice)
    return list(first.values())


def tuning_key(kernel: Kernel, device: Device) -> TuningKey:
    """The struct's text says everything about a kernel: its body, shape, strides and types; its names say nothing."""
    struct = nameless(source_of(kernel, ranked_choices(kernel, device)[0]))
    shape = "x".join(map(str, kernel.region.shape))
    return TuningKey(digest(struct), shape, device.name, digest(template_text(device)))


def template_text(device: Device) -> str:
    """The templates a config may belong to: a changed one is measured again."""
    folder = Path(kernels.__file__).parent / device.kind
    return "".join(path.read_text() for path in sorted(folder.glob("*.[ch]*")))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def choice_text(choice: Choice, library: float | None) -> str:
    """A choice and the library's time as JSON, for the store."""
    row = {"type": type_name(type(choice)), "config": asdict(choice), "library_us": library}
    return json.dumps(row, sort_keys=True)


def read_choice(text: str) -> tuple[Choice, float | None]:
    row = json.loads(text)
    kinds: dict[str, type[Choice]] = {type_name(kind): kind for template in TEMPLATES for kind in template.types}
    return kinds[row["type"]](**row["config"]), row["library_us"]


def type_name(kind: type[Choice]) -> str:
    """gemm_sm90.Config, pointwise.TileConfig"""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
