"""Prints a graph, one line a node: what `explain` and `--dump` show and golden files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
)


def graph_text(graph: Graph) -> str:
    """The graph as numbered lines; constants stand where they are used."""
    names = number(graph.nodes())
    lines = [
        f"{names[n]:<6}= {node_text(n, names)} : {type_text(n)}" for n in graph.nodes() if not isinstance(n, Const)
    ]
    lines += [f"{target_text(u.target)} <- {names[u.value]}" for u in graph.updates]
    lines.append("return " + ", ".join(names[n] for n in graph.outputs))
    return "\n".join(lines) + "\n"


def number(nodes: tuple[Node, ...]) -> dict[Node, str]:
    """%0, %1, ... in order; a constant is named by its value."""
    shown = (node for node in nodes if not isinstance(node, Const))
    constants = {node: constant_text(node) for node in nodes if isinstance(node, Const)}
    return {node: f"%{i}" for i, node in enumerate(shown)} | constants


def type_text(node: Node) -> str:
    if isinstance(node, Opaque) and len(node.results) != 1:
        return f"{len(node.results)} results"
    return f"{node.dtype.name}[{', '.join(map(str, node.shape))}]"


def constant_text(node: Const) -> str:
    return f"{node.value!r}"


def target_text(target: Node) -> str:
    return target.path if isinstance(target, Param) else target.name if isinstance(target, Input) else "?"


def node_text(node: Node, names: Mapping[Node, str]) -> str:
    return TEXT[type(node)](node, names)


def map_text(node: Map, names: Mapping[Node, str]) -> str:
    args = ", ".join(names[a] for a in node.args)
    return f"{node.fn}({args})" if node.to is None else f"cast({args}, {node.to.name})"


def scan_text(node: Scan, names: Mapping[Node, str]) -> str:
    ways = [way for way in ("reverse", "exclusive") if getattr(node, way)]
    return f"running_{node.fn}({', '.join([names[node.x], f'axis={node.axis}', *ways])})"


def conv_text(node: Conv, names: Mapping[Node, str]) -> str:
    kind = "conv_transpose" if node.transposed else "conv"
    output = f", output_padding={node.output_padding}" if node.transposed else ""
    geometry = f"stride={node.stride}, padding={node.padding}, dilation={node.dilation}, groups={node.groups}{output}"
    return f"{kind}({names[node.x]}, {names[node.weight]}, {geometry})"


def opaque_text(node: Opaque, names: Mapping[Node, str]) -> str:
    args = [argument_text(a, names) for a in node.args]
    args += [f"{name}={argument_text(value, names)}" for name, value in node.kwargs]
    return f"{node.target}({', '.join(args)})"


def argument_text(argument: Argument, names: Mapping[Node, str]) -> str:
    if isinstance(argument, Node):
        return names[argument]
    if isinstance(argument, tuple):
        return "[" + ", ".join(argument_text(item, names) for item in argument) + "]"
    return argument.text if isinstance(argument, Symbol) else repr(argument)


TEXT: Mapping[type[Node], Callable[[Any, Mapping[Node, str]], str]] = {
    Input: lambda n, _: f"input {n.name}",
    Param: lambda n, _: f"param {n.path}",
    Table: lambda n, _: f"table({len(n.values)} values)",
    Iota: lambda n, _: f"iota({n.extent})",
    Map: map_text,
    Reduce: lambda n, names: f"{n.fn}({names[n.x]}, axes={n.axes})",
    Scan: scan_text,
    Contract: lambda n, names: f"contract{'_wide' * n.wide}({n.equation}; {names[n.a]}, {names[n.b]})",
    Conv: conv_text,
    Gather: lambda n, names: f"gather({', '.join(names[x] for x in n.operands)})",
    Opaque: opaque_text,
    Item: lambda n, names: f"item({names[n.source]}, {n.index})",
    Reshape: lambda n, names: f"reshape({names[n.x]})",
    Permute: lambda n, names: f"permute({names[n.x]}, {n.order})",
    Broadcast: lambda n, names: f"broadcast({names[n.x]})",
    Slice: lambda n, names: f"slice({names[n.x]}, start={n.start}, step={n.step})",
    Pad: lambda n, names: f"pad({names[n.x]}, {n.before}, {n.after}, {n.value!r})",
    Windows: lambda n, names: (
        f"windows({names[n.x]}, axes={n.axes}, window={n.window}, stride={n.stride}, dilation={n.dilation})"
    ),
}
