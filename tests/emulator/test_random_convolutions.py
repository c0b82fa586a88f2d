"""Random convolutions, as the GPU benchmark draws them, run on the host: none is wrong."""

from __future__ import annotations

import pytest
import torch

from benchmarks.conv_device import LIMITS, Case, random_cases
from kernelwright.device import resolve
from kernelwright.generate.generate import launch_of, program_text
from tests.emulator.build import Library, g_plus_plus, library_of

pytestmark = [pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here"), pytest.mark.slow]

COUNT = 90
CASES = random_cases(COUNT, resolve("h200"), seed=1)


def computed(case: Case, library: Library, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The result, its weight packed first where the template wants that."""
    launch = launch_of("run", [case.kernel], {case.kernel.name: case.choice})
    result = launch.allocations[-1]
    tensors[result.name] = torch.full(result.shape, torch.nan)
    for buffer in launch.pointers:
        if buffer.packed_from is not None:
            tensors[buffer.name] = torch.full(buffer.shape, 255, dtype=torch.uint8)
            assert library.call(buffer.packed_by, tensors[buffer.packed_from.name], tensors[buffer.name], None) == 0
    assert library.call("run", *(tensors[buffer.name] for buffer in launch.pointers), 0, None) == 0
    return tensors[result.name]


@pytest.mark.parametrize("number", range(COUNT))
def test_a_random_convolution_is_right(number: int) -> None:
    case = CASES[number]
    conv = case.conv
    torch.manual_seed(number)
    x, weight, bias = torch.randn(conv.x.shape), torch.randn(conv.weight.shape), torch.randn(conv.shape[1])
    launch = launch_of("run", [case.kernel], {case.kernel.name: case.choice})
    library = library_of(program_text([launch], "cuda"))
    got = computed(case, library, {"x": x, "weight": weight, "bias": bias})
    geometry = (conv.stride, conv.padding, conv.dilation, conv.transposed, conv.output_padding, conv.groups)
    exact = torch.convolution(x.double(), weight.double(), bias.double(), *geometry)
    scale = torch.convolution(x.double().abs(), weight.double().abs(), bias.double().abs(), *geometry)
    error = ((got.double() - exact).abs() / scale.clamp_min(1e-30)).max().item()
    assert error <= LIMITS[case.precision if case.template != "direct" else "ieee"], f"{case}"
