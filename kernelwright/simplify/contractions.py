"""Contractions: views of an operand that are only another naming of its axes become part of the equation."""

from __future__ import annotations

from kernelwright.ir.nodes import Broadcast, Contract, Node, Permute, Reshape


def permute_into_labels(n: Node) -> Node | None:
    """contract(ij,jk->ik; permute(a, (1, 0)), b)  ->  contract(ji,jk->ik; a, b), and the same for b"""
    match n:
        case Contract(Permute(x, order), b):
            labels, others, result = n.labels
            return Contract(x, b, f"{unpermuted(labels, order)},{others}->{result}")
        case Contract(a, Permute(x, order)):
            others, labels, result = n.labels
            return Contract(a, x, f"{others},{unpermuted(labels, order)}->{result}")
    return None


def unpermuted(labels: str, order: tuple[int, ...]) -> str:
    """The labels of x, given those of permute(x, order)."""
    by_axis = dict(zip(order, labels, strict=True))
    return "".join(by_axis[axis] for axis in range(len(order)))


def drop_repeated_axes(n: Node) -> Node | None:
    """contract(bij,bjk->bik; broadcast(a), b)  ->  contract(ij,bjk->bik; a, b)  for batch axes that b has"""
    match n:
        case Contract(Broadcast(x, shape), b):
            labels, others, result = n.labels
            kept, x = without(x, shape, labels, set(others) & set(result))
            return None if kept in ("", labels) else Contract(x, b, f"{kept},{others}->{result}")
        case Contract(a, Broadcast(x, shape)):
            others, labels, result = n.labels
            kept, x = without(x, shape, labels, set(others) & set(result))
            return None if kept in ("", labels) else Contract(a, x, f"{others},{kept}->{result}")
    return None


def without(x: Node, shape: tuple[int, ...], labels: str, droppable: set[str]) -> tuple[str, Node]:
    """The labels that stay and the operand that has them; all labels if not every repeated axis can go."""
    padded = (1,) * (len(shape) - len(x.shape)) + x.shape
    repeated = [have != want for have, want in zip(padded, shape, strict=True)]
    if not all(label in droppable for label, again in zip(labels, repeated, strict=True) if again):
        return labels, x
    kept = "".join(label for label, again in zip(labels, repeated, strict=True) if not again)
    extents = tuple(have for have, again in zip(padded, repeated, strict=True) if not again)
    return kept, x if x.shape == extents else Reshape(x, extents)


RULES = (permute_into_labels, drop_repeated_axes)
