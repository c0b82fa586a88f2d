"""Instructions as the PTX ISA tells them: conversions to the bit, fragments, swizzles, boxes of the copy engine."""

from __future__ import annotations

import ctypes

import pytest
import torch

from tests.emulator.build import EmulatedFault, Library, g_plus_plus, library_of

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

TEXT = r"""
#include "ptx80.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
using namespace kw::ptx90;
using namespace kw::ptx80;

// --- conversions

__global__ void halves(const float* x, uint16_t* half, uint16_t* bfloat16, float* back, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half[i]) : "f"(x[i]));
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bfloat16[i]) : "f"(x[i]));
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(half[i]));
    back[i] = y == __half2float(__ushort_as_half(half[i])) || y != y ? y : -1.f;
}
extern "C" int run_halves(const float* x, uint16_t* half, uint16_t* bfloat16, float* back, int n) {
    halves<<<(n + 255) / 256, 256>>>(x, half, bfloat16, back, n);
    return cudaGetLastError();
}

// --- ldmatrix and mma: D[16, 8] = A[16, 16] B[8, 16]^T + C, A and B from shared memory

__global__ void mma_kernel(const __half* a, const __half* b, const float* c, float* d) {
    __shared__ __align__(16) __half tile_a[16][24], tile_b[8][24];
    for (int i = threadIdx.x; i < 256; i += 32) tile_a[i / 16][i % 16] = a[i];
    for (int i = threadIdx.x; i < 128; i += 32) tile_b[i / 16][i % 16] = b[i];
    __syncwarp();
    const int lane = threadIdx.x, row = lane / 4, column = lane % 4 * 2;
    uint32_t fragment_a[4], fragment_b[4];
    load_matrices(fragment_a, &tile_a[lane % 16][lane / 16 * 8]);
    load_matrices(fragment_b, &tile_b[lane % 8][lane / 8 % 2 * 8]);
    float sum[4];
    for (int i = 0; i < 4; i++) sum[i] = c[(row + i / 2 * 8) * 8 + column + i % 2];
    mma_f16(sum, fragment_a, fragment_b[0], fragment_b[1]);
    for (int i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + column + i % 2] = sum[i];
}
extern "C" int run_mma(const __half* a, const __half* b, const float* c, float* d) {
    mma_kernel<<<1, 32>>>(a, b, c, d);
    return cudaGetLastError();
}

// --- the copy engine: a box at (x, y, z) of a tensor, as it lies in shared memory

struct Corner {
    int x, y, z;
};
__global__ void box_kernel(const __grid_constant__ TensorMap map, uint8_t* out, int bytes, int expected,
                           Corner corner) {
    extern __shared__ uint8_t memory[];
    __shared__ uint64_t barrier;
    const uint32_t data = (shared_address(memory) + 1023) & ~1023u, at = shared_address(&barrier);
    if (threadIdx.x == 0) {
        barrier_init(at, 1);
        barrier_init_fence();
        barrier_arrive_and_expect(at, expected);
        load_box(data, &map, at, corner.x, corner.y, corner.z);
    }
    __syncthreads();
    barrier_wait(at, 0);
    const uint8_t* from = memory + (data - shared_address(memory));
    for (int i = threadIdx.x; i < bytes; i += 32) out[i] = from[i];
}
extern "C" int run_box(const float* x, uint8_t* out, int expected, const int64_t* geometry) {
    TensorMap map;
    const int64_t* g = geometry;
    const cudaError_t status = encode_map(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, x, {g[0], g[1], g[2]},
                                          {g[3], g[4]}, {(int)g[5], (int)g[6]});
    if (status != cudaSuccess) return status;
    const Corner corner = {(int)g[7], (int)g[8], (int)g[9]};
    box_kernel<<<1, 32, 16384 + 1024>>>(map, out, (int)(g[5] * g[6] * 4), expected, corner);
    return cudaGetLastError();
}

// The other way: rows of 128 bytes, swizzled by the threads, to a box of a tensor.
__global__ void sent_kernel(const __grid_constant__ TensorMap map, const float* x, int rows, int waits, Corner corner) {
    extern __shared__ uint8_t memory[];
    const uint32_t data = (shared_address(memory) + 1023) & ~1023u;
    for (int row = 0; row < rows; row++) {
        const int chunk = threadIdx.x / 4 ^ (row & 7);
        *(float*)(memory + (data - shared_address(memory)) + row * 128 + chunk * 16 + threadIdx.x % 4 * 4) =
            x[row * 32 + threadIdx.x];
    }
    fence_for_copy_engine();
    __syncwarp();
    if (threadIdx.x == 0) {
        store_box(&map, data, corner.x, corner.y, corner.z);
        send_commit();
        if (waits) send_wait<0>();
    }
}
extern "C" int run_sent(const float* x, float* out, int waits, const int64_t* geometry) {
    TensorMap map;
    const int64_t* g = geometry;
    const cudaError_t status = encode_map(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, out, {g[0], g[1], g[2]},
                                          {g[3], g[4]}, {(int)g[5], (int)g[6]});
    if (status != cudaSuccess) return status;
    const Corner corner = {(int)g[7], (int)g[8], (int)g[9]};
    sent_kernel<<<1, 32, 16384 + 1024>>>(map, x, (int)g[6], waits, corner);
    return cudaGetLastError();
}

// --- wgmma: D[64, 64] = A[64, 16] B[64, 16]^T, both under the 128-byte swizzle

__global__ void wgmma_kernel(const __half* a, const __half* b, float* d, int waits) {
    __shared__ __align__(1024) __half tile_a[64][64], tile_b[64][64];
    for (int i = threadIdx.x; i < 64 * 16; i += 128) {
        const int row = i / 16, k = i % 16, place = ((k / 8) ^ (row % 8)) * 8 + k % 8;
        tile_a[row][place] = a[i], tile_b[row][place] = b[i];
    }
    __syncthreads();
    float sum[32];
    for (int i = 0; i < 32; i++) sum[i] = -1.f;
    wgmma_fence();
    wgmma_f16_shared(sum, descriptor_128b(shared_address(tile_a)), descriptor_128b(shared_address(tile_b)), 0);
    wgmma_commit();
    if (waits) wgmma_wait<0>();
    pin(sum);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < 32; i++) {
        const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        d[row * 64 + column] = sum[i];
    }
}
extern "C" int run_wgmma(const __half* a, const __half* b, float* d, int waits) {
    wgmma_kernel<<<1, 128>>>(a, b, d, waits);
    return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of(TEXT)


def floats() -> torch.Tensor:
    """Every half, its neighbours among floats, the middle to the next half, and every bfloat16 likewise."""
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    bits = torch.cat([every.view(torch.float16).float(), every.view(torch.bfloat16).float()]).view(torch.int32)
    near = [bits, bits + 1, bits - 1, bits + 0x1000, bits + 0x1001, bits + 0xFFF, bits + 0x8000, bits + 0x7FFF]
    return torch.cat(near).view(torch.float32)


def test_conversions_to_sixteen_bits_are_those_of_pytorch(library: Library) -> None:
    x = floats()
    half, bfloat16, back = (torch.zeros(x.numel(), dtype=d) for d in (torch.int16, torch.int16, torch.float32))
    assert library.call("run_halves", x, half, bfloat16, back, ctypes.c_int(x.numel())) == 0
    number = ~x.isnan()
    assert torch.equal(half[number], x.half().view(torch.int16)[number])
    assert torch.equal(bfloat16[number], x.bfloat16().view(torch.int16)[number])
    assert torch.equal(back[number], x.half().float()[number])
    assert half.view(torch.float16)[~number].isnan().all()
    assert bfloat16.view(torch.bfloat16)[~number].isnan().all()


def test_a_product_of_fragments_is_the_product_of_their_matrices(library: Library) -> None:
    torch.manual_seed(0)
    a, b, c, d = torch.randn(16, 16).half(), torch.randn(8, 16).half(), torch.randn(16, 8), torch.zeros(16, 8)
    assert library.call("run_mma", a, b, c, d) == 0
    exact = c.double() + a.double() @ b.double().T
    assert torch.equal(d, exact.float())


def unswizzled(out: torch.Tensor, rows: int) -> torch.Tensor:
    """Rows of 128 bytes whose chunks of 16 are in the places that the row says."""
    chunks = out.reshape(rows, 8, 16)
    order = torch.arange(8)[None, :] ^ (torch.arange(rows) % 8)[:, None]
    return chunks[torch.arange(rows)[:, None], order].reshape(rows, 128).view(torch.float32)


def box(
    library: Library, x: torch.Tensor, at: tuple[int, int, int], expected: int, pitch: int | None = None
) -> torch.Tensor:
    batches, rows, columns = x.shape
    geometry = torch.tensor([columns, rows, batches, x.stride(1), x.stride(0), 32, 16, *at])
    out = torch.zeros(16 * 128, dtype=torch.uint8)
    assert library.call("run_box", x, out, ctypes.c_int(expected), geometry) == 0
    return unswizzled(out, 16)


def test_a_box_arrives_swizzled_and_zero_outside_of_the_tensor(library: Library) -> None:
    x = torch.randn(3, 20, 44)
    padded = torch.nn.functional.pad(x, (32, 32, 16, 16))
    for at in [(0, 0, 0), (16, 4, 1), (32, 16, 2), (-8, -3, 1)]:
        expected = padded[at[2], at[1] + 16 : at[1] + 32, at[0] + 32 : at[0] + 64]
        assert torch.equal(box(library, x, at, 16 * 128), expected), at
    assert (box(library, x, (0, 0, 3), 16 * 128) == 0).all()


def test_a_box_that_brings_other_bytes_than_expected_is_a_standstill(library: Library) -> None:
    with pytest.raises(EmulatedFault, match="lacks 0 arrivals and 4 bytes"):
        box(library, torch.randn(3, 20, 44), (0, 0, 0), 16 * 128 + 4)


def test_a_pitch_that_the_copy_engine_cannot_read_is_refused(library: Library) -> None:
    x = torch.randn(3, 20, 43)
    geometry = torch.tensor([43, 20, 3, 43, 860, 32, 16, 0, 0, 0])
    assert library.call("run_box", x, torch.zeros(2048, dtype=torch.uint8), ctypes.c_int(2048), geometry) == 1


def test_a_box_that_is_sent_lies_in_the_tensor_once_it_is_waited_for_and_nowhere_else(library: Library) -> None:
    x = torch.randn(16, 32)
    for at in [(0, 0, 0), (16, 4, 1), (32, 16, 2), (-8, -3, 1), (0, 0, 3)]:
        expected = torch.zeros(4, 52, 108)
        if at[2] < 3:
            expected[at[2], at[1] + 16 : at[1] + 32, at[0] + 32 : at[0] + 64] = x
        out = torch.zeros(3, 20, 44)
        geometry = torch.tensor([44, 20, 3, 44, 880, 32, 16, *at])
        assert library.call("run_sent", x, out, ctypes.c_int(0), geometry) == 0
        assert (out == 0).all()
        assert library.call("run_sent", x, out, ctypes.c_int(1), geometry) == 0
        assert torch.equal(out, expected[:3, 16:36, 32:76]), at


def test_wgmma_multiplies_what_its_descriptors_say_once_it_is_waited_for(library: Library) -> None:
    torch.manual_seed(0)
    a, b, d = torch.randn(64, 16).half(), torch.randn(64, 16).half(), torch.zeros(64, 64)
    assert library.call("run_wgmma", a, b, d, ctypes.c_int(1)) == 0
    assert torch.equal(d, (a.double() @ b.double().T).float())
    assert library.call("run_wgmma", a, b, d, ctypes.c_int(0)) == 0
    assert (d == -1).all()
