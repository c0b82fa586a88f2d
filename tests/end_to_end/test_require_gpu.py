"""A missing GPU skips the tests marked gpu; --require gpu makes that a failure."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = """\
import pytest


@pytest.mark.gpu
def test_that_skips_itself():
    pytest.skip("for lack of something")


@pytest.mark.gpu
def test_that_uses_it():
    import torch

    torch.zeros(1, device="cuda")


def test_of_another_kind():
    pytest.skip("whatever")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize(("options", "outcome"), [((), "3 skipped"), (("--require", "gpu"), "2 failed, 1 skipped")])
def test_a_missing_gpu_is_a_reason_to_skip_unless_it_is_required(
    tmp_path: Path, options: tuple[str, ...], outcome: str
) -> None:
    shutil.copy(Path(__file__).parent.parent / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: needs one\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert outcome in done.stdout.splitlines()[-1]
