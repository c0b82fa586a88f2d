"""Promises of a GPU's memory: what does not fit waits, the dead hold nothing, nobody starves, nobody waits for ever."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from kernelwright.ir.dtypes import float32
from kernelwright.ir.nodes import Broadcast, Graph, Input, Item, Map, Opaque, Reduce, Reshape, TensorType
from kernelwright.judge.memory import CONTEXT_BYTES, Footprint, full_bytes, least_bytes, rows_bytes
from kernelwright.suite.memory import Ledger, Promises, footprint_of, looks_cut_by_rows, wanted_bytes
from tests.suite.background import in_background

GB = 1 << 30
TOTAL = 160 * GB  # 150 of them can be promised


def ledger(folder: Path) -> Ledger:
    return Ledger(folder, "cuda:0", TOTAL)


def test_what_fits_beside_the_others_is_promised_at_once(tmp_path: Path) -> None:
    first, second = ledger(tmp_path), ledger(tmp_path)
    assert first.reserve(100 * GB) == 100 * GB
    assert second.reserve(50 * GB) == 50 * GB


def test_what_does_not_fit_waits_until_another_gives_back(tmp_path: Path) -> None:
    first, second = ledger(tmp_path), ledger(tmp_path)
    first.reserve(100 * GB)
    waiting = in_background(lambda: second.reserve(51 * GB))
    waiting.join(0.4)
    assert waiting.is_alive()
    first.shrink(99 * GB)
    waiting.join(5)
    assert not waiting.is_alive()


def test_more_than_there_is_gets_all_there_is_once_nobody_else_has_any(tmp_path: Path) -> None:
    first, large = ledger(tmp_path), ledger(tmp_path)
    first.reserve(GB)
    granted: list[int] = []
    waiting = in_background(lambda: granted.append(large.reserve(10**15)))
    waiting.join(0.4)
    assert waiting.is_alive()
    first.shrink(CONTEXT_BYTES)
    waiting.join(5)
    assert granted == [150 * GB]


def test_newcomers_queue_behind_a_large_one_even_if_they_would_fit(tmp_path: Path) -> None:
    small, large, newcomer, tiny = (ledger(tmp_path) for _ in range(4))
    small.reserve(10 * GB)
    order: list[str] = []
    one = in_background(lambda: (large.reserve(150 * GB), order.append("large")))
    time.sleep(0.3)
    two = in_background(lambda: (newcomer.reserve(20 * GB), order.append("newcomer")))
    time.sleep(0.3)
    assert order == []
    tiny.reserve(GB)  # what takes little need not queue
    tiny.close()
    small.close()
    one.join(5)
    large.close()
    two.join(5)
    assert order == ["large", "newcomer"]


def test_two_that_both_want_more_than_they_have_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A promise is given back before a larger one is waited for: tuning's, before judging's."""
    first, second = ledger(tmp_path), ledger(tmp_path)
    first.reserve(70 * GB)
    second.reserve(70 * GB)
    threads = [in_background(lambda own=own: (own.reserve(140 * GB), own.close())) for own in (first, second)]
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def hold(folder: Path, count: int, ready: str) -> None:
    ledger(folder).reserve(count)
    Path(ready).touch()
    time.sleep(60)


def started(folder: Path, count: int) -> multiprocessing.Process:
    ready = folder / f"ready-{time.monotonic_ns()}"
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(folder / "locks", count, str(ready)))
    process.start()
    while not ready.exists():
        time.sleep(0.02)
    return process


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, 140 * GB)
    assert process.pid is not None
    own = ledger(tmp_path / "locks")
    waiting = in_background(lambda: own.reserve(100 * GB))
    waiting.join(0.5)
    assert waiting.is_alive()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    waiting.join(5)
    assert not waiting.is_alive()
    assert len(list((tmp_path / "locks" / "cuda-0.memory").iterdir())) == 1  # the dead one's file is gone


