"""What `instantiate` makes of a problem: its model and inputs, or an error that names file, cause and cure."""

import dataclasses
import inspect
import os
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kernelwright.errors import BadProblem
from kernelwright.load import Instance, Problem, at_home, instantiate, load

HEAD = """
import torch
from torch import nn

"""

LINEAR = """
class Model(nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(width, depth)

    def forward(self, x):
        return self.layer(x)
"""

IDENTITY = """
class Model(nn.Module):
    def forward(self, x):
        return x
"""

ONE_INPUT = """
def get_inputs():
    return [torch.rand(3, 4)]
"""

Written = Callable[..., Problem]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes parts of a file, one under the other, and loads it."""

    def write(*parts: str, name: str = "problem.py") -> Problem:
        file = tmp_path / name
        file.write_text(HEAD + "\n".join(dedent(part) for part in parts))
        return load(file)

    return write


def on_cpu(problem: Problem, seed: int = 0) -> Instance:
    return instantiate(problem, seed, "cpu")


def refusal(problem: Problem) -> BadProblem:
    with pytest.raises(BadProblem) as caught:
        on_cpu(problem)
    assert str(problem.path) in caught.value.where
    assert caught.value.cure
    assert caught.value.exit_code == 2
    return caught.value


# The protocol


def test_constructor_arguments_come_from_get_init_inputs(written: Written) -> None:
    instance = on_cpu(written(LINEAR, ONE_INPUT, "def get_init_inputs():\n    return [4, 7]\n"))
    assert instance.model(*instance.inputs).shape == (3, 7)


def test_a_constructor_without_arguments_needs_no_get_init_inputs(written: Written) -> None:
    instance = on_cpu(written(IDENTITY, ONE_INPUT))
    assert torch.equal(instance.model(*instance.inputs), instance.inputs[0])


def test_an_empty_list_of_constructor_arguments_is_fine(written: Written) -> None:
    on_cpu(written(IDENTITY, ONE_INPUT, "def get_init_inputs():\n    return []\n"))


@pytest.mark.parametrize(
    ("returned", "depth"),
    [("[[4], {'depth': 3}]", 3), ("[[], {'width': 4}]", 2), ("[(4, 5), {}]", 5), ("(4, 6)", 6)],
)
def test_the_args_and_kwargs_form_and_tuples_are_understood(written: Written, returned: str, depth: int) -> None:
    instance = on_cpu(written(LINEAR, ONE_INPUT, f"def get_init_inputs():\n    return {returned}\n"))
    assert instance.model(*instance.inputs).shape == (3, depth)


def test_a_list_and_a_dict_the_constructor_takes_as_such_stay_arguments(written: Written) -> None:
    model = """
    class Model(nn.Module):
        def __init__(self, sizes, options):
            super().__init__()
            self.sizes, self.options = sizes, options
        def forward(self, x):
            return x
    def get_init_inputs():
        return [[1, 2, 3], {"bias": True}]
    """
    instance = on_cpu(written(model, ONE_INPUT))
    assert instance.model.sizes == [1, 2, 3]
    assert instance.model.options == {"bias": True}


def test_tensors_and_python_scalars_stay_side_by_side_in_their_order(written: Written) -> None:
    inputs = """
    def get_inputs():
        return [torch.ones(2), 3, 0.5, True, "reflect", None, [torch.zeros(1), 2]]
    """
    got = on_cpu(written(IDENTITY, inputs)).inputs
    assert torch.equal(got[0], torch.ones(2))
    assert got[1:6] == (3, 0.5, True, "reflect", None)
    assert [type(value) for value in got[1:6]] == [int, float, bool, str, type(None)]
    assert torch.equal(got[6][0], torch.zeros(1))


def test_no_inputs_at_all_are_fine(written: Written) -> None:
    assert on_cpu(written(IDENTITY, "def get_inputs():\n    return []\n")).inputs == ()


def test_a_tuple_output_comes_back_as_it_is(written: Written) -> None:
    model = """
    class Model(nn.Module):
        def forward(self, x):
            return x + 1, x.sum()
    """
    instance = on_cpu(written(model, ONE_INPUT))
    doubled, total = instance.model(*instance.inputs)
    assert doubled.shape == (3, 4)
    assert total.shape == ()


def test_one_tensor_given_twice_stays_one_tensor(written: Written) -> None:
    first, second = instantiate(
        written(IDENTITY, "def get_inputs():\n    x = torch.ones(2)\n    return [x, x]\n"), 0, "meta"
    ).inputs
    assert first is second


def test_the_model_is_left_in_train_mode(written: Written) -> None:
    assert on_cpu(written(IDENTITY, ONE_INPUT)).model.training


# Seeds


def test_the_same_seed_gives_the_same_weights_and_inputs(written: Written) -> None:
    problem = written(LINEAR, ONE_INPUT, "def get_init_inputs():\n    return [4]\n")
    first, again, other = on_cpu(problem, 7), on_cpu(problem, 7), on_cpu(problem, 8)
    assert torch.equal(first.model.layer.weight, again.model.layer.weight)
    assert torch.equal(first.inputs[0], again.inputs[0])
    assert not torch.equal(first.model.layer.weight, other.model.layer.weight)
    assert not torch.equal(first.inputs[0], other.inputs[0])


def test_the_weights_are_those_of_manual_seed_followed_by_the_constructor(written: Written) -> None:
    problem = written(LINEAR, ONE_INPUT, "def get_init_inputs():\n    torch.rand(5)\n    return [4]\n")
    weight = on_cpu(problem, 3).model.layer.weight
    torch.manual_seed(3)
    assert torch.equal(weight, nn.Linear(4, 2).weight)


def test_inputs_do_not_repeat_the_random_numbers_of_the_weights(written: Written) -> None:
    model = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.rand(3, 4))
        def forward(self, x):
            return x * self.scale
    """
    instance = on_cpu(written(model, ONE_INPUT))
    assert not torch.equal(instance.model.scale, instance.inputs[0])


