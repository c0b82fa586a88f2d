"""Records: JSON that says everything, and from which anybody can judge again."""

import json
from dataclasses import replace

import pytest

from kernelwright.device import resolve
from kernelwright.errors import EnvironmentProblem, UsageError
from kernelwright.judge import Candidate, Policy, Verdict, judge, replay
from kernelwright.judge.verdict import Label
from tests.cheats.court import PROBLEMS, QUICK, keep_workers, problem, verdict_on

OWN = Candidate((PROBLEMS / "linear.py").read_text().replace("class Model(", "class ModelNew("), "own")


@pytest.fixture(scope="module")
def judgement():
    return verdict_on(OWN, "linear", replace(QUICK, mutants=True))


def test_a_record_is_json_and_holds_texts_hashes_seeds_and_scores(judgement):
    record = json.loads(json.dumps(judgement.record, allow_nan=False))
    assert record["verdict"] == "CORRECT"
    assert record["problem"]["source"] == problem("linear").source
    assert len(record["candidate"]["sha256"]) == 64
    assert set(record["seeds"]) >= {"model", "examine"}
    assert {trial["family"] for trial in record["trials"]} >= {"own", "zero_mean"}
    assert record["isolation"] == judgement.isolation


def test_replaying_gives_the_same_trials_and_scores(judgement):
    keep_workers()
    again = replay(json.loads(json.dumps(judgement.record)))
    assert again.verdict is judgement.verdict
    assert again.record["seeds"] == judgement.record["seeds"]
    first, second = judgement.record["trials"], again.record["trials"]
    assert [trial["seed"] for trial in first] == [trial["seed"] for trial in second]
    assert [trial["family"] for trial in first] == [trial["family"] for trial in second]


def test_a_changed_record_is_refused(judgement):
    record = json.loads(json.dumps(judgement.record))
    record["candidate"]["text"] += "\n"
    with pytest.raises(UsageError, match="hash"):
        replay(record)
    with pytest.raises(UsageError, match="version"):
        replay({"version": 0})


def test_seeds_are_never_the_same_twice():
    roots = [verdict_on(Candidate("x = 1"), "linear").record["seeds"] for _ in range(2)]
    assert roots == [{}, {}]
    first, second = (verdict_on(OWN, "linear").record["seeds"] for _ in range(2))
    assert not set(first.values()) & set(second.values())


def test_a_cuda_candidate_without_a_gpu_is_checked_as_far_as_possible_and_then_asks_for_one():
    kernel = 'extern \\"C\\" __global__ void k(float* x) { x[0] = 1; }'
    text = OWN.text + f'\nfrom torch.utils.cpp_extension import load_inline\nSOURCE = "{kernel}"\n'
    with pytest.raises(EnvironmentProblem, match="GPU"):
        judge(problem("linear"), Candidate(text), QUICK, resolve("cpu"))
    h200 = resolve("h200")
    if not h200.present:
        with pytest.raises(EnvironmentProblem, match="not in this machine"):
            judge(problem("linear"), Candidate(text), QUICK, h200)


def test_cuda_sources_that_do_not_compile_are_a_verdict_even_without_a_gpu():
    from kernelwright.judge.sources import _nvcc

    if _nvcc() is None:
        pytest.skip("no nvcc here")
    text = OWN.text + '\nSOURCE = "__global__ void k() { int x = nowhere; }"\n'
    found = judge(problem("linear"), Candidate(text), QUICK, resolve("cpu"))
    assert found.verdict is Verdict.COMPILE_ERROR
    assert "nowhere" in found.detail


def test_a_policy_names_what_it_does_not_know():
    with pytest.raises(UsageError, match="no family"):
        Policy(families=("own", "everything"))
    with pytest.raises(UsageError, match="no baseline"):
        Policy(baselines=("numpy",))
    assert Label.MUTATES_INPUTS in Policy().forbid
