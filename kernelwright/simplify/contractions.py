"""Contractions: views of an operand that are only another naming of its axes become part of the equation."""

from __future__ import annotations

from kernelwright.ir.nodes import Broadcast, Contract, Node, Permute, Reshape, Shape


def permute_into_labels(n: Node) -> Node | None:
    """contract(ij,jk->ik; permute(a, (1, 0)), b)  ->  contract(ji,jk->ik; a, b), and the same for b"""
    match n:
        case Contract(a, b):
            a_labels, b_labels, result = n.labels
            x, x_labels = unpermuted(a, a_labels)
            y, y_labels = unpermuted(b, b_labels)
            changed = x is not a or y is not b
            return Contract(x, y, f"{x_labels},{y_labels}->{result}", n.wide) if changed else None
    return None


def unpermuted(x: Node, labels: str) -> tuple[Node, str]:
    """permute(x) as x with its labels in x's own order; also behind a reshape that only adds or drops ones"""
    match x:
        case Permute(source, order):
            return source, "".join(labels[order.index(axis)] for axis in range(len(order)))
        case Reshape(Permute(source, order) as permuted, shape) if long_extents(permuted.shape) == long_extents(shape):
            by_axis = dict(zip((a for a in order if source.shape[a] != 1), long_labels(labels, shape), strict=True))
            ones = "".join(label for label, extent in zip(labels, shape, strict=True) if extent == 1)
            extents = (*(source.shape[axis] for axis in sorted(by_axis)), *(1,) * len(ones))
            return Reshape(source, extents), "".join(by_axis[axis] for axis in sorted(by_axis)) + ones
    return x, labels


def long_extents(shape: Shape) -> Shape:
    return tuple(extent for extent in shape if extent != 1)


def long_labels(labels: str, shape: Shape) -> str:
    return "".join(label for label, extent in zip(labels, shape, strict=True) if extent != 1)


def drop_repeated_axes(n: Node) -> Node | None:
    """contract(bij,bjk->bik; broadcast(a), b)  ->  contract(ij,bjk->bik; a, b), and the same for b

    An axis of the result that both operands only repeat, the result repeats: nothing is computed twice.
    """
    match n:
        case Contract(a, b):
            a_labels, b_labels, result = n.labels
            x, x_labels = unrepeated(a, a_labels, result)
            y, y_labels = unrepeated(b, b_labels, result)
            if x is a and y is b:
                return None
            left = "".join(label for label in result if label in x_labels + y_labels)
            small = Contract(x, y, f"{x_labels},{y_labels}->{left}", n.wide)
            ones = tuple(extent if label in left else 1 for label, extent in zip(result, n.shape, strict=True))
            return small if left == result else Broadcast(Reshape(small, ones), n.shape)
    return None


def unrepeated(x: Node, labels: str, result: str) -> tuple[Node, str]:
    """The operand without the axes that it repeats and does not sum over; it keeps one axis at least."""
    match x:
        case Broadcast(source, shape):
            extents = (1,) * (len(shape) - len(source.shape)) + source.shape
            drops = [h != w and label in result for h, w, label in zip(extents, shape, labels, strict=True)]
            if any(drops) and not all(drops):
                kept = tuple(i for i, drop in enumerate(drops) if not drop)
                narrow = Reshape(source, tuple(extents[i] for i in kept))
                return Broadcast(narrow, tuple(shape[i] for i in kept)), "".join(labels[i] for i in kept)
    return x, labels


RULES = (permute_into_labels, drop_repeated_axes)
