"""An error comes in; whether memory was short, and in one sentence how much, with the cure, goes out."""

import re

import torch

__all__ = ["CURE", "in_gigabytes", "is_shortage", "shortage_words", "speaks_of_gpu_memory", "speaks_of_host_memory"]

# What CUDA and its libraries say where memory is short; also where not even a context can be made.
GPU_SIGNS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
)
HOST_SIGNS = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "std::bad_alloc")
CURE = "Judge it with the GPU to itself, or on a larger one."
ASKED_FOR = re.compile(r"Tried to allocate ([\d.]+ [KMGT]?i?B)")


def is_shortage(error: BaseException) -> bool:
    """Whether memory was short, of a GPU or of the host."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error) if isinstance(error, RuntimeError) else ""
    return speaks_of_gpu_memory(text) or speaks_of_host_memory(text)


def speaks_of_gpu_memory(text: str) -> bool:
    return any(sign in text for sign in GPU_SIGNS)


def speaks_of_host_memory(text: str) -> bool:
    return any(sign in text for sign in HOST_SIGNS)


def shortage_words(step: str, error: BaseException, device: torch.device) -> str:
    """What was needed, what there is, and the cure."""
    asked = ASKED_FOR.search(str(error))
    more = f"{asked[1]} more" if asked else "more"
    if device.type != "cuda":
        return f"{step} needs {more} memory than this machine has free. End other programs."
    return f"{step} needs {more} GPU memory; {_free_of_all(device)}. {CURE}"


def _free_of_all(device: torch.device) -> str:
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # not even a context fits
        return "none is free"
    return f"{in_gigabytes(free)} of {in_gigabytes(total)} are free"


def in_gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
