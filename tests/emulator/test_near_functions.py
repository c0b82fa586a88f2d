"""Functions in few instructions: what their comments say of their errors, for every number of 16 bits."""

from __future__ import annotations

import pytest
import torch

from kernelwright.kernels.device import inline
from tests.emulator.build import Library, g_plus_plus, library_of

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

KERNEL = """
__global__ void kernel(const float* x, float* y) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    y[i] = kw::near_gelu_erf(x[i]);
}
extern "C" int run(const float* x, float* y) {
    kernel<<<256, 256>>>(x, y);
    return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of(inline(["near_gelu_erf"], "cuda") + KERNEL)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gelu_in_few_instructions(library: Library, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).float()
    y = torch.full_like(x, torch.nan)
    assert library.call("run", x, y) == 0
    assert torch.equal(y.isnan(), x.isnan() | (x == -torch.inf))
    assert torch.equal(y[x > 20], x[x > 20])
    exact = x.double() * torch.special.log_ndtr(x.double()).exp()
    error = (y - exact).abs() / exact.abs()
    normal = exact.isfinite() & (exact.abs() > 2.0**-126)
    assert error[normal & (x > -5.7)].max() < 2**-15
    assert error[normal & (x > -9)].max() < 2**-11
    finite = x > -torch.inf
    beyond = finite & (x <= -9)
    assert (y[beyond] <= 0).all()
    assert (y[beyond] >= exact[beyond]).all()
    assert (y[finite & (x < -14)] == 0).all()
