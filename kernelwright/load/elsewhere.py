"""Code that says CUDA comes in; the same code running on the device we have goes out.

A problem file may say `.cuda()` or `device="cuda"`. It must still load where there is no GPU, for the CPU or to plan
for a GPU that is not here. Every torch call passes a `TorchFunctionMode` on its way to C++, so one rule there is
enough: where a call names a CUDA device, the target is meant.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Elsewhere"]


class Elsewhere(TorchFunctionMode):
    """While this mode is on, `cuda` means `target`; with target "meta", so does no device at all.

    Not redirected, since they are no torch calls: torch.Generator(device="cuda"), torch.cuda.synchronize(), streams.
    """

    def __init__(self, target: str | torch.device) -> None:
        super().__init__()
        self.target = torch.device(target)

    def __enter__(self) -> "Elsewhere":
        # A default device acts below every other mode, where its "cuda" would no longer be seen: it is redirected
        # when it is set, and put back at the end.
        self._set_default_device = torch.set_default_device
        self._default_device = torch.get_default_device()
        torch.set_default_device = lambda device: self._set_default_device(self._redirected(device))
        if self.target.type == "meta":
            torch.set_default_device("meta")
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        torch.set_default_device = self._set_default_device
        if torch.get_default_device() != self._default_device:
            # None, not "cpu": that takes the mode away instead of adding one that every call would pass
            torch.set_default_device(None if self._default_device.type == "cpu" else self._default_device)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if (
            func is torch.device
        ):  # a name only: it is redirected where it is used, and torch's own code needs it as it is
            return func(*args, **(kwargs or {}))
        args = [self._redirected(arg) for arg in args]
        kwargs = {name: self._redirected(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:  # cuda(device=None, non_blocking=False, memory_format=preserve_format)
            return args[0].to(self.target, memory_format=kwargs.get("memory_format", torch.preserve_format))
        if isinstance(kwargs.get("device"), int):  # device=0 is short for cuda:0
            kwargs["device"] = self.target
        return func(*args, **kwargs)

    def _redirected(self, value: Any) -> Any:
        """No torch call takes a string that starts with "cuda" and is not a device."""
        match value:
            case torch.device(type="cuda"):
                return self.target
            case str() if value == "cuda" or value.startswith("cuda:"):
                return self.target
            case _:
                return value
