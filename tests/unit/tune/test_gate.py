"""Only convolutions that give PyTorch's results are timed."""

from __future__ import annotations

import torch

from benchmarks.conv_device import conv_of, kernel_of, leaf, module_of
from kernelwright.ir.nodes import Map, Reduce
from kernelwright.plan import Kernel
from kernelwright.tune.gate import expected, is_right
from tests.unit.plan.test_tiles import conv, norm, planned, softmax, windows


def convolving() -> tuple[Kernel, dict[str, torch.Tensor]]:
    conv = conv_of(module_of("Conv2d(3, 4, 3, padding=1)"), (2, 3, 6, 7))
    kernel = kernel_of(conv, "conv_kernel", "ieee", with_epilogue=True)
    torch.manual_seed(1)
    layouts = [layout for _, layout in (*kernel.region.loads, *kernel.region.stores)]
    assert kernel.core is not None
    buffers = [*(layout.buffer for layout in layouts), conv_buffer(kernel, "x"), conv_buffer(kernel, "weight")]
    return kernel, {b.name: torch.rand(b.nbytes // 4) - 0.5 for b in buffers}


def test_rows_that_a_convolution_reduces_are_compared_too() -> None:
    node = conv()
    positive = Map("add", (Map("relu", (node,)), leaf("other", node.shape, parameter=True)))
    pooled = Reduce("max", windows(positive, 2, 2), (4, 5))
    for result in (softmax(positive, (1,)), norm(positive, (2, 3)), pooled):
        kernel = planned(node, result).kernels[0]
        buffers = [layout.buffer for _, layout in (*kernel.region.loads, *kernel.region.stores)]
        buffers += [conv_buffer(kernel, "x"), conv_buffer(kernel, "weight")]
        torch.manual_seed(1)
        tensors = {b.name: torch.rand(b.nbytes // 4) - 0.5 for b in buffers}
        wanted = expected(kernel, tensors)

        def write(wrong: float, kernel: Kernel = kernel, tensors: dict = tensors, wanted: list = wanted) -> None:  # type: ignore[type-arg]
            for value, (_, layout) in zip(wanted, kernel.region.stores, strict=True):
                tensors[layout.buffer.name].copy_(value.flatten())
                tensors[layout.buffer.name][5] += wrong

        assert is_right(kernel, lambda write=write: write(0.0), tensors)  # type: ignore[misc]
        assert not is_right(kernel, lambda write=write: write(30.0), tensors)  # type: ignore[misc]


def conv_buffer(kernel: Kernel, operand: str):  # type: ignore[no-untyped-def]
    return getattr(kernel.core, operand).buffer


def written(kernel: Kernel, tensors: dict[str, torch.Tensor], error: float) -> None:
    (value,) = expected(kernel, tensors)
    ((_, layout),) = kernel.region.stores
    tensors[layout.buffer.name].copy_(value.flatten())
    tensors[layout.buffer.name][17] += error


def test_a_launch_that_computes_what_pytorch_computes_may_compete() -> None:
    kernel, tensors = convolving()
    assert is_right(kernel, lambda: written(kernel, tensors, 1e-4), tensors)


def test_one_wrong_result_is_enough_to_be_left_out() -> None:
    kernel, tensors = convolving()
    assert not is_right(kernel, lambda: written(kernel, tensors, 0.3), tensors)


def test_a_result_that_is_not_a_number_is_wrong() -> None:
    kernel, tensors = convolving()
    assert not is_right(kernel, lambda: written(kernel, tensors, float("nan")), tensors)


def test_a_launch_that_does_nothing_is_wrong() -> None:
    kernel, tensors = convolving()
    assert not is_right(kernel, lambda: None, tensors)


def test_a_launch_that_is_refused_is_wrong() -> None:
    kernel, tensors = convolving()

    def refused() -> None:
        raise RuntimeError("invalid configuration")

    assert not is_right(kernel, refused, tensors)
