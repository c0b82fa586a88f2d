"""The formula of a kernel is short or says how many functions there are, and takes no time to be written."""

from __future__ import annotations

from kernelwright.generate.pointwise import LONGEST_FORMULA, formula_of
from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Graph, Input, Map, Node
from kernelwright.plan import plan


def test_a_chain_that_uses_each_value_twice_has_a_short_formula() -> None:
    x: Node = Input("x", 0, (8,), float32, (1,))
    for _ in range(60):  # written out, this formula has 2**60 terms
        x = Map("add", (Map("sin", (x,)), x))
    (kernel,) = plan(Graph((), (x,), (), 0)).kernels
    formula = formula_of(kernel.region)
    assert len(formula) < 2 * LONGEST_FORMULA
    assert "120 functions" in formula
