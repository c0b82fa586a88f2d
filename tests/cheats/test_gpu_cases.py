"""The GPU forms of the cases."""

import pytest

from kernelwright.device import resolve
from kernelwright.judge import judge
from tests.cheats.court import keep_workers
from tests.cheats.gpu_cases import GPU_CASES, GpuCase


@pytest.mark.gpu
@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_a_gpu_case_gets_the_verdict_it_deserves(case: GpuCase) -> None:
    keep_workers()
    judgement = judge(case.task(), case.text(), case.policy, resolve("cuda"))
    assert case.complaints(judgement) == []


def test_every_gpu_case_has_its_files_and_reads_as_a_candidate() -> None:
    from kernelwright.judge.candidate import read_facts

    for case in GPU_CASES:
        assert read_facts(case.text()).problem == ""
        assert "class Model(" in case.task().source
