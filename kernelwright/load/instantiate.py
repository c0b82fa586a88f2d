"""A `Problem` and a seed come in; its model and its inputs, on the device asked for, go out."""

import inspect
import linecache
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from traceback import extract_tb
from types import ModuleType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from kernelwright.errors import BadProblem
from kernelwright.load.elsewhere import Elsewhere
from kernelwright.load.problem import Problem

__all__ = ["Instance", "at_home", "instantiate"]

# Inputs take another stream than weights: from one stream, torch.rand(n, n) would be the weight of nn.Linear(n, n) but
# for scale and shift, and such data hides mistakes.
INPUT_STREAM = 0x5EED

SCALARS = (int, float, complex, bool, str, type(None), torch.dtype, torch.device)

# The first type that fits names the cure.
CURES: tuple[tuple[type[BaseException], str], ...] = (
    (ModuleNotFoundError, "Install the missing module in the environment kernelwright runs in, or drop its import."),
    (
        ImportError,
        "Check the spelling and the installed version of what is imported; imports start at the file's folder.",
    ),
    (torch.OutOfMemoryError, "Make the inputs smaller, or run on a device with more memory."),
    (MemoryError, "Make the inputs smaller, or run on a machine with more memory."),
    (SystemExit, 'Move what ends the program under `if __name__ == "__main__":`.'),
    (BaseException, "Make the file run without an error in plain PyTorch first; this is its own exception."),
)

WRONG_INPUTS: tuple[tuple[type, str], ...] = (
    (torch.Tensor, "Return [x]: a list, also for one argument."),
    (dict, "Return the values in a list, in the order forward() takes them."),
    (types.GeneratorType, "Build the list at once: replace `yield` by one `return [...]`."),
    (type(None), "Let it end with `return [...]`."),
    (object, "Return a list of tensors and Python scalars, in the order forward() takes them."),
)


@dataclass(frozen=True, slots=True)
class Instance:
    """A model in train mode, as constructed, and the arguments of one forward call, all on one device."""

    model: nn.Module
    inputs: tuple[Any, ...]


def instantiate(problem: Problem, seed: int, device: str | torch.device) -> Instance:
    """Run the file, make its model and its inputs, and move both to `device`.

    The weights are those of `torch.manual_seed(seed)` followed by `Model(...)`, the same on every device: they are made
    on the CPU and then moved, unless the file itself says where. The caller's random state is left as it was.
    Device "meta" gives shapes and dtypes without memory or numbers.
    """
    device = torch.device(device)
    with generators_restored(), at_home(problem, device):
        module = _executed(problem)
        model = _model(module, problem, seed, device)
        inputs = _inputs(module, problem, seed)
        return Instance(_model_on(device, model), _moved(inputs, device))


@contextmanager
def at_home(problem: Problem, device: str | torch.device) -> Iterator[None]:
    """The surroundings a problem's code runs in: its folder is importable, and `cuda` means `device`."""
    folder = problem.path.resolve().parent
    _forget_siblings_elsewhere(folder)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with Elsewhere(device):
            yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        _siblings.update((name, folder) for name in sys.modules.keys() - before if _stands_in(folder, name))


# Modules that problems imported from their own folders. Two folders may each have a `layers.py`, and sys.modules has
# room for one: it stays for as long as problems of its folder run.
_siblings: dict[str, Path] = {}


def _forget_siblings_elsewhere(folder: Path) -> None:
    strangers = {name for name, home in _siblings.items() if home != folder}
    if not strangers:
        return
    for name in [name for name in sys.modules if name.partition(".")[0] in strangers]:
        del sys.modules[name]
    for name in strangers:
        del _siblings[name]


def _stands_in(folder: Path, name: str) -> bool:
    """Directly in it: an environment may be a subfolder, and its packages are nobody's siblings."""
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and Path(file) in (folder / f"{name}.py", folder / name / "__init__.py")


