"""Every problem in examples/ and benchmarks/problems/ is a sound problem, and says what it shows."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.load import Instance, at_home, instantiate, load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FULL_SIZE = sorted((ROOT / "benchmarks" / "problems").glob("*.py"))

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
each_full_size = pytest.mark.parametrize("path", FULL_SIZE, ids=lambda path: path.stem)


def tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)] if isinstance(value, tuple) else []


def run(path: Path, seed: int) -> tuple[Instance, list[torch.Tensor]]:
    problem = load(path)
    instance = instantiate(problem, seed, "cpu")
    with torch.no_grad(), at_home(problem, "cpu"):
        return instance, tensors(instance.model(*instance.inputs))


def model_class(path: Path) -> str:
    body = ast.parse(path.read_text()).body
    return "\n".join(ast.unparse(node) for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef))


@each_example
def test_an_example_runs_and_gives_the_same_finite_numbers_for_the_same_seed(path: Path) -> None:
    first, outputs = run(path, seed=1)
    again, outputs_again = run(path, seed=1)
    assert outputs
    for one, other in zip(outputs, outputs_again, strict=True):
        assert torch.equal(one, other)
        assert torch.isfinite(one).all()
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])


@each_example
def test_an_example_depends_on_its_seed(path: Path) -> None:
    one, other = run(path, seed=1)[1], run(path, seed=2)[1]
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


@each_example
def test_an_example_is_big_enough_to_show_fusion_and_small_enough_for_a_laptop(path: Path) -> None:
    instance = instantiate(load(path), 0, "meta")
    elements = sum(value.numel() for value in instance.inputs if isinstance(value, torch.Tensor))
    elements += sum(module.weight.numel() for module in instance.model.modules() if isinstance(module, nn.Embedding))
    assert 2**18 <= elements <= 2**25


@pytest.mark.parametrize("path", [*EXAMPLES, *FULL_SIZE], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_problem_says_in_one_line_what_it_shows(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text
    assert text.endswith(".")
    assert "\n" not in text


@each_full_size
def test_a_full_size_problem_has_the_model_of_the_example_of_its_name(path: Path) -> None:
    instantiate(load(path), 0, "meta")
    name = path.stem.removesuffix("_32m").removesuffix("_1g")
    assert model_class(path) == model_class(ROOT / "examples" / f"{name}.py")


def test_every_example_has_a_full_size_twin_and_a_line_in_the_readme() -> None:
    readme = (ROOT / "examples" / "README.md").read_text()
    twins = {path.stem for path in FULL_SIZE} | {"pointwise_chain"}
    for path in EXAMPLES:
        assert path.stem in twins
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert f"| [`{path.stem}`]({path.name}) | {text} |" in readme


def test_the_named_problems_have_the_sizes_asked_for() -> None:
    shapes = {
        path.stem: [tuple(x.shape) for x in instantiate(load(path), 0, "meta").inputs if isinstance(x, torch.Tensor)]
        for path in FULL_SIZE
    }
    assert shapes["linear_relu_divide"] == shapes["linear_bias_relu"] == [(1024, 8192)]
    assert shapes["conv_divide_leakyrelu"] == [(128, 8, 128, 128)]
    assert shapes["relu"] == [(4096, 393216)]
    assert torch.Size(shapes["pointwise_chain_32m"][0]).numel() == 32 * 2**20
    assert torch.Size(shapes["pointwise_chain_1g"][0]).numel() == 10**9
