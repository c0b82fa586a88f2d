"""What a problem takes of a GPU's memory comes in; it goes on when so much is not promised to others.

Problems that are judged side by side share one memory, and none sees what the next is about to take. So each has a file
with the bytes that were promised to it, locked for as long as its process lives: a file without a lock is a dead one's.
Whoever waits holds the queue meanwhile; those behind it wait even if they would fit, or a large one would never run.
What takes little passes by: it is soon gone.

A promise is asked for while no turn at the device is held (`turns.py`), and all at once: whoever waits for memory has
neither a turn nor memory that another could be waiting for.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.ir.nodes import Const, Graph, Input, Iota, Item, Node, Opaque, Param, Reduce, Scan, Table, View
from kernelwright.judge.memory import CONTEXT_BYTES, Footprint, full_bytes, least_bytes, rows_bytes, tuning_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ledger", "Promises", "footprint_of", "wanted_bytes"]

MARGIN = 16  # one byte in so many stays with the driver, and with contexts of processes between two phases
COMFORT = 3  # what takes more than one byte in so many is judged with less
LITTLE = 16  # what takes less than one byte in so many does not queue
SLACK = 16  # one byte in so many for what an estimate leaves out
LOOK_EVERY_S = 0.1
WIDTH = 20  # digits of a promise: a file is always written whole


class Ledger:
    """The promises of one GPU's memory; this process's own is one of them."""

    def __init__(self, folder: Path, device: str, total_bytes: int) -> None:
        name = device.replace(":", "-")
        self.capacity = total_bytes - total_bytes // MARGIN
        self._folder = folder / f"{name}.memory"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._queue, self._book = (
            os.open(folder / f"{name}.{what}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            for what in ("queue", "book")
        )
        self._own: int | None = None
        self._path = self._folder / f"{os.getpid()}-{id(self):x}"

    def reserve(self, wanted: int) -> int:
        """Wait until so many bytes are promised to us, in place of what was; no more than there are in all."""
        granted = min(wanted, self.capacity)
        self.shrink(CONTEXT_BYTES)  # before waiting: two that both wanted more would wait for each other
        with contextlib.nullcontext() if granted < self.capacity // LITTLE else locked(self._queue):
            while not self._written_if_it_fits(granted):
                time.sleep(LOOK_EVERY_S)
        return granted

    def _written_if_it_fits(self, granted: int) -> bool:
        with locked(self._book):
            fits = self._promised_to_others() <= max(0, self.capacity - granted) or self._nobody_else()
            if fits:
                self._write(granted)
        return fits

    def shrink(self, most: int) -> None:
        """Keep so much, if it is less than what we have."""
        if self._own is not None and most < int(os.pread(self._own, WIDTH, 0)):
            self._write(most)

    def close(self) -> None:
        """Give everything back."""
        if self._own is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._own)
            self._own = None
        for file in (self._queue, self._book):
            os.close(file)

    def _write(self, promised: int) -> None:
        if self._own is None:
            # Under the book's lock, as reading is: a file is never seen between being made and being locked.
            self._own = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._own, fcntl.LOCK_EX)
        os.pwrite(self._own, f"{promised:0{WIDTH}}".encode(), 0)

    def _promised_to_others(self) -> int:
        return sum(self._others())

    def _nobody_else(self) -> bool:
        """Whether the others have no more than their contexts: what wants everything then gets what there is."""
        return all(promised <= CONTEXT_BYTES for promised in self._others())

    def _others(self) -> Iterator[int]:
        for path in self._folder.iterdir():
            if path == self._path:
                continue
            with contextlib.suppress(FileNotFoundError):
                yield self._alive(path)

    def _alive(self, path: Path) -> int:
        """What is promised to its owner; nothing, and the file goes, if that is dead."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.pread(file, WIDTH, 0) or 0)
        else:
            path.unlink(missing_ok=True)
            return 0
        finally:
            os.close(file)


@contextlib.contextmanager
def locked(file: int) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


