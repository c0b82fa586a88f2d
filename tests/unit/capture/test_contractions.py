"""Matrix products and convolutions: captured as Contract and Conv, and equal to PyTorch's to rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.ir.nodes import Contract, Conv, Map
from tests.unit.capture.eager import captured, captured_expressions

PRODUCTS = (
    *("a @ b", "torch.mm(a, b)", "a.matmul(b)", "a @ v", "v @ b", "torch.dot(v, v)", "torch.mv(a, v)", "A @ B"),
    *(
        "torch.bmm(A, B)",
        "A @ b",
        "a @ B",
        "A @ v",
        "v @ B",
        "D @ b",
        "D @ B",
        "D[:, :1] @ B",
        "torch.matmul(D[:1], D.mT)",
    ),
    *(
        "F.linear(a, b.t())",
        "F.linear(A, b.t(), w)",
        "F.linear(D, b.t(), w)",
        "F.linear(v, b.t())",
        "F.linear(a, b.t(), w)",
    ),
    *("torch.addmm(w, a, b)", "torch.addmm(w, a, b, beta=0.5, alpha=2)", "torch.addmm(w, a, b, beta=0)"),
    *("torch.baddbmm(w.expand(2, 4, 6), A, B)", "torch.baddbmm(w.expand(2, 4, 6), A, B, beta=2, alpha=0.5)"),
    *("torch.einsum('ij,jk->ik', a, b)", "torch.einsum('ij,jk->ki', a, b)", "torch.einsum('bij,bjk->bik', A, B)"),
    *("torch.einsum('bij,jk->bik', A, b)", "torch.einsum('i,j->ij', v, w)", "torch.einsum('ij,ij->ij', a, a)"),
    *("torch.einsum('ij,ij->', a, a)", "torch.einsum('hbij,bjk->bhik', D, B)"),
    *("torch.einsum('ij,jk', a, b)", "torch.einsum('ki,kj', a, a)", "torch.einsum('...ij,...jk->...ik', A, B)"),
    *("torch.einsum('...ij,jk->...ki', D, b)", "torch.einsum('...j,j', D, v)", "torch.einsum('b...j,...j->b', A, v)"),
    *("torch.einsum('ij,jk->k', a, b)", "torch.einsum('hbij,bjk->ik', D, B)", "torch.einsum('ij,k->jk', a, w)"),
    *("torch.tensordot(a, b, 1)", "torch.tensordot(D, A, dims=([1, -1], [0, 2]))", "torch.tensordot(v, w, 0)"),
    *("torch.inner(D, a)", "torch.inner(A, v)", "torch.inner(v, v)", "torch.vdot(v, v)"),
    *("torch.addmv(a[:, 0], a, v)", "torch.addmv(a[:, 0], a, v, beta=0.5, alpha=2)"),
)
# Of one operand, nothing is multiplied.
TURNED = (
    *(
        "torch.einsum('bij->jbi', A)",
        "torch.einsum('ij->j', a)",
        "torch.einsum('bij->ji', A)",
        "torch.einsum('ij->', a)",
    ),
    *("torch.einsum('...i->i...', A)", "torch.einsum('ba', a)", "torch.einsum('...ij->ij', D)"),
)


def matrices(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"a": (4, 5), "b": (5, 6), "v": (5,), "w": (6,), "A": (2, 4, 5), "B": (2, 5, 6), "D": (3, 2, 4, 5)}
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_matrices_are_contractions(tmp_path: Path, dtype: torch.dtype) -> None:
    found = captured_expressions(tmp_path, PRODUCTS, **matrices(dtype))
    for expression, eager, ours in zip(PRODUCTS, found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, msg=lambda text, e=expression: f"{e}: {text}")
    assert found.targets == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_einsum_of_one_operand_sums_and_turns(tmp_path: Path, dtype: torch.dtype) -> None:
    found = captured_expressions(tmp_path, TURNED, **matrices(dtype))
    for expression, eager, ours in zip(TURNED, found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, msg=lambda text, e=expression: f"{e}: {text}")
    assert found.targets == []
    assert not any(isinstance(n, Contract) for n in found.graph.nodes())


def test_what_is_counted_0_times_need_not_be_finite(tmp_path: Path) -> None:
    expressions = ("torch.addmm(w, a / 0, b, alpha=0)", "torch.addmv(a[:, 0], a / 0, v, alpha=0)")
    found = captured_expressions(tmp_path, expressions, **matrices(torch.float32))
    for expression, eager, ours in zip(expressions, found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, msg=lambda text, e=expression: f"{e}: {text}")


def test_einsum_of_a_diagonal_of_repeated_axes_and_of_three_operands_is_left_to_pytorch(tmp_path: Path) -> None:
    expressions = (
        *(
            "torch.einsum('ii->i', a[:, :4])",
            "torch.einsum('ij,ij->ij', a, a[:1])",
            "torch.einsum('ij,jk,k->i', a, b, w)",
        ),
        "torch.tensordot(a, b[:1], 1)",
    )
    found = captured_expressions(tmp_path, expressions, **matrices(torch.float32))
    assert found.differences() == []
    assert found.targets == ["aten.einsum.default"] * 3 + ["aten.tensordot.default"]


def test_the_bias_of_a_linear_layer_is_an_addition_of_its_own(tmp_path: Path) -> None:
    found = captured_expressions(tmp_path, ["F.linear(A, b.t(), w)"], **matrices(torch.float32))
    (output,) = found.graph.outputs
    assert isinstance(output, Map)
    assert output.fn == "add"
    assert isinstance(output.args[0], Contract)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_products_without_a_bias_are_contractions_and_with_one_pytorchs(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    expressions = ("a @ b", "F.linear(a, b.t())", "F.linear(a, b.t(), w)", "torch.addmm(w, a, b)")
    found = captured_expressions(tmp_path, expressions, **matrices(dtype))
    for eager, ours in zip(found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
    assert [type(n).__name__ for n in found.graph.outputs] == ["Contract", "Contract", "Opaque", "Opaque"]


def test_products_of_integers_and_empty_sums_are_left_to_pytorch(tmp_path: Path) -> None:
    a, e = torch.arange(6).reshape(2, 3), torch.zeros(2, 0)
    found = captured_expressions(tmp_path, ("a @ a.t()", "e @ e.t()"), a=a, e=e)
    assert found.differences() == []
    assert not any(isinstance(n, Contract) for n in found.graph.nodes())


CONVOLUTIONS = (
    *(
        "F.conv2d(x, w)",
        "F.conv2d(x, w, b)",
        "F.conv2d(x, w, b, stride=2, padding=1)",
        "F.conv2d(x, w, padding=(2, 1))",
    ),
    *("F.conv2d(x, w, dilation=2, padding=2)", "F.conv2d(x, w, stride=(1, 3))", "F.conv2d(x, g, groups=2)"),
    *(
        "F.conv2d(x, d, groups=4, padding=1)",
        "F.conv1d(x[:, :, 0], w[:, :, 0])",
        "F.conv1d(x[:, :, 0], w[:, :, 0], b, 2, 1)",
    ),
    *("F.conv3d(x[:, :, None], w[:, :, None], b)", "F.conv_transpose2d(x, t)", "F.conv_transpose2d(x, t, c, stride=2)"),
    *(
        "F.conv_transpose2d(x, t, c, stride=3, padding=1, output_padding=2, dilation=2)",
        "F.conv_transpose2d(x, t, groups=2)",
    ),
    *("F.conv_transpose1d(x[:, :, 0], t[:, :, 0], c, 2)", "F.conv_transpose3d(x[:, :, None], t[:, :, None], c)"),
)


def test_convolutions_of_every_rank_and_geometry(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    shapes = {
        "x": (2, 4, 9, 8),
        "w": (6, 4, 3, 3),
        "b": (6,),
        "g": (6, 2, 3, 3),
        "d": (4, 1, 3, 3),
        "t": (4, 3, 3, 2),
        "c": (3,),
    }
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    found = captured_expressions(tmp_path, CONVOLUTIONS, **tensors)
    for expression, eager, ours in zip(CONVOLUTIONS, found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4, msg=lambda text, e=expression: f"{e}: {text}")
    assert found.targets == []
    assert sum(isinstance(n, Conv) for n in found.graph.nodes()) >= len(CONVOLUTIONS) - 2


def test_convolutions_padded_by_name_and_without_a_batch_are_convolutions_too(tmp_path: Path) -> None:
    shapes = {"x": (2, 4, 9, 8), "w": (6, 4, 2, 3), "b": (6,), "t": (4, 3, 3, 2)}
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    expressions = (
        *("F.conv2d(x, w, b, padding='same')", "F.conv2d(x, w, padding='valid', stride=2)", "F.conv2d(x[0], w, b)"),
        *("F.conv2d(x, w, b, padding='same', dilation=(2, 3))", "F.conv1d(x[:, :, 0], w[..., 0], b, padding='same')"),
        *("F.conv3d(x[:, :, None], w[:, :, None], padding='same')", "F.conv_transpose2d(x[0], t, stride=2)"),
    )
    found = captured_expressions(tmp_path, expressions, **tensors)
    for expression, eager, ours in zip(expressions, found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4, msg=lambda text, e=expression: f"{e}: {text}")
    assert found.targets == []


def test_modules_with_weights_read_them_by_their_paths(tmp_path: Path) -> None:
    found = captured(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
                self.second = nn.Linear(8, 3, bias=False)
                self.conv = nn.Conv1d(3, 5, 2)

            def forward(self, x):
                y = self.second(self.first(x))
                return self.conv(y.transpose(1, 2))

        def get_inputs():
            return [torch.randn(2, 7, 6)]
        """,
    )
    (eager,), (ours,) = found.eager(), found.interpreted()
    torch.testing.assert_close(ours, eager)
    paths = [n.path for n in found.graph.nodes() if type(n).__name__ == "Param"]
    assert sorted(paths) == ["conv.bias", "conv.weight", "first.0.bias", "first.0.weight", "second.weight"]
    assert found.targets == []
