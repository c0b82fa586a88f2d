"""Products with all that the planner can put around them compile for every device, and no kernel spills."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import read_resources
from kernelwright.build.toolchain import has_cuda
from kernelwright.device import resolve
from kernelwright.settings import read_settings
from tests.products import program_of

pytestmark = [
    pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA compiler"),
    pytest.mark.slow,
]

LINEAR = "nn.Linear(1024, 2048)"
HALF_LINEAR = "nn.Linear(1024, 2048).half()"
X = "torch.rand(512, 1024)"

# body, inputs, layer, device, precision, template
CASES: dict[str, tuple[str, tuple[str, ...], str, str, str, str]] = {
    "bias, relu and scale": ("torch.relu(self.layer(x0)) / 2", (X,), LINEAR, "h200", "reference", "gemm_sm90"),
    "gelu and a residual tile": (
        "F.gelu(self.layer(x0)) + x1", (X, "torch.rand(512, 2048)"), LINEAR, "h200", "reference", "gemm_sm90",
    ),
    "row and column operands": (
        "self.layer(x0) * x1 + x2", (X, "torch.rand(512, 1)", "torch.rand(2048)"), LINEAR, "h200", "reference",
        "gemm_sm90",
    ),
    "a float16 result": ("torch.tanh(self.layer(x0)).half()", (X,), LINEAR, "h200", "reference", "gemm_sm90"),
    "two results": (
        "(lambda y: (torch.sigmoid(y), y + 1))(self.layer(x0))", (X,), LINEAR, "h200", "reference", "gemm_sm90",
    ),
    "batches": (
        "torch.relu(torch.bmm(x0, x1))", ("torch.rand(8, 512, 1024)", "torch.rand(8, 1024, 768)"), "None", "h200",
        "reference", "gemm_sm90",
    ),
    "one matrix for all batches": (
        "torch.relu(x0 @ x1)", ("torch.rand(8, 512, 1024)", "torch.rand(1024, 768)"), "None", "h200", "reference",
        "gemm_sm90",
    ),
    "odd sizes": ("torch.relu(x0 @ x1)", ("torch.rand(2949, 2949)", "torch.rand(2949, 2949)"), "None", "h200",
        "reference", "gemm_sm90",
    ),
    "TF32 allowed": (
        "F.gelu(self.layer(x0)) + x1", (X, "torch.rand(512, 2048)"), LINEAR, "h200", "tf32", "gemm_sm90_f16x1",
    ),
    "float16, bias, gelu and residual": (
        "F.gelu(self.layer(x0)) + x1", ("torch.rand(2048, 1024).half()", "torch.rand(2048, 2048).half()"), HALF_LINEAR,
        "h200", "reference", "gemm_sm90_half",
    ),
    "float16 to float32": (
        "self.layer(x0).float() * 2", ("torch.rand(2048, 1024).half()",), HALF_LINEAR, "h200", "reference",
        "gemm_sm90_half",
    ),
    "one row of bfloat16": (
        "torch.relu(self.layer(x0))", ("torch.rand(1, 8192).bfloat16()",), "nn.Linear(8192, 8192).bfloat16()", "h200",
        "reference", "gemm_skinny",
    ),
    "few columns": ("torch.relu(x0 @ x1)", ("torch.rand(65536, 1024)", "torch.rand(4, 1024).t()"), "None", "a100",
        "reference", "gemm_skinny",
    ),
    "tiny k": ("torch.relu(x0 @ x1) + 1", ("torch.rand(4096, 16)", "torch.rand(16, 4096)"), "None", "h200",
        "reference", "gemm_simt",
    ),
    "tiny k on sm_86": ("torch.relu(x0 @ x1) + 1", ("torch.rand(4096, 16)", "torch.rand(16, 4096)"), "None", "a6000",
        "reference", "gemm_simt",
    ),
    "pairs on sm_80": (
        "F.gelu(self.layer(x0)) + x1", ("torch.rand(4096, 1024)", "torch.rand(4096, 2048)"), LINEAR, "a100",
        "reference", "gemm_sm80",
    ),
    "one row on sm_89": ("torch.relu(self.layer(x0))", ("torch.rand(1, 8192)",), "nn.Linear(8192, 8192)", "l40s",
        "ieee", "gemm_skinny",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_product_and_what_surrounds_it_is_one_kernel_that_does_not_spill(tmp_path: Path, name: str) -> None:
    *model, device, precision, template = CASES[name]
    program = program_of(tmp_path, *model, device, precision)  # type: ignore[arg-type]
    assert [source.template for source in program.sources] == [template]
    arch = replace(resolve(device), present=False).arch
    (tmp_path / "kernel.cu").write_text(program.text)
    command = [*nvcc_command(arch, read_settings()), "-cubin", "-o", "kernel.cubin", "kernel.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "C75" not in log, log  # wgmma serialised, or setmaxnreg ignored
    kernels = read_resources(log)
    assert kernels
    assert not [kernel for kernel in kernels if kernel.spills]
