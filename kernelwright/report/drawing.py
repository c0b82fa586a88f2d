"""A `Picture` of boxes and arrows comes in; one inline SVG goes out, laid out in layers from top to bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kernelwright.report.boxes import Arrow, Box, Picture

__all__ = ["plan_svg"]

CHARACTER, LINE, PADDING = 7.0, 15, 9  # of the 11.5-pixel type that the style sheet gives a plan
GAP_X, GAP_Y = 22, 34
LANE = 9  # between two arrows that go around
# A plan with more boxes than this is cut in the middle: nobody follows two hundred arrows.
MOST_BOXES = 48
WIDEST = 34


@dataclass(frozen=True, slots=True)
class Placed:
    """A box with its place."""

    box: Box
    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        return self.x + self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


def plan_svg(picture: Picture, name: str) -> str:
    """The plan as an image with a spoken description."""
    picture = shortened(picture)
    if not picture.boxes:
        return ""
    placed = placed_boxes(picture)
    around = [arrow for arrow in picture.arrows if passes_boxes(arrow, placed)]
    lanes = {arrow: lane_of(arrow, placed) + LANE * number for number, arrow in enumerate(around)}
    width = max([*(p.x + p.width for p in placed), *lanes.values()]) + 2
    height = max(p.y + p.height for p in placed) + 1
    arrows = "".join(
        around_svg(arrow, placed, lanes[arrow]) if arrow in lanes else arrow_svg(arrow, placed)
        for arrow in picture.arrows
    )
    boxes = "".join(map(box_svg, placed))
    return (
        f'<svg class="plan" role="img" aria-label="{escape(description(picture, name))}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">{arrows}{boxes}</svg>'
    )


def description(picture: Picture, name: str) -> str:
    kinds = [box.kind for box in picture.boxes]
    ours, theirs = kinds.count("kernel"), kinds.count("library")
    return f"Plan of {name}: {ours} fused kernel{'s' * (ours != 1)}, {theirs} call{'s' * (theirs != 1)} into PyTorch"


def shortened(picture: Picture) -> Picture:
    """The first and last boxes, with one between them that says how many are left out."""
    count = len(picture.boxes)
    if count <= MOST_BOXES:
        return picture
    half = MOST_BOXES // 2
    kept = [*range(half), *range(count - half, count)]
    number = {old: new if new < half else new + 1 for new, old in enumerate(kept)}
    gap = Box("gap", f"{count - 2 * half} more steps", (), ())
    boxes = [picture.boxes[i] for i in kept[:half]] + [gap] + [picture.boxes[i] for i in kept[half:]]
    arrows = [
        Arrow(number.get(a.source, half), number.get(a.target, half), a.label if a.target in number else "")
        for a in picture.arrows
        if a.source in number or a.target in number
    ]
    return Picture(tuple(boxes), tuple(dict.fromkeys(a for a in arrows if a.source != a.target)))


def placed_boxes(picture: Picture) -> list[Placed]:
    layers = layered(picture)
    sizes = [size_of(box) for box in picture.boxes]
    widths = [sum(sizes[i][0] for i in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    whole = max(widths)
    places: dict[int, Placed] = {}
    y = 0.0
    for layer, width in zip(layers, widths, strict=True):
        x = (whole - width) / 2
        for i in layer:
            places[i] = Placed(picture.boxes[i], x, y, *sizes[i])
            x += sizes[i][0] + GAP_X
        y += max(sizes[i][1] for i in layer) + GAP_Y
    return [places[i] for i in range(len(picture.boxes))]


def layered(picture: Picture) -> list[list[int]]:
    """Each box below all it needs, an input just above its first reader; in a layer by where their neighbours are."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for arrow in picture.arrows:
        above[arrow.target].append(arrow.source)
        below[arrow.source].append(arrow.target)
    depth: dict[int, int] = {}
    for i in range(len(picture.boxes)):  # steps come in the order they run
        depth[i] = 1 + max((depth[j] for j in above[i] if j in depth), default=-1)
    for i, box in enumerate(picture.boxes):
        if box.kind == "input" and below[i]:
            depth[i] = min(depth[j] for j in below[i]) - 1
    layers: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for i in range(len(picture.boxes)):
        layers[depth[i]].append(i)
    return sorted_by_neighbours([layer for layer in layers if layer], above, below)


