"""A `Problem` comes in; a `Graph` goes out: the exported ATen program translated operator by operator."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import Node as FxNode

from kernelwright.capture.call import Value
from kernelwright.capture.export import constants_of_another_seed, export
from kernelwright.capture.operators import translate
from kernelwright.capture.settings import settings_of
from kernelwright.errors import UnsupportedProblem
from kernelwright.ir import dtypes
from kernelwright.ir.nodes import (
    Detached,
    Fixed,
    Graph,
    Group,
    Input,
    Map,
    Node,
    Param,
    Scalar,
    Structure,
    Table,
    Update,
    Updated,
)
from kernelwright.load import Instance, Problem

# A constant tensor in forward() is written into the emitted file up to this many elements.
LARGEST_TABLE = 4096

# Arguments of these names would hide what the emitted forward() itself calls.
SHADOWING = ("torch", "super", "float", "complex", "getattr")


def capture(problem: Problem) -> Graph:
    """The whole of forward() as one graph, for the shapes and dtypes of get_inputs()."""
    program, instance, default = export(problem)
    leaves = leaf_nodes(problem, program, instance)
    refuse_seeded_constants(problem, program, leaves)
    values: dict[FxNode, Value] = {}
    for fx in program.graph.nodes:
        if fx.op == "placeholder":
            values[fx] = leaves.get(fx.name)
        elif fx.op == "call_function":
            values[fx] = translate(fx, values, problem)
    graph = assemble(problem, program, instance, values)
    return replace(graph, default_dtype=dtypes.by_name(str(default).removeprefix("torch.")))


def leaf_nodes(problem: Problem, program: ExportedProgram, instance: Instance) -> dict[str, Value]:
    """The IR leaf of each placeholder by its name."""
    leaves: dict[str, Value] = {}
    types = {fx.name: fx.meta.get("val") for fx in program.graph.nodes if fx.op == "placeholder"}
    position = 0
    names = argument_names(instance)
    for spec in program.graph_signature.input_specs:
        fake = types.get(spec.arg.name)
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(fake, torch.Tensor):
                leaves[spec.arg.name] = Input(names[position], position, *layout(problem, fake))
            position += 1
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            assert isinstance(fake, torch.Tensor)
            assert spec.target is not None
            leaves[spec.arg.name] = Param(spec.target, *layout(problem, fake))
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            assert spec.target is not None
            leaves[spec.arg.name] = constant(problem, program, instance, spec.target)
        else:
            what = f"forward() uses an object that is no tensor, a torch.Generator say ({spec.arg.name})."
            raise UnsupportedProblem(what, where=problem.path, cure="Leave this model as it is.")
    return leaves


def constant(problem: Problem, program: ExportedProgram, instance: Instance, target: str) -> Node:
    """A tensor attribute of the model by its path; a tensor made in forward() by its values."""
    tensor = program.constants[target]
    assert isinstance(tensor, torch.Tensor)
    for path, module in instance.model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value is tensor:
                return Param(f"{path}.{name}".lstrip("."), *layout(problem, tensor))
    shape, dtype, _ = layout(problem, tensor)
    if tensor.numel() > LARGEST_TABLE:
        raise UnsupportedProblem(
            f"forward() builds a constant tensor of {tensor.numel()} elements.",
            where=problem.path,
            cure="Register it as a buffer in __init__.",
        )
    return Table(tuple(tensor.flatten().tolist()), shape, dtype)


def refuse_seeded_constants(problem: Problem, program: ExportedProgram, leaves: Mapping[str, Value]) -> None:
    """Weights that the model keeps where nobody finds them, in a plain list say, look like constants; they are not."""
    tables = [s for s in program.graph_signature.input_specs if isinstance(leaves.get(s.arg.name), Table)]
    others = constants_of_another_seed(problem) if tables else {}
    for spec in tables:
        assert spec.target is not None
        one, other = program.constants[spec.target], others.get(spec.target)
        if not isinstance(other, torch.Tensor) or repr(one.tolist()) != repr(other.tolist()):
            raise UnsupportedProblem(
                f"forward() uses a random tensor of shape {tuple(one.shape)} that is no attribute of a module.",
                where=problem.path,
                cure="Make it one; put lists of layers into nn.ModuleList, lists of weights into nn.ParameterList.",
            )


def layout(problem: Problem, fake: torch.Tensor) -> tuple[tuple[int, ...], dtypes.DType, tuple[int, ...]]:
    name = str(fake.dtype).removeprefix("torch.")
    if name not in dtypes.DTYPES:
        raise UnsupportedProblem(f"{name} tensors are not supported.", where=problem.path)
    return tuple(fake.shape), dtypes.by_name(name), tuple(fake.stride())


def argument_names(instance: Instance) -> list[str]:
    """forward()'s own names for its arguments, in order."""
    code = inspect.unwrap(type(instance.model).forward).__code__
    owner = code.co_qualname.removesuffix(".forward").rpartition(".")[2].lstrip("_")
    mangled = f"_{owner}__"  # in a class, Python calls __x _Model__x
    written = [f"__{n.removeprefix(mangled)}" if n.startswith(mangled) else n for n in code.co_varnames]
    declared = [f"{n}_" if n in SHADOWING else n for n in written[1 : code.co_argcount]]
    rest = [f"x{i}" for i in range(len(declared), len(instance.inputs))]
    return declared + rest


