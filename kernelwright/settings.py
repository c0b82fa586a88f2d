"""Every knob of kernelwright as a typed field of one frozen value, made from the environment by one function."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import UsageError

__all__ = ["Settings", "read_settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says.

    cache_dir          built binaries, tuning results: KERNELWRIGHT_CACHE_DIR, else $XDG_CACHE_HOME/kernelwright,
                       else ~/.cache/kernelwright
    jobs               compilers at a time: KERNELWRIGHT_JOBS, else MAX_JOBS (PyTorch's name), else the cores we may use
    cuda_home          CUDA_HOME or CUDA_PATH if set; device code is built with the toolkit there
    search_path        PATH: where compilers and ninja are looked for
    cxx                CXX if set: the C++ compiler to use
    build_timeout_s    a compiler that runs longer is stopped: KERNELWRIGHT_BUILD_TIMEOUT
    compiler_variables what compilers themselves read (NVCC_CCBIN, CPATH ...), for processes that build elsewhere
    """

    cache_dir: Path
    jobs: int
    cuda_home: Path | None
    search_path: str
    cxx: str | None
    build_timeout_s: float
    compiler_variables: tuple[tuple[str, str], ...] = ()


# Without these a compiler may not find its own parts: its host compiler, its headers, its libraries.
COMPILER_VARIABLES = (
    *("CC", "CUDAHOSTCXX", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "GCC_EXEC_PREFIX", "COMPILER_PATH"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings `environ` asks for; the process's own environment when it is None.

    The only function in the package that reads os.environ.
    """
    env = os.environ if environ is None else environ
    return Settings(
        cache_dir=_cache_dir(env),
        jobs=_positive_int(env, "KERNELWRIGHT_JOBS") or _positive_int(env, "MAX_JOBS") or _usable_cores(),
        cuda_home=_path(env, "CUDA_HOME") or _path(env, "CUDA_PATH"),
        search_path=env.get("PATH", os.defpath),
        cxx=env.get("CXX") or None,
        build_timeout_s=float(_positive_int(env, "KERNELWRIGHT_BUILD_TIMEOUT") or 600),
        compiler_variables=tuple((name, env[name]) for name in COMPILER_VARIABLES if env.get(name)),
    )


def _cache_dir(env: Mapping[str, str]) -> Path:
    if chosen := _path(env, "KERNELWRIGHT_CACHE_DIR"):
        return chosen
    # The XDG specification: a relative XDG_CACHE_HOME is to be ignored.
    base = _path(env, "XDG_CACHE_HOME")
    if base is None or not base.is_absolute():
        home = _path(env, "HOME") or Path.home()
        base = home / ".cache"
    return base / "kernelwright"


def _path(env: Mapping[str, str], name: str) -> Path | None:
    value = env.get(name, "")
    return Path(value).expanduser() if value else None


def _positive_int(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(
            f"{value!r} is not a positive whole number.", where=name, cure=f"Unset {name} or set it to 1 or more."
        )
    return int(value)


def _usable_cores() -> int:
    """Cores this process may run on: fewer than the machine has inside a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
