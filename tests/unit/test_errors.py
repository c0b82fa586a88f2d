"""The exception tree: messages, cures, exit codes and the way through a pickle."""

import pickle

import pytest

from kernelwright import errors
from kernelwright.errors import BuildError, KernelwrightError, UnsupportedProblem

EXIT_CODES = {
    "KernelwrightError": 3,
    "InternalError": 3,
    "BuildError": 3,
    "UsageError": 2,
    "BadProblem": 2,
    "EnvironmentProblem": 4,
    "NothingToDo": 5,
    "UnsupportedProblem": 5,
}


def test_every_public_error_has_the_exit_code_the_command_line_promises():
    assert {name: getattr(errors, name).exit_code for name in errors.__all__} == EXIT_CODES


def test_the_tree_in_the_docstring_names_every_error_with_its_exit_code():
    drawn = {line.replace("|", " ").replace("`-", " ").replace("-", " ").split()[0:2][0] for line in _tree_lines()}
    assert drawn == set(errors.__all__)
    for line in _tree_lines():
        name, code = line.replace("|", " ").replace("`-", " ").replace("-", " ").split()[:2]
        assert int(code) == EXIT_CODES[name]


def _tree_lines() -> list[str]:
    return [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]


def test_a_message_says_where_what_and_the_cure():
    error = UnsupportedProblem("get_inputs() returned a dict.", where="level2/17.py", cure="Return a list.")
    assert str(error) == "level2/17.py: get_inputs() returned a dict.\n  Return a list."


def test_a_message_without_place_or_cure_is_one_line():
    assert str(KernelwrightError("it broke.")) == "it broke."


def test_a_build_error_shows_the_source_line_it_points_at():
    error = BuildError("x is undefined", where="kernel.cu", source_line="    y = x;", line_number=7, log="everything")
    assert str(error) == "kernel.cu: x is undefined\n  7 | y = x;"
    assert (error.first_error, error.log) == ("x is undefined", "everything")


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedProblem("what", where="where", cure="cure"),
        BuildError("what", where="where", source_line="line", line_number=3, log="log", cure="cure"),
    ],
)
def test_an_error_comes_whole_through_a_pickle(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
