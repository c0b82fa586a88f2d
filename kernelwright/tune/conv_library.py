"""A convolution and a device come in; what PyTorch should take for it, without a bias, goes out.

On a GPU it has four ways, told apart by channels and groups (`WAYS`). Their constants are fitted to 54 convolutions by
eager PyTorch 2.11 on an H200, float32 with TF32 allowed, in NCHW order: 41 come out within 1.25x, 47 within 1.5x. What
is estimated 3x too low or more are five of nineteen transposed convolutions in three dimensions, for which the library
leaves the tensor cores; no rule in their sizes tells which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from kernelwright.device import Device
from kernelwright.ir.nodes import Conv
from kernelwright.plan import Convolution

__all__ = ["adds_bias_itself", "conv_library_us"]

LAUNCH_US = 8.0

# Tensor cores read channels-last, four channels of float32 at once: the input is turned around before and the result
# after the convolution. Each is a copy that reaches this of the bandwidth.
TURNING_SHARE = 0.97
WHOLE_CHANNELS = 4

# What they reach of their peak with 64 outputs and more, 16 channels and more; less of either leaves tiles empty, but
# no less than NARROW_SHARE. In three dimensions addresses take longer; so do the phases of a strided transposed one.
TENSOR_SHARE = 0.55
FULL_OUTPUTS = 64
FULL_CHANNELS = 16
NARROW_SHARE = 0.09
THREE_AXES = 0.7
PHASES = 0.6

# A 1 x 1 convolution is a product of matrices in the order they lie in: it moves its bytes at this of a copy's rate.
POINTWISE_BANDWIDTH = 0.88

# Of the float32 peak, by axes of space, on the CUDA cores; where a tile of outputs is mostly empty, this of that.
CORES_SHARE = {1: 0.55, 2: 0.55, 3: 0.32}
FEW_OUTPUTS = 32
FEW_OUTPUTS_SHARE = 0.65

# PyTorch's own depthwise kernel: one thread a result, which takes as long as so many multiplications at the peak.
DEPTHWISE_RESULT = 200
DEPTHWISE_TAP = 9


# On a CPU, estimated: of the peak where channels fill the vectors, as they do depthwise, and of a copy's bandwidth.
CPU_SHARE, CPU_TRANSPOSED_SHARE = 0.4, 0.2
CPU_FULL_CHANNELS = 32
CPU_BANDWIDTH, CPU_DEPTHWISE_BANDWIDTH = 0.5, 0.35


def conv_library_us(core: Convolution, device: Device) -> float:
    """On a GPU, what the first way that takes the convolution needs."""
    ways = WAYS if device.kind == "cuda" else CPU_WAYS
    return LAUNCH_US + next(takes_us(core, device) for applies, takes_us in ways if applies(core))


def adds_bias_itself(core: Convolution, device: Device) -> bool:
    """Whether the bias costs nothing; after the other ways of a GPU it is a pass over the result."""
    return device.kind != "cuda" or is_depthwise(core)


def channels_of(node: Conv) -> tuple[int, int]:
    """Of a group: that are read, and that are written."""
    return node.x.shape[1] // node.groups, node.shape[1] // node.groups


def may_round(core: Convolution) -> bool:
    return core.node.dtype.name != "float32" or core.precision != "ieee"


def is_depthwise(core: Convolution) -> bool:
    return channels_of(core.node)[0] == 1 and core.node.groups > 1 and not core.node.transposed


def is_pointwise(core: Convolution) -> bool:
    node = core.node
    return math.prod(node.weight.shape[2:]) * math.prod(node.stride) == 1 and node.groups == 1


def suits_tensor_cores(core: Convolution) -> bool:
    whole = all(count % WHOLE_CHANNELS == 0 for count in channels_of(core.node))
    return may_round(core) and whole and core.node.groups == 1


def bytes_of(core: Convolution) -> int:
    return core.bytes_read + core.node.nbytes


def moving_us(nbytes: float, device: Device, share: float) -> float:
    return nbytes / (device.copy_gbps * share) / 1e3


def unskipped_flops(core: Convolution) -> int:
    """With the zeros between the inputs of a strided transposed convolution."""
    return core.flops * (math.prod(core.node.stride) if core.node.transposed else 1)


# --- the ways, in microseconds


def depthwise_us(core: Convolution, device: Device) -> float:
    node = core.node
    each = DEPTHWISE_RESULT + DEPTHWISE_TAP * math.prod(node.weight.shape[2:])
    return max(2 * node.size * each / device.peaks.float32 / 1e6, moving_us(bytes_of(core), device, 1.0))


def pointwise_us(core: Convolution, device: Device) -> float:
    multiplying_us = core.flops / tensor_tflops(core, device) / 1e6
    return max(multiplying_us, moving_us(bytes_of(core), device, POINTWISE_BANDWIDTH))


def tensor_us(core: Convolution, device: Device) -> float:
    """Between two copies. A transposed convolution with both stride and dilation is not taken apart by phases."""
    flops = unskipped_flops(core) if max(core.node.dilation) > 1 else core.flops
    multiplying_us = flops / tensor_tflops(core, device) / 1e6
    turning_us = 2 * moving_us(bytes_of(core), device, TURNING_SHARE)
    return turning_us + max(multiplying_us, moving_us(bytes_of(core), device, 1.0))


def tensor_tflops(core: Convolution, device: Device) -> float:
    node = core.node
    channels, outputs = channels_of(node)
    share = TENSOR_SHARE * min(1.0, outputs / FULL_OUTPUTS) * min(1.0, channels / FULL_CHANNELS) ** 2
    share *= THREE_AXES if len(node.stride) == 3 else 1.0
    share *= PHASES if node.transposed and max(node.stride) > 1 else 1.0
    peak = device.peaks.tf32 if node.dtype.name == "float32" else device.peaks.float16
    return peak * max(share, NARROW_SHARE)


def cores_us(core: Convolution, device: Device) -> float:
    share = CORES_SHARE[len(core.node.stride)]
    share *= FEW_OUTPUTS_SHARE if channels_of(core.node)[1] < FEW_OUTPUTS else 1.0
    multiplying_us = unskipped_flops(core) / (device.peaks.float32 * share) / 1e6
    return max(multiplying_us, moving_us(bytes_of(core), device, 1.0))


def cpu_us(core: Convolution, device: Device) -> float:
    filled = math.prod(min(1.0, count / CPU_FULL_CHANNELS) for count in channels_of(core.node))
    share = (CPU_TRANSPOSED_SHARE if core.node.transposed else CPU_SHARE) * max(filled, 1 / 8)
    multiplying_us = core.flops / (device.peaks.float32 * share) / 1e6
    return max(multiplying_us, moving_us(bytes_of(core), device, CPU_BANDWIDTH))


def cpu_depthwise_us(core: Convolution, device: Device) -> float:
    multiplying_us = core.flops / (device.peaks.float32 * CPU_SHARE) / 1e6
    return max(multiplying_us, moving_us(bytes_of(core), device, CPU_DEPTHWISE_BANDWIDTH))


Way: TypeAlias = tuple[Callable[[Convolution], bool], Callable[[Convolution, Device], float]]
WAYS: tuple[Way, ...] = (
    (is_depthwise, depthwise_us),
    (lambda core: is_pointwise(core) and may_round(core), pointwise_us),
    (suits_tensor_cores, tensor_us),
    (lambda core: True, cores_us),
)
CPU_WAYS: tuple[Way, ...] = ((is_depthwise, cpu_depthwise_us), (lambda core: True, cpu_us))
