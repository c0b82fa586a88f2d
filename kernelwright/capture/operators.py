"""One call of the exported program comes in; its IR value goes out, by the table of known operators, else as Opaque."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.fx import Node as FxNode

from kernelwright.capture.call import Call, Translation, Value
from kernelwright.capture.contractions import CONTRACTIONS
from kernelwright.capture.indexing import INDEXED
from kernelwright.capture.maps import MAPS
from kernelwright.capture.reductions import REDUCTIONS
from kernelwright.capture.resampling import RESAMPLING
from kernelwright.capture.scans import SCANS
from kernelwright.capture.views import VIEWS
from kernelwright.capture.windows import BORDERS, POOLS
from kernelwright.errors import UnsupportedProblem
from kernelwright.ir import dtypes
from kernelwright.ir.nodes import Argument, Item, Map, Node, Opaque, Permute, Symbol, TensorType, View
from kernelwright.load import Problem


def translate(fx: FxNode, values: Mapping[FxNode, Value], problem: Problem) -> Value:
    """The value of one call_function node."""
    if fx.target is operator.getitem:
        source, index = fx.args
        assert isinstance(source, FxNode)
        assert isinstance(index, int)
        several = values[source]
        assert isinstance(several, tuple)
        return several[index]
    if not isinstance(fx.target, torch._ops.OpOverload):
        raise UnsupportedProblem(f"forward() uses {fx.target}, which has no single graph.", where=problem.path)
    results = result_types(fx, problem)
    if not results:
        return None  # an assertion about shapes or dtypes that export has already checked
    target = str(fx.target)
    if not any(results):
        raise UnsupportedProblem(
            f"forward() takes a Python number out of a tensor ({target}), and a graph knows only shapes.",
            where=problem.path,
            cure="Compute with the tensor itself, or leave this model as it is.",
        )
    if target == "aten.as_strided.default":
        return strided(fx, values, results, problem)
    known = KNOWN.get(target.removesuffix(".default"))
    if known is not None and is_real(fx, values, results):
        value = known(Call(target, bound(fx, values), results))
        if value is not None:
            return value if may_give_an_operand(fx.target) else apart_from(operands_of(fx, values), value)
    return opaque(fx, values, results, problem)


def may_give_an_operand(target: torch._ops.OpOverload) -> bool:
    """Or a view of one: by the schema. An operator that is made of others (contiguous, flatten) does not say."""
    annotated = any(result.alias_info is not None for result in target._schema.returns)
    return annotated or target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


def apart_from(operands: Collection[Node], value: Value) -> Value:
    """The value in memory of its own, where it would be that of an operand: a sum along an axis of extent 1, say. The
    caller may write into it. Where nobody can tell, it is not copied."""
    if isinstance(value, tuple):
        return tuple(None if v is None else Map("identity", (v,)) if memory_of(v) in operands else v for v in value)
    return Map("identity", (value,)) if value is not None and memory_of(value) in operands else value


def memory_of(node: Node) -> Node:
    """What a view is a view of."""
    while isinstance(node, View):
        node = node.x
    return node


def operands_of(fx: FxNode, values: Mapping[FxNode, Value]) -> set[Node]:
    """The operands; of those that are views, what they are views of."""
    several = [values[x] for x in fx.all_input_nodes]
    flat = [o for value in several for o in (value if isinstance(value, tuple) else (value,))]
    return {memory_of(o) for o in flat if o is not None}


def is_real(fx: FxNode, values: Mapping[FxNode, Value], results: tuple[TensorType | None, ...]) -> bool:
    """Complex numbers are PyTorch's, on the way in and on the way out."""
    types = [*results, *operands_of(fx, values)]
    return not any(t is not None and t.dtype.kind == "complex" for t in types)


def strided(
    fx: FxNode, values: Mapping[FxNode, Value], results: tuple[TensorType | None, ...], problem: Problem
) -> Value:
    """as_strided looks at memory, which values have none of: its operand is first laid out as PyTorch had it."""
    source = fx.args[0]
    assert isinstance(source, FxNode)
    x, fake = values[source], source.meta["val"]
    assert isinstance(x, Node)
    order = tuple(sorted(range(fake.dim()), key=lambda axis: -fake.stride(axis)))
    if not fake.permute(order).is_contiguous() or fake.storage_offset() != 0:
        raise UnsupportedProblem("forward() uses as_strided on a part of a tensor.", where=problem.path)
    contiguous = (("memory_format", Symbol("torch.contiguous_format")),)
    type_ = TensorType(tuple(x.shape[axis] for axis in order), x.dtype)
    memory = Opaque("aten.clone.default", (Permute(x, order),), contiguous, (type_,))
    rest = tuple(frozen(lowered(a, values), problem) for a in fx.args[1:])
    return Opaque(str(fx.target), (memory, *rest), (), results)


