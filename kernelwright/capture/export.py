"""A model and its inputs come in; its functional ATen program, by torch.export, goes out."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import MethodType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from kernelwright.capture.refusals import refusal, refuse_arguments, refuse_effects, refuse_parts, refuse_unused_draws
from kernelwright.errors import UnsupportedProblem
from kernelwright.load import Instance, Problem, at_home, effects, instantiate

# The graph does not depend on values, so any seed will do; with the other one, what depends on a seed shows.
SEED = 0
OTHER_SEED = 0x07E2

# Up to so many elements of weights and inputs, a model is run to see whether it is itself at fault.
RUN_UP_TO = 1 << 24


def export(problem: Problem) -> tuple[ExportedProgram, Instance, torch.dtype]:
    """The program without in-place operators; high-level operators (linear, layer_norm, lstm) stay whole. With it the
    default dtype that it was made under: the file may set one.

    First without memory for weights and inputs; a model that looks at values while it is built or called (`.item()`,
    constant tensors) is made for real.
    """
    with at_home(problem, "cpu"), quiet(), default_dtype_restored(), torch.no_grad():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                instance = instantiate(problem, SEED, "cpu")
                program = traced(problem, instance)
        except UnsupportedProblem:
            raise
        except Exception:  # noqa: BLE001  what fails without values may work with them, and else fails again below
            program = None
        if program is None:
            instance = instantiate(problem, SEED, "cpu")
            program = traced_or_refused(problem, instance)
        return program, instance, torch.get_default_dtype()


def traced(problem: Problem, instance: Instance) -> ExportedProgram | None:
    """The program; None if it holds constants without values."""
    refuse_parts(problem, instance.model)
    refuse_arguments(problem, instance.inputs)
    register_plain_tensors(instance.model)
    average_in_the_graph(instance.model)
    with effects(instance.model) as changed, Detaching():
        program: ExportedProgram = torch.export.export(instance.model, separate(instance.inputs), strict=False)
    refuse_effects(problem, changed)
    refuse_unused_draws(problem, program.graph)
    if any(isinstance(c, FakeTensor) for c in lifted(program)):
        return None
    functional: ExportedProgram = program.run_decompositions({})
    return functional


def separate(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Each tensor with memory of its own: the tracer would take two that share theirs for one, and the next caller may
    give two. Their values are not looked at."""
    found: list[Any] = []
    seen: set[int] = set()
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.layout is torch.strided:
            memory = x.untyped_storage()._cdata
            again = memory in seen
            seen.add(memory)
            found.append(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) if again else x)
        else:
            found.append(x)
    return tuple(found)


def constants_of_another_seed(problem: Problem) -> dict[str, object]:
    """The tensors that the graph has as constants, had the file and the model been made with other random numbers."""
    with (
        at_home(problem, "cpu"),
        quiet(),
        default_dtype_restored(),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(OTHER_SEED)
        program = traced_or_refused(problem, instantiate(problem, OTHER_SEED, "cpu"))
    return dict(program.constants)


class Detaching(TorchFunctionMode):
    """x.data is x.detach() here: the tracer would take it for a new constant."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0].detach()
        return func(*args, **(kwargs or {}))


def register_plain_tensors(model: torch.nn.Module) -> None:
    """Tensors kept as plain attributes become buffers: torch.export follows changes to those alone.

    This model is ours and thrown away; in the user's, such a tensor stays the attribute it is, under the same path.
    """
    for module in model.modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, value in plain.items():
            delattr(module, name)
            module.register_buffer(name, value, persistent=False)


def average_in_the_graph(model: torch.nn.Module) -> None:
    """BatchNorm without a momentum weighs a batch by how many there have been, which it asks of a tensor: so that the
    graph has that number, this model's parts compute with it."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward and counts_batches(module):
            module.forward = MethodType(averaged_batch_norm, module)  # type: ignore[method-assign]


def counts_batches(module: _BatchNorm) -> bool:
    return module.momentum is None and module.training and module.num_batches_tracked is not None


def averaged_batch_norm(module: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """What _BatchNorm.forward does: running statistics are means over all batches so far."""
    module._check_input_dim(x)  # type: ignore[no-untyped-call]
    count, mean, var = module.num_batches_tracked, module.running_mean, module.running_var
    assert count is not None
    assert mean is not None
    assert var is not None
    count.add_(1)
    share = 1 / count.to(mean.dtype)
    wide = x.to(torch.promote_types(x.dtype, mean.dtype))
    axes = tuple(axis for axis in range(x.dim()) if axis != 1)
    mean.copy_(wide.mean(axes) * share + mean * (1 - share))
    var.copy_(wide.var(axes) * share + var * (1 - share))
    return batch_norm(x, None, None, module.weight, module.bias, True, 0.0, module.eps)


def traced_or_refused(problem: Problem, instance: Instance) -> ExportedProgram:
    try:
        program = traced(problem, instance)
    except UnsupportedProblem:
        raise
    except Exception as error:  # torch.export raises whatever the model or the tracer raises
        raise refusal(problem, error, lambda: own_failure(problem, instance.model)) from error
    assert program is not None, "what is made of real tensors has real constants"
    return program


def own_failure(problem: Problem, model: torch.nn.Module) -> Exception | None:
    """What forward() raises without a tracer; None if it is fine, or too large to run."""
    if sum(p.numel() for p in model.parameters()) > RUN_UP_TO:
        return None
    instance = instantiate(problem, SEED, "cpu")
    if sum(x.numel() for x in instance.inputs if isinstance(x, torch.Tensor)) > RUN_UP_TO:
        return None
    try:
        instance.model(*instance.inputs)
    except Exception as error:  # noqa: BLE001  the user's code may raise anything
        return error
    return None


def lifted(program: ExportedProgram) -> list[object]:
    """The tensors written as constants inside forward()."""
    return list(program.constants.values())


@contextmanager
def default_dtype_restored() -> Iterator[None]:
    """A file that sets torch's default dtype sets it for its own model, not for the next one."""
    before = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def quiet() -> Iterator[None]:
    """torch.export warns about its own internals and prints the graphs it fails on; none of it is for our user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
