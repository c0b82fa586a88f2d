"""Smaller parts: guard bands, seeds, provenance, distributions, rows, and precision by its error."""

import ctypes
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.judge.contestant import plan_layout
from kernelwright.judge.large import _linear_hash, _weights, fingerprint, row_slices, rows_of, sliced
from kernelwright.judge.modes import rounded
from kernelwright.judge.pool import FILLS, Planner, make_pool
from kernelwright.judge.provenance import Origin, following
from kernelwright.judge.randomness import Chances, differences
from kernelwright.judge.reference import can_be_turned, open_reference, seeded
from kernelwright.judge.seeds import Seeds
from kernelwright.judge.sources import kernel_names
from kernelwright.load import Problem

CPU = torch.device("cpu")


# --- pool


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=6))
def test_tensors_in_a_pool_do_not_touch_and_bands_fill_the_rest(shapes):
    planner = Planner()
    places = [planner.place(torch.empty(shape)) for shape in shapes]
    covered = sorted([(p.offset, p.span) for p in places] + planner.bands())
    assert sum(size for _, size in covered) == planner.size
    assert all(size >= 16 << 10 for _, size in planner.bands())


def test_a_pool_gives_back_what_was_written_and_notices_writes_beside_it():
    planner = Planner()
    dense, gapped = planner.place(torch.empty(5, 7)), planner.place(torch.empty(4, 3), strides=(5, 1))
    pool = make_pool(planner, CPU)
    x, y = torch.rand(5, 7), torch.rand(4, 3)
    pool.view(dense).copy_(x)
    pool.view(gapped).copy_(y)
    assert torch.equal(pool.view(dense), x)
    assert torch.equal(pool.view(gapped), y)
    for fill in FILLS:
        pool.fill_bands(fill)
        assert pool.damaged_bands() == 0
    ctypes.memset(pool.view(dense).data_ptr() + x.numel() * 4, 0, 1)
    assert pool.damaged_bands() == 1
    pool.close()


