"""An emitted file answers what it was not planned for with the original: the right answer, and never a crash."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.end_to_end.conftest import Emit
from tests.end_to_end.emitting import Emitted, close, model_source

# One of each: a contraction with its bias, a library module with a setting, a parameter, a plain attribute.
SOURCE = """\
class Model(nn.Module):
    def __init__(self, features, divisor):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.act = nn.LeakyReLU(0.1)
        self.scale = nn.Parameter(torch.rand(features) + 0.5)
        self.divisor = divisor

    def forward(self, x):
        return self.act(self.linear(x) * self.scale / self.divisor) + 1.0


def get_inputs():
    return [torch.randn(6, 16)]


def get_init_inputs():
    return [16, 2.0]
"""

Change = Callable[[nn.Module], object]


@pytest.fixture
def emitted(emit_once: Emit) -> Emitted:
    return emit_once(SOURCE)


def test_what_it_was_planned_for_runs_in_the_kernels(emitted: Emitted) -> None:
    assert emitted.check()


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(torch.randn(9, 16), id="another batch size"),
        pytest.param(torch.randn(0, 16), id="an empty batch"),
        pytest.param(torch.randn(2, 3, 16), id="another rank"),
        pytest.param(torch.randn(16, 6).t(), id="not contiguous"),
        pytest.param(torch.randn(1, 16).expand(6, 16), id="repeating"),
        pytest.param(torch.randn(6, 16).to_sparse(), id="sparse"),
        pytest.param(torch.view_as_complex(torch.randn(6, 16, 2)).conj().imag, id="negated by a bit"),
        pytest.param(nn.Parameter(torch.randn(9, 16)), id="a parameter of another size"),
    ],
)
def test_another_input_runs_in_the_original(emitted: Emitted, x: torch.Tensor) -> None:
    assert not emitted.check(None, x)


def test_an_input_in_the_middle_of_its_storage_runs_in_the_kernels(emitted: Emitted) -> None:
    assert emitted.check(None, torch.randn(97)[1:].view(6, 16))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_another_dtype_of_model_and_input_runs_in_the_original(emitted: Emitted, dtype: torch.dtype) -> None:
    assert not emitted.check(lambda model: model.to(dtype), torch.randn(6, 16, dtype=dtype))


def test_the_meta_device_runs_in_the_original(emitted: Emitted) -> None:
    assert not emitted.check(lambda model: model.to("meta"), torch.randn(6, 16, device="meta"))


def replaced(name: str, make: Callable[[], nn.Module]) -> Change:
    def change(model: nn.Module) -> None:
        torch.manual_seed(1)
        setattr(model, name, make())

    return change


CHANGES: dict[str, Change] = {
    "a plain attribute": lambda m: setattr(m, "divisor", 3.0),
    "an attribute's type": lambda m: setattr(m, "divisor", 2),
    "a number made a tensor": lambda m: setattr(m, "divisor", torch.full((16,), 2.0)),
    "a setting of a library module": lambda m: setattr(m.act, "negative_slope", 0.3),
    "an activation replaced": replaced("act", nn.GELU),
    "a layer replaced by one without bias": replaced("linear", lambda: nn.Linear(16, 16, bias=False)),
    "a layer replaced by several": replaced("linear", lambda: nn.Sequential(nn.Linear(16, 4), nn.Linear(4, 16))),
    "a parameter replaced by a smaller one": lambda m: setattr(m, "scale", nn.Parameter(torch.tensor([2.0]))),
    "a parameter made a buffer": lambda m: (delattr(m, "scale"), m.register_buffer("scale", torch.ones(16))),
    "a hook on a layer": lambda m: m.linear.register_forward_hook(lambda module, given, result: result + 1),
    "a hook before a layer": lambda m: m.linear.register_forward_pre_hook(lambda module, given: (given[0] * 2,)),
    "a layer's forward": lambda m: setattr(m.linear, "forward", lambda x: x * 2),
}
NEW_STATE = ("a parameter made a buffer",)


@pytest.mark.parametrize("before_the_first_call", [True, False], ids=["before the first call", "after it"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_runs_in_the_original(emitted: Emitted, change: str, before_the_first_call: bool) -> None:
    original, new = emitted.pair()
    with torch.no_grad():
        if not before_the_first_call:
            assert emitted.agree(original, new, *emitted.inputs())
        CHANGES[change](original), CHANGES[change](new)
        ran = emitted.agree(original, new, *emitted.inputs())
    assert ran == (change in NEW_STATE and before_the_first_call)


def test_new_values_of_a_parameter_are_used_at_once(emitted: Emitted) -> None:
    original, new = emitted.pair()
    with torch.no_grad():
        for value in (1.0, 2.0):
            for model in (original, new):
                model.scale.fill_(value)  # type: ignore[operator,union-attr]
                model.linear.weight = nn.Parameter(torch.full((16, 16), value))  # type: ignore[union-attr]
            assert emitted.agree(original, new, *emitted.inputs())


def test_a_hook_on_the_model_itself_runs_beside_the_kernels(emitted: Emitted) -> None:
    assert emitted.check(lambda model: model.register_forward_hook(lambda module, given, result: result + 1))


def test_gradients_flow_through_the_original(emitted: Emitted) -> None:
    original, new = emitted.pair()
    x = emitted.inputs()[0]
    assert not emitted.agree(original, new, x)
    original(x).sum().backward()
    new(x).sum().backward()
    close([p.grad for p in new.parameters()], [p.grad for p in original.parameters()])
    for model in (original, new):
        model.requires_grad_(False)
    assert emitted.agree(original, new, x)
    assert not emitted.agree(original, new, x.clone().requires_grad_())
    with torch.inference_mode():
        assert emitted.agree(original, new, x)


def test_autocast_runs_in_the_original(emitted: Emitted) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not emitted.check()


def test_tracing_sees_the_original(emitted: Emitted) -> None:
    original, new = emitted.pair()
    x = emitted.inputs()[0]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(new, x, check_trace=False)
        close(traced(x * 2), original(x * 2))


def test_transforms_run_through_the_original(emitted: Emitted) -> None:
    original, new = emitted.pair()
    x = emitted.inputs()[0]
    batch, tangent = torch.stack([x, x * 2]), torch.ones_like(x)
    with torch.no_grad():
        assert emitted.agree(original, new, x)
        close(torch.func.vmap(new)(batch), torch.func.vmap(original)(batch))
        close(torch.func.jvp(new, (x,), (tangent,)), torch.func.jvp(original, (x,), (tangent,)))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            results = [torch.autograd.forward_ad.unpack_dual(model(dual)).tangent for model in (new, original)]
        close(results[0], results[1])
        doubled = {name: value * 2 for name, value in new.state_dict().items()}
        close(torch.func.functional_call(new, doubled, (x,)), torch.func.functional_call(original, doubled, (x,)))
        assert emitted.agree(original, new, x)


def test_fake_tensors_run_in_the_original(emitted: Emitted) -> None:
    original, new = emitted.pair()
    with torch.no_grad():
        program = torch.export.export(new, tuple(emitted.inputs()), strict=False)
        close(program.module()(*emitted.inputs()), original(*emitted.inputs()))


def test_other_constructor_arguments_make_a_model_that_runs_in_the_original(emitted: Emitted) -> None:
    with torch.no_grad():
        assert not emitted.agree(*emitted.pair(8, 2.0), torch.randn(6, 8))
        assert not emitted.agree(*emitted.pair(16, 5.0), *emitted.inputs())


SIZED = """\
class Model(nn.Module):
    def __init__(self, hidden, act, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, hidden, bias=False)])
        self.layers.extend(nn.Linear(hidden, hidden, bias=False) for _ in range(depth))
        self.act = act()

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x)) * 2
        return x


