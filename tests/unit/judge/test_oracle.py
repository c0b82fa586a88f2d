"""The oracle: float64 for any model, random numbers replayed, running statistics followed."""

import math
from pathlib import Path

import pytest
import torch

from kernelwright.judge.correctness import appealed
from kernelwright.judge.criterion import Yardstick, limits_for, score
from kernelwright.judge.oracle import FEW_SHOVES, Oracle
from kernelwright.judge.reference import copied_state, open_reference
from kernelwright.load import Problem

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def oracle_for(
    body: str, inputs: str = "[torch.rand(6, 8)]", precision: str = "reference"
) -> tuple[Oracle, tuple, dict]:
    source = f"{HEAD}class Model(nn.Module):\n{body}\ndef get_inputs():\n    return {inputs}\n"
    reference = open_reference(Problem("small", source, Path("small.py")), torch.device("cpu"))
    model = reference.construct(1)
    return Oracle(reference, model, precision, draws=3), reference.draw(2), copied_state(model)


FORWARD = "    def forward(self, x):\n        return {}\n"


def test_the_truth_is_float64_and_close_to_eager():
    oracle, args, state = oracle_for(FORWARD.format("torch.softmax(x @ x.T, 1)"))
    yard = oracle.truth(state, [args], 0).calls[0][0]
    assert yard.exact.dtype is torch.float64
    assert 0 < yard.eager_rms < 1e-6
    assert torch.allclose(yard.exact, torch.softmax(args[0].double() @ args[0].double().T, 1).reshape(-1))


@pytest.mark.parametrize(
    "expression",
    ["x.float().exp()", "x * torch.ones(8)", "x.to(torch.float32) + torch.full((8,), 0.1)", "F.pad(x, (1, 1))"],
)
def test_a_forward_that_insists_on_float32_is_still_widened(expression: str):
    oracle, args, state = oracle_for(FORWARD.format(expression))
    yard = oracle.truth(state, [args], 0).calls[0][0]
    assert yard.exact.dtype is torch.float64
    assert yard.eager_rms < 1e-6


def test_dropout_is_replayed_with_the_same_mask():
    oracle, args, state = oracle_for(FORWARD.format("F.dropout(x, 0.5) * 3"))
    oracle.random = True
    yard = oracle.truth(state, [args], 7).calls[0][0]
    assert torch.equal(yard.exact == 0, yard.eager == 0)
    assert yard.eager_rms < 1e-6


@pytest.mark.parametrize("inplace", [False, True])
def test_random_slopes_are_replayed_on_what_they_are_slopes_of(inplace: bool):
    """As if the whole result had been drawn, it would not move with the inputs, and nobody else's would be right."""
    lines = (
        "def forward(self, x):",
        "    y = x @ x.T - 2",
        f"    return F.rrelu(y, training=True, inplace={inplace}), y",
    )
    oracle, args, state = oracle_for("".join(f"    {line}\n" for line in lines))
    oracle.random = True
    result, y = oracle.truth(state, [args], 7).calls[0]
    assert torch.allclose(result.exact, result.eager.double(), rtol=1e-4)
    assert 0 < result.eager_rms < 1e-6
    assert result.spread is not None
    assert float(result.spread.min()) > 0
    wide = args[0].double()
    assert torch.equal(y.exact, result.exact if inplace else (wide @ wide.T - 2).reshape(-1))


def test_numbers_that_a_forward_draws_are_the_same_in_every_precision():
    body = "    def __init__(self):\n        super().__init__()\n        self.cell = nn.Linear(8, 1)\n"
    oracle, args, state = oracle_for(body + FORWARD.format("self.cell(torch.randn(6, 8).add_(x))"))
    oracle.random = True
    yard = oracle.truth(state, [args], 7).calls[0][0]
    assert yard.exact.dtype is torch.float64
    assert 0 < yard.eager_rms < 1e-6


def test_what_calls_leave_behind_is_known_without_their_outputs():
    body = "    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(8)\n"
    oracle, args, state = oracle_for(body + FORWARD.format("self.norm(x)"))
    left = oracle.state_after(state, [args, args])
    expected = oracle.truth(state, [args, args], 0).state
    assert left["norm.running_var"].dtype is torch.float64
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(left[name].reshape(-1), expected[name].exact)


