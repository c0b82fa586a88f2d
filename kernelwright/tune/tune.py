"""A `Plan`, a device and a budget come in; the fastest config of each kernel goes out, measured or remembered."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path

from kernelwright import kernels
from kernelwright.device import Device
from kernelwright.generate import default_choices
from kernelwright.generate.grid import grid_of, work_of
from kernelwright.generate.pointwise import pointwise_source
from kernelwright.kernels.pointwise import Choice, Config, CpuConfig, TileConfig, Work, configs, floor_us
from kernelwright.plan import Kernel, Plan
from kernelwright.settings import Settings
from kernelwright.tune.measure import measure
from kernelwright.tune.store import TuningKey, TuningStore, tuning_store

# Configs of one kernel that are worth compiling: the cost model ranks all, and the best is among its first few.
SHORT_LIST = 6

# Below this many bytes a kernel takes as long as its launch, whatever its config.
NOT_WORTH_TUNING_BYTES = 2_000_000

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen for one kernel, and how: its time, its floor, and whether it was measured now or before."""

    kernel: str
    choice: Choice
    median_us: float | None
    floor_us: float
    origin: str  # "measured", "remembered", "model"
    tried: int


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
    work = work_of(kernel.region, grid_of(kernel.region, device.kind))
    floor = floor_us(work, device)
    small = work.bytes_moved < NOT_WORTH_TUNING_BYTES
    if not device.present or small or work.size == 0 or time.monotonic() > deadline:
        return Tuned(kernel.name, default, None, floor, "model", 0)
    key = tuning_key(kernel, device)
    known = store.get(key)
    if known is not None:
        return Tuned(kernel.name, read_choice(known.config), known.median_us, floor, "remembered", 0)
    trials = measure(kernel, short_list(work, device), device, settings)
    if not trials:
        return Tuned(kernel.name, default, None, floor, "model", 0)
    best = min(trials, key=lambda trial: trial.median_us)
    store.put(key, json.dumps(asdict(best.choice), sort_keys=True), best.median_us)
    return Tuned(kernel.name, best.choice, best.median_us, floor, "measured", len(trials))


def short_list(work: Work, device: Device) -> Sequence[Choice]:
    """The model cannot tell lanes and vectors apart well: the list differs in those before it differs in threads."""
    spread: dict[Choice, Choice] = {}
    for config in configs(work, device):
        spread.setdefault(replace(config, threads=0) if not isinstance(config, CpuConfig) else config, config)
    return list(spread.values())[:SHORT_LIST]


def tuning_key(kernel: Kernel, device: Device) -> TuningKey:
    """The struct's text says everything about a kernel: its body, shape, strides and types."""
    grid = grid_of(kernel.region, device.kind)
    struct = pointwise_source(kernel, configs(work_of(kernel.region, grid), device)[0]).struct
    return TuningKey(digest(struct), f"{grid.rows}x{grid.columns}", device.name, digest(template_text(device)))


def template_text(device: Device) -> str:
    """The templates a config may belong to: a changed one is measured again."""
    folder = Path(kernels.__file__).parent / device.kind
    return "".join(path.read_text() for path in sorted(folder.glob("pointwise*")))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def read_choice(text: str) -> Choice:
    fields = json.loads(text)
    kinds: tuple[type[Choice], ...] = (Config, TileConfig, CpuConfig)
    kind = next(kind for kind in kinds if set(fields) == {f.name for f in dataclass_fields(kind)})
    return kind(**fields)


