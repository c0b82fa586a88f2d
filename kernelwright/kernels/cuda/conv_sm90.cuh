// kw: conv_sm90::launch
// conv_mma.cuh on Hopper's own tensor-core instruction: the same tiles, packed weights and results, twice the rate.
//
// wgmma reads pixels straight from shared memory. Without swizzle, 8 rows of 16 bytes that lie together are what it takes
// at once, and such is an octet of 8 neighbouring pixels: a tap is only another start address. Two distances complete the
// descriptor: to the second 8 of k, another octet or tap, and to the next 8 pixels, on the same row or on the next one.
// Weights come from registers, in which a warp's 16 rows lie as in mma.sync.
#pragma once

#include "conv_mma.cuh"

namespace kw::conv_sm90 {

// kw: Part Problem Shared Sizes
using conv_mma::Part;
using conv_mma::Problem;
using conv_mma::Shared;
using conv_mma::Sizes;

// kw: fence_for_tensor_cores
// What ordinary stores wrote to shared memory becomes visible to the tensor cores.
KW_DEVICE void fence_for_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// kw: load_fragment
// Sixteen bytes, where the compiler finds them: before the wait that they should travel through.
KW_DEVICE void load_fragment(uint32_t (&to)[4], const uint4* from) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from)
                 : "memory");
}