class Promises:
    """One problem's memory on the GPU, phase by phase. `alone`: all there is, whatever it needs. `idle`: nothing of it
    is used while the candidate is built, so that others may have it meanwhile."""

    def __init__(self, ledger: Ledger, *, alone: bool, idle: bool = False) -> None:
        self._ledger = ledger
        self._alone = alone
        self._idle = idle
        self._footprint: Footprint | None = None
        self._wanted = 0
        self._lent = False

    def reserve(self, phase: str, graph: Graph) -> int:
        """Bytes that tuning or judging may take; waits for them."""
        self._footprint = footprint_of(graph)
        capacity = self._ledger.capacity
        wanted = wanted_bytes(phase, self._footprint, capacity, by_rows=looks_cut_by_rows(graph))
        self._wanted = self._ledger.reserve(capacity if self._alone else wanted)
        return self._wanted

    def enter(self, phase: str) -> None:
        """A problem that turns out to be judged some rows at a time gives the rest back; while one is built, all."""
        if self._footprint is None or self._alone:
            return
        if phase.endswith("by rows"):
            self._wanted = rows_bytes(self._footprint)
            self._ledger.shrink(self._wanted)
        if phase.startswith("build") and self._idle and self._footprint.state <= FEW_WEIGHTS:
            self._ledger.shrink(CONTEXT_BYTES)
            self._lent = True
        elif self._lent:
            self._ledger.reserve(self._wanted)
            self._lent = False

    def release(self) -> None:
        self._ledger.shrink(CONTEXT_BYTES)


def wanted_bytes(phase: str, footprint: Footprint, capacity: int, *, by_rows: bool) -> int:
    """What a phase is given: for judging everything, unless that is much of what there is."""
    if phase == "tune":
        return tuning_bytes(footprint)
    full = full_bytes(footprint)
    if full > capacity // COMFORT:
        full = rows_bytes(footprint) if by_rows else max(least_bytes(footprint), capacity // COMFORT)
    return full + full // SLACK


def looks_cut_by_rows(graph: Graph) -> bool:
    """Whether a row of the output should need no more than that row of the inputs. The judge finds out; what turns out
    otherwise, and has too little memory, is run again with the device to itself."""
    shapes = [node.shape for node in (*graph.inputs[:1], *graph.outputs)]
    alike = not graph.updates and all(shape and shape[0] == shapes[0][0] for shape in shapes)
    return alike and not any(
        isinstance(node, (Reduce, Scan)) and 0 in node.axes and node.x.shape[0] == shapes[0][0]
        for node in graph.nodes()
    )


def footprint_of(graph: Graph) -> Footprint:
    """Of a call of the original: each operator's result is written, and lives until it was used for the last time."""
    nodes = graph.nodes()
    outputs = sum(node.nbytes for node in graph.outputs)
    return Footprint(
        inputs=sum(node.nbytes for node in graph.inputs),
        outputs=outputs,
        state=sum(node.nbytes for node in nodes if isinstance(node, (Param, Table))),
        between=max(0, most_alive(nodes) - outputs),
    )


def most_alive(nodes: tuple[Node, ...]) -> int:
    """The most bytes that results take together, freed after their last use; outputs live to the end."""
    last: dict[Node, int] = {}
    for place, node in enumerate(nodes):
        for operand in node.operands:
            last[written(operand)] = place
    dying: dict[int, int] = {}
    alive = most = 0
    for place, node in enumerate(nodes):
        if written(node) is node and not isinstance(node, GIVEN):
            alive += result_bytes(node)
            most = max(most, alive)
            if node in last:
                dying[last[node]] = dying.get(last[node], 0) + result_bytes(node)
        alive -= dying.pop(place, 0)
    return most


# Bytes of weights that a context's promise covers.
FEW_WEIGHTS = 64 << 20

GIVEN = (Input, Param, Const, Table, Iota)


def written(node: Node) -> Node:
    """Where the elements lie: a view has none of its own, nor has one of several results."""
    while isinstance(node, (View, Item)):
        (node,) = node.operands
    return node


def result_bytes(node: Node) -> int:
    """Of all its results: an operator of PyTorch's may have several."""
    if not isinstance(node, Opaque):
        return node.nbytes
    return sum(math.prod(result.shape) * result.dtype.itemsize for result in node.results if result is not None)