def get_inputs():
    return [torch.randn(6, 16)]


def get_init_inputs():
    return [32, nn.ReLU, 2]
"""


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((8, nn.ReLU, 2), id="narrower"),
        pytest.param((64, nn.ReLU, 2), id="wider"),
        pytest.param((32, nn.ReLU, 1), id="less deep"),
        pytest.param((32, nn.ReLU, 3), id="deeper"),
        pytest.param((32, nn.Tanh, 2), id="another activation"),
    ],
)
def test_sizes_depth_and_classes_are_guarded_where_no_kernel_sees_them(
    emit_once: Emit, arguments: tuple[object, ...]
) -> None:
    emitted = emit_once(SIZED)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(*arguments), *emitted.inputs())


ODD_NAMES = model_source(
    'return self.parts["up-1"](x).relu() * self.parts["b 2"](x) + self.list[1](x)',
    init=(
        'self.parts = nn.ModuleDict({"up-1": nn.Linear(6, 6), "b 2": nn.Linear(6, 6)})',
        "self.list = nn.ModuleList([nn.ReLU(), nn.Linear(6, 6)])",
    ),
)
NUMBERED = model_source(
    'return getattr(self, "3")(self.parts["0"](x).relu() * self.scale["1"])',
    init=(
        'self.parts = nn.ModuleDict({"0": nn.Linear(6, 6)})',
        'self.scale = nn.ParameterDict({"1": torch.rand(6)})',
        'self.add_module("3", nn.LayerNorm(6))',
    ),
)
SEQUENCE = model_source(
    "return super().forward(x) * 2", init=("self.append(nn.Linear(6, 6))", "self.append(nn.LayerNorm(6))")
).replace("nn.Module", "nn.Sequential")


@pytest.mark.parametrize("source", [ODD_NAMES, NUMBERED, SEQUENCE], ids=["odd names", "numbers", "a sequence"])
def test_parts_may_be_called_what_python_cannot_read(emit_once: Emit, source: str) -> None:
    assert emit_once(source).check()


SHARED = model_source(
    "return self.first(x).relu() + self.second(x)", init=("self.first = nn.Linear(6, 6)", "self.second = self.first")
)


def test_a_part_in_two_places_is_guarded_in_both(emit_once: Emit) -> None:
    emitted = emit_once(SHARED)
    assert emitted.check()
    assert not emitted.check(replaced("second", lambda: nn.Linear(6, 6)))


def test_a_part_that_is_added_is_run_by_the_original(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source("return self.parts(x) * 2", init=("self.parts = nn.Sequential(nn.Linear(6, 6), nn.ReLU())",))
    )
    assert emitted.check()
    assert not emitted.check(lambda model: model.parts.append(nn.Sigmoid()))


def test_copies_run_in_the_kernels_and_are_guarded_by_themselves(emitted: Emitted) -> None:
    original, new = emitted.pair()
    x = emitted.inputs()[0]
    with torch.no_grad():
        assert emitted.agree(original, new, x)
        for copied in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            assert emitted.agree(original, copied, x)
            changed = copy.deepcopy(original)
            copied.act.negative_slope = changed.act.negative_slope = 0.7
            assert not emitted.agree(changed, copied, x)
        assert emitted.agree(original, new, x)


def test_state_goes_from_the_original_and_back(emitted: Emitted) -> None:
    torch.manual_seed(1)
    original = emitted.module.Model(16, 2.0)
    new = emitted.module.ModelNew(16, 2.0)
    file = io.BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    assert new.load_state_dict(torch.load(file, weights_only=True), strict=True)
    with torch.no_grad():
        assert emitted.agree(original, new, *emitted.inputs())
        third = emitted.module.Model(16, 2.0)
        assert third.load_state_dict(new.state_dict(), strict=True)
        assert emitted.agree(third, new, *emitted.inputs())


def test_the_same_seed_gives_the_same_weights(emitted: Emitted) -> None:
    original, new = emitted.pair()
    assert list(original.state_dict()) == list(new.state_dict())
    for one, other in zip(original.state_dict().values(), new.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    torch.manual_seed(3)
    emitted.module.Model(16, 2.0)
    after_original = torch.rand(1)
    torch.manual_seed(3)
    emitted.module.ModelNew(16, 2.0)
    assert torch.rand(1) == after_original


def test_one_warning_says_why(emitted: Emitted) -> None:
    emitted.module.ModelNew.warned = False
    new = emitted.pair()[1]
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        new(*emitted.inputs())
        for batch in (9, 10, 11):
            new(torch.randn(batch, 16))
            emitted.pair()[1](torch.randn(batch, 16))
    (only,) = caught
    assert "x is not torch.float32 of shape (6, 16)" in str(only.message)


def test_two_models_of_one_file_do_not_disturb_each_other(emitted: Emitted) -> None:
    original, new = emitted.pair()
    torch.manual_seed(4)
    second_original = emitted.module.Model(16, 2.0)
    torch.manual_seed(4)
    second = emitted.module.ModelNew(16, 2.0)
    with torch.no_grad():
        second.divisor = second_original.divisor = 7.0
        for _ in range(2):
            assert emitted.agree(original, new, *emitted.inputs())
            assert not emitted.agree(second_original, second, *emitted.inputs())


def test_the_number_of_threads_changes_no_bit(emit_once: Emit) -> None:
    emitted = emit_once(model_source("return (x * 2 + 1).sqrt()", inputs="torch.rand(300, 401)"))
    new = emitted.pair()[1]
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        with torch.no_grad():
            results.append(new(*emitted.inputs()))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


# --- modes


def test_eval_mode_is_guarded_where_it_matters(emit_once: Emit) -> None:
    init = ("self.norm = nn.BatchNorm1d(6)", "self.drop = nn.Dropout(0.5)")
    emitted = emit_once(model_source("return self.drop(self.norm(x)).relu() * 2", init=init))
    assert emitted.check()
    assert not emitted.check(lambda model: model.eval())
    assert not emitted.check(lambda model: model.norm.eval())
    assert not emitted.check(lambda model: setattr(model.drop, "p", 0.1))
    assert not emitted.check(lambda model: setattr(model.norm, "momentum", 0.5))


def test_statistics_that_are_means_over_all_batches_follow_their_count(emit_once: Emit) -> None:
    init = ("self.norm = nn.BatchNorm1d(6, momentum=None)",)
    emitted = emit_once(model_source("return self.norm(self.norm(x).relu() - 1)", init=init))
    original, new = emitted.pair()
    with torch.no_grad():
        for _ in range(3):
            assert emitted.agree(original, new, torch.randn(4, 6))
    assert int(new.norm.num_batches_tracked) == 6
    assert not emitted.check(lambda model: model.eval())
    assert not emitted.check(lambda model: setattr(model.norm, "momentum", 0.5))


def test_eval_mode_runs_in_the_kernels_where_it_changes_nothing(emitted: Emitted) -> None:
    assert emitted.check(lambda model: model.eval())


# --- arguments

SCALARS = """\
class Model(nn.Module):
    def forward(self, x, scale, mode, flag=True, extra=None, eps=1e-3):
        x = x * scale if flag else x
        x = x if extra is None else x + extra
        return (x + eps).relu() if mode == "relu" else x


