"""Whole models: state, aliases, randomness, constants and structure survive capture; what has no graph is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelwright.capture import capture
from kernelwright.errors import BadProblem, UnsupportedProblem
from kernelwright.ir.nodes import Fixed, Group, Input, Looks, Map, Opaque, Param, Table, Updated
from kernelwright.load import load
from tests.unit.capture.eager import Captured, captured, write_problem


def model(folder: Path, forward: str, *, init: str = "pass", inputs: str = "torch.randn(3, 4)") -> Captured:
    """A model by the bodies of its methods."""
    return captured(folder, model_source(forward, init, inputs))


def model_source(forward: str, init: str, inputs: str) -> str:
    indent = "\n        "
    count = len(eval(f"[{inputs}]", {"torch": torch}))
    arguments = ", ".join("xyzw"[:count])
    return (
        "class Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__(){indent}{indent.join(init.splitlines())}\n"
        f"    def forward(self, {arguments}):{indent}{indent.join(forward.splitlines())}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


def test_a_buffer_that_forward_changes_is_an_update(tmp_path: Path) -> None:
    found = model(
        tmp_path,
        "self.total.add_(x.sum(0))\nself.calls += 1\nreturn x * self.total",
        init="self.register_buffer('total', torch.zeros(4))\nself.register_buffer('calls', torch.tensor(0))",
    )
    assert [(u.target.path, str(u.value.dtype)) for u in found.graph.updates if isinstance(u.target, Param)] == [
        ("total", "float32"),
        ("calls", "int64"),
    ]
    assert found.differences() == []


def test_an_input_that_forward_changes_is_an_update(tmp_path: Path) -> None:
    found = model(tmp_path, "x.mul_(2)\nx[0] = y\nreturn x + y", inputs="torch.ones(3, 4), torch.randn(4)")
    (update,) = found.graph.updates
    assert isinstance(update.target, Input)
    assert update.target.name == "x"
    assert found.differences() == []


def test_what_is_written_through_a_view_reaches_what_it_is_a_view_of(tmp_path: Path) -> None:
    found = model(tmp_path, "y = x.clone()\nv = y.view(-1)\nv[2:5].fill_(7)\ny[:, 1] += 1\nv.relu_()\nreturn y, v")
    assert found.differences() == []
    assert found.graph.updates == ()


def test_operators_in_place_are_ordinary_functions_of_the_graph(tmp_path: Path) -> None:
    found = model(tmp_path, "y = x + 1\ny.mul_(3).clamp_(-1, 1)\nF.relu(y, inplace=True)\ny /= 2\nreturn y")
    assert found.targets == []
    assert found.differences() == []


def test_batch_norm_in_train_mode_updates_its_statistics(tmp_path: Path) -> None:
    found = model(tmp_path, "return F.relu(self.norm(x))", init="self.norm = nn.BatchNorm1d(4)")
    targets = {u.target.path for u in found.graph.updates if isinstance(u.target, Param)}
    assert targets == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert found.differences() == []


def test_batch_norm_in_eval_mode_is_pointwise(tmp_path: Path) -> None:
    init = (
        "self.norm = nn.BatchNorm2d(4).eval()\nself.norm.running_var.uniform_(1, 2)\nself.norm.running_mean.normal_()"
    )
    found = model(tmp_path, "return self.norm(x)", init=init, inputs="torch.randn(2, 4, 3, 3)")
    assert found.targets == []
    assert found.graph.updates == ()
    for eager, ours in zip(found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager)


def test_a_dropout_that_drops_nothing_may_be_unused(tmp_path: Path) -> None:
    found = model(tmp_path, "F.dropout(x, 0.5, False)\nself.drop(x)\nreturn x * 2", init="self.drop = nn.Dropout(0.0)")
    assert found.differences() == []


def test_dropout_is_a_random_call_that_pytorch_runs(tmp_path: Path) -> None:
    found = model(tmp_path, "return F.dropout(x, 0.5) + self.drop(x)", init="self.drop = nn.Dropout(0.5)")
    draws = [n for n in found.graph.nodes() if isinstance(n, Opaque)]
    assert [n.is_random for n in draws] == [True, True]
    assert draws[0].serial < draws[1].serial
    torch.manual_seed(11)
    eager = found.eager()
    torch.manual_seed(11)
    assert torch.equal(found.interpreted()[0], eager[0])


def test_random_tensors_made_in_forward_are_drawn_in_order(tmp_path: Path) -> None:
    found = model(tmp_path, "a = torch.rand(3, 4)\nb = torch.randn_like(x)\nreturn x * b, a")
    torch.manual_seed(11)
    eager = found.eager()
    torch.manual_seed(11)
    for one, other in zip(eager, found.interpreted(), strict=True):
        assert torch.equal(one, other)


def test_nested_results_keep_their_structure(tmp_path: Path) -> None:
    found = model(tmp_path, "return x + 1, [x * 2, (x - 1, None)], 3, 'text'")
    assert found.graph.structure == Group(
        "tuple", (0, Group("list", (1, Group("tuple", (2, Fixed(None))))), Fixed(3), Fixed("text"))
    )
    assert found.differences() == []


def test_a_single_tensor_and_a_tuple_of_one_are_told_apart(tmp_path: Path) -> None:
    assert model(tmp_path, "return x + 1").graph.structure == 0
    assert model(tmp_path, "return (x + 1,)").graph.structure == Group("tuple", (0,))


def test_a_tensor_returned_twice_is_one_output_in_two_places(tmp_path: Path) -> None:
    found = model(tmp_path, "y = x + 1\nreturn y, y")
    assert found.graph.structure == Group("tuple", (0, 0))


def test_equal_tensors_that_are_not_one_are_outputs_of_their_own(tmp_path: Path) -> None:
    found = model(tmp_path, "y = x + 1\nreturn y, x + 1, y.clone()")
    assert len(set(found.graph.outputs)) == 3
    assert found.differences() == []


def test_an_argument_that_is_changed_and_returned_is_returned_itself(tmp_path: Path) -> None:
    graph = model(tmp_path, "x.mul_(2)\nreturn x, x + 1").graph
    assert graph.structure == Group("tuple", (Updated(graph.inputs[0]), 0))


def test_a_result_with_named_fields_keeps_its_type(tmp_path: Path) -> None:
    assert model(tmp_path, "return torch.max(x, dim=1)").graph.structure == Group("torch.return_types.max", (0, 1))


def test_complex_numbers_are_arguments_of_calls_of_pytorch(tmp_path: Path) -> None:
    found = model(tmp_path, "return (torch.complex(x, x) * (1 + 2j)).real * 2")
    assert found.differences() == []


def test_the_data_of_a_parameter_is_the_parameter(tmp_path: Path) -> None:
    init = "self.w = nn.Parameter(torch.randn(4))"
    found = model(tmp_path, "self.w.data.clamp_(-0.5, 0.5)\nreturn x * self.w.data", init=init)
    assert [u.target.path for u in found.graph.updates if isinstance(u.target, Param)] == ["w"]
    assert found.differences() == []


def test_python_scalars_among_the_inputs_are_assumed(tmp_path: Path) -> None:
    found = model(tmp_path, "return x * y + w if z else x", inputs="torch.randn(3), 2.5, True, 7")
    assert [(s.name, s.position, s.value) for s in found.graph.scalars] == [("y", 1, 2.5), ("z", 2, True), ("w", 3, 7)]
    assert [i.name for i in found.graph.inputs] == ["x"]
    assert found.differences() == []


def test_tensors_after_a_scalar_keep_their_positions(tmp_path: Path) -> None:
    found = model(tmp_path, "return x * y + z", inputs="torch.randn(3), 2, torch.randn(3)")
    assert [(i.name, i.position) for i in found.graph.inputs] == [("x", 0), ("z", 2)]
    assert found.differences() == []


def test_an_input_that_is_not_used_is_still_an_input(tmp_path: Path) -> None:
    found = model(tmp_path, "return x + 1", inputs="torch.randn(3), torch.randn(2)")
    assert [i.name for i in found.graph.inputs] == ["x", "y"]


def test_constants_written_in_forward_are_tables(tmp_path: Path) -> None:
    found = model(tmp_path, "return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(0.5)")
    assert {n.values for n in found.graph.nodes() if isinstance(n, Table)} == {(1.0, 2.0, 3.0, 4.0), (0.5,)}
    assert found.differences() == []


def test_a_large_constant_written_in_forward_is_refused_with_a_cure(tmp_path: Path) -> None:
    source = model_source("return x + torch.tensor([0.5] * 5000)", "pass", "torch.randn(5000)")
    with pytest.raises(UnsupportedProblem, match="constant tensor of 5000 elements") as caught:
        capture(load(write_problem(tmp_path, source)))
    assert caught.value.cure == "Register it as a buffer in __init__."


def test_a_plain_tensor_attribute_is_read_by_its_path(tmp_path: Path) -> None:
    found = model(tmp_path, "return x * self.scale", init="self.scale = torch.full((4,), 3.0)")
    assert [n.path for n in found.graph.nodes() if isinstance(n, Param)] == ["scale"]
    assert found.differences() == []


def test_a_plain_tensor_attribute_that_forward_changes_is_an_update_or_refused(tmp_path: Path) -> None:
    source = model_source("self.seen.add_(1)\nreturn x * self.seen", "self.seen = torch.zeros(4)", "torch.randn(3, 4)")
    try:
        found = captured(tmp_path, source)
    except UnsupportedProblem:
        return
    assert [u.target.path for u in found.graph.updates if isinstance(u.target, Param)] == ["seen"]
    assert found.differences() == []


def test_shared_parameters_are_read_by_one_path(tmp_path: Path) -> None:
    init = "self.a = nn.Linear(4, 4, bias=False)\nself.b = nn.Linear(4, 4, bias=False)\nself.b.weight = self.a.weight"
    found = model(tmp_path, "return self.b(self.a(x))", init=init)
    for eager, ours in zip(found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager)


def test_an_output_that_is_an_input_or_a_view_of_one_is_so_in_the_graph(tmp_path: Path) -> None:
    found = model(tmp_path, "return x, x.t(), x.clone()")
    assert isinstance(found.graph.outputs[0], Input)
    assert type(found.graph.outputs[1]).__name__ == "Permute"
    assert isinstance(found.graph.outputs[2], Map)


def test_masks_and_indices_keep_their_dtypes(tmp_path: Path) -> None:
    forward = "m = x > 0\nreturn m, m & (x < 1), m.sum(), x.argmax(1), torch.arange(4) * 2, torch.where(m, x, 0.0)"
    found = model(tmp_path, forward)
    assert [str(n.dtype) for n in found.graph.outputs] == ["bool", "bool", "int64", "int64", "int64", "float32"]
    assert found.differences() == []


def test_an_operator_we_do_not_know_is_left_whole(tmp_path: Path) -> None:
    init = "self.norm = nn.LayerNorm(4)\nself.rnn = nn.LSTM(4, 5, batch_first=True)\nself.pool = nn.MaxPool1d(2)"
    found = model(
        tmp_path,
        "y, (h, c) = self.rnn(self.norm(x))\nreturn self.pool(y), h, c",
        init=init,
        inputs="torch.randn(2, 6, 4)",
    )
    assert found.targets == ["aten.lstm.input"]
    assert found.differences() == []


def test_a_half_precision_model_rounds_where_pytorch_rounds(tmp_path: Path) -> None:
    forward = "y = F.silu(x * 0.3 + 0.7)\nreturn y / 3 * torch.tanh(y), (y.float() * 1.1).half()"
    found = model(tmp_path, forward, inputs="torch.linspace(-5, 5, 64).half()")
    assert found.differences() == []
    assert found.targets == []


def test_attention_is_captured_in_contractions_and_views(tmp_path: Path) -> None:
    forward = (
        "q, k, v = self.qkv(x).chunk(3, -1)\n"
        "q, k, v = (t.view(2, 5, 2, 4).transpose(1, 2) for t in (q, k, v))\n"
        "att = (q @ k.transpose(-2, -1)) * 0.5\n"
        "att = att.masked_fill(self.mask[:5, :5] == 0, float('-inf')).softmax(-1)\n"
        "return (att @ v).transpose(1, 2).contiguous().view(2, 5, 8)"
    )
    init = "self.qkv = nn.Linear(8, 24)\nself.register_buffer('mask', torch.tril(torch.ones(9, 9)))"
    found = model(tmp_path, forward, init=init, inputs="torch.randn(2, 5, 8)")
    for eager, ours in zip(found.eager(), found.interpreted(), strict=True):
        torch.testing.assert_close(ours, eager)
    assert found.targets == []


def test_settings_that_the_graph_has_baked_in_are_recorded(tmp_path: Path) -> None:
    found = model(
        tmp_path, "return x * self.factor if self.active else x", init="self.factor = 2.0\nself.active = True"
    )
    assert {(s.path, s.name, s.value) for s in found.graph.settings} == {("", "factor", 2.0), ("", "active", True)}
    assert found.differences() == []


def test_attributes_that_are_no_plain_values_are_recorded_by_their_looks(tmp_path: Path) -> None:
    init = "self.act = F.relu\nself._scale = 2.0\nself.size = torch.Size([3])\nself.kept = [torch.ones(1)]"
    found = model(tmp_path, "return self.act(x) * self._scale", init=init)
    expected = {("act", Looks("relu")), ("_scale", 2.0), ("size", Looks("torch.Size([3])"))}
    assert {(s.name, s.value) for s in found.graph.settings} == expected


REFUSED = (
    ("return x if x.sum() > 0 else -x", "torch.randn(3)", "decides by the values"),
    ("return x[:int(x.abs().sum())]", "torch.randn(3)", "decides by the values"),
    ("return torch.combinations(x)", "torch.randn(3)", "decides by the values"),
    ("return x[x > 0] * 2", "torch.randn(3)", "size depends on values"),
    ("return torch.unique(x)", "torch.randn(3)", "size depends on values"),
    ("return x.to(torch.float8_e4m3fn).float()", "torch.randn(3)", "float8_e4m3fn"),
    ("return x / x.max().item()", "torch.randn(3)", "takes a Python number out of a tensor"),
    ("return [x * k for k in x.tolist()]", "torch.randn(3)", "takes a Python number out of a tensor"),
    ("return torch.from_numpy(x.numpy() * 2)", "torch.randn(3)", "cannot trace"),
    ("return {'out': x + 1}", "torch.randn(3)", "returns a dict"),
    ("return x[0] + 1", "[torch.randn(3)]", "is a list"),
    ("return x['a'] + 1", "{'a': torch.randn(3)}", "is a dict"),
    ("return torch.ones(3) * x", "1 + 2j", "is a complex"),
    ("return torch.ones(3, dtype=x)", "torch.float64", "is a dtype"),
    ("return x @ torch.ones(3, 2)", "torch.eye(3).to_sparse()", "of layout torch.sparse_coo"),
    ("return x[x > 0]", "torch.randn(3)", "shape"),
    ("return torch.histogramdd(x, [3, 3])[0] + 1", "torch.randn(5, 2)", "lists within a tuple"),
)


@pytest.mark.parametrize(("forward", "inputs", "reason"), REFUSED, ids=[forward for forward, *_ in REFUSED])
def test_what_cannot_be_captured_is_refused_in_one_sentence(
    tmp_path: Path, forward: str, inputs: str, reason: str
) -> None:
    path = write_problem(tmp_path, model_source(forward, "pass", inputs))
    with pytest.raises(UnsupportedProblem, match=reason) as caught:
        capture(load(path))
    assert caught.value.exit_code == 5
    assert caught.value.where.split(".py:")[0].removesuffix(".py") == str(path).removesuffix(".py")
    assert "\n" not in caught.value.what
    assert caught.value.what.endswith(".")


# What happens beside the tensors happens once, while the graph is made: a file made of that graph would be wrong.
IMPURE = (
    ("self.calls += 1\nreturn x * self.calls", "self.calls = 0", "changes self.calls"),
    ("self.seen.append(1)\nreturn x * len(self.seen)", "self.seen = []", "changes self.seen"),
    ("self.last = x * 2\nreturn self.last", "self.last = None", "changes self.last"),
    ("Model.count += 1\nreturn x * Model.count", "Model.count = 0", "changes Model.count"),
    ("self.act.calls = 3\nreturn self.act(x)", "self.act = nn.ReLU()", "changes self.act.calls"),
    ("global N\nN = globals().get('N', 0) + 1\nreturn x * N", "pass", "changes N"),
    ("torch.manual_seed(1)\nreturn x * torch.rand(4)", "pass", "sets the seed"),
    ("with torch.random.fork_rng():\n    torch.manual_seed(1)\n    return x * torch.rand(4)", "pass", "sets the seed"),
    ("import random\nreturn x * random.random()", "pass", "random numbers of Python"),
    ("import numpy\nreturn x * numpy.random.rand()", "pass", "random numbers of NumPy"),
    ("return self.layers[0](x)", "self.layers = [nn.Linear(4, 4)]", "random tensor of shape"),
    ("return x * self.weights['a']", "self.weights = {'a': torch.randn(4)}", "random tensor of shape"),
    ("return self.l(x)", "self.l = nn.Linear(4, 4)\nself.l.register_forward_hook(print)", "part l has a forward hook"),
    ("return x * 2", "self.register_forward_pre_hook(print)", "the model has a forward hook"),
    ("return x * 2", "Model.__call__ = lambda self, x: self.forward(x) + 1", "__call__ of its own"),
    ("return self.l(x)", "self.l = torch.jit.script(nn.ReLU())", "part l is a torch.jit module"),
    ("return self.l(x)", "self.l = nn.LazyLinear(4)", "learns its sizes in its first call"),
    ("noise = torch.rand(3) * 2\nreturn x + torch.rand(4)", "pass", "random numbers that it does not use"),
)


@pytest.mark.parametrize(("forward", "init", "reason"), IMPURE, ids=[reason for *_, reason in IMPURE])
def test_what_a_graph_would_do_once_is_refused(tmp_path: Path, forward: str, init: str, reason: str) -> None:
    path = write_problem(tmp_path, model_source(forward, init, "torch.randn(3, 4)"))
    with pytest.raises(UnsupportedProblem, match=reason) as caught:
        capture(load(path))
    assert caught.value.cure


def test_a_default_dtype_that_the_file_sets_is_the_graphs_and_nobody_elses(tmp_path: Path) -> None:
    source = model_source("return x.long() / 2 + torch.ones(3)", "pass", "torch.randn(3)")
    path = write_problem(tmp_path, f"torch.set_default_dtype(torch.float64)\n{source}")
    graph = capture(load(path))
    assert graph.default_dtype.name == graph.outputs[0].dtype.name == "float64"
    assert torch.get_default_dtype() is torch.float32


def test_a_list_of_one_tensor_is_that_tensor(tmp_path: Path) -> None:
    found = model(tmp_path, "(y,) = torch.unsafe_split(x, 4, 1)\nreturn y * 2")
    assert found.targets == ["aten.unsafe_split.Tensor"]
    assert found.differences() == []


def test_a_constant_of_the_file_is_a_table(tmp_path: Path) -> None:
    source = "MEAN = torch.tensor([1.0, 2.0, 3.0, 4.0])\n" + model_source(
        "return x - MEAN", "pass", "torch.randn(3, 4)"
    )
    assert any(isinstance(n, Table) for n in captured(tmp_path, source).graph.nodes())


def test_a_forward_that_fails_by_itself_is_the_files_fault(tmp_path: Path) -> None:
    path = write_problem(tmp_path, model_source("return x @ x", "pass", "torch.randn(3, 4)"))
    with pytest.raises(BadProblem, match=r"problem\.py:\d+: forward\(\) fails on what get_inputs\(\) gives") as caught:
        capture(load(path))
    assert caught.value.exit_code == 2


def test_the_same_file_gives_the_same_graph_twice(tmp_path: Path) -> None:
    path = write_problem(
        tmp_path, model_source("return F.dropout(x) * torch.tensor([1.0, 2.0])", "pass", "torch.randn(2)")
    )
    first, second = (capture(load(path)) for _ in range(2))
    assert first == second
