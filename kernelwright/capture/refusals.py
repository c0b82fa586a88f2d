"""A model that has no graph comes in; the reason, as an error in one sentence with its cure, goes out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from traceback import extract_tb

import torch
from torch import nn
from torch._ops import OpOverload
from torch.fx import Graph as FxGraph
from torch.fx import Node as FxNode
from torch.nn.parameter import is_lazy

from kernelwright.errors import BadProblem, KernelwrightError, UnsupportedProblem
from kernelwright.load import Problem

AS_IT_IS = "Leave this model as it is: it runs in plain PyTorch."


def refuse_parts(problem: Problem, model: nn.Module) -> None:
    """Parts that run code which a graph made before their first call, or without that code, would not have."""
    if type(model).__call__ is not nn.Module.__call__:
        what = "Model has a __call__ of its own, which ModelNew would run once more."
        raise UnsupportedProblem(what, where=problem.path, cure="Do in forward() what it does.")
    for path, module in model.named_modules():
        name = f"part {path}" if path else "the model"
        if any(map(is_lazy, (*module.parameters(recurse=False), *module.buffers(recurse=False)))):
            what = f"{name} is a {type(module).__name__}, which learns its sizes in its first call."
            raise UnsupportedProblem(what, where=problem.path, cure="Use the layer that is given its sizes.")
        if isinstance(module, torch.jit.ScriptModule):
            what = f"{name} is a torch.jit module, which torch.export cannot trace."
            raise UnsupportedProblem(what, where=problem.path, cure="Use the plain nn.Module instead.")
        if module._forward_hooks or module._forward_pre_hooks:
            what = f"{name} has a forward hook, and kernels would pass it by."
            cure = (
                "Do in forward() what the hook does; for weight_norm and spectral_norm, take those of "
                "torch.nn.utils.parametrizations."
            )
            raise UnsupportedProblem(what, where=problem.path, cure=cure)


def refuse_arguments(problem: Problem, inputs: Sequence[object]) -> None:
    """Arguments that a graph has no place for."""
    for position, value in enumerate(inputs):
        cure = AS_IT_IS
        if isinstance(value, (list, tuple, dict)):
            what, cure = f"a {type(value).__name__}", "Let forward() take the tensors as arguments of their own."
        elif isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            what = f"a tensor of layout {value.layout}"
        elif not isinstance(value, (torch.Tensor, bool, int, float, str, type(None))):
            what, cure = f"a {type(value).__name__}", "Give it to the constructor instead, in get_init_inputs()."
        else:
            continue
        what = f"argument {position} of forward() is {what}; only plain tensors, real numbers, strings and None can be."
        raise UnsupportedProblem(what, where=problem.path, cure=cure)


def refuse_effects(problem: Problem, changed: Sequence[str]) -> None:
    """What happens in Python happens once, while the graph is made."""
    if not changed:
        return
    random = next((name for name in changed if "random" in name or "seed" in name), None)
    if random == "torch.manual_seed":
        what, cure = "forward() sets the seed of torch, which a graph cannot do.", "Set it before the model is called."
    elif random is not None:
        what = f"forward() draws from {random}, and a graph would do so once."
        cure = "Draw with torch.rand in forward()."
    else:
        what = f"forward() changes {changed[0]}, which is no parameter or buffer: a graph would do so once."
        cure = "Keep it in a buffer (self.register_buffer) and change that, or leave this model as it is."
    raise UnsupportedProblem(what, where=problem.path, cure=cure)


def refuse_unused_draws(problem: Problem, graph: FxGraph) -> None:
    """The tracer leaves out what nothing uses; the numbers that later draws get would change."""
    unused: set[FxNode] = set()
    for fx in reversed(graph.nodes):
        if not isinstance(fx.target, OpOverload) or fx.target._schema.is_mutable or not unused.issuperset(fx.users):
            continue
        unused.add(fx)
        if torch.Tag.nondeterministic_seeded in fx.target.tags and draws(fx):
            what = f"forward() draws random numbers that it does not use ({fx.target}), and a graph has no such call."
            raise UnsupportedProblem(what, where=problem.path, cure="Take the unused call out of forward().")


def draws(fx: FxNode) -> bool:
    """A dropout does not in eval mode, or where all or nothing is dropped."""
    match str(fx.target).partition(".")[2], fx.args:
        case name, (_, float() | int() as p, bool() as training) if "dropout" in name:
            return training and 0 < p < 1
    return True


def refusal(problem: Problem, error: Exception, run: Callable[[], Exception | None]) -> KernelwrightError:
    """Why torch.export could not trace forward(): the file is wrong, it asks for values, or something else.

    `run` gives what forward() raises by itself.
    """
    where = place(problem, error)
    if any(asks_for_values(e) for e in causes(error)):
        what = "forward() decides by the values of tensors, and a graph knows only their shapes."
        cure = "Write what depends on values with torch.where, or leave this model as it is."
        return UnsupportedProblem(what, where=where, cure=cure)
    if found := re.match(r"Found <class '(?:.*\.)?(\w+)'> in output", str(error)):
        what = f"forward() returns a {found[1]}; a tensor, or a tuple or list of them, is understood."
        return UnsupportedProblem(what, where=where, cure="Return a tuple.")
    own = run()
    if own is not None:
        what = f"forward() fails on what get_inputs() gives: {type(own).__name__}: {first_line(own)}."
        cure = "Make the file run without an error in plain PyTorch first; this is its own exception."
        return BadProblem(what, where=place(problem, own), cure=cure)
    what = f"torch.export cannot trace forward(): {first_line(error)}."
    return UnsupportedProblem(what, where=where, cure=AS_IT_IS)


def asks_for_values(error: BaseException) -> bool:
    text = str(error).lower()
    return "data-dependent" in text or "unbacked symbol" in text or "DataDependent" in type(error).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def place(problem: Problem, error: BaseException) -> str:
    """The last line of the model's file that the error went through."""
    for one in causes(error):
        lines = [frame.lineno for frame in extract_tb(one.__traceback__) if frame.filename == str(problem.path)]
        if lines:
            return f"{problem.path}:{lines[-1]}"
    return str(problem.path)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
