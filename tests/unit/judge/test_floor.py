"""The least a call must move: outputs, and of the inputs what matters."""

from dataclasses import replace
from pathlib import Path

from kernelwright.device import resolve
from kernelwright.judge import Policy
from kernelwright.judge.case import open_case
from kernelwright.judge.floor import needed_bytes
from kernelwright.judge.large import Rows
from kernelwright.judge.seeds import Seeds
from kernelwright.load import Problem

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(512, 64), torch.rand(64, 64)]
"""


def test_an_operand_that_all_rows_read_counts_once():
    """Judged some rows at a time, a matrix that is given whole is not as large as there are pieces."""
    case = open_case(Problem("product", SOURCE, Path("product.py")), Policy(), resolve("cpu"), Seeds(1))
    whole = 4 * (512 * 64 + 512 * 64 + 64 * 64)
    assert needed_bytes(case) == whole
    assert needed_bytes(replace(case, rows=Rows(512, (0,), 64))) == whole


def test_a_batch_of_none_needs_nothing():
    source = SOURCE.replace("torch.rand(512, 64), ", "torch.rand(0, 64), ")
    case = open_case(Problem("product", source, Path("product.py")), Policy(), resolve("cpu"), Seeds(1))
    assert needed_bytes(case) == 0
