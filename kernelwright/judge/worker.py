"""Commands of the judge come in on a pipe; calls of one model are made, and one status byte goes out for each command.

This is the program in the candidate's process. Code of the candidate runs beside it and may change anything here, so
nothing that is decided here counts: the judge reads the outputs from this process's memory, with its own clock.
"""

import contextlib
import gc
import importlib.util
import json
import mmap
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelwright.judge import wire
from kernelwright.judge.codec import dtype_named, flatten_output, unflatten
from kernelwright.judge.heap import make_room
from kernelwright.judge.provenance import Origin, following
from kernelwright.judge.shortage import speaks_of_gpu_memory, speaks_of_host_memory
from kernelwright.judge.wire import Fact, Op, Status

__all__ = ["serve"]

Arguments = tuple[Any, ...]
Answer = tuple[Status, str]

# Taken before a candidate is imported: one that patches torch by accident should still be measured as it is.
_data_ptr = torch.Tensor.data_ptr
_manual_seed = torch.manual_seed
_is_contiguous = torch.Tensor.is_contiguous
_named_parameters = torch.nn.Module.named_parameters
_named_buffers = torch.nn.Module.named_buffers

# What a compiler or linker that failed inside load_inline, NVRTC or Triton leaves in the exception's text.
COMPILER_SIGNS = ("Error building extension", "error: command", "CompilationError", "NVRTC_ERROR", "nvrtc:", "ptxas")
BETWEEN = 4  # outputs' worth of memory for what a forward keeps between its steps
MOST_OUTPUTS_MET = 32  # of a batch: where it has more calls, each is short and its output small
GPU_FAULT_SIGNS = (
    "an illegal memory access",
    "misaligned address",
    "illegal instruction",
    "unspecified launch failure",
    "device-side assert triggered",  # torch speaks of device-side assertions after every CUDA error
    "hardware stack error",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
)


def serve(command_fd: int, reply_fd: int, board_fd: int, pool_fd: int, threads: int) -> None:
    """Answer commands until the judge closes the pipe or sends LEAVE."""
    torch.set_num_threads(threads)
    board = mmap.mmap(board_fd, wire.BOARD_BYTES)
    bench = Bench(board, pool_fd)
    own = os.getpid()
    with os.fdopen(command_fd, "rb", buffering=0) as commands:
        while len(raw := commands.read(wire.COMMAND.size) or b"") == wire.COMMAND.size:
            op, first, calls, seed, length = wire.COMMAND.unpack(raw)
            if op == Op.LEAVE:
                return
            brief = json.loads(board[:length]) if length else {}
            try:
                status, text = bench.handle(Op(op), slice(first, first + calls), seed, brief)
            except BaseException as error:  # noqa: BLE001  a candidate may raise anything, SystemExit too
                status, text = classify(error, Op(op)), explain(error)
            if os.getpid() != own:  # a copy that a fork made: only one of the two may answer
                board[wire.FORKED_AT] = 1
                os._exit(70)
            if text:
                encoded = text.encode("utf-8", "replace")[: wire.MESSAGE_BYTES - 1]
                board[wire.MESSAGE_AT : wire.MESSAGE_AT + len(encoded) + 1] = encoded + b"\0"
            os.write(reply_fd, bytes([status]))


