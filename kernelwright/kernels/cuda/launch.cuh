// What launches need on the host: the right device, and pointers that vectors can be read from.
#pragma once

#include "../device/base.cuh"

namespace kw {

// kw: OnDevice
#ifndef __CUDACC_RTC__
// Launches go to the device of the caller's tensors, whichever is current, and leave the current one as it was.
struct OnDevice {
    int before = -1;
    explicit OnDevice(int device) {
        if (cudaGetDevice(&before) != cudaSuccess || before == device) before = -1;
        else cudaSetDevice(device);
    }
    ~OnDevice() {
        if (before >= 0) cudaSetDevice(before);
    }
    OnDevice(const OnDevice&) = delete;
};
#endif

// kw: addressed
// The address of arguments that live until the end of the expression they are in.
#ifndef __CUDACC_RTC__
template <typename Args> const Args* addressed(const Args& args) { return &args; }
#endif

// kw: all_aligned
#ifndef __CUDACC_RTC__
// Args is pointers alone. Where one of them is not at the start of a whole vector, a kernel goes element by element.
template <typename Args> bool all_aligned(const Args& args) {
    bool aligned = true;
    for (size_t i = 0; i < sizeof args / sizeof(void*); ++i)
        aligned &= reinterpret_cast<const uint64_t*>(&args)[i] % 16 == 0;
    return aligned;
}
#endif

}  // namespace kw