def sorted_by_neighbours(
    layers: list[list[int]], above: Mapping[int, Sequence[int]], below: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """Fewer crossings: down and up once, each box at the mean place of those it is joined to."""
    for neighbours, order in ((above, layers), (below, layers[::-1]), (above, layers)):
        place = {i: n / max(len(layer) - 1, 1) for layer in layers for n, i in enumerate(layer)}
        for layer in order:
            means = {i: mean([place[j] for j in neighbours[i]], place[i]) for i in layer}
            layer.sort(key=means.__getitem__)
            place |= {i: n / max(len(layer) - 1, 1) for n, i in enumerate(layer)}
    return layers


def mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def texts_of(box: Box) -> list[tuple[str, str]]:
    """The lines of a box with their classes: the title, what it computes, the weights it reads."""
    title = [("t", cut(box.title))]
    lines = [("l", cut(line)) for line in box.lines]
    weights = [("w", cut(weight)) for weight in box.weights[:3]]
    more = [("w", f"and {len(box.weights) - 3} more weights")] if len(box.weights) > 3 else []
    return title + lines + weights + more


def cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def size_of(box: Box) -> tuple[float, float]:
    texts = texts_of(box)
    return max(len(text) for _, text in texts) * CHARACTER + 2 * PADDING, len(texts) * LINE + 2 * PADDING - 3


def box_svg(placed: Placed) -> str:
    x, top = placed.x + PADDING, placed.y + PADDING + 9
    lines = "".join(
        f'<text class="{kind}" x="{x:.0f}" y="{top + LINE * n:.0f}">{escape(text)}</text>'
        for n, (kind, text) in enumerate(texts_of(placed.box))
    )
    radius = min(placed.height / 2, 14) if placed.box.kind in ("input", "output") else 2
    return (
        f'<g class="{placed.box.kind}"><rect x="{placed.x + 0.5:.1f}" y="{placed.y + 0.5:.1f}" '
        f'width="{placed.width:.0f}" height="{placed.height:.0f}" rx="{radius:.0f}"/>{lines}</g>'
    )


def between(arrow: Arrow, placed: Sequence[Placed]) -> list[Placed]:
    """The boxes in the layers that an arrow skips."""
    source, target = placed[arrow.source], placed[arrow.target]
    return [box for box in placed if box.y >= source.bottom and box.bottom <= target.y]


def passes_boxes(arrow: Arrow, placed: Sequence[Placed]) -> bool:
    """Whether a straight way would run behind boxes."""
    low, high = sorted((placed[arrow.source].centre, placed[arrow.target].centre))
    return any(box.x - 4 <= high and box.right + 4 >= low for box in between(arrow, placed))


def lane_of(arrow: Arrow, placed: Sequence[Placed]) -> float:
    """Just right of everything it passes."""
    passed = [*between(arrow, placed), placed[arrow.source], placed[arrow.target]]
    return max(box.right for box in passed) + 10


def around_svg(arrow: Arrow, placed: Sequence[Placed], lane: float) -> str:
    """Out at the right of one box, down a lane of its own, and in at the right of the other."""
    source, target = placed[arrow.source], placed[arrow.target]
    y0, y1 = source.y + source.height / 2, target.y + target.height / 2
    turn = min(12.0, (y1 - y0) / 2)
    path = (
        f"M{source.right:.0f} {y0:.0f}H{lane - turn:.0f}Q{lane:.0f} {y0:.0f} {lane:.0f} {y0 + turn:.0f}"
        f"V{y1 - turn:.0f}Q{lane:.0f} {y1:.0f} {lane - turn:.0f} {y1:.0f}H{target.right + 5:.0f}"
    )
    tip = f"M{target.right + 6:.0f} {y1 - 3:.0f}l-5 3l5 3z"
    return f'<path class="a" d="{path}"/><path class="h" d="{tip}"/>'


def arrow_svg(arrow: Arrow, placed: Sequence[Placed]) -> str:
    """From the bottom of one box to the top of another, with the shape of what travels."""
    source, target = placed[arrow.source], placed[arrow.target]
    x0, y0, x1, y1 = source.centre, source.y + source.height, target.centre, target.y - 4
    bend = max((y1 - y0) / 2, 12)
    path = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
    tip = f"M{x1 - 3:.0f} {y1 - 1:.0f}l3 5l3 -5z"
    straight = abs(x1 - x0) < 4 and y1 - y0 < 2 * GAP_Y
    label = (
        f'<text class="s" x="{x0 + 5:.0f}" y="{(y0 + y1) / 2 + 4:.0f}">{escape(arrow.label)}</text>'
        if straight and arrow.label
        else ""
    )
    return f'<path class="a" d="{path}"/><path class="h" d="{tip}"/>{label}'
