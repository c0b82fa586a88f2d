"""Every row of the table of scalar functions, compiled for this CPU, against what it means in torch."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from kernelwright.build.toolchain import find_cxx
from kernelwright.flags import CPU_COMPILE_FLAGS
from kernelwright.ir.dtypes import DTYPES, DType, bool_, float32, float64
from kernelwright.ir.scalars import SCALARS, Scalar, spell_cast
from kernelwright.kernels.device import inline
from kernelwright.settings import read_settings

REAL = tuple(dtype for dtype in DTYPES.values() if dtype.kind != "complex")
COMPUTED = tuple(dtype for dtype in REAL if not dtype.is_reduced_float)
INTEGERS = tuple(dtype for dtype in REAL if dtype.kind in ("int", "bool"))
ROWS = tuple(row for row in SCALARS.values() if row.name != "cast")
FLOAT_ROWS = tuple(row for row in ROWS if "float" in row.accepts)

# The largest error allowed, in units in the last place of the float64 result, where PyTorch's own is not larger.
ULPS = 2.5
# mish is five roundings after an exponential: 8 times as fast as PyTorch's, which is tanh(log1p(exp(x))).
ULPS_OF = {"mish": 3.5}
# Their results are small differences of large numbers: the error is counted in the last place of the largest operand.
CANCELLING = ("add", "sub", "lerp", "log_add_exp", "tanhshrink", "gelu_erf", "gelu_tanh", "logsigmoid")
# The remainder of a division needs a loop of its own in each lane.
NOT_VECTORISED = ("fmod", "remainder", "floor_divide", "identity")  # identity becomes memmove

ATTRIBUTES: dict[str, tuple[float, ...]] = {
    "leaky_relu": (0.01,),
    "elu": (1.3, 1.1, 0.7),
    "celu": (1.5,),
    "softplus": (1.0, 20.0),
    "hardtanh": (-1.0, 2.0),
    "hardshrink": (0.5,),
    "softshrink": (0.5,),
    "threshold": (0.1, 20.0),
    "nan_to_num": (0.5, 9.0, -9.0),
}
INF, NAN = math.inf, math.nan
# fmt: off
EDGES = (
    0.0, 1.0, 0.5, 2.0, 3.0, 1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, 1e10, 1e20, 0.99999994, 1.0000001,
    87.3, 88.0, 88.72284, 88.73, 89.5, 100.0, 103.2, 103.98, 104.0, 105.0, 127.0, 128.0, 149.0, 150.0, 1e4, INF,
)
# fmt: on


@dataclass(frozen=True)
class Library:
    """The compiled rows, and the names of those whose loop became vector instructions."""

    code: ctypes.CDLL
    vectorised: frozenset[str]

    def run(self, entry: str, operands: Sequence[torch.Tensor], result: torch.dtype) -> torch.Tensor:
        shape = max((x.shape for x in operands), key=len)  # attributes are 0-d
        operands = [x.expand(shape).contiguous() for x in operands]
        y = torch.empty(shape, dtype=result)
        function = getattr(self.code, entry)
        function.argtypes = [ctypes.c_void_p] * (len(operands) + 1) + [ctypes.c_int64]
        function.restype = None
        function(*(x.data_ptr() for x in operands), y.data_ptr(), y.numel())
        return y

    def apply(self, row: Scalar, operands: Sequence[torch.Tensor], dtype: DType) -> torch.Tensor:
        result = torch.bool if row.result == "bool" else dtype.to_torch()
        return self.run(f"{row.name}_{dtype}", operands, result)


def row_source(row: Scalar, dtype: DType) -> str:
    """One loop on one line, so that the compiler's report names it by its line."""
    kinds = [dtype] * row.arity
    if row.name == "where":
        kinds[0] = bool_
    # A loop that loads bool is not vectorised by gcc 12; kw::Vec holds them as bytes too.
    pointers = [
        f"const {'uint8_t' if kind is bool_ else kind.storage_cpp}* __restrict a{i}" for i, kind in enumerate(kinds)
    ]
    loads = " ".join(f"const {kind.compute_cpp} x{i} = a{i}[i];" for i, kind in enumerate(kinds))
    result = "bool" if row.result == "bool" else dtype.storage_cpp
    value = row.spell(*(f"x{i}" for i in range(row.arity)))
    return (
        f'extern "C" void {row.name}_{dtype}({", ".join(pointers)}, {result}* __restrict y, int64_t n) '
        f'{{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) {{ {loads} y[i] = {value}; }} }}'
    )


