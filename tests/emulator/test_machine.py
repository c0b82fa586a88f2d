"""The machine that runs kernels: what threads do together works as on a GPU, and what no kernel may do is a fault."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch

from tests.emulator.build import EmulatedFault, Library, g_plus_plus, library_of, multiprocessors, order

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

# Each kernel gets x, y and n; its launch is <<<grid, block, dynamic>>> as given.
KERNELS: dict[str, tuple[str, str]] = {
    "reversed": (
        "2, 64",
        """
    __shared__ float tile[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.f;
    __syncthreads();
    if (i < n) y[i] = tile[63 - threadIdx.x];""",
    ),
    "reversed_without_barrier": (
        "1, 64",
        """
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[63 - threadIdx.x];""",
    ),
    "reversed_in_warps": (
        "1, 64",
        """
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x ^ 31];""",
    ),
    "shuffled_for_order": (
        "1, 32",
        """
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __shfl_sync(~0u, 0, 0);  // waits for all lanes, and orders no memory
    y[threadIdx.x] = tile[threadIdx.x ^ 31];""",
    ),
    "sums": (
        "1, dim3(32, 2)",
        """
    float sum = x[threadIdx.y * 32 + threadIdx.x];
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    const float scan = __shfl_up_sync(~0u, sum + threadIdx.x, 3), next = __shfl_down_sync(0xffffffff, scan, 1, 8);
    const unsigned odd = __ballot_sync(~0u, threadIdx.x & 1);
    y[threadIdx.y * 32 + threadIdx.x] = sum + next + (odd == 0xaaaaaaaa) + __reduce_max_sync(~0u, threadIdx.x);""",
    ),
    "half_warps": (
        "1, 32",
        """
    const unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    const float mine = x[threadIdx.x];
    y[threadIdx.x] = threadIdx.x < 16 ? __shfl_sync(mask, mine, 3) : __shfl_xor_sync(mask, mine, 1);""",
    ),
    "past_the_end": ("1, 32", "y[threadIdx.x] = x[threadIdx.x + n - 31];"),
    "before_the_start": ("1, 1", "x[-1] = 0.f;"),
    "past_shared": (
        "1, 32",
        "__shared__ float tile[31]; float* t = tile; t[threadIdx.x] = 0.f; y[threadIdx.x] = t[threadIdx.x];",
    ),
    "past_dynamic": (
        "1, 32, 32 * 4 - 1",
        "extern __shared__ float tile[]; tile[threadIdx.x] = 0.f; y[threadIdx.x] = tile[threadIdx.x];",
    ),
    "past_a_local_array": (
        "1, 4",
        "float v[4] = {1, 2, 3, 4}; for (int i = 0; i < n; i++) v[threadIdx.x + i] *= x[i]; y[threadIdx.x] = v[0];",
    ),
    "unaligned_vector": ("1, 1", "*(float4*)y = *(const float4*)(x + 1);"),
    "unaligned_load": ("1, 1", "*(float2*)y = __ldg((const float2*)(x + 1));"),
    "of_another_block": (
        "2, 32",
        "if (blockIdx.x == 0) y[threadIdx.x] = 1.f; else y[threadIdx.x + 32] = y[threadIdx.x];",
    ),
    "writes_twice": ("2, 32", "y[threadIdx.x] = 1.f;"),
    "reads_after_a_neighbour_wrote": ("1, 64", "const float v = x[(threadIdx.x + 1) % 64]; x[threadIdx.x] = v;"),
    "lane_is_missing": (
        "1, 32",
        "if (threadIdx.x < 31) y[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 0); else __syncthreads();",
    ),
    "lane_has_ended": ("1, 32", "if (threadIdx.x == 0) return; y[threadIdx.x] = __shfl_sync(~0u, x[threadIdx.x], 1);"),
    "own_lane_is_not_named": ("1, 32", "y[threadIdx.x] = __shfl_sync(1u, x[threadIdx.x], 0);"),
    "two_things_at_once": ("1, 32", "y[0] = threadIdx.x < 16 ? __shfl_sync(~0u, 1.f, 0) : float(__any_sync(~0u, 1));"),
    "two_barriers_at_once": ("1, 64", "if (threadIdx.x < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n }"),
    "some_end_before_the_barrier": ("1, 64", "if (threadIdx.x >= 40) return; __syncthreads(); y[threadIdx.x] = 1.f;"),
    "named_barrier_that_never_opens": ("1, 64", 'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");'),
    "another_threads_stack": (
        "1, 2",
        """
    __shared__ float* where;
    float mine = 1.f;
    if (threadIdx.x == 0) where = &mine;
    __syncthreads();
    if (threadIdx.x) *where = 2.f;
    __syncthreads();
    y[threadIdx.x] = mine;""",
    ),
    "unknown_instruction": ("1, 1", 'asm volatile("sin.approx.f32 %0, %1;" : "=f"(y[0]) : "f"(x[0]));'),
    "uninitialised": ("3, 32", "__shared__ float t[32]; y[blockIdx.x * 32 + threadIdx.x] = t[threadIdx.x];"),
    "counts_blocks": (
        "5, 32",
        """
    // The last block to arrive adds up what all have written.
    __shared__ bool last;
    y[1 + blockIdx.x * 32 + threadIdx.x] = blockIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd((unsigned*)x, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) { float sum = 0; for (int i = 0; i < 5 * 32; i++) sum += y[1 + i]; y[0] = sum; }""",
    ),
    "waits_for_a_flag": (
        "1, 64",
        """
    volatile float* flag = y;
    if (threadIdx.x == 63) flag[0] = 1.f;
    else if (threadIdx.x == 0) { while (flag[0] != 1.f) {} flag[1] = 2.f; }""",
    ),
    "waits_for_ever": ("1, 1", "volatile float* flag = y; while (flag[0] != 1.f) {}"),
    "grid": (
        "dim3(2, 3), dim3(4, 2, 2)",
        """
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    y[block * 16 + thread] = 100 * block + thread;""",
    ),
}

TEXT = "#include <cuda_runtime.h>\n" + "".join(
    f"""