def test_running_statistics_are_followed_over_calls():
    body = "    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(8)\n"
    oracle, args, state = oracle_for(body + FORWARD.format("self.norm(x)"))
    truth = oracle.truth(state, [args, args], 0)
    assert truth.changed == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert int(truth.state["norm.num_batches_tracked"].eager[0]) == 2
    again = oracle.truth(state, [args, args], 0)
    assert torch.equal(again.state["norm.running_mean"].eager, truth.state["norm.running_mean"].eager)


def test_a_forward_that_writes_into_its_input_spoils_nothing():
    oracle, args, state = oracle_for(FORWARD.format("x.mul_(2)"))
    before = args[0].clone()
    oracle.truth(state, [args], 0)
    assert torch.equal(args[0], before)


def test_cancellation_shows_in_the_spread():
    oracle, args, state = oracle_for(FORWARD.format("(x + 1000) - (x.flip(0) + 1000)"))
    yard = oracle.truth(state, [args], 0).calls[0][0]
    assert yard.spread is not None
    assert 0 < float(yard.spread.mean()) < 1e-6


@pytest.mark.parametrize("shoves", [0, FEW_SHOVES])
def test_in_float64_the_yardstick_is_what_rounding_does(shoves: int):
    """The oracle is eager there: had the moves no size, one rounding of an intermediate sum would be an error where the
    answer is small."""
    inputs = "[torch.rand(6, 8, dtype=torch.float64)]"
    oracle, args, state = oracle_for(FORWARD.format("x - x.mean(1, keepdim=True)"), inputs)
    yard = oracle.truth(state, [args], 0, shoves=shoves).calls[0][0]
    reordered = args[0] - args[0].flip(1).cumsum(1)[:, -1:] / 8
    assert yard.spread is not None
    assert 1e-19 < float(yard.spread.min()) < float(yard.spread.max()) < 1e-15
    assert score(reordered, yard).within(limits_for(torch.float64))
    assert not score(reordered + 1e-13, yard).within_loose(limits_for(torch.float64))


def test_a_scalar_that_eager_gets_right_by_luck_still_has_a_yardstick():
    oracle, args, state = oracle_for(FORWARD.format("x.mean()"), "[torch.rand(64, 128)]")
    assert oracle.truth(state, [args], 0).calls[0][0].eager_rms > 1e-9


def test_an_allowed_precision_counts_only_where_there_is_a_contraction():
    with_matmul, args, state = oracle_for(FORWARD.format("x @ x.T"), precision="tf32")
    without, args2, state2 = oracle_for(FORWARD.format("x * 2"), precision="tf32")
    assert with_matmul.truth(state, [args], 0).calls[0][0].allowance_rms > 1e-5
    assert without.truth(state2, [args2], 0).calls[0][0].allowance_rms == 0


def test_indices_are_settled_unless_rounding_decides_them():
    oracle, _, state = oracle_for(FORWARD.format("x.argmax(1)"))
    clear, tied = torch.rand(6, 8), torch.ones(6, 8)
    assert bool(oracle.truth(state, [(clear,)], 0).calls[0][0].settled.all())
    assert not bool(oracle.truth(state, [(tied,)], 0).calls[0][0].settled.all())


def test_before_a_failure_counts_a_lone_tie_is_found():
    """Of two equal elements either may be named, and none far from them: in each of many calls."""
    oracle, _, state = oracle_for(FORWARD.format("x.max(1)"))
    torch.manual_seed(3)
    for _ in range(200):
        x = torch.rand(6, 8) / 2
        x[3, 4] = x[3, 5] = 0.75
        values, last = x.flip(1).max(1)
        named = [values, 7 - last]
        assert int(named[1][3]) == 5
        _, scores = appealed(oracle, state, [(x,)], 0, named)
        assert [s.special for s in scores] == [False, False]
    named[1][3] = 0
    _, scores = appealed(oracle, state, [(x,)], 0, named)
    assert scores[1].special


# --- elements that jump


STEP = FORWARD.format("torch.where(x.sum(1, keepdim=True) > 4, x + 10, x)")
SORTED = FORWARD.format("torch.sort(torch.tanh(x), 1)[1].float() / 100 + torch.sort(torch.tanh(x), 1)[0]")


def thorough(body: str, inputs: str) -> tuple[Yardstick, torch.Tensor]:
    oracle, args, state = oracle_for(body, inputs)
    return oracle.truth(state, [args], 0, shoves=FEW_SHOVES).calls[0][0], args[0]


def right(yard: Yardstick, candidate: torch.Tensor) -> bool:
    return score(candidate, yard).within_loose(limits_for(yard.dtype))


