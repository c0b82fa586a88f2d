"""Every row of the operator tables by itself: one call of the ATen operator, translated, gives what the operator gives.

torch.export takes some of these apart in one release and leaves them whole in another, so they are called directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph as FxGraph

from kernelwright.capture.maps import ALIASES
from kernelwright.capture.operators import KNOWN, translate
from kernelwright.ir.dtypes import from_torch
from kernelwright.ir.interpret import evaluate, resolve_operator
from kernelwright.ir.nodes import Input, Node, Opaque, walk
from kernelwright.load import Problem

PROBLEM = Problem("rows", "", Path("rows.py"))

X = torch.linspace(0.1, 0.9, 24).reshape(2, 3, 4)
Y = torch.linspace(2, -1, 24).reshape(2, 3, 4)
N, M = (X * 40).int(), (Y * 3).abs().int() + 1
A, B, V = X[0], Y[1].t().contiguous(), X[0, 0]
IMAGE, VOLUME, SIGNAL = torch.randn(2, 4, 6, 5), torch.randn(2, 4, 3, 4, 5), torch.randn(2, 4, 9)
PLACES = torch.tensor([3, 0, 2])
NEAREST = ("upsample_nearest", "_upsample_nearest_exact")

# Rows that say an operator in the words of another one, which stays a call until it is planned.
REWORDED = frozenset(("aten.stack", "aten.hstack", "aten.vstack", "aten.roll"))

# The arguments of each operator where they are not just X, or X and Y.
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    **{f"aten.{fn}.Scalar": (X, 0.5) for fn in ("eq", "ne", "lt", "le", "gt", "ge", "mul", "div", "remainder", "fmod")},
    **{f"aten.{fn}.Scalar": (X, 0.5, 3) for fn in ("add", "sub", "rsub")},
    **{f"aten.{fn}.Tensor": (X, Y) for fn in ("add", "sub", "rsub")},
    "aten.remainder.Scalar_Tensor": (5, X),
    "aten.copysign.Scalar": (X, -2),
    "aten.heaviside": (Y.round(), X),
    "aten.logit": (X, 0.2),
    "aten.diff": (X, 2, 1),
    "aten.outer": (V, V[:3]),
    "aten.ger": (V, V[:3]),
    "aten.div.Tensor_mode": (X, Y, "floor"),
    "aten.div.Scalar_mode": (X, 0.3, "trunc"),
    "aten.floor_divide": (N, M),
    "aten.floor_divide.Scalar": (N, 3),
    "aten.pow.Tensor_Scalar": (X, 2.5),
    "aten.pow.Scalar": (1.5, X),
    "aten.round": (X * 9,),
    "aten.clamp": (X, 0.2, 0.6),
    "aten.clamp.Tensor": (X, Y, Y + 0.5),
    "aten.clamp_min": (X, 0.4),
    "aten.clamp_max": (X, 0.4),
    "aten.hardtanh": (Y, -0.5, 0.5),
    "aten.leaky_relu": (Y, 0.2),
    "aten.celu": (Y, 0.7),
    "aten.elu": (Y, 0.7, 1.1, 0.9),
    "aten.softplus": (Y, 2, 1),
    "aten.threshold": (Y, 0.3, 7),
    "aten.gelu": (Y,),
    "aten.prelu": (Y, V[:3]),
    "aten._prelu_kernel": (Y, V[:3].reshape(1, 3, 1)),
    "aten.glu": (Y, -1),
    "aten.where.self": (Y > 0, X, Y),
    "aten.where.ScalarSelf": (Y > 0, 1.5, Y),
    "aten.where.ScalarOther": (Y > 0, X, 2),
    "aten.where.Scalar": (Y > 0, 1.5, 2.5),
    "aten.masked_fill.Scalar": (X, Y > 0, 3),
    "aten.nan_to_num": (X,),
    "aten.masked_fill.Tensor": (X, Y > 0, torch.tensor(3.0)),
    "aten.lerp.Scalar": (X, Y, 0.7),
    "aten.lerp.Tensor": (X, Y, X),
    **{f"aten.{fn}": (X, Y, Y) for fn in ("addcmul", "addcdiv")},
    **{f"aten.logical_{fn}": (X > 0.5, Y > 0) for fn in ("and", "or", "xor")},
    **{
        f"aten.bitwise_{fn}.{form}": (N, M if form == "Tensor" else 5)
        for fn in ("and", "or", "xor")
        for form in ("Tensor", "Scalar")
    },
    **{
        f"aten.__{fn}__.{form}": (N, M if form == "Tensor" else 5)
        for fn in ("and", "or", "xor")
        for form in ("Tensor", "Scalar")
    },
    **{f"aten.bitwise_{way}_shift.Tensor": (N, M) for way in ("left", "right")},
    **{f"aten.bitwise_{way}_shift.Tensor_Scalar": (N, 2) for way in ("left", "right")},
    **{
        f"aten.__{way}shift__.{form}": (N, M if form == "Tensor" else 2)
        for way in "lr"
        for form in ("Tensor", "Scalar")
    },
    "aten.clamp_min.Tensor": (X, Y),
    "aten.clamp_max.Tensor": (X, Y),
    "aten.fill.Scalar": (X, 7),
    "aten.fill.Tensor": (X, torch.tensor(7)),
    "aten.bitwise_not": (N,),
    "aten.to.dtype": (X, torch.float64),
    "aten.to.dtype_layout": (N,),
    "aten.to.other": (X, N),
    "aten.to.device": (X, torch.device("cpu"), torch.float16),
    "aten.to.prim_Device": (X, torch.device("cpu")),
    "aten.full": ((2, 3), 1.5),
    "aten.full_like": (X, 2),
    "aten.new_full": (X, (3,), 7),
    "aten.scalar_tensor": (2.5,),
    "aten.zeros": ((2, 2),),
    "aten.ones": ((2, 2),),
    "aten.new_zeros": (X, (2,)),
    "aten.new_ones": (X, (2,)),
    "aten._native_batch_norm_legit_no_training": (X, V[:3], V[:3], V[:3], V[:3] + 1, 0.1, 1e-5),
    **{f"aten.{name}": (X, (6, 4)) for name in ("view", "_unsafe_view", "reshape", "view_copy")},
    "aten._reshape_alias": (X, (6, 4), (4, 1)),
    "aten.flatten.using_ints": (X, 0, 1),
    "aten.unflatten.int": (X, 2, (2, 2)),
    "aten.squeeze.dim": (X[:1], 0),
    "aten.squeeze.dims": (X[:1], (0, 1)),
    "aten.unsqueeze": (X, 1),
    "aten.unsqueeze_copy": (X, 1),
    "aten.view_as": (X, Y.view(6, 4)),
    "aten.reshape_as": (X, Y.view(6, 4)),
    "aten.permute": (X, (2, -3, 1)),
    "aten.t": (A,),
    **{f"aten.{name}": (X, 0, -1) for name in ("transpose.int", "swapaxes", "swapdims", "movedim.int", "moveaxis.int")},
    **{f"aten.{name}": (X, (0, 1), (2, 0)) for name in ("movedim.intlist", "moveaxis.intlist")},
    "aten.numpy_T": (A,),
    "aten.matrix_H": (A,),
    "aten.expand": (X[:, :1], (2, 3, 4)),
    "aten.expand_as": (X[:, :1], X),
    "aten.broadcast_to": (A, (5, 3, 4)),
    "aten.broadcast_tensors": ([A, X],),
    "aten.slice.Tensor": (X, 1, -2, None, 1),
    "aten.select.int": (X, 2, -1),
    "aten.narrow": (X, 2, 1, 2),
    "aten.split.Tensor": (X, 2, 2),
    "aten.split_with_sizes": (X, (1, 2), 1),
    "aten.chunk": (X, 2, 1),
    "aten.unbind.int": (X, 1),
    "aten.tensor_split.sections": (X, 3, 2),
    "aten.linear": (X, A, V[:3]),
    "aten.mm": (A, B),
    "aten.bmm": (X, Y.mT),
    "aten.mv": (A, V),
    "aten.dot": (V, V),
    "aten.vdot": (V, V),
    "aten.inner": (X, A),
    "aten.tensordot": (X, Y, (0, -1), (0, 2)),
    "aten.addmv": (V[:3], A, V, 0.5, 2),
    "aten.matmul": (X, B),
    "aten.addmm": (V[:3], A, B),
    "aten.baddbmm": (V[:3], X, Y.mT),
    "aten.einsum": ("ij,jk->ki", [A, B]),
    "aten.convolution": (IMAGE, torch.randn(4, 2, 3, 2), torch.randn(4), (2, 1), (1, 0), (1, 1), False, (0, 0), 2),
    "aten.conv1d": (SIGNAL, torch.randn(3, 4, 2)),
    "aten.conv2d": (IMAGE, torch.randn(3, 4, 2, 2), torch.randn(3), [2]),
    "aten.conv3d": (VOLUME, torch.randn(3, 4, 2, 2, 2)),
    "aten.conv1d.padding": (SIGNAL, torch.randn(3, 4, 2), None, [1], "same"),
    "aten.conv2d.padding": (IMAGE, torch.randn(3, 4, 3, 2), torch.randn(3), [2], "valid"),
    "aten.conv3d.padding": (VOLUME, torch.randn(3, 4, 3, 2, 1), None, [1], "same"),
    "aten.conv_transpose1d": (SIGNAL, torch.randn(4, 3, 2)),
    "aten.conv_transpose2d.input": (IMAGE, torch.randn(4, 3, 3, 3), None, [2], [1], [1]),
    "aten.conv_transpose3d.input": (VOLUME, torch.randn(4, 2, 2, 2, 2)),
    "aten.constant_pad_nd": (X, (1, 2, 0, 1), 0.5),
    "aten.pad": (X, (1, -1)),
    "aten.arange": (5,),
    "aten.arange.start": (2, 7),
    "aten.arange.start_step": (2, 17, 3),
    **{f"aten.{kind}_pool1d": (SIGNAL, (3,), (2,), (1,)) for kind in ("max", "avg")},
    **{f"aten.{kind}_pool2d": (IMAGE, (3, 2), (2, 1), (1, 0)) for kind in ("max", "avg")},
    **{f"aten.{kind}_pool3d": (VOLUME, (2, 3, 2), (1, 2, 2)) for kind in ("max", "avg")},
    **{f"aten.{fn}": (Y, 1) for fn in ("cumsum", "cumprod", "cummax", "cummin")},
    **{f"aten.{fn}": (X, (0, -1)) for fn in ("sum.dim_IntList", "mean.dim", "amax", "amin", "nansum", "nanmean")},
    **{f"aten.{fn}": (X, (0, -1)) for fn in ("any.dims", "all.dims", "count_nonzero.dim_IntList")},
    **{f"aten.{fn}": (X, 1, True) for fn in ("prod.dim_int", "max.dim", "min.dim", "argmax", "argmin")},
    **{f"aten.{fn}": (X > 0.5, 1) for fn in ("any.dim", "all.dim")},
    **{f"aten.{fn}.dim": (X, (0, 2), False) for fn in ("var", "std", "var_mean", "std_mean")},
    **{f"aten.{fn}.correction": (X, (0, 2)) for fn in ("var", "std", "var_mean", "std_mean")},
    "aten.linalg_vector_norm": (Y, 3, 1),
    "aten.linalg_norm": (Y, 1, (0, 2)),
    "aten.linalg_norm.ord_str": (A, "fro"),
    "aten.linalg_matrix_norm": (Y, -1),
    "aten.norm.ScalarOpt_dim": (Y, 1, 1),
    "aten.norm.ScalarOpt_dtype": (Y, 2, torch.float64),
    "aten.norm.ScalarOpt_dim_dtype": (Y, 2, 1, True, torch.float64),
    "aten.frobenius_norm.dim": (Y, (0, 1)),
    **{f"aten.{fn}": (Y, (1,)) for fn in ("logsumexp", "special_logsumexp")},
    "aten.adaptive_avg_pool1d": (SIGNAL, (1,)),
    **{f"aten.{fn}": (IMAGE, (1, 1)) for fn in ("adaptive_avg_pool2d", "_adaptive_avg_pool2d")},
    **{f"aten.{fn}": (VOLUME, (1, 1, 1)) for fn in ("adaptive_avg_pool3d", "_adaptive_avg_pool3d")},
    **{f"aten.{fn}": (Y, 1) for fn in ("softmax.int", "log_softmax.int", "special_softmax", "special_log_softmax")},
    **{f"aten.{fn}": (Y, 1, False) for fn in ("_softmax", "_log_softmax")},
    "aten._safe_softmax": (torch.where(X > 0.5, X, float("-inf")), 2),
    "aten.layer_norm": (Y, (3, 4), A, A),
    "aten.native_layer_norm": (Y, (4,), V, V, 1e-5),
    "aten.rms_norm": (Y, (4,), V),
    "aten._weight_norm": (Y, X[:, :1, :1], 0),
    "aten.group_norm": (IMAGE, 2, V, V),
    "aten.native_group_norm": (IMAGE, V, V, 2, 4, 30, 2, 1e-5),
    "aten.instance_norm": (IMAGE, V, V, None, None, True, 0.1, 1e-5, False),
    "aten._native_batch_norm_legit_functional": (IMAGE, V, V, V, V, True, 0.1, 1e-5),
    "aten._native_batch_norm_legit.no_stats": (IMAGE, V, V, True, 0.1, 1e-5),
    "aten.kl_div": (Y, X),
    "aten.binary_cross_entropy": (X, X, Y),
    "aten.binary_cross_entropy_with_logits": (Y, X),
    "aten.margin_ranking_loss": (X, Y, Y.sign()),
    "aten.cosine_embedding_loss": (A, Y[0], V[:3].sign()),
    "aten.triplet_margin_loss": (X, Y, X * Y),
    "aten.poisson_nll_loss": (Y, X, True, False, 1e-8, 1),
    "aten.cross_entropy_loss": (Y, torch.tensor([[0, 1, 2, 0], [2, 1, 0, -100]])),
    **{f"aten.{fn}": (Y[..., 0], torch.tensor([0, 2]), V[:3]) for fn in ("nll_loss_nd", "nll_loss")},
    "aten.flip": (X, (0, -1)),
    "aten.rot90": (X, 3, (0, 2)),
    "aten.roll": (X, (1, -6), (0, 2)),
    "aten.repeat": (A, (2, 1, 3)),
    "aten.tile": (X, (2, 3)),
    "aten.repeat_interleave.self_int": (X, 3, 1),
    "aten.pixel_shuffle": (IMAGE, 2),
    "aten.pixel_unshuffle": (IMAGE[..., :4], 2),
    "aten.channel_shuffle": (IMAGE, 2),
    "aten.meshgrid": ([V, V[:2]],),
    "aten.meshgrid.indexing": ([V, V[:2], V[1:]], "xy"),
    "aten.stack": ([X, Y], -1),
    "aten.hstack": ([X, Y],),
    "aten.vstack": ([V, V],),
    "aten.eye": (3,),
    "aten.eye.m": (2, 3),
    "aten.slice_scatter": (X, Y[:, 1:], 1, -2),
    "aten.select_scatter": (X, Y[:, 1], 1, -1),
    "aten.unfold": (X, 2, 3, 1),
    "aten.im2col": (IMAGE, (3, 2), (1, 2), (1, 0), (2, 1)),
    "aten.index_select": (X, -1, PLACES),
    "aten.embedding": (A, PLACES.reshape(1, 3) % 3, 1),
    "aten.gather": (X, 2, PLACES.expand(2, 2, 3)),
    "aten.take_along_dim": (X, PLACES.expand(2, 1, 3), 2),
    "aten.take": (X, PLACES - 4),
    "aten.index.Tensor": (X, [PLACES % 2, None, PLACES - 4]),
    "aten.one_hot": (PLACES, 5),
    **{f"aten.{kind}1d.vec": (SIGNAL, None, (1.5,)) for kind in NEAREST},
    **{f"aten.{kind}2d.vec": (IMAGE, (9, 11), None) for kind in NEAREST},
    **{f"aten.{kind}3d.vec": (VOLUME, None, (2.0, 0.7, 3.0)) for kind in NEAREST},
    "aten.nll_loss2d": (IMAGE, torch.ones(2, 6, 5, dtype=torch.int64)),
}


def arguments_of(row: str) -> tuple[Any, ...]:
    row = f"aten.{ALIASES[name]}" if (name := row.removeprefix("aten.")) in ALIASES else row
    if row in ARGUMENTS:
        return ARGUMENTS[row]
    tensors = [a for a in overload(row)._schema.arguments if str(a.type) == "Tensor"]
    return (X, Y)[: len(tensors)]


def overload(row: str) -> Any:
    return resolve_operator(row if row.count(".") == 2 else f"{row}.default")


def called(row: str, args: tuple[Any, ...]) -> tuple[Any, Any, dict[Node, torch.Tensor]]:
    """What the operator gives, what its row gives in the IR, and the values of the IR's leaves."""
    schema = overload(row)._schema.arguments
    named = {a.name: value for a, value in zip(schema, args, strict=False) if a.kwarg_only}
    args = args[: len(args) - len(named)]
    result = overload(row)(*args, **named)
    graph, values, leaves = FxGraph(), {}, {}

    def placeholder(argument: Any) -> Any:
        if isinstance(argument, list):
            return [placeholder(item) for item in argument]
        if not isinstance(argument, torch.Tensor):
            return argument
        fx = graph.placeholder(f"x{len(values)}")
        fx.meta["val"] = argument
        values[fx] = Input(fx.name, len(leaves), tuple(argument.shape), from_torch(argument.dtype), argument.stride())
        leaves[values[fx]] = argument
        return fx

    fx = graph.call_function(overload(row), tuple(placeholder(a) for a in args), named)
    fx.meta["val"] = result
    return result, translate(fx, values, PROBLEM), leaves


@pytest.mark.parametrize("row", KNOWN)
def test_a_row_gives_what_its_operator_gives(row: str) -> None:
    expected, translated, leaves = called(row, arguments_of(row))
    several = isinstance(translated, tuple)
    nodes = translated if several else (translated,)
    wanted = expected if several else (expected,)
    assert len(nodes) == len(wanted)
    for node, value in zip(nodes, wanted, strict=True):
        if node is None:
            assert value.numel() == 0
            continue
        assert row in REWORDED or not any(isinstance(n, Opaque) for n in walk((node,)))
        assert (node.shape, node.dtype) == (tuple(value.shape), from_torch(value.dtype))
        torch.testing.assert_close(evaluate([node], leaves)[node], value, equal_nan=True)


def test_every_example_belongs_to_a_row() -> None:
    assert set(ARGUMENTS) <= set(KNOWN)
