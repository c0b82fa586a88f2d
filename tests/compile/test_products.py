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
from kernelwright.tune.joining import is_fed
from tests.emulator.run import Pick
from tests.emulator.run import program_of as emulated_program
from tests.emulator.test_beside_products import beside
from tests.emulator.test_fed_products import problem as fed_problem
from tests.emulator.test_product_surroundings import only, problem
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


def compiled(folder: Path, text: str, device: str) -> str:
    """What ptxas said of it."""
    arch = replace(resolve(device), present=False).arch
    (folder / "kernel.cu").write_text(text)
    command = [*nvcc_command(arch, read_settings()), "-cubin", "-o", "kernel.cubin", "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "C75" not in log, log  # wgmma serialised, or setmaxnreg ignored
    return log


@pytest.mark.parametrize("name", CASES)
def test_a_product_and_what_surrounds_it_is_one_kernel_that_does_not_spill(tmp_path: Path, name: str) -> None:
    *model, device, precision, template = CASES[name]
    program = program_of(tmp_path, *model, device, precision)  # type: ignore[arg-type]
    assert [source.template for source in program.sources] == [template]
    kernels = read_resources(compiled(tmp_path, program.text, device))
    assert kernels
    assert not [kernel for kernel in kernels if kernel.spills]


# What a tile keeps of rows, from one number to all kinds of state: with the widest tiles of each template.
ROWS = {
    "a sum": "F.silu(y).sum(1)",
    "logsumexp": "torch.logsumexp(torch.sigmoid(y), 1)",
    "softmax": "torch.softmax(y * row, 1)",
    "statistics": "F.layer_norm(y, y.shape[1:])",
    "a place, and the result": "(torch.argmax(y, 1), torch.relu(y))",
    "a residual": "(F.gelu(y) * tile).amax(1)",
    "a division by a number": "(F.gelu(y / 10) * tile).sum(1)",
}
WIDEST: dict[str, tuple[str, str, str, Pick]] = {
    "Hopper": ("h200", "float32", "reference", only("gemm_sm90", tile_n=256, tile_m=128)),
    "Hopper, 192 columns": ("h200", "float32", "reference", only("gemm_sm90", tile_n=192)),
    "Hopper, float16": ("h200", "float16", "reference", only("gemm_sm90_half", tile_n=256, cluster=2)),
    "Hopper, TF32 allowed": ("h200", "float32", "tf32", only("gemm_sm90_f16x1", tile_n=256, cluster=2)),
    "Ampere": ("a100", "float32", "reference", only("gemm_sm80", tile_n=128, tile_m=128)),
    "CUDA cores": ("a100", "float32", "reference", only("gemm_simt")),
}


@pytest.mark.parametrize("body", ROWS)
@pytest.mark.parametrize("name", WIDEST)
def test_a_product_that_reduces_its_rows_does_not_spill(tmp_path: Path, name: str, body: str) -> None:
    device, dtype, precision, pick = WIDEST[name]
    program = emulated_program(problem(ROWS[body], 1024, 8192, 8192, dtype), device, pick, precision, reducing=True)
    assert program.sources[0].kernel.region.axes == (1,)
    log = compiled(tmp_path, program.text, device)
    kernels = read_resources(log)
    assert {name for kernel in kernels for name in ("multiply_kernel", "finish_kernel") if name in kernel.name} == {
        "multiply_kernel",
        "finish_kernel",
    }
    assert not [kernel for kernel in kernels if kernel.spills]


# What is done to settled sums, and what is loaded for it while the next tile is multiplied.
LATER = {
    "nothing": "y",
    "gelu and a residual": "F.gelu(y) + tile",
    "operands of every kind": "torch.sigmoid(y) * row + column - tile",
    "a residual in float32": "F.gelu(y).float() + tile.float() * 2",
    "a long function": "F.mish(torch.tanh(y)) * tile",
    "two results": "(y, F.gelu(y) + tile)",
    "a division": "F.gelu(y) / row",
    "a division by a number": "F.gelu(y / 10) / 3 + tile",
}


@pytest.mark.parametrize("body", LATER)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("tile_n", [256, 192, 128])
def test_results_that_leave_late_do_not_make_a_product_spill(
    tmp_path: Path, tile_n: int, dtype: str, body: str
) -> None:
    pick = only("gemm_sm90_half", late=True, **({} if body == "a division" else {"tile_n": tile_n}))
    program = emulated_program(problem(LATER[body], 4096, 4096, 4096, dtype), "h200", pick)
    assert "gemm_sm90_late" in program.text
    assert not [kernel for kernel in read_resources(compiled(tmp_path, program.text, "h200")) if kernel.spills]


BEFORE = {
    "a cheap function": "self.layer(torch.relu(x) + 1)",
    "a long one": "self.layer(F.gelu(x))",
    "a division": "self.layer(torch.exp(x) / row)",
    "a division by a number": "self.layer(torch.exp(x) / 10)",
    "all kinds of operands": "self.layer(F.silu(x * row + column) * tile)",
    "the second operand": "torch.relu(x @ torch.sigmoid(w))",
}


@pytest.mark.parametrize("body", BEFORE)
@pytest.mark.parametrize("name", ["Hopper", "Hopper, TF32 allowed", "Ampere", "CUDA cores"])
def test_a_product_that_computes_its_operands_does_not_spill(tmp_path: Path, name: str, body: str) -> None:
    device, _, precision, _ = WIDEST[name]
    template = {"Hopper": "gemm_sm90", "Hopper, TF32 allowed": "gemm_sm90_f16x1", "Ampere": "gemm_sm80"}.get(
        name, "gemm_simt"
    )
    # The first that is offered: the widest that has the registers.
    program = emulated_program(fed_problem(BEFORE[body], 1024, 8192, 8192), device, only(template), precision, fed=True)
    assert is_fed(program.sources[0].kernel)
    assert not [kernel for kernel in read_resources(compiled(tmp_path, program.text, device)) if kernel.spills]


# The first config that is offered for a W that is packed as bricks, with what it computes before and keeps of rows.
OF_BRICKS = {
    "an epilogue": "F.gelu(x @ w) * row",
    "a division": "torch.relu(x @ w) / row",
    "a sum of rows": "F.silu(x @ w).sum(1)",
    "statistics of rows": "F.layer_norm(x @ w, (8192,))",
    "a cheap function before": "(torch.relu(x) + 1) @ w",
    "a long one before": "F.gelu(x) @ w",
    "a division before": "(torch.exp(x) / row) @ w",
    "a division by a number before": "(torch.exp(x) / 10) @ w",
    "a cheap one before": "(x / 10) @ w",
    "all kinds of operands before": "(F.silu(x * row + column) * tile) @ w",
}


@pytest.mark.parametrize("body", OF_BRICKS)
def test_a_product_of_bricks_does_not_spill(tmp_path: Path, body: str) -> None:
    source = fed_problem(OF_BRICKS[body], 1024, 8192, 8192)
    program = emulated_program(source, "h200", only("gemm_sm90_bricks"), reducing=True, fed=True)
    assert "gemm_sm90_bricks" in [made.template for made in program.sources]
    assert not [kernel for kernel in read_resources(compiled(tmp_path, program.text, "h200")) if kernel.spills]


# What becomes of sums on their way to the copy engine, of gemm_sm90 and where neither operand is a weight.
LEAVING = {
    "nothing": ("y", "x @ w"),
    "bias and relu": ("torch.relu(y)", "torch.relu(x @ w) + column"),
    "gelu and a residual": ("F.gelu(y) + tile", "F.gelu(x @ w) * row"),
    "operands of every kind": ("torch.sigmoid(y) * row + column - tile", "torch.sigmoid(x @ w) * row + 1"),
    "a long function": ("F.mish(torch.tanh(y)) * tile", "F.mish(torch.tanh(x @ w))"),
}


@pytest.mark.parametrize("body", LEAVING)
@pytest.mark.parametrize("template", ["gemm_sm90", "gemm_sm90_bricks", "gemm_sm90_turned"])
@pytest.mark.parametrize("tile_n", [256, 192])
def test_results_that_are_sent_do_not_make_a_product_spill(
    tmp_path: Path, tile_n: int, template: str, body: str
) -> None:
    of_layer, of_operands = LEAVING[body]
    with_weight = problem(of_layer, 4096, 8192, 8192)
    source = with_weight if template == "gemm_sm90" else fed_problem(of_operands, 8192, 8192, 8192)
    if template == "gemm_sm90_bricks" and tile_n == 192:
        pytest.skip("its slots would not lie inside of bricks")
    program = emulated_program(source, "h200", only(template, tile_n=tile_n, tile_m=128, sent=True))
    assert "gemm_sm90_sent::launch" in program.text
    assert not [kernel for kernel in read_resources(compiled(tmp_path, program.text, "h200")) if kernel.spills]


@pytest.mark.parametrize(
    ("tile_n", "packers", "aside", "k"),
    [
        *[(256, 4, 0, 1024), (256, 4, 0, 4096), (192, 4, 0, 1024), (192, 4, 0, 4096)],
        *[(256, 4, 9, 1024), (256, 0, 99, 512), (256, 4, 9, 1536), (256, 0, 99, 4096)],
    ],
)
@pytest.mark.parametrize("body", ["nothing", "operands of every kind"])
@pytest.mark.parametrize("template", ["gemm_sm90", "gemm_sm90_turned"])
def test_who_packs_beside_a_product_does_not_make_it_spill(
    tmp_path: Path, tile_n: int, template: str, body: str, packers: int, aside: int, k: int
) -> None:
    of_operands = LEAVING[body][1].replace("@ w", "@ w.t()" if template == "gemm_sm90" else "@ w")
    source = fed_problem(of_operands, 8192, k, k)
    program = emulated_program(source, "h200", beside(template, packers, 9, aside, tile_n=tile_n, tile_m=128))
    assert "gemm_sm90_beside::pack_before" in program.text
    found = read_resources(compiled(tmp_path, program.text, "h200"))
    assert not [kernel for kernel in found if kernel.spills or kernel.stack_bytes]