def test_a_smooth_model_has_no_jumps():
    for expression in ("torch.softmax(x, 1)", "torch.relu(x - 0.5)", "x.max(1).values", "(x @ x.T).exp()"):
        yard, _ = thorough(FORWARD.format(expression), "[torch.rand(64, 64)]")
        assert yard.jumps.low is None, expression


def test_near_ties_may_swap_and_nothing_else_may():
    torch.manual_seed(0)
    yard, x = thorough(SORTED, "[torch.randn(16, 4096)]")
    assert yard.jumps.low is not None
    free = yard.jumps.low != yard.jumps.high
    assert 0 < float(free.double().mean()) < 0.2
    assert right(yard, yard.eager)
    other = torch.sort(torch.expm1(2 * x) / (torch.expm1(2 * x) + 2), 1)  # tanh, rounded differently
    assert bool((other[1].float() != torch.sort(torch.tanh(x), 1)[1].float()).any())
    assert right(yard, other[1].float() / 100 + torch.sort(torch.tanh(x), 1)[0])
    wrong = yard.eager.clone()
    wrong[torch.nonzero(~free)[17]] += 0.01
    assert not right(yard, wrong)


def test_an_element_that_jumps_lies_between_the_answers_that_were_seen():
    yard, _ = thorough(STEP, "[torch.full((6, 8), 0.5)]")  # every row's sum is the threshold itself
    assert bool((yard.jumps.low != yard.jumps.high).all())
    for value, passes in ((0.5, True), (10.5, True), (11.5, False), (-0.5, False), (math.nan, False)):
        assert right(yard, torch.full((6, 8), value)) is passes, value


def test_a_jump_of_eagers_own_does_not_loosen_the_yardstick_elsewhere():
    body = FORWARD.format("torch.where(x.float() * 3 > 0.3, x + 1000, x)")
    torch.manual_seed(1)
    oracle, (x,), state = oracle_for(body, "[torch.rand(64, 64)]")
    x[5, 5] = 0.1  # in float32 three times this is more than 0.3, in float64 less
    x[5, 6] = torch.nextafter(torch.tensor(0.1), torch.tensor(0.0))
    yard = oracle.truth(state, [(x,)], 0).calls[0][0]
    wrong = yard.eager.clone()
    wrong[0] *= 1.001
    assert yard.eager_rms < 1e-3
    assert not right(yard, wrong)


def test_indices_are_free_in_no_more_places_than_rounding_moves():
    torch.manual_seed(2)
    yard, _ = thorough(FORWARD.format("torch.sort(x, 1)[1]"), "[torch.rand(4, 60_000)]")
    assert not bool(yard.settled.all())
    assert right(yard, yard.eager)
    garbage = torch.where(yard.settled, yard.eager, 0)
    assert not right(yard, garbage) or int((~yard.settled).sum()) <= 2 * yard.jumps.flips + 4


def test_a_precision_that_is_allowed_may_show_in_running_statistics_too():
    body = "    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(6)\n"
    body += FORWARD.format("self.norm(x @ x.T)")
    yards = {}
    for precision in ("ieee", "tf32"):
        oracle, args, state = oracle_for(body, precision=precision)
        yards[precision] = oracle.truth(state, [args], 0).state["norm.running_mean"]
    assert yards["tf32"].eager_rms > 20 * yards["ieee"].eager_rms
    rounded = oracle.rounded(state, [args], 0, "tf32").state["norm.running_mean"]
    assert score(rounded, yards["tf32"]).within(limits_for(torch.float32))
    assert not score(rounded, yards["ieee"]).within(limits_for(torch.float32))


def test_a_buffer_that_eager_happens_to_leave_as_it_was_is_still_written():
    """The mean of x - x * (1 + 1e-9) is zero in float32, and is not in float64."""
    body = "    def __init__(self):\n        super().__init__()\n"
    body += (
        "        self.register_buffer('mean', torch.zeros(8))\n        self.register_buffer('fixed', torch.ones(8))\n"
    )
    body += "    def forward(self, x):\n        self.mean.copy_((x - x * (1 + 1e-9)).mean(0))\n"
    body += "        return x + self.fixed\n"
    oracle, args, state = oracle_for(body)
    truth = oracle.truth(state, [args], 0)
    assert truth.changed == {"mean"}
    assert bool((truth.eager.state["mean"] == 0).all())