def test_gpus_have_memories_of_their_own(tmp_path: Path) -> None:
    ledger(tmp_path).reserve(150 * GB)
    assert Ledger(tmp_path, "cuda:1", TOTAL).reserve(150 * GB) == 150 * GB


X = Input("x", 0, (1024, 1024), float32, (1024, 1))
MB = 1 << 20


def test_a_footprint_counts_what_lives_at_the_same_time() -> None:
    one = Map("exp", (X,))
    two = Map("sin", (one,))
    three = Map("cos", (two,))
    graph = Graph((X,), (three,), (), 0)
    # Two results live at a time, the last of which goes out.
    assert footprint_of(graph) == Footprint(inputs=4 * MB, outputs=4 * MB, state=0, between=4 * MB)


def footprint(inputs: float, outputs: float) -> Footprint:
    return Footprint(int(inputs * GB), int(outputs * GB), 0, 0)


def test_a_small_problem_gets_all_it_can_use_and_a_large_one_what_it_needs() -> None:
    capacity = 130 * GB
    small = footprint(0.1, 0.1)
    assert full_bytes(small) < wanted_bytes("judge", small, capacity, by_rows=False) < capacity // 8
    large = footprint(6, 6)
    assert least_bytes(large) < wanted_bytes("judge", large, capacity, by_rows=False) < capacity
    assert 3 * wanted_bytes("judge", large, capacity, by_rows=True) < capacity


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_problem_that_is_judged_by_rows_gives_the_rest_back(tmp_path: Path, by_rows: bool) -> None:
    large = Input("x", 0, (4096, 393216), float32, (393216, 1))
    turned = Reshape(Map("exp", (large,)), (393216, 4096))
    graph = Graph((large,), (turned,), (), 0)  # which does not look as if it could be cut
    own, other = ledger(tmp_path), ledger(tmp_path)
    promises = Promises(own, alone=False)
    granted = promises.reserve("judge", graph)
    promises.enter("build by rows" if by_rows else "build")
    rest = own.capacity - (rows_bytes(footprint_of(graph)) if by_rows else granted)
    assert other.reserve(rest) == rest


def test_memory_is_lent_to_others_while_a_candidate_is_built(tmp_path: Path) -> None:
    graph = Graph((X,), (Map("exp", (X,)),), (), 0)
    own, other = ledger(tmp_path), ledger(tmp_path)
    promises = Promises(own, alone=False, idle=True)
    granted = promises.reserve("judge", graph)
    promises.enter("build")
    assert other.reserve(own.capacity - CONTEXT_BYTES) == own.capacity - CONTEXT_BYTES
    other.shrink(0)
    promises.enter("examine")
    waiting = in_background(lambda: other.reserve(own.capacity - granted + 1))
    waiting.join(0.3)
    assert waiting.is_alive()
    promises.release()
    waiting.join(5)
    assert not waiting.is_alive()


def test_of_an_operator_with_several_results_all_are_counted() -> None:
    several = Opaque("aten.lstm", (X,), (), (TensorType((1024, 1024), float32), TensorType((1024,), float32), None))
    used = Map("exp", (Item(several, 0),))
    graph = Graph((X,), (used,), (), 0)
    assert footprint_of(graph) == Footprint(inputs=4 * MB, outputs=4 * MB, state=0, between=4 * MB + 4096)


@pytest.mark.parametrize(("axes", "by_rows"), [((1,), True), ((0,), False), ((0, 1), False)])
def test_rows_that_are_summed_up_cannot_be_judged_apart(axes: tuple[int, ...], by_rows: bool) -> None:
    """A Frobenius norm has an output of its input's shape, and takes all of it."""
    scaled = Map("div", (X, Broadcast(Reduce("sum", X, axes), X.shape)))
    assert looks_cut_by_rows(Graph((X,), (scaled,), (), 0)) is by_rows


def test_one_that_is_run_alone_has_all_the_memory(tmp_path: Path) -> None:
    own = ledger(tmp_path)
    graph = Graph((X,), (Map("exp", (X,)),), (), 0)
    assert Promises(own, alone=True).reserve("judge", graph) == own.capacity
