"""Every template's config under one name: what a tuner chooses between."""

from __future__ import annotations

from typing import TypeAlias

from kernelwright.kernels import gemm_sm90
from kernelwright.kernels.pointwise import Config, CpuConfig, TileConfig

GemmConfig = gemm_sm90.Config

Choice: TypeAlias = Config | TileConfig | CpuConfig | GemmConfig
