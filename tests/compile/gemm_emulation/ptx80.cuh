// Stands in for kernels/cuda/ptx80.cuh: copies are done at once, matrices and products through what the lanes show.
#pragma once

#include "ptx90.cuh"

namespace kw::ptx80 {

template <int Bytes> void copy_async(void* destination, const void* source, bool inside) {
    if (inside) std::memcpy(destination, source, Bytes);
    else std::memset(destination, 0, Bytes);
}
inline void copies_commit() {}
template <int Pending> void copies_wait() {}

inline void load_matrices(uint32_t (&to)[4], const void* row) {
    static const void* rows[cpu::most_warps][32];
    const int warp = cpu::warp(), lane = cpu::lane();
    rows[warp][lane] = row;
    __syncwarp();
    for (int i = 0; i < 4; i++) std::memcpy(&to[i], (const __half*)rows[warp][i * 8 + lane / 4] + lane % 4 * 2, 4);
    __syncwarp();
}

inline float half_of(uint32_t pair, int which) {
    __half halves[2];
    std::memcpy(halves, &pair, 4);
    return __half2float(halves[which]);
}

inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    static uint32_t as[cpu::most_warps][32][4], bs[cpu::most_warps][32][2];
    const int warp = cpu::warp(), lane = cpu::lane();
    std::memcpy(as[warp][lane], a, 16);
    bs[warp][lane][0] = b0, bs[warp][lane][1] = b1;
    __syncwarp();
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4, column = lane % 4 * 2 + e % 2;
        double sum = d[e];
        for (int k = 0; k < 16; k++)
            sum += (double)half_of(as[warp][row * 4 + k % 8 / 2][e / 2 + k / 8 * 2], k % 2) *
                   half_of(bs[warp][column * 4 + k % 8 / 2][k / 8], k % 2);
        d[e] = (float)sum;
    }
    __syncwarp();
}

}  // namespace kw::ptx80
