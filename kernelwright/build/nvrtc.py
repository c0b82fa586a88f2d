"""NVRTC as a compiler program: `nvrtc.py LIBRARY SOURCE CUBIN OPTION...` reads SOURCE, writes CUBIN and prints the log.

A program, because NVRTC compiles one source at a time in a process, whatever the number of threads (CUDA 13.0: two
threads took twice as long as one), and because a program can be stopped. It stands alone and starts in 0.03 s: ctypes
and libnvrtc's C interface are all it needs.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["compile_source", "load", "main", "version"]

NvrtcFunction = Callable[..., int]

# NVRTC has no standard library; these are the parts of it that device code includes. 64 bits are `long`, as on every
# 64-bit Linux: with `long long` the same kernel would have another name than nvcc gives it.
FIXED_WIDTH = (
    "\n".join(
        f"typedef {signedness} {kind} {prefix}int{bits}_t;"
        for prefix, signedness in (("", "signed"), ("u", "unsigned"))
        for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    )
    + "\ntypedef unsigned long uintptr_t;\ntypedef long intptr_t;\n"
)
STANDARD_HEADERS = {"cstdint": FIXED_WIDTH, "stdint.h": FIXED_WIDTH, "cstddef": "", "stddef.h": ""}


def load(library: Path) -> ctypes.CDLL:
    """libnvrtc, and before it the builtins beside it, which it opens by bare name and would not find in a pip wheel."""
    for builtins in sorted(library.parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library))


def version(nvrtc: ctypes.CDLL) -> str:
    """ "13.0" """
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def compile_source(nvrtc: ctypes.CDLL, source: str, name: str, options: Sequence[str]) -> tuple[bytes | None, str]:
    """The cubin, None if NVRTC rejected the source, and the log."""
    program = ctypes.c_void_p()
    status = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        source.encode(),
        name.encode(),
        len(STANDARD_HEADERS),
        _strings(list(STANDARD_HEADERS.values())),
        _strings(list(STANDARD_HEADERS)),
    )
    if status != 0:
        return None, f"nvrtc fatal   : nvrtcCreateProgram returned {status}\n"
    status = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
    log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    text = log.rstrip(b"\0").decode(errors="replace")
    if status != 0:
        return None, text or f"nvrtc fatal   : nvrtcCompileProgram returned {status}\n"
    return _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), text


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0, or 1 if the source was rejected. LIBRARY alone prints its version."""
    library, *rest = arguments
    nvrtc = load(Path(library))
    if not rest:
        _say(version(nvrtc))
        return 0
    source, cubin, *options = rest
    image, log = compile_source(nvrtc, Path(source).read_text(), source, options)
    _say(log)
    if image is None:
        return 1
    Path(cubin).write_bytes(image)
    return 0


def _say(text: str) -> None:
    with open(1, "w", closefd=False) as standard_output:
        standard_output.write(text)


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _read(size_of: NvrtcFunction, content_of: NvrtcFunction, program: ctypes.c_void_p) -> bytes:
    """NVRTC gives results in two steps: how many bytes, then the bytes."""
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    content_of(program, buffer)
    return buffer.raw


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
