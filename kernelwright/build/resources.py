"""What each kernel of a binary uses of an SM, read from what ptxas said while making it."""

import re
from dataclasses import dataclass

__all__ = ["KernelResources", "read_resources"]


@dataclass(frozen=True, slots=True)
class KernelResources:
    """name         as in the binary: mangled, unless extern "C"
    smem_bytes   static shared memory; dynamic shared memory is the launch's
    stack_bytes  local memory of a thread: arrays that did not fit registers, and spills
    """

    name: str
    registers: int
    smem_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spills(self) -> bool:
        """Whether registers went to memory for lack of room."""
        return self.spill_store_bytes > 0 or self.spill_load_bytes > 0


ENTRY = re.compile(r"Compiling entry function '([^']+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SMEM = re.compile(r"(\d+) bytes smem")


def read_resources(log: str) -> tuple[KernelResources, ...]:
    """One row for each kernel in the output of `ptxas -v`, in its order."""
    _, *named = ENTRY.split(log)  # what stands before the first kernel, then name, text, name, text, ...
    return tuple(_read_one(name, said) for name, said in zip(named[::2], named[1::2], strict=True))


def _read_one(name: str, said: str) -> KernelResources:
    # A kernel that calls functions is followed by their properties too; its own come first.
    stack = STACK.search(said)
    frame, stores, loads = (int(number) for number in stack.groups()) if stack else (0, 0, 0)
    registers, smem = REGISTERS.search(said), SMEM.search(said)
    return KernelResources(
        name=name,
        registers=int(registers[1]) if registers else 0,
        smem_bytes=int(smem[1]) if smem else 0,
        stack_bytes=frame,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
    )
