"""A `Graph` comes in; the same goes out with linear resampling as Gathers and weighted sums, for kernels of ours.

A GPU computes indices and weights while it waits for memory. A CPU that gathers four elements for each of its lanes
takes longer than PyTorch, which walks over pairs of rows: there the call stays as it is.
"""

from __future__ import annotations

from kernelwright.capture.call import Call
from kernelwright.capture.resampling import linear
from kernelwright.ir.nodes import Graph, Node, Opaque

LINEAR = frozenset(f"aten.upsample_{name}.vec" for name in ("linear1d", "bilinear2d", "trilinear3d"))
ARGUMENTS = ("input", "output_size", "align_corners", "scale_factors")


def resampled(graph: Graph) -> Graph:
    """Every linear resampling opened, where its form is known."""
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        operands = tuple(done[x] for x in node.operands)
        current = node if operands == node.operands else node.rebuild(operands)
        done[node] = current
        if isinstance(current, Opaque) and current.target in LINEAR:
            given = dict(zip(ARGUMENTS, current.args, strict=False)) | dict(current.kwargs)
            opened = linear(Call(current.target, {"scale_factors": None, **given}, current.results))
            done[node] = opened if isinstance(opened, Node) else current
    return graph.map(lambda n: done[n])
