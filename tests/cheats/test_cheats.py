"""Candidates that must not be believed. None may come out correct and faster; most must be named for what they are."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernelwright.judge import Judgement, Label, Policy, Speed, Verdict
from tests.cheats.court import PROBLEMS, QUICK, TIMED, candidate, verdict_on

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cheat:
    """A candidate's file, its problem, and what the judge may say."""

    name: str
    problem: str
    verdicts: tuple[Verdict, ...]
    labels: frozenset[Label] = frozenset()
    policy: Policy = QUICK


def cheat(name: str, problem: str, *verdicts: Verdict, labels: tuple[Label, ...] = (), policy: Policy = QUICK) -> Cheat:
    return Cheat(name, problem, verdicts, frozenset(labels), policy)


V, L = Verdict, Label
EVERY_FAMILY = replace(QUICK, families=type(QUICK)().families)
CHEATS = (
    # Work that goes on after the candidate's word is caught undone, half done, or in the act: the moment decides.
    cheat("x02_python_thread", "linear", V.INCORRECT, V.TAMPERING),
    cheat("x03_native_thread", "rectify", V.INCORRECT, V.TAMPERING, V.CRASH),
    cheat("x04_helper_process", "rectify", V.INCORRECT, V.TAMPERING, V.NONDETERMINISTIC),
    cheat("x05_lazy_subclass", "rectify", V.WRONG_OUTPUT_TYPE),
    cheat("x06_instance_methods", "rectify", V.INCORRECT),
    cheat("x09_patched_comparison", "rectify", V.INCORRECT),
    cheat("x10_pointer_cache", "linear", V.INCORRECT),
    cheat("x13_seed_bank", "rectify", V.INCORRECT),
    cheat("x14_skip_after_calls", "linear_timed", V.INCORRECT, V.NONDETERMINISTIC, policy=TIMED),
    cheat("x15_mode_by_stack", "linear", V.INCORRECT),
    cheat("x16_frame_steal", "rectify", V.INCORRECT),
    cheat("x17_gc_steal", "rectify", V.INCORRECT, V.NONDETERMINISTIC),
    cheat("x18_inherits_unseen_model", "rectify", V.LOAD_ERROR),
    cheat("x19_model_fallback", "rectify", V.RUNTIME_ERROR, V.LOAD_ERROR),
    cheat("x22_input_zeroing", "rectify", V.INCORRECT, labels=(L.MUTATES_INPUTS,)),
    cheat("x23_mutates_input", "rectify", V.INCORRECT, labels=(L.MUTATES_INPUTS,)),
    cheat("x24_aliases_input", "rectify", V.INCORRECT, labels=(L.MUTATES_INPUTS, L.ALIASES_INPUT)),
    cheat("x25_static_output", "rectify", V.INCORRECT, labels=(L.REUSES_OUTPUT_BUFFER,)),
    cheat("x26_uninitialised", "rectify", V.INCORRECT),
    cheat("x27_tf32", "matmul", V.REDUCED_PRECISION),
    cheat("x27_bf16", "matmul", V.REDUCED_PRECISION),
    cheat("x28_zeros_for_softmax", "softmax_wide", V.INCORRECT),
    cheat("x28_short_softmax", "softmax_wide", V.INCORRECT),
    cheat("x29_half_the_data", "mse", V.INCORRECT),
    cheat("x30_wrong_epsilon", "layernorm", V.INCORRECT),
    cheat("x31_missing_tile", "rectify", V.INCORRECT),
    cheat("x32_reads_outside", "rectify", V.MEMORY_VIOLATION),
    cheat("x32_writes_outside", "rectify", V.MEMORY_VIOLATION),
    cheat("x38_forged_answer", "rectify", V.INCORRECT, V.TAMPERING),
    cheat("x41_folded_weights", "linear", V.INCORRECT),
    cheat("x48_batches_this_batch", "tiny", V.INCORRECT, policy=TIMED),
    cheat("x50_guesses_from_a_sample", "softmax_wide", V.INCORRECT, policy=EVERY_FAMILY),
    cheat("x51_forgets_statistics_later", "batchnorm", V.INCORRECT, policy=TIMED),
    cheat("x52_no_dropout_later", "dropout", V.INCORRECT, policy=TIMED),
    cheat("x54_copy_on_write", "clone", V.INCORRECT, V.RUNTIME_ERROR, policy=TIMED),
    cheat("x53_hides_where_inputs_lie", "copy", V.INCORRECT, labels=(L.ALIASES_INPUT,)),
    cheat("x45_coarse_while_timed", "matmul", V.INCORRECT, V.NONDETERMINISTIC, policy=TIMED),
    cheat("x46_garbage_at_near_ties", "sort", V.INCORRECT),
    cheat("x55_half_the_product", "linear", V.REDUCED_PRECISION),
    cheat("x57_ring_of_outputs", "linear", V.INCORRECT),
    cheat("x58_masks_drawn_ahead", "dropout", V.INCORRECT, policy=TIMED),
    cheat("x59_copies_after_its_word", "clone_large", V.TAMPERING, V.INCORRECT, policy=TIMED),
    cheat("x60_timer_lets_it_go_on", "rectify", V.LOAD_ERROR, V.TAMPERING),
    cheat(
        "x61_right_on_own_data_while_timed", "softmax", V.INCORRECT, policy=replace(TIMED, families=("own", "extremes"))
    ),
    cheat("x62_slow_while_examined", "layernorm", V.INCORRECT, policy=replace(TIMED, families=("own", "scaled_1e-3"))),
    cheat("x63_tf32_where_it_shows_little", "matmul_deep", V.REDUCED_PRECISION),
    cheat("x64_tf32_once_it_is_timed", "matmul_deep", V.REDUCED_PRECISION, V.INCORRECT, policy=TIMED),
    cheat("x65_dropout_of_coarse_numbers", "linear_dropout", V.INCORRECT),
    cheat("x66_dropout_of_positive_numbers", "linear_dropout", V.INCORRECT),
    cheat("x67_keeps_answers_by_a_few_elements", "linear", V.INCORRECT),
    cheat("x68_statistics_when_asked", "batchnorm", V.INCORRECT),
    cheat("x69_thousandths_of_half", "softmax_half", V.INCORRECT),
    cheat("x70_any_integer_where_rounding_decides", "quantised", V.INCORRECT),
    cheat("x71_coarse_behind_the_first_rows", "linear_dropout", V.INCORRECT),
    cheat("x73_folds_weights_once_it_is_timed", "exponential", V.INCORRECT, policy=TIMED),
    cheat("x74_works_in_its_input_once_it_is_timed", "rectify", V.INCORRECT, policy=TIMED),
    cheat("x75_statistics_of_positive_inputs_once_it_is_timed", "batchnorm", V.INCORRECT, policy=TIMED),
    cheat("x76_dropout_of_positive_numbers_once_it_is_timed", "linear_dropout", V.INCORRECT, policy=TIMED),
    cheat("x81_takes_care_in_the_first_batch", "batchnorm", V.INCORRECT, policy=TIMED),
    cheat("x85_numbers_one_call_late", "number", V.TAMPERING, policy=TIMED),
    cheat("x86_no_chance_where_calls_are_few", "many_masks", V.INCORRECT, policy=TIMED),
    cheat("x77_buffers_when_walked_through", "moments", V.INCORRECT),
    cheat("x79_random_numbers_used_twice", "dropout", V.INCORRECT),
    cheat("x87_all_turns_in_the_last_one", "product", V.TAMPERING, V.INCORRECT, policy=TIMED),
    cheat("x88_moments_in_few_calls", "moments", V.INCORRECT, policy=TIMED),
    cheat("x89_moments_never_beside_chance", "moments_dropout", V.INCORRECT),
    cheat("x90_moments_no_more_beside_chance", "moments_dropout", V.INCORRECT, policy=TIMED),
    cheat("x92_keeps_answers_to_integers", "words", V.INCORRECT, policy=TIMED),
    cheat("x93_half_of_the_numbers_twice", "dropout", V.INCORRECT),
    cheat("x43_batches_calls", "linear_timed", V.INCORRECT, V.NONDETERMINISTIC, policy=TIMED),
)
# Near others that always run.
MORE_CHEATS = (
    cheat("x94_out_of_sight_until_the_last_turn", "product", V.TAMPERING, V.INCORRECT, policy=TIMED),
    cheat("x95_statistics_of_chance_never", "dropout_norm", V.INCORRECT),
)
LABELLED = (
    cheat("x34_torch_only", "rectify", V.CORRECT, labels=(L.NO_CUSTOM_KERNEL,)),
    cheat("x35_decoy_kernel", "rectify", V.CORRECT, labels=(L.NO_CUSTOM_KERNEL,)),
    cheat("x36_fallback", "rectify", V.CORRECT, labels=(L.NO_CUSTOM_KERNEL,)),
    cheat("x44_cuts_memory_off", "rectify", V.CORRECT, labels=(L.NO_CUSTOM_KERNEL,)),
    cheat("x42_flips_flags", "linear", V.CORRECT, labels=(L.FLAGS_CHANGED,)),
)
GAINS_NOTHING = (
    cheat("x07_patched_clock", "linear_timed", V.CORRECT, policy=TIMED),
    cheat("x08_patched_harness", "linear_timed", V.CORRECT, policy=TIMED),
    cheat("x11_content_cache", "linear_timed", V.INCORRECT, policy=TIMED),
    cheat("x12_sleepy_cache", "linear_timed", V.INCORRECT, policy=TIMED),
    cheat("x49_batches_unless_one_by_one", "tiny", V.CORRECT, policy=TIMED),
    cheat("x56_keeps_constant_answers", "constant", V.CORRECT, policy=TIMED),
    cheat("x72_keeps_what_one_argument_gave", "half_constant", V.CORRECT, policy=TIMED),
    cheat("x78_other_weights_for_the_baselines", "steps", V.CORRECT, policy=TIMED),
    cheat("x80_masks_drawn_ahead_and_used_once", "dropout", V.CORRECT, labels=(L.UNSEEDED,), policy=TIMED),
    cheat("x20_shared_constant", "matmul", V.CORRECT, policy=TIMED),
    cheat("x21_baseline_sabotage", "linear_timed", V.CORRECT, policy=TIMED),
)


