"""Two plans of a graph come in: contractions joined with what reduces their results, or with what computes their
operands, and apart; which to join goes out.

What a kernel takes comes as a function: by the cost model, or as measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kernelwright.ir.nodes import Node
from kernelwright.plan import Kernel, Plan, Product

Microseconds: TypeAlias = Callable[[Kernel], float | None]


def is_joined(kernel: Kernel) -> bool:
    """Whether it reduces what its own core makes."""
    return kernel.core is not None and bool(kernel.region.axes)


def is_fed(kernel: Kernel) -> bool:
    """Whether it computes operands of its own core."""
    return isinstance(kernel.core, Product) and bool(kernel.core.prologues)


def faster_joined(
    joined: Plan,
    apart: Plan,
    joined_us: Microseconds,
    apart_us: Microseconds,
    margin: Callable[[Kernel], float],
    which: Callable[[Kernel], bool],
) -> frozenset[Node]:
    """The contractions, as routes name them, that take less than `margin` of the time when they are joined: they and
    what is left of the reduction, against all that do it apart. `which` are the kernels that are joined in the first
    plan. One of which some time is not known stays apart."""
    found: set[Node] = set()
    for kernel in joined.kernels:
        if kernel.core is None or not which(kernel):
            continue
        theirs = [other for other in apart.kernels if nodes_of(other) & nodes_of(kernel)]
        all_nodes = frozenset[Node]().union(*map(nodes_of, theirs))
        ours = [other for other in joined.kernels if nodes_of(other) & all_nodes]
        ours_us, theirs_us = total(map(joined_us, ours)), total(map(apart_us, theirs))
        if ours_us is not None and theirs_us is not None and ours_us < margin(kernel) * theirs_us:
            found.add(kernel.core.routed)
    return frozenset(found)


def replaced_by(kernels: Sequence[Kernel], ours: Plan, theirs: Plan) -> list[Kernel]:
    """The kernels of another plan in whose place these are, with all that these bring along."""
    nodes, before = frozenset[Node]().union(*map(nodes_of, kernels)), frozenset[Node]()
    while nodes != before:
        before = nodes
        nodes = nodes.union(*(nodes_of(k) for k in (*ours.kernels, *theirs.kernels) if nodes_of(k) & before))
    return [kernel for kernel in theirs.kernels if nodes_of(kernel) & nodes]


def nodes_of(kernel: Kernel) -> frozenset[Node]:
    """What the kernel computes. Single numbers are cheap, and several kernels compute the same."""
    core = [] if kernel.core is None else [kernel.core.node]
    before = (
        [node for region in kernel.core.prologues for node in region.maps] if isinstance(kernel.core, Product) else []
    )
    return frozenset([*core, *(node for node in (*before, *kernel.region.body) if node.shape)])


def total(times: Iterable[float | None]) -> float | None:
    known = list(times)
    return None if None in known else sum(us for us in known if us is not None)