def result_types(fx: FxNode, problem: Problem) -> tuple[TensorType | None, ...]:
    val = fx.meta.get("val")
    if val is None:
        return ()
    flat = tuple(val) if isinstance(val, (tuple, list)) else (val,)
    if any(isinstance(v, (tuple, list)) for v in flat):
        what = f"{fx.target} gives lists within a tuple; a tensor, or a tuple or list of them, is understood."
        raise UnsupportedProblem(what, where=problem.path, cure="Leave this model as it is.")
    return tuple(tensor_type(v, fx, problem) if isinstance(v, torch.Tensor) else None for v in flat)


def tensor_type(fake: torch.Tensor, fx: FxNode, problem: Problem) -> TensorType:
    name = str(fake.dtype).removeprefix("torch.")
    if name not in dtypes.DTYPES:
        what = f"{fx.target} gives a {name} tensor, and kernels know only the standard dtypes."
        raise UnsupportedProblem(what, where=problem.path, cure="Leave this model as it is.")
    if not all(isinstance(extent, int) for extent in fake.shape):
        what = f"{fx.target} gives a tensor whose size depends on values, and a graph knows only shapes."
        cure = "Keep the size fixed, with torch.where or a mask as a factor, or leave this model as it is."
        raise UnsupportedProblem(what, where=problem.path, cure=cure)
    return TensorType(tuple(fake.shape), dtypes.by_name(name))


def bound(fx: FxNode, values: Mapping[FxNode, Value]) -> dict[str, Any]:
    """Arguments by their names in the schema, nodes replaced by IR values."""
    assert isinstance(fx.target, torch._ops.OpOverload)
    arguments = {}
    for position, declared in enumerate(fx.target._schema.arguments):
        given = fx.args[position] if position < len(fx.args) else fx.kwargs.get(declared.name, declared.default_value)
        arguments[declared.name] = lowered(given, values)
    return arguments


def lowered(argument: Any, values: Mapping[FxNode, Value]) -> Any:
    if isinstance(argument, FxNode):
        return values[argument]
    if isinstance(argument, (list, tuple)):
        return tuple(lowered(item, values) for item in argument)
    return argument


def opaque(
    fx: FxNode, values: Mapping[FxNode, Value], results: tuple[TensorType | None, ...], problem: Problem
) -> Value:
    """The call as it is; its results one by one if there are several."""
    assert isinstance(fx.target, torch._ops.OpOverload)
    args = tuple(frozen(lowered(a, values), problem) for a in fx.args)
    kwargs = tuple((name, frozen(lowered(a, values), problem)) for name, a in fx.kwargs.items())
    random = torch.Tag.nondeterministic_seeded in fx.target.tags
    serial = list(fx.graph.nodes).index(fx) if random else -1
    node = Opaque(str(fx.target), args, kwargs, results, serial)
    several = isinstance(fx.meta["val"], (tuple, list))
    if several and len(results) == 1:
        return (node,)  # a list of one tensor, which the node stands for
    return tuple(None if r is None else Item(node, i) for i, r in enumerate(results)) if several else node


def frozen(argument: Any, problem: Problem) -> Argument:
    """An argument as the IR keeps it. A device becomes the place where the inputs are."""
    if argument is None or isinstance(argument, (Node, bool, int, float, complex, str)):
        return argument
    if isinstance(argument, tuple):
        return tuple(frozen(item, problem) for item in argument)
    if isinstance(argument, torch.device):
        return Symbol("device")
    if isinstance(argument, (torch.dtype, torch.layout, torch.memory_format)):
        return Symbol(str(argument))
    raise UnsupportedProblem(f"an operator takes {argument!r}, which cannot be written down.", where=problem.path)


KNOWN: Mapping[str, Translation] = {
    **{**MAPS, **VIEWS, **INDEXED, **RESAMPLING},
    **{**CONTRACTIONS, **BORDERS, **POOLS, **REDUCTIONS, **SCANS},
}
