"""View operators: every element of the captured view is where PyTorch's is, and PyTorch is asked for none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.errors import UnsupportedProblem
from kernelwright.ir.nodes import Map, Opaque
from kernelwright.simplify import simplify
from tests.unit.capture.eager import Captured, captured_expressions, places

RESHAPES = (
    *("x.view(2, 12, 3)", "x.reshape(-1)", "x.reshape(6, -1)", "x.view(-1, 2, 3)", "x.flatten(1)", "x.flatten()"),
    *("x.flatten(-2, -1)", "x.unflatten(1, (2, 2))", "x.unsqueeze(0)", "x.unsqueeze(-1)", "x.unsqueeze(2)"),
    *("x[:, :1].squeeze(1)", "x[:1, :1].squeeze()", "x[:1, :, :1].squeeze((0, 2))", "x.squeeze(0)", "x.view_as(x)"),
    *("x.reshape_as(x.flatten())", "x.contiguous().view(-1)", "x.transpose(0, 1).reshape(-1)", "x.detach().view(72)"),
    *("x.ravel()", "x.permute(2, 0, 1).contiguous().view(-1)", "x[None]", "x[..., None]", "x[:, None, :, :]"),
)

PERMUTES = (
    *(
        "x.permute(2, 0, 1)",
        "x.permute(-1, 0, -2)",
        "x.transpose(0, 2)",
        "x.transpose(-1, -2)",
        "x[0].t()",
        "x[0, 0].t()",
    ),
    *("x.mT", "x[0].T", "x.movedim(0, -1)", "x.movedim((0, 1), (1, 2))", "torch.moveaxis(x, 2, 0)"),
    *("torch.moveaxis(x, (2, 0), (0, 1))", "x.swapaxes(0, 1)", "x.swapdims(1, 2)", "x[0].mH", "x.adjoint()"),
)

BROADCASTS = (
    *("x.unsqueeze(0).expand(3, 6, 4, 3)", "x.unsqueeze(1).expand(-1, 2, -1, -1)", "x[:, :1].expand_as(x)"),
    *("torch.broadcast_to(x[0], (5, 4, 3))", "x[0, 0].expand(4, 3)", "x.expand(6, 4, 3)"),
)

SLICES = (
    *("x[1:3]", "x[:, -2:]", "x[..., 1]", "x[-1]", "x[0, 1, 2]", "x[2:5:2]", "x[:, ::3]", "x[1:100]", "x[-100:2]"),
    *(
        "x[:, 3:1]",
        "x[5:]",
        "x.narrow(1, 1, 2)",
        "x.narrow(0, -2, 2)",
        "x.narrow(2, 0, 3)",
        "x.select(2, -1)",
        "x[1, ..., ::2]",
    ),
)

SEVERAL = (
    *(
        "x.chunk(3)[1]",
        "x.chunk(4, 0)[2]",
        "x.chunk(2, -1)[0]",
        "x.split(2)[2]",
        "x.split(4)[1]",
        "x.split([1, 2, 3])[2]",
    ),
    *("x.split([1, 3], 1)[1]", "x.unbind()[4]", "x.unbind(-1)[1]", "x.unbind(1)[0]", "torch.tensor_split(x, 4)[1]"),
    *("torch.tensor_split(x, 4)[3]", "x.split_with_sizes([2, 4])[1]", "sum(x.chunk(3, 0))"),
)


@pytest.mark.parametrize("family", [RESHAPES, PERMUTES, BROADCASTS, SLICES, SEVERAL], ids=lambda f: f[0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_views_show_the_elements_that_pytorch_shows(
    tmp_path: Path, family: tuple[str, ...], dtype: torch.dtype
) -> None:
    x = (torch.arange(72) * 5 % 7).reshape(6, 4, 3)
    expressions = [e for e in family if dtype is not torch.bool or "sum" not in e]
    found = captured_expressions(tmp_path, expressions, x=x.to(dtype))
    wrong = [f"{expressions[int(text.split(':')[0].split()[1])]}: {text}" for text in found.differences()]
    assert not wrong, "\n".join(wrong)
    assert found.targets == []


def test_views_of_a_strided_input_show_the_same_elements(tmp_path: Path) -> None:
    x = torch.arange(72).reshape(3, 4, 6).permute(2, 1, 0)
    expressions = ("x.reshape(-1)", "x.contiguous().view(-1)", "x.transpose(0, 2).view(-1)", "x[1]")
    found = captured_expressions(tmp_path, expressions, x=x)
    assert found.differences() == []
    assert found.graph.inputs[0].strides == (1, 6, 24)


def test_empty_tensors_have_views_too(tmp_path: Path) -> None:
    found = captured_expressions(
        tmp_path,
        ("x.reshape(3, 0)", "x[:, 1:]", "x.unsqueeze(1).expand(0, 2, 3)", "x + 1", "x.t()"),
        x=torch.zeros(0, 3),
    )
    assert found.differences() == []


def test_scalars_have_views_too(tmp_path: Path) -> None:
    expressions = (
        "x.reshape(1, 1)",
        "x.unsqueeze(0)",
        "x.expand(2, 3)",
        "x.view(())",
        "x.transpose(0, 0)",
        "x.squeeze()",
    )
    found = captured_expressions(tmp_path, expressions, x=torch.tensor(2.5))
    assert found.differences() == []
    assert found.targets == []


def test_a_copy_is_a_tensor_of_its_own_and_a_view_is_not(tmp_path: Path) -> None:
    found = captured_expressions(tmp_path, ("x.view(-1)", "x.clone()", "x", "x.contiguous()"), x=torch.ones(2, 3))
    copies = [isinstance(n, Map) and n.fn == "identity" for n in found.graph.outputs]
    assert copies == [False, True, False]
    assert places(found.graph.structure) == [0, 1, 2, 2]  # x.contiguous() is x itself


def test_as_strided_sees_the_memory_that_pytorch_saw(tmp_path: Path) -> None:
    expressions = (
        *("x.as_strided((3, 2), (4, 1), 1)", "x.t().as_strided((4,), (3,))", "(x + 1).as_strided((2, 2), (1, 1))"),
        *("x.t().contiguous().as_strided((6,), (2,))", "x.t().clone().as_strided((5,), (1,), 3)"),
    )
    found = captured_expressions(tmp_path, expressions, x=torch.arange(12).reshape(3, 4))
    assert found.differences() == []
    simple = Captured(simplify(found.graph), found.model, found.inputs)
    assert simple.differences() == []


def test_as_strided_on_a_part_of_a_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedProblem, match="as_strided on a part"):
        captured_expressions(tmp_path, ["x[1:].as_strided((4,), (1,))"], x=torch.arange(12).reshape(3, 4))


def test_views_that_we_have_no_node_for_are_left_to_pytorch(tmp_path: Path) -> None:
    expressions = ("torch.cat([x, x])", "x.tril().nonzero_static(size=3)")
    found = captured_expressions(tmp_path, expressions, x=torch.arange(12).reshape(3, 4))
    assert found.differences() == []
    assert all(isinstance(n, Opaque) for n in found.graph.outputs)
