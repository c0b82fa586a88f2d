"""Honest candidates that must pass, beside a few near them that must not."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.judge import Candidate, Judgement, Label, Policy, Speed, Verdict, contest, extract, judge, process
from kernelwright.load import Problem
from tests.cheats.court import PROBLEMS, QUICK, TIMED, candidate, cpu, keep_workers, verdict_on

HERE = Path(__file__).parent
EVERY_FAMILY = replace(QUICK, families=type(QUICK)().families)

HONEST = (
    ("p01_honest_kernel", "rectify"),
    ("p03_one_accumulator", "matmul"),
    ("p04_suspicious_words", "rectify"),
    ("p07_static_workspace", "rectify"),
    ("p08_strided_output", "rectify"),
    ("p09_packs_weights", "linear"),
    ("p11_online_softmax", "softmax_wide"),
    ("p12_infinities", "masked"),
    ("welford", "layernorm"),
    ("split_halves", "matmul"),
    ("batchnorm_by_hand", "batchnorm"),
    ("batchnorm_puts_new_buffers", "batchnorm"),
    ("dropout_same_generator", "dropout"),
    ("dropout_own_numbers", "dropout"),
    ("linear_dropout_own_mask", "linear_dropout"),
    ("argmax_of_ties", "argmax"),
    ("sort_with_other_rounding", "sort"),
    ("subclass_in_file", "linear"),
    ("renamed_weights", "linear"),
    ("numpy_inside", "rectify"),
    ("threads_that_are_joined", "linear"),
    ("float64_inside", "linear"),
    ("packs_when_the_version_changes", "linear"),
    ("memory_taken_again_when_free", "linear"),
    ("modes_of_autograd", "linear"),
    ("winograd", "convolution"),
    ("convolution_by_fft", "convolution"),
    ("last_of_ties", "argmax"),
    ("last_of_own_ties", "ties"),
    ("quantised_by_hand", "quantised"),
    ("softmax_of_half_in_float", "softmax_half"),
    ("norm_dropout_by_hand", "norm_dropout"),
)
ALMOST = (
    ("batchnorm_forgets", "batchnorm"),
    ("batchnorm_without_statistics", "batchnorm"),
    ("dropout_left_out", "dropout"),
    ("argmax_off_by_one", "argmax"),
    ("sort_off_by_one", "sort"),
)


@pytest.mark.parametrize(("name", "task"), HONEST)
def test_an_honest_candidate_is_correct(name: str, task: str) -> None:
    judgement = verdict_on(candidate(HERE, name), task, EVERY_FAMILY)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


@pytest.mark.slow
@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize(("name", "task"), [("threads_of_a_pool", "rectify"), ("openmp_that_spins", "means")])
def test_threads_that_stay_between_calls_are_no_fault(name: str, task: str) -> None:
    judgement = verdict_on(candidate(HERE, name), task, replace(TIMED, families=EVERY_FAMILY.families))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None


def test_statistics_that_hang_on_chance_are_those_of_the_candidates_own_numbers() -> None:
    judgement = verdict_on(candidate(HERE, "dropout_norm_own_numbers"), "dropout_norm", TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


@pytest.mark.parametrize(("name", "task"), ALMOST)
def test_a_candidate_that_is_almost_right_is_incorrect(name: str, task: str) -> None:
    judgement = verdict_on(candidate(HERE, name), task)
    assert judgement.verdict is Verdict.INCORRECT, judgement.detail


def test_a_kernel_of_its_own_is_seen() -> None:
    judgement = verdict_on(candidate(HERE, "p01_honest_kernel"), "rectify")
    assert Label.NO_CUSTOM_KERNEL not in judgement.labels


def test_importing_the_problem_is_allowed_and_labelled() -> None:
    judgement = verdict_on(candidate(HERE, "imports_the_model"), "linear")
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert Label.IMPORTS_REFERENCE in judgement.labels


def test_keeping_the_original_in_the_file_is_not_importing_it() -> None:
    judgement = verdict_on(candidate(HERE, "subclass_in_file"), "linear")
    assert Label.IMPORTS_REFERENCE not in judgement.labels


def test_weights_that_cannot_be_handed_over_are_made_by_the_same_seed() -> None:
    judgement = verdict_on(candidate(HERE, "weights_by_seed"), "linear")
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert Label.WEIGHTS_BY_SEED in judgement.labels


def test_random_numbers_of_its_own_generator_are_fresh_in_each_call() -> None:
    judgement = verdict_on(candidate(HERE, "dropout_own_generator"), "dropout", TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


def test_random_numbers_that_follow_from_the_seed_are_seen_to() -> None:
    judgement = verdict_on(candidate(HERE, "dropout_own_numbers"), "dropout", TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert Label.UNSEEDED not in judgement.labels


@pytest.mark.parametrize("task", ["norm_dropout", "moments", "ties", "exponential"])
def test_a_model_with_chance_state_ties_or_weights_is_timed_against_itself(task: str) -> None:
    text = (PROBLEMS / f"{task}.py").read_text().replace("class Model(", "class ModelNew(")
    judgement = verdict_on(Candidate(text), task, replace(TIMED, families=EVERY_FAMILY.families))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None


def test_where_others_disturb_everybody_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_workers()
    monkeypatch.setattr(process._shared[-1], "busy", False)
    monkeypatch.setattr(contest, "DISTURBED", 0.0)
    text = (PROBLEMS / "linear_timed.py").read_text().replace("class Model(", "class ModelNew(")
    judgement = verdict_on(Candidate(text), "linear_timed", TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.record["started_again"]
    assert judgement.record["environment"]["busy"] is True
    assert judgement.speedup["eager"].median > 0


def test_an_output_that_chance_has_no_part_in_is_timed_beside_one_that_it_has() -> None:
    judgement = verdict_on(candidate(HERE, "norm_dropout_by_hand"), "norm_dropout", TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("torch.nn.functional.dropout(x, 0.01)", "x * (torch.rand(x.shape, generator=G) >= 0.01) / 0.99"),
        ("torch.nn.functional.dropout(x, 1e-3)", "x * (torch.rand(x.shape, generator=G) >= 1e-3) / 0.999"),
        ("torch.nn.functional.dropout(x, 0.3).mean()", "(x * (torch.rand(x.shape, generator=G) >= 0.3)).mean() / 0.7"),
        ("torch.poisson(x * 4)", "torch.poisson(x * 4, generator=G)"),
        ("x + torch.bernoulli(x) / 1000", "x + (torch.rand(x.shape, generator=G) < x) / 1000"),
        ("x[torch.randperm(len(x))]", "x[torch.randperm(len(x), generator=G)]"),
        ("x * torch.rand(())", "x * torch.rand((), generator=G)"),
    ],
    ids=["rare events", "very rare events", "scalar", "counts", "values close by", "order", "one number for all"],
)
def test_chance_of_its_own_is_right_whatever_it_is(tmp_path: Path, theirs: str, ours: str) -> None:
    """Few numbers, and events that are rare, differ more from day to day."""
    problem = HEAD.format("", theirs) + INPUTS.format("")
    own = "G = torch.Generator()\nG.seed()\n\nclass ModelNew(torch.nn.Module):"
    fresh = HEAD.format("", ours).replace("class Model(torch.nn.Module):", own)
    keep_workers()
    policy = replace(TIMED, families=("own",), budget_s=3)
    judgement = judge(Problem("here", problem, tmp_path / "here.py"), Candidate(fresh), policy, cpu())
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.record["by_distribution"]


@pytest.mark.parametrize(("name", "task"), [("argmax_of_ties", "argmax"), ("p08_strided_output", "rectify")])
def test_outputs_that_are_not_one_dense_tensor_are_timed_too(name: str, task: str) -> None:
    judgement = verdict_on(candidate(HERE, name), task, TIMED)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None


def test_a_strided_output_is_labelled() -> None:
    judgement = verdict_on(candidate(HERE, "p08_strided_output"), "rectify")
    assert Label.STRIDED_OUTPUT in judgement.labels


def test_the_reference_against_itself_is_neither_faster_nor_slower() -> None:
    """How often it is the same is measured by benchmarks/judge_gpu_cases.py: a busy machine must not decide a test."""
    text = (PROBLEMS / "linear_timed.py").read_text().replace("class Model(", "class ModelNew(")
    judgement = verdict_on(Candidate(text), "linear_timed", replace(TIMED, budget_s=9))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed in (Speed.SAME, Speed.INCONCLUSIVE), (judgement.speedup, judgement.record["noise"])


def test_twice_the_work_is_not_faster_and_if_slower_then_by_about_two() -> None:
    judgement = verdict_on(candidate(HERE, "p02_twice_the_work"), "linear_timed", replace(TIMED, budget_s=9))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not Speed.FASTER, judgement.speedup
    if judgement.speed is Speed.SLOWER:
        assert 0.3 < judgement.speedup["eager"].median < 0.8, judgement.speedup


def test_a_problem_whose_output_is_noise_is_called_weak() -> None:
    text = (PROBLEMS / "weak.py").read_text().replace("class Model(", "class ModelNew(")
    judgement = verdict_on(extract(text, ".py"), "weak", replace(QUICK, mutants=True))
    assert Label.WEAK_TASK in judgement.labels
    assert "zeros" in judgement.record["known_bad"]["constant"]


def test_a_problem_with_a_real_output_kills_every_known_bad_answer() -> None:
    text = (PROBLEMS / "linear.py").read_text().replace("class Model(", "class ModelNew(")
    judgement = verdict_on(extract(text, ".py"), "linear", replace(EVERY_FAMILY, mutants=True))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.kill_rate == 1.0, judgement.record["known_bad"]
    assert Label.WEAK_TASK not in judgement.labels


def own_model(tmp_path: Path, source: str, policy: Policy = QUICK) -> Judgement:
    """A problem written here, judged against itself."""
    keep_workers()
    task = Problem("here", source, tmp_path / "here.py")
    return judge(task, Candidate(source.replace("class Model(", "class ModelNew(")), policy, cpu())


HEAD = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x{}):\n        return {}\n"
INPUTS = "\ndef get_inputs():\n    return [torch.rand(12, 20){}]\n"


@pytest.mark.parametrize(
    ("arguments", "expression", "inputs"),
    [
        ("", "x.t()", ""),
        ("", "x.mul_(2).add_(1)", ""),
        (", k", "x[:, :k] * 0.5", ", 7"),
        (", ys", "x + ys[0] * ys[1]['s']", ", [torch.rand(20), {'s': 2.0}]"),
        ("", "{'sum': x.sum(), 'parts': (x.mean(0), [x.argmax(1)])}", ""),
        ("", "(x > 0.5, x.half(), x.double().exp(), (x * 100).long())", ""),
        ("", "float(x.sum())", ""),
        ("", "x[:, :0]", ""),
        ("", "x.new_zeros(3)", ""),
        (", k", "x * k", ", float(torch.rand(()))"),
        (
            ", y",
            "torch.nn.functional.avg_pool2d(y, 2)",
            ", torch.rand(2, 4, 8, 8).to(memory_format=torch.channels_last)",
        ),
        (", y", "x + y.float()[:20]", ", torch.rand(24).to(torch.float8_e4m3fn)"),
    ],
    ids=[
        *("view", "in place", "scalar", "nested", "dictionary", "dtypes", "number", "empty", "constant"),
        *("another number each time", "channels last", "eight bits"),
    ],
)
def test_a_model_against_itself_is_correct_whatever_it_takes_and_gives(
    tmp_path: Path, arguments: str, expression: str, inputs: str
) -> None:
    judgement = own_model(tmp_path, HEAD.format(arguments, expression) + INPUTS.format(inputs))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


def test_inputs_come_in_the_order_of_memory_that_the_problem_gives_them(tmp_path: Path) -> None:
    """Who planned for it must not be judged by what it does for another."""
    keep_workers()
    inputs = "\ndef get_inputs():\n    return [torch.rand(2, 4, 8, 8).to(memory_format=torch.channels_last)]\n"
    task = Problem("here", HEAD.format("", "x + 1") + inputs, tmp_path / "here.py")
    only_there = HEAD.format("", "x + int(x.stride() == (256, 1, 32, 4))").replace("Model(", "ModelNew(")
    judgement = judge(task, Candidate(only_there), QUICK, cpu())
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


@pytest.mark.parametrize(
    ("expression", "inputs"),
    [("x[:, :1] * y.sum()", ", torch.rand(int(torch.randint(3, 99, ())))"), ("x.to(torch.float8_e4m3fn)", "")],
    ids=["other shapes each time", "eight bits"],
)
def test_what_cannot_be_compared_is_the_problems_fault(tmp_path: Path, expression: str, inputs: str) -> None:
    arguments = ", y" if inputs else ""
    judgement = own_model(tmp_path, HEAD.format(arguments, expression) + INPUTS.format(inputs))
    assert judgement.verdict is Verdict.BAD_REFERENCE, judgement.detail


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ("{'b': x + 1, 'a': int((x < 2).sum()) * 3000}", Verdict.CORRECT),
        ("{'a': int((x < 2).sum()) * 3000 + 1, 'b': x + 1}", Verdict.INCORRECT),
    ],
    ids=["another order of keys", "a count off by one"],
)
def test_dictionaries_have_no_order_and_counts_are_exact(tmp_path: Path, theirs: str, verdict: Verdict) -> None:
    inputs = "\ndef get_inputs():\n    return [torch.rand(12, 20)]\n"
    source = HEAD.format("", "{'a': int((x < 2).sum()) * 3000, 'b': x + 1}") + inputs
    other = Candidate(HEAD.format("", theirs).replace("class Model(", "class ModelNew("))
    keep_workers()
    judgement = judge(Problem("here", source, tmp_path / "here.py"), other, replace(QUICK, families=("own",)), cpu())
    assert judgement.verdict is verdict, judgement.detail


def test_complex_numbers_are_summed_in_any_order(tmp_path: Path) -> None:
    inputs = ", torch.randn(20, 500, dtype=torch.complex64), torch.randn(500, 20, dtype=torch.complex64)"
    source = HEAD.format(", y, z", "y @ z") + INPUTS.format(inputs)
    other = Candidate(HEAD.format(", y, z", "y.flip(1) @ z.flip(0)").replace("class Model(", "class ModelNew("))
    keep_workers()
    judgement = judge(Problem("here", source, tmp_path / "here.py"), other, QUICK, cpu())
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


def test_a_habit_of_the_reference_is_no_fault_of_the_candidate(tmp_path: Path) -> None:
    judgement = own_model(tmp_path, HEAD.format("", "x.mul_(2)") + INPUTS.format(""))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert not {Label.MUTATES_INPUTS, Label.ALIASES_INPUT} & set(judgement.labels)


def test_a_problem_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def twice(x):\n    return x * 2\n")
    source = "from doubling import twice\n" + HEAD.format("", "twice(x)") + INPUTS.format("")
    keep_workers()
    honest = Candidate(HEAD.format("", "x + x").replace("class Model(", "class ModelNew("))
    judgement = judge(Problem("here", source, tmp_path / "here.py"), honest, replace(TIMED, budget_s=3), cpu())
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None, judgement.record["left_out"]


def test_a_problem_that_says_cuda_is_judged_on_a_cpu(tmp_path: Path) -> None:
    source = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.scale = torch.nn.Parameter(torch.ones(20, device='cuda'))\n\n    def forward(self, x):\n"
        "        return x * self.scale\n\ndef get_inputs():\n    return [torch.rand(12, 20).cuda()]\n"
    )
    judgement = own_model(tmp_path, source, replace(TIMED, budget_s=3))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None


@pytest.mark.parametrize("timed", [False, True])
def test_a_problem_may_ask_for_numbers_of_a_range(tmp_path: Path, timed: bool) -> None:
    """Most families leave it, and the reference raises there; that is nobody's fault."""
    source = HEAD.format(", p", "torch.nn.functional.binary_cross_entropy(x, p)") + INPUTS.format(
        ", torch.rand(12, 20)"
    )
    judgement = own_model(tmp_path, source, replace(TIMED, budget_s=2) if timed else EVERY_FAMILY)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert {"family": "zero_mean", "why": "the reference raises RuntimeError there"} in judgement.record["dropped"]


