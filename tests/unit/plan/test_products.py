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


def planned(
    tmp_path: Path, body: str, x: tuple[int, ...], y: tuple[int, ...], reducing: bool = False, fed: bool = False
) -> Plan:
    forward = f"    def forward(self, x, y):\n        {body}\n\n\n"
    inputs = f"def get_inputs():\n    return [torch.randn({x}), torch.randn({y})]\n"
    file = tmp_path / "problem.py"
    file.write_text(HEAD + forward + inputs)
    graph = simplify(capture(load(file)))
    own = frozenset(n for n in prepared(graph).nodes() if isinstance(n, Contract) and form_of(n) is not None)
    assert own, "no contraction of this form would be ours"
    return plan(graph, Routes(own=own, reducing=own if reducing else frozenset(), fed=own if fed else frozenset()))


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


# --- products that reduce their own rows

REDUCED = {
    "a sum of an activation": ("return torch.relu(x @ y).sum(1)", ["relu", "sum"], []),
    "a row's own value, and what is made of it": (
        "return torch.tanh((x @ y).amax(1, keepdim=True)) * 2", ["max", "tanh", "mul"], []
    ),
    "two of one result": ("p = x @ y\n        return p.amax(1), torch.relu(p).sum(1)", ["relu", "max", "sum"], []),
    "softmax": ("return torch.softmax(x @ y, 1)", ["max", "exponentials"], [["sub", "exp", "div"]]),
}  # fmt: skip


def functions(kernel: Kernel) -> list[str]:
    return [node.fn for node in kernel.region.body]


@pytest.mark.parametrize("name", REDUCED)
def test_a_product_reduces_its_own_rows(tmp_path: Path, name: str) -> None:
    body, inside, after = REDUCED[name]
    first, *others = planned(tmp_path, body, (60, 80), (80, 90), reducing=True).kernels
    assert first.core is not None
    assert (sorted(functions(first)), first.region.axes) == (sorted(inside), (1,))
    assert list(map(functions, others)) == after
    # The whole result is in memory only where something else reads it.
    assert [x.buffer.shape for _, x in first.region.stores].count((60, 90)) == len(after)


@pytest.mark.parametrize(
    "body",
    [
        "return torch.relu(x @ y).sum(0)",
        "return torch.relu(x @ y).sum()",
        "return torch.relu(x @ y).view(60, 9, 10).sum(2)",
        "return torch.softmax(x @ y, 1).amax(1)",
        "p = torch.relu(x @ y)\n        return (p + torch.cumsum(p, 1)).sum(1)",
    ],
    ids=["columns", "everything", "groups of columns", "a reduction of a reduction", "what PyTorch makes of it"],
)
def test_what_lies_otherwise_is_reduced_by_another_kernel(tmp_path: Path, body: str) -> None:
    made = planned(tmp_path, body, (60, 80), (80, 90), reducing=True)
    assert not [kernel for kernel in made.kernels if kernel.core is not None and kernel.region.axes]


# --- products that compute their operands

FED = {
    "the first operand": ("return torch.relu(x + 1) @ y", ["add", "relu"], None, ["x"]),
    "the second": ("return x @ torch.tanh(y)", None, ["tanh"], ["y"]),
    "both": ("return torch.relu(x) @ torch.tanh(y)", ["relu"], ["tanh"], ["x", "y"]),
    "one that lies the other way": ("return torch.relu(x).t() @ y[:60]", ["relu"], None, ["x"]),
    "one of a slice": ("return torch.relu(x[:, :80]) @ y", ["relu"], None, ["x"]),
    "with a row and a column": (
        "return (x * x[:, :1] + x[0]) @ y", ["mul", "add"], None, ["x"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FED)
def test_an_operand_that_only_the_product_reads_is_never_stored(tmp_path: Path, name: str) -> None:
    body, of_a, of_w, read = FED[name]
    width = 90 if "slice" in name else 80
    made = planned(tmp_path, body, (60, width), (80, 90), fed=True)
    (kernel,) = made.kernels
    core = kernel.core
    assert isinstance(core, Product)
    found = [None if region is None else [node.fn for node in region.maps] for region in (core.of_a, core.of_w)]
    assert found == [of_a, of_w]
    matrices = [m for m, region in ((core.a, core.of_a), (core.w, core.of_w)) if region is not None]
    assert [matrix.layout.buffer.name for matrix in matrices] == read
    for region, rows in ((core.of_a, core.m), (core.of_w, core.n)):
        assert region is None or region.shape == (rows, core.k)


@pytest.mark.parametrize(
    "body",
    [
        "p = torch.relu(x)\n        return p @ y, p",
        "p = torch.relu(x)\n        return p @ y, p.sum(1)",
        "p = torch.relu(x)\n        return (p @ y) + (p @ torch.tanh(y + 1))",
        "p = torch.relu(x)\n        return p @ y @ y.t() @ p.t()",
        "return torch.softmax(x, 1) @ y",
        "return torch.relu(x[:, :1]).expand(60, 80) @ y",
    ],
    ids=["returned", "reduced", "two products", "twice", "no function of elements", "repeated"],
)
def test_an_operand_that_is_needed_otherwise_has_a_kernel_of_its_own(tmp_path: Path, body: str) -> None:
    made = planned(tmp_path, body, (60, 80), (80, 90), fed=True)
    assert [k for k in made.kernels if k.core is None]
    assert not [k for k in made.kernels if isinstance(k.core, Product) and k.core.of_a is not None]
