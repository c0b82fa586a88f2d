"""Element types as plain data: from a name or a torch dtype to sizes, kinds and C++ spellings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Kind = Literal["float", "int", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `storage_cpp` is its type in memory, `compute_cpp` its type in registers."""

    name: str
    kind: Kind
    itemsize: int
    storage_cpp: str
    compute_cpp: str

    def to_torch(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.name)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def is_reduced_float(self) -> bool:
        """Narrower in memory than in registers: stored in 16 bits, computed as float."""
        return self.storage_cpp != self.compute_cpp

    @property
    def lowest(self) -> float | int | bool:
        """The least value: no other value is smaller."""
        return _bounds(self)[0]

    @property
    def highest(self) -> float | int | bool:
        """The greatest value: no other value is larger."""
        return _bounds(self)[1]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


float64 = DType("float64", "float", 8, "double", "double")
float32 = DType("float32", "float", 4, "float", "float")
float16 = DType("float16", "float", 2, "kw::half", "float")
bfloat16 = DType("bfloat16", "float", 2, "kw::bfloat16", "float")
int64 = DType("int64", "int", 8, "int64_t", "int64_t")
int32 = DType("int32", "int", 4, "int32_t", "int32_t")
int16 = DType("int16", "int", 2, "int16_t", "int16_t")
int8 = DType("int8", "int", 1, "int8_t", "int8_t")
uint8 = DType("uint8", "int", 1, "uint8_t", "uint8_t")
bool_ = DType("bool", "bool", 1, "bool", "bool")
# Complex values only travel through operators that PyTorch itself runs; no kernel is generated for them.
complex64 = DType("complex64", "complex", 8, "std::complex<float>", "std::complex<float>")
complex128 = DType("complex128", "complex", 16, "std::complex<double>", "std::complex<double>")

DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        dtype.name: dtype
        for dtype in (
            *(float64, float32, float16, bfloat16),
            *(int64, int32, int16, int8, uint8),
            bool_,
            *(complex64, complex128),
        )
    }
)


def by_name(name: str) -> DType:
    """The element type called `name`, as torch spells it without its prefix."""
    if name not in DTYPES:
        raise KeyError(f"no element type is called {name!r}. Known: {', '.join(DTYPES)}.")
    return DTYPES[name]


def from_torch(dtype: torch.dtype) -> DType:
    """The element type of a torch dtype."""
    return by_name(str(dtype).removeprefix("torch."))


def _bounds(dtype: DType) -> tuple[float | int | bool, float | int | bool]:
    bits = 8 * dtype.itemsize
    match dtype.kind:
        case "float":
            return float("-inf"), float("inf")
        case "bool":
            return False, True
        case "int" if dtype.name.startswith("u"):
            return 0, 2**bits - 1
        case "int":
            return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    raise ValueError(f"{dtype} is not ordered, so it has no least or greatest value.")
