"""Losses and similarities as Reduces and Maps: one row an operator.

A loss is a formula for each element or each sample, then nothing, the mean or the sum of those. 16-bit floats are
rounded once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.capture.call import Call, Translation, Value, cast, constant, spread, whole
from kernelwright.capture.rows import axes_of, formula, mean_over, norm_over, over, result, wide
from kernelwright.ir.dtypes import int64
from kernelwright.ir.nodes import Broadcast, Iota, Map, Node, Reshape, Shape

# PyTorch's numbers for what happens to the losses of the elements.
NONE, MEAN, SUM = 0, 1, 2
LEAST_LOGARITHM = -100.0
COSINE_EPSILON = 1e-12


def gathered(losses: Node, call: Call) -> Node:
    """The losses as they are, their mean or their sum."""
    every = axes_of(None, len(losses.shape))
    if call["reduction"] == NONE:
        return result(losses, call)
    return result((mean_over if call["reduction"] == MEAN else over_sum)(losses, every), call)


def over_sum(x: Node, axes: Shape) -> Node:
    return over("sum", x, axes)


def operands(call: Call, *names: str) -> list[Node]:
    """The named arguments in the dtype the loss is computed in."""
    return [wide(call[name], call.type.dtype) for name in names]


def elementwise(of: Callable[..., Node], *settings: str) -> Translation:
    """A loss of self and target, element by element"""

    def translation(call: Call) -> Value:
        x, target = operands(call, "self", "target")
        if call.type.dtype.kind != "float" or x.size == 0 or target.size == 0:
            return None
        return gathered(of(x, target, *(call[name] for name in settings)), call)

    return translation


def squared(x: Node, target: Node) -> Node:
    apart = formula("sub", x, target)
    return Map("mul", (apart, apart))


def absolute(x: Node, target: Node) -> Node:
    return Map("abs", (formula("sub", x, target),))


def smooth_absolute(x: Node, target: Node, beta: float) -> Node:
    """0.5 * d * d / beta below beta, else d - 0.5 * beta"""
    d = absolute(x, target)
    if beta == 0:
        return d
    near = formula("div", formula("mul", formula("mul", d, 0.5), d), beta)
    return formula("where", formula("lt", d, beta), near, formula("sub", d, 0.5 * beta))


def huber(x: Node, target: Node, delta: float) -> Node:
    """0.5 * d * d up to delta, else delta * (d - 0.5 * delta)"""
    d = absolute(x, target)
    near = formula("mul", formula("mul", d, 0.5), d)
    far = formula("mul", formula("sub", d, 0.5 * delta), delta)
    return formula("where", formula("le", d, delta), near, far)


def divergence(x: Node, target: Node, log_target: bool) -> Node:
    """target * (log(target) - x), of 0 * log(0) being 0"""
    if log_target:
        return formula("mul", Map("exp", (target,)), formula("sub", target, x))
    return formula("sub", formula("xlogy", target, target), formula("mul", target, x))


def soft_margin(x: Node, target: Node) -> Node:
    """log(1 + exp(-target * x))"""
    return Map("log1p", (Map("exp", (formula("mul", Map("neg", (target,)), x),)),))


def hinge_embedding(x: Node, target: Node, margin: float) -> Node:
    """x where target is 1, max(margin - x, 0) where it is -1; both for any other target"""
    apart = formula("maximum", formula("sub", constant(margin, x.dtype), x), 0)
    far = formula("where", formula("ne", target, 1), apart, constant(0, x.dtype))
    near = formula("where", formula("ne", target, -1), x, constant(0, x.dtype))
    return formula("add", far, near)


def binary_cross_entropy(call: Call) -> Value:
    """(target - 1) * max(log(1 - x), -100) - target * max(log(x), -100), times a weight"""
    x, target = operands(call, "self", "target")
    if x.size == 0:
        return None
    of_zero = formula("maximum", Map("log1p", (Map("neg", (x,)),)), LEAST_LOGARITHM)
    of_one = formula("maximum", Map("log", (x,)), LEAST_LOGARITHM)
    loss = formula("sub", formula("mul", formula("sub", target, 1), of_zero), formula("mul", target, of_one))
    return gathered(weighted(loss, call), call)


def binary_cross_entropy_with_logits(call: Call) -> Value:
    """(1 - target) * x - (1 + (pos_weight - 1) * target) * logsigmoid(x), times a weight"""
    x, target = operands(call, "self", "target")
    if x.size == 0:
        return None
    likely: Node = Map("logsigmoid", (x,))
    if call["pos_weight"] is not None:
        (positive,) = operands(call, "pos_weight")
        more = formula("add", formula("mul", formula("sub", positive, 1), target), 1)
        likely = formula("mul", likely, more)
    loss = formula("sub", formula("mul", formula("sub", constant(1, x.dtype), target), x), likely)
    return gathered(weighted(loss, call), call)


def weighted(loss: Node, call: Call) -> Node:
    return loss if call["weight"] is None else formula("mul", loss, *operands(call, "weight"))


def margin_ranking(call: Call) -> Value:
    """max(-target * (input1 - input2) + margin, 0)"""
    first, second, target = operands(call, "input1", "input2", "target")
    if 0 in (first.size, second.size, target.size):
        return None
    turned = formula("mul", Map("neg", (target,)), formula("sub", first, second))
    return gathered(formula("maximum", formula("add", turned, call["margin"]), 0), call)


def cosine_similarity(call: Call) -> Value:
    """sum(x1 / max(|x1|, eps) * x2 / max(|x2|, eps))"""
    x, y = operands(call, "x1", "x2")
    rank = max(len(x.shape), len(y.shape))
    if 0 in (x.size, y.size) or rank == 0:
        return None
    shape = formula("add", x, y).shape
    axes = axes_of(call["dim"], rank)
    parts = []
    for part in (x, y):
        part = whole(part, shape)
        norm = norm_over(part, 2.0, axes)
        assert norm is not None
        # Rounded here: in 16 bits, eps is zero for PyTorch.
        parts.append(formula("div", part, wide(formula("maximum", norm, call["eps"]), call.type.dtype)))
    return result(over("sum", formula("mul", *parts), axes), call)


def cosine_embedding(call: Call) -> Value:
    """1 - cos where target is 1, max(cos - margin, 0) where it is -1, cos being x.y / sqrt((x.x + e) * (y.y + e))"""
    x, y, target = operands(call, "input1", "input2", "target")
    if 0 in (x.size, y.size) or x.shape != y.shape:
        return None
    axes = (len(x.shape) - 1,)
    rows = x.shape[:-1]

    def dot(a: Node, b: Node) -> Node:
        return Reshape(over("sum", formula("mul", a, b), axes), rows)

    squares = formula("mul", *(formula("add", dot(v, v), COSINE_EPSILON) for v in (x, y)))
    cosine = formula("div", dot(x, y), Map("sqrt", (squares,)))
    zero = constant(0, x.dtype)
    near = formula("where", formula("eq", target, 1), formula("sub", constant(1, x.dtype), cosine), zero)
    apart = formula("maximum", formula("sub", cosine, call["margin"]), 0)
    far = formula("where", formula("eq", target, -1), apart, zero)
    return gathered(formula("add", near, far), call)


def distance(x: Node, y: Node, order: float, eps: float) -> Node | None:
    """|x - y + eps| along the last axis, which stays"""
    apart = formula("add", formula("sub", x, y), eps)
    return norm_over(apart, order, (len(apart.shape) - 1,)) if apart.shape else None


def pairwise_distance(call: Call) -> Value:
    x, y = operands(call, "x1", "x2")
    if 0 in (x.size, y.size):
        return None
    found = distance(x, y, call["p"], call["eps"])
    return None if found is None else result(found, call)


def triplet_margin(call: Call) -> Value:
    """max(|anchor - positive| - |anchor - negative| + margin, 0)"""
    anchor, positive, negative = operands(call, "anchor", "positive", "negative")
    if 0 in (anchor.size, positive.size, negative.size):
        return None
    pairs = [(anchor, positive), (anchor, negative), (positive, negative)]
    near, far, swapped = (distance(a, b, call["p"], call["eps"]) for a, b in pairs)
    if near is None or far is None or swapped is None:
        return None
    far = formula("minimum", far, swapped) if call["swap"] else far
    losses = formula("maximum", formula("sub", formula("add", near, call["margin"]), far), 0)
    return gathered(Reshape(losses, losses.shape[:-1]), call)


def poisson(call: Call) -> Value:
    """exp(x) - target * x, or x - target * log(x + eps); Stirling's approximation is left to PyTorch"""
    x, target = operands(call, "input", "target")
    if call["full"] or 0 in (x.size, target.size):
        return None
    if call["log_input"]:
        return gathered(formula("sub", Map("exp", (x,)), formula("mul", target, x)), call)
    likely = formula("mul", target, Map("log", (formula("add", x, call["eps"]),)))
    return gathered(formula("sub", x, likely), call)


