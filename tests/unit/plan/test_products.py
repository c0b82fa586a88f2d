"""Contractions that our own kernels take: their operands as matrices give what einsum gives."""

from pathlib import Path

import pytest
import torch

from kernelwright.capture import capture
from kernelwright.ir.interpret import evaluate
from kernelwright.ir.nodes import Contract, Input, Param
from kernelwright.load import load
from kernelwright.plan import Kernel, Materialise, Matrix, Plan, Product, Routes, plan, prepared
from kernelwright.plan.products import form_of
from kernelwright.simplify import simplify

HEAD = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
FORMS = {
    "a linear layer": ("return torch.nn.functional.linear(x, y)", (6, 8), (5, 8)),
    "a linear layer on three axes": ("return torch.nn.functional.linear(x, y)", (2, 3, 8), (5, 8)),
    "a product": ("return x @ y", (6, 8), (8, 5)),
    "the first transposed": ("return x.t() @ y", (8, 6), (8, 5)),
    "both transposed": ("return x.t() @ y.t()", (8, 6), (5, 8)),
    "batches": ("return torch.bmm(x, y)", (3, 6, 8), (3, 8, 5)),
    "one matrix for all batches": ("return x @ y", (3, 6, 8), (8, 5)),
    "attention scores": ("return x.transpose(1, 2) @ y.transpose(1, 2).transpose(-1, -2)", (2, 7, 3, 8), (2, 5, 3, 8)),
    "einsum with the result turned": ('return torch.einsum("ik,jk->ji", x, y)', (6, 8), (5, 8)),
    "einsum over two axes": ('return torch.einsum("iab,abj->ij", x, y)', (6, 2, 4), (2, 4, 5)),
    "a slice of a tensor": ("return x[:, 2:10] @ y", (6, 12), (8, 5)),
    "heads cut from one tensor": (
        "q = x.view(2, 7, 3, 8).transpose(1, 2)\n        return q @ y.transpose(-1, -2)",
        (2, 7, 24),
        (2, 3, 5, 8),
    ),
}


def planned(tmp_path: Path, body: str, x: tuple[int, ...], y: tuple[int, ...]) -> Plan:
    forward = f"    def forward(self, x, y):\n        {body}\n\n\n"
    inputs = f"def get_inputs():\n    return [torch.randn({x}), torch.randn({y})]\n"
    file = tmp_path / "problem.py"
    file.write_text(HEAD + forward + inputs)
    graph = simplify(capture(load(file)))
    own = frozenset(n for n in prepared(graph).nodes() if isinstance(n, Contract) and form_of(n) is not None)
    assert own, "no contraction of this form would be ours"
    return plan(graph, Routes(own=own))


@pytest.mark.parametrize("name", FORMS)
def test_the_matrices_of_a_product_give_what_einsum_gives(tmp_path: Path, name: str) -> None:
    made = planned(tmp_path, *FORMS[name])
    (kernel,) = [step for step in made.steps if isinstance(step, Kernel)]
    core = kernel.core
    assert core is not None
    leaves = {n: torch.randn(n.shape) for n in made.graph.nodes() if isinstance(n, (Input, Param))}
    copies = [step.node for step in made.steps if isinstance(step, Materialise)]
    values = evaluate((core.node, *copies), leaves)
    memory = {made.places[n].name: values[n].contiguous().flatten() for n in (*leaves, *copies)}
    a, w = operand(core.a, core, core.m, memory), operand(core.w, core, core.n, memory)
    result = (a.double() @ w.double().transpose(1, 2)).reshape(core.node.shape)
    torch.testing.assert_close(result.float(), values[core.node])


def operand(matrix: Matrix, core: Product, rows: int, memory: dict[str, torch.Tensor]) -> torch.Tensor:
    flat = memory[matrix.layout.buffer.name]
    pitches = (matrix.batch_pitch, matrix.row_pitch, matrix.k_pitch)
    return flat.as_strided((core.batches, rows, core.k), pitches, matrix.layout.offset)


def test_what_follows_a_product_becomes_its_epilogue(tmp_path: Path) -> None:
    made = planned(tmp_path, "return torch.relu(x @ y) * 2 + 1", (6, 8), (8, 5))
    (kernel,) = made.kernels
    assert kernel.core is not None
    assert [node.fn for node in kernel.region.body] == ["relu", "mul", "add"]


def test_a_product_that_another_operator_needs_is_stored_too(tmp_path: Path) -> None:
    made = planned(tmp_path, "p = x @ y\n        return torch.relu(p), torch.sort(p, -1).values", (6, 8), (8, 5))
    stored = [node for kernel in made.kernels for node, _ in kernel.region.stores]
    assert any(isinstance(node, Contract) for node in stored)
    assert len(stored) == 2
