"""ATen's matrix products and convolutions as Contract and Conv, their biases as separate additions."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from kernelwright.capture.call import Call, Translation, Value, constant
from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Broadcast, Contract, Conv, Map, Node, Reshape, Shape

LETTERS = string.ascii_lowercase


def contractible(*operands: Node) -> bool:
    """Integers and empty sums are left to PyTorch."""
    return all(x.dtype.kind == "float" and x.size > 0 and x.dtype is operands[0].dtype for x in operands)


def linear(call: Call) -> Value:
    """x[..., k] * weight[n, k] (+ bias[n])"""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    if not contractible(x, weight) or len(weight.shape) != 2:
        return None
    rows = LETTERS[: len(x.shape) - 1]
    product = Contract(x, weight, f"{rows}k,zk->{rows}z".replace("k", "y"))
    return product if bias is None else add(product, bias, call.type.dtype)


def matmul(a: Node, b: Node) -> Node | None:
    """torch.matmul: vectors, matrices and broadcast batches"""
    if not contractible(a, b) or not a.shape or not b.shape:
        return None
    rank = max(len(a.shape), len(b.shape), 2)
    batch = LETTERS[: rank - 2]
    a_labels = batch[rank - len(a.shape) :] + "xy" if len(a.shape) > 1 else "y"
    b_labels = batch[rank - len(b.shape) :] + "yz" if len(b.shape) > 1 else "y"
    a, a_labels = without_ones(a, a_labels, b_labels, b.shape)
    b, b_labels = without_ones(b, b_labels, a_labels, a.shape)
    used = set(a_labels + b_labels)
    result = "".join(label for label in batch + "xz" if label in used)
    return Contract(a, b, f"{a_labels},{b_labels}->{result}")


def without_ones(x: Node, labels: str, others: str, other_shape: Shape) -> tuple[Node, str]:
    """x without the batch axes of extent 1 that the other operand repeats."""
    extents = dict(zip(others, other_shape, strict=True))
    keep = [
        i for i, label in enumerate(labels) if label in "xyz" or not (x.shape[i] == 1 and extents.get(label, 1) != 1)
    ]
    if len(keep) == len(labels):
        return x, labels
    return Reshape(x, tuple(x.shape[i] for i in keep)), "".join(labels[i] for i in keep)


def product(first: str, second: str) -> Translation:
    return lambda call: matmul(call[first], call[second])


def added(bias: str, first: str, second: str) -> Translation:
    """beta * bias + alpha * (first @ second)"""

    def translation(call: Call) -> Value:
        result = matmul(call[first], call[second])
        dtype = call.type.dtype
        if result is None or dtype.is_reduced_float:
            return None
        result = scaled(result, call["alpha"], dtype)
        if call["beta"] == 0:
            return result
        return add(result, scaled(call[bias], call["beta"], dtype), dtype)

    return translation


def scaled(x: Node, factor: float, dtype: DType) -> Node:
    return x if factor == 1 else Map("mul", (x, constant(factor, dtype)))


def add(x: Node, bias: Node, dtype: DType) -> Node | None:
    """x + bias. In 16 bits the library adds before it rounds; apart, it would round twice."""
    if dtype.is_reduced_float:
        return None
    return Map("add", (x, bias if bias.shape in ((), x.shape) else Broadcast(bias, x.shape)))


def einsum(call: Call) -> Value:
    """Two operands with plain indices; anything else is PyTorch's"""
    equation = call["equation"].replace(" ", "")
    operands = call["tensors"]
    if len(operands) != 2 or not contractible(*operands) or "..." in equation or "->" not in equation:
        return None
    left, result = equation.split("->")
    a, b = left.split(",")
    plain = all(len(set(labels)) == len(labels) for labels in (a, b, result))
    alone = (set(a) ^ set(b)) - set(result)
    extents = set(zip(a + b, operands[0].shape + operands[1].shape, strict=True))
    repeated = len(extents) != len(set(a + b))  # einsum also repeats axes of extent 1
    return Contract(operands[0], operands[1], equation) if plain and not alone and not repeated else None


def convolved(rank: int, transposed: bool) -> Translation:
    """conv1d ... conv_transpose3d"""

    def translation(call: Call) -> Value:
        geometry = {name: spread_to(rank, call[name]) for name in ("stride", "padding", "dilation")}
        output_padding = spread_to(rank, call.arguments.get("output_padding", 0))
        return conv(call, geometry, output_padding, transposed)

    return translation


def convolution(call: Call) -> Value:
    """The general form: every geometry in one operator"""
    rank = len(call["weight"].shape) - 2
    geometry = {name: spread_to(rank, call[name]) for name in ("stride", "padding", "dilation")}
    return conv(call, geometry, spread_to(rank, call["output_padding"]), call["transposed"])


def conv(call: Call, geometry: Mapping[str, Shape | None], output_padding: Shape | None, transposed: bool) -> Value:
    x, weight, bias = call["input"], call["weight"], call["bias"]
    stride, padding, dilation = (geometry[name] for name in ("stride", "padding", "dilation"))
    if stride is None or padding is None or dilation is None or output_padding is None:
        return None  # padding="same" may be uneven
    if not contractible(x, weight) or len(x.shape) != len(weight.shape):
        return None
    result = Conv(x, weight, stride, padding, dilation, call["groups"], transposed, output_padding)
    assert result.shape == call.type.shape, f"convolution gives {result.shape}, PyTorch {call.type.shape}"
    if bias is None:
        return result
    return add(result, Reshape(bias, (bias.size, *(1,) * len(stride))), call.type.dtype)


def spread_to(rank: int, value: Any) -> Shape | None:
    """One number for every axis, as PyTorch allows."""
    if isinstance(value, str):
        return None
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


CONTRACTIONS: Mapping[str, Translation] = {
    "aten.linear": linear,
    "aten.mm": product("self", "mat2"),
    "aten.bmm": product("self", "mat2"),
    "aten.mv": product("self", "vec"),
    "aten.dot": product("self", "tensor"),
    "aten.matmul": product("self", "other"),
    "aten.addmm": added("self", "mat1", "mat2"),
    "aten.baddbmm": added("self", "batch1", "batch2"),
    "aten.einsum": einsum,
    "aten.convolution": convolution,
    **{f"aten.conv{rank}d": convolved(rank, transposed=False) for rank in (1, 2, 3)},
    "aten.conv_transpose1d": convolved(1, transposed=True),
    "aten.conv_transpose2d.input": convolved(2, transposed=True),
    "aten.conv_transpose3d.input": convolved(3, transposed=True),
}