def cast_source(origin: DType, to: DType) -> str:
    value = spell_cast("kw::widen(x[i])", to)
    return (
        f'extern "C" void cast_{origin}_{to}(const {origin.storage_cpp}* __restrict x, {to.storage_cpp}* __restrict y, '
        f'int64_t n) {{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) '
        f"y[i] = kw::convert<{to.storage_cpp}>({value}); }}"
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    entries = [(row, dtype) for row in ROWS for dtype in COMPUTED if dtype.kind in row.accepts]
    casts = [(origin, to) for origin in REAL for to in REAL]
    names = sorted({name for row in SCALARS.values() for name in row.device_names} | {"convert", "widen"})
    lines = inline(names, "cpu").splitlines()
    first = len(lines) + 1
    lines += [row_source(row, dtype) for row, dtype in entries]
    lines += [cast_source(origin, to) for origin, to in casts]
    folder = tmp_path_factory.mktemp("scalars")
    report = compile_library(folder, "\n".join(lines) + "\n")
    found = {int(line) for line in re.findall(r"rows\.cpp:(\d+):\d+: optimized:\s+loop vectorized", report)}
    vectorised = frozenset(f"{row.name}_{dtype}" for i, (row, dtype) in enumerate(entries) if first + i in found)
    return Library(ctypes.CDLL(str(folder / "rows.so")), vectorised)


def compile_library(folder: Path, source: str) -> str:
    """Builds rows.so and returns what the compiler said about its loops."""
    (folder / "rows.cpp").write_text(source)
    compiler = find_cxx(read_settings())
    report = ("-fopt-info-vec",) if compiler.family == "gcc" else ()
    compile_command = [*compiler.command, *CPU_COMPILE_FLAGS, *report, "-fPIC", "-c", "rows.cpp", "-o", "rows.o"]
    done = subprocess.run(compile_command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
    subprocess.run([*compiler.command, "-shared", "rows.o", "-o", "rows.so"], cwd=folder, check=True, timeout=60)
    return done.stderr


# --- operands


def numbers(seed: int) -> torch.Tensor:
    """Ordinary, small, large, every magnitude, whole numbers, and the neighbourhoods of 1 and -1."""
    g = torch.Generator().manual_seed(seed)
    normal = torch.randn(6, 4000, generator=g)
    every_magnitude = torch.exp2(torch.rand(4000, generator=g) * 276 - 148).copysign(normal[0])
    whole = torch.randint(-20, 21, (1000,), generator=g).float()
    uniform = torch.rand(4000, generator=g) * 2 - 1
    spread = (normal[1] * 3, uniform, normal[2] * 30, every_magnitude, whole, 1 + normal[3] / 99, normal[4] / 999 - 1)
    return torch.cat(spread)


def edges() -> torch.Tensor:
    return torch.tensor([*EDGES, *(-x for x in EDGES), NAN])


def operands_of(row: Scalar) -> list[torch.Tensor]:
    """Float operands: random ones, then every edge, in pairs where the function has two of a kind."""
    if row.name in ATTRIBUTES:
        return [torch.cat([numbers(0), edges()]), *(torch.tensor(value) for value in ATTRIBUTES[row.name])]
    if row.arity == 1:
        return [torch.cat([numbers(0), edges()])]
    a = torch.cat([numbers(1), edges().repeat(len(edges()))])
    shuffled = numbers(2)[torch.randperm(len(numbers(2)), generator=torch.Generator().manual_seed(3))]
    b = torch.cat([shuffled, edges().repeat_interleave(len(edges()))])
    third = {"where": (b > 0, a, b), "lerp": (a, b, b.frac().abs())}
    return list(third.get(row.name, (a, b)))


def widened(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [x.double() if x.is_floating_point() else x for x in operands]


# --- comparison


def ulp(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of `dtype` at x, which is float64."""
    digits, least = {torch.float32: (23, -126), torch.float64: (52, -1022)}[dtype]
    exponent = torch.frexp(x.abs())[1] - 1
    return torch.ldexp(torch.ones_like(x), exponent.clamp(min=least) - digits)


def errors(y: torch.Tensor, exact: torch.Tensor, operands: Sequence[torch.Tensor], row: Scalar) -> torch.Tensor:
    """In units in the last place; 0 where either is not finite, which `classes` compares."""
    magnitudes = [exact.abs(), *(x.double().abs().expand_as(exact) for x in operands if row.name in CANCELLING)]
    place = ulp(torch.stack(magnitudes).amax(0).nan_to_num(posinf=1.0), y.dtype)
    return ((y.double() - exact).abs() / place).where(y.isfinite() & exact.isfinite(), 0.0)


def classes(x: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 infinite, -1 minus infinity, 2 NaN."""
    return torch.where(x.isnan(), 2.0, torch.where(x.isinf(), x.sign(), 0.0))


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | ((a != a) & (b != b))


def examples(wrong: torch.Tensor, operands: Sequence[torch.Tensor], *values: torch.Tensor) -> str:
    """Up to three of the operands for which something is wrong, with the values found."""
    chosen = wrong.nonzero()[:3, 0].tolist()
    spread = [x.expand_as(wrong) for x in operands]
    return "; ".join(f"f{tuple(x[i].item() for x in spread)}: {[v[i].item() for v in values]}" for i in chosen)


# --- float32


@pytest.mark.parametrize("row", FLOAT_ROWS, ids=lambda row: row.name)
def test_float32_is_as_accurate_as_pytorch(row: Scalar, library: Library) -> None:
    operands = operands_of(row)
    ours, theirs = library.apply(row, operands, float32), row.torch(*operands)
    exact = row.torch(*widened(operands))
    if row.result == "bool":
        assert torch.equal(ours, exact), examples(ours != exact, operands, ours, exact)
        return
    mine, reference = errors(ours, exact, operands, row), errors(theirs, exact, operands, row)
    allowed = max(ULPS_OF.get(row.name, ULPS), reference.max().item())
    assert mine.max() <= allowed, examples(mine >= mine.max(), operands, ours, exact, mine)
    wrong = (classes(ours) != classes(exact.float())) & (classes(ours) != classes(theirs))
    assert not wrong.any(), examples(wrong, operands, ours, theirs, exact)


@pytest.mark.parametrize("row", [row for row in FLOAT_ROWS if row.exact], ids=lambda row: row.name)
def test_exact_rows_have_the_very_value(row: Scalar, library: Library) -> None:
    operands = operands_of(row)
    ours = library.apply(row, operands, float32)
    theirs, exact = row.torch(*operands), row.torch(*widened(operands)).to(ours.dtype)
    wrong = ~(same(ours, exact) | same(ours, theirs))
    assert not wrong.any(), examples(wrong, operands, ours, theirs, exact)


ZERO_PRESERVING = ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erfinv", "expm1", "log1p")


@pytest.mark.parametrize("name", [*ZERO_PRESERVING, "round", "trunc", "ceil", "floor", "sqrt", "softsign", "silu"])
def test_the_sign_of_zero_is_kept(name: str, library: Library) -> None:
    y = library.apply(SCALARS[name], [torch.tensor([0.0, -0.0])], float32)
    assert y.tolist() == [0.0, 0.0]
    assert y.signbit().tolist() == [False, True]


@pytest.mark.parametrize("row", [row for row in FLOAT_ROWS if row.laws.odd or row.laws.even], ids=lambda row: row.name)
def test_odd_and_even_functions_are_so_to_the_last_bit(row: Scalar, library: Library) -> None:
    x = torch.cat([numbers(4), edges()])
    y, mirrored = library.apply(row, [x], float32), library.apply(row, [-x], float32)
    expected = -y if "float" in row.laws.odd else y
    wrong = ~same(mirrored, expected)
    assert not wrong.any(), examples(wrong, [x], y, mirrored)


def test_gelu_keeps_its_lower_tail(library: Library) -> None:
    x = torch.linspace(-12, 6, 20001)
    exact = x.double() * 0.5 * torch.erfc(-x.double() / math.sqrt(2))
    error = (library.apply(SCALARS["gelu_erf"], [x], float32).double() - exact).abs() / ulp(exact, torch.float32)
    assert error[x > -1].max() <= 3
    assert error[x > -3].max() <= 8
    assert error.max() <= 64


def test_activations_do_not_overflow_on_the_way(library: Library) -> None:
    far = torch.tensor([-1e4, -200.0, 200.0, 1e4, 3e38, -3e38])
    lower = {"silu": 0.0, "mish": 0.0, "gelu_erf": 0.0, "gelu_tanh": 0.0, "sigmoid": 0.0}
    for name, limit in lower.items():
        y = library.apply(SCALARS[name], [far], float32)
        assert y[far < 0].tolist() == [limit] * 3, name
        assert y[far > 0].tolist() == ([1.0] * 3 if name == "sigmoid" else far[far > 0].tolist()), name
    steep = library.apply(SCALARS["softplus"], [far, torch.tensor(1.0), torch.tensor(INF)], float32)
    assert steep.tolist() == far.clamp(min=0).tolist()
    assert library.apply(SCALARS["logsigmoid"], [far], float32).tolist() == far.clamp(max=0).tolist()


def test_loops_over_floats_become_vector_instructions(library: Library) -> None:
    if find_cxx(read_settings()).family != "gcc":
        pytest.skip("only gcc reports its loops by line in this form")
    expected = {f"{row.name}_float32" for row in FLOAT_ROWS if row.name not in NOT_VECTORISED}
    assert expected - library.vectorised == set()


# --- other dtypes


@pytest.mark.parametrize("row", FLOAT_ROWS, ids=lambda row: row.name)
def test_float64_agrees_with_pytorch(row: Scalar, library: Library) -> None:
    operands = widened(operands_of(row))
    if row.name == "erfinv":  # PyTorch's loses half its digits near 1
        operands = [x[~((x.abs() > 0.9) & (x.abs() < 1))] for x in operands]
    ours, theirs = library.apply(row, operands, float64), row.torch(*operands)
    if row.result == "bool":
        assert torch.equal(ours, theirs)
        return
    difference = errors(ours, theirs, operands, row)
    assert difference.max() <= 6, examples(difference >= difference.max(), operands, ours, theirs)
    wrong = classes(ours) != classes(theirs)
    assert not wrong.any(), examples(wrong, operands, ours, theirs)


def test_float64_erfinv_is_the_inverse_near_one(library: Library) -> None:
    x = 1 - torch.exp2(-torch.linspace(1, 50, 500, dtype=torch.float64))
    y = library.apply(SCALARS["erfinv"], [x], float64)
    # A relative error e of y is magnified to about 2 y^2 e in erfc(y).
    assert ((torch.erfc(y) / (1 - x) - 1).abs() <= 2 * (1 + 2 * y * y) * 2.3e-16).all()


def integers(dtype: DType, seed: int) -> torch.Tensor:
    """Small numbers of either sign, and the ends of the range."""
    low, high = int(dtype.lowest), int(dtype.highest)
    some = torch.randint(max(low, -9), min(high, 9) + 1, (500,), generator=torch.Generator().manual_seed(seed))
    ends = torch.tensor([low, high, low + 1, high - 1]) if dtype.kind == "int" else torch.tensor([0, 1])
    return torch.cat([some, ends]).to(dtype.to_torch())


INTEGER_CASES = [(row, dtype) for row in ROWS for dtype in INTEGERS if dtype.kind in row.accepts]


@pytest.mark.parametrize(("row", "dtype"), INTEGER_CASES, ids=lambda value: str(getattr(value, "name", value)))
def test_integers_equal_pytorch(row: Scalar, dtype: DType, library: Library) -> None:
    operands = [integers(dtype, seed) for seed in range(row.arity)]
    shuffle = torch.randperm(len(operands[0]), generator=torch.Generator().manual_seed(9))
    operands[1:] = [x[shuffle] for x in operands[1:]]
    if row.name == "where":
        operands[0] = operands[0] > 1
    if row.name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
        operands[1] = torch.where(operands[1] == 0, torch.ones_like(operands[1]), operands[1])
        # The least integer over -1 stops the process in PyTorch on some machines.
        operands[0] = torch.where(operands[0] == dtype.lowest, torch.ones_like(operands[0]), operands[0])
    ours, theirs = library.apply(row, operands, dtype), row.torch(*operands)
    assert torch.equal(ours, theirs), examples(ours != theirs, operands, ours, theirs)


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype.kind == "int"], ids=str)
def test_integer_division_never_traps(dtype: DType, library: Library) -> None:
    least, kind = int(dtype.lowest), dtype.to_torch()
    a, b = torch.tensor([7, least, least], dtype=kind), torch.tensor([0, 0, -1 if least else 1], dtype=kind)
    for name in ("floor_divide", "trunc_divide"):
        assert library.apply(SCALARS[name], [a, b], dtype).tolist() == [0, 0, least]
    for name in ("remainder", "fmod"):
        assert library.apply(SCALARS[name], [a, b], dtype).tolist() == [0, 0, 0]


# --- casts


@pytest.mark.parametrize("to", REAL, ids=str)
@pytest.mark.parametrize("origin", REAL, ids=str)
def test_casts_equal_pytorch(origin: DType, to: DType, library: Library) -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 7.0, 100.0, 0.5, 1.5, 2.5, 99.9])
    if to.name != "uint8":  # a negative number as an unsigned one is not the same on every device
        x = torch.cat([x, -x])
    if to.kind in ("float", "bool") and origin.kind == "float":
        every = torch.exp2(torch.linspace(-40, 40, 999)) * 1.2345678
        x = torch.cat([x, every, -every, torch.tensor([INF, -INF, NAN, 65504.0, 65519.9, 65520.0, 6e-8, 2e-8, 1e-40])])
    if origin.name == "uint8":
        x = x.abs()
    x = x.to(origin.to_torch())
    ours, theirs = library.run(f"cast_{origin}_{to}", [x], to.to_torch()), x.to(to.to_torch())
    assert same(ours, theirs).all(), examples(~same(ours, theirs), [x], ours, theirs)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_16_bit_float_goes_to_float32_and_back(name: str, library: Library) -> None:
    kind = getattr(torch, name)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(kind)
    wide = library.run(f"cast_{name}_float32", [every], torch.float32)
    assert same(wide, every.float()).all()
    back = library.run(f"cast_float32_{name}", [wide], kind)
    assert same(back, every).all()
    assert torch.equal(back.signbit() & ~every.isnan(), every.signbit() & ~every.isnan())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_to_16_bits_is_to_nearest_even(name: str, library: Library) -> None:
    g = torch.Generator().manual_seed(5)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=g).to(torch.int32)
    ties = (bits & ~0xFFFF) | 0x8000
    halves = (bits & ~0x1FFF) | 0x1000
    x = torch.cat([bits, ties, halves]).view(torch.float32)
    ours, theirs = library.run(f"cast_float32_{name}", [x], getattr(torch, name)), x.to(getattr(torch, name))
    assert same(ours, theirs).all(), examples(~same(ours, theirs), [x], ours, theirs)
