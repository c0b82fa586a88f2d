"""Kernels that outlast a turn are waited for, and whose they are is found out; with a GPU that is a list of times."""

from kernelwright.judge.stillness import LIMIT_S, Stillness


class Gpu:
    """Probes take 20 us, or 1.5 ms while somebody's kernels run."""

    def __init__(self) -> None:
        self.now, self.busy_until = 0.0, 0.0

    def probe(self) -> float:
        took = 1.5e-3 if self.now < self.busy_until else 20e-6
        self.now += took
        return took

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def stillness(self) -> Stillness:
        return Stillness(self.probe, lambda: self.now, self.sleep)


def test_a_quiet_gpu_costs_three_probes():
    gpu = Gpu()
    still = gpu.stillness()
    before = gpu.now
    still.wait_after("candidate")
    assert gpu.now - before < 100e-6
    assert not still.disturbed_by("candidate")


def test_what_runs_on_for_a_while_is_waited_for():
    gpu = Gpu()
    still = gpu.stillness()
    gpu.busy_until = gpu.now + 0.05
    still.wait_after("candidate")
    assert gpu.now >= gpu.busy_until
    assert not still.disturbed_by("candidate")


def test_kernels_that_run_on_after_one_alone_are_its_own():
    gpu = Gpu()
    still = gpu.stillness()
    still.wait_after("eager")
    gpu.busy_until = gpu.now + 10
    still.wait_after("candidate")
    assert still.disturbed_by("candidate")


def test_a_gpu_that_others_use_accuses_nobody():
    gpu = Gpu()
    still = gpu.stillness()
    gpu.busy_until = gpu.now + 100
    still.wait_after("eager")
    still.wait_after("candidate")
    assert not still.disturbed_by("candidate")
    assert gpu.now < 4 * LIMIT_S
