"""A model to be run comes in, the candidate's or a baseline's; its outputs and its times, seen from outside, go out.

A contestant runs only while it is its turn: its processes are stopped before the inputs are written, and again the
moment it says that it is done, while the judge reads the outputs from its memory.
"""

import ctypes
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.judge import wire
from kernelwright.judge.channel_cuda import Segments, reset_persisting_cache
from kernelwright.judge.codec import Template, as_real, flatten_arguments, flatten_output
from kernelwright.judge.large import fingerprint
from kernelwright.judge.pool import Placement, Planner, Pool, as_it_lies
from kernelwright.judge.process import Ended, Reply, Worker, printable
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.judge.wire import Fact, Op, Status

__all__ = ["Contestant", "Entry", "Layout", "Sampled", "Shape", "plan_layout"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a worker loads.

    file     in the worker's folder
    entry    the class to construct
    variant  plain, compile, max-autotune or graph
    cuda_means_device  the problem says "cuda" and is judged elsewhere
    """

    file: Path
    entry: str
    variant: str
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    state: tuple[tuple[str, torch.Tensor], ...]
    cuda_means_device: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a call: arguments and the output they should give."""

    arguments: Template
    output: Template
    leaves: tuple[tuple[str, tuple[int, ...]] | None, ...]
    device: torch.device

    @classmethod
    def of(cls, args: tuple[Any, ...], output: Any, device: torch.device) -> "Shape":
        template, _ = flatten_arguments(args)
        wanted, leaves = flatten_output(output)
        specs = tuple((_name(t.dtype), tuple(t.shape)) if isinstance(t, torch.Tensor) else None for t in leaves)
        return cls(template, wanted, specs, device)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where arguments and state lie in a pool; `spare` is one more set of arguments, with gaps between their rows."""

    slots: tuple[tuple[Placement, ...], ...]
    spare: tuple[Placement, ...]
    state_in: tuple[Placement, ...]
    state_out: tuple[Placement, ...]


def plan_layout(
    planner: Planner, tensors: Sequence[torch.Tensor], slots: int, state: Sequence[torch.Tensor], *, spare: bool
) -> Layout:
    return Layout(
        slots=tuple(tuple(planner.place(t, strides=as_it_lies(t)) for t in tensors) for _ in range(slots)),
        spare=tuple(planner.place(t, strides=_gapped(t)) for t in tensors) if spare else (),
        state_in=tuple(planner.place(t) for t in state),
        state_out=tuple(planner.place(t) for t in state),
    )


def _gapped(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides with room behind each row; behind each element of a vector."""
    if tensor.dim() < 2:
        return (2,) * tensor.dim()
    padded = [*tensor.shape[:-1], tensor.shape[-1] + 3]
    return tuple(torch.empty(padded, device="meta").stride())


@dataclass(frozen=True, slots=True)
class Keepsake:
    """An output of an earlier call that the worker still holds, as any caller might: where it lies, what was there."""

    parts: tuple[tuple[tuple[Any, ...], tuple[str, tuple[int, ...]]], ...]
    secret: int
    prints: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Some elements of a tensor, in places that nobody could foresee; all, if there are few."""

    elements: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Sampled":
        flat, entropy = tensor.reshape(-1), torch.Generator()
        entropy.seed()
        few = len(flat) <= SAMPLED
        elements = torch.arange(len(flat)) if few else torch.randint(0, len(flat), (SAMPLED,), generator=entropy)
        return cls(elements, flat[elements])

    def those_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(-1)[self.elements]


class Contestant:
    """A worker with a model in it.

    keepsakes  how many outputs of earlier calls it holds over the next ones; none may change meanwhile
    watched    of the state, the entries that calls change: their places, dtypes and shapes
    idle_limit_s  the longest time without an answer in which no compiler runs
    """

    def __init__(
        self,
        name: str,
        worker: Worker,
        pool: Pool,
        layout: Layout,
        load_limit_s: float,
        call_limit_s: float,
        keepsakes: int = 0,
        watched: Sequence[tuple[int, tuple[str, tuple[int, ...]]]] = (),
    ) -> None:
        self.name = name
        self.worker = worker
        self.pool = pool
        self.layout = layout
        self.load_limit_s = load_limit_s
        self.call_limit_s = call_limit_s
        self.idle_limit_s = math.inf
        self.shape: Shape | None = None
        self.matched = Status.STATE_BY_SEED
        self._segments: Segments | None = Segments() if pool.memory.bytes.is_cuda else None
        self._witnesses: list[Witness] = []
        self._most_kept = keepsakes if self._segments is None else 0
        self._kept: list[Keepsake] = []
        self._called: list[int] = []
        # A GPU's memory is opened to us by the worker, which must run for that: there it is asked for its state.
        self._changed = list(watched[: wire.MAX_BUFFERS])
        self._watched = self._changed if self._segments is None else []
        self.noted: list[dict[int, Sampled]] = []

    @property
    def on_gpu(self) -> bool:
        """Whether the outputs lie in allocations that the worker must open to us."""
        return self._segments is not None

    def load(self, entry: Entry, seed: int, device: torch.device) -> None:
        """Import and construct; the seed is the judge's, drawn when the text could no longer change."""
        template, tensors = flatten_arguments((entry.arguments[0], entry.arguments[1]))
        brief = {
            "file": str(entry.file),
            "name": entry.file.stem,
            "entry": entry.entry,
            "variant": entry.variant,
            "device": str(device),
            "arguments": template,
            "tensors": [_inline(t) for t in tensors],
            "state": [[name, list(t.shape), _name(t.dtype)] for name, t in entry.state],
            "cuda_means_device": entry.cuda_means_device,
        }
        self.matched = self._ask(Op.LOAD, self.load_limit_s, brief=brief, seed=seed).status

    @property
    def takes_state(self) -> bool:
        return self.matched in (Status.STATE_BY_NAME, Status.STATE_BY_ORDER)

    def take_state(self, values: Sequence[torch.Tensor]) -> None:
        if not self.takes_state:
            return
        for place, value in zip(self.layout.state_in, values, strict=True):
            self.pool.view(place).copy_(value)
        brief = {"state": [place.as_json() for place in self.layout.state_in], **self.pool.address}
        self._ask(Op.TAKE_STATE, self.load_limit_s, brief=brief)

    def give_state(self) -> list[torch.Tensor]:
        """The model's state as it is now; empty if it could not be matched with the reference's.

        What calls change is read as they left it, before the worker runs on: nothing is made up for later.
        """
        if not self.takes_state:
            return []
        left = self._left_behind()
        self._ask_for_state()
        return [left.get(n, self.pool.view(place).clone()) for n, place in enumerate(self.layout.state_out)]

    def left_behind(self) -> dict[int, torch.Tensor]:
        """Of the state, what calls change, as the last one left it, by its place; the worker stands still again."""
        if not self.takes_state:
            return {}
        if self._segments is None:
            return self._left_behind()
        self._ask_for_state()
        self._stop(Op.GIVE_STATE)
        return {place: self.pool.view(self.layout.state_out[place]).clone() for place, _ in self._changed}

    def note_state(self) -> None:
        """Some elements of what the last batch left are `noted`, until other arguments are mapped. Not of a GPU's: a
        worker that is asked runs on."""
        left = self._left_behind() if self.takes_state else {}
        self.noted.append({place: Sampled.of(tensor) for place, tensor in left.items()})

    def _left_behind(self) -> dict[int, torch.Tensor]:
        return {place: self._read_at(self._buffer_claim(n), spec) for n, (place, spec) in enumerate(self._watched)}

    def _ask_for_state(self) -> None:
        brief = {"state": [place.as_json() for place in self.layout.state_out], **self.pool.address}
        self._ask(Op.GIVE_STATE, self.load_limit_s, brief=brief)

    def map(self, shape: Shape, slots: Sequence[int]) -> None:
        """Lay the arguments out for the next calls, in this order of slots. The inputs are not there yet."""
        self.map_places(shape, [self.layout.slots[slot] for slot in slots])

    def map_places(self, shape: Shape, slots: Sequence[Sequence[Placement]]) -> None:
        keep = self._keep_one() if self._most_kept and self._called else []
        self.shape = shape
        self._witnesses.clear()
        self._called.clear()
        self.noted.clear()
        brief = {
            "keep": keep,
            "keepsakes": self._most_kept,
            "watched": [place for place, _ in self._watched],
            "arguments": shape.arguments,
            "slots": [[place.as_json() for place in slot] for slot in slots],
            "output": shape.output,
            "leaves": [spec and [spec[0], list(spec[1])] for spec in shape.leaves],
            "device": str(shape.device),
            **self.pool.address,
        }
        self._ask(Op.MAP, self.load_limit_s, brief=brief)
        self._stop(Op.MAP)

    def _keep_one(self) -> list[int]:
        """Look whether what was kept is still there, and choose an output of the last calls that is kept from now on.

        A candidate that writes its answers into the same few buffers saves the time of making new ones, and spoils
        what its caller still holds.
        """
        assert self.shape is not None
        for old in self._kept:
            if self._prints(old.parts, old.secret) != old.prints:
                raise Failed(Verdict.INCORRECT, "an output that was still held has been written over by a later call")
        slot, secret = secrets.choice(self._called), secrets.randbits(62)
        first = slot * len(self.shape.leaves)
        parts = tuple(
            (self._claim(first + number), spec) for number, spec in enumerate(self.shape.leaves) if spec is not None
        )
        self._kept = [*self._kept, Keepsake(parts, secret, self._prints(parts, secret))][-self._most_kept :]
        return [slot]

    def _prints(
        self, parts: Sequence[tuple[tuple[Any, ...], tuple[str, tuple[int, ...]]]], secret: int
    ) -> tuple[int, ...]:
        return tuple(fingerprint([self._read_at(claim, spec) for claim, spec in parts], secret))

    def call(self, slots: range, seed: int) -> float:
        """Seconds from letting it run to its word that it is done; it is stopped again afterwards."""
        # Of a CPU's many calls the last ones are looked at; calls one by one see to the others.
        witness = Witness(self, slots if self._segments is not None else slots[-GLANCED:]) if slots else None
        elapsed = self._timed(Op.CALL, slots, seed, witness)
        self._called += slots
        if witness is not None and self._segments is None:
            # All of them, now that it stands still: what is left for a later batch, which may be one that does not
            # count, or one of few that are slow, is not there yet.
            witness = Witness(self, slots)
            witness.look(export=False)
        if witness is not None:
            self._witnesses.append(witness)
        return elapsed

    def hand_over(self, slots: range, seed: int) -> float:
        """Seconds that these calls, which were just made, would have taken had the model taken none."""
        witness = Witness(self, slots) if self._segments is not None and slots else None
        return self._timed(Op.HAND_OVER, slots, seed, witness)

    def call_one_by_one(self, slots: range, seed: int, fill: Callable[[int], None]) -> list[float]:
        """Seconds from each input to a glance at its answer; `fill` writes a slot's input just before."""
        elapsed = self._one_by_one(Op.CALL_ONE_BY_ONE, slots, seed, fill, self._witnesses)
        self._called += slots
        return elapsed

    def hand_over_one_by_one(self, slots: range, seed: int) -> list[float]:
        """The same, had the model taken no time."""
        return self._one_by_one(Op.HAND_OVER_ONE_BY_ONE, slots, seed, lambda slot: None, [])

    def _one_by_one(
        self, op: Op, slots: range, seed: int, fill: Callable[[int], None], witnesses: "list[Witness]"
    ) -> list[float]:
        """It runs on between two inputs, with nothing to work on; a witness sees each answer before the next."""
        pace = memoryview(self.worker.board)[wire.PACE_AT : wire.PACE_AT + 16].cast("Q")
        pace[0] = pace[1] = slots.start
        seen = [Witness(self, range(slot, slot + 1)) for slot in slots]
        elapsed: list[float] = []
        unseen: list[tuple[int, float]] = []
        ended = 0.0
        try:
            self._require_still(op)
            self._send(op, slots, None, seed)
            self.worker.resume()
            for slot, witness in zip(slots, seen, strict=True):
                fill(slot)
                self._settle()
                start = time.perf_counter()
                pace[0] = slot + 1
                if not self._answered(pace, slot):
                    break
                if not witness.look(export=False):
                    unseen.append((len(elapsed), start))
                ended = time.perf_counter()
                elapsed.append(ended - start)
        finally:
            pace.release()
        reply = self._wait(self.call_limit_s, op)
        self._stop(op)
        self._require_done(reply)
        if len(elapsed) != len(slots):
            raise Failed(Verdict.TAMPERING, "it said that it was done before all of its inputs were there")
        if self._watched:  # what it still does to its buffers is each call's
            late = max(0.0, reply.at_s - ended) / len(slots)
            elapsed = [seconds + late for seconds in elapsed]
        for number, start in unseen:  # its clock runs until it is seen
            seen[number].look()
            elapsed[number] = time.perf_counter() - start
        witnesses += seen
        return elapsed

    def _answered(self, pace: memoryview, slot: int) -> bool:
        """Whether the answer came; if the worker is in trouble, its own word on that is due."""
        end = time.perf_counter() + self.call_limit_s
        while pace[1] <= slot:
            for _ in range(2000):
                if pace[1] > slot:
                    return True
            time.sleep(50e-6)  # a long call: it may need this core
            if self.worker.has_word() or time.perf_counter() > end:
                return pace[1] > slot
        return True

    def _timed(self, op: Op, slots: range, seed: int, witness: "Witness | None") -> float:
        self._settle()
        if self._segments is not None:
            reset_persisting_cache()
        self._require_still(op)
        tree = self.worker.tree()
        start = time.perf_counter()
        self._send(op, slots, None, seed)
        self.worker.resume(tree)
        reply = self._wait(self.call_limit_s, op, tree)
        end, seen = reply.at_s, False
        if witness is not None and reply.status in PASSING:
            # Kernels cannot be stopped as processes can. What a kernel of ours reads now was there in time. Making sure
            # that no process runs any more takes longer, and is not the worker's time. Nor are all processes stopped at
            # once: one that was started a moment ago, or copies within a system call, goes on until then.
            seen = witness.look(export=False)
            end = time.perf_counter() if self._segments is not None else end
        self._stop(op)
        self._require_done(reply)
        if self._segments is None:
            if seen and witness is not None:
                witness.look_again()
        elif witness is not None and not seen:
            witness.look()
            end = time.perf_counter()
        return end - start

    def outputs(self, call: int, rows: slice | None = None, *, in_place: bool = False) -> list[torch.Tensor]:
        """The tensors of one call's output, or some rows of each, copied out of the worker's memory.

        `in_place` leaves a GPU's where they lie, if there is no room for two: the next call may write over them.
        """
        assert self.shape is not None
        leaves = self.shape.leaves
        found = [self._read(call * len(leaves) + i, spec, rows) for i, spec in enumerate(leaves)]
        if self._segments is not None and not in_place:
            found = [leaf.clone() for leaf in found]
        for witness in self._witnesses:
            if call in witness.slots and rows is None:
                witness.compare(call, found)
        return [as_real(leaf) for leaf in found]

    def peek(self, call: int) -> list[torch.Tensor]:
        """The same, whatever witnesses saw before."""
        assert self.shape is not None
        leaves = self.shape.leaves
        return [as_real(self._read(call * len(leaves) + i, spec)) for i, spec in enumerate(leaves)]

    def export(self) -> bool:
        """Have the worker's allocations opened to us, on a GPU."""
        if self._segments is None:
            return False
        self._ask(Op.EXPORT, self.load_limit_s)
        self._stop(Op.EXPORT)
        self._segments.learn(self.worker.board)
        return True

    def glance(self, addresses: torch.Tensor, width: int) -> torch.Tensor | None:
        """`width` bytes at each of the worker's addresses; None if one cannot be seen."""
        if self._segments is not None:
            return self._segments.gather(addresses, width)
        seen = torch.empty(len(addresses), width, dtype=torch.uint8)
        return seen if self.worker.gather(addresses.tolist(), width, seen.data_ptr()) else None

    def release(self) -> None:
        """Let the worker drop its outputs, and what its allocator keeps."""
        assert self.shape is not None
        if self._segments is not None:
            self._segments.close()  # first: the worker is about to free them
        self.map_places(self.shape, [])

    def claims(self, calls: int) -> list[tuple[int, int]]:
        """Address and length of each output tensor, as the worker says."""
        assert self.shape is not None
        found = []
        for number in range(calls * len(self.shape.leaves)):
            spec = self.shape.leaves[number % len(self.shape.leaves)]
            if spec is not None:
                address, span, *_ = self._claim(number)
                found.append((address, span or _dense_bytes(spec)))
        return found

    def trace(self) -> None:
        """Have the worker note where its output comes from; the slots must be mapped and filled."""
        self._ask(Op.TRACE, self.call_limit_s)

    def claim_table(self, first: int, count: int) -> torch.Tensor:
        """Some claims as integers, a row each; a copy, for the board must stay free to be closed."""
        words, at = wire.CLAIM.size // 8, wire.CLAIMS_AT + first * wire.CLAIM.size
        table = torch.frombuffer(self.worker.board, dtype=torch.int64, count=count * words, offset=at)
        return table.reshape(count, words).clone()

    def facts(self) -> Fact:
        raw = self.worker.board[wire.FACTS_AT : wire.FACTS_AT + 8]
        return Fact(int.from_bytes(raw, "little") & ((1 << 16) - 1))

    def pool_base(self) -> int:
        """Where the worker says that it sees the pool."""
        return int.from_bytes(self.worker.board[wire.FACTS_AT + 8 : wire.FACTS_AT + 16], "little")

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()
        self.worker.kill()

    def _claim(self, number: int) -> tuple[Any, ...]:
        return wire.CLAIM.unpack_from(self.worker.board, wire.CLAIMS_AT + number * wire.CLAIM.size)

    def _buffer_claim(self, number: int) -> tuple[Any, ...]:
        return wire.CLAIM.unpack_from(self.worker.board, wire.BUFFERS_AT + number * wire.CLAIM.size)

    def _read(self, number: int, spec: tuple[str, tuple[int, ...]] | None, rows: slice | None = None) -> torch.Tensor:
        if spec is None:
            value = wire.NUMBER.unpack_from(self.worker.board, wire.CLAIMS_AT + number * wire.CLAIM.size)[0]
            return torch.tensor(value, dtype=torch.float64, device=self.pool.memory.bytes.device)
        return self._read_at(self._claim(number), spec, rows)

    def _read_at(
        self, claim: tuple[Any, ...], spec: tuple[str, tuple[int, ...]], rows: slice | None = None
    ) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, spec[0])
        shape = spec[1]
        address, span, *rest = claim
        dense = span == 0
        strides = tuple(torch.empty(shape, device="meta").stride()) if dense else tuple(rest[: len(shape)])
        size = _reach_bytes(shape, strides, dtype)
        if size is None or size > 4 * _dense_bytes(spec) + (64 << 20):
            raise Failed(Verdict.WRONG_OUTPUT_TYPE, f"the output claims strides {strides} for shape {shape}")
        if rows is not None:
            address += rows.start * strides[0] * dtype.itemsize
            shape = (rows.stop - rows.start, *shape[1:])
            size = _reach_bytes(shape, strides, dtype) or 0
        if self._segments is not None:
            return self._read_gpu(address, size, dtype).as_strided(shape, strides)
        flat = torch.empty(size // dtype.itemsize, dtype=dtype)
        if size and not self._copy(address, size, flat):
            why = self.worker.unreadable
            raise Failed(Verdict.INCORRECT, f"the output lies in memory that cannot be read ({why})")
        return flat.as_strided(shape, strides)

    def _read_gpu(self, address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
        assert self._segments is not None
        found = self._segments.tensor(address, size, dtype)
        if found is None:
            self.export()
            found = self._segments.tensor(address, size, dtype)
        if found is None:
            raise Failed(Verdict.INCORRECT, "the output lies in memory that cannot be read")
        return found

    def _copy(self, address: int, size: int, into: torch.Tensor) -> bool:
        return self.worker.read(address, size, ctypes.c_void_p(into.data_ptr()).value or 0)

    def _ask(self, op: Op, limit_s: float, *, brief: Any = None, seed: int = 0) -> Reply:
        self._settle()
        self._require_still(op)
        self.worker.resume()
        self._send(op, range(0), brief, seed)
        reply = self._wait(limit_s, op)
        self._require_done(reply)
        return reply

    def _settle(self) -> None:
        """What we have written to the GPU must be there before the worker looks."""
        if self._segments is not None:
            torch.cuda.synchronize(self.pool.memory.bytes.device)

    def _send(self, op: Op, slots: range, brief: Any, seed: int) -> None:
        try:
            self.worker.send(op, slots=slots, brief=brief, seed=seed)
        except Ended as ended:
            raise self._explained(ended, op) from None

    def _wait(self, limit_s: float, op: Op, stopping: Sequence[int] = ()) -> Reply:
        try:
            return self.worker.wait(limit_s, stopping, self.idle_limit_s)
        except Ended as ended:
            raise self._explained(ended, op) from None

    def _stop(self, op: Op) -> None:
        try:
            self.worker.stop()
        except Ended as ended:
            raise self._explained(ended, op) from None

    def _require_still(self, op: Op) -> None:
        try:
            self.worker.require_still()
        except Ended as ended:
            raise self._explained(ended, op) from None

    def _require_done(self, reply: Reply) -> None:
        if reply.status not in PASSING:
            verdict = FAILURES.get(reply.status, Verdict.RUNTIME_ERROR)
            raise Failed(verdict, _sentence(verdict, reply.message) or f"the worker answered {reply.status.name}")
        if self.worker.forked():
            raise Failed(Verdict.RUNTIME_ERROR, FORKS)

    def _explained(self, ended: Ended, op: Op) -> Failed:
        doing = DOING[op]
        log = printable(self.worker.log()).strip().splitlines()
        last_words = f": {log[-1][:200]}" if log else ""
        forked = self.worker.forked()
        self.worker.kill()
        if not self.worker.root_pid:  # no code of the candidate has run
            return Failed(Verdict.JUDGE_ERROR, f"no worker process could be started{last_words}")
        match ended.how:
            case "timeout" if ended.building:
                return Failed(Verdict.COMPILE_TIMEOUT, f"the compiler was still running after {ended.code} s")
            case "timeout" if forked:  # each call doubles its processes: that is what takes long
                return Failed(Verdict.RUNTIME_ERROR, FORKS)
            case "timeout":
                return Failed(Verdict.TIMEOUT, f"no answer after {ended.code} s while {doing}")
            case "memory":
                return Failed(Verdict.OOM, f"more host memory than allowed while {doing}")
            case "disk":
                return Failed(Verdict.OOM, f"more disk space than allowed while {doing}")
            case "unasked":
                return Failed(Verdict.TAMPERING, f"it answered before it was asked while {doing}")
            case "restless":
                return Failed(Verdict.TAMPERING, f"a process of its own could not be stopped after {doing}")
            case "awake":
                return Failed(Verdict.TAMPERING, f"a process of its own ran on while it was stopped, before {doing}")
            case "signal":
                return Failed(Verdict.CRASH, f"killed by signal {ended.code} while {doing}{last_words}")
        return Failed(Verdict.CRASH, f"the process left with exit code {ended.code} while {doing}{last_words}")


class Witness:
    """Random elements of each output, seen before the clock stops; they must still be the same when all is read."""

    def __init__(self, contestant: Contestant, slots: range) -> None:
        assert contestant.shape is not None
        self.slots = slots
        self._contestant = contestant
        self._leaves = contestant.shape.leaves
        # A generator of its own: the judge's is seeded while it draws inputs, perhaps at this moment.
        entropy = torch.Generator()
        entropy.seed()
        self._elements = [
            torch.randint(0, max(_count(spec), 1), (len(slots), LOOKS), generator=entropy) if spec is not None else None
            for spec in self._leaves
        ]
        self._seen: list[torch.Tensor | None] = []

    def look(self, *, export: bool = True) -> bool:
        """Whether everything was in sight; `export` has the worker open what is not, which it must be free to do."""
        self._seen = [self._look_at(position, export=export) for position in range(len(self._leaves))]
        needed = [spec is not None and _count(spec) > 0 for spec in self._leaves]
        return all(seen is not None for seen, needs in zip(self._seen, needed, strict=True) if needs)

    def look_again(self) -> None:
        """At the same elements, now that everything stands still."""
        before = self._seen
        self.look(export=False)
        for one, other in zip(before, self._seen, strict=True):
            if one is not None and (other is None or not torch.equal(one, other)):
                raise Failed(Verdict.TAMPERING, LATE)

    def compare(self, call: int, found: Sequence[torch.Tensor]) -> None:
        """Against what was read afterwards."""
        for seen, elements, leaf in zip(self._seen, self._elements, found, strict=True):
            if not leaf.numel() or (seen is None and self._contestant.on_gpu):
                continue  # of a GPU's memory, what was freed and listed anew between two looks is in sight again
            if seen is None:  # out of sight then, and not now
                raise Failed(Verdict.TAMPERING, LATE)
            number, flat = self.slots.index(call), leaf.reshape(-1)
            looked_at = flat if elements is None else flat[elements[number].to(leaf.device)]
            now = looked_at.contiguous().view(torch.uint8).cpu().reshape(len(looked_at), -1)
            if not torch.equal(now, seen[number]):
                raise Failed(Verdict.TAMPERING, LATE)

    def _look_at(self, position: int, *, export: bool) -> torch.Tensor | None:
        spec, elements = self._leaves[position], self._elements[position]
        if spec is None or elements is None:
            return self._numbers(position)
        if not _count(spec):
            return None
        dtype: torch.dtype = getattr(torch, spec[0])
        for attempt in range(2):
            addresses = self._addresses(position, spec[1], elements, dtype)
            seen = self._contestant.glance(addresses.reshape(-1), dtype.itemsize)
            if seen is not None:
                return seen.reshape(len(self.slots), LOOKS, dtype.itemsize)
            if not export or (attempt == 0 and not self._contestant.export()):
                break
        return None  # reading it all will say what is wrong

    def _numbers(self, position: int) -> torch.Tensor:
        """A number of each output, which stands where a tensor's address would."""
        each = len(self._leaves)
        claims = self._contestant.claim_table(self.slots.start * each, len(self.slots) * each)[position::each]
        return claims[:, :1].contiguous().view(torch.uint8).reshape(len(self.slots), 1, -1)

    def _addresses(
        self, position: int, shape: tuple[int, ...], elements: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Where the elements lie: all at once if the outputs are dense, else one by one by their strides."""
        each = len(self._leaves)
        claims = self._contestant.claim_table(self.slots.start * each, len(self.slots) * each)[position::each]
        if bool((claims[:, 1] == 0).all()):
            return elements * dtype.itemsize + claims[:, :1]
        offsets = [
            row if int(claim[1]) == 0 else _strided(row, shape, claim[2:].tolist())
            for row, claim in zip(elements, claims, strict=True)
        ]
        return torch.stack(offsets) * dtype.itemsize + claims[:, :1]


LOOKS = 4
SAMPLED = 4096  # elements of a buffer that are kept for each batch
GLANCED = 4  # calls of a batch, on a CPU
FORKS = "a call came back in two processes: it forks, and the copy goes on too"
LATE = "an output changed after the candidate had said that it was done"


def _count(spec: tuple[str, tuple[int, ...]]) -> int:
    return torch.Size(spec[1]).numel()


def _strided(elements: torch.Tensor, shape: tuple[int, ...], strides: Sequence[int]) -> torch.Tensor:
    """Logical positions -> offsets in elements"""
    offsets = torch.zeros_like(elements)
    for size, stride in zip(reversed(shape), reversed(strides[: len(shape)]), strict=True):
        offsets += elements % size * stride
        elements = elements // size
    return offsets


PASSING = (Status.DONE, Status.STATE_BY_NAME, Status.STATE_BY_ORDER, Status.STATE_BY_SEED)
FAILURES = {
    Status.NO_CLASS: Verdict.BAD_CANDIDATE,
    Status.LOAD_ERROR: Verdict.LOAD_ERROR,
    Status.COMPILE_ERROR: Verdict.COMPILE_ERROR,
    Status.RUNTIME_ERROR: Verdict.RUNTIME_ERROR,
    Status.OUT_OF_MEMORY: Verdict.OOM,
    Status.OUT_OF_GPU_MEMORY: Verdict.OOM,
    Status.GPU_FAULT: Verdict.GPU_FAULT,
    Status.WRONG_TYPE: Verdict.WRONG_OUTPUT_TYPE,
}
DOING = {
    Op.LOAD: "loading",
    Op.TAKE_STATE: "taking weights",
    Op.GIVE_STATE: "giving its state",
    Op.MAP: "taking arguments",
    Op.CALL: "calling forward",
    Op.HAND_OVER: "handing its outputs over",
    Op.CALL_ONE_BY_ONE: "calling forward",
    Op.HAND_OVER_ONE_BY_ONE: "handing its outputs over",
    Op.TRACE: "calling forward",
    Op.EXPORT: "exporting its outputs",
}
COMPILER_ERROR_SIGNS = ("error:", "error :", "undefined reference", "undefined symbol", "ptxas fatal")


def _sentence(verdict: Verdict, message: str) -> str:
    """The exception, or of a failed build the compiler's first error."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if verdict is Verdict.COMPILE_ERROR:
        errors = [line for line in lines if any(sign in line for sign in COMPILER_ERROR_SIGNS)]
        failed = [i for i, line in enumerate(lines) if line.startswith("FAILED")]
        said = " | ".join(lines[failed[0] + 2 :]) if failed else ""  # after the file's name and the command
        return (errors[0] if errors else said or "".join(lines[:1]))[:500]
    if len(lines) > 1 and lines[-1].startswith("(line "):
        return f"{lines[0][:400]} {lines[-1][:200]}"
    return lines[0][:600] if lines else ""


def _reach_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> int | None:
    if any(stride < 0 for stride in strides):
        return None
    if 0 in shape:
        return 0
    return (sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1) * dtype.itemsize


def _dense_bytes(spec: tuple[str, tuple[int, ...]]) -> int:
    dtype: torch.dtype = getattr(torch, spec[0])
    return torch.Size(spec[1]).numel() * dtype.itemsize


def _inline(tensor: torch.Tensor) -> list[Any]:
    raw = tensor.detach().cpu().contiguous()
    data = bytes(raw.reshape(-1).view(torch.uint8).tolist()) if raw.numel() else b""
    return [_name(raw.dtype), list(raw.shape), data.hex()]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