def cross_entropy(call: Call) -> Value:
    """-log_softmax(x) at the target, or weighted by it where the target gives probabilities"""
    x, target = operands(call, "self")[0], call["target"]
    if x.size == 0 or call.type.dtype.kind != "float" or not x.shape:
        return None
    classes = min(1, len(x.shape) - 1)
    shifted = formula("sub", x, over("max", x, (classes,)))
    likely = formula("sub", shifted, Map("log", (over("exponentials", x, (classes,)),)))
    if target.dtype.kind == "float":
        return probable_loss(call, likely, classes) if target.shape == x.shape else None
    return (smoothed_loss if call["label_smoothing"] else class_loss)(call, likely, classes)


def class_weight(call: Call, likely: Node, classes: int) -> Node | None:
    """The weight of each class, so that it spreads over the classes of all samples"""
    if call["weight"] is None:
        return None
    (weight,) = operands(call, "weight")
    return Reshape(weight, tuple(e if axis == classes else 1 for axis, e in enumerate(likely.shape)))


def probable_loss(call: Call, likely: Node, classes: int) -> Node:
    """-sum(likely * target * weight) over the classes, and the mean over samples"""
    (target,) = operands(call, "target")
    smoothing = call["label_smoothing"]
    if smoothing:
        target = formula("add", formula("mul", target, 1 - smoothing), smoothing / likely.shape[classes])
    weight = class_weight(call, likely, classes)
    product = formula("mul", likely, target)
    product = product if weight is None else formula("mul", product, weight)
    losses = Map("neg", (over("sum", product, (classes,)),))
    return gathered(losses, call)


