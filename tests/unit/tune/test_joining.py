"""A contraction reduces its own result only where that is expected, or measured, to be faster than doing it apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.device import resolve
from kernelwright.generate import default_choices
from kernelwright.ir.nodes import Conv, Graph, Map, Node, Reduce
from kernelwright.plan import Kernel, Plan, Routes, plan
from kernelwright.tune.joining import faster_joined, is_fed, is_joined
from kernelwright.tune.routes import settled, with_again, with_joined
from kernelwright.tune.tune import Tuned
from tests.products import program_of
from tests.unit.plan.test_tiles import conv, norm, softmax

H200 = resolve("h200")


def both(result: Node, node: Conv) -> tuple[Graph, Routes, Plan, Plan]:
    graph = Graph((node.x,), (result,), (), 0)  # type: ignore[arg-type]
    own = frozenset({node})
    routes = Routes(own, frozenset(), "tf32", reducing=own)
    return graph, routes, plan(graph, routes), plan(graph, replace(routes, reducing=frozenset()))


def test_all_that_is_joined_is_compared_with_all_that_is_apart() -> None:
    node = conv()
    _, _, joined, apart = both(norm(Map("relu", (node,)), (2, 3)), node)
    assert (len(joined.kernels), len(apart.kernels)) == (2, 2)
    assert (
        faster_joined(joined, apart, lambda kernel: 10.0, lambda kernel: 10.0, lambda _: 1.0, is_joined) == frozenset()
    )
    assert faster_joined(joined, apart, lambda kernel: 9.0, lambda kernel: 10.0, lambda _: 1.0, is_joined) == {node}
    assert (
        faster_joined(joined, apart, lambda kernel: 9.0, lambda kernel: 10.0, lambda _: 0.8, is_joined) == frozenset()
    )


def test_what_is_not_known_stays_apart() -> None:
    node = conv()
    _, _, joined, apart = both(softmax(node, (1,)), node)
    assert (
        faster_joined(joined, apart, lambda kernel: None, lambda kernel: 10.0, lambda _: 1.0, is_joined) == frozenset()
    )
    assert (
        faster_joined(joined, apart, lambda kernel: 1.0, lambda kernel: None, lambda _: 1.0, is_joined) == frozenset()
    )


def rows(made: Plan, us: dict[bool, float | None], library_us: float) -> list[Tuned]:
    choices = default_choices(made, H200)

    def row(kernel: Kernel) -> Tuned:
        library = library_us if kernel.core is not None else None
        return Tuned(kernel.name, choices[kernel.name], us[is_joined(kernel)], 1.0, "measured", 1, library)

    return [row(kernel) for kernel in made.kernels]


@pytest.mark.parametrize(
    ("joined_us", "apart_us", "library_us", "own", "reducing"),
    [
        (7.0, 5.0, 20.0, True, True),
        (11.0, 5.0, 20.0, True, False),
        (11.0, 5.0, 4.0, False, False),
        (7.0, 5.0, 6.0, False, False),
        (None, 5.0, 20.0, True, False),
    ],
    ids=["faster", "slower", "slower, and the library faster", "the library is faster than both", "not measured"],
)
def test_on_a_gpu_the_fastest_way_that_was_measured_stays(
    joined_us: float | None, apart_us: float, library_us: float, own: bool, reducing: bool
) -> None:
    node = conv()
    _, routes, joined, apart = both(softmax(node, (1,)), node)
    tuned = rows(joined, {True: joined_us, False: 1.0}, library_us), rows(apart, {False: apart_us}, library_us)
    left = settled(routes, (joined, tuned[0]), (apart, tuned[1]), present=True)
    assert (node in left.own, node in left.reducing) == (own, reducing)


def test_without_a_gpu_the_cost_model_decides() -> None:
    """A least channel needs no store of a huge result; of a tile that cannot have all channels, nothing is joined."""
    for text, reducing in (("Conv2d(8, 64, 3)", True), ("Conv2d(8, 300, 3)", False)):
        node = conv(text, (32, 8, 128, 128))
        graph, routes, _, _ = both(Reduce("min", node, (1,)), node)
        left = with_joined(replace(routes, reducing=frozenset()), graph, H200)
        assert (node in left.reducing) == reducing


@pytest.mark.parametrize(
    ("text", "shape", "twice"),
    [
        ("ConvTranspose3d(16, 32, 3, stride=2, padding=1)", (16, 16, 16, 32, 32), True),
        ("Conv2d(512, 64, 5)", (16, 512, 32, 32), False),
    ],
    ids=["few products", "many products"],
)
def test_a_convolution_of_few_products_is_computed_twice(text: str, shape: tuple[int, ...], twice: bool) -> None:
    """A normalisation over all images needs its rows twice: what is read again was stored before."""
    node = conv(text, shape)
    graph, routes, _, _ = both(norm(node, (0, *range(2, len(shape)))), node)
    left = with_again(replace(routes, reducing=frozenset()), graph, H200)
    assert (node in left.again) == twice
    cores = [kernel.core.node for kernel in plan(graph, left).kernels if kernel.core is not None]
    assert cores == [node] * (2 if twice else 1)


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        ("F.silu(self.layer(x0)).sum(1)", True),
        ("torch.logsumexp(self.layer(x0) * 2, 1)", True),
        ("torch.softmax(self.layer(x0), 1)", False),
    ],
    ids=["nothing is stored", "nothing is stored of a costly state", "a row kernel would read the result once, too"],
)
def test_a_product_is_joined_where_that_saves_a_pass(tmp_path: Path, body: str, joined: bool) -> None:
    program = program_of(tmp_path, body, ("torch.rand(1024, 8192)",), "nn.Linear(8192, 8192)", "h200")
    assert is_joined(program.sources[0].kernel) == joined
    assert len(program.sources) == 2 - joined


def test_a_product_whose_k_must_be_split_is_not_joined(tmp_path: Path) -> None:
    """Few tiles would leave most of the GPU idle for longer than the pass over a small result takes."""
    program = program_of(
        tmp_path, "F.silu(self.layer(x0)).sum(1)", ("torch.rand(128, 65536)",), "nn.Linear(65536, 512)", "h200"
    )
    assert not any(is_joined(source.kernel) for source in program.sources)


LAYER, WIDE = "nn.Linear(8192, 8192)", "torch.rand(1024, 8192)"


@pytest.mark.parametrize(
    ("body", "inputs", "layer", "precision", "fed"),
    [
        ("self.layer(torch.relu(x0))", (WIDE,), LAYER, "reference", True),
        ("self.layer(F.gelu(x0))", (WIDE,), LAYER, "reference", False),
        ("self.layer(F.gelu(x0))", (WIDE,), LAYER, "tf32", True),
        ("self.layer(F.silu(x0))", ("torch.rand(16384, 4096)",), "nn.Linear(4096, 256)", "reference", True),
        ("x0 @ F.gelu(x1)", ("torch.rand(2048, 4096)", "torch.rand(4096, 4096)"), "None", "reference", True),
    ],
    ids=[
        "a cheap function",
        "a function that each of 32 tiles would compute again",
        "the same where it is packed once",
        "the same where one tile needs it",
        "an operand that is packed in any case",
    ],
)
def test_an_operand_is_computed_on_the_way_where_that_saves_more_than_it_repeats(
    tmp_path: Path, body: str, inputs: tuple[str, ...], layer: str, precision: str, fed: bool
) -> None:
    program = program_of(tmp_path, body, inputs, layer, "h200", precision)
    assert [is_fed(source.kernel) for source in program.sources] == ([True] if fed else [False, False])
