"""Every template's config under one name: what a tuner chooses between."""

from __future__ import annotations

from typing import TypeAlias

from kernelwright.kernels import (
    conv_direct,
    conv_mma,
    conv_rows,
    conv_sm90,
    conv_sm90_kept,
    conv_sm90_ring,
    gemm_simt,
    gemm_skinny,
    gemm_sm80,
    gemm_sm90,
    gemm_sm90_bricks,
    gemm_sm90_f16x1,
    gemm_sm90_half,
    gemm_sm90_turned,
    gemm_small,
    reduce_held,
    reduce_ring,
    reduce_sliding,
    reduce_spread,
    reduce_woven,
)
from kernelwright.kernels.pointwise import PointwiseConfig
from kernelwright.kernels.reduce import ReduceConfig as PlainReduceConfig
from kernelwright.kernels.scan import ScanConfig

ReduceConfig: TypeAlias = (
    PlainReduceConfig
    | reduce_woven.Config
    | reduce_ring.Config
    | reduce_held.Config
    | reduce_spread.Config
    | reduce_sliding.Config
)

GemmConfig: TypeAlias = (
    gemm_sm90.Config
    | gemm_sm90_bricks.Config
    | gemm_sm90_turned.Config
    | gemm_sm90_half.Config
    | gemm_sm90_f16x1.Config
    | gemm_sm80.Config
    | gemm_skinny.Config
    | gemm_simt.Config
    | gemm_small.Config
)

ConvConfig: TypeAlias = (
    conv_sm90_kept.Config
    | conv_sm90_ring.Config
    | conv_sm90.Config
    | conv_mma.Config
    | conv_direct.Config
    | conv_rows.Config
)

Choice: TypeAlias = PointwiseConfig | ReduceConfig | ScanConfig | GemmConfig | ConvConfig
