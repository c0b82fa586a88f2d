"""Runs a graph with torch, node by node: a graph and tensors in, tensors out. This defines what a graph means."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .dtypes import DType
from .nodes import (
    Argument,
    Broadcast,
    Const,
    Contract,
    Conv,
    Gather,
    Graph,
    Input,
    Iota,
    Item,
    Map,
    Node,
    Opaque,
    Pad,
    Param,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Slice,
    Symbol,
    Table,
    Windows,
    walk,
)
from .reductions import REDUCTIONS
from .scalars import SCALARS

Leaves = Mapping[Node, torch.Tensor]

# What a running sum or product starts from.
IDENTITIES = {"sum": 0, "prod": 1}


def interpret(graph: Graph, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The graph's outputs, then its updated values, on these inputs and this state (by dotted path)."""
    leaves: dict[Node, torch.Tensor] = {leaf: inputs[leaf.position] for leaf in graph.inputs}
    for node in graph.nodes():
        if isinstance(node, Param):
            leaves[node] = state[node.path]
        if isinstance(node, Input):
            leaves.setdefault(node, inputs[node.position])
    values = evaluate(graph.roots, leaves)
    return [values[n] for n in (*graph.outputs, *(u.value for u in graph.updates))]


def evaluate(roots: Sequence[Node], leaves: Leaves) -> dict[Node, Any]:
    """The value of every node that the roots depend on; `leaves` gives those of inputs and parameters."""
    values: dict[Node, Any] = {}
    for node in walk(tuple(roots)):
        values[node] = leaves[node] if node in leaves else MEANING[type(node)](node, values)
    return values


def map_value(node: Map, values: Mapping[Node, Any]) -> torch.Tensor:
    args = [values[a] for a in node.args]
    if node.to is not None:
        result: torch.Tensor = args[0].to(torch_dtype(node.to))
        return result
    return SCALARS[node.fn].torch(*args)


def scan_value(node: Scan, values: Mapping[Node, Any]) -> torch.Tensor:
    x = values[node.x].flip(node.axis) if node.reverse else values[node.x]
    running = REDUCTIONS[node.fn].scan
    assert running is not None, f"{node.fn} has no running form"
    result = running(x, node.axis)
    if node.exclusive:
        nothing = torch.full_like(result.narrow(node.axis, 0, min(1, result.shape[node.axis])), IDENTITIES[node.fn])
        result = torch.cat([nothing, result.narrow(node.axis, 0, max(0, result.shape[node.axis] - 1))], node.axis)
    return result.flip(node.axis) if node.reverse else result


def conv_value(node: Conv, values: Mapping[Node, Any]) -> torch.Tensor:
    x, weight = values[node.x], values[node.weight]
    geometry = (list(node.stride), list(node.padding), list(node.dilation))
    return torch.convolution(x, weight, None, *geometry, node.transposed, list(node.output_padding), node.groups)


def gather_value(node: Gather, values: Mapping[Node, Any]) -> torch.Tensor:
    x: torch.Tensor = values[node.x]
    rank = len(node.shape)
    indices = [values[index].long().to(x.device).expand(node.shape) for index in node.indices]
    inside = torch.ones(node.shape, dtype=torch.bool, device=x.device)
    for index, extent in zip(indices, node.extents, strict=True):
        inside &= (index >= 0) & (index < extent)
    places = [
        torch.arange(n, device=x.device).reshape(n, *(1,) * (rank - 1 - axis)) for axis, n in enumerate(node.shape)
    ]
    picked = x[(*places, *(index.where(inside, 0) for index in indices))]
    return picked.where(inside, torch.tensor(node.nothing, dtype=x.dtype, device=x.device))


def opaque_value(node: Opaque, values: Mapping[Node, Any]) -> Any:
    kwargs = {name: thaw(value, values) for name, value in node.kwargs}
    found = resolve_operator(node.target)(*(thaw(a, values) for a in node.args), **kwargs)
    return found[0] if len(node.results) == 1 and gives_a_list(node.target) else found


def table_value(node: Table, values: Mapping[Node, Any]) -> torch.Tensor:
    return torch.tensor(node.values, dtype=torch_dtype(node.dtype)).reshape(node.shape)


def slice_value(node: Slice, values: Mapping[Node, Any]) -> torch.Tensor:
    result: torch.Tensor = values[node.x]
    for axis, (start, step, extent) in enumerate(zip(node.start, node.step, node.shape, strict=True)):
        index = torch.arange(extent, device=result.device) * step + start
        result = result.index_select(axis, index)
    return result


def pad_value(node: Pad, values: Mapping[Node, Any]) -> torch.Tensor:
    x: torch.Tensor = values[node.x]
    result = x.new_full(node.shape, node.value)
    inside = tuple(slice(b, b + extent) for b, extent in zip(node.before, x.shape, strict=True))
    result[inside] = x
    return result


def windows_value(node: Windows, values: Mapping[Node, Any]) -> torch.Tensor:
    x: torch.Tensor = values[node.x].contiguous()
    shape, strides = node.shape, list(x.stride())
    inner = [strides[axis] * dilation for axis, dilation in zip(node.axes, node.dilation, strict=True)]
    for axis, stride in zip(node.axes, node.stride, strict=True):
        strides[axis] *= stride
    return x.as_strided(shape, (*strides, *inner)).clone()


MEANING: Mapping[type[Node], Callable[[Any, Mapping[Node, Any]], Any]] = {
    Const: lambda n, v: torch.tensor(n.value, dtype=torch_dtype(n.dtype)),
    Table: table_value,
    Iota: lambda n, v: torch.arange(n.extent),
    Map: map_value,
    Reduce: lambda n, v: REDUCTIONS[n.fn].torch(v[n.x], n.axes),
    Scan: scan_value,
    Contract: lambda n, v: torch.einsum(n.equation, *(x.float() if n.wide else x for x in (v[n.a], v[n.b]))),
    Conv: conv_value,
    Gather: gather_value,
    Opaque: opaque_value,
    Item: lambda n, v: v[n.source][n.index],
    Reshape: lambda n, v: v[n.x].reshape(n.shape),
    Permute: lambda n, v: v[n.x].permute(n.order),
    Broadcast: lambda n, v: v[n.x].expand(n.shape),
    Slice: slice_value,
    Pad: pad_value,
    Windows: windows_value,
}


def thaw(argument: Argument, values: Mapping[Node, Any]) -> Any:
    """An operator's argument as PyTorch takes it: nodes by their values, tuples as lists, symbols by name."""
    if isinstance(argument, Node):
        return values[argument]
    if isinstance(argument, tuple):
        return [thaw(item, values) for item in argument]
    if isinstance(argument, Symbol):
        return resolve_symbol(argument)
    return argument


def resolve_symbol(symbol: Symbol) -> Any:
    """torch.float32 for "torch.float32"; no device at all for "device", which means: where the inputs are."""
    if symbol.text == "device":
        return None
    return functools.reduce(getattr, symbol.text.split(".")[1:], torch)


def gives_a_list(target: str) -> bool:
    """Whether the operator's result is a list of tensors; a list of one stands for that one in the graph."""
    returned = resolve_operator(target)._schema.returns  # type: ignore[attr-defined]
    return len(returned) == 1 and isinstance(returned[0].type, torch.ListType)


def resolve_operator(target: str) -> Callable[..., Any]:
    """torch.ops.aten.relu.default for "aten.relu.default"."""
    result: Callable[..., Any] = operator.attrgetter(target)(torch.ops)
    return result


def torch_dtype(dtype: DType) -> torch.dtype:
    return dtype.to_torch()
