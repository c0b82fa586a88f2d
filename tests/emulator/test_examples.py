"""The CUDA program of every example, at sizes that are small and odd, computes what PyTorch computes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.build import g_plus_plus
from tests.emulator.run import agrees
from tests.stages import EXAMPLES, NAMES

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

# By example, one or more sets of its constants: whole vectors, none, and ends that fill none.
SIZES: dict[str, tuple[dict[str, Any], ...]] = {
    "adam_step": ({"ROWS": 3, "COLUMNS": 24}, {"ROWS": 5, "COLUMNS": 7}),
    "batchnorm_residual": ({"BATCH": 2, "CHANNELS": 3, "HEIGHT": 5, "WIDTH": 8},),
    "black_scholes": ({"OPTIONS": 1001},),
    "broadcasting": ({"BATCH": 2, "CHANNELS": 3, "HEIGHT": 5, "WIDTH": 8}, {"BATCH": 2, "CHANNELS": 3, "WIDTH": 7}),
    "conv_divide_leakyrelu": ({"BATCH": 2, "IN_CHANNELS": 3, "OUT_CHANNELS": 5, "HEIGHT": 9, "WIDTH": 11},),
    "cuda_inputs": ({"ROWS": 6, "FEATURES": 40},),
    "cumsum_between": ({"ROWS": 3, "COLUMNS": 37},),
    "double_precision": ({"PAIRS": 515},),
    "focal_loss": ({"ROWS": 6, "CLASSES": 33},),
    "geglu": ({"ROWS": 5, "HIDDEN": 12}, {"ROWS": 3, "HIDDEN": 7}),
    "half_activations": ({"ROWS": 3, "FEATURES": 40}, {"ROWS": 3, "FEATURES": 21}),
    "image_normalize": ({"BATCH": 2, "HEIGHT": 6, "WIDTH": 7},),
    "layernorm_gate": ({"ROWS": 3, "FEATURES": 40},),
    "linear_bias_relu": ({"ROWS": 5, "IN_FEATURES": 40, "OUT_FEATURES": 12},),
    "linear_relu_divide": ({"ROWS": 5, "IN_FEATURES": 40, "OUT_FEATURES": 12},),
    "masks_and_labels": ({"BATCH": 2, "HEIGHT": 7, "WIDTH": 9},),
    "mixed_dtypes": ({"ROWS": 3, "FEATURES": 21},),
    "mlp_block": ({"ROWS": 3, "WIDTH": 40, "HIDDEN": 72},),
    "odd_sizes": ({"BATCH": 2, "ROWS": 5, "COLUMNS": 37},),
    "permuted_operands": (
        {"BATCH": 2, "CHANNELS": 5, "HEIGHT": 9, "WIDTH": 12},
        {"BATCH": 2, "CHANNELS": 32, "HEIGHT": 32, "WIDTH": 36},
    ),
    "piecewise": ({"ROWS": 3, "COLUMNS": 24},),
    "pointwise_chain": ({"SHAPE": (5, 52)}, {"SHAPE": (7, 13)}),
    "relu": ({"ROWS": 7, "COLUMNS": 33},),
    "residual_chain": ({"ROWS": 3, "FEATURES": 21},),
    "rotary_embedding": ({"BATCH": 1, "HEADS": 3, "TOKENS": 5, "HEAD_WIDTH": 12},),
    "running_statistics": ({"ROWS": 6, "FEATURES": 20},),
    "scalar_arguments": ({"ROWS": 3, "COLUMNS": 25},),
    "sliced_stencil": ({"BATCH": 2, "HEIGHT": 9, "WIDTH": 10},),
    "sort_between": ({"ROWS": 3, "COLUMNS": 20},),
    "token_embedding": (
        {"BATCH": 2, "TOKENS": 5, "VOCABULARY": 11, "WIDTH": 24},
        {"BATCH": 1, "TOKENS": 3, "VOCABULARY": 7, "WIDTH": 9},
    ),
    "upsample_skip": ({"BATCH": 1, "CHANNELS": 4, "HEIGHT": 5, "WIDTH": 6},),
    "swiglu": ({"BATCH": 1, "TOKENS": 5, "WIDTH": 40, "HIDDEN": 72},),
}


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in SIZES for i in range(len(SIZES[name]))])
def test_an_example_computes_what_pytorch_computes(name: str, number: int) -> None:
    agrees(EXAMPLES / f"{name}.py", **SIZES[name][number])


def test_every_example_is_run() -> None:
    assert set(NAMES) == set(SIZES)