def get_inputs():
    return [torch.randint(-5, 5, (4, 5)), 2, "relu"]


def get_init_inputs():
    return []
"""


def test_python_arguments_are_guarded_by_type_and_value(emit_once: Emit) -> None:
    emitted = emit_once(SCALARS)
    pair = emitted.pair()
    x = emitted.inputs()[0]
    with torch.no_grad():
        assert emitted.agree(*pair, x, 2, "relu")
        assert emitted.agree(*pair, x, mode="relu", scale=2)
        assert emitted.agree(*pair, x, 2, "relu", True, None, 1e-3)
        for scale in (3, 2.0, True, torch.tensor([2] * 5), torch.tensor(2)):
            assert not emitted.agree(*pair, x, scale, "relu")
        assert not emitted.agree(*pair, x, 2, "other")
        assert not emitted.agree(*pair, x, 2, "relu", flag=False)
        assert not emitted.agree(*pair, x, 2, "relu", flag=1)
        assert not emitted.agree(*pair, x, 2, "relu", extra=x)
        assert not emitted.agree(*pair, x, 2, "relu", eps=torch.ones(5))


@pytest.mark.parametrize(
    ("takes", "options"),
    [
        ("self, x, *, scale=2.0", {"scale": 3.0}),
        ("self, x, scale=2.0, **rest", {"scale": 3.0}),
        ("self, x: torch.Tensor, scale: float = 2.0", {"scale": 3.0}),
        ("self, x, scale=FACTOR", {"scale": 3.0}),
    ],
)
def test_every_kind_of_signature_is_kept(emit_once: Emit, takes: str, options: dict[str, float]) -> None:
    emitted = emit_once(model_source("return x * scale + 1", takes=takes, above="FACTOR = 2.0\n\n"))
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), *emitted.inputs(), **options)


def test_a_default_from_the_class_body_is_kept(emit_once: Emit) -> None:
    source = model_source("return x * scale + 1", takes="self, x, scale=FACTOR")
    emitted = emit_once(source.replace("(nn.Module):\n", "(nn.Module):\n    FACTOR = 2.0\n"))
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), *emitted.inputs(), 3.0)


def test_any_number_of_arguments_is_taken_as_the_original_takes_it(emit_once: Emit) -> None:
    emitted = emit_once(model_source("return sum(xs) * 2", takes="self, *xs", inputs="torch.randn(4), torch.randn(4)"))
    one, two = emitted.inputs()
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), one, two)
        assert not emitted.agree(*emitted.pair(), one, two, one)
        assert not emitted.agree(*emitted.pair(), one)


# --- names


@pytest.mark.parametrize(
    "takes",
    [
        "self, launch, F, N",
        "self, double, stream, device",
        "self, args, i, t0",
        "self, row, columns, Index",
        "self, y, a, x",
        "self, planned, home, Args",
        "self, VALUES, torch_, build",
        "self, x, x_, row_",
        "self, __x, row, row_",
        "self, NULL, int64_t, kw",
    ],
)
def test_arguments_may_be_called_anything(emit_once: Emit, takes: str) -> None:
    names = takes.split(", ")[1:]
    text = f"return torch.nn.functional.linear({names[0]}, self.w).relu() * {names[1]} + {names[2]}"
    init = ("self.w = nn.Parameter(torch.randn(4, 4))",)
    emitted = emit_once(model_source(text, takes=takes, init=init, inputs=", ".join(["torch.randn(4, 4)"] * 3)))
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), *emitted.inputs()[:2], **{names[2]: torch.randn(4)})


def test_names_of_the_users_file_stay_the_users(emit_once: Emit) -> None:
    above = (
        "F = 64\nKERNELS = 1\nlaunch = 3.0\nwarned = 2\n\n\ndef build(x):\n    return torch.relu(x)\n\n\n"
        "def why_not():\n    return 'why'\n\n\ndef home(x):\n    return x\n\n\n"
    )
    source = model_source(
        "return home(build(torch.conv2d(x, self.w))) * launch + F + KERNELS + len(why_not())",
        init=("self.w = nn.Parameter(torch.randn(2, 3, 3, 3))",),
        inputs="torch.randn(2, 3, 8, 8)",
        above=above,
    )
    emitted = emit_once(source)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), torch.randn(1, 3, 8, 8))
    assert emitted.module.F == 64
    assert emitted.module.launch == 3.0


def test_attributes_parts_and_defaults_may_be_called_as_our_names_are(emit_once: Emit) -> None:
    source = model_source(
        "packed = self.packed(x)",
        "home = packed * self.home + self.looks",
        "return home.relu() * k",
        takes="self, x, k=build",
        init=(
            "self.packed = nn.Linear(6, 4)",
            "self.home = 3.0",
            'self.register_buffer("looks", torch.randn(4))',
        ),
        above="build = 2.0\n\n\n",
    )
    emitted = emit_once(source)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), *emitted.inputs(), k=3.0)


def test_what_the_users_model_calls_planned_and_warned_stays_the_users(emit_once: Emit) -> None:
    source = model_source(
        "return self.planned(x) * self.warned + self.warned_",
        init=(
            'self.register_buffer("warned", torch.randn(6))',
            "self.warned_ = 0.5",
            "",
            "def planned(x):",
            "    return x.relu()",
            "",
            "self.planned = planned",
        ),
    )
    emitted = emit_once(source)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), torch.randn(3, 6))


@pytest.mark.parametrize(
    "above",
    [
        "import math\nfrom torch import *\n\n\n",  # any, float, max, ...
        "import math\nzip = type = vars = map = 3\nre = inspect = ctypes = warnings = 4\n\n\n",
        "import math\nimport json as sys\nfrom torch import any, sum as ChainMap\n\n\n",
    ],
)
def test_builtins_and_modules_may_be_something_else_in_the_users_file(emit_once: Emit, above: str) -> None:
    made = ("self.f = torch.relu", "self.l = nn.Linear(6, 4)", "self.low = -math.inf")
    emitted = emit_once(model_source("return self.f(self.l(x)).clamp(min=self.low)", init=made, above=above))
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *emitted.inputs())
        assert not emitted.agree(*emitted.pair(), torch.randn(3, 6))


# --- memory

MUTATING = model_source(
    "x.mul_(2).add_(1)",
    "self.total += x",
    "self.last.copy_(y)",
    "return x + y",
    init=('self.register_buffer("total", torch.zeros(8))', 'self.register_buffer("last", torch.zeros(8))'),
    takes="self, x, y",
    inputs="torch.randn(8), torch.randn(8)",
)


def test_inputs_and_buffers_are_changed_as_the_original_changes_them(emit_once: Emit) -> None:
    emitted = emit_once(MUTATING)
    original, new = emitted.pair()
    with torch.no_grad():
        for _ in range(3):
            assert emitted.agree(original, new, *emitted.inputs())


def test_inputs_that_share_memory_with_what_is_changed_run_in_the_original(emit_once: Emit) -> None:
    emitted = emit_once(MUTATING)
    original, new = emitted.pair()
    x, whole = torch.randn(8), torch.randn(12)
    with torch.no_grad():
        assert not emitted.agree(original, new, x, x)
        assert not emitted.agree(original, new, whole[:8], whole[4:])
        assert emitted.agree(original, new, x, torch.randn(8))
        for model in (original, new):
            model.total = torch.zeros(8)
        expected, got = original(original.total, torch.ones(8)), new(new.total, torch.ones(8))
    close(got, expected)
    close(new.total, original.total)


def test_one_tensor_given_twice_is_as_good_as_two_where_nothing_is_changed(emit_once: Emit) -> None:
    emitted = emit_once(model_source("return (x * y + 1).relu()", takes="self, x, y", inputs="*torch.randn(2, 8)"))
    x = torch.randn(8)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), x, x)


def test_two_tensors_are_two_where_the_file_gave_one_twice(emit_once: Emit) -> None:
    source = model_source("return (x * y + 1).relu()", takes="self, x, y", inputs="*[torch.randn(8)] * 2")
    emitted = emit_once(source)
    with torch.no_grad():
        assert emitted.agree(*emitted.pair(), *torch.randn(2, 8))
        assert emitted.agree(*emitted.pair(), *emitted.inputs())


def test_views_that_are_returned_are_views_still(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source(
            "return x, x[1:], x.t(), x.view(2, 12), self.w.t(), x * 2",
            init=("self.w = nn.Parameter(torch.randn(4, 6))",),
        )
    )
    original, new = emitted.pair()
    x = emitted.inputs()[0]
    with torch.no_grad():
        assert emitted.agree(original, new, x)
        same, tail, turned, flat, weight, fresh = new(x)
    assert same is x
    assert tail.data_ptr() == x[1:].data_ptr()
    assert turned.data_ptr() == flat.data_ptr() == x.data_ptr()
    assert weight.data_ptr() == new.w.data_ptr()
    assert fresh.data_ptr() != x.data_ptr()


def storages(*tensors: torch.Tensor) -> list[int]:
    return [tensor.untyped_storage().data_ptr() for tensor in tensors]


def test_detached_results_lie_where_they_were_taken_from(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source(
            "y = (x * self.w).relu()",
            "return y, y.detach(), x.detach(), self.w.data, y.view(4, 6), x.expand(4, 6)",
            init=("self.w = nn.Parameter(torch.randn(4, 6))",),
        )
    )
    assert emitted.check()
    new = emitted.pair()[1]
    x = emitted.inputs()[0]
    with torch.no_grad():
        y, same, given, weight, seen, spread = new(x)
    assert storages(same, seen) == storages(y, y)
    assert storages(given, spread, weight) == storages(x, x, new.w)
    assert len(set(map(id, (x, y, same, given, weight, seen, spread, new.w)))) == 8
    assert type(weight) is torch.Tensor


def test_results_of_axes_of_extent_1_have_memory_of_their_own(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source(
            "y = x * 2",
            "return (x.sum(1), x.mean(1, keepdim=True), x.logsumexp(1), x.amax(1), x.cumsum(1), x.sort(1)[0], "
            "x.flip(1), torch.cat([x]), y, y.sum(1), y.max(1)[0], y.prod(1), x.std(1, correction=0))",
            inputs="torch.randn(5, 1)",
        )
    )
    assert emitted.check()
    new = emitted.pair()[1]
    x = emitted.inputs()[0]
    with torch.no_grad():
        results = new(x)
    assert len({*storages(x), *storages(*results)}) == 1 + len(results)


def test_another_default_dtype_runs_in_the_original(emit_once: Emit) -> None:
    """What is divided, or made without a dtype, takes it."""
    emitted = emit_once(model_source("return x // 2 / 3, x * torch.ones(6)", inputs="torch.randint(0, 9, (4, 6))"))
    original, new = emitted.pair()
    assert emitted.agree(original, new, *emitted.inputs())
    torch.set_default_dtype(torch.float64)
    try:
        assert not emitted.agree(original, new, *emitted.inputs())
    finally:
        torch.set_default_dtype(torch.float32)
    assert emitted.agree(original, new, *emitted.inputs())


OTHERS = {
    "an empty result": model_source("return x[:0] * 2 + 1, x + 1"),
    "nothing but an empty result": model_source("return x[:0] * 2 + 1"),
    "constants": model_source("return x * 2, torch.ones(3), torch.tensor([1.0, 2.0]), torch.zeros(2, 3) + 1"),
    "nested results": model_source("return x * 2, [x + 1, (x - 1,)], None, 3"),
    "in-place operators on a view": model_source("y = x * 2", "y.add_(1)", "y[0].mul_(3)", "return y, y[0]"),
    "statistics that are returned": model_source(
        "y = self.norm(x)", "return y.relu(), self.norm.running_mean", init=("self.norm = nn.BatchNorm1d(6)",)
    ),
    "statistics that are used": model_source(
        "y = self.norm(x)",
        "return y.relu(), self.norm.running_mean * 2, self.norm.running_var.clone()",
        init=("self.norm = nn.BatchNorm1d(6)",),
    ),
    "a buffer before and after": model_source(
        "old = self.c.clone()",
        "self.c.add_(1)",
        "return x + self.c, old",
        init=("self.register_buffer('c', torch.zeros(6))",),
    ),
    "a buffer that is returned": model_source(
        "self.c.add_(1)", "return x + self.c, self.c", init=("self.register_buffer('c', torch.zeros(6))",)
    ),
    "two buffers that change places": model_source(
        "a = self.a.clone()",
        "self.a.copy_(self.b)",
        "self.b.copy_(a)",
        "return x + self.a",
        init=("self.register_buffer('a', torch.zeros(6))", "self.register_buffer('b', torch.ones(6))"),
    ),
    "a view by an operator of PyTorch, read late": model_source(
        "t = x * 2",
        "d = t.unfold(0, 2, 2)",
        "u = t + t.amax()",
        "return torch.sort(u)[0], d * 3",
        inputs="torch.randn(8)",
    ),
    "tied weights": model_source(
        "return self.a(x).relu() + self.b(x)",
        init=("self.a = nn.Linear(6, 6)", "self.b = nn.Linear(6, 6)", "self.b.weight = self.a.weight"),
    ),
    "a parametrized layer": model_source(
        "return self.l(x).relu() * 2", init=("self.l = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))",)
    ),
    "no inputs": model_source(
        "return self.w * 2 + 1", init=("self.register_buffer('w', torch.randn(4, 6))",), inputs="", takes="self"
    ),
    "no tensors at all": model_source("return torch.ones(3) * 2", inputs="", takes="self"),
    "a tensor that is no buffer": model_source("return x * self.t + 1", init=("self.t = torch.randn(6)",)),
    "dropout that is used twice": model_source(
        "h = self.d(x * 2)", "return (h.relu() + 1) * h, h", init=("self.d = nn.Dropout(0.5)",)
    ),
    "a list of one tensor": model_source("(y,) = torch.unsafe_split(x, 6, 1)", "return (y * 2).relu()"),
    "draws that wait for each other": model_source(
        "y = self.l(x)",
        "b = torch.bernoulli(y.softmax(1))",
        "return b * 2, (y + torch.rand(4, 6)).relu(), (x + torch.rand(4, 6)).sum(1)",
        init=("self.l = nn.Linear(6, 6)",),
    ),
}


@pytest.mark.parametrize("model", OTHERS)
def test_an_unusual_model_gives_what_it_gives(emit_once: Emit, model: str) -> None:
    emitted = emit_once(OTHERS[model])
    original, new = emitted.pair()
    with torch.no_grad():
        for _ in range(2):
            emitted.agree(original, new, *emitted.inputs())


LOOKS = """\
class Config:
    def __init__(self):
        self.scale = 2.0


