"""The convolution headers compile alone; no config that is ranked first spills registers or keeps arrays in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright
from kernelwright.build.cuda import nvcc_command
from kernelwright.build.resources import KernelResources, read_resources
from kernelwright.build.toolchain import has_cuda
from kernelwright.device import resolve
from kernelwright.generate.conv import shape_of
from kernelwright.kernels import conv_direct, conv_mma, conv_sm90, conv_sm90_kept
from kernelwright.kernels.choices import Choice
from kernelwright.load import load
from kernelwright.plan import Kernel
from kernelwright.settings import read_settings
from tests.emulator.run import program_of

pytestmark = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA compiler")

HEADERS = Path(kernelwright.__file__).parent / "kernels" / "cuda"
ARCHES = {
    **{"conv_space": "sm_80", "conv_mma": "sm_80", "conv_direct": "sm_80", "conv_sm90": "sm_90a"},
    **{"conv_rows": "sm_80", "conv_pieces": "sm_80", "conv_gathered": "sm_80", "conv_windows": "sm_80"},
    **{"conv_kept_ends": "sm_90a", "conv_kept_carry": "sm_90a", "wgmma_rows": "sm_90a", "conv_sm90_kept": "sm_90a"},
    **{"conv_kept_stream": "sm_90a"},
    "conv_lines": "sm_90a",
}

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.{conv}

    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""

BODY = "F.gelu(self.conv(x) / 2) + 1"

CASES = {
    "few channels": ("Conv2d(8, 64, 3)", (8, 8, 128, 128)),
    "three channels, strided": ("Conv2d(3, 96, 11, stride=4, padding=2)", (4, 3, 224, 224)),
    "many channels": ("Conv2d(64, 128, 3)", (1, 64, 128, 130)),
    "large kernel, dilated": ("Conv2d(32, 64, (5, 9), padding=(2, 4), dilation=(2, 3))", (1, 32, 128, 128)),
    "one tap": ("Conv2d(64, 128, 1)", (1, 64, 128, 128)),
    "one axis": ("Conv1d(64, 128, 3, stride=3, dilation=4)", (1, 64, 52428)),
    "three axes": ("Conv3d(3, 64, (3, 5, 7))", (1, 3, 16, 64, 64)),
    "transposed": ("ConvTranspose2d(64, 128, (3, 5))", (2, 64, 64, 128)),
    "transposed, strided, three axes": ("ConvTranspose3d(32, 64, 3, stride=2, padding=1)", (2, 32, 16, 32, 32)),
    "depthwise": ("Conv2d(64, 64, 3, groups=64)", (2, 64, 256, 256)),
    "depthwise, wide": ("Conv2d(64, 64, (3, 7), groups=64)", (2, 64, 128, 250)),
    "transposed depthwise": ("ConvTranspose2d(64, 64, 3, stride=2, groups=64, padding=1)", (2, 64, 64, 64)),
    "transposed, strided, three channels": ("ConvTranspose3d(3, 16, 3, stride=2, padding=1)", (4, 3, 32, 32, 32)),
    "groups": ("ConvTranspose2d(32, 64, (3, 5), stride=(2, 3), groups=4)", (2, 32, 64, 64)),
}
# Weights of so many taps have no room in shared memory.
STREAMED = {
    "many taps": ("ConvTranspose2d(64, 128, 5, padding=1)", (8, 64, 32, 32)),
    "many taps, three axes": ("ConvTranspose3d(64, 128, 5, padding=1)", (2, 64, 16, 32, 32)),
    "many taps, strided": ("ConvTranspose3d(64, 128, 3, stride=2, padding=1)", (2, 64, 24, 48, 48)),
    "many taps, wide": ("Conv2d(128, 256, 3, padding=1)", (2, 128, 64, 130)),
    "many taps, ragged": ("Conv2d(100, 120, 5)", (2, 100, 60, 63)),
}
# Whose weights of all phases have no room.
IN_SETS = {
    "transposed, in sets": (
        "ConvTranspose2d(64, 128, 4, stride=2, padding=1, output_padding=1)",
        (8, 64, 64, 64),
    ),
    "transposed, three axes, in sets": ("ConvTranspose3d(32, 64, 4, stride=2, padding=1)", (2, 32, 16, 32, 32)),
}
# Whose phases, five in a row, are no power of two.
FIVE_PHASES = {
    "transposed, stride of 5": ("ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2)", (16, 32, 64, 128)),
}
# Whose threads have no register to spare: pairs whose taps share an octet, with and without rows in pieces; long rows
# at a stride, of several chunks; odd rows in pieces; a last chunk with fewer channels.
GROUPED = "F.group_norm(F.gelu(self.conv(x)), 8)"
TIGHT = {
    "pairs of three channels": ("Conv3d(3, 64, (3, 3, 1))", (16, 3, 256, 256, 10), "self.conv(x)", "reference"),
    "pairs of three channels, in pieces": ("Conv2d(3, 64, 3)", (16, 3, 256, 256), GROUPED, "reference"),
    "long rows": ("Conv1d(64, 128, 3, stride=3, dilation=4)", (8, 64, 100_004), "self.conv(x)", "tf32"),
    "long rows of two crews": ("Conv1d(64, 64, 3, stride=2)", (8, 64, 100_000), "self.conv(x)", "tf32"),
    "long rows, in pieces": ("Conv1d(64, 128, 3, stride=3, dilation=4)", (8, 64, 100_004), GROUPED, "tf32"),
    "odd rows, in pieces": ("Conv2d(64, 128, 3)", (4, 64, 129, 129), GROUPED, "tf32"),
    "ragged channels": ("Conv2d(60, 128, 3)", (4, 60, 128, 130), "self.conv(x)", "tf32"),
}


def nvcc(folder: Path, source: str, arch: str) -> str:
    """Compiles, and gives what ptxas said."""
    (folder / "kernel.cu").write_text(source)
    command = [*nvcc_command(arch, read_settings()), f"-I{HEADERS}", "-cubin", "-o", "kernel.cubin", "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "C75" not in log, log  # wgmma serialised
    return log


def convolving(
    folder: Path,
    name: str,
    device: str,
    pick: Callable[[Kernel, Sequence[Choice]], Choice],
    precision: str = "tf32",
    body: str = BODY,
) -> list[KernelResources]:
    """The kernels of the convolution's program that convolve."""
    conv, shape = (CASES | STREAMED | IN_SETS | FIVE_PHASES)[name]
    return compiled(folder, conv, shape, device, pick, precision, body)