@pytest.mark.parametrize(
    "expression", ["(x * 2, x.t())", "{'sum': x.sum(), 'parts': [x.argmax(1)]}", "float(x.sum())", "x[:, ::2]"]
)
def test_a_model_is_timed_whatever_it_gives(tmp_path: Path, expression: str) -> None:
    judgement = own_model(tmp_path, HEAD.format("", expression) + INPUTS.format(""), replace(TIMED, budget_s=2))
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert judgement.speed is not None, judgement.record["left_out"]


def test_a_large_problem_is_judged_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.judge.case.COPIES", 1 << 30)
    source = HEAD.format("", "torch.softmax(x, 1)") + "\ndef get_inputs():\n    return [torch.rand(40, 600)]\n"
    policy = replace(TIMED, budget_s=3, families=("own", "zero_mean", "last_spike"))
    right = own_model(tmp_path, source, policy)
    assert right.verdict is Verdict.CORRECT, right.detail
    assert right.speed is not None
    wrong = source.replace("class Model(", "class ModelNew(").replace(
        "(x, 1)", "(x, 1) * (1 + (x[:, :1] < 0.02) * 1e-3)"
    )
    keep_workers()
    judgement = judge(Problem("here", source, tmp_path / "here.py"), Candidate(wrong), policy, cpu())
    assert judgement.verdict is Verdict.INCORRECT, judgement.detail


def test_a_candidate_for_one_shape_only_is_labelled() -> None:
    text = (PROBLEMS / "rectify.py").read_text().replace("class Model(", "class ModelNew(")
    fixed = text.replace("        return", "        assert x.shape == (31, 37) and x.is_contiguous()\n        return")
    labels = verdict_on(Candidate(fixed), "rectify", replace(QUICK, robustness=True)).labels
    assert {Label.SHAPE_SPECIALISED, Label.CONTIGUOUS_ONLY} <= set(labels)
    assert Label.ALIGNED_ONLY not in labels
    free = verdict_on(Candidate(text), "rectify", replace(QUICK, robustness=True)).labels
    assert not {Label.SHAPE_SPECIALISED, Label.CONTIGUOUS_ONLY, Label.ALIGNED_ONLY} & set(free)
