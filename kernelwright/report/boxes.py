"""A plan as boxes and arrows: plain data, kept as JSON beside a result and drawn by `drawing.py`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["Arrow", "Box", "Picture", "picture_json", "read_picture"]


@dataclass(frozen=True, slots=True)
class Box:
    """kind   input, kernel (ours), library (PyTorch's), copy or output
    lines  what it computes, a line each
    weights  the parameters it reads
    """

    kind: str
    title: str
    lines: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A tensor on its way, by the numbers of its boxes."""

    source: int
    target: int
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def picture_json(picture: Picture) -> str:
    return json.dumps(asdict(picture))


def read_picture(text: str) -> Picture:
    fields = json.loads(text)
    return Picture(
        tuple(Box(b["kind"], b["title"], tuple(b["lines"]), tuple(b["weights"])) for b in fields["boxes"]),
        tuple(Arrow(a["source"], a["target"], a["label"]) for a in fields["arrows"]),
    )
