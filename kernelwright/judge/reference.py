"""A problem comes in; its model, inputs and constructor arguments, made by the judge from its own seeds, go out."""

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from kernelwright.errors import BadProblem
from kernelwright.judge.codec import Template, flatten_arguments, unflatten
from kernelwright.judge.modes import OnCpuFirst
from kernelwright.judge.shortage import is_shortage
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.judge.worker import state_of
from kernelwright.load import Problem, at_home

__all__ = [
    "Reference",
    "Refused",
    "State",
    "can_be_turned",
    "copied_state",
    "load_state",
    "open_reference",
    "seeded",
]

State = dict[str, torch.Tensor]


class Refused(Exception):
    """The problem's own code raises on inputs that are not its own."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The problem's own code, run once; everything it makes lies on `device`.

    stirred  which tensors among the arguments are moved a little by the seed: the file gives the same ones for every
             seed, and who keeps what it made of them would know the next one
    form     of the first arguments, the structure with all that is no tensor in it, and the tensors' shapes: a worker
             is told of these once, so that the numbers of one judgement stay the same and shapes must
    """

    problem: Problem
    module: ModuleType
    device: torch.device
    stirred: frozenset[int] = frozenset()
    form: tuple[Template, tuple[tuple[torch.Size, torch.dtype], ...]] | None = None

    def constructor_arguments(self, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        make = getattr(self.module, "get_init_inputs", None)
        if make is None:
            return (), {}
        with self.at_home(), seeded(seed):
            returned = make()
        match returned:
            case [list() | tuple() as args, dict() as kwargs]:
                return tuple(args), kwargs
        return tuple(returned), {}

    def construct(self, seed: int) -> nn.Module:
        """The model as the protocol makes it: seed, then constructor, then moved; never put in eval()."""
        args, kwargs = self.constructor_arguments(seed)
        with self.at_home(), seeded(seed):
            model = self.module.Model(*args, **kwargs)
        if not isinstance(model, nn.Module):
            raise BadProblem("Model is no nn.Module.", where=self.problem.path)
        return model.to(self.device)

    def draw(self, seed: int) -> tuple[Any, ...]:
        """Fresh arguments of one call, on the device."""
        with self.at_home(), seeded(seed):
            returned = self._drawn_on_device()
        moved: dict[int, torch.Tensor] = {}
        args = self._in_form(tuple(self._moved(value, moved) for value in returned))
        return self._stirred_arguments(args, seed) if self.stirred else args

    def of_this_form(self, args: tuple[Any, ...]) -> "Reference":
        template, tensors = flatten_arguments(args)
        return replace(self, form=(template, _shapes(tensors)))

    def _in_form(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.form is None:
            return args
        template, tensors = flatten_arguments(args)
        if _shapes(tensors) != self.form[1]:
            raise Failed(Verdict.BAD_REFERENCE, "get_inputs gives tensors of other shapes each time")
        result: tuple[Any, ...] = args if template == self.form[0] else unflatten(self.form[0], tensors)
        return result

    def _stirred_arguments(self, args: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
        template, tensors = flatten_arguments(args)
        generator = torch.Generator().manual_seed(seed)
        turn = float(torch.rand((), generator=generator))
        stirred = {id(tensors[number]): _stirred(tensors[number], generator, turn) for number in sorted(self.stirred)}
        result: tuple[Any, ...] = unflatten(template, [stirred.get(id(tensor), tensor) for tensor in tensors])
        return result

    def _moved(self, value: Any, moved: dict[int, torch.Tensor]) -> Any:
        """On the device; what is one tensor stays one. No nested function, for the reason that codec.py gives."""
        match value:
            case torch.Tensor():
                if id(value) not in moved:
                    moved[id(value)] = value.detach().to(self.device)
                return moved[id(value)]
            case list() | tuple():
                return type(value)(self._moved(item, moved) for item in value)
            case dict():
                return {key: self._moved(item, moved) for key, item in value.items()}
        return value

    def _drawn_on_device(self) -> Any:
        """Large inputs are made where they are needed: a GPU draws them a thousand times faster than a CPU core."""
        if self.device.type == "cuda":
            try:
                with self.device:
                    return self.module.get_inputs()
            except RuntimeError as error:  # a file may insist on a CPU generator; then it is drawn there
                if is_shortage(error):  # other numbers would be drawn there, from the same seed
                    raise
        return self.module.get_inputs()

    def at_home(self) -> contextlib.AbstractContextManager[None]:
        return at_home(self.problem, self.device)

    def call(self, model: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """One forward call, without gradients, in the problem's own surroundings."""
        needs_home = self.device.type != "cuda" and "cuda" in self.problem.source
        with torch.no_grad(), self.at_home() if needs_home else contextlib.nullcontext():
            return model(*args)

    def attempt(self, model: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The same on inputs that it may refuse, by whatever exception."""
        try:
            with OnCpuFirst() if self.device.type == "cuda" else contextlib.nullcontext():
                return self.call(model, args)
        except Exception as error:
            if is_shortage(error):
                raise
            raise Refused(type(error).__name__) from error

    def double(self, model: nn.Module) -> nn.Module:
        """The same in twice the precision; nn.Module.double() leaves complex numbers as they are."""
        wide = copy.deepcopy(model).double()
        wide._apply(lambda t: t.to(torch.complex128) if t.is_complex() else t)  # type: ignore[no-untyped-call]
        return wide


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors)


def _stirred(x: torch.Tensor, generator: torch.Generator, turn: float) -> torch.Tensor:
    """Each element up to 1/64 closer to zero: it stays in any range that the model asks for; symmetry stays too.

    Integers are turned along the last dimension, by that share of it: they stay the same numbers, in the same rows,
    and beside each other.
    """
    if not x.is_floating_point():
        return x.roll(1 + int(turn * (x.shape[-1] - 1)), -1) if can_be_turned(x) else x
    symmetric = x.dim() == 2 and x.shape[0] == x.shape[1] and bool((x == x.T).all())
    drawn = torch.rand(x.shape[:1] if symmetric else x.shape, generator=generator)
    factors = (1 - drawn / (128 if symmetric else 64)).to(x.device, x.dtype)
    return x * factors[:, None] * factors[None, :] if symmetric else x * factors


def can_be_turned(x: torch.Tensor) -> bool:
    """Whether numbers may stand elsewhere in their rows: such as are in order, and masks, promise something by it."""
    if x.dtype is torch.bool or not x.dim() or x.shape[-1] < 2 or not x.numel():
        return False
    rises = x[..., 1:] - x[..., :-1] if x.dtype is not torch.uint8 else x[..., 1:].long() - x[..., :-1].long()
    in_order = bool((rises >= 0).all()) or bool((rises <= 0).all())
    return not in_order and not bool(((x == 0) | (x == 1)).all())


def open_reference(problem: Problem, device: torch.device) -> Reference:
    """Run the file; what it lacks or raises is a `BadProblem`."""
    name = f"_kernelwright_reference_{problem.name}"
    module = ModuleType(name)
    module.__file__ = str(problem.path)
    reference = Reference(problem, module, device)
    with reference.at_home():
        exec(compile(problem.source, str(problem.path), "exec", dont_inherit=True), module.__dict__)
    for needed in ("Model", "get_inputs"):
        if not callable(getattr(module, needed, None)):
            raise BadProblem(f"the file defines no {needed}.", where=problem.path)
    return reference


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Generators start from `seed`, and are put back afterwards."""
    python_state = random.getstate()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=gpus, device_type="cuda"):
        # As torch.manual_seed, which also takes down a traceback for each kind of device that is not in use: of
        # hundreds of inputs to a round, each would take a millisecond.
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed_all(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)


def load_state(model: nn.Module, state: State) -> None:
    with torch.no_grad():
        for name, tensor in state_of(model).items():
            tensor.copy_(state[name])


def copied_state(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in state_of(model).items()}