def test_the_random_state_of_the_caller_is_left_alone(written: Written) -> None:
    problem = written("torch.manual_seed(99)", LINEAR, ONE_INPUT, "def get_init_inputs():\n    return [4]\n")
    before, python_before = torch.get_rng_state(), random.getstate()
    on_cpu(problem)
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python_before


def test_the_random_module_is_seeded_too(written: Written) -> None:
    problem = written("import random", IDENTITY, "def get_inputs():\n    return [random.random()]\n")
    assert on_cpu(problem, 1).inputs == on_cpu(problem, 1).inputs != on_cpu(problem, 2).inputs


# CUDA in the file, none here

CUDA_EVERYWHERE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4, device="cuda")
        self.norm = nn.LayerNorm(4).cuda()
        self.gate = nn.Linear(4, 4).to("cuda:0")
        self.scale = nn.Parameter(torch.ones(4, device=torch.device("cuda", 0)))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64).cuda(non_blocking=True))
        self.to(device="cuda", dtype=torch.float32)

    def forward(self, x, y):
        return self.gate(self.norm(self.layer(x))) * self.scale + torch.ones(4, device="cuda") + y

def get_inputs():
    with torch.device("cuda"):
        y = torch.rand(3, 4)
    return [torch.rand(3, 4).cuda(), y, torch.randn(2, device="cuda").half(), torch.arange(3, device=0),
            torch.zeros(1).to(torch.device("cuda:0"), torch.float64), torch.tensor([1.0], device="cuda")]
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_cuda_in_the_file_means_the_device_asked_for(written: Written, device: str) -> None:
    problem = written(CUDA_EVERYWHERE)
    instance = instantiate(problem, 0, device)
    assert {value.device.type for value in instance.inputs} == {device}
    assert {value.device.type for value in instance.model.state_dict().values()} == {device}
    assert [value.dtype for value in instance.inputs[2:5]] == [torch.float16, torch.int64, torch.float64]
    with at_home(problem, device):
        assert instance.model(*instance.inputs[:2]).device.type == device


def test_a_default_device_set_by_the_file_is_redirected_and_does_not_stay(written: Written) -> None:
    problem = written("torch.set_default_device('cuda')", IDENTITY, ONE_INPUT)
    assert on_cpu(problem).inputs[0].device.type == "cpu"
    assert torch.get_default_device().type == "cpu"
    assert torch.set_default_device.__name__ == "set_default_device"


def test_cuda_means_cuda_again_afterwards(written: Written) -> None:
    on_cpu(written(CUDA_EVERYWHERE))
    assert torch.device("cuda").type == "cuda"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_inputs_and_weights_made_on_the_cpu_are_moved_to_the_gpu(written: Written) -> None:
    problem = written(LINEAR, ONE_INPUT, "def get_init_inputs():\n    return [4]\n")
    here, there = on_cpu(problem, 5), instantiate(problem, 5, "cuda")
    assert there.inputs[0].is_cuda
    assert torch.equal(there.inputs[0].cpu(), here.inputs[0])
    assert torch.equal(there.model.layer.weight.cpu(), here.model.layer.weight)


def test_meta_gives_shapes_of_what_would_not_fit_in_memory(written: Written) -> None:
    inputs = "def get_inputs():\n    return [torch.rand(2**20, 2**20)]\n"
    (value,) = instantiate(written(IDENTITY, inputs), 0, "meta").inputs
    assert value.shape == (2**20, 2**20)
    assert value.is_meta


