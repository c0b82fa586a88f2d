// The W of a product, packed into pairs by the kernels of split.cuh.
#pragma once

#include "product.hpp"

#include "split.cuh"

struct PackedW {
    std::vector<char> memory;
    kw::split::Packed view;

    explicit PackedW(Product<>& p) : memory(kw::split::packed_bytes(p.n, p.k, p.w_batches) + 128) {
        void* aligned = (void*)(((uintptr_t)memory.data() + 127) & ~(uintptr_t)127);
        view = kw::split::packed_view(aligned, p.n, p.k, p.w_batches);
        std::fill_n(view.inverse, p.w_batches * view.padded_rows, 1.f);
        cpu::run(dim3(p.n, p.w_batches), dim3(256),
                 [&] { kw::split::pack_rows<2>(p.w.data, p.w.row_pitch, p.w.batch_pitch, view); });
    }
};
