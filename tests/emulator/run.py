"""A model file, or a model and inputs, comes in; what its emitted CUDA program computes, run on the host, goes out.

    from tests.emulator.run import agrees, emulated

    outputs = emulated("examples/geglu.py", ROWS=5, HIDDEN=12)      # or emulated(model, [x, y])
    agrees("examples/geglu.py", ROWS=5, HIDDEN=12)                  # the same, compared with eager PyTorch

The emitted file itself is executed. Its tensors are CPU tensors that pose as CUDA tensors, its library is ours, and
where it would fall back to the original model it fails instead.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from kernelwright.capture import capture
from kernelwright.device import resolve
from kernelwright.emit import emit
from kernelwright.generate import Program, generate
from kernelwright.generate.generate import ranked_choices
from kernelwright.ir.nodes import Node
from kernelwright.kernels.choices import Choice
from kernelwright.load import Problem, load, problem_of
from kernelwright.load.instantiate import at_home, instantiate
from kernelwright.plan import Kernel, Routes, plan, prepared
from kernelwright.simplify import simplify
from kernelwright.tune.routes import may_be_ours
from tests.emulator.build import Library, library_of

SEED = 3

Pick = Callable[[Kernel, Sequence[Choice]], Choice]
Source = str | Path | Problem | nn.Module


# --- from a problem to a program


def emulated_problem(source: Source, inputs: Sequence[Any] | None = None, **sizes: Any) -> Problem:
    """The problem with other values for its upper-case constants, such as ROWS=5."""
    if isinstance(source, nn.Module):
        return problem_of(source, inputs)
    problem = source if isinstance(source, Problem) else load(source)
    unknown = [name for name in sizes if not re.search(rf"^[\w, ]*\b{name}\b[\w, ]*=", problem.source, re.MULTILINE)]
    if unknown:
        raise ValueError(f"{problem.path} has no constants {', '.join(unknown)}.")
    lines = "".join(f"{name} = {value!r}\n" for name, value in sizes.items())
    return replace(problem, source=f"{problem.source}\n\n{lines}" if sizes else problem.source)


def first(_: Kernel, choices: Sequence[Choice]) -> Choice:
    return choices[0]


def program_of(
    problem: Problem,
    device: str = "h200",
    pick: Pick = first,
    precision: str = "reference",
    reducing: bool = False,
    fed: bool = False,
    again: bool = False,
) -> Program:
    """Generated for a device that is not here, with every product that can be a kernel of ours as one. `reducing`: they
    reduce their results where the planner sees how; `fed`: they compute their operands; `again`: they are computed
    twice where that spares the result."""
    target = resolve(device)
    graph = simplify(capture(problem))
    own = frozenset(node for node in prepared(graph).nodes() if may_be_ours(node, target))
    none = frozenset[Node]()
    routes = Routes(own, none, precision, reducing=own if reducing else none, fed=own if fed else none)
    planned = plan(graph, replace(routes, again=own if again else none))
    choices = {kernel.name: pick(kernel, ranked_choices(kernel, target)) for kernel in planned.kernels}
    return generate(planned, choices, target)


# --- the emitted file, executed


@dataclass
class Emulation:
    """An emitted file at work: its module, its program and the library that stands for the GPU."""

    problem: Problem
    program: Program
    library: Library | None
    module: ModuleType = field(init=False)

    def __post_init__(self) -> None:
        text = emit(self.program, self.problem)
        guard = 'device.type != "cuda"'
        assert guard in text, "the emitted file asks for its device in another way"
        self.module = ModuleType(f"emulated_{self.problem.name}")
        with at_home(self.problem, "cpu"):
            exec(compile(text.replace(guard, guard.replace("cuda", "cpu")), "emulated", "exec"), vars(self.module))
        vars(self.module).update(torch=torch_with_a_gpu(), LIBRARY=Entries(self.library))

    def __call__(self, model: nn.Module, *inputs: Any) -> Any:
        """ModelNew on the state of `model`, which it may change; every entry of its library has to run."""
        model.__class__ = self.module.ModelNew
        with addresses_given_to(self.library), warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("error", message="ModelNew runs the original")
            outputs = model(*inputs)
        missing = {launch.entry for launch in self.program.launches} - set(self.library.calls if self.library else ())
        assert not missing, f"{missing} did not run"
        return outputs


class Entries:
    """What ctypes.CDLL is to the emitted file."""

    def __init__(self, library: Library | None) -> None:
        self.library = library

    def __getattr__(self, entry: str) -> Callable[..., int]:
        assert self.library is not None, "a program without kernels has no entries"
        library = self.library
        return lambda *arguments: library.call(entry, *arguments)


def torch_with_a_gpu() -> ModuleType:
    """torch, with a stream to launch on, and with memory that is poisoned where it is only allocated."""
    stand_in = ModuleType("torch")
    stand_in.__getattr__ = lambda name: getattr(torch, name)  # type: ignore[method-assign]
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    stand_in.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=lambda device=None: stream,
        is_current_stream_capturing=lambda: False,
        is_available=lambda: True,
        device=lambda device: nullcontext(),
    )
    stand_in.empty = poisoned  # type: ignore[attr-defined]
    return stand_in


# Around memory that is allocated, in bytes: who reads past the end of a tensor does not end up in the next one.
BAND = 4096


def poisoned(*shape: Any, **options: Any) -> torch.Tensor:
    """Memory that no correct result is left in: NaN, or the bytes of -1."""
    made = torch.empty(*shape, **options)
    count = made.untyped_storage().nbytes()
    bytes_ = torch.full((BAND + count + BAND,), 255, dtype=torch.uint8)
    return bytes_[BAND : BAND + count].view(made.dtype).as_strided(made.shape, made.stride())


@contextmanager
def addresses_given_to(library: Library | None) -> Iterator[None]:
    """Whatever the emitted file takes the address of, the library may touch, from first element to last."""
    original = torch.Tensor.data_ptr

    def data_ptr(tensor: torch.Tensor) -> int:
        return library.give(tensor) if library is not None else original(tensor)

    torch.Tensor.data_ptr = data_ptr  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.data_ptr = original  # type: ignore[method-assign]


def emulation_of(
    problem: Problem,
    device: str = "h200",
    pick: Pick = first,
    precision: str = "reference",
    reducing: bool = False,
    fed: bool = False,
    again: bool = False,
) -> Emulation:
    program = program_of(problem, device, pick, precision, reducing, fed, again)
    return Emulation(problem, program, library_of(program.text) if program.text else None)


def emulated(
    source: Source, inputs: Sequence[Any] | None = None, *, pick: Pick = first, reducing: bool = False, **sizes: Any
) -> Any:
    """What the emitted program computes of a problem's own inputs, or of those given."""
    problem = emulated_problem(source, inputs, **sizes)
    made = instantiate(problem, SEED, "cpu")
    model = source if isinstance(source, nn.Module) else made.model
    return emulation_of(problem, pick=pick, reducing=reducing)(model, *(made.inputs if inputs is None else inputs))