def test_meta_makes_numbers_for_a_constructor_that_reads_them(written: Written) -> None:
    model = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
            self.layer = nn.Linear(2, 2)
        def forward(self, x):
            return x
    """
    instance = instantiate(written(model, ONE_INPUT), 0, "meta")
    assert instance.model.rates == [0.0, 0.5, 1.0]
    assert instance.model.layer.weight.is_meta


def test_fake_tensors_can_stand_in_for_memory(written: Written) -> None:
    problem = written(
        LINEAR, "def get_inputs():\n    return [torch.rand(4)]\n", "def get_init_inputs():\n    return [4]\n"
    )
    with FakeTensorMode(), at_home(problem, "cpu"):
        instance = instantiate(problem, 0, "cpu")
    assert isinstance(instance.inputs[0], FakeTensor)
    assert isinstance(instance.model.layer.weight, FakeTensor)


# The module a file becomes


def test_a_main_block_does_not_run(written: Written) -> None:
    on_cpu(written(IDENTITY, ONE_INPUT, 'if __name__ == "__main__":\n    raise SystemExit(1)\n'))


def test_classes_of_the_file_can_be_pickled_and_inspected(written: Written) -> None:
    parts = """
    import dataclasses

    @dataclasses.dataclass
    class Shape:
        rows: int
        columns: "int" = 4

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.shape = Shape(3)
            self.weight = nn.Parameter(torch.rand(2))
        def forward(self, x):
            return x  # the line inspect must find
    """
    model = on_cpu(written(parts, ONE_INPUT)).model
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(copy.weight, model.weight)
    assert dataclasses.astuple(copy.shape) == (3, 4)
    assert "the line inspect must find" in inspect.getsource(type(model))


def test_inspection_shows_the_text_that_ran_and_not_the_file_as_it_is_now(written: Written) -> None:
    problem = written(IDENTITY, ONE_INPUT)
    model = on_cpu(problem).model
    problem.path.write_text("# all gone\n")
    assert "return x" in inspect.getsource(type(model).forward)


def test_each_instance_starts_from_a_fresh_namespace(written: Written) -> None:
    problem = written("calls = []", IDENTITY, "def get_inputs():\n    calls.append(1)\n    return [len(calls)]\n")
    assert on_cpu(problem).inputs == on_cpu(problem).inputs == (1,)


def test_the_folder_of_the_file_can_be_imported_from_while_it_runs(written: Written, tmp_path: Path) -> None:
    (tmp_path / "sibling_layers.py").write_text("WIDTH = 5\n")
    path_before = list(sys.path)
    inputs = "def get_inputs():\n    from sibling_layers import WIDTH\n    return [torch.rand(WIDTH)]\n"
    assert on_cpu(written(IDENTITY, inputs)).inputs[0].shape == (5,)
    assert sys.path == path_before


def test_siblings_of_the_same_name_in_two_folders_are_not_mixed_up(tmp_path: Path) -> None:
    widths = []
    for width in (5, 6):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "sibling_sizes.py").write_text(f"WIDTH = {width}\n")
        text = f"{HEAD}from sibling_sizes import WIDTH\n{IDENTITY}\ndef get_inputs():\n    return [torch.rand(WIDTH)]\n"
        (folder / "problem.py").write_text(text)
        widths.append(on_cpu(load(folder / "problem.py")).inputs[0].shape[0])
    assert widths == [5, 6]


def test_packages_of_an_environment_inside_the_folder_are_nobodys_siblings(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "packages"
    packages.mkdir(parents=True)
    (packages / "installed_package.py").write_text("")
    found = []
    use = f"import sys\nsys.path.append({str(packages)!r})\nimport installed_package\n"
    for folder in (tmp_path, tmp_path / "venv"):
        (folder / "problem.py").write_text(HEAD + use + IDENTITY + ONE_INPUT)
        on_cpu(load(folder / "problem.py"))
        sys.path.remove(str(packages))
        found.append(sys.modules["installed_package"])
    del sys.modules["installed_package"]
    assert found[0] is found[1]


# What is refused, and how


def test_a_file_without_model_is_refused(written: Written) -> None:
    error = refusal(written("class Net(nn.Module):\n    forward = None\n", ONE_INPUT))
    assert "there is no class Model" in error.what
    assert "class Model(nn.Module)" in error.cure


@pytest.mark.parametrize(
    "model", ["class Model:\n    pass\n", "Model = nn.Linear(2, 2)\n", "def Model():\n    return None\n"]
)
def test_a_model_that_is_no_module_class_is_refused(written: Written, model: str) -> None:
    assert "no nn.Module" in refusal(written(model, ONE_INPUT)).what


def test_a_missing_import_names_the_line_and_the_module(written: Written) -> None:
    error = refusal(written("import a_module_nobody_has", IDENTITY, ONE_INPUT))
    assert error.where.endswith("problem.py:5")
    assert "a_module_nobody_has" in error.what
    assert "Install" in error.cure


def test_an_exception_at_file_scope_names_line_and_cause(written: Written) -> None:
    error = refusal(written("width = 1 // 0", IDENTITY, ONE_INPUT))
    assert error.where.endswith("problem.py:5")
    assert "ZeroDivisionError" in error.what


def test_a_file_that_ends_the_program_is_refused_and_does_not_end_ours(written: Written) -> None:
    error = refusal(written("import sys\nsys.exit(0)", IDENTITY, ONE_INPUT))
    assert "SystemExit" in error.what
    assert "__main__" in error.cure


def test_missing_get_inputs_is_refused(written: Written) -> None:
    error = refusal(written(IDENTITY))
    assert "no function get_inputs" in error.what
    assert "def get_inputs()" in error.cure


@pytest.mark.parametrize(
    ("body", "kind", "cure"),
    [
        ("return {'x': torch.rand(2)}", "a dict", "order"),
        ("return torch.rand(2)", "a tensor", "[x]"),
        ("yield torch.rand(2)", "a generator", "yield"),
        ("torch.rand(2)", "None", "return"),
        ("return 'abc'", "a str", "list"),
        ("return iter([torch.rand(2)])", "a list_iterator", "list"),
    ],
)
def test_get_inputs_of_the_wrong_kind_is_refused_with_its_own_cure(
    written: Written, body: str, kind: str, cure: str
) -> None:
    error = refusal(written(IDENTITY, f"def get_inputs():\n    {body}\n"))
    assert kind in error.what
    assert cure in error.cure
    assert error.where.endswith(":10")


def test_get_inputs_that_is_no_function_is_refused(written: Written) -> None:
    assert "no function" in refusal(written(IDENTITY, "get_inputs = [1, 2]\n")).what


def test_an_argument_of_a_foreign_type_is_refused_by_position(written: Written) -> None:
    error = refusal(written(IDENTITY, "def get_inputs():\n    return [torch.rand(2), {1, 2}]\n"))
    assert "a set as argument 1" in error.what


def test_get_inputs_that_raises_names_the_line(written: Written) -> None:
    error = refusal(written(IDENTITY, "def get_inputs():\n    return [torch.rand(2, 3) @ torch.rand(2, 3)]\n"))
    assert "get_inputs() failed: RuntimeError" in error.what
    assert error.where.endswith(":11")


def test_get_init_inputs_of_the_wrong_kind_is_refused(written: Written) -> None:
    error = refusal(written(IDENTITY, ONE_INPUT, "def get_init_inputs():\n    return {'width': 4}\n"))
    assert "get_init_inputs() returned a dict" in error.what


def test_constructor_arguments_that_do_not_fit_are_refused(written: Written) -> None:
    error = refusal(written(LINEAR, ONE_INPUT))
    assert "Model(*get_init_inputs()) failed: TypeError" in error.what
    assert "width" in error.what


def test_a_constructor_that_fails_names_its_line(written: Written) -> None:
    model = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            raise ValueError("width must be even")
    """
    error = refusal(written(model, ONE_INPUT))
    assert "ValueError: width must be even" in error.what
    assert error.where.endswith(":9")


def test_the_original_exception_is_kept_as_the_cause(written: Written) -> None:
    assert isinstance(refusal(written("1 / 0", IDENTITY, ONE_INPUT)).__cause__, ZeroDivisionError)


def test_an_interrupt_is_not_turned_into_a_bad_problem(written: Written) -> None:
    with pytest.raises(KeyboardInterrupt):
        on_cpu(written("raise KeyboardInterrupt", IDENTITY, ONE_INPUT))


# A collection of problems from outside, where there is one

COLLECTION = os.environ.get("KERNELBENCH_DIR")


@pytest.mark.skipif(not COLLECTION, reason="KERNELBENCH_DIR does not name a folder with level1, level2 and level3")
def test_every_kernelbench_problem_loads_and_can_be_instantiated() -> None:
    files = sorted(Path(COLLECTION or "").glob("level[123]/*.py"))
    assert len(files) == 250
    failures = []
    for file in files:
        try:
            instantiate(load(file), 0, "meta")
        except BadProblem as error:
            if "einops" not in error.what:  # two problems import it; it is no dependency of ours
                failures.append(str(error))
    assert failures == []
