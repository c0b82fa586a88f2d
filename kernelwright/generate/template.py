"""What generate must know of a template: which configs can run a kernel, their cost, its text, the memory it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.device import Device
from kernelwright.generate.program import Source
from kernelwright.kernels.choices import Choice
from kernelwright.plan import Buffer, Kernel


@dataclass(frozen=True, slots=True)
class Extra:
    """Buffers of a launch beside those its region loads and stores: what it reads, and scratch memory for the call."""

    reads: tuple[Buffer, ...] = ()
    scratch: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A row of the table that generate and the tuner work from; a choice belongs to the row that has its type.

    name      as in Source.template
    target    "cuda" or "cpu"
    headers   its files in kernels/<target>/, each after what it needs; a program carries the parts that it uses
    types     of its configs
    configs   those that can run the kernel on the device, the most promising first; none where it is not made for it
    cost_us   what a config is expected to take
    floor_us  what no kernel of this arithmetic and these bytes can beat
    source    the kernel as text
    extra     the buffers it wants beside those of the region
    """

    name: str
    target: str
    headers: tuple[str, ...]
    types: tuple[type[Any], ...]
    configs: Callable[[Kernel, Device], Sequence[Choice]]
    cost_us: Callable[[Any, Kernel, Device], float]
    floor_us: Callable[[Kernel, Device], float]
    source: Callable[[Kernel, Any], Source]
    extra: Callable[[Kernel, Any], Extra]