// kw: Sums
template <class C> struct Sums {
    using S = Sizes<C>;
    static constexpr int wgmma_n = S::warp_n < 128 ? S::warp_n : 128, blocks = S::warp_n / wgmma_n;
    static constexpr int M = 1, N = S::warp_n / 8;
    static constexpr bool one_group = S::most_steps <= C::group;  // a chunk has no weights to wait for after the first
    // From 8 pixels to the next 8: a tile of 8 columns goes on in the next row.
    static constexpr int next_pixels = C::tile_w == 8 ? C::stride_h * S::row : 8;
    using Fragment = uint32_t[4];
    using Block = float[wgmma_n / 2];
    Block total[blocks];
    int first[blocks];  // of the region: where the pixels of each block begin

    static_assert(C::warps_m % 4 == 0 && S::warp_m == 16, "a warpgroup has 64 rows, a warp 16 of them");
    static_assert(S::warp_n % wgmma_n == 0 && (wgmma_n == 64 || wgmma_n == 128), "64 or 128 pixels an instruction");
    static_assert(C::tile_w == 8 ? C::tile_h * 8 % wgmma_n == 0 : C::tile_w % wgmma_n == 0, "one distance for all");
    static_assert(C::octets % 2 == 0 || (C::octets == 1 && C::stride_w == 1), "the second 8 of k lie behind the first");

    KW_DEVICE Sums() {
#pragma unroll
        for (int j = 0; j < blocks; j++) {
            first[j] = conv_mma::region_place<C>(threadIdx.x / 32 / C::warps_m * S::warp_n + j * wgmma_n);
#pragma unroll
            for (int i = 0; i < wgmma_n / 2; i++) total[j][i] = 0.f;
        }
    }
    // Of the table: the lower half of a descriptor, in 16 bytes: where a step's first 8 of k lie, and how far the second 8
    // are from there. The upper half says how far the next 8 pixels are.
    KW_DEVICE static int entry(int, int first, int second) { return first | (second - first) << 16; }
    KW_DEVICE static void delivered() { fence_for_tensor_cores(); }
    KW_DEVICE float at(int, int n, int i) const { return total[n * 8 / wgmma_n][n * 8 % wgmma_n / 2 + i]; }
    KW_DEVICE void rescale(float factor) {
#pragma unroll
        for (int j = 0; j < blocks; j++)
#pragma unroll
            for (int i = 0; i < wgmma_n / 2; i++) total[j][i] *= factor;
    }
    KW_DEVICE static void load_weights(Fragment (&a)[C::group * S::halves], const uint4* fragments) {
#pragma unroll
        for (int i = 0; i < C::group * S::halves; i++) load_fragment(a[i], fragments + i * 32);
    }
    template <int Count> KW_DEVICE static void pin_all(Block (&sums)[Count]) {
#pragma unroll
        for (int j = 0; j < Count; j++) ptx90::pin(sums[j]);
    }
    // `group` steps from weights in registers, while those of the next group travel.
    KW_DEVICE void add_group(int region, const int* offset, const Fragment (&a)[C::group * S::halves],
                             Fragment (&next)[C::group * S::halves], const uint4* fragments) {
        uint64_t pixels[C::group];
#pragma unroll
        for (int i = 0; i < C::group; i++)
            pixels[i] = (uint64_t)next_pixels << 32 | (uint32_t)(offset[2 * i] + region);
        if constexpr (C::products == 1) {
            pin_all(total);
            ptx90::wgmma_fence();
#pragma unroll
            for (int i = 0; i < C::group; i++)
#pragma unroll
                for (int j = 0; j < blocks; j++) ptx90::wgmma_f16<true>(total[j], a[i], pixels[i] + first[j]);
            ptx90::wgmma_commit();
            if constexpr (!one_group) load_weights(next, fragments);
            ptx90::wgmma_wait<0>();
            pin_all(total);
        } else {
            // Corrections first: the tensor core cuts off what lies under the last bit of a sum, and they are small.
            constexpr uint64_t low = S::units;
            Block sum[blocks];
            pin_all(sum);
            ptx90::wgmma_fence();
#pragma unroll
            for (int i = 0; i < C::group; i++)
#pragma unroll
                for (int j = 0; j < blocks; j++) {
                    if (i == 0) ptx90::wgmma_f16<false>(sum[j], a[2 * i + 1], pixels[i] + first[j]);
                    else ptx90::wgmma_f16<true>(sum[j], a[2 * i + 1], pixels[i] + first[j]);
                    ptx90::wgmma_f16<true>(sum[j], a[2 * i], pixels[i] + first[j] + low);
                }
#pragma unroll
            for (int i = 0; i < C::group; i++)
#pragma unroll
                for (int j = 0; j < blocks; j++) ptx90::wgmma_f16<true>(sum[j], a[2 * i], pixels[i] + first[j]);
            ptx90::wgmma_commit();
            if constexpr (!one_group) load_weights(next, fragments);
            ptx90::wgmma_wait<0>();
            pin_all(sum);
#pragma unroll
            for (int j = 0; j < blocks; j++)
#pragma unroll
                for (int i = 0; i < wgmma_n / 2; i++) total[j][i] += sum[j][i];
        }
    }
    KW_DEVICE void add(const uint4 (&pixels)[S::halves][S::units], const int* offset, const Part<C>& part, int chunk) {
        constexpr int length = C::group * S::halves * 32;  // of a group's weights
        const int region = ptx90::shared_address(pixels) >> 4;
        const uint4* fragments = part.of_chunk(chunk);
        const uint4* last = fragments + (part.steps / C::group - 1) * length;
        Fragment a[C::group * S::halves], b[C::group * S::halves];
        load_weights(a, fragments);
        int left = part.steps / C::group;
#pragma unroll 1
        while (true) {
            fragments = fragments < last ? fragments + length : last;
            add_group(region, offset, a, b, fragments);
            offset += 2 * C::group;
            if (one_group || --left == 0) return;
            fragments = fragments < last ? fragments + length : last;
            add_group(region, offset, b, a, fragments);
            offset += 2 * C::group;
            if (--left == 0) return;
        }
    }
};

// kw: convolve_kernel
template <class C, class Epilogue, class End>
__global__ void __launch_bounds__(Sizes<C>::threads, C::blocks_at_once)
    convolve_kernel(const __grid_constant__ Problem<C> problem, const __grid_constant__ typename Epilogue::Args args) {
    extern __shared__ uint4 dynamic[];
    conv_mma::convolve<C, Epilogue, Sums<C>, End>(problem, args, *(Shared<C>*)dynamic);
}

#ifndef __CUDACC_RTC__
// kw: launch
// Weights are packed by conv_mma::pack.
template <class C, class Epilogue, class End = conv_mma::Stored>
cudaError_t launch(const Problem<C>& problem, const typename Epilogue::Args& args, cudaStream_t stream) {
    constexpr int bytes = conv_mma::block_bytes<C, Epilogue, End>();
    return conv_mma::enqueue<C, typename Epilogue::Args>(convolve_kernel<C, Epilogue, End>, Sizes<C>::threads, bytes,
                                                         problem, args, stream);
}
#endif

}  // namespace kw::conv_sm90
