"""Which files of a folder are problems, what they are called, and which of them are run."""

from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.problems import Share, find_problems, narrowed

PROBLEM = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n\n\ndef get_inputs():\n    return []\n"


def folder_with(root: Path, *names: str, text: str = PROBLEM) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_problems_come_in_the_order_people_count(tmp_path: Path) -> None:
    folder_with(tmp_path / "level1", "10_b.py", "2_a.py", "1_c.py")
    names = [problem.name for problem in find_problems([tmp_path / "level1"])]
    assert names == ["level1/1_c", "level1/2_a", "level1/10_b"]


def test_a_file_that_is_no_problem_is_passed_over(tmp_path: Path) -> None:
    folder_with(tmp_path, "problem.py")
    folder_with(tmp_path, "tool.py", "__init__.py", text="x = 1\n")
    folder_with(tmp_path, "broken.py", text="class Model(:\n")
    folder_with(tmp_path, ".venv/model.py")
    folder_with(tmp_path, "problem_new.py", text=PROBLEM + "\n\nclass ModelNew(Model):\n    pass\n")
    assert [problem.path.name for problem in find_problems([tmp_path])] == ["problem.py"]


def test_folders_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    folder_with(tmp_path / "one" / "level1", "1_a.py")
    folder_with(tmp_path / "two" / "level1", "1_a.py")
    names = [p.name for p in find_problems([tmp_path / "one" / "level1", tmp_path / "two" / "level1"])]
    assert names == ["one/level1/1_a", "two/level1/1_a"]


def test_a_folder_given_twice_is_run_once(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.py")
    assert len(find_problems([tmp_path, tmp_path / "a.py"])) == 1


def test_slices_cover_everything_once(tmp_path: Path) -> None:
    problems = find_problems([folder_with(tmp_path, *(f"{i}_x.py" for i in range(11)))])
    parts = [narrowed(problems, (), Share(number, 3), None) for number in (1, 2, 3)]
    assert sorted(p.name for part in parts for p in part) == sorted(p.name for p in problems)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_filter_takes_a_part_of_the_name_or_a_wildcard(tmp_path: Path) -> None:
    problems = find_problems([folder_with(tmp_path / "level2", "1_Conv_Relu.py", "2_Linear.py", "13_Conv.py")])
    assert len(narrowed(problems, ("conv",), None, None)) == 2
    assert [p.path.name for p in narrowed(problems, ("level2/1_*",), None, None)] == ["1_Conv_Relu.py"]
    assert len(narrowed(problems, ("conv", "linear"), None, 2)) == 2


def test_an_empty_folder_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="define Model and get_inputs"):
        find_problems([tmp_path])
