"""Running values from a model file to results: as PyTorch has them, special values, nothing and single elements too."""

from __future__ import annotations

import pytest
import torch

from tests.end_to_end.conftest import Emit
from tests.end_to_end.emitting import Emitted, model_source

WAYS = {
    "forwards": "x.cumsum({d})",
    "products": "x.cumprod({d})",
    "from the other end": "x.flip({d}).cumsum({d}).flip({d})",
    "exclusive": "torch.cat((torch.zeros_like(x.select({d}, 0).unsqueeze({d})), "
    "x.narrow({d}, 0, x.size({d}) - 1).cumsum({d})), {d})",
    "masked": "torch.cumsum(x * (x > 0), {d})",
    "largest so far": "(*x.cummax({d}),)",
    "smallest so far": "(*x.cummin({d}),)",
    "between others": "torch.relu((x * 2).cumsum({d}) - 1) * x",
    "one of another": "torch.sigmoid(x.cumsum({d})).cumsum({d})",
    "both ways": "x.cumsum({d}) + x.flip({d}).cumsum({d}).flip({d})",
    "beside a border": "F.pad(x.cumsum({d}), (1, 0)) if {d} == 1 else F.pad(x.cumsum({d}), (0, 0, 1, 0))",
}
SHAPES = {"rows": (5, 70), "one element": (3, 1), "nothing": (0, 4), "no places": (4, 0), "long": (2, 1040)}


def special(shape: tuple[int, ...], kind: str) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    if kind == "nan" and x.numel() > 60:
        x[1, 30], x[0, 3], x[-1, 0], x[-1, -1] = float("nan"), float("inf"), float("-inf"), float("inf")
    if kind == "zeros":
        x = torch.where(x > 0.5, x, -0.0)
    return x


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_way_gives_what_pytorch_gives(emit_once: Emit, shape: tuple[int, ...], axis: int) -> None:
    named = {name: text.format(d=axis) for name, text in WAYS.items() if shape[axis] > 0 or name not in ("exclusive",)}
    named = {name: text for name, text in named.items() if 0 not in shape or "cumm" not in text}
    lines = [f"return ({', '.join(named.values())},)"]
    emitted = emit_once(model_source(*lines, inputs=f"torch.randn{shape}"))
    for kind in ("usual", "nan", "zeros"):
        agree(emitted, special(shape, kind))


def agree(emitted: Emitted, x: torch.Tensor) -> None:
    original, new = emitted.pair()
    with torch.no_grad():
        expected, got, again = original(x), new(x), new(x)
    flat = [list(torch.utils._pytree.tree_leaves(value)) for value in (expected, got, again)]
    for theirs, ours, second in zip(*flat, strict=True):
        assert ours.dtype is theirs.dtype
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-6, equal_nan=True)
        assert ours.numpy().tobytes() == second.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "bool"])
def test_every_dtype_adds_up_as_in_pytorch(emit_once: Emit, dtype: str) -> None:
    inputs = f"(torch.rand(6, 50) * 3).to(torch.{dtype})"
    emitted = emit_once(model_source("return x.cumsum(1), x.cumsum(0), x.cummax(1)[0]", inputs=inputs))
    assert emitted.check()


def test_a_scan_with_its_neighbours_leaves_nothing_to_pytorch(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source("return torch.relu((x * 2).flip(1).cumsum(1).flip(1) - 1)", inputs="torch.randn(8, 96)")
    )
    assert emitted.check()
    assert emitted.text.count("kw::scan_along<") == 1
    forward = emitted.text[emitted.text.index("class ModelNew") :]
    assert "torch.cumsum" not in forward
    assert "torch.flip" not in forward


def test_a_long_row_is_shared_by_the_threads_and_gives_the_same_bits_whatever_their_number(emit_once: Emit) -> None:
    emitted = emit_once(model_source("return x.cumsum(1)", inputs="torch.randn(1, 400_000)"))
    assert "workspace" in emitted.text
    _, new = emitted.pair()
    (x,) = emitted.inputs()
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(new(x).numpy().tobytes())
    torch.set_num_threads(threads)
    assert len(set(results)) == 1
    assert emitted.check()