def assemble(problem: Problem, program: ExportedProgram, instance: Instance, values: Mapping[FxNode, Value]) -> Graph:
    placeholders = {fx.name: values[fx] for fx in program.graph.nodes if fx.op == "placeholder"}
    by_name: Mapping[str, Value] = {fx.name: value for fx, value in values.items()}
    targets: dict[str, Node] = {}
    inputs: list[Input] = []
    for spec in program.graph_signature.input_specs:
        leaf = placeholders.get(spec.arg.name)
        if isinstance(leaf, Input):
            inputs.append(leaf)
        if isinstance(leaf, Node):
            targets[spec.target or spec.arg.name] = leaf
    outputs: dict[str, Node] = {}
    returned: list[Structure] = []
    updates: list[Update] = []
    changed: dict[str, Input] = {}  # the arguments that are changed, by the names of their new values
    for out in program.graph_signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            returned.append(returned_item(problem, program, out.arg, by_name, outputs, changed))
        elif out.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION"):
            assert out.target is not None
            target, value = targets[out.target], by_name[out.arg.name]
            assert isinstance(target, (Param, Input))
            assert isinstance(value, Node)
            updates.append(Update(target, value))
            # A buffer may also have been replaced; what is returned then stays as it is when the buffer changes again.
            if isinstance(target, Input):
                changed[out.arg.name] = target
        else:
            raise UnsupportedProblem(f"forward() has an output of kind {out.kind.name}.", where=problem.path)
    names = argument_names(instance)
    scalars = tuple(Scalar(names[i], i, v) for i, v in enumerate(instance.inputs) if not isinstance(v, torch.Tensor))
    structure = structured(problem, program.call_spec.out_spec, iter(returned))
    settings = settings_of(instance.model, problem.source)
    return Graph(tuple(inputs), tuple(outputs.values()), tuple(updates), structure, scalars, settings)


def returned_item(
    problem: Problem,
    program: ExportedProgram,
    arg: Any,
    by_name: Mapping[str, Value],
    outputs: dict[str, Node],
    changed: Mapping[str, Input],
) -> Structure:
    """The place of one returned leaf; a tensor joins `outputs`, unless it is there already or is a changed argument."""
    if isinstance(arg, ConstantArgument):
        assert arg.value is None or isinstance(arg.value, (bool, int, float, str))
        return Fixed(arg.value)
    name = attached(program, arg.name, by_name) if isinstance(arg, TensorArgument) else ""
    value = by_name.get(name)
    if not isinstance(value, Node):
        raise UnsupportedProblem(
            "forward() returns something that is neither a tensor nor a constant.", where=problem.path
        )
    if name in changed:
        place: int | Updated = Updated(changed[name])
    else:
        # Two results that are equal but were two tensors stay two tensors: the caller may write into one of them.
        if name not in outputs:
            outputs[name] = apart(value, outputs.values())
        place = list(outputs).index(name)
    return place if name == arg.name else Detached(place)


def attached(program: ExportedProgram, name: str, by_name: Mapping[str, Value]) -> str:
    """What a tensor is only another name for: by .detach() or .data, or as a view of the whole. Most are their own."""
    fx = next(fx for fx in program.graph.nodes if fx.name == name)
    while (
        isinstance(fx.target, OpOverload) and gives_a_view(fx.target) and by_name[fx.name] is by_name[fx.args[0].name]
    ):
        fx = fx.args[0]
    return str(fx.name)


def gives_a_view(target: OpOverload) -> bool:
    """Always: contiguous() and to() may copy."""
    returns = target._schema.returns
    may = len(returns) == 1 and returns[0].alias_info is not None and not returns[0].alias_info.is_write
    return may and target._schema.name not in ("aten::contiguous", "aten::to")


def apart(value: Node, others: Collection[Node]) -> Node:
    """The value, copied as often as it takes to be none of the others."""
    while value in others:
        value = Map("identity", (value,))
    return value


def structured(problem: Problem, spec: Any, leaves: Any) -> Structure:
    """torch's description of a nested result, as ours."""
    if spec.is_leaf():
        return next(leaves)  # type: ignore[no-any-return]
    named_fields = getattr(spec.type, "__module__", "") == "torch.return_types"  # what torch.max(x, 1) gives, say
    if spec.type not in (tuple, list) and not named_fields:
        kind = getattr(spec.type, "__name__", spec.type)
        raise UnsupportedProblem(
            f"forward() returns a {kind}; a tensor, or a tuple or list of them, is understood.",
            where=problem.path,
            cure="Return a tuple.",
        )
    kind = f"torch.return_types.{spec.type.__name__}" if named_fields else spec.type.__name__
    return Group(kind, tuple(structured(problem, child, leaves) for child in pytree_children(spec)))


def pytree_children(spec: Any) -> list[Any]:
    children: list[Any] = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    return children