@pytest.mark.parametrize(
    ("x", "strides"),
    [
        (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (torch.rand(6, 10)[:, ::2], (10, 2)),
        (torch.rand(6, 5).t(), (1, 5)),
        (torch.rand(6, 100)[:, ::50], (2, 1)),  # far apart
        (torch.rand(1, 5).expand(6, 5), (5, 1)),
        (torch.rand(12).unfold(0, 4, 2), (4, 1)),  # windows share places
    ],
    ids=["channels last", "every other one", "transposed", "far apart", "repeated", "windows"],
)
def test_arguments_lie_in_a_pool_as_the_problem_has_them_where_they_can_be_written(x, strides):
    planner = Planner()
    layout = plan_layout(planner, [x], 2, [], spare=False)
    pool = make_pool(planner, CPU)
    for (place,) in layout.slots:
        assert place.strides == strides
        pool.view(place).copy_(x)
        assert torch.equal(pool.view(place), x)
        assert pool.damaged_bands() == 0
    pool.close()


def test_the_first_fill_is_nan_and_the_second_a_large_number_in_every_format():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        first, second = (torch.full((dtype.itemsize,), fill, dtype=torch.uint8).view(dtype) for fill in FILLS)
        assert torch.isnan(first).all()
        assert torch.isfinite(second).all()
        assert float(second.abs()) > 1e4


# --- seeds


def test_seeds_are_repeatable_and_do_not_repeat():
    one, two = Seeds(5), Seeds(5)
    drawn = [one.draw() for _ in range(1000)]
    assert drawn == [two.draw() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(0 <= seed < 2**62 for seed in drawn)
    assert Seeds.from_entropy().root != Seeds.from_entropy().root


def test_seeded_numbers_are_those_of_torch_and_leave_the_callers_own_alone():
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(77)
        expected = torch.rand(5)
    before = torch.get_rng_state(), random.getstate()
    with seeded(77):
        assert torch.equal(torch.rand(5), expected)
        assert random.random() == random.Random(77).random()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


# --- provenance


def origin_of(compute) -> Origin:
    mode = following()
    with torch.no_grad(), mode:
        result = compute(torch.rand(8, 8))
    return mode.origin(result)


def stamped(x: torch.Tensor) -> torch.Tensor:
    ctypes.memset(x.data_ptr(), 3, x.numel() * 4)
    return x


def test_operators_alone_are_plain_and_products_are_a_vendors():
    assert origin_of(lambda x: torch.relu(x) + 1) == Origin.PLAIN
    assert origin_of(lambda x: (x @ x).sum()) == Origin.VENDOR_LIBRARY


def test_memory_written_by_no_operator_is_a_kernels():
    assert Origin.OWN_KERNEL in origin_of(lambda x: stamped(torch.empty_like(x)))
    assert Origin.OWN_KERNEL in origin_of(lambda x: stamped(torch.empty_like(x)).t().contiguous() * 2)
    assert Origin.OWN_KERNEL in origin_of(lambda x: stamped(x.clone()))


def test_a_kernel_whose_result_is_dropped_does_not_count():
    assert origin_of(lambda x: (stamped(torch.empty_like(x)), torch.relu(x))[1]) == Origin.PLAIN


@pytest.mark.skipif(not hasattr(TorchDispatchMode, "_should_skip_dynamo"), reason="this torch hides every mode")
def test_following_a_call_does_not_import_all_of_torch_compile():
    """Seconds, in a worker that only wants to know where a tensor comes from."""
    program = (
        "import sys, torch\nfrom kernelwright.judge.provenance import following\n"
        "with torch.no_grad(), following() as mode:\n    y = torch.ones(3) + 1\n"
        "assert not mode.origin(y)\nassert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_call_that_is_compiled_is_followed_all_the_same():
    import torch._dynamo

    compiled = torch.compile(lambda x: x @ x, backend="eager")
    assert origin_of(compiled) == Origin.VENDOR_LIBRARY


# --- distributions


def test_equal_distributions_agree_and_others_do_not():
    torch.manual_seed(0)
    x = torch.rand(32, 16)
    draw = lambda p: torch.stack([torch.nn.functional.dropout(x, p) for _ in range(64)])
    assert differences(draw(0.3), draw(0.3), torch.equal) == ""
    assert differences(draw(0.35), draw(0.3), torch.equal) != ""
    assert differences(x.expand(64, 32, 16), draw(0.3), torch.equal) != ""
    one_mask = torch.stack([x * (torch.rand(1) >= 0.3) / 0.7 for _ in range(64)])
    assert differences(one_mask, draw(0.3), torch.equal) != ""
    assert differences(draw(0.3) * 1.1, draw(0.3), torch.equal) != ""
    halves = torch.stack([x * (torch.rand(16, 16) >= 0.3).repeat(2, 1) / 0.7 for _ in range(64)])
    assert "share" in differences(halves, draw(0.3), torch.equal)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("shape", [(), (3,), (40, 50)])
def test_few_numbers_and_rare_events_are_no_difference(shape: tuple[int, ...], p: float):
    torch.manual_seed(0)
    x = torch.rand(*shape, 4) + 0.5
    for _ in range(30):
        one, other = (torch.stack([torch.nn.functional.dropout(x, p).sum(-1) for _ in range(64)]) for _ in range(2))
        assert differences(one, other, torch.equal) == ""


# --- rows


def test_one_number_may_decide_a_whole_call():
    torch.manual_seed(0)
    x = torch.rand(512)
    for _ in range(30):
        one, other = (x * (torch.rand(64, 1) >= 0.2) / 0.8 for _ in range(2))
        assert differences(one, other, torch.equal) == ""


def test_another_share_of_zeros_is_told():
    torch.manual_seed(0)
    fewer, usual = ((torch.rand(64, 8192) >= p).float() for p in (0.31, 0.3))
    assert "zeros" in differences(fewer, usual, torch.equal)


def test_means_that_are_rounding_throughout_are_no_difference():
    """What a norm makes has no mean in any call, whatever chance does; what is left of one depends on the kernel."""

    def normed(dtype: torch.dtype) -> torch.Tensor:
        rows = torch.nn.functional.dropout(x.expand(64, -1).to(dtype), 0.3)
        return torch.nn.functional.layer_norm(rows, (4096,)).float()

    torch.manual_seed(0)
    x = torch.rand(4096)
    assert not differences(normed(torch.float64), normed(torch.float32) + 3e-8 * torch.randn(64, 1), torch.equal)


def test_numbers_that_are_used_twice_in_a_call_are_told_wherever_they_stand():
    def masks(copy: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        halves = torch.rand(64, 4096)
        turned = [copy(row).roll(int(torch.randint(0, 4096, ()))) for row in halves]
        return (torch.cat([halves, torch.stack(turned)], 1) > 0.3).float()

    torch.manual_seed(0)
    fresh = masks(torch.rand_like)
    assert not differences(masks(torch.rand_like), fresh, torch.equal)
    assert "shifted" in differences(masks(lambda row: 1 - row), fresh, torch.equal)


def test_rows_that_do_not_touch_are_found_out():
    x = torch.rand(12, 5)
    assert rows_of(lambda args: torch.softmax(args[0], 1), (x,), 40, 200) is not None
    assert rows_of(lambda args: torch.softmax(args[0], 0), (x,), 40, 200) is None
    assert rows_of(lambda args: args[0].sum(), (x,), 40, 200) is None
    product = rows_of(lambda args: args[0] @ args[1], (x, torch.rand(5, 3)), 40, 200)
    assert product is not None
    assert product.arguments == (0,)


def test_every_row_comes_up_once_and_the_ends_come_first():
    rows = rows_of(lambda args: args[0] * 2, (torch.rand(23, 4),), 16, 80)
    assert rows is not None
    parts = list(row_slices(rows, 1))
    assert sorted(i for part in parts for i in range(part.start, part.stop)) == list(range(23))
    assert parts[0].start == 0
    assert parts[1].stop == 23
    (piece,) = sliced((torch.arange(23),), rows, parts[1])
    assert int(piece[-1]) == 22


def test_a_fingerprint_changes_with_any_byte_and_with_the_secret():
    x = torch.rand(1000)
    before = fingerprint([x], 7)
    assert fingerprint([x.clone()], 7) == before
    assert fingerprint([x], 8) != before
    x[999] += 1
    assert fingerprint([x], 7) != before


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((40, 1001), torch.float32), ((7,), torch.float16), ((5, 3), torch.bool), ((9000,), torch.float64)],
)
def test_the_fingerprint_of_a_gpu_knows_every_byte_and_every_order_wherever_the_tensor_begins(shape, dtype):
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 2 if dtype is torch.bool else 100, shape, generator=generator).to(dtype)
    weights = _weights(5, CPU)
    before = int(_linear_hash(x, weights))
    shifted = torch.cat([torch.zeros(1, dtype=dtype), x.reshape(-1)])[1:]
    assert int(_linear_hash(shifted, weights)) == before
    for at in torch.randint(0, x.numel(), (20,), generator=generator).tolist():
        other = x.clone().reshape(-1)
        other[at] = 1 - other[at].to(torch.float64)
        if not torch.equal(other, x.reshape(-1)):
            assert int(_linear_hash(other, weights)) != before
    assert int(_linear_hash(x.reshape(-1).roll(1), weights)) != before


# --- precision


@pytest.mark.parametrize(("precision", "bits"), [("tf32", 10), ("bf16", 7), ("fp16", 10)])
def test_rounding_keeps_the_bits_of_the_format(precision: str, bits: int):
    x = torch.rand(10_000) + 0.5
    error = ((rounded(x, precision) - x) / x).abs().max()
    assert 2.0 ** -(bits + 3) < float(error) <= 2.0 ** -(bits + 1)


def test_kernel_names_are_read_from_the_sources():
    source = "template <int N> __global__ void __launch_bounds__(256) tile_sum(float* x) {} __global__ void k2(int) {}"
    text = f"S = {source!r}"
    assert kernel_names(text) == {"tile_sum", "k2"}


def draws(masks: Callable[[int], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Calls of a dropout on other inputs each time: by these masks, and twice by fresh ones."""
    torch.manual_seed(0)
    inputs = torch.rand(60, 4096)
    fresh = (torch.rand(2, 60, 4096) > 0.3) / 0.7
    return inputs * torch.stack([masks(call) for call in range(60)]), inputs * fresh[0], inputs * fresh[1]


def test_masks_that_come_again_are_told_from_fresh_ones():
    def drawn(count: int) -> torch.Tensor:
        return (torch.rand(count, generator=torch.Generator().manual_seed(count)) > 0.3) / 0.7

    bank, tape = drawn(40 * 4096).view(40, 4096), drawn(60 * 4096)
    for masks, word in (
        (lambda call: tape[call * 4096 :][:4096], ""),
        (lambda call: bank[call % 40], "same random numbers"),
        (lambda call: tape[call * 1000 :][:4096], "shifted"),
    ):
        chances = Chances()
        chances.add(*draws(masks))
        assert word in chances.repeated()
        assert word or not chances.repeated()


def test_integers_that_never_change_are_turned_together_unless_their_order_may_mean_something(tmp_path: Path):
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, edges, names): return edges\n"
        "def get_inputs():\n    edges = torch.tensor([[5, 2, 9, 4, 7], [3, 1, 8, 6, 0]])\n"
        "    return [edges, torch.tensor([4, 0, 3, 1, 2])]\n"
    )
    still = open_reference(Problem("still", source, tmp_path / "still.py"), torch.device("cpu"))
    stirred = replace(still, stirred=frozenset({0, 1}))
    drawn = [stirred.draw(seed) for seed in range(20)]
    pairs = [{*zip(*edges.tolist(), names.tolist(), strict=True)} for edges, names in drawn]
    assert all(found == pairs[0] for found in pairs), "what stood beside each other still does"
    assert len({tuple(names.tolist()) for _, names in drawn}) == 4, "and never where it stood in the file"
    for kept in ([0, 3, 7, 7, 9], [1, 0, 0, 1], [True, False]):
        assert not can_be_turned(torch.tensor(kept)), kept


def test_inputs_that_never_change_can_be_stirred(tmp_path: Path):
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, y, n): return x\n"
        "def get_inputs():\n    return [torch.ones(8, 4), torch.eye(5) + 1, torch.arange(3)]\n"
    )
    still = open_reference(Problem("still", source, tmp_path / "still.py"), torch.device("cpu"))
    stirred = replace(still, stirred=frozenset({0, 1}))
    assert all(map(torch.equal, still.draw(1), still.draw(2)))
    (x, y, n), (x_again, y_again, n_again) = stirred.draw(1), stirred.draw(2)
    assert not torch.equal(x, x_again)
    assert not torch.equal(y, y_again)
    assert torch.equal(n, n_again)
    assert bool(((x > 0.98) & (x <= 1)).all()), "it stays within any range that ones were in"
    assert torch.equal(y, y.T)
    assert torch.equal(x, stirred.draw(1)[0])
