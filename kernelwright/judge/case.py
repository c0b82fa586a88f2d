"""A problem and a device come in; the problem made ready to judge by goes out: its model, shapes, state and oracle."""

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.device import Device
from kernelwright.errors import KernelwrightError
from kernelwright.judge.codec import as_real, flatten_arguments, flatten_output, unknown_type
from kernelwright.judge.contestant import Entry, Shape
from kernelwright.judge.criterion import chunks
from kernelwright.judge.large import Rows, fingerprint, rows_of
from kernelwright.judge.memory import Footprint, Room, full_bytes, give_back, peak_of
from kernelwright.judge.oracle import Oracle, same_bits
from kernelwright.judge.policy import Policy
from kernelwright.judge.pool import Planner, as_it_lies
from kernelwright.judge.process import machine_is_busy
from kernelwright.judge.reference import Reference, State, copied_state, load_state, open_reference, seeded
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.shortage import is_shortage, shortage_words
from kernelwright.judge.verdict import Failed, Label, Verdict
from kernelwright.judge.worker import state_of
from kernelwright.load import Problem

__all__ = ["Case", "leaner", "open_case"]

# Two runs from the same state and seed may differ by rounding (atomics), not by more.
REPEATABLE = 1e-3
# How many times inputs and outputs are held in a machine's own memory while trials are scored; of a GPU, see memory.py.
COPIES = 48


@dataclass(frozen=True, slots=True)
class Case:
    """A problem made ready on a device.

    tensors    of one set of arguments, for their shapes and strides; without memory
    habits     labels that the reference itself would get: it writes into its inputs, or hands them back
    updated    the buffers that a call changes
    hands_out_state  its output lies in its own weights or buffers, and changes with them
    large      the judge must not hold inputs and outputs many times over
    rows       how the oracle may take a large problem apart
    eager_s    how long a call takes, roughly; to plan by
    threads    of torch in the caller's process: workers get as many
    """

    problem: Problem
    reference: Reference
    oracle: Oracle
    shape: Shape
    state: State
    model_seed: int
    argument_seed: int
    tensors: list[torch.Tensor]
    footprint: Footprint
    room: Room
    habits: frozenset[Label]
    updated: tuple[str, ...]
    hands_out_state: bool
    large: bool
    rows: Rows | None
    eager_s: float
    threads: int
    device: Device
    torch_device: torch.device

    @property
    def input_bytes(self) -> int:
        return self.footprint.inputs

    @property
    def output_bytes(self) -> int:
        return self.footprint.outputs

    @property
    def gpu(self) -> bool:
        return self.torch_device.type == "cuda"

    @property
    def worker_device(self) -> torch.device:
        """A worker sees one GPU only."""
        return _as_worker_sees(self.torch_device)

    def watched(self) -> list[tuple[int, tuple[str, tuple[int, ...]]]]:
        """The buffers that a call changes: their places in the state, dtypes and shapes."""
        return [
            (place, (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)))
            for place, (name, tensor) in enumerate(self.state.items())
            if name in self.updated
        ]

    def arguments(self) -> tuple[Any, ...]:
        """One set of arguments, always the same."""
        return self.reference.draw(self.argument_seed)

    def entry(self, file: Path, name: str, variant: str) -> Entry:
        arguments = self.reference.constructor_arguments(self.model_seed)
        elsewhere = not self.gpu and "cuda" in self.problem.source
        return Entry(file, name, variant, arguments, tuple(self.state.items()), elsewhere)


def open_case(problem: Problem, policy: Policy, device: Device, seeds: Seeds) -> Case:
    """Run the reference; what it cannot do is BAD_REFERENCE, never the candidate's fault."""
    with _blaming_the_reference(torch.device(device.torch_name)):
        return _opened(problem, policy, device, seeds)


