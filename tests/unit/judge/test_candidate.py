"""What can be read off a candidate's text."""

import pytest

from kernelwright.judge import Candidate, extract
from kernelwright.judge.candidate import read_facts

MODEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def block(text: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{text}{fence}\n"


def test_a_python_file_is_taken_whole():
    assert extract(MODEL, ".py") == Candidate(MODEL)


def test_the_last_block_that_defines_the_class_counts():
    answer = (
        "Draft:\n" + block(MODEL + "# one\n") + "Final:\n" + block(MODEL + "# two\n") + "Run:\n" + block("pip\n", "sh")
    )
    taken = extract(answer, ".md")
    assert taken.text.endswith("# two\n")
    assert taken.origin == "code block 2 of 3, 2 of them define ModelNew"


@pytest.mark.parametrize("fetched", ["from kernel import ModelNew\n", "import kernel\nModelNew = kernel.ModelNew\n"])
def test_a_block_that_shows_how_to_use_the_class_does_not_define_it(fetched: str):
    usage = fetched + "model = ModelNew()\n"
    assert extract(block(MODEL) + "Use it so:\n" + block(usage), ".md").text == MODEL
    assert extract("Mine is elsewhere:\n" + block(usage), ".md").text == usage, "where there is no other"


def test_a_block_in_a_list_is_moved_to_the_margin():
    inside = "".join(f"   {line}\n" for line in (block(MODEL)).splitlines())
    assert extract("1. The kernel:\n\n" + inside + "2. Done.\n", ".md").text == MODEL


def test_a_block_that_breaks_off_does_not_count():
    answer = block(MODEL) + "Then\n" + block("class ModelNew(torch.nn.Module):\n    def forward(self, x\n")
    assert extract(answer, ".md").text == MODEL


def test_other_fences_and_indents_are_understood():
    assert extract("text\n" + block(MODEL, "", "~~~~"), ".txt").text == MODEL
    assert "ModelNew" in extract("1. code\n   ```py\n" + MODEL + "   ```\n", ".md").text


def test_an_answer_that_was_saved_as_python_is_still_an_answer():
    taken = extract("Here it is:\n" + block(MODEL) + "Done.\n", ".py")
    assert taken.text == MODEL
    quoted = f'"""An example:\n{block(MODEL)}"""\nx = 1\n'
    assert extract(quoted, ".py").text == quoted, "what is Python is no answer"


def test_a_last_block_that_nothing_closes_is_taken_if_it_is_whole():
    assert extract("Here it is:\n```python\n" + MODEL, ".md").text == MODEL
    cut = block(MODEL) + "Better:\n```python\n" + MODEL + "# not closed\n"
    assert extract(cut, ".md").text == MODEL, "a complete one comes first"


def test_bare_code_in_a_text_file_is_taken():
    assert extract(MODEL, ".txt").text == MODEL


def test_an_answer_without_the_class_is_taken_as_it_is_and_said_so():
    taken = extract("Sorry.\n" + block("x = 1\n"), ".md")
    assert "none defines ModelNew" in taken.origin
    assert "does not define ModelNew" in read_facts(taken).problem


@pytest.mark.parametrize(
    "text",
    [
        "ModelNew = torch.compile\n",
        "from kernels import ModelNew\n",
        "if True:\n    class ModelNew: ...\n",
        "ModelNew: type = object\n",
        "ModelNew, other = object, 1\n",
        "globals()['ModelNew'] = object\n",
        "\ufeffclass ModelNew: ...\n",
    ],
)
def test_other_ways_to_bind_the_class_are_seen(text: str):
    assert read_facts(Candidate(text)).problem == ""


def test_importing_the_problem_is_seen_and_a_class_of_that_name_is_not_an_import():
    assert read_facts(Candidate("from model import Model\n" + MODEL)).imports_reference
    assert read_facts(Candidate("import model\n" + MODEL)).imports_reference
    assert not read_facts(Candidate("class Model: ...\n" + MODEL)).imports_reference


def test_cuda_sources_are_seen():
    assert read_facts(Candidate(MODEL + 'SOURCE = "__global__ void k() {}"\n')).cuda
    assert not read_facts(Candidate(MODEL + "import ctypes\n")).cuda
