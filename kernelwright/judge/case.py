"""A problem and a device come in; the problem made ready to judge by goes out: its model, shapes, state and oracle."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.device import Device
from kernelwright.errors import KernelwrightError
from kernelwright.judge.codec import flatten_arguments, flatten_output, unflatten
from kernelwright.judge.contestant import Entry, Shape
from kernelwright.judge.oracle import Oracle
from kernelwright.judge.policy import Policy
from kernelwright.judge.reference import Reference, State, copied_state, load_state, open_reference, seeded
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.load import Problem

__all__ = ["Case", "open_case"]

# Two runs from the same state and seed may differ by rounding (atomics), not by more.
REPEATABLE = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """A problem made ready on a device.

    tensors    of one set of arguments, for their shapes
    eager_s    how long a call takes, roughly; to plan by
    threads    of torch in the caller's process: workers get as many
    """

    problem: Problem
    reference: Reference
    oracle: Oracle
    shape: Shape
    state: State
    model_seed: int
    arguments: tuple[Any, ...]
    tensors: list[torch.Tensor]
    input_bytes: int
    output_bytes: int
    eager_s: float
    threads: int
    device: Device
    torch_device: torch.device

    @property
    def gpu(self) -> bool:
        return self.torch_device.type == "cuda"

    def entry(self, file: Path, name: str, variant: str) -> Entry:
        arguments = self.reference.constructor_arguments(self.model_seed)
        return Entry(file, name, variant, arguments, tuple(self.state.items()))


def open_case(problem: Problem, policy: Policy, device: Device, seeds: Seeds) -> Case:
    """Run the reference; what it cannot do is BAD_REFERENCE, never the candidate's fault."""
    with _blaming_the_reference():
        return _opened(problem, policy, device, seeds)


def _opened(problem: Problem, policy: Policy, device: Device, seeds: Seeds) -> Case:
    torch_device = torch.device(device.torch_name)
    reference = open_reference(problem, torch_device)
    model_seed = seeds.draw()
    model = reference.construct(model_seed)
    state = copied_state(model)
    args = reference.draw(seeds.draw())
    seed = seeds.draw()
    output, random = _called(reference, model, args, seed)
    again, _ = _called(reference, model, args, seed)
    load_state(model, state)
    if not random:
        _require_repeatable(output, again)
    threads = torch.get_num_threads()
    eager_s = _measured(reference, model, args, threads)
    load_state(model, state)
    oracle = Oracle(reference, model, policy.precision, draws=4 if eager_s < 0.2 else 2)
    oracle.random = random
    _, tensors = flatten_arguments(args)
    _, leaves = flatten_output(output)
    return Case(
        problem=problem,
        reference=reference,
        oracle=oracle,
        shape=Shape.of(args, output, torch_device),
        state=state,
        model_seed=model_seed,
        arguments=args,
        tensors=tensors,
        input_bytes=sum(t.numel() * t.itemsize for t in tensors),
        output_bytes=sum(t.numel() * t.itemsize for t in leaves if isinstance(t, torch.Tensor)),
        eager_s=eager_s,
        threads=threads,
        device=device,
        torch_device=torch_device,
    )


def _called(reference: Reference, model: torch.nn.Module, args: tuple[Any, ...], seed: int) -> tuple[Any, bool]:
    """The output, and whether random numbers were drawn for it."""
    template, tensors = flatten_arguments(args)
    fresh = unflatten(template, [t.clone() for t in tensors])
    with seeded(seed):
        before = _generator_state(reference.device)
        output = reference.call(model, fresh)
        after = _generator_state(reference.device)
    return output, not torch.equal(before, after)


def _generator_state(device: torch.device) -> torch.Tensor:
    host = torch.get_rng_state()
    return torch.cat([host, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else host


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
    x, y = torch.nan_to_num(a.double()), torch.nan_to_num(b.double())
    return float((x - y).abs().max()) <= REPEATABLE * float(x.square().mean().sqrt())


def _measured(reference: Reference, model: torch.nn.Module, args: tuple[Any, ...], threads: int) -> float:
    """Seconds a call. Where one thread does it in 20 ms the judge's own calls stay on one: it waits for no other."""
    call = lambda: reference.call(model, args)
    together = _shortest(call, reference.device)
    if reference.device.type != "cpu":
        return together
    torch.set_num_threads(1)
    alone = _shortest(call, reference.device)
    if alone > 0.02:
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
def _blaming_the_reference() -> Iterator[None]:
    try:
        yield
    except (Failed, KeyboardInterrupt):
        raise
    except KernelwrightError as error:
        raise Failed(Verdict.BAD_REFERENCE, str(error).replace("\n", " ")) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise Failed(Verdict.BAD_REFERENCE, f"the reference runs out of memory here: {error}") from error
    except BaseException as error:
        # A problem's own code may raise anything, SystemExit too.
        raise Failed(Verdict.BAD_REFERENCE, f"the reference raises {type(error).__name__}: {error}") from error
