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

// kw: let_launch_begin
// A launch that follows may be put on multiprocessors as these become free; it waits for all of this by itself.
KW_DEVICE void let_launch_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// kw: await_launch_before
KW_DEVICE void await_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// kw: launch_early
// A launch that may begin while the one before it ends, where that is wanted and the GPU can do it.
#ifndef __CUDACC_RTC__
template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, size_t shared_bytes,
                         cudaStream_t stream, bool early, const Parameters&... arguments) {
    int device = 0, major = 0;
    if (early) {
        if (const cudaError_t error = cudaGetDevice(&device)) return error;
        if (const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
            return error;
    }
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(blocks);
    launch.blockDim = dim3(threads);
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = stream;
    launch.attrs = &attribute;
    launch.numAttrs = major >= 9;
    return cudaLaunchKernelEx(&launch, kernel, arguments...);
}
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
