// What every entry needs on the host: the right device.
#pragma once

namespace kw {

// kw: OnDevice
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

}  // namespace kw
