"""kernelwright: a PyTorch model file comes in; a faster one, judged, goes out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.pipeline import optimize
    from kernelwright.result import Result

__all__ = ["Result", "__version__", "optimize"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `import kernelwright` alone does not import torch."""
    if name in ("Result", "optimize"):
        from kernelwright import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
