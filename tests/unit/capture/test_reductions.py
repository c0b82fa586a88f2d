"""Reductions, norms and losses: the captured graph gives what the model gives, on every dtype, edge values included."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelwright.ir.dtypes import DTYPES
from kernelwright.ir.nodes import Map, Node, Opaque, Reduce, walk
from tests.unit.capture.eager import captured, captured_expressions, valid

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FLOATS = ("float32", "float64", "float16", "bfloat16")
NUMBERS = (*FLOATS, "int64", "int32", "int16", "uint8", "bool")

# Sums may be taken in another order, and 16-bit floats may be rounded once where PyTorch rounds twice.
CLOSE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


AXES = ("", "0", "-1", "(0, 2)", "(-1, 1)", "1, keepdim=True", "()", "None")
ONE_AXIS = ("0", "-1", "1, keepdim=True")

PLAIN = (
    *(f"x.{f}({axes})" for f in ("sum", "mean") for axes in AXES),
    *(f"x.{f}({axes})" for f in ("amax", "amin") for axes in AXES if axes != "None"),
    *(f"x.{f}({axes})" for f in ("any", "all") for axes in ("", *ONE_AXIS, "(0, 2)", "()")),
    *(f"x.prod({axes})" for axes in ("", *ONE_AXIS)),
    *(f"x.{f}()" for f in ("max", "min")),
    *(f"(*x.{f}({axes}),)" for f in ("max", "min") for axes in ONE_AXIS),
    *(f"x.{f}({axes})" for f in ("argmax", "argmin") for axes in ("", *ONE_AXIS, "None, keepdim=True")),
    *("(*torch.aminmax(x),)", "(*torch.aminmax(x, dim=1),)", "(*torch.aminmax(x, dim=-1, keepdim=True),)"),
    *("x.max(1)[1]", "x.min(-1)[0]", "torch.count_nonzero(x)", "torch.count_nonzero(x, 1)"),
    *("torch.count_nonzero(x, (0, -1))", "x.nansum()", "x.nansum(1)", "x.nanmean(-1)", "x.nanmean((0, 1))"),
    *("x.sum(dtype=torch.float64)", "x.sum(1, dtype=torch.float32)", "x.mean(1, dtype=torch.float64)"),
    *("x.prod(1, dtype=torch.float64)", "x.sum(0, dtype=torch.int32)", "x.sum(0, dtype=torch.float16)"),
    *("x.sum(1).mean()", "x[:, :1].sum(1)", "x[:, :1].amax(1)", "x[0, 0, 0].sum()", "x[0, 0, 0].amax()"),
    *("x[0, 0, 0].argmax()", "x[0, 0, 0].any()", "x[:1, :, :1].mean((0, 2))", "(*x[:, :1].max(1),)"),
)

STATISTICS = (
    *(f"torch.{f}(x)" for f in ("var", "std", "var_mean", "std_mean")),
    *(
        f"torch.{f}(x, {a})"
        for f in ("var", "std", "var_mean", "std_mean")
        for a in ("1", "(0, -1)", "0, keepdim=True")
    ),
    *(f"torch.{f}(x, 1, correction={c})" for f in ("var", "std") for c in (0, 2, 0.5, 4, 9)),
    *("x.var(1, unbiased=False)", "x.std(unbiased=False)", "x[:, :1].var(1)", "x[:, :1].var(1, unbiased=False)"),
    *("x[0, 0, 0].var(unbiased=False)", "x[0, 0, 0].std()"),
)

NORMS = (
    *(
        f"torch.linalg.vector_norm(x, {p}, {d})"
        for p in (0, 1, 2, 3, 0.5, -1, "inf", "-inf")
        for d in (1, (0, 2), None)
    ),
    *("x.norm()", "x.norm(2, 1)", "x.norm(1, (0, 1), keepdim=True)", "torch.norm(x, p='fro')", "torch.norm(x, 3, 0)"),
    *("torch.norm(x, p='fro', dim=(0, 1))", "torch.linalg.matrix_norm(x)", "torch.linalg.matrix_norm(x, keepdim=True)"),
    *(f"torch.linalg.matrix_norm(x, {p})" for p in (1, -1, "inf", "-inf")),
    *("torch.linalg.norm(x)", "torch.linalg.norm(x, dim=1)", "torch.linalg.norm(x, 1, dim=(0, 1))"),
    *("F.normalize(x)", "F.normalize(x, 1, 2)", "torch.dist(x, x + 1)", "torch.dist(x, x * 2, 1)"),
    *("torch.linalg.vector_norm(x[:, :1] * 200, 2, 1)", "torch.linalg.vector_norm(x[:, :1], 0, 1)"),
    *("F.pairwise_distance(x, x * 2)", "F.pairwise_distance(x, x + 1, p=1, keepdim=True)"),
)

SOFTMAX = (
    *(f"{f}(x, {d})" for f in ("F.softmax", "F.log_softmax", "F.softmin") for d in (0, 1, -1)),
    *(f"x.logsumexp({d})" for d in ("1", "(0, 2)", "-1, keepdim=True", "(0, 1, 2)")),
    *("F.softmax(x, 1, dtype=torch.float64)", "F.softmax(x, 1, dtype=torch.float32)"),
    *("F.log_softmax(x, 1, dtype=torch.float32)", "F.softmax(x[:, :1], 1)", "F.softmax(x[0, 0, 0], 0)"),
    *("(x / 2 - 1).softmax(1)", "torch.special.log_softmax(x, 1)", "torch.special.logsumexp(x, 1)"),
)

NORMALISATIONS = (
    *(
        "F.layer_norm(x, (5,))",
        "F.layer_norm(x, (4, 5))",
        "F.layer_norm(x, (5,), w5, b5)",
        "F.rms_norm(x, (5,))",
        "F.rms_norm(x * 0.01, (5,))",
    ),
    *("F.layer_norm(x, (5,), w5, None, 0.1)", "F.rms_norm(x, (4, 5))", "F.rms_norm(x, (5,), w5, 0.1)"),
    *("F.group_norm(x, 2)", "F.group_norm(x, 4, w4, b4)", "F.group_norm(x, 1, w4, b4, 0.1)"),
    *("F.group_norm(x.reshape(3, 4, 5, 1), 2, w4, b4)", "F.group_norm(x[:, :, 0], 2, w4)"),
    *(
        "F.instance_norm(x)",
        "F.instance_norm(x, weight=w4, bias=b4)",
        "F.instance_norm(x.reshape(3, 4, 5, 1), eps=0.1)",
    ),
    *("F.instance_norm(x, b4, w4, use_input_stats=False)", "F.batch_norm(x, None, None, training=True)"),
    *("F.batch_norm(x, None, None, w4, b4, True)", "F.batch_norm(x[:, :, 0], None, None, w4, b4, True, 0.1, 0.1)"),
    *("F.batch_norm(x, b4, w4, w4, b4)", "F.adaptive_avg_pool1d(x, 1)", "F.adaptive_avg_pool2d(x, 1)"),
    *("F.adaptive_avg_pool3d(x[None], 1)", "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w5"),
    *("F.batch_norm(x[:1, :, :1].expand(1, 4, 2), None, None, w4, None, True)",),
)

LOSSES = (
    *(
        f"F.{f}(x, y, reduction='{r}')"
        for f in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
        for r in ("none", "mean", "sum")
    ),
    *("F.smooth_l1_loss(x, y, beta=0.3)", "F.smooth_l1_loss(x, y, beta=0.0)", "F.huber_loss(x, y, delta=0.3)"),
    *("F.mse_loss(x, y[:1])", "F.kl_div(x, y.abs(), reduction='batchmean')", "F.kl_div(x, y, log_target=True)"),
    *("F.kl_div(x, y.relu(), reduction='sum')", "F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction='none')"),
    *(
        "F.binary_cross_entropy(x.sigmoid(), y.sigmoid())",
        "F.binary_cross_entropy(x.sigmoid(), (y > 0).to(x), x.abs())",
    ),
    *("F.binary_cross_entropy((x > 0).to(x), y.sigmoid(), reduction='none')",),
    *(
        "F.binary_cross_entropy_with_logits(x, y.sigmoid())",
        "F.binary_cross_entropy_with_logits(x, y.sigmoid(), y.abs())",
    ),
    *("F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=w5, reduction='none')",),
    *("F.cosine_similarity(x, y)", "F.cosine_similarity(x, y, -1, 0.5)", "F.cosine_similarity(x, y[:1], 0)"),
    *("F.cosine_similarity(x * 0, y, -1)",),
    *(f"F.triplet_margin_loss(x, y, x * y, {a})" for a in ("", "margin=0.3, p=1", "swap=True", "reduction='none'")),
    *("F.triplet_margin_loss(x, y, x * y, reduction='sum')", "F.hinge_embedding_loss(x, y.sign())"),
    *("F.hinge_embedding_loss(x, y.sign(), 0.5, reduction='none')", "F.margin_ranking_loss(x, y, (x * y).sign(), 0.1)"),
    *("F.margin_ranking_loss(x, y, y.sign(), reduction='sum')", "F.soft_margin_loss(x, y.sign())"),
    *("F.soft_margin_loss(x, y.sign(), reduction='none')", "F.multilabel_soft_margin_loss(x[0], (y[0] > 0).to(x))"),
    *(f"F.cosine_embedding_loss(x[0], y[0], w4.sign(), {a})" for a in ("", "margin=0.4", "reduction='none'")),
    *("F.cosine_embedding_loss(x[0], y[0], b4.sign(), margin=-0.9)",),
    *("F.poisson_nll_loss(x, y.abs())", "F.poisson_nll_loss(x.abs(), y.abs(), log_input=False, reduction='none')"),
    *("torch.clamp(1 - x * y, min=0).mean()",),
    *(f"F.cross_entropy(x, y.softmax(1), {a})" for a in ("", "label_smoothing=0.2", "w4.abs()", "reduction='none'")),
    *("F.cross_entropy(x[0, 0], y[0, 0].softmax(0), reduction='sum')",),
    *(f"F.cross_entropy(x, t, {a})" for a in ("", "reduction='none'", "reduction='sum'", "w4.abs()")),
    *(f"F.cross_entropy(x, t, ignore_index=2, {a})" for a in ("", "weight=w4.abs()", "reduction='none'")),
    *(
        f"F.cross_entropy(x, t, label_smoothing=0.2, {a})"
        for a in ("", "weight=w4.abs()", "reduction='none'", "ignore_index=1")
    ),
    *("F.cross_entropy(x, t, label_smoothing=0.2, weight=w4.abs(), ignore_index=1, reduction='sum')",),
    *("F.cross_entropy(x[..., 0], t[:, 0])", "F.cross_entropy(x[0, :, 0], t[0, 0])", "F.cross_entropy(x, t * 0 - 100)"),
    *(f"F.nll_loss(x, t, {a})" for a in ("", "weight=w4", "ignore_index=3", "reduction='none'")),
    *("F.nll_loss(F.log_softmax(x[..., 0], 1), t[:, 0])",),
)

FAMILIES = {
    "statistics": STATISTICS,
    "norms": NORMS,
    "softmax": SOFTMAX,
    "normalisations": NORMALISATIONS,
    "losses": LOSSES,
}


def operands(name: str) -> dict[str, torch.Tensor]:
    """x and y of shape (3, 4, 5), a class t for each column of them, weights and biases."""
    numbers = torch.Generator().manual_seed(7)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=numbers) * 2).to(DTYPES[name].to_torch())

    t = torch.randint(0, 4, (3, 5), generator=numbers)
    weights = {"w4": drawn(4) ** 2 + 1, "b4": drawn(4), "w5": drawn(5), "b5": drawn(5)}
    return {"x": drawn(3, 4, 5), "y": drawn(3, 4, 5), "t": t, **weights}


def edges(x: torch.Tensor) -> torch.Tensor:
    """Ties, and rows with NaN, with infinities of either sign and of both, and with nothing but -inf."""
    x = x.clone()
    x[0, 0, :2], x[0, 1, 3], x[0, 2, 0] = x[0, 0, 2], float("nan"), float("inf")
    x[1, 0, 4], x[1, 1], x[1, 2, :2] = float("-inf"), float("-inf"), torch.tensor([float("inf"), float("-inf")])
    x[2, 0] = 0.0
    return x


@pytest.mark.parametrize("dtype", NUMBERS)
def test_plain_reductions(tmp_path: Path, dtype: str) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(7)) * 2
    check(tmp_path, PLAIN, x=(x.abs() if dtype == "uint8" else x).to(DTYPES[dtype].to_torch()))


@pytest.mark.parametrize("dtype", FLOATS)
def test_plain_reductions_of_nan_and_infinities(tmp_path: Path, dtype: str) -> None:
    check(tmp_path, PLAIN, x=edges(operands(dtype)["x"]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_families_of_operators(tmp_path: Path, dtype: str, family: str) -> None:
    check(tmp_path, FAMILIES[family], **operands(dtype))


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_families_of_operators_on_nan_and_infinities(tmp_path: Path, dtype: str, family: str) -> None:
    given = operands(dtype)
    check(tmp_path, FAMILIES[family], **{**given, "x": edges(given["x"])})


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_empty_tensors_give_neutral_elements_or_are_left_to_pytorch(tmp_path: Path, shape: tuple[int, ...]) -> None:
    expressions = (
        *(f"x.{f}({d})" for f in ("sum", "mean", "prod", "any", "all") for d in ("", 0, -1)),
        *(f"x.{f}({d})" for f in ("amax", "argmin", "logsumexp") for d in (0, -1)),
        *("x.max(0)[0]", "x.max(-1)[1]"),
        *(
            "x.var()",
            "x.std(0)",
            "x.norm()",
            "torch.linalg.vector_norm(x, 3, -1)",
            "torch.linalg.vector_norm(x, inf, 0)",
        ),
        *("x.softmax(0)", "x.log_softmax(-1)", "F.mse_loss(x, x)", "F.layer_norm(x, x.shape[-1:])", "x.nanmean()"),
    )
    check(tmp_path, expressions, may_leave=True, x=torch.zeros(shape))


def check(folder: Path, expressions: Sequence[str], may_leave: bool = False, **tensors: torch.Tensor) -> None:
    """Every expression that PyTorch takes gives what PyTorch gives, and is left to it only where that is allowed."""
    accepted = valid(expressions, **tensors)
    assert accepted
    found = captured_expressions(folder, accepted, **tensors)
    scope = {"torch": torch, "F": nn.functional, "inf": inf, **tensors}
    names = [f"{i}. result of {e}" for e in accepted for i, _ in enumerate(tree_leaves(eval(e, dict(scope))))]
    results = zip(names, found.graph.outputs, found.eager(), found.interpreted(), strict=True)
    wrong = [text for name, node, *values in results if (text := difference(name, node, may_leave, *values))]
    assert not wrong, "\n".join(wrong)


def difference(name: str, node: Node, may_leave: bool, expected: torch.Tensor, actual: torch.Tensor) -> str:
    left = {n.target for n in walk((node,)) if isinstance(n, Opaque)}
    if left and not may_leave:
        return f"{name}: {left} left to PyTorch"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{name}: {actual.dtype} {tuple(actual.shape)}, not {expected.dtype} {tuple(expected.shape)}"
    near = CLOSE.get(str(expected.dtype).removeprefix("torch."), 0)
    same = torch.isclose(actual, expected, rtol=near, atol=near, equal_nan=True)
    return "" if same.all() else f"{name}: {actual[~same][:4].tolist()}, not {expected[~same][:4].tolist()}"


def test_batch_norm_in_train_mode_updates_its_statistics(tmp_path: Path) -> None:
    found = captured(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norms = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3, momentum=0.3, affine=False))

            def forward(self, x):
                return self.norms(x)


        def get_inputs():
            return [torch.randn(2, 3, 4, 5) * 3 + 1]
        """,
    )
    assert not found.targets
    assert len(found.graph.updates) == 6
    for expected, actual in zip(found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_instance_norm_that_updates_statistics_behind_the_back_of_the_graph_is_left_to_pytorch(tmp_path: Path) -> None:
    found = captured(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.InstanceNorm1d(3, track_running_stats=True)

            def forward(self, x):
                return self.norm(x)


        def get_inputs():
            return [torch.randn(2, 3, 4)]
        """,
    )
    assert found.targets == ["aten.instance_norm.default"]


def test_an_index_that_nobody_reads_is_not_in_the_graph(tmp_path: Path) -> None:
    found = captured_expressions(tmp_path, ["x.max(1)[0]", "x.min(0)[1]"], x=torch.randn(3, 4))
    assert sorted(n.fn for n in found.graph.nodes() if isinstance(n, Reduce)) == ["argmin", "max"]


def test_16_bit_floats_are_reduced_in_float32_and_rounded_once(tmp_path: Path) -> None:
    found = captured_expressions(tmp_path, ["x.mean(1)", "F.layer_norm(x, (4,))"], x=torch.randn(3, 4).half())
    for n in found.graph.nodes():
        assert not isinstance(n, Reduce) or n.x.dtype is DTYPES["float32"]
        assert n.dtype is not DTYPES["float16"] or not isinstance(n, Map) or n.fn == "cast"
