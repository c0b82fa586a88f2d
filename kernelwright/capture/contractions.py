"""ATen's matrix products and convolutions as Contract and Conv, their biases as separate additions."""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernelwright.capture.call import Call, Translation, Value, cast, constant
from kernelwright.capture.rows import over, wide
from kernelwright.ir.dtypes import DType
from kernelwright.ir.nodes import Broadcast, Contract, Conv, Map, Node, Pad, Permute, Reshape, Shape

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
    """beta * bias + alpha * (first @ second). Of a product that counts 0 times, libraries do not read the operands: an
    infinity in one of them is nothing then."""

    def translation(call: Call) -> Value:
        result = matmul(call[first], call[second])
        dtype = call.type.dtype
        if result is None or dtype.is_reduced_float or call["alpha"] == 0:
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
    """One operand, summed and turned, or two; a diagonal, repeated axes of extent 1 and three operands are PyTorch's"""
    operands: tuple[Node, ...] = call["tensors"]
    if len(operands) > 2 or not contractible(*operands):
        return None
    labels, result = written_out(call["equation"].replace(" ", ""), [len(x.shape) for x in operands])
    extents = {(i, e) for one, x in zip(labels, operands, strict=True) for i, e in zip(one, x.shape, strict=True)}
    repeated = len(extents) != len(set("".join(labels)))  # einsum also repeats axes of extent 1
    if repeated or any(len(set(one)) != len(one) for one in (*labels, result)):
        return None
    wanted = [set("".join((*labels[:i], *labels[i + 1 :], result))) for i in range(len(labels))]
    summed = [summed_out(x, one, kept) for x, one, kept in zip(operands, labels, wanted, strict=True)]
    if len(summed) == 1:
        x, one = summed[0]
        return Permute(x, tuple(one.index(label) for label in result)) if one != result else x
    (a, a_labels), (b, b_labels) = summed
    return Contract(a, b, f"{a_labels},{b_labels}->{result}")


def written_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the result, with letters for an ellipsis and with what an equation leaves out:
    without an arrow, the result has the ellipsis and then, in order, the labels that stand there once."""
    left, arrow, result = equation.partition("->")
    parts = left.split(",")
    hidden = [rank - len(part) + 3 if "..." in part else 0 for part, rank in zip(parts, ranks, strict=True)]
    free = "".join(letter for letter in LETTERS if letter not in equation)[: max(hidden)]
    labels = [p.replace("...", free[len(free) - n :]) for p, n in zip(parts, hidden, strict=True)]
    letters = left.replace("...", "").replace(",", "")
    once = "".join(sorted(label for label in letters if letters.count(label) == 1))
    return labels, result.replace("...", free) if arrow else free + once


def summed_out(x: Node, labels: str, wanted: Collection[str]) -> tuple[Node, str]:
    """x without the axes whose labels nobody else has: einsum sums over those first."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in wanted)
    if not axes:
        return x, labels
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    total = cast(over("sum", wide(x, x.dtype), axes), x.dtype)
    return Reshape(total, kept), "".join(label for label in labels if label in wanted)


def tensordot(call: Call) -> Value:
    """The axes that are summed over bear the same label, in pairs"""
    a, b = call["self"], call["other"]
    if not contractible(a, b) or len(a.shape) + len(b.shape) > len(LETTERS):
        return None
    a_labels, b_labels = list(LETTERS[: len(a.shape)]), list(LETTERS[len(a.shape) :][: len(b.shape)])
    for one, other in zip(call["dims_self"], call["dims_other"], strict=True):
        if a.shape[one] != b.shape[other]:
            return None  # an axis of extent 1 is repeated
        b_labels[other] = a_labels[one]
    result = [label for label in (*a_labels, *b_labels) if (label in a_labels) != (label in b_labels)]
    return Contract(a, b, f"{''.join(a_labels)},{''.join(b_labels)}->{''.join(result)}")