def _executed(problem: Problem) -> ModuleType:
    """The file as a module, freshly run, under a name of its own, so that `__main__` blocks stay asleep.

    Being in sys.modules makes pickle and dataclasses work; being in linecache makes inspect.getsource and tracebacks
    show the text that ran, even if the file has changed since.
    """
    filename = str(problem.path)
    identity = sha256(f"{problem.path.resolve()}\n{problem.source}".encode()).hexdigest()[:16]
    module = ModuleType(f"_kernelwright_problem_{identity}")
    module.__file__ = filename
    # mtime None: linecache never compares the entry with the disk
    linecache.cache[filename] = (len(problem.source), None, problem.source.splitlines(keepends=True), filename)
    sys.modules[module.__name__] = module
    with _Blaming(problem, "the file cannot be run"):
        exec(compile(problem.source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


def _model(module: ModuleType, problem: Problem, seed: int, device: torch.device) -> nn.Module:
    constructor = getattr(module, "Model", None)
    if not (isinstance(constructor, type) and issubclass(constructor, nn.Module)):
        what = "there is no class Model" if constructor is None else f"Model is {_described(constructor)}, no nn.Module"
        cure = "Name the model to optimize `class Model(nn.Module)` in this file."
        raise BadProblem(f"{what}.", where=problem.path, cure=cure)
    try:
        return _constructed(module, problem, seed, constructor)
    except BadProblem:
        if device.type != "meta":
            raise
    # The constructor may have asked for numbers, with .item() say, and meta tensors have none: make and drop them.
    with torch.device("cpu"):
        return _constructed(module, problem, seed, constructor)


def _constructed(module: ModuleType, problem: Problem, seed: int, constructor: type[nn.Module]) -> nn.Module:
    args, kwargs = _constructor_arguments(module, problem, seed, constructor)
    _seed_generators(seed)
    with _Blaming(problem, "Model(*get_init_inputs()) failed"):
        return constructor(*args, **kwargs)


def _model_on(device: torch.device, model: nn.Module) -> nn.Module:
    """Moved only if it must be: fake tensors, with which a caller may stand in for memory, cannot be moved in place."""
    here = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    there = all(found.type == device.type and device.index in (None, found.index) for found in here)
    return model if there else model.to(device)


def _constructor_arguments(
    module: ModuleType, problem: Problem, seed: int, constructor: type[nn.Module]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """From get_init_inputs(): a list of arguments, or the [args, kwargs] that some collections of problems write."""
    if not hasattr(module, "get_init_inputs"):
        return (), {}
    returned = _called(module.get_init_inputs, "get_init_inputs", problem, seed)
    match returned:
        case [list() | tuple() as args, dict() as kwargs] if _accepts(constructor, args, kwargs):
            return tuple(args), kwargs
        case list() | tuple():
            return tuple(returned), {}
    raise BadProblem(
        f"get_init_inputs() returned {_described(returned)}; a list of constructor arguments is needed.",
        where=_where(problem, module.get_init_inputs),
        cure="Return them in the order Model() takes them, [] if it takes none.",
    )


def _accepts(constructor: type, args: list[Any] | tuple[Any, ...], kwargs: dict[Any, Any]) -> bool:
    try:
        inspect.signature(constructor).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _inputs(module: ModuleType, problem: Problem, seed: int) -> tuple[Any, ...]:
    if not hasattr(module, "get_inputs"):
        cure = "Add `def get_inputs():` that returns the list of forward()'s arguments."
        raise BadProblem("there is no function get_inputs.", where=problem.path, cure=cure)
    returned = _called(module.get_inputs, "get_inputs", problem, seed ^ INPUT_STREAM)
    where = _where(problem, module.get_inputs)
    if not isinstance(returned, list | tuple):
        what = f"get_inputs() returned {_described(returned)}; a list of forward arguments is needed."
        raise BadProblem(what, where=where, cure=_first_fitting(WRONG_INPUTS, type(returned)))
    for position, value in enumerate(returned):
        for leaf in _leaves(value):
            if not isinstance(leaf, (torch.Tensor, *SCALARS)):
                what = f"get_inputs() returned {_described(leaf)} as argument {position}."
                cure = "Return tensors and Python scalars, or lists, tuples and dicts of them."
                raise BadProblem(what, where=where, cure=cure)
    return tuple(returned)


def _called(function: Callable[[], Any], name: str, problem: Problem, seed: int) -> Any:
    if not callable(function):
        raise BadProblem(
            f"{name} is {_described(function)}, no function.", where=problem.path, cure=f"Write `def {name}():`."
        )
    _seed_generators(seed)
    with _Blaming(problem, f"{name}() failed"):
        return function()


def _leaves(value: Any) -> Iterator[Any]:
    """What stands at the ends of nested lists, tuples and dicts."""
    match value:
        case list() | tuple():
            for item in value:
                yield from _leaves(item)
        case dict():
            for item in value.values():
                yield from _leaves(item)
        case _:
            yield value


def _moved(inputs: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """The inputs on `device`; a tensor given twice stays one tensor."""
    moved: dict[int, torch.Tensor] = {}

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return moved.setdefault(id(value), value.to(device))

    result: tuple[Any, ...] = tree_map(move, inputs)
    return result


@contextmanager
def generators_restored() -> Iterator[None]:
    """The random generators are afterwards where they were; file scope may seed or draw too."""
    python_state = random.getstate()
    gpus = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=gpus, device_type="cuda"):
            yield
    finally:
        random.setstate(python_state)


def _seed_generators(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)


class _Blaming(AbstractContextManager[None]):
    """Whatever the problem's own code raises leaves as a `BadProblem` that names the line and the cause."""

    def __init__(self, problem: Problem, what: str) -> None:
        self.problem = problem
        self.what = what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception | SystemExit) or isinstance(error, BadProblem):
            return
        file = str(self.problem.path)
        lines = [frame.lineno for frame in extract_tb(trace) if frame.filename == file]
        where = f"{file}:{lines[-1]}" if lines else file
        cause = f"{type(error).__name__}: {error}".rstrip(":. ")
        cure = _first_fitting(CURES, type(error))
        raise BadProblem(f"{self.what}: {cause}.", where=where, cure=cure) from error


def _first_fitting(table: tuple[tuple[type, str], ...], kind: type) -> str:
    return next(text for fitting, text in table if issubclass(kind, fitting))


def _where(problem: Problem, function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{problem.path}:{code.co_firstlineno}" if code else str(problem.path)


def _described(value: Any) -> str:
    match value:
        case None:
            return "None"
        case torch.Tensor():
            return "a tensor"
        case _:
            name = type(value).__name__
            return f"an {name}" if name[0] in "aeiou" else f"a {name}"
