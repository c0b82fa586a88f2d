"""A node comes in; the Python expression that PyTorch evaluates to it goes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelwright.ir.interpret import gives_a_list
from kernelwright.ir.nodes import (
    Argument,
    Broadcast,
    Const,
    Contract,
    Conv,
    Iota,
    Node,
    Opaque,
    Pad,
    Permute,
    Reshape,
    Shape,
    Slice,
    Symbol,
    Table,
    Windows,
)
from kernelwright.plan import Buffer, Library
from kernelwright.plan.steps import channels_last, contiguous

# ATen operators with a public function that takes the same positional arguments.
PUBLIC: Mapping[str, str] = {
    **{
        f"aten.{name}.{form}": f"torch.{name}"
        for name, form in (
            pair.split(".")
            for pair in (
                "sum.default sum.dim_IntList mean.default mean.dim prod.default prod.dim_int amax.default amin.default "
                "max.default max.dim min.default min.dim argmax.default argmin.default any.default any.dim all.default "
                "all.dim std.dim std.correction var.dim var.correction logsumexp.default softmax.int log_softmax.int "
                "cumsum.default cumprod.default cummax.default cat.default stack.default flip.default gather.default "
                "index_select.default sort.default topk.default bmm.default mm.default matmul.default addmm.default "
                "roll.default tril.default triu.default arange.default arange.start arange.start_step "
                "repeat_interleave.self_int take_along_dim.default scatter.src scatter.value outer.default "
                "linalg_vector_norm.default rand.default randn.default bernoulli.default rand_like.default "
                "randn_like.default searchsorted.Tensor bucketize.Tensor masked_select.default where.self"
            ).split()
        )
    },
    **{
        f"aten.{name}.default": f"F.{name}"
        for name in (
            "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
            "adaptive_avg_pool3d pixel_shuffle pixel_unshuffle one_hot linear conv1d conv2d conv3d "
            "scaled_dot_product_attention pad"
        ).split()
    },
    "aten.linalg_vector_norm.default": "torch.linalg.vector_norm",
}

# Operators whose public function takes only the first so many arguments; the rest says which backend may run it.
WITHOUT_BACKEND: Mapping[str, tuple[str, int]] = {
    "aten.layer_norm.default": ("F.layer_norm", 5),
    "aten.group_norm.default": ("F.group_norm", 5),
}


CHANNELS_LAST = ".contiguous(memory_format=torch.channels_last)"


def made_dense(buffer: Buffer) -> str:
    """What to append to a call whose result a kernel reads: it costs nothing where the result already lies so."""
    return ".contiguous()" if buffer.strides == contiguous(buffer.shape) else CHANNELS_LAST


class Expressions:
    """Writes nodes as expressions over the variables that already hold values."""

    def __init__(self, places: Mapping[Node, Buffer], device: str) -> None:
        self.places = places
        self.device = device

    def of(self, node: Node) -> str:
        if node in self.places and not isinstance(node, Iota):
            return self.places[node].name
        match node:
            case Const(value, dtype):
                return f"torch.tensor({python(value)}, dtype=torch.{dtype.name}, device={self.device})"
            case Table(values, shape, dtype):
                numbers_ = ", ".join(map(python, values))
                flat = f"torch.tensor([{numbers_}], dtype=torch.{dtype.name}, device={self.device})"
                return flat if shape == (len(values),) else f"{flat}.reshape({tuple_text(shape)})"
            case Broadcast(Const(value, dtype), shape):
                kind = f"dtype=torch.{dtype.name}, device={self.device}"
                return f"torch.full({tuple_text(shape)}, {python(value)}, {kind})"
            case Reshape(x, shape):
                return f"{self.of(x)}.reshape({numbers(shape)})"
            case Permute(x, order):
                return f"{self.of(x)}.permute({numbers(order)})"
            case Broadcast(x, shape):
                return f"{self.of(x)}.expand({numbers(shape)})"
            case Slice():
                return self.sliced(node)
            case Windows():
                return self.windows(node)
            case Pad(x, before, after, value):
                sides = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
                return f"F.pad({self.of(x)}, {tuple_text(tuple(sides))}, value={python(value)})"
            case Iota(extent):
                return f"torch.arange({extent}, device={self.device})"
        raise AssertionError(f"{type(node).__name__} was not placed in memory")

    def sliced(self, node: Slice) -> str:
        """What runs from the end of an axis is turned, since PyTorch has no views with negative steps."""
        ends = [s + k * (n - 1) if k < 0 else s for s, k, n in zip(node.start, node.step, node.shape, strict=True)]
        steps = tuple(map(abs, node.step))
        backwards = tuple(axis for axis, step in enumerate(node.step) if step < 0)
        turned = f".flip({tuple_text(backwards)})" if backwards else ""
        if node.shape == node.x.shape and backwards and set(steps) == {1}:
            return f"{self.of(node.x)}{turned}"
        return f"{self.of(node.x)}[{slices(tuple(ends), steps, node.shape, node.x.shape)}]{turned}"

    def windows(self, node: Windows) -> str:
        text = self.of(node.x)
        for axis, size, stride, apart in zip(node.axes, node.window, node.stride, node.dilation, strict=True):
            text += f".unfold({axis}, {apart * (size - 1) + 1}, {stride})" + (f"[..., ::{apart}]" if apart > 1 else "")
        return text

    def call(self, step: Library) -> str:
        """The call of PyTorch that computes a library step."""
        match step.node:
            case Contract():
                return self.contract(step.node, step.bias)
            case Conv():
                return self.conv(step.node, step)
            case Opaque():
                return self.opaque(step.node, step)
        raise AssertionError(f"no library call: {step.node}")

    def contract(self, node: Contract, bias: Node | None) -> str:
        a, b, result = node.labels
        x, y = self.of(node.a), self.of(node.b)
        if len(b) == 2 and a[-1] == b[1] and result == a[:-1] + b[0]:
            return f"F.linear({x}, {y}{'' if bias is None else f', {self.of(bias)}'})"
        assert bias is None, "only F.linear adds a bias"
        rows, columns = matmul_form(a, b, result)
        if rows is None or columns is None:
            return f'torch.einsum("{node.equation}", {x}, {y})'
        return f"torch.matmul({x}{rows}, {y}{columns})"

    def conv(self, node: Conv, step: Library) -> str:
        rank, bias = len(node.stride), step.bias
        x, weight = self.of(node.x), self.of(node.weight)
        if step.in_channels_last:
            place = self.places.get(node.x)
            turned = place is not None and place.strides == channels_last(place.shape)
            x, weight = x if turned else f"{x}{CHANNELS_LAST}", f"{weight}{CHANNELS_LAST}"
        options = [
            *(f"{name}={tuple_text(v)}" for name, v, usual in geometry(node) if set(v) != {usual}),
            *([f"groups={node.groups}"] if node.groups != 1 else []),
        ]
        arguments = [x, weight, *([] if bias is None else [self.of(bias)]), *options]
        return f"F.conv{'_transpose' if node.transposed else ''}{rank}d({', '.join(arguments)})"

    def opaque(self, node: Opaque, step: Library) -> str:
        args = [self.argument(a) for a in node.args]
        kwargs = [f"{name}={self.argument(value)}" for name, value in node.kwargs]
        if step.in_place:
            x, weight, bias, mean, var, _, momentum, eps = args
            return f"F.batch_norm({x}, {mean}, {var}, {weight}, {bias}, True, {momentum}, {eps})"
        if node.target == "aten.native_dropout.default" and step.results[1:] == (None,):
            return f"F.dropout({args[0]}, {args[1]})"
        if node.target == "aten.embedding.default" and len(args) == 2:
            return f"F.embedding({args[1]}, {args[0]})"
        if node.target in WITHOUT_BACKEND:
            name, count = WITHOUT_BACKEND[node.target]
            return f"{name}({', '.join(args[:count])})"
        function = PUBLIC.get(node.target, f"torch.ops.{node.target}")
        first = "[0]" if len(node.results) == 1 and gives_a_list(node.target) else ""
        return f"{function}({', '.join([*args, *kwargs])}){first}"

    def argument(self, argument: Argument) -> str:
        if isinstance(argument, Node):
            return self.of(argument)
        if isinstance(argument, tuple):
            return "[" + ", ".join(self.argument(item) for item in argument) + "]"
        if isinstance(argument, Symbol):
            return self.device if argument.text == "device" else argument.text
        return python(argument)


def geometry(node: Conv) -> list[tuple[str, Shape, int]]:
    """(name, value, PyTorch's default)"""
    transposed = [("output_padding", node.output_padding, 0)] if node.transposed else []
    return [("stride", node.stride, 1), ("padding", node.padding, 0), *transposed, ("dilation", node.dilation, 1)]


def matmul_form(a: str, b: str, result: str) -> tuple[str | None, str | None]:
    """What to append to each operand so that torch.matmul gives the result: nothing, or .mT."""
    batch = result[:-2]
    if len(result) < 2 or len(a) < 2 or len(b) < 2:
        return None, None
    x, z = result[-2], result[-1]
    summed = [label for label in a if label in b and label not in result]
    if len(summed) != 1 or a[:-2] not in ("", batch) or b[:-2] not in ("", batch):
        return None, None
    rows = {x + summed[0]: "", summed[0] + x: ".mT"}.get(a[-2:])
    columns = {summed[0] + z: "", z + summed[0]: ".mT"}.get(b[-2:])
    return rows, columns


def python(value: object) -> str:
    """A constant as Python source; repr, but for infinities and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({python(value.real)}, {python(value.imag)})"
    if isinstance(value, tuple):
        return "(" + ", ".join(python(item) for item in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(python(item) for item in value) + "]"
    return repr(value)


def tuple_text(shape: Shape) -> str:
    return python(tuple(shape))


def numbers(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) or "()"


def slices(start: Shape, step: Shape, shape: Shape, whole: Shape) -> str:
    """Python's slice of each axis; axes taken whole are a plain colon."""
    texts = []
    for begin, stride, extent, full in zip(start, step, shape, whole, strict=True):
        assert stride > 0, "PyTorch has no views with negative steps"
        end = begin + stride * (extent - 1) + 1 if extent else begin
        shown = f"{begin or ''}:{end if end != full else ''}" + (f":{stride}" if stride != 1 else "")
        texts.append(":" if (begin, extent, stride) == (0, full, 1) else shown)
    while len(texts) > 1 and texts[-1] == ":":
        texts.pop()
    return ", ".join(texts)
