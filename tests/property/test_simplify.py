"""`simplify` on whole random graphs: the same values to the bit, settled after one call, the same text every time."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.ir.dtypes import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from kernelwright.ir.interpret import interpret
from kernelwright.ir.nodes import Broadcast, Contract, Graph, Input, Map, Node, Permute, View
from kernelwright.ir.scalars import SCALARS
from kernelwright.ir.text import graph_text
from kernelwright.simplify import simplify
from tests.property.edge_values import calm, difference, edge_values
from tests.property.graphs_of_maps import Vocabulary, graphs, shape_strategy, tensors, views

INF, NAN = float("inf"), float("nan")
thorough = settings(calm, max_examples=100)

# Functions that see the sign of a zero, with constants for which no rule leans on what PyTorch leaves open about it.
SIGNED = ("add", "sub", "mul", "div", "neg", "abs", "reciprocal", "sqrt", "identity", "where", "signbit", "isnan")
SIGNED += ("maximum", "minimum", "fmax", "lt", "eq", "ne", "floor", "round", "leaky_relu", "logical_not")
# Factors of 1 or more merge to the bit whatever they multiply.
GROWING = (1.0, -1.0, 2.0, -4.0, 3.0, 1.1, 1e4, INF, NAN)

# Clamps leave the sign of a zero open, so nothing else here looks at it.
CLAMPING = ("relu", "relu6", "hardtanh", "maximum", "minimum", "leaky_relu", "abs", "neg", "add", "mul", "where", "lt")
BOUNDS = (0.0, -0.0, 1.0, -1.0, 6.0, 0.5, INF, -INF)

# Linear functions on numbers of moderate size: nothing over- or underflows, so that every factor may merge.
LINEAR = ("add", "sub", "neg", "mul", "mul", "div", "where", "identity")
FACTORS = (0.5, 0.25, -2.0, 8.0, 1.0, -1.0, 3.0, 0.1)

WHOLE = ("add", "sub", "mul", "neg", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor", "where", "abs")
WHOLE += ("eq", "ne", "lt", "relu", "hardtanh", "logical_not")


def check(graph: Graph, words: Vocabulary, *, zeros_have_signs: bool = True, ulps: int = 0) -> None:
    simple = simplify(graph)
    inputs = tensors(graph, words)
    for before, after in zip(interpret(graph, inputs, {}), interpret(simple, inputs, {}), strict=True):
        text = f"\n{graph_text(graph)}\n{graph_text(simple)}"
        assert difference(before, after, ulps, zeros_have_signs) == "", text
    assert simplify(simple) == simple, f"\n{graph_text(simple)}\n{graph_text(simplify(simple))}"


def vocabulary(dtype: str, functions: tuple[str, ...], constants: tuple[float, ...]) -> Vocabulary:
    kind = {d.name: d for d in (float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool_)}[dtype]
    return Vocabulary(kind, functions, constants, edge_values(kind))


@thorough
@given(st.data(), st.sampled_from(("float32", "float64", "float16", "bfloat16")))
def test_graphs_of_exact_functions_keep_every_bit_and_every_sign_of_zero(data: st.DataObject, dtype: str) -> None:
    words = vocabulary(dtype, SIGNED, GROWING)
    check(data.draw(graphs(words)), words)


@thorough
@given(st.data(), st.sampled_from(("float32", "float16")))
def test_graphs_with_clamps_keep_every_value(data: st.DataObject, dtype: str) -> None:
    words = vocabulary(dtype, CLAMPING, BOUNDS)
    check(data.draw(graphs(words)), words, zeros_have_signs=False)


@thorough
@given(st.data(), st.sampled_from(("float32", "float64", "bfloat16")))
def test_linear_graphs_on_numbers_of_moderate_size_keep_every_bit(data: st.DataObject, dtype: str) -> None:
    words = vocabulary(dtype, LINEAR, FACTORS)
    moderate = torch.tensor([0.0, -0.0, 1.5, -2.25, 3.0, 10.0, -0.75, INF, -INF, NAN, 7.0], dtype=words.values.dtype)
    words = Vocabulary(words.dtype, LINEAR, FACTORS, moderate)
    # A product of two tensors is no scaling: products of products could leave the moderate numbers.
    check(data.draw(graphs(words, steps=10)), words)


@thorough
@given(st.data(), st.sampled_from(("int64", "int32", "int16", "int8", "uint8", "bool")))
def test_graphs_of_integers_and_truth_values_keep_every_bit(data: st.DataObject, dtype: str) -> None:
    numbers = (False, True) if dtype == "bool" else (0, 1, 2, 3, 7, 100)
    words = vocabulary(dtype, WHOLE, numbers)
    check(data.draw(graphs(words)), words)


@thorough
@given(st.data())
def test_graphs_with_casts_keep_every_bit(data: st.DataObject) -> None:
    # From 16 bits, everything fits into what it is cast to; a float never becomes an integer, which may be undefined.
    words = vocabulary("float16", ("add", "mul", "neg", "maximum", "identity", "where", "eq"), (1.0, 2.0, -3.0))
    words = Vocabulary(words.dtype, words.functions, words.constants, words.values, (float32, float64, float16, bool_))
    check(data.draw(graphs(words)), words)


INEXACT = tuple(n for n, row in SCALARS.items() if not row.exact and "float" in row.accepts and row.arity == 1)


@settings(calm, max_examples=60)
@given(st.data(), st.sampled_from(INEXACT), st.sampled_from(("float32", "float64")))
def test_an_inexact_function_of_a_random_graph_stays_within_a_few_units_in_the_last_place(
    data: st.DataObject, name: str, dtype: str
) -> None:
    words = vocabulary(dtype, SIGNED, GROWING)
    graph = data.draw(graphs(words, steps=6))
    nodes: list[Node] = [n for n in graph.outputs if n.dtype.kind == "float"]
    ends = tuple(data.draw(views([Map(name, (n,))])) for n in nodes)
    check(Graph(graph.inputs, ends, (), 0), words, ulps=4)


@settings(calm, max_examples=40)
@given(st.data())
def test_contractions_of_views_give_the_same_sums(data: st.DataObject) -> None:
    # Small whole numbers, so that the order of a sum does not matter.
    extents = dict(zip("bijk", (data.draw(st.sampled_from((1, 2, 3))) for _ in "bijk"), strict=True))
    a_labels, b_labels = (data.draw(st.permutations(labels)) for labels in ("bij", "bjk"))
    result = "".join(data.draw(st.permutations("bik")))
    inputs: list[Input] = []
    operands: list[Node] = []
    for labels in (a_labels, b_labels):
        shape = tuple(extents[label] for label in labels)
        order = data.draw(st.permutations(range(3)))
        repeat = data.draw(st.booleans())
        stored = tuple(1 if repeat and labels[axis] == "b" else shape[axis] for axis in order)
        leaf = Input(f"x{len(inputs)}", len(inputs), stored, float32, (0, 0, 0))
        back = tuple(order.index(axis) for axis in range(3))
        inputs.append(leaf)
        operands.append(Broadcast(Permute(leaf, back), shape))
    node = Contract(operands[0], operands[1], f"{''.join(a_labels)},{''.join(b_labels)}->{result}")
    graph = Graph(tuple(inputs), (node,), (), 0)
    values = [torch.arange(x.size, dtype=torch.float32).reshape(x.shape) % 7 for x in inputs]
    simple = simplify(graph)
    assert difference(interpret(graph, values, {})[0], interpret(simple, values, {})[0]) == ""
    assert not any(isinstance(n, Permute) for n in simple.nodes())


@settings(calm, max_examples=30)
@given(st.data())
def test_the_same_graph_gives_the_same_text(data: st.DataObject) -> None:
    words = vocabulary("float32", (*SIGNED, *CLAMPING), GROWING)
    graph = data.draw(graphs(words))
    assert graph_text(simplify(graph)) == graph_text(simplify(graph))


@settings(calm, max_examples=60)
@given(st.data(), shape_strategy())
def test_chains_of_views_alone_keep_every_element_and_get_no_longer(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    leaf = Input("x", 0, shape, int64, (0,) * len(shape))
    node: Node = leaf
    for _ in range(6):
        node = data.draw(views([node]))
    graph = Graph((leaf,), (node,), (), 0)
    simple = simplify(graph)
    values = [torch.arange(leaf.size).reshape(shape)]
    assert difference(interpret(graph, values, {})[0], interpret(simple, values, {})[0]) == ""
    assert simplify(simple) == simple
    assert all(type(n) is not type(n.x) for n in simple.nodes() if isinstance(n, View))
    assert len(simple.nodes()) <= len(graph.nodes()) + 1
