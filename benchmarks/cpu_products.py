"""Convolutions and matrix products with their neighbours come in; each is timed on this CPU beside eager and compile.

    python benchmarks/cpu_products.py [WORD ...] --out results.jsonl

Convolutions of few channels a group, which may be ours, and products of the library between our prologue and epilogue.
Timed as benchmarks/cpu_reductions.py does.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu_reductions import Case, run


def conv(name: str, layer: str, x: str, after: str = "torch.relu({})") -> Case:
    return Case(name, after.format("self.conv(x)"), (f"torch.randn({x})",), f"self.conv = nn.{layer}")


CASES = [
    conv("depthwise_3x3", "Conv2d(64, 64, 3, padding=1, groups=64)", "16, 64, 128, 128"),
    conv("depthwise_3x3_stride_2", "Conv2d(64, 64, 3, 2, 1, groups=64)", "16, 64, 128, 128"),
    conv("depthwise_5x5_dilated", "Conv2d(32, 32, 5, padding=4, dilation=2, groups=32)", "8, 32, 112, 112"),
    conv("depthwise_7x7", "Conv2d(96, 96, 7, padding=3, groups=96)", "8, 96, 56, 56"),
    conv("depthwise_3x3_small_image", "Conv2d(256, 256, 3, padding=1, groups=256)", "16, 256, 14, 14"),
    conv("depthwise_1d", "Conv1d(256, 256, 4, padding=3, groups=256)", "8, 256, 4096"),
    conv("depthwise_3d", "Conv3d(16, 16, 3, padding=1, groups=16)", "2, 16, 32, 64, 64"),
    conv("channels_3_to_64_3x3", "Conv2d(3, 64, 3, padding=1)", "8, 3, 128, 128"),
    conv("channels_3_to_64_7x7_stride_2", "Conv2d(3, 64, 7, 2, 3)", "8, 3, 224, 224"),
    conv("channels_8_to_64_3x3", "Conv2d(8, 64, 3)", "16, 8, 96, 96", "F.leaky_relu({} / 2.0, 0.01)"),
    conv("channels_16_to_32_3x3", "Conv2d(16, 32, 3)", "16, 16, 96, 96"),
    conv("channels_3_to_16_3d", "Conv3d(3, 16, 3)", "4, 3, 16, 64, 64"),
    conv("channels_64_to_64_3x3_epilogue", "Conv2d(64, 64, 3, padding=1)", "8, 64, 56, 56", "F.gelu({}) * 0.5 + 1.0"),
    Case(
        "linear_gelu_residual",
        "F.gelu(self.linear(x)) + y",
        ("torch.randn(4096, 1024)", "torch.randn(4096, 1024)"),
        "self.linear = nn.Linear(1024, 1024)",
    ),
    Case(
        "scaled_linear_relu_divide",
        "torch.relu(self.linear(torch.tanh(x) * 0.5)) / 3.0",
        ("torch.randn(8192, 512)",),
        "self.linear = nn.Linear(512, 512)",
    ),
    Case(
        "matmul_bias_silu_scale",
        "F.silu(torch.sigmoid(x) @ y + self.bias) * 2.0",
        ("torch.randn(4096, 256)", "torch.randn(256, 2048)"),
        "self.bias = nn.Parameter(torch.randn(2048))",
    ),
    Case(
        "batched_matmul_softmax",
        "torch.softmax(torch.bmm(x, y) * 0.125, 2)",
        ("torch.randn(64, 512, 64)", "torch.randn(64, 64, 512)"),
    ),
]


if __name__ == "__main__":
    run(CASES, "benchmarks/cpu_products.py")
