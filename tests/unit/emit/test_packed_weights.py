"""The part of an emitted file that keeps packed weights: it packs once, and again after every kind of change.

It runs here on CPU tensors, with a library that only counts.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.emit.emit import IMPORTS, PACK


class CountingLibrary:
    """An entry that packs is a call that returns 0; each is counted."""

    def __init__(self) -> None:
        self.calls = 0

    def pack(self, *_: Any) -> int:
        self.calls += 1
        return 0


class Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: Any) -> None: ...


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names that the text defines, with stand-ins for the GPU's stream."""
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "device", lambda device: Nothing())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    library = CountingLibrary()
    names: dict[str, Any] = {"LIBRARY": library}
    head = IMPORTS + "from torch.utils.weak import WeakTensorKeyDictionary\n"
    exec(compile(head + PACK, "emitted", "exec"), names)  # the text of an emitted file, run as it is
    return SimpleNamespace(library=library, **{name: names[name] for name in ("packed", "PACKED", "Watched")})


def pack(emitted: SimpleNamespace, model: nn.Linear) -> int:
    """How often the weight has been packed after a call."""
    emitted.packed(model, "pack", "weight", model.weight, 64)
    return int(emitted.library.calls)


def load_state(model: nn.Linear) -> None:
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})


def in_place(model: nn.Linear) -> None:
    with torch.no_grad():
        model.weight.mul_(2)


def another_parameter(model: nn.Linear) -> None:
    model.weight = nn.Parameter(torch.randn(3, 4))


def other_data(model: nn.Linear) -> None:
    model.weight.data = torch.randn(3, 4)


def one_element_of_data(model: nn.Linear) -> None:
    model.weight.data[1, 2] = 7.0


def view_of_data(model: nn.Linear) -> None:
    model.weight.data.t()[0].zero_()


def detached(model: nn.Linear) -> None:
    model.weight.detach().add_(1)


def optimizer_step(model: nn.Linear) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()


def assigned_state(model: nn.Linear) -> None:
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)


CHANGES: list[Callable[[nn.Linear], None]] = [
    load_state, in_place, another_parameter, other_data, one_element_of_data, view_of_data, detached, optimizer_step,
    assigned_state,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_and_packed_once(emitted: SimpleNamespace, change: Callable[[nn.Linear], None]) -> None:
    model = nn.Linear(4, 3)
    assert [pack(emitted, model) for _ in range(3)] == [1, 1, 1]
    change(model)
    assert [pack(emitted, model) for _ in range(3)] == [2, 2, 2]
    change(model)
    assert pack(emitted, model) == 3


def test_an_alias_that_was_kept_is_still_watched(emitted: SimpleNamespace) -> None:
    model = nn.Linear(4, 3)
    pack(emitted, model)
    alias = model.weight.data
    assert pack(emitted, model) == 2  # somebody holds an alias now, and its count begins
    assert pack(emitted, model) == 2
    alias.mul_(2)
    assert pack(emitted, model) == 3
    alias.view(-1)[3] = 1.0
    assert pack(emitted, model) == 4


def test_a_watched_weight_is_a_parameter_like_any_other(emitted: SimpleNamespace) -> None:
    model = nn.Linear(4, 3)
    before = model.weight.detach().clone()
    pack(emitted, model)
    assert type(model.weight) is emitted.Watched
    assert isinstance(model.weight, nn.Parameter)
    assert type(model.weight.data) is type(model.weight + 1) is type(model.weight.detach()) is torch.Tensor
    assert torch.equal(model.weight.data, before)
    assert model.weight.data.data_ptr() == model.weight.data_ptr()
    assert {type(value) for value in model.state_dict().values()} == {torch.Tensor}
    model(torch.randn(2, 4)).sum().backward()
    assert model.weight.grad is not None
    assert model.double().weight.dtype is torch.float64


def test_copies_and_saved_models_have_weights_of_their_own(emitted: SimpleNamespace) -> None:
    model = nn.Linear(4, 3)
    pack(emitted, model)
    copied = copy.deepcopy(model)
    copied.weight.data.zero_()
    assert model.weight.abs().sum() > 0
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded.weight) is nn.Parameter
    assert torch.equal(loaded.weight, model.weight)


def test_weights_made_in_inference_mode_are_packed(emitted: SimpleNamespace) -> None:
    with torch.inference_mode():
        model = nn.Linear(4, 3)
        assert [pack(emitted, model) for _ in range(2)] == [1, 1]


def test_one_entry_keeps_what_it_packed_of_several_weights_and_of_their_parts(emitted: SimpleNamespace) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3))
    made = [
        [emitted.packed(model, "pack", name, model[i].weight, 64, offset) for i, name in enumerate("ab")]
        for offset in (0, 16, 0, 16)
    ]
    assert emitted.library.calls == 4
    assert made[:2] == made[2:]
    assert len({buffer.data_ptr() for pair in made for buffer in pair}) == 4