# --- compared with PyTorch


def agrees(
    source: Source,
    inputs: Sequence[Any] | None = None,
    *,
    pick: Pick = first,
    precision: str = "reference",
    device: str = "h200",
    reducing: bool = False,
    fed: bool = False,
    again: bool = False,
    **sizes: Any,
) -> Program:
    """Fails unless outputs and state are as close to those in float64 as PyTorch's own, or within a few roundings."""
    problem = emulated_problem(source, inputs, **sizes)
    emulation = emulation_of(problem, device, pick, precision, reducing, fed, again)
    compared(problem, inputs, ran(problem, inputs, emulation), precision)
    return emulation.program


def compared(problem: Problem, inputs: Sequence[Any] | None, got: Sequence[torch.Tensor], precision: str) -> None:
    eager = ran(problem, inputs, lambda model, *given: model(*given))
    wide = ran(problem, inputs, lambda model, *given: model.double()(*tree_map(widened, given)))
    assert len(got) == len(eager)
    for number, (one, theirs, exact) in enumerate(zip(got, eager, wide, strict=True)):
        assert (one.dtype, one.shape) == (theirs.dtype, theirs.shape), f"result {number}"
        wrong = too_far(one, theirs, exact, 2.0**-9 if precision in ("tf32", "fp16") else 0.0)
        assert not wrong, f"result {number} of {problem.name}: {wrong}"


def ran(problem: Problem, inputs: Sequence[Any] | None, call: Callable[..., Any]) -> list[torch.Tensor]:
    """Outputs, the state afterwards and the arguments afterwards, of a fresh model."""
    made = instantiate(problem, SEED, "cpu")
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in (made.inputs if inputs is None else inputs)]
    torch.manual_seed(SEED)
    with at_home(problem, "cpu"), torch.no_grad():
        outputs = call(made.model, *given)
    everything = [*tree_flatten(outputs)[0], *made.model.state_dict().values(), *given]
    return [x.detach() for x in everything if isinstance(x, torch.Tensor)]


def widened(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def too_far(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, relative: float) -> str:
    """ "" if a result is good. Floats: as far from exact as eager is, twice, or a few units in the last place of the
    largest; integers and truth values: the same."""
    if not got.is_floating_point():
        return "" if torch.equal(got, eager) else f"{int((got != eager).sum())} of {got.numel()} differ"
    if got.numel() == 0:
        return ""
    wide, ours, theirs = exact.double(), got.double(), eager.double()
    special = ~(torch.isfinite(theirs) & torch.isfinite(wide))
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    if not bool(same[special].all()):
        return f"{int((~same[special]).sum())} infinities or NaNs are not where PyTorch has them"
    off, allowed = (ours - wide).abs()[~special], (theirs - wide).abs()[~special]
    scale = wide[~special].abs()
    limit = 3 * allowed + 8 * torch.finfo(got.dtype).eps * scale + 4 * torch.finfo(got.dtype).smallest_normal
    largest = scale.max() if scale.numel() else torch.zeros(())
    limit = limit + (3 * (allowed.max() if allowed.numel() else 0)) + relative * largest
    bad = ~(off <= limit)
    if not bool(bad.any()):
        return ""
    worst = int((off - limit).nan_to_num(nan=float("inf")).argmax())
    return (
        f"{int(bad.sum())} of {got.numel()} are off, at worst {ours[~special][worst]:.9g} instead of "
        f"{wide[~special][worst]:.9g} (PyTorch: {theirs[~special][worst]:.9g})"
    )
