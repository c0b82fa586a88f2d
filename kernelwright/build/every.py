"""Builds for any device, one source or many at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kernelwright.build.cpu import build_cpu_library
from kernelwright.build.cuda import build_cuda_library
from kernelwright.device import Device
from kernelwright.errors import BuildError
from kernelwright.settings import Settings, read_settings

__all__ = ["build", "build_all"]

T = TypeVar("T")


def build(source: str, device: Device, settings: Settings | None = None) -> Path:
    """The shared library of `source` for `device`."""
    if device.kind == "cpu":
        return build_cpu_library(source, settings)
    return build_cuda_library(source, device.arch, settings)


def build_all(jobs: Sequence[Callable[[], T]], settings: Settings | None = None) -> tuple[T | BuildError, ...]:
    """What each job gives, in order; a source its compiler rejected gives the BuildError, and the others go on.

    `jobs` are calls waiting to be made: `partial(build_cuda_library, source, "sm_90a")`. Every compiler is
    a process of its own, so threads are enough to keep all cores busy.
    """
    settings = settings or read_settings()
    with ThreadPoolExecutor(max_workers=settings.jobs, thread_name_prefix="build") as pool:
        return tuple(pool.map(_attempt, jobs))


def _attempt(job: Callable[[], T]) -> T | BuildError:
    try:
        return job()
    except BuildError as error:
        return error
