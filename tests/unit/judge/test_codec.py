"""Arguments and outputs survive the way to another process."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.codec import flatten_arguments, flatten_output, unflatten

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
)


@given(VALUES)
def test_what_goes_in_comes_out(value):
    template, tensors = flatten_arguments(value)
    assert tensors == []
    back = unflatten(json.loads(json.dumps(template)), [])
    assert back == value
    assert type(back) is type(value)


def test_tensors_keep_their_places():
    a, b = torch.rand(2), torch.rand(3)
    template, tensors = flatten_arguments(([a, 1], {"b": b, "d": torch.float16}, torch.device("cpu"), 2 + 3j))
    assert [t is s for t, s in zip(tensors, (a, b), strict=True)] == [True, True]
    back = unflatten(json.loads(json.dumps(template)), tensors)
    assert back[0][0] is a
    assert back[1]["b"] is b
    assert back[1]["d"] is torch.float16
    assert back[2:] == (torch.device("cpu"), 2 + 3j)


def test_what_cannot_travel_is_refused():
    with pytest.raises(TypeError, match="another process"):
        flatten_arguments([object()])


def test_outputs_give_up_tensors_and_numbers_but_keep_their_structure():
    template, leaves = flatten_output((torch.ones(2), {"loss": 0.5, "n": 3}, None))
    assert template == ["(", ["T", 0], ["{", ["loss", ["N", "float"]], ["n", ["N", "int"]]], ["=", None]]
    assert leaves[1:] == [0.5, 3.0]


def test_a_named_tuple_is_a_tuple():
    assert flatten_output(torch.rand(3, 4).max(dim=1))[0] == flatten_output((torch.rand(3), torch.arange(3)))[0]
