"""What a worker's calls will allocate comes in; a heap that has it, every page touched, goes out.

A page's first use costs the kernel a microsecond and more: as much as a fast kernel spends on its bytes. glibc gives
memory back, maps large blocks afresh each time, and cannot put an aligned block where one of its size was freed, so
that of two equal processes one may pay for pages that the other does not. Here none pays while a clock runs.
"""

import ctypes

__all__ = ["make_room", "set_up_malloc"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_PERTURB = -1, -3, -4, -6  # mallopt(3)
PAGE = 4096
MOST_BYTES = 3 << 30  # where outputs are larger, page faults are little beside them, and memory may be scarce
USUAL_MAPPINGS = 65536

libc = ctypes.CDLL(None)


def set_up_malloc(perturb: int) -> None:
    """The heap keeps what it has. `perturb` fills fresh and freed memory: what a candidate does not write then shows
    in its output."""
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        if perturb:
            libc.mallopt(M_PERTURB, perturb)


def make_room(size: int) -> None:
    """Have so many bytes in one piece in the heap, and blocks of any size come from it."""
    if not hasattr(libc, "mallopt"):
        return
    if not 0 < size <= MOST_BYTES:
        libc.mallopt(M_MMAP_MAX, USUAL_MAPPINGS)
        return
    libc.mallopt(M_MMAP_MAX, 0)
    libc.malloc.restype = ctypes.c_void_p
    address = libc.malloc(ctypes.c_size_t(size))
    if address:
        block = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
        block[::PAGE] = bytes(-(-size // PAGE))
        libc.free(ctypes.c_void_p(address))
