"""Threads of a block read what others have not written yet: a barrier is missing."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
__global__ void rectify(const float* x, float* y, long n) {
    __shared__ float tile[256];
    long i = long(blockIdx.x) * 256 + threadIdx.x;
    long mirrored = long(blockIdx.x) * 256 + 255 - threadIdx.x;
    tile[255 - threadIdx.x] = i < n ? x[i] : 0;
    float v = tile[threadIdx.x];
    if (mirrored < n) y[mirrored] = v > 0 ? 2 * v : 0;
}
extern "C" void run(const float* x, float* y, long n, cudaStream_t stream) {
    rectify<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""
LIBRARY = ctypes.CDLL(
    load_inline("kernels", cpp_sources="", cuda_sources=SOURCE, is_python_module=False, no_implicit_headers=True)
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        LIBRARY.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()), stream)
        return y
