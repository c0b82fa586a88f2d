"""What PyTorch should take for a convolution: near what was measured, by each of its ways."""

from __future__ import annotations

import pytest
import torch

from benchmarks.conv_device import conv_of, kernel_of, module_of
from kernelwright.device import resolve
from kernelwright.plan import Convolution
from kernelwright.tune.conv_library import adds_bias_itself, conv_library_us
from kernelwright.tune.measure import pass_after_us
from kernelwright.tune.routes import promising

H200 = resolve("h200")

# A module, its input, and the milliseconds that eager PyTorch 2.11 took on an H200: TF32 allowed, no bias.
MEASURED = [
    ("Conv2d(64, 128, 3)", (8, 64, 512, 1024), 4.15),
    ("Conv2d(64, 128, (5, 7))", (8, 64, 512, 256), 3.03),
    ("Conv2d(32, 64, (5, 9))", (8, 32, 512, 512), 2.32),
    ("Conv2d(16, 128, 3)", (16, 16, 1024, 1024), 6.82),
    ("Conv2d(8, 64, 3)", (128, 8, 128, 128), 0.77),
    ("Conv1d(64, 128, 3)", (32, 64, 131072), 2.37),
    ("Conv1d(64, 128, 3, stride=3, dilation=4)", (64, 64, 524280), 10.03),
    ("ConvTranspose2d(64, 64, 3)", (8, 64, 1024, 1024), 5.21),
    ("ConvTranspose2d(32, 32, 3)", (8, 32, 512, 1024), 1.29),
    ("ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2)", (16, 32, 64, 128), 1.62),
    ("ConvTranspose3d(32, 32, 3, stride=2, padding=1)", (4, 32, 32, 64, 128), 1.80),
    ("Conv3d(32, 64, 3)", (16, 32, 32, 64, 64), 1.63),
    ("Conv3d(3, 64, 3)", (16, 3, 64, 64, 64), 1.84),
    ("Conv3d(3, 64, (3, 5, 7))", (16, 3, 64, 64, 64), 9.91),
    ("Conv2d(3, 96, 11, stride=4, padding=2)", (256, 3, 224, 224), 1.93),
    ("Conv2d(64, 128, 1)", (16, 64, 1024, 1024), 3.52),
    ("Conv2d(64, 64, 3, groups=64)", (16, 64, 512, 512), 2.50),
    ("Conv2d(128, 128, (3, 7), groups=128)", (32, 128, 128, 256), 2.26),
]


def core_of(text: str, shape: tuple[int, ...], precision: str = "tf32") -> Convolution:
    with torch.device("meta"):
        core = kernel_of(conv_of(module_of(text), shape), "conv_kernel", precision, with_epilogue=False).core
    assert isinstance(core, Convolution)
    return core


@pytest.mark.parametrize(("text", "shape", "ms"), MEASURED, ids=[text for text, _, _ in MEASURED])
def test_the_estimate_is_near_what_was_measured(text: str, shape: tuple[int, ...], ms: float) -> None:
    assert 1 / 1.5 < conv_library_us(core_of(text, shape), H200) / (ms * 1e3) < 1.5


def test_without_tf32_the_library_leaves_the_tensor_cores() -> None:
    rounded, exact = (
        conv_library_us(core_of("Conv2d(64, 64, 3)", (8, 64, 256, 256), p), H200) for p in ("tf32", "ieee")
    )
    assert exact > 3 * rounded


@pytest.mark.parametrize(
    ("text", "device", "free"),
    [
        ("Conv2d(64, 64, 3)", "h200", False),
        ("Conv2d(64, 64, 3, groups=64)", "h200", True),
        ("Conv2d(64, 64, 3)", "cpu", True),
    ],
)
def test_a_bias_is_a_pass_of_its_own_after_most_convolutions_of_a_gpu(text: str, device: str, free: bool) -> None:
    with torch.device("meta"):
        kernel = kernel_of(conv_of(module_of(text), (8, 64, 64, 64)), "conv_kernel", "tf32", with_epilogue=False)
    assert isinstance(kernel.core, Convolution)
    assert adds_bias_itself(kernel.core, resolve(device)) == free
    assert (pass_after_us(kernel, resolve(device)) == 0.0) == free


@pytest.mark.parametrize(
    ("text", "shape", "ours"),
    [
        ("Conv2d(64, 128, 3)", (8, 64, 256, 512), True),
        ("ConvTranspose3d(32, 64, (3, 5, 5))", (4, 32, 64, 64, 64), True),
        ("Conv2d(64, 64, 3, groups=64)", (16, 64, 512, 512), True),
        ("Conv2d(480, 192, 1)", (10, 480, 224, 224), False),
        ("Conv2d(512, 512, 3, padding=1)", (2, 512, 7, 7), False),
    ],
    ids=["plain", "transposed", "depthwise", "a matrix product", "few pixels of many channels"],
)
def test_without_a_gpu_the_cost_models_choose_what_is_clearly_faster(
    text: str, shape: tuple[int, ...], ours: bool
) -> None:
    with torch.device("meta"):
        kernel = kernel_of(conv_of(module_of(text), shape), "conv_kernel", "tf32", with_epilogue=False)
    assert promising(kernel, H200) == ours
