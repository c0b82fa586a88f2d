"""Division by a number in a few instructions: what its comment says of it, and where it is written."""

from __future__ import annotations

import pytest
import torch

from kernelwright.generate.pointwise import divides_by_number
from kernelwright.ir.dtypes import DType, float16, float32, float64
from kernelwright.ir.nodes import Const, Input, Map
from kernelwright.kernels.device import inline
from tests.emulator.build import Library, g_plus_plus, library_of

needs_a_compiler = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

DIVISORS = (3.0, 10.0, -7.0, 0.1, 1e-3, 6.2831853, 1.0000001, -1.9999998, 16777213.0, 2.0**-99 * 3, -(2.0**99) * 1.3)
COUNT = 1 << 20

KERNEL = """
template <int Which> __global__ void kernel(const float* x, float* y) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    constexpr float divisors[] = {DIVISORS};
    y[i] = kw::over_number(x[i], divisors[Which]);
}
// Of every fraction by every number, how many quotients are not the nearest float.
extern "C" int count_wrong(const float* numbers, int count, int64_t* wrong) {
    for (int n = 0; n < count; n++)
        for (uint32_t i = 0; i < 1u << 23; i++) {
            const float x = __uint_as_float(0x3f800000u + i);
            *wrong += kw::over_number(x, numbers[n]) != x / numbers[n];
        }
    return 0;
}
extern "C" int run(const float* x, float* y, int which, int blocks) {
    CASES
    return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def library() -> Library:
    cases = "\n    ".join(f"if (which == {i}) kernel<{i}><<<blocks, 256>>>(x, y);" for i in range(len(DIVISORS)))
    divisors = ", ".join(f"{torch.tensor(d).item()!r}f" for d in DIVISORS)
    return library_of(inline(["over_number"], "cuda") + KERNEL.replace("DIVISORS", divisors).replace("CASES", cases))


def quotients(library: Library, x: torch.Tensor, which: int) -> torch.Tensor:
    y = torch.full_like(x, 12345.0)
    assert library.call("run", x, y, which, x.numel() // 256) == 0
    return y


@needs_a_compiler
@pytest.mark.parametrize("which", range(len(DIVISORS)))
def test_it_is_the_nearest_float(library: Library, which: int) -> None:
    bits = torch.randint(-(2**31), 2**31, (COUNT,), generator=torch.Generator().manual_seed(which), dtype=torch.int64)
    x = bits.to(torch.int32).view(torch.float32)
    y, exact = quotients(library, x, which), x / torch.tensor(DIVISORS[which])
    assert torch.equal(y.isnan(), exact.isnan())
    usual = ~exact.isnan() & (x.abs() >= 2.0**-100) & ((exact.abs() >= 2.0**-126) | (exact == 0))
    assert torch.equal(y[usual].view(torch.int32), exact[usual].view(torch.int32))
    rest = ~exact.isnan() & ~usual
    assert (y[rest].view(torch.int32) - exact[rest].view(torch.int32)).abs().max() <= 1


@needs_a_compiler
@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("which", [0, 1, 6])
def test_it_is_the_nearest_float_for_every_fraction(library: Library, which: int) -> None:
    x = (torch.arange(2**23, dtype=torch.int32) + 0x3F800000).view(torch.float32)
    assert torch.equal(quotients(library, x, which), x / torch.tensor(DIVISORS[which]))


# Markstein's theorem asks for more than a product with a rounded inverse gives: so they are tried, near both ends of a
# binade, where that is farthest off, and elsewhere.
FIRST, LAST = 0x3F800000, 0x3FFFFFFF
NUMBERS = {
    "first of a binade": torch.arange(FIRST + 1, FIRST + 201, 2, dtype=torch.int32).view(torch.float32),
    "last of a binade": torch.arange(LAST - 401, LAST, 2, dtype=torch.int32).view(torch.float32),
    "odd integers": torch.arange(3, 401, 2).float(),
    "any": torch.randint(FIRST + 1, LAST, (500,), generator=torch.Generator().manual_seed(1)).int().view(torch.float32),
}


@needs_a_compiler
@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("kind", NUMBERS)
def test_it_is_the_nearest_float_for_every_fraction_by_a_thousand_numbers(library: Library, kind: str) -> None:
    wrong = torch.zeros(1, dtype=torch.int64)
    assert library.call("count_wrong", NUMBERS[kind], NUMBERS[kind].numel(), wrong) == 0
    assert wrong.item() == 0


@needs_a_compiler
@pytest.mark.parametrize("which", range(len(DIVISORS)))
def test_zero_infinity_and_nan_are_divided_as_ever(library: Library, which: int) -> None:
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45, 1.1754944e-38]
    x = torch.tensor(special).repeat(128)
    y, exact = quotients(library, x, which), x / torch.tensor(DIVISORS[which])
    assert torch.equal(y.isnan(), exact.isnan())
    there = ~exact.isnan()
    assert torch.equal(y[there].view(torch.int32), exact[there].view(torch.int32))


def division(by: float, dtype: DType = float32) -> Map:
    return Map("div", (Input("x", 0, (4,), dtype, (1,)), Const(by, dtype)))


def test_it_is_written_for_numbers_that_it_is_made_for() -> None:
    assert all(divides_by_number(division(by)) for by in (10.0, -0.1, 1e30, 1e-30))
    assert divides_by_number(division(10.0, float16))
    last_before_two = 2.0 - 2.0**-23
    assert not any(divides_by_number(division(by)) for by in (0.0, torch.inf, torch.nan, 1e-38, 1e38, last_before_two))
    assert not divides_by_number(division(10.0, float64))
    x = Input("x", 0, (4,), float32, (1,))
    assert not divides_by_number(Map("div", (Const(10.0, float32), x)))
    assert not divides_by_number(Map("mul", (x, Const(10.0, float32))))
