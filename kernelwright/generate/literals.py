"""A constant or a name comes in; its C++ spelling goes out."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping

from kernelwright.ir.dtypes import DType

# Keywords; names of ours; types, variables and macros that every CUDA or C++ file has.
CPP_KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class concept const constexpr continue decltype "
    "default delete do double else enum explicit export extern false float for friend goto if inline int long "
    "mutable namespace new noexcept not nullptr operator or private protected public register requires return "
    "short signed sizeof static struct switch template this throw true typedef typename union unsigned using "
    "virtual void volatile while xor half row column args stream device load store Index N P Q R Args Operands Tile "
    "Turned kw std guard error cudaStream_t size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t "
    "dim3 threadIdx blockIdx blockDim gridDim warpSize NULL EOF NAN INFINITY M_E M_PI stdin stdout stderr errno assert "
    "linux unix".split()
)


def names_in(text: str) -> set[str]:
    """The parts of our headers that C++ text uses: what it calls in kw, our macros, and integers of a fixed width."""
    ours = {*re.findall(r"\bkw::(\w+)", text), *re.findall(r"\bkw::(\w+::\w+)", text)}
    return {*ours, *re.findall(r"\b(KW_\w+|u?int\d+_t)\b", text)}


def literal(value: bool | int | float, dtype: DType) -> str:
    """The value as C++ reads it back, to the bit."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "int":
        return integer_literal(int(value), dtype)
    if dtype.compute_cpp == "double":
        return double_literal(float(value))
    return float_literal(ROUNDED[dtype.name](as_float32(float(value))))


def integer_literal(value: int, dtype: DType) -> str:
    """C++ has no negative literals: the least integer is one less than the least that can be negated."""
    text = f"{value + 1} - 1" if value == dtype.lowest and dtype.itemsize >= 4 else str(value)
    return text if dtype.itemsize == 4 and text == str(value) else f"{dtype.compute_cpp}({text})"


def float_literal(value: float) -> str:
    """The shortest decimal that is this float32."""
    rounded = as_float32(value)
    if not math.isfinite(rounded):
        (bits,) = struct.unpack("<I", struct.pack("<f", rounded))
        return f"kw::bits_float(0x{bits:08x}u)"
    digits = next(text for text in (f"{rounded:.{p}g}" for p in range(1, 10)) if as_float32(float(text)) == rounded)
    return f"{with_point(digits)}f"


def as_float32(value: float) -> float:
    """The nearest float32; beyond its range, infinity."""
    if math.isfinite(value) and abs(value) >= 3.4028235677973366e38:
        return math.copysign(math.inf, value)
    result: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return result


def as_float16(value: float) -> float:
    """The nearest float16; beyond its range, infinity."""
    if math.isfinite(value) and abs(value) >= 65520.0:
        return math.copysign(math.inf, value)
    result: float = struct.unpack("<e", struct.pack("<e", value))[0]
    return result


def as_bfloat16(value: float) -> float:
    """The nearest bfloat16, which is the upper half of a float32."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    rounded = bits if not math.isfinite(value) else bits + 0x7FFF + (bits >> 16 & 1)
    result: float = struct.unpack("<f", struct.pack("<I", rounded & 0xFFFF0000))[0]
    return result


# A constant is as coarse as the tensors of its dtype, though it is computed with in float32.
ROUNDED: Mapping[str, Callable[[float], float]] = {
    "float32": lambda value: value,
    "float16": as_float16,
    "bfloat16": as_bfloat16,
}


def double_literal(value: float) -> str:
    if not math.isfinite(value):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return f"kw::bits_double(0x{bits:016x}ull)"
    return with_point(repr(value))


def with_point(digits: str) -> str:
    """1 -> 1.0, since without a point or an exponent it would be an integer; 2e+01 -> 20.0, which reads better."""
    if "e" in digits and 1e-4 <= abs(float(digits)) < 1e9:
        digits = repr(float(digits))
    return digits if any(c in digits for c in ".e") else f"{digits}.0"


def identifier(name: str) -> str:
    """A name that C++ and our headers leave free: row -> row_, and row_ -> row__, so that two names stay two."""
    return f"{name}_" if name.rstrip("_") in CPP_KEYWORDS else name


# What the generated functions call their own parameters and temporaries.
TEMPORARY = re.compile(r"[aeipqrsxy]|[ijty]\d+|tile|level|late|product|rows?|columns?|depth|line")


def local(name: str) -> str:
    """The name of a variable in a generated function; two names stay two here as well."""
    return f"{name}_" if TEMPORARY.fullmatch(name.rstrip("_")) else name


def camel(name: str) -> str:
    """add_relu_kernel -> AddRelu"""
    return "".join(part.capitalize() for part in name.removesuffix("_kernel").split("_"))
