"""CUDA text comes in; a library of it for the host, loaded and ready to be called on CPU tensors, goes out."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import kernelwright
from kernelwright.build.cache import content_key
from kernelwright.build.toolchain import find_cxx
from kernelwright.settings import read_settings
from tests.emulator.source import host_source

HOST = Path(__file__).parent / "host"
HEADERS = Path(kernelwright.__file__).parent / "kernels" / "cuda"
BEGINNING = "cuda_on_host.hpp"
MACHINE_SOURCES = ("machine.cpp", "memory.cpp", "ptx.cpp", "asynchronous.cpp")

# -fsanitize without the sanitizers' libraries: host/memory.cpp answers the calls. What is not in PTX is not contracted.
MACHINE_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fno-gnu-unique")
KERNEL_FLAGS = (
    *("-std=c++20", "-Og", "-g1", "-w", "-fPIC", "-fno-gnu-unique", "-fvisibility-inlines-hidden"),
    *("-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-fno-threadsafe-statics"),
    *("-fsanitize=thread,alignment,bounds", "--param=tsan-instrument-func-entry-exit=0"),
    *("--param=tsan-distinguish-volatile=1",),
)
TIMEOUT_S = 300.0

# "at /tmp/.../kernel.so+0x1234": what a fault says of the place in the program.
PLACE = re.compile(r"\n  at (?P<library>\S+)\+(?P<offset>0x[0-9a-f]+)")


class EmulatedFault(AssertionError):
    """A kernel did what no kernel may: touched memory that is not its own, raced, or waited for ever."""


class NotBuilt(AssertionError):
    """g++ did not take the program."""


def folder() -> Path:
    """Finished builds by content, kept between test runs."""
    return Path(tempfile.gettempdir()) / f"kernelwright-emulator-{os.getuid()}"


def g_plus_plus() -> str | None:
    """The compiler, if it is a g++: the emulator relies on the calls that its sanitizers make."""
    found = find_cxx(read_settings())
    return found.command[0] if found.family == "gcc" else None


def machine_key() -> str:
    texts = [path.read_text() for path in sorted(HOST.iterdir())]
    return content_key(*MACHINE_FLAGS, find_cxx(read_settings()).identity, *texts)


@cache
def kernel_key() -> str:
    """Of all that a kernel is compiled with: not of the machine, which it finds in the process."""
    texts = [path.read_text() for path in sorted(HOST.iterdir()) if path.suffix != ".cpp"]
    rewriting = (Path(__file__).parent / "source.py").read_text()
    return content_key(*KERNEL_FLAGS, find_cxx(read_settings()).identity, rewriting, *texts)


@cache
def machine_path() -> Path:
    def make(private: Path) -> None:
        sources = [str(HOST / name) for name in MACHINE_SOURCES]
        compiled(private, [*MACHINE_FLAGS, "-shared", *sources, "-o", "machine.so"])

    return built(machine_key(), "machine.so", make)


@cache
def machine() -> ctypes.CDLL:
    library = ctypes.CDLL(str(machine_path()), mode=ctypes.RTLD_GLOBAL)
    library.emulator_failure.restype = ctypes.c_char_p
    return library


def headers_key() -> str:
    return hashlib.sha256(
        "".join(path.read_text() for path in sorted(HEADERS.parent.rglob("*.cuh"))).encode()
    ).hexdigest()


def library_of(cuda: str) -> Library:
    """The program, compiled if it has not been. It may include our headers by name: `#include "gemm_simt.cuh"`."""
    includes = re.findall(r'^#include "', cuda, re.MULTILINE)
    key = content_key(kernel_key(), cuda, headers_key() if includes else "")

    def make(private: Path) -> None:
        (private / "kernel.cpp").write_text(f'#include "{BEGINNING}"\n#line 1\n{host_source(cuda)}')
        paths = [f"-I{path}" for path in (host_headers(), *([rewritten_headers()] if includes else []))]
        compiled(private, [*KERNEL_FLAGS, *paths, "-c", "kernel.cpp", "-o", "kernel.o"])
        compiled(private, ["-shared", "kernel.o", "-Wl,-Bsymbolic", "-o", "kernel.so"])

    path = built(key, "kernel.so", make)
    machine()
    return Library(ctypes.CDLL(str(path)), cuda)


@cache
def host_headers() -> Path:
    """CUDA for the host, with the header that every kernel begins with compiled ahead: a fifth of each compilation."""

    def make(private: Path) -> None:
        for path in HOST.iterdir():
            if path.suffix != ".cpp":
                shutil.copy(path, private)
        compiled(private, [*KERNEL_FLAGS, "-x", "c++-header", BEGINNING, "-o", f"{BEGINNING}.gch"])

    return built(content_key("host", kernel_key()), f"{BEGINNING}.gch", make).parent


@cache
def rewritten_headers() -> Path:
    """Our headers with their launches, shared variables and asm rewritten, in the folders they lie in."""

    def make(private: Path) -> None:
        for path in HEADERS.parent.rglob("*.cuh"):
            target = private / path.relative_to(HEADERS.parent)
            target.parent.mkdir(exist_ok=True)
            target.write_text(host_source(path.read_text()))
        (private / "done").touch()

    return built(content_key("headers", headers_key(), kernel_key()), "done", make).parent / "cuda"


def built(key: str, artifact: str, make: Any) -> Path:
    """The artifact of the build `key`; two processes may make it at once, and the first to finish is kept."""
    entry = folder() / key
    if not (entry / artifact).is_file():
        folder().mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder()))
        try:
            make(private)
            if not (entry / artifact).is_file():
                shutil.rmtree(entry, ignore_errors=True)
                private.rename(entry)
        finally:
            shutil.rmtree(private, ignore_errors=True)
    return entry / artifact


def compiled(where: Path, arguments: Sequence[str]) -> None:
    command = [*find_cxx(read_settings()).command, *arguments]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NotBuilt(f"{' '.join(command)}\n{done.stderr[-6000:]}")


# --- calls


@dataclass
class Library:
    """A compiled program. `memory` are tensors that its next call may touch if it gets them: bytes by address."""

    loaded: ctypes.CDLL
    text: str
    memory: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def give(self, tensor: Any) -> int:
        """The address of a tensor that the next call may touch: from its first element to its last."""
        address = int(tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size())
        extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        size = int(extent * tensor.element_size()) if tensor.numel() else 0
        self.memory[address] = max(size, self.memory.get(address, 0))
        return address

    def call(self, entry: str, *arguments: Any) -> int:
        """Runs an entry; a tensor is passed as its address and may be touched, anything else as ctypes takes it."""
        passed = [ctypes.c_void_p(self.give(x)) if hasattr(x, "storage_offset") else x for x in arguments]
        for number, x in enumerate(passed):
            size = self.given_at(x.value) if isinstance(x, ctypes.c_void_p) else None
            if size is not None:
                machine().emulator_register(x, ctypes.c_size_t(size), self.parameter(entry, number).encode())
        self.calls.append(entry)
        try:
            code = int(getattr(self.loaded, entry)(*passed))
        finally:
            machine().emulator_forget_all()
            self.memory.clear()
        failure = machine().emulator_failure()
        if failure is not None:
            raise EmulatedFault(f"{entry}: {self.explained(failure.decode())}")
        return code

    def given_at(self, address: int | None) -> int | None:
        """The bytes of a tensor from an address on, which may be in the middle of it; None if none was given there."""
        if address is None or address in self.memory:
            return self.memory.get(address or 0)
        return next((start + size - address for start, size in self.memory.items() if 0 < address - start < size), None)

    def parameter(self, entry: str, number: int) -> str:
        """What the program calls a parameter of an entry."""
        signature = re.search(rf"\b{entry}\s*\(([^)]*)\)\s*\{{", self.text)
        parameters = signature[1].split(",") if signature else []
        named = re.search(r"(\w+)\s*$", parameters[number]) if number < len(parameters) else None
        return named[1] if named else f"argument {number}"

    def explained(self, failure: str) -> str:
        """A fault with the lines of the program it happened in."""
        place = PLACE.search(failure)
        tool = shutil.which("addr2line")
        if place is None or tool is None:
            return failure
        address = hex(int(place["offset"], 16) - 1)  # the call that returns there
        command = [tool, "-i", "-e", place["library"], address]
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
        return failure[: place.start()] + "".join(f"\n  at {self.line(one)}" for one in lines)

    def line(self, place: str) -> str:
        name, _, number = place.partition(" ")[0].partition(":")
        if Path(name).name != "kernel.cpp" or not number.isdigit():
            return place
        lines = self.text.splitlines()
        return f"line {number}: {lines[int(number) - 1].strip() if int(number) <= len(lines) else ''}"


@contextmanager
def order(
    *, blocks_backwards: bool = False, threads_backwards: bool = False, blocks_at_once: bool = False
) -> Iterator[None]:
    """Blocks, or the threads of a block, from the last to the first; or all blocks that have a multiprocessor each at
    once, as they would run on a GPU: results must not depend on it."""
    machine().emulator_run_backwards(int(blocks_backwards), int(threads_backwards))
    machine().emulator_run_at_once(int(blocks_at_once))
    try:
        yield
    finally:
        machine().emulator_run_backwards(0, 0)
        machine().emulator_run_at_once(0)


@contextmanager
def multiprocessors(count: int) -> Iterator[None]:
    """As many multiprocessors: of kernels that stay, each block then works on several tiles."""
    machine().emulator_set_multiprocessors(count)
    try:
        yield
    finally:
        machine().emulator_set_multiprocessors(132)