def compiled(
    folder: Path,
    conv: str,
    shape: tuple[int, ...],
    device: str,
    pick: Callable[[Kernel, Sequence[Choice]], Choice],
    precision: str,
    body: str,
) -> list[KernelResources]:
    """The same of a convolution that has no name."""
    (folder / "model.py").write_text(MODEL.format(conv=conv, shape=shape, body=body))
    program = program_of(load(folder / "model.py"), device, pick, precision, reducing=body != BODY)
    found = read_resources(nvcc(folder, program.text, resolve(device).arch or ""))
    return [kernel for kernel in found if "convolve_kernel" in kernel.name or "gather_kernel" in kernel.name]


def best_of(template: ModuleType) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    return lambda _, choices: next(c for c in choices if type(c) is template.Config)


def nth_of(template: ModuleType, device: str, number: int) -> Callable[[Kernel, Sequence[Choice]], Choice]:
    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        ranked: Sequence[Choice] = template.configs(shape_of(kernel), resolve(device))
        return ranked[min(number, len(ranked) - 1)]

    return pick


@pytest.mark.parametrize("header", ARCHES)
def test_a_header_compiles_alone(header: str, tmp_path: Path) -> None:
    nvcc(tmp_path, f'#include "{header}.cuh"\n', ARCHES[header])