class Bench:
    """The model, the argument tensors of each slot, and the outputs held since the last calls."""

    def __init__(self, board: mmap.mmap, pool_fd: int) -> None:
        self.board = board
        self.pool_fd = pool_fd
        self.pool: Any = None
        self.claims = memoryview(board)[wire.CLAIMS_AT :].cast("Q")
        self.model: Callable[..., Any] = _nothing_loaded
        self.state: Callable[[], list[torch.Tensor]] = list
        self.take_state: Callable[[list[torch.Tensor]], None] = lambda values: None
        self.home: tuple[torch.nn.Module, list[str]] | None = None  # the model, and what it calls the reference's state
        self.buffers: list[tuple[Callable[[], torch.Tensor], torch.dtype, torch.Size]] = []  # those that calls change
        self.copies: list[torch.Tensor] = []  # of buffers that cannot be read as they are
        self.slots: list[Arguments] = []
        self.spans: list[tuple[int, int]] = []  # where each slot's arguments begin and end in the pool
        self.held: list[tuple[int, list[Any]]] = []
        self.leaves: dict[int, list[Any]] = {}  # slot -> its output's tensors, copies where it cannot be read as it is
        self.keepsakes: list[tuple[Any, Any]] = []  # outputs of earlier calls, held as a caller would
        self.segments: dict[int, bytes] = {}
        self.expected: dict[str, Any] = {}
        self.flags = flags()
        self.facts = Fact(0)
        self.synchronize: Callable[[], None] = lambda: None
        self.handlers: dict[Op, Callable[[slice, int, dict[str, Any]], Answer]] = {
            Op.LOAD: self.load,
            Op.TAKE_STATE: self.take,
            Op.GIVE_STATE: self.give,
            Op.MAP: self.map,
            Op.CALL: self.call,
            Op.HAND_OVER: self.hand_over,
            Op.CALL_ONE_BY_ONE: self.call_one_by_one,
            Op.HAND_OVER_ONE_BY_ONE: self.hand_over_one_by_one,
            Op.TRACE: self.trace,
            Op.EXPORT: self.export,
        }

    def handle(self, op: Op, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        if "pool" in brief:
            self._open_pool(brief)
        return self.handlers[op](slots, seed, brief)

    def load(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        """Import the file, construct the model with the seed, match its state with the reference's."""
        device = torch.device(brief["device"])
        if device.type == "cuda":
            self.synchronize = torch.cuda.synchronize
        with elsewhere(device) if brief["cuda_means_device"] else contextlib.nullcontext():
            module = imported(Path(brief["file"]), brief["name"])
            constructor = getattr(module, brief["entry"], None)
            if not (isinstance(constructor, type) and issubclass(constructor, torch.nn.Module)):
                return Status.NO_CLASS, f"the file defines no class {brief['entry']}(nn.Module)"
            tensors = [_inline_tensor(spec) for spec in brief["tensors"]]
            args, kwargs = unflatten(brief["arguments"], tensors)
            _manual_seed(seed)
            model = constructor(*args, **kwargs).to(device)
        self.model = VARIANTS[brief["variant"]](model)
        gc.freeze()
        return self._match_state(model, [(name, tuple(shape), dtype) for name, shape, dtype in brief["state"]])

    def _match_state(self, model: torch.nn.Module, wanted: list[tuple[str, tuple[int, ...], str]]) -> Answer:
        have = state_of(model)
        found = {name: (tuple(t.shape), _dtype_name(t)) for name, t in have.items()}
        if all(found.get(name) == (shape, dtype) for name, shape, dtype in wanted):
            names = [name for name, _, _ in wanted]
            self.home = model, names
            self.state = lambda: _tensors_named(model, names)
            self.take_state = lambda values: _load_by_name(model, dict(zip(names, values, strict=True)))
            return Status.STATE_BY_NAME, ""
        if list(found.values()) == [(shape, dtype) for _, shape, dtype in wanted]:
            self.home = model, list(have)
            self.state = lambda: _tensors_named(model, list(have))
            self.take_state = lambda values: _copy_in_order(self.state(), values)
            return Status.STATE_BY_ORDER, ""
        return Status.STATE_BY_SEED, ""

    def take(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        self.take_state([self._tensor(spec) for spec in brief["state"]])
        self.synchronize()
        return Status.DONE, ""

    def give(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        targets = [self._tensor(spec) for spec in brief["state"]]
        with torch.no_grad():
            for target, value in zip(targets, self.state(), strict=True):
                target.copy_(value)
        self.synchronize()
        return Status.DONE, ""

    def map(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        """Fresh tensors over the slots, which are still empty: the judge fills them just before its clock starts.

        Outputs are dropped, except for those that are to be kept.
        """
        given = {first + number: output for first, row in self.held for number, output in enumerate(row)}
        self.keepsakes += [(given[slot], self.leaves.get(slot)) for slot in brief.get("keep", ())]
        del self.keepsakes[: max(0, len(self.keepsakes) - brief.get("keepsakes", 0))]
        given.clear()
        self.held.clear()
        self.leaves.clear()
        if not brief["slots"] and self.expected and self.expected["device"].type == "cuda":
            torch.cuda.empty_cache()
        self.slots = [
            unflatten(brief["arguments"], [self._tensor(spec) for spec in tensors]) for tensors in brief["slots"]
        ]
        self.spans = [(min(s[3] for s in t), max(s[3] + s[4] for s in t)) if t else (0, 0) for t in brief["slots"]]
        self.expected = {
            "template": brief["output"],
            "leaves": [spec and (dtype_named(spec[0]), torch.Size(spec[1])) for spec in brief["leaves"]],
            "device": torch.device(brief["device"]),
        }
        if self.expected["device"].type == "cuda":
            self.expected["device"] = torch.device("cuda", torch.cuda.current_device())
        self.buffers = self._found_buffers(brief.get("watched", ()))
        self._note_facts()
        gc.collect()
        if self.expected["device"].type == "cpu":
            make_room(self._output_bytes() * (len(self.slots) + BETWEEN))
        return Status.DONE, ""

    def _found_buffers(self, places: Sequence[int]) -> list[tuple[Callable[[], torch.Tensor], torch.dtype, torch.Size]]:
        """How to get at these parts of the state without asking the model, which could finish them first."""
        if self.home is None or not places:
            return []
        model, names = self.home
        known = self.state()
        return [(_getter(model, names[n], known[n]), known[n].dtype, known[n].shape) for n in places]

    def _claim_buffers(self) -> None:
        """Write where the buffers that calls change lie now: what a call does to them is part of it."""
        self.copies.clear()
        for number, (get, dtype, shape) in enumerate(self.buffers):
            tensor = get()
            if tensor.dtype is not dtype or tensor.shape != shape:
                tensor = tensor.to(dtype).expand(shape)
            tensor = compact(tensor)
            self.copies.append(tensor)
            _write_claim(self.board, wire.BUFFERS_AT + number * wire.CLAIM.size, tensor)

    def _output_bytes(self) -> int:
        specs = (spec for spec in self.expected["leaves"] if spec)
        return sum(dtype.itemsize * shape.numel() for dtype, shape in specs)

    def call(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        outputs: list[Any] = []
        if self._on_gpu():
            self._meet_pages(slots, self._room_for(slots))
        self._call_all(self.model, slots, seed, outputs)
        self.held.append((slots.start, outputs))
        self._claim_buffers()
        return self._claim_outputs(outputs, slots.start)

    def hand_over(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        """A call of each slot that takes no time: it gives what the last one gave."""
        outputs: list[Any] = []
        if self._on_gpu():
            given = [leaf for output in self._given(slots) for leaf in flatten_output(output)[1]]
            self._meet_pages(slots, [leaf for leaf in given if isinstance(leaf, torch.Tensor)])
        self._call_all(self._last_answers(slots), slots, seed, outputs)
        self._claim_buffers()
        return self._claim_outputs(outputs, slots.start)

    def _on_gpu(self) -> bool:
        device = self.expected.get("device")
        return device is not None and device.type == "cuda"

    def _room_for(self, slots: slice) -> list[torch.Tensor]:
        """Memory that the outputs of these calls are likely to get: it is free again when this is dropped."""
        specs = [spec for spec in self.expected["leaves"] if spec]
        try:
            return [
                torch.empty(shape, dtype=dtype, device=self.expected["device"])
                for _ in range(min(slots.stop - slots.start, MOST_OUTPUTS_MET))
                for dtype, shape in specs
            ]
        except torch.OutOfMemoryError:
            return []

    def _meet_pages(self, slots: slice, outputs: list[torch.Tensor]) -> None:
        """Let the GPU look up where the next calls' inputs and outputs lie, as it has in a process that makes such
        calls again and again; others had the GPU since. Handing over does the same, so that it is not in the time."""
        from kernelwright.judge import channel_cuda

        spans = self.spans[slots] or [(0, 0)]  # no slots, no inputs
        first, last = min(start for start, _ in spans), max(end for _, end in spans)
        if last > first and not isinstance(self.pool, mmap.mmap):
            channel_cuda.meet_pages(channel_cuda.tensor_at(self.pool + first, last - first, torch.uint8))
        for output in outputs[:MOST_OUTPUTS_MET]:
            channel_cuda.meet_pages(output)

    def _given(self, slots: slice) -> list[Any]:
        """What the calls of these slots gave."""
        given = {first + number: output for first, row in self.held for number, output in enumerate(row)}
        return [given[slot] for slot in range(slots.start, slots.stop)]

    def _last_answers(self, slots: slice) -> Callable[..., Any]:
        answers = iter(self._given(slots))
        return lambda *args: next(answers)

    def call_one_by_one(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        outputs: list[Any] = []
        self.held.append((slots.start, outputs))
        return self._one_by_one(self.model, slots, seed, outputs)

    def hand_over_one_by_one(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        return self._one_by_one(self._last_answers(slots), slots, seed, [])

    def _one_by_one(self, model: Callable[..., Any], slots: slice, seed: int, outputs: list[Any]) -> Answer:
        """Each input comes when the answer to the last one is there. Both sides look instead of sleeping: waking up
        takes longer than a call."""
        pace = memoryview(self.board)[wire.PACE_AT : wire.PACE_AT + 16].cast("Q")
        gc.disable()
        try:
            with torch.no_grad():
                for slot in range(slots.start, slots.stop):
                    args = self.slots[slot]
                    _manual_seed(seed + slot)
                    while pace[0] <= slot:
                        pass
                    outputs.append(model(*args))
                    self.synchronize()
                    status, text = self._claim_outputs(outputs[-1:], slot)
                    if status is not Status.DONE:
                        return status, text
                    pace[1] = slot + 1
        finally:
            gc.enable()
            pace.release()
        self._claim_buffers()
        return Status.DONE, ""

    def _call_all(self, model: Callable[..., Any], slots: slice, seed: int, outputs: list[Any]) -> None:
        _manual_seed(seed)
        gc.disable()
        try:
            with torch.no_grad():
                for args in self.slots[slots]:
                    outputs.append(model(*args))  # noqa: PERF401  kept even if a later call raises
            self.synchronize()
        finally:
            gc.enable()

    def trace(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        """Whether code of the candidate's own had a part in the output; what cannot be traced stays unknown."""
        mode = following()
        with torch.no_grad(), mode:
            output = self.model(*self.slots[0])
        self.synchronize()
        origin = Origin.PLAIN
        for leaf in flatten_output(output)[1]:
            if isinstance(leaf, torch.Tensor):
                origin |= mode.origin(leaf)
                if not _is_contiguous(leaf):
                    self.facts |= Fact.STRIDED_OUTPUT
        self.facts |= Fact.TRACED
        self.facts |= Fact.OWN_KERNEL if Origin.OWN_KERNEL in origin else Fact(0)
        self.facts |= Fact.VENDOR_LIBRARY if Origin.VENDOR_LIBRARY in origin else Fact(0)
        self._note_facts()
        return Status.DONE, ""

    def _claim_outputs(self, outputs: list[Any], first: int) -> Answer:
        """Write where each output lies; the common case, one dense tensor of the right type, in about a microsecond."""
        leaves = self.expected.get("leaves", [])
        dense = len(leaves) == 1 and self.expected["template"] == ["T", 0]
        dtype, shape = leaves[0] if dense and leaves[0] else (None, None)
        device = self.expected.get("device")
        claims, words = self.claims, wire.CLAIM.size // 8
        at = first * len(leaves) * words
        for number, output in enumerate(outputs):
            if (
                type(output) is torch.Tensor
                and output.dtype is dtype
                and output.shape == shape
                and output.device == device
                and _is_contiguous(output)
            ):
                claims[at] = _data_ptr(output)
                claims[at + 1] = 0  # dense
                at += words
                continue
            problem, at = self._claim_output(output, first + number, at)
            if problem:
                return Status.WRONG_TYPE, problem
        return Status.DONE, ""

    def _claim_output(self, output: Any, slot: int, at: int) -> tuple[str, int]:
        template, leaves = flatten_output(output)
        if template != self.expected["template"]:
            return f"the output is {_described(output)}; the reference's is {_template_words(self.expected)}", at
        for position, (leaf, spec) in enumerate(zip(leaves, self.expected["leaves"], strict=True)):
            if isinstance(leaf, torch.Tensor):
                if problem := self._wrong_tensor(leaf, *spec):
                    return problem, at
                leaves[position] = compact(leaf)
            _write_claim(self.board, wire.CLAIMS_AT + at * 8, leaves[position])
            at += wire.CLAIM.size // 8
        self.leaves[slot] = leaves  # what was copied lives as long as the rest
        self.synchronize()
        return "", at

    def export(self, slots: slice, seed: int, brief: dict[str, Any]) -> Answer:
        """Open the allocations that held outputs lie in to the judge; what cannot be opened is copied."""
        from kernelwright.judge import channel_cuda

        per_call = len(self.expected["leaves"])
        # All anew: what was freed since may have made room, at the same address, for something else.
        self.segments.clear()
        for first, outputs in self.held:
            for number, output in enumerate(outputs):
                leaves = self.leaves.get(first + number) or flatten_output(output)[1]
                for position, leaf in enumerate(leaves):
                    if isinstance(leaf, torch.Tensor) and leaf.numel():
                        leaves[position] = channel_cuda.exported(leaf, self.segments)
                        if leaves[position] is not leaf:
                            claim = (first + number) * per_call + position
                            _write_claim(self.board, wire.CLAIMS_AT + claim * wire.CLAIM.size, leaves[position])
                self.leaves[first + number] = leaves
        self.synchronize()
        entries = list(self.segments.values())[-wire.MAX_SEGMENTS :]
        table = len(entries).to_bytes(8, "little").ljust(wire.SEGMENT.size, b"\0") + b"".join(entries)
        self.board[wire.SEGMENTS_AT : wire.SEGMENTS_AT + len(table)] = table
        return Status.DONE, ""

    def _wrong_tensor(self, tensor: torch.Tensor, dtype: torch.dtype, shape: torch.Size) -> str:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"the output is a {type(tensor).__name__}, a subclass of Tensor"
        if tensor.layout is not torch.strided:
            return f"the output is {tensor.layout}, the reference's is dense"
        checks = (
            ("dtype", tensor.dtype, dtype),
            ("shape", tuple(tensor.shape), tuple(shape)),
            ("device", tensor.device, self.expected["device"]),
        )
        return "; ".join(
            f"the output has {what} {got}, the reference's {want}" for what, got, want in checks if got != want
        )

    def _note_facts(self) -> None:
        if flags() != self.flags:
            self.facts |= Fact.FLAGS_CHANGED
        if threading.active_count() > 1:
            self.facts |= Fact.STARTED_THREADS
        self.board[wire.FACTS_AT : wire.FACTS_AT + 8] = int(self.facts).to_bytes(8, "little")

    def _open_pool(self, brief: dict[str, Any]) -> None:
        if brief["pool"] is None:
            self.pool = mmap.mmap(self.pool_fd, brief["pool_bytes"]) if self.pool is None else self.pool
            base = _data_ptr(torch.frombuffer(self.pool, dtype=torch.uint8, count=1))
        else:
            from kernelwright.judge import channel_cuda

            self.pool = channel_cuda.opened(bytes.fromhex(brief["pool"])) if self.pool is None else self.pool
            base = self.pool
        self.board[wire.FACTS_AT + 8 : wire.FACTS_AT + 16] = base.to_bytes(8, "little")

    def _tensor(self, spec: list[Any]) -> torch.Tensor:
        """A view of the pool: dtype, shape, strides, offset in bytes, bytes from first to last element."""
        name, shape, strides, offset, span = spec
        dtype = dtype_named(name)
        if isinstance(self.pool, mmap.mmap):
            if not span:
                return torch.empty(shape, dtype=dtype)
            flat = torch.frombuffer(self.pool, dtype=dtype, count=span // dtype.itemsize, offset=offset)
        else:
            from kernelwright.judge import channel_cuda

            flat = channel_cuda.tensor_at(self.pool + offset, span, dtype)
        return flat.as_strided(shape, strides)


def elsewhere(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A problem whose constructor says "cuda" is judged on a CPU too: there, cuda means the CPU."""
    from kernelwright.load.elsewhere import Elsewhere

    return Elsewhere(device)


def imported(path: Path, name: str) -> Any:
    """The file as a module under its own name; what stands beside it is importable."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Everything a model keeps: what state_dict() has, and buffers that it leaves out."""
    kept = dict(model.state_dict(keep_vars=True))
    return kept | {name: buffer for name, buffer in model.named_buffers() if name not in kept}


def _tensors_named(model: torch.nn.Module, names: list[str]) -> list[torch.Tensor]:
    """As they are now: a forward may well put a new tensor in a buffer's place.

    Asked of nn.Module itself: a state_dict() of the model's own could first make up for what its calls left undone.
    """
    plain: dict[str, torch.Tensor] = dict(_named_parameters(model, remove_duplicate=False))
    plain |= dict(_named_buffers(model, remove_duplicate=False))
    other = {} if plain.keys() >= set(names) else state_of(model)
    return [plain[name] if name in plain else other[name] for name in names]


def _getter(model: torch.nn.Module, name: str, found: torch.Tensor) -> Callable[[], torch.Tensor]:
    """For whatever stands under that name, when it is asked for; or for that tensor, if the name is made up."""
    path, _, last = name.rpartition(".")
    owner: Any = model
    for part in filter(None, path.split(".")):
        owner = owner._modules.get(part) if isinstance(owner, torch.nn.Module) else None
    tables: list[dict[str, Any]] = [owner._buffers, owner._parameters] if isinstance(owner, torch.nn.Module) else []
    for table in tables:
        if isinstance(table.get(last), torch.Tensor):
            return lambda: table[last]
    return lambda: found


def _load_by_name(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    """Through load_state_dict, so that a model which prepares weights ahead hears of the new ones."""
    model.load_state_dict({name: value.clone() for name, value in values.items()}, strict=False)
    persistent, state = model.state_dict().keys(), state_of(model)
    with torch.no_grad():
        for name in values.keys() - persistent:
            state[name].copy_(values[name])


def _copy_in_order(state: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(state, values, strict=True):
            tensor.copy_(value)


def flags() -> tuple[Any, ...]:
    """The global switches of torch that change results or speed."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.enabled,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
    )


def classify(error: BaseException, op: Op) -> Status:
    text = said(error)
    if isinstance(error, torch.OutOfMemoryError) or speaks_of_gpu_memory(text):
        return Status.OUT_OF_GPU_MEMORY
    if isinstance(error, MemoryError) or speaks_of_host_memory(text):
        return Status.OUT_OF_MEMORY
    if any(sign in text for sign in GPU_FAULT_SIGNS):
        return Status.GPU_FAULT
    if any(sign in text for sign in COMPILER_SIGNS):
        return Status.COMPILE_ERROR
    return Status.RUNTIME_ERROR if op in (Op.CALL, Op.CALL_ONE_BY_ONE) else Status.LOAD_ERROR


def said(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except BaseException:  # noqa: BLE001  an exception of the candidate's own; it may be unable to print itself
        return f"{name}, which raises when it is printed"


def explain(error: BaseException) -> str:
    """The exception and the line of the candidate it came from; for a failed build the compiler's own first error."""
    text = said(error)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if Path(frame.filename).name in ("candidate.py", "model.py")]
    return f"{text}\n(line {own[-1].lineno}: {own[-1].line})" if own else text


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a dense copy if its elements are spread over much more memory than they fill."""
    if tensor.is_conj() or tensor.is_neg():
        return tensor.resolve_conj().resolve_neg().contiguous()
    if _span(tensor) > 2 * tensor.numel() * tensor.itemsize + (1 << 20) or tensor.dim() > wire.MAX_DIMS:
        return tensor.contiguous()
    return tensor


def _span(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(reach + 1) * tensor.itemsize


def _write_claim(board: mmap.mmap, at: int, leaf: torch.Tensor | float) -> None:
    if not isinstance(leaf, torch.Tensor):
        wire.NUMBER.pack_into(board, at, leaf)
        return
    strides = (list(leaf.stride()) + [0] * wire.MAX_DIMS)[: wire.MAX_DIMS]
    wire.CLAIM.pack_into(board, at, _data_ptr(leaf), 0 if _is_contiguous(leaf) else max(_span(leaf), 1), *strides)


def _inline_tensor(spec: list[Any]) -> torch.Tensor:
    name, shape, data = spec
    raw = bytearray.fromhex(data)
    dtype = dtype_named(name)
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _described(value: Any) -> str:
    match value:
        case None:
            return "None"
        case torch.Tensor():
            return f"a tensor {tuple(value.shape)} {_dtype_name(value)}"
        case list() | tuple() | dict():
            return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _template_words(expected: dict[str, Any]) -> str:
    kind, *rest = expected["template"]
    words = {
        "T": "one tensor",
        "(": f"a tuple of {len(rest)}",
        "[": f"a list of {len(rest)}",
        "=": f"{rest[0] if rest else None}",
    }
    return words.get(kind, f"a dict of {len(rest)}" if kind == "{" else "a number")


def _nothing_loaded(*args: Any) -> Any:
    raise RuntimeError("no model is loaded")


def _plain(model: torch.nn.Module) -> Callable[..., Any]:
    return model


def _compiled(model: torch.nn.Module) -> Callable[..., Any]:
    return torch.compile(model, dynamic=False)


def _autotuned(model: torch.nn.Module) -> Callable[..., Any]:
    """torch.compile(mode="max-autotune"): kernels chosen by measuring, and on a GPU replayed as a CUDA graph.

    The graph is captured by us, one for each set of arguments: inductor's own gives all calls the same output memory.
    """
    tuned: Callable[..., Any] = torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)
    on_gpu = torch.cuda.is_available()
    return _graphed(tuned) if on_gpu else tuned


def _graphed(model: Callable[..., Any]) -> Callable[..., Any]:
    from kernelwright.judge import channel_cuda

    return channel_cuda.Graphed(model)


VARIANTS: dict[str, Callable[[torch.nn.Module], Callable[..., Any]]] = {
    "plain": _plain,
    "compile": _compiled,
    "max-autotune": _autotuned,
    "graph": _graphed,
}
