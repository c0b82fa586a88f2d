"""A candidate that passed comes in; labels for what it takes besides the problem's own shapes and layouts go out.

The protocol promises one shape, dense and aligned. A candidate that cannot do without is right, and is labelled. Each
variant is one that the reference itself accepts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelwright.judge.case import Case
from kernelwright.judge.codec import flatten_arguments, unflatten
from kernelwright.judge.contestant import Contestant, Shape
from kernelwright.judge.correctness import describe_score, uninformative
from kernelwright.judge.criterion import limits_for, score
from kernelwright.judge.families import FAMILIES
from kernelwright.judge.pool import Placement
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.shortage import is_shortage
from kernelwright.judge.verdict import Failed, Label

__all__ = ["labels_for_variants"]


@dataclass(frozen=True, slots=True)
class Variant:
    """Arguments laid out differently, and the label of a candidate that fails on them."""

    label: Label
    arguments: tuple[Any, ...]
    places: tuple[Placement, ...]


def labels_for_variants(contestant: Contestant, case: Case, seeds: Seeds) -> dict[Label, str]:
    """Each label with what was seen. Called last: a variant may take the candidate's process down."""
    labels: dict[Label, str] = {}
    for variant in _variants(contestant, case, seeds):
        if variant.label in labels:
            continue
        try:
            why = _wrong(contestant, case, variant, seeds.draw())
        except Failed as failed:
            if failed.shortage:
                raise
            why = f"{failed.verdict}: {failed.detail}"
        if why:
            labels[variant.label] = why
        if not contestant.worker.alive():
            break
    return labels


def _variants(contestant: Contestant, case: Case, seeds: Seeds) -> Iterator[Variant]:
    args = case.reference.draw(seeds.draw())
    template, tensors = flatten_arguments(args)
    slot, spare = contestant.layout.slots[0], contestant.layout.spare
    for batch in _other_batches(tensors):
        cut = [t[:batch].contiguous() if _has_batch(t, tensors) else t for t in tensors]
        yield Variant(
            Label.SHAPE_SPECIALISED,
            unflatten(template, cut),
            tuple(_dense_at(place, t) for place, t in zip(slot, cut, strict=True)),
        )
    if spare:
        yield Variant(Label.ALIGNED_ONLY, args, tuple(_shifted(place) for place in spare))
        yield Variant(Label.CONTIGUOUS_ONLY, args, tuple(spare))


def _wrong(contestant: Contestant, case: Case, variant: Variant, seed: int) -> str:
    """How the candidate is wrong there; "" if it is right, or the reference has nothing to say."""
    try:
        output = case.reference.call(case.oracle.model, variant.arguments)
        truth = case.oracle.truth(case.state, [variant.arguments], seed)
    except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
        if is_shortage(error):
            raise
        return ""  # the reference does not take this shape either
    if uninformative(truth.calls[0], FAMILIES[1]):
        return ""
    shape = Shape.of(variant.arguments, output, case.worker_device)
    contestant.take_state(list(case.state.values()))
    contestant.map_places(shape, [variant.places])
    _, tensors = flatten_arguments(variant.arguments)
    for place, tensor in zip(variant.places, tensors, strict=True):
        contestant.pool.view(place).copy_(tensor)
    contestant.call(range(1), seed)
    found = contestant.outputs(0)
    scores = [(score(c, yard), limits_for(yard.dtype)) for c, yard in zip(found, truth.calls[0], strict=True)]
    return next((describe_score(s) for s, limit in scores if not s.within_loose(limit)), "")


def _other_batches(tensors: Sequence[torch.Tensor]) -> list[int]:
    """One, and one less: odd, and no multiple of a tile."""
    sizes = [t.shape[0] for t in tensors if t.dim() > 1]
    if not sizes or sizes[0] < 3:
        return []
    return [1, sizes[0] - 1]


def _has_batch(tensor: torch.Tensor, tensors: Sequence[torch.Tensor]) -> bool:
    first = next(t for t in tensors if t.dim() > 1)
    return tensor.dim() > 0 and tensor.shape[0] == first.shape[0]


def _dense_at(place: Placement, tensor: torch.Tensor) -> Placement:
    strides = tuple(torch.empty(tensor.shape, device="meta").stride())
    return Placement(place.dtype, tuple(tensor.shape), strides, place.offset, tensor.numel() * tensor.itemsize)


def _shifted(place: Placement) -> Placement:
    """The same room, dense, one element off alignment."""
    dtype: torch.dtype = getattr(torch, place.dtype)
    strides = tuple(torch.empty(place.shape, device="meta").stride())
    size = torch.Size(place.shape).numel() * dtype.itemsize
    return replace(place, strides=strides, offset=place.offset + dtype.itemsize, span=size)