def _opened(problem: Problem, policy: Policy, device: Device, seeds: Seeds) -> Case:
    torch_device = torch.device(device.torch_name)
    reference = open_reference(problem, torch_device)
    model_seed = seeds.draw()
    model = reference.construct(model_seed)
    state = copied_state(model)
    argument_seed = seeds.draw()
    args = reference.draw(argument_seed)
    reference = reference.of_this_form(args)
    _, tensors = flatten_arguments(args)
    seed = seeds.draw()
    secret = seeds.draw()
    before = fingerprint(tensors, secret)
    held = _held_bytes(torch_device)
    output, random = _called(reference, model, args, seed)
    _require_comparable(output)
    footprint = _footprint(tensors, output, state, peak_of(torch_device) - held)
    habits = _habits(tensors, output, fingerprint(tensors, secret) != before)
    if Label.MUTATES_INPUTS in habits:
        args = reference.draw(argument_seed)
        _, tensors = flatten_arguments(args)
    shape = Shape.of(args, output, _as_worker_sees(torch_device))
    hands_out_state = _shares_memory(list(state_of(model).values()), output)
    room = Room(torch_device, policy.gpu_bytes)
    large = _is_large(footprint, room)
    if not random and not large:
        load_state(model, state)
        again, _ = _called(reference, model, reference.draw(argument_seed), seed)
        _require_repeatable(output, again)
    del output
    updated = _changed_state(model, state)
    load_state(model, state)
    threads = torch.get_num_threads()
    eager_s = _measured(reference, model, args, threads)
    load_state(model, state)
    draws = _draws(large, eager_s, footprint.inputs + footprint.outputs)
    oracle = Oracle(reference, model, policy.precision, draws=draws)
    oracle.random = random
    oracle.guarded = bool(habits)
    rows = _rows(oracle, args, footprint, room) if large and not random and not updated else None
    load_state(model, state)
    return Case(
        problem=problem,
        reference=reference,
        oracle=oracle,
        shape=shape,
        state=state,
        model_seed=model_seed,
        argument_seed=argument_seed,
        tensors=[torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors],
        footprint=footprint,
        room=room,
        habits=habits,
        updated=updated,
        hands_out_state=hands_out_state,
        large=large,
        rows=rows,
        eager_s=eager_s,
        threads=threads,
        device=device,
        torch_device=torch_device,
    )


def leaner(case: Case) -> Case:
    """The same case, judged with as little memory as can be."""
    gc.collect()
    give_back(case.torch_device)
    case.oracle.draws = 1
    rows = None
    if not case.oracle.random and not case.updated:
        rows = _rows(case.oracle, case.arguments(), case.footprint, case.room)
    load_state(case.oracle.model, case.state)
    give_back(case.torch_device)
    return replace(case, large=True, rows=rows)


def _is_large(footprint: Footprint, room: Room) -> bool:
    if room.device.type == "cuda":
        return full_bytes(footprint) > room.whole()
    return COPIES * (footprint.inputs + footprint.outputs) > room.left()


