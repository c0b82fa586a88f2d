"""What each stage makes of seventeen examples, kept as text: a change shows here as a diff to read.

    pytest tests/golden --update-golden        writes the files anew; read the diff before you commit it

Each example has a folder: captured.txt and simplified.txt (the graph), plan.txt, kernels.cu (what is generated, without
the headers that are inlined before it) and emitted.txt (the whole file, without those headers).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.device import resolve
from kernelwright.ir.text import graph_text
from kernelwright.plan.text import plan_text
from tests.stages import captured, emitted, generated, planned, simplified

FOLDER = Path(__file__).parent

# Graphs are those of this version of torch.export; another one may order or name operators otherwise.
TORCH = FOLDER / "torch.txt"

NAMES = (
    "adam_step",
    "batchnorm_residual",
    "broadcasting",
    "conv_divide_leakyrelu",
    "cumsum_between",
    "geglu",
    "half_activations",
    "layernorm_gate",
    "linear_relu_divide",
    "masks_and_labels",
    "mixed_dtypes",
    "odd_sizes",
    "permuted_operands",
    "running_statistics",
    "sliced_stencil",
    "token_embedding",
    "upsample_skip",
)

GENERATED = "// --- generated: one struct a kernel"
LEFT_OUT = "// (the headers that are inlined here are in kernelwright/kernels)\n\n"


def kernels(name: str) -> str:
    text = generated(name, "h200").text
    return text[text.index(GENERATED) :]


def file_without_headers(name: str) -> str:
    text = emitted(name, "h200")
    begin, end = text.index('KERNELS = r"""\n') + len('KERNELS = r"""\n'), text.index(GENERATED)
    return text[:begin] + LEFT_OUT + text[end:]


STAGES: dict[str, Callable[[str], str]] = {
    "captured.txt": lambda name: graph_text(captured(name)),
    "simplified.txt": lambda name: graph_text(simplified(name)),
    "plan.txt": lambda name: plan_text(planned(name), resolve("h200")),
    "kernels.cu": kernels,
    "emitted.txt": file_without_headers,
}


@pytest.fixture(scope="module")
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to write the files; otherwise they must have been written with this version of torch."""
    version = ".".join(torch.__version__.split(".")[:2])
    if request.config.getoption("--update-golden"):
        TORCH.write_text(f"{version}\n")
        return True
    if not TORCH.exists() or TORCH.read_text().strip() != version:
        pytest.skip(f"the golden files are not those of torch {version}")
    return False


@pytest.mark.parametrize("file", STAGES)
@pytest.mark.parametrize("name", NAMES)
def test_the_stage_makes_what_it_made(name: str, file: str, update: bool) -> None:
    path = FOLDER / name / file
    now = STAGES[file](name)
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    assert path.exists(), f"{path} is missing: run pytest tests/golden --update-golden"
    assert now.splitlines() == path.read_text().splitlines()


def test_nothing_is_kept_of_what_is_gone() -> None:
    """A folder or file that no test compares would grow old unseen."""
    kept = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*") if "__pycache__" not in path.parts}
    assert kept <= {f"{name}/{file}" for name in NAMES for file in STAGES}