# Few channels at a stride: the second 8 of k would lie before the first, which conv_sm90 does not take.
HOPPER = [name for name in CASES if "depthwise" not in name and name != "three channels, strided"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("name", HOPPER)
def test_the_hopper_convolution_does_not_spill(name: str, precision: str, tmp_path: Path) -> None:
    found = convolving(tmp_path, name, "h200", best_of(conv_sm90), precision)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "reference"])
@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize("name", [name for name in CASES if "depthwise" not in name])
def test_the_ampere_convolution_does_not_spill(name: str, device: str, precision: str, tmp_path: Path) -> None:
    found = convolving(tmp_path, name, device, best_of(conv_mma), precision)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_cuda_core_convolution_does_not_spill(name: str, tmp_path: Path) -> None:
    found = convolving(tmp_path, name, "h200", best_of(conv_direct))
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


# Those whose weights, as pairs, have no room in shared memory.
TOO_LARGE = {"large kernel, dilated", "transposed", "transposed, strided, three axes"}
KEPT = [(name, precision) for name in HOPPER for precision in ("tf32", "reference")]
KEPT = [(name, precision) for name, precision in KEPT if precision == "tf32" or name not in TOO_LARGE]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), KEPT)
def test_no_convolution_that_keeps_its_weights_spills(
    name: str, precision: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every config that is ranked, of which the first are built where time counts. And each gets the registers that its
    warpgroups hand on: with fewer they would wait for ever."""
    most = 100 if request.config.getoption("--thorough") else 2
    ranked: list[conv_sm90_kept.Config] = []
    spilling: list[Choice] = []
    waiting: list[Choice] = []
    number = 0

    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        ranked[:] = conv_sm90_kept.configs(shape_of(kernel), resolve("h200"))
        return ranked[number]

    while number == 0 or number < min(most, len(ranked)):
        (found,) = convolving(tmp_path, name, "h200", pick, precision)
        config = ranked[number]
        if found.spills or found.stack_bytes:
            spilling.append(config)
        if config.teams < 3 and found.registers < 65536 // (128 * (config.teams + config.carriers)) // 8 * 8:
            waiting.append(config)
        number += 1
    assert spilling == waiting == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", TIGHT)
def test_no_thread_without_a_register_to_spare_spills(name: str, number: int, tmp_path: Path) -> None:
    conv, shape, body, precision = TIGHT[name]

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        return nth_of(conv_sm90_kept, "h200", number)(kernel, choices) if kernel.core is not None else choices[0]

    found = compiled(tmp_path, conv, shape, "h200", pick, precision, body)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("template", [conv_sm90, conv_mma, conv_direct], ids=["wgmma", "mma", "direct"])
def test_no_block_that_is_ranked_spills(template: ModuleType, number: int, tmp_path: Path) -> None:
    found = convolving(tmp_path, "many channels", "h200", nth_of(template, "h200", number))
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMED)
def test_no_convolution_whose_weights_stream_spills(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The cheapest, or every one that is ranked; each with all registers that its warpgroups hand on."""
    most = 100 if request.config.getoption("--thorough") else 2
    ranked: list[conv_sm90_kept.Config] = []
    failing: list[Choice] = []
    number = 0

    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        shape, device = shape_of(kernel), resolve("h200")
        ranked[:] = conv_sm90_kept.best_of_each(conv_sm90_kept.streams(shape, device), shape, device)
        return ranked[number]

    while number == 0 or number < min(most, len(ranked)):
        (found,) = convolving(tmp_path, name, "h200", pick)
        if found.spills or found.stack_bytes or found.registers < 168:
            failing.append(ranked[number])
        number += 1
    assert failing == []


REDUCING = {
    "softmax": "torch.softmax(self.conv(x), 1)",
    "group norm": "F.group_norm(F.gelu(self.conv(x)), 8)",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", REDUCING)
@pytest.mark.parametrize("template", [conv_sm90, conv_mma], ids=["wgmma", "mma"])
@pytest.mark.parametrize("name", ["few channels", "transposed, strided, three axes"])
def test_a_convolution_that_reduces_does_not_spill(name: str, template: ModuleType, body: str, tmp_path: Path) -> None:
    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        return next((c for c in choices if type(c) is template.Config), choices[0])

    found = convolving(tmp_path, name, "h200", pick, "tf32", REDUCING[body])
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


# What reduces where the weights stay: along the channels, of one team and of two; windows; over space.
KEPT_ENDS = {
    "channels": ("few channels", "self.conv(x).amin(1)"),
    "channels of two teams": ("many channels", "torch.softmax(self.conv(x), 1)"),
    "channels of phases": ("transposed, strided, three axes", "torch.logsumexp(self.conv(x), 1)"),
    "channels stored again": ("transposed, strided, three axes", "torch.sigmoid(torch.softmax(self.conv(x), 1))"),
    "channels of sets": ("transposed, in sets", "torch.sigmoid(torch.softmax(self.conv(x), 1) * 2)"),
    "lines": ("few channels", "F.gelu(F.layer_norm(self.conv(x), (126,)))"),
    "lines of phases": ("transposed, three axes, in sets", "F.gelu(F.layer_norm(self.conv(x), (64,)))"),
    "windows": ("many channels", "F.max_pool2d(torch.tanh(self.conv(x)), 2)"),
    "windows of four": ("few channels", "F.avg_pool2d(F.relu(self.conv(x)), 4)"),
    "space": ("many channels", "F.group_norm(F.gelu(self.conv(x)), 8)"),
    "space of phases": ("transposed, strided, three axes", "F.relu(self.conv(x)).mean((2, 3, 4))"),
    "channels, streamed": ("many taps", "torch.softmax(self.conv(x), 1)"),
    "windows, streamed": ("many taps", "F.max_pool2d(torch.tanh(self.conv(x)), 2)"),
    "space, streamed": ("many taps, three axes", "F.group_norm(torch.relu(self.conv(x)), 8)"),
    "space of phases, streamed": ("many taps, strided", "F.relu(self.conv(x)).mean((2, 3, 4))"),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", KEPT_ENDS)
def test_no_convolution_that_keeps_its_weights_and_reduces_spills(name: str, number: int, tmp_path: Path) -> None:
    case, body = KEPT_ENDS[name]

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        return nth_of(conv_sm90_kept, "h200", number)(kernel, choices) if kernel.core is not None else choices[0]

    found = convolving(tmp_path, case, "h200", pick, body=body)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


# Sums over all images and space, whose phases are of one kind or of eight.
GATHERED = {
    "one phase": ("few channels", "self.conv(x).var((0, 2, 3))"),
    "one phase, normalised": ("few channels", "F.batch_norm(self.conv(x), None, None, training=True).amax((2, 3))"),
    "few channels": ("transposed, strided, three channels", "self.conv(x).var((0, 2, 3, 4))"),
    "many outputs": ("transposed, strided, three axes", "self.conv(x).var((0, 2, 3, 4))"),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", GATHERED)
def test_no_convolution_of_which_only_sums_are_wanted_spills(name: str, number: int, tmp_path: Path) -> None:
    case, body = GATHERED[name]

    def pick(kernel: Kernel, choices: Sequence[Choice]) -> Choice:
        fitting = [c for c in choices if type(c) is conv_mma.Config]
        return fitting[min(number, len(fitting) - 1)] if fitting else choices[0]

    found = convolving(tmp_path, case, "h200", pick, body=body)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "name", ["transposed, strided, three axes", "transposed, strided, three channels", *FIVE_PHASES]
)
@pytest.mark.parametrize("body", [BODY, "self.conv(x)"])
def test_no_tile_whose_phases_take_turns_spills(name: str, body: str, number: int, tmp_path: Path) -> None:
    def pick(kernel: Kernel, _: Sequence[Choice]) -> Choice:
        ranked = [c for c in conv_mma.configs(shape_of(kernel), resolve("h200")) if c.turns > 1]
        return ranked[min(number, len(ranked) - 1)]

    found = convolving(tmp_path, name, "h200", pick, body=body)
    assert len(found) == 1
    assert [kernel for kernel in found if kernel.spills or kernel.stack_bytes] == []