def nll(call: Call) -> Value:
    """-x at the target, times the weight of its class; samples of the ignored class count for nothing"""
    x = operands(call, "self")[0]
    if x.size == 0 or not x.shape or call["target"].dtype.kind != "int":
        return None
    return class_loss(call, x, min(1, len(x.shape) - 1))


def class_loss(call: Call, likely: Node, classes: int) -> Node:
    losses, counted = picked(call, likely, classes)
    return reduced_by_count(call, losses, counted)


def picked(call: Call, likely: Node, classes: int) -> tuple[Node, Node]:
    """The loss of each sample, and how much it counts: the weight of its class, or 1; zero both for an ignored one"""
    safe, ignored = targets(call, likely, classes)
    at_target = gather(likely, classes, safe)
    one = whole(constant(1, likely.dtype), safe.shape)
    weight = class_weight(call, likely, classes)
    counts = one if weight is None else gather(whole(weight, likely.shape), classes, safe)
    zero = constant(0, likely.dtype)
    loss = Map("neg", (at_target if weight is None else formula("mul", at_target, counts),))
    return formula("where", ignored, zero, loss), formula("where", ignored, zero, counts)


def targets(call: Call, likely: Node, classes: int) -> tuple[Node, Node]:
    """The class of each sample, with an axis of extent 1 for the classes, and whether it is ignored"""
    shape = tuple(1 if axis == classes else e for axis, e in enumerate(likely.shape))
    target = Reshape(cast(call["target"], int64), shape)
    ignored = formula("eq", target, call["ignore_index"])
    return formula("where", ignored, constant(0, int64), target), ignored