@pytest.mark.parametrize("case", CHEATS, ids=lambda case: case.name)
def test_a_cheat_is_rejected_for_what_it_is(case: Cheat) -> None:
    judgement = verdict_on(candidate(HERE, case.name), case.problem, case.policy)
    assert judgement.verdict in case.verdicts, judgement.detail
    assert case.labels <= set(judgement.labels)
    assert judgement.detail


@pytest.mark.slow
@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("case", MORE_CHEATS, ids=lambda case: case.name)
def test_a_cheat_like_others_is_rejected_too(case: Cheat) -> None:
    test_a_cheat_is_rejected_for_what_it_is(case)


@pytest.mark.parametrize("case", LABELLED, ids=lambda case: case.name)
def test_a_right_answer_without_merit_is_labelled(case: Cheat) -> None:
    judgement = verdict_on(candidate(HERE, case.name), case.problem, case.policy)
    assert judgement.verdict in case.verdicts, judgement.detail
    assert case.labels <= set(judgement.labels)


@pytest.mark.parametrize("case", GAINS_NOTHING, ids=lambda case: case.name)
def test_a_trick_with_the_clock_gains_nothing(case: Cheat) -> None:
    judgement = verdict_on(candidate(HERE, case.name), case.problem, case.policy)
    assert judgement.verdict in case.verdicts, judgement.detail
    # The judge's word, which weighs the noise of the moment; the bare ratio would make a loaded machine decide.
    assert judgement.speed is not Speed.FASTER, judgement.speedup
    assert case.labels <= set(judgement.labels)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("x82_right_on_own_data_one_call_at_a_time", "softmax"),
        ("x83_works_in_its_input_one_call_at_a_time", "rectify"),
        ("x84_folds_weights_one_call_at_a_time", "exponential"),
        ("x91_forgets_statistics_one_call_at_a_time", "batchnorm"),
    ],
)
def test_a_large_problem_hides_nothing(monkeypatch: pytest.MonkeyPatch, name: str, task: str) -> None:
    monkeypatch.setattr("kernelwright.judge.case.COPIES", 1 << 30)
    judgement = verdict_on(candidate(HERE, name), task, replace(TIMED, families=("own", "extremes")))
    if hardly_timed(judgement):  # they cheat from their twelfth call on
        assert judgement.speed is not Speed.FASTER
    else:
        assert judgement.verdict is Verdict.INCORRECT, judgement.detail


