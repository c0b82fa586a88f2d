"""A model that runs comes in; the same run with another arithmetic, or with its random numbers replayed, goes out.

Each class is a `TorchDispatchMode`: it sees every ATen operator of a forward call. The judge alone uses them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

__all__ = ["OnCpuFirst", "Recording", "Replaying", "Rounded", "Widened", "rounded", "tf32_by_flags"]

NARROW = (torch.float32, torch.float16, torch.bfloat16)

# Operators whose operands a tensor core rounds; everything else stays float32 under TF32.
CONTRACTIONS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "addbmm",
    "addmv",
    "mv",
    "dot",
    "convolution",
    "_convolution",
    "mkldnn_convolution",
    "cudnn_convolution",
    "mkldnn_rnn_layer",
    "_cudnn_rnn",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_attention_math",
)


# Of these, the ones that torch.backends.cudnn.allow_tf32 is about; the others follow torch.backends.cuda.matmul.
CONVOLUTIONS = tuple(name for name in CONTRACTIONS if "convolution" in name)


def tf32_by_flags() -> tuple[str, ...]:
    """The operators that PyTorch's flags let run in TF32, as they stand: by default convolutions, not products."""
    products = tuple(name for name in CONTRACTIONS if name not in CONVOLUTIONS)
    allowed: tuple[str, ...] = CONVOLUTIONS if torch.backends.cudnn.allow_tf32 else ()
    return allowed + (products if torch.backends.cuda.matmul.allow_tf32 else ())


def rounded(x: torch.Tensor, rounding: str) -> torch.Tensor:
    """x as a number of that format, in x's own dtype."""
    return ROUNDINGS[rounding](x)


def _through(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.to(dtype).to(x.dtype)


def _kept_bits(bits: int, *, nearest: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """float32 with `bits` bits of mantissa; the rest is rounded to the nearest, or cut off."""
    dropped = 23 - bits
    half, mask = (1 << (dropped - 1)) - 1, ~((1 << dropped) - 1)

    def keep(x: torch.Tensor) -> torch.Tensor:
        raw = x.float().contiguous().view(torch.int32)
        up = half + ((raw >> dropped) & 1) if nearest else 0
        kept = ((raw + up) & mask).view(torch.float32)
        return torch.where(torch.isfinite(x), kept.to(x.dtype), x)

    return keep


ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tf32": _kept_bits(10, nearest=True),
    "tf32 cut off": _kept_bits(10, nearest=False),
    "fp16": _through(torch.float16),
    "bf16": _through(torch.bfloat16),
    "bf16 cut off": _kept_bits(7, nearest=False),
}


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Contractions see their operands rounded to `precision`; sums stay as they are.

    results  "" if those stay as they are too; "product" if they are rounded before a bias is added, "sum" if after
    """

    def __init__(self, precision: str, operators: Sequence[str] = CONTRACTIONS, results: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.precision = precision
        self.operators = operators
        self.results = results
        self.used = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name not in self.operators:
            return func(*args, **kwargs)
        self.used = True
        bias = None
        if self.results == "product":
            args, bias = _without_bias(name, args, kwargs)
        args, kwargs = tree_map(self._round, (args, kwargs))
        result = func(*args, **kwargs)
        if self.results:
            result = tree_map(self._round, result)
        return result if bias is None else result + bias

    def _round(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float64):
            return rounded(value, self.precision)
        return value


def _without_bias(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], torch.Tensor | None]:
    """The arguments of the product alone, and what is to be added to it."""
    if name in ("addmm", "baddbmm", "addmv") and not kwargs:
        return (torch.zeros_like(args[0]), *args[1:]), args[0]
    if name in ("convolution", "mkldnn_convolution") and len(args) > 2 and args[2] is not None:
        bias = args[2].view(1, -1, *[1] * (args[0].dim() - 2))
        return (*args[:2], None, *args[3:]), bias
    return args, None


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Casts and constants that a forward makes in float32 or narrower are made in float64."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        args = tuple(torch.float64 if isinstance(arg, torch.dtype) and arg in NARROW else arg for arg in args)
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if any(t.dtype is torch.float64 for t in tensors) and any(t.dtype in NARROW for t in tensors):
            args = tree_map(_wide, args)
        return func(*args, **kwargs)


# Operators whose GPU kernels check what they read, by an assertion in the kernel: ranges of numbers, and indices.
ASSERTING = frozenset(
    {
        "bernoulli",
        "binary_cross_entropy",
        "embedding",
        "gather",
        "index",
        "index_add",
        "index_put",
        "index_select",
        "multinomial",
        "nll_loss2d_forward",
        "nll_loss_forward",
        "poisson",
        "scatter",
        "scatter_add",
        "take",
    }
)


class OnCpuFirst(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators that would assert run on a CPU first, which raises instead. A failed assertion ends all work of the
    process on its GPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket.__name__.rstrip("_") in ASSERTING:
            without_generator = {name: value for name, value in kwargs.items() if name != "generator"}
            func(*tree_map(_on_cpu, args), **tree_map(_on_cpu, without_generator))
        return func(*args, **kwargs)


def _on_cpu(value: Any) -> Any:
    """A copy, for operators that write into what they are given."""
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


# Operators that multiply by what they draw, and leave that in their second argument.
WITH_NOISE = frozenset({"rrelu_with_noise", "rrelu_with_noise_"})


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what every random operator gave, or what it drew for that."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawn = args[1] if func.overloadpacket.__name__ in WITH_NOISE else result
            self.tape.append(tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, drawn))
        return result


class Replaying(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random operators give what the tape has instead of drawing; the same numbers in float64 if `wide`."""

    def __init__(self, tape: Sequence[Any], *, wide: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = list(tape)
        self.wide = wide

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        recorded = self.tape.pop(0)
        if func.overloadpacket.__name__ == "native_dropout":
            x, p = args[0], args[1]
            mask = recorded[1]
            return x * mask.to(x.dtype) / (1 - p), mask
        if func.overloadpacket.__name__ in WITH_NOISE:
            x, noise = args[0], args[1].copy_(recorded)
            return x.mul_(noise) if func.overloadpacket.__name__.endswith("_") else x * noise
        if func._schema.is_mutable and isinstance(args[0], torch.Tensor):
            return args[0].copy_(recorded)
        return tree_map(_wide if self.wide else _own, recorded)


def _own(value: Any) -> Any:
    """Whoever writes into what it was given must not change the tape."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value