def gather(x: Node, axis: int, index: Node) -> Node:
    """x at the index along an axis; of a Map, the Map of its operands there, so that nothing else is computed"""
    match x:
        case Map(fn, args, to) if sum(not is_repeated(a, axis, len(x.shape)) for a in args) == 1:
            return Map(fn, tuple(gathered_operand(a, axis, index) for a in args), to)
    return picked_from(x, axis, index)


def is_repeated(x: Node, axis: int, rank: int) -> bool:
    """x is one value along the axis."""
    own = axis - (rank - len(x.x.shape)) if isinstance(x, Broadcast) else axis
    return not x.shape or (isinstance(x, Broadcast) and (own < 0 or x.x.shape[own] == 1))


def gathered_operand(x: Node, axis: int, index: Node) -> Node:
    if not is_repeated(x, axis, len(index.shape)):
        return gather(x, axis, index)
    return spread(x.x, index.shape) if isinstance(x, Broadcast) else x


def picked_from(x: Node, axis: int, index: Node) -> Node:
    """A sum of which all but one element are 0, so that it needs no pass of its own

    Where PyTorch stops with an error, since the index is out of range, it is NaN.
    """
    places = Reshape(Iota(x.shape[axis]), tuple(e if i == axis else 1 for i, e in enumerate(x.shape)))
    found = over("sum", formula("where", formula("eq", places, index), x, constant(0, x.dtype)), (axis,))
    inside = Map("logical_and", (formula("ge", index, 0), formula("lt", index, x.shape[axis])))
    return formula("where", inside, found, constant(float("nan"), x.dtype))


def reduced_by_count(call: Call, losses: Node, counts: Node) -> Node:
    """As they are, their sum, or their sum over what counts"""
    if call["reduction"] != MEAN:
        return gathered(losses, call)
    every = axes_of(None, len(losses.shape))
    return result(formula("div", over_sum(losses, every), over_sum(counts, every)), call)


def smoothed_loss(call: Call, likely: Node, classes: int) -> Node:
    """(1 - smoothing) * the loss of the target + smoothing / classes * the loss of all classes"""
    smoothing = call["label_smoothing"]
    losses, counts = picked(call, likely, classes)
    _, ignored = targets(call, likely, classes)
    weight = class_weight(call, likely, classes)
    every = over("sum", likely if weight is None else formula("mul", likely, weight), (classes,))
    smooth = formula("where", ignored, constant(0, likely.dtype), Map("neg", (every,)))
    share = smoothing / likely.shape[classes]
    both = formula("add", formula("mul", losses, 1 - smoothing), formula("mul", smooth, share))
    return reduced_by_count(call, both, counts)


LOSSES: Mapping[str, Translation] = {
    "aten.mse_loss": elementwise(squared),
    "aten.l1_loss": elementwise(absolute),
    "aten.smooth_l1_loss": elementwise(smooth_absolute, "beta"),
    "aten.huber_loss": elementwise(huber, "delta"),
    "aten.kl_div": elementwise(divergence, "log_target"),
    "aten.soft_margin_loss": elementwise(soft_margin),
    "aten.hinge_embedding_loss": elementwise(hinge_embedding, "margin"),
    "aten.binary_cross_entropy": binary_cross_entropy,
    "aten.binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "aten.margin_ranking_loss": margin_ranking,
    "aten.cosine_similarity": cosine_similarity,
    "aten.cosine_embedding_loss": cosine_embedding,
    "aten.pairwise_distance": pairwise_distance,
    "aten.triplet_margin_loss": triplet_margin,
    "aten.poisson_nll_loss": poisson,
    "aten.cross_entropy_loss": cross_entropy,
    **{f"aten.{name}": nll for name in ("nll_loss_nd", "nll_loss", "nll_loss2d")},
}