class Model(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act, self.config, self._shift = act, Config(), 1.0

    def forward(self, x):
        return self.act(x) * self.config.scale + self._shift


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [F.relu]
"""


def test_functions_objects_and_private_attributes_are_guarded(emit_once: Emit) -> None:
    emitted = emit_once(LOOKS)
    assert emitted.check()
    assert not emitted.check(lambda model: setattr(model.config, "scale", 3.0))
    assert not emitted.check(lambda model: setattr(model, "_shift", 3.0))
    assert not emitted.check(lambda model: setattr(model, "act", torch.tanh))
    with torch.no_grad():
        assert not emitted.agree(*emitted.pair(nn.functional.gelu), *emitted.inputs())


DECORATED = model_source(
    "return torch * 2 + float.relu()", takes="self, torch, float", inputs="torch.randn(4, 6), torch.randn(4, 6)"
)


def test_a_decorated_forward_and_arguments_named_like_modules_run_in_the_kernels(emit_once: Emit) -> None:
    assert emit_once(DECORATED).check()
    assert emit_once(
        model_source("return x * 2 + 1").replace("    def forward", "    @torch.no_grad()\n    def forward")
    ).check()


def test_results_are_one_tensor_where_they_were_and_two_where_they_were_not(emit_once: Emit) -> None:
    emitted = emit_once(model_source("y = x * 2", "x.add_(1)", "return y, y, x * 1.0, -(-x), x, torch.max(y, dim=1)"))
    new = emitted.pair()[1]
    x = emitted.inputs()[0]
    with torch.no_grad():
        first, second, third, fourth, fifth, largest = new(x)
    assert first is second
    assert len({t.data_ptr() for t in (first, third, fourth, fifth)}) == 4
    assert fifth is x
    assert type(largest) is torch.return_types.max
    assert emitted.check()


def test_an_argument_and_a_parameter_may_both_be_called_state(emit_once: Emit) -> None:
    emitted = emit_once(
        model_source(
            "return torch.relu(self.norm(x) * self.state + state) * 2",
            init=("self.state = nn.Parameter(torch.rand(6))", "self.norm = nn.BatchNorm1d(6)"),
            inputs="torch.randn(4, 6), torch.randn(6)",
            takes="self, x, state",
        )
    )
    assert emitted.check()
