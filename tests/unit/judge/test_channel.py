"""The parts of the CUDA channel that need no GPU: tensors over foreign memory, and witnesses of outputs."""

import ctypes
import gc
import mmap
from types import SimpleNamespace

import pytest
import torch

from kernelwright.judge import channel_cuda, wire
from kernelwright.judge.contestant import LOOKS, Shape, Witness
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.judge.worker import Bench

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float16])
def test_a_tensor_over_foreign_memory_is_that_memory(dtype: torch.dtype):
    memory = ctypes.create_string_buffer(4096)
    flat = channel_cuda.tensor_at(ctypes.addressof(memory), 4096, dtype, CPU)
    assert (flat.dtype, flat.numel()) == (dtype, 4096 // dtype.itemsize)
    flat.view(torch.uint8).fill_(7)
    assert memory.raw == bytes([7]) * 4096


def test_nothing_is_left_behind_when_such_tensors_go():
    memory = ctypes.create_string_buffer(64)
    before = len(channel_cuda._alive)
    tensors = [channel_cuda.tensor_at(ctypes.addressof(memory), 64, torch.float32, CPU) for _ in range(100)]
    assert len(channel_cuda._alive) == before + 100
    del tensors
    gc.collect()
    assert len(channel_cuda._alive) == before


def glance(addresses: torch.Tensor, width: int) -> torch.Tensor:
    """The worker's memory, as if it were ours."""
    rows = [list(ctypes.string_at(address, width)) for address in addresses.tolist()]
    return torch.tensor(rows, dtype=torch.uint8)


def witness_of(outputs: list[torch.Tensor]) -> Witness:
    rows = []
    for output in outputs:
        strides = (list(output.stride()) + [0] * wire.MAX_DIMS)[: wire.MAX_DIMS]
        rows.append([output.data_ptr(), 0 if output.is_contiguous() else 1, *strides])
    contestant = SimpleNamespace(
        shape=Shape.of((outputs[0],), outputs[0], CPU),
        claim_table=lambda first, count: torch.tensor(rows)[first : first + count],
        glance=glance,
        export=lambda: False,
    )
    return Witness(contestant, range(len(outputs)))


@pytest.mark.parametrize("layout", ["dense", "strided"])
def test_a_witness_agrees_with_outputs_that_stay(layout: str):
    outputs = [torch.rand(6, 10) if layout == "dense" else torch.rand(10, 6).t() for _ in range(5)]
    witness = witness_of(outputs)
    witness.look()
    for number, output in enumerate(outputs):
        witness.compare(number, [output])


def test_a_witness_notices_an_output_that_is_finished_later():
    outputs = [torch.rand(6, 10) for _ in range(5)]
    witness = witness_of(outputs)
    witness.look()
    outputs[3].add_(1)
    witness.compare(2, [outputs[2]])
    with pytest.raises(Failed) as failed:
        witness.compare(3, [outputs[3]])
    assert failed.value.verdict is Verdict.TAMPERING
    assert LOOKS >= 4


def test_a_witness_says_what_it_cannot_see_and_asks_for_it_only_where_it_may():
    asked = []
    witness = witness_of([torch.rand(6, 10)])
    hidden = [True]
    witness._contestant.glance = lambda addresses, width: None if hidden[0] else glance(addresses, width)
    witness._contestant.export = lambda: asked.append(1) or hidden.__setitem__(0, False) or True
    assert not witness.look(export=False)
    assert not asked
    assert witness.look()
    assert asked


def test_an_allocation_replaces_those_that_lay_at_its_addresses() -> None:
    opened = {b"before": (1000, 100, 7), b"behind": (1300, 100, 8), b"around": (1050, 200, 9), b"inside": (1120, 10, 1)}
    assert channel_cuda.overlapping(opened, 1100, 200) == [b"around", b"inside"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool, torch.complex64])
def test_pages_are_met_without_a_trace(dtype: torch.dtype) -> None:
    tensor = torch.ones(3 * channel_cuda.PAGE_BYTES, dtype=dtype)
    before = tensor.clone()
    channel_cuda.meet_pages(tensor)
    channel_cuda.meet_pages(tensor[::2])
    channel_cuda.meet_pages(tensor[:0])
    assert torch.equal(tensor, before)


def test_a_worker_meets_pages_before_it_calls_and_before_it_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[int, ...]] = []
    monkeypatch.setattr(channel_cuda, "meet_pages", lambda tensor: met.append(tuple(tensor.shape)))
    monkeypatch.setattr(Bench, "_on_gpu", lambda self: True)
    bench = Bench(mmap.mmap(-1, wire.BOARD_BYTES), -1)
    bench.pool = bench.board
    bench.model = lambda x: x + 1
    bench.slots = [(torch.ones(3),), (torch.ones(3),)]
    bench.spans = [(0, 12), (64, 76)]
    bench.expected = {"template": ["T", 0], "leaves": [(torch.float32, torch.Size([3]))], "device": CPU}
    assert bench.call(slice(0, 2), 0, {})[0] is wire.Status.DONE
    assert bench.hand_over(slice(0, 2), 0, {})[0] is wire.Status.DONE
    assert met == [(3,)] * 4


def test_memory_is_asked_for_in_whole_pages():
    assert [channel_cuda.in_whole_pages(size) >> 20 for size in (1, 2 << 20, (2 << 20) + 1, 7 << 30)] == [2, 2, 4, 7168]