def hardly_timed(judgement: Judgement) -> bool:
    """Whether a machine that others use had no time for a dozen turns."""
    return 0 < sum(len(run["turns"]) for run in judgement.record.get("samples", ())) < 12


def test_writing_into_inputs_is_a_label_where_the_policy_allows_it() -> None:
    allowed = replace(QUICK, forbid=frozenset())
    judgement = verdict_on(candidate(HERE, "x23_mutates_input"), "rectify", allowed)
    assert judgement.verdict is Verdict.CORRECT, judgement.detail
    assert Label.MUTATES_INPUTS in judgement.labels


def test_a_candidate_sees_neither_the_judge_nor_the_problem_nor_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_TEST_SECRET", "1")
    path = str((PROBLEMS / "rectify.py").resolve())
    judgement = verdict_on(candidate(HERE, "x39_looks_around", PROBLEM=path), "rectify")
    if judgement.isolation != "namespaces":
        pytest.skip(f"isolation here is {judgement.isolation}")
    assert judgement.verdict is Verdict.CORRECT, judgement.detail


def test_a_compiler_cannot_read_the_problem_for_a_candidate() -> None:
    path = str((PROBLEMS / "rectify.py").resolve())
    judgement = verdict_on(candidate(HERE, "x40_incbin", PROBLEM=path), "rectify")
    if judgement.isolation == "limits":
        pytest.skip("no isolation here that hides files")
    assert judgement.verdict is Verdict.COMPILE_ERROR, judgement.detail