def inner(call: Call) -> Value:
    """The sum over the last axis of both"""
    a, b = call["self"], call["other"]
    if not a.shape or not b.shape or not contractible(a, b):
        return None
    rows, columns = LETTERS[: len(a.shape) - 1], LETTERS[len(a.shape) :][: len(b.shape) - 1]
    return Contract(a, b, f"{rows}z,{columns}z->{rows}{columns}")


def convolved(rank: int, transposed: bool) -> Translation:
    """conv1d ... conv_transpose3d"""

    def translation(call: Call) -> Value:
        geometry = {name: spread_to(rank, call[name]) for name in ("stride", "padding", "dilation")}
        output_padding = spread_to(rank, call.arguments.get("output_padding", 0))
        return conv(call, geometry, output_padding, transposed)

    return translation


def convolved_by_name(rank: int) -> Translation:
    """padding="valid" is none; "same" is what keeps the extents, where it is uneven with one more at the end"""

    def translation(call: Call) -> Value:
        x, weight = call["input"], call["weight"]
        stride, dilation = (spread_to(rank, call[name]) for name in ("stride", "dilation"))
        reach = [
            d * (n - 1) if call["padding"] == "same" else 0 for d, n in zip(dilation, weight.shape[2:], strict=True)
        ]
        before, more = tuple(n // 2 for n in reach), tuple(n % 2 for n in reach)
        if any(more) and x.size:
            rest = (0,) * (len(x.shape) - rank)
            x = Pad(x, (*rest, *(0 for _ in more)), (*rest, *more), constant(0, x.dtype).value)
        padded = Call(call.target, {**call.arguments, "input": x}, call.results)
        return conv(padded, {"stride": stride, "padding": before, "dilation": dilation}, (0,) * rank, transposed=False)

    return translation


def convolution(call: Call) -> Value:
    """The general form: every geometry in one operator"""
    rank = len(call["weight"].shape) - 2
    geometry = {name: spread_to(rank, call[name]) for name in ("stride", "padding", "dilation")}
    return conv(call, geometry, spread_to(rank, call["output_padding"]), call["transposed"])


def conv(call: Call, geometry: Mapping[str, Shape], output_padding: Shape, transposed: bool) -> Value:
    """With its bias added; an image that is no batch is a batch of one"""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    stride, padding, dilation = (geometry[name] for name in ("stride", "padding", "dilation"))
    if not contractible(x, weight):
        return None
    alone = len(x.shape) < len(weight.shape)
    batch = Reshape(x, (1, *x.shape)) if alone else x
    result: Node = Conv(batch, weight, stride, padding, dilation, call["groups"], transposed, output_padding)
    result = Reshape(result, result.shape[1:]) if alone else result
    assert result.shape == call.type.shape, f"convolution gives {result.shape}, PyTorch {call.type.shape}"
    if bias is None:
        return result
    return add(result, Reshape(bias, (bias.size, *(1,) * len(stride))), call.type.dtype)


def spread_to(rank: int, value: Any) -> Shape:
    """One number for every axis, as PyTorch allows."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


CONTRACTIONS: Mapping[str, Translation] = {
    "aten.linear": linear,
    "aten.mm": product("self", "mat2"),
    "aten.bmm": product("self", "mat2"),
    "aten.mv": product("self", "vec"),
    "aten.dot": product("self", "tensor"),
    "aten.vdot": product("self", "other"),
    "aten.matmul": product("self", "other"),
    "aten.tensordot": tensordot,
    "aten.inner": inner,
    "aten.addmm": added("self", "mat1", "mat2"),
    "aten.addmv": added("self", "mat", "vec"),
    "aten.baddbmm": added("self", "batch1", "batch2"),
    "aten.einsum": einsum,
    "aten.convolution": convolution,
    **{f"aten.conv{rank}d": convolved(rank, transposed=False) for rank in (1, 2, 3)},
    **{f"aten.conv{rank}d.padding": convolved_by_name(rank) for rank in (1, 2, 3)},
    "aten.conv_transpose1d": convolved(1, transposed=True),
    "aten.conv_transpose2d.input": convolved(2, transposed=True),
    "aten.conv_transpose3d.input": convolved(3, transposed=True),
}