__global__ void {name}_kernel(float* x, float* y, int n) {{
{body}
}}
extern "C" int {name}(float* x, float* y, int n) {{
    {name}_kernel<<<{shape}>>>(x, y, n);
    return cudaGetLastError();
}}
"""
    for name, (shape, body) in KERNELS.items()
)


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of(TEXT)


def ran(library: Library, name: str, n: int = 64, x: torch.Tensor | None = None, size: int = 256) -> torch.Tensor:
    x = torch.arange(float(n)) if x is None else x
    y = torch.full((size,), -1.0)
    assert library.call(name, x, y, ctypes.c_int(n)) == 0
    return y


def fault(library: Library, name: str, n: int = 64, size: int = 256) -> str:
    with pytest.raises(EmulatedFault) as raised:
        ran(library, name, n, size=size)
    return str(raised.value)


# --- what works


def test_a_barrier_lets_threads_read_what_others_wrote(library: Library) -> None:
    y = ran(library, "reversed", n=100)
    padded = torch.cat([torch.arange(100.0), torch.zeros(28)]).reshape(2, 64)
    assert torch.equal(y[:100], padded.flip(1).reshape(-1)[:100])
    assert (y[100:] == -1).all()


def test_a_warp_may_go_on_without_the_block(library: Library) -> None:
    assert torch.equal(ran(library, "reversed_in_warps")[:64].reshape(2, 32), torch.arange(64.0).reshape(2, 32).flip(1))


def test_shuffles_votes_and_reductions(library: Library) -> None:
    lanes = torch.arange(32.0)
    for warp, y in enumerate(ran(library, "sums")[:64].reshape(2, 32)):
        total = 32 * 32.0 * warp + lanes.sum()
        up = torch.where(lanes < 3, total + lanes, total + lanes - 3)
        down = torch.where(lanes % 8 == 7, up, up.roll(-1))
        assert torch.equal(y, total + down + 1 + 31)


def test_the_halves_of_a_warp_may_do_different_things(library: Library) -> None:
    lanes = torch.arange(32)
    assert torch.equal(ran(library, "half_warps")[:32], torch.where(lanes < 16, 3, lanes ^ 1).float())


def test_threads_that_have_ended_are_not_waited_for_at_a_barrier(library: Library) -> None:
    assert ran(library, "some_end_before_the_barrier")[:41].tolist() == [1.0] * 40 + [-1.0]


def test_atomics_order_blocks(library: Library) -> None:
    count = torch.zeros(1, dtype=torch.int32)
    assert ran(library, "counts_blocks", x=count)[0] == 32 * (0 + 1 + 2 + 3 + 4)
    assert count.item() == 5


def test_a_thread_may_wait_for_a_flag(library: Library) -> None:
    assert ran(library, "waits_for_a_flag")[1] == 2


def test_indices_of_blocks_and_threads(library: Library) -> None:
    y = ran(library, "grid")[:96].reshape(6, 16)
    assert torch.equal(y, 100 * torch.arange(6.0)[:, None] + torch.arange(16.0))


def test_shared_memory_starts_out_as_large_numbers_or_nan(library: Library) -> None:
    y = ran(library, "uninitialised")[:96].reshape(3, 32)
    assert (y[0] < -1e35).all()
    assert (y[1] > 1e35).all()
    assert y[2].isnan().all()


def test_backwards_is_an_order_like_any_other(library: Library) -> None:
    forwards = ran(library, "reversed", n=100)
    with order(blocks_backwards=True, threads_backwards=True):
        assert torch.equal(ran(library, "reversed", n=100), forwards)


# --- what is a fault


FAULTS = {
    "past_the_end": "after the end of x",
    "before_the_start": "4 bytes before the start of x",
    "past_shared": "byte 124 of a shared variable of 124 bytes",
    "past_dynamic": "byte 124 of the 127 bytes of dynamic shared memory",
    "past_a_local_array": r"takes element 4 of 'float \[4\]'",
    "unaligned_vector": "has to be at a multiple of 16 bytes",
    "unaligned_load": "not a multiple of 8",
    "reversed_without_barrier": "with no barrier between them",
    "shuffled_for_order": "with no barrier between them",
    "of_another_block": "with no barrier between them",
    "writes_twice": "thread 0 of block 0 wrote with no barrier between them",
    "reads_after_a_neighbour_wrote": "with no barrier between them",
    "lane_is_missing": "no thread can go on",
    "lane_has_ended": "that lane has ended",
    "own_lane_is_not_named": "lacks its own lane",
    "two_things_at_once": "while others of its warp are at __shfl_sync",
    "two_barriers_at_once": "while others are at the one in line",
    "named_barrier_that_never_opens": "32 threads wait at barrier 1",
    "another_threads_stack": "was not given to the kernel|after the end of|before the start of",
    "unknown_instruction": "sin.approx.f32 %0, %1' *, a form that is not emulated: add it",
    "waits_for_ever": "waits for what it reads to change",
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_kernel_may_do_is_a_fault(library: Library, name: str) -> None:
    said = fault(library, name)
    assert re.search(FAULTS[name], said), said


def test_a_fault_names_the_line(library: Library) -> None:
    assert "y[threadIdx.x] = x[threadIdx.x + n - 31];" in fault(library, "past_the_end")


def test_after_a_fault_the_next_call_is_as_good_as_any(library: Library) -> None:
    fault(library, "past_the_end")
    assert ran(library, "reversed_in_warps")[0] == 31


# --- launches


LAUNCHES = """
#include <cuda_runtime.h>
__global__ void nothing() {}
__global__ void where(int* out) { if (threadIdx.x == 0) out[blockIdx.x] = 1; }
extern "C" int launched(int grid, int block, int dynamic) {
    nothing<<<grid, block, dynamic>>>();
    return cudaGetLastError();
}
extern "C" int allowed(int bytes) {
    cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    nothing<<<1, 32, bytes>>>();
    return cudaGetLastError();
}
extern "C" int cleared(int* out, int bytes) { return cudaMemsetAsync(out, 0, bytes, nullptr); }
extern "C" int counted() {
    int count = 0;
    return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess ? count : -1;
}
"""


@pytest.fixture(scope="module")
def launches() -> Library:
    return library_of(LAUNCHES)


def test_a_launch_that_cuda_would_refuse_is_refused(launches: Library) -> None:
    assert launches.call("launched", 1, 1024, 0) == 0
    assert launches.call("launched", 1, 1025, 0) == 9
    assert launches.call("launched", 0, 32, 0) == 9
    assert launches.call("launched", 1, 32, 49152) == 0
    assert launches.call("launched", 1, 32, 49153) == 1


def test_more_shared_memory_has_to_be_asked_for_and_there(launches: Library) -> None:
    assert launches.call("allowed", 232448) == 0
    assert launches.call("allowed", 232449) == 1


def test_the_host_may_fill_what_it_was_given_and_no_more(launches: Library) -> None:
    out = torch.ones(4, dtype=torch.int32)
    assert launches.call("cleared", out, 12) == 0
    assert out.tolist() == [0, 0, 0, 1]
    assert launches.call("cleared", out, 17) == 1


def test_there_are_as_many_multiprocessors_as_are_asked_for(launches: Library) -> None:
    assert launches.call("counted") == 132
    with multiprocessors(2):
        assert launches.call("counted") == 2