def _rows(oracle: Oracle, args: tuple[Any, ...], footprint: Footprint, room: Room) -> Rows | None:
    _, tensors = flatten_arguments(args)
    batch = tensors[0].shape[0] if tensors and tensors[0].dim() else 1
    row_bytes = (footprint.inputs + footprint.outputs + footprint.between) // max(1, batch)
    return rows_of(lambda some: oracle.reference.call(oracle.model, some), args, row_bytes, room.left() // COPIES)


def _held_bytes(device: torch.device) -> int:
    """What tensors of this process take; from here on, `peak_of` tells how much more it was at most."""
    peak_of(device)
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else 0


def _footprint(inputs: list[torch.Tensor], output: Any, state: State, taken: int) -> Footprint:
    """`taken`: the most that the call took, its output among it; not known of a CPU."""
    leaves = [leaf for leaf in flatten_output(output)[1] if isinstance(leaf, torch.Tensor)]
    outputs = _bytes_of(leaves)
    placed = sum(Planner().place(t, strides=as_it_lies(t)).span for t in inputs)
    return Footprint(placed, outputs, _bytes_of(state.values()), max(0, taken - outputs))


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(t.numel() * t.itemsize for t in tensors)


def _draws(large: bool, eager_s: float, bytes_a_call: int) -> int:
    """For the condition estimate. Many elements say as much with fewer."""
    if large:
        return 1
    return 4 if eager_s < 0.05 and bytes_a_call < 32 << 20 else 2


def _called(reference: Reference, model: torch.nn.Module, args: tuple[Any, ...], seed: int) -> tuple[Any, bool]:
    """The output, and whether random numbers were drawn for it."""
    with seeded(seed):
        before = _generator_state(reference.device)
        output = reference.call(model, args)
        after = _generator_state(reference.device)
    return output, not torch.equal(before, after)


def _habits(inputs: list[torch.Tensor], output: Any, mutated: bool) -> frozenset[Label]:
    found = {Label.MUTATES_INPUTS} if mutated else set()
    return frozenset(found | {Label.ALIASES_INPUT} if _shares_memory(inputs, output) else found)


def _shares_memory(tensors: list[torch.Tensor], output: Any) -> bool:
    memory = {t.untyped_storage().data_ptr() for t in tensors if t.numel()}
    leaves = [leaf for leaf in flatten_output(output)[1] if isinstance(leaf, torch.Tensor) and leaf.numel()]
    return any(leaf.untyped_storage().data_ptr() in memory for leaf in leaves)


def _changed_state(model: torch.nn.Module, state: State) -> tuple[str, ...]:
    return tuple(name for name, tensor in state_of(model).items() if not same_bits(tensor.detach(), state[name]))


def _as_worker_sees(device: torch.device) -> torch.device:
    return torch.device("cuda", 0) if device.type == "cuda" else device


def _generator_state(device: torch.device) -> torch.Tensor:
    host = torch.get_rng_state()
    return torch.cat([host, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else host


def _require_comparable(output: Any) -> None:
    """Of what cannot be looked into, any answer would be right."""
    template, leaves = flatten_output(output)
    if unknown := unknown_type(template):
        raise Failed(Verdict.BAD_REFERENCE, f"the reference returns a {unknown}; tensors and numbers can be compared")
    if not leaves:
        raise Failed(Verdict.BAD_REFERENCE, "the reference returns neither a tensor nor a number to compare")
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.itemsize == 1:
            raise Failed(Verdict.BAD_REFERENCE, f"the reference returns {leaf.dtype}, of which nothing can be compared")


def _require_repeatable(first: Any, second: Any) -> None:
    _, one = flatten_output(first)
    _, two = flatten_output(second)
    for a, b in zip(one, two, strict=True):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            same = a.shape == b.shape and _about_equal(a, b)
        else:
            same = bool(a == b)
        if not same:
            raise Failed(Verdict.BAD_REFERENCE, "the reference gives another output for the same inputs and seed")


def _about_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.numel():
        return True
    x, y, largest, squares = as_real(a).reshape(-1), as_real(b).reshape(-1), 0.0, 0.0
    for part in chunks(x):
        one = torch.nan_to_num(x[part].double())
        squares += float(one.square().sum())
        largest = max(largest, float(one.sub_(torch.nan_to_num(y[part].double())).abs_().max()))
    return largest <= REPEATABLE * math.sqrt(squares / x.numel())


def _measured(reference: Reference, model: torch.nn.Module, args: tuple[Any, ...], threads: int) -> float:
    """Seconds a call. Where one thread does it in 20 ms the judge's own calls stay on one: it waits for no other.

    So they do where others use the machine: a thread that waits for one without a core makes 10 s out of 0.3.
    """
    call = lambda: reference.call(model, args)
    together = _shortest(call, reference.device)
    if reference.device.type != "cpu":
        return together
    torch.set_num_threads(1)
    alone = _shortest(call, reference.device)
    if alone > 0.02 and not machine_is_busy():
        torch.set_num_threads(threads)
    return min(together, alone)


def _shortest(call: Callable[[], Any], device: torch.device) -> float:
    best, end = math.inf, time.perf_counter() + 0.25
    for _ in range(20):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return best


@contextlib.contextmanager
def _blaming_the_reference(device: torch.device) -> Iterator[None]:
    try:
        yield
    except (Failed, KeyboardInterrupt):
        raise
    except KernelwrightError as error:
        raise Failed(Verdict.BAD_REFERENCE, str(error).replace("\n", " ")) from error
    except BaseException as error:
        if is_shortage(error) and device.type == "cuda":  # perhaps a neighbour's
            words = shortage_words("the reference itself", error, device)
            raise Failed(Verdict.JUDGE_ERROR, words, shortage=True) from error
        if is_shortage(error):
            raise Failed(Verdict.BAD_REFERENCE, f"the reference runs out of memory here: {error}") from error
        # A problem's own code may raise anything, SystemExit too.
        raise Failed(Verdict.BAD_REFERENCE, f"the reference raises {type(error).__name__}: {error}") from error
