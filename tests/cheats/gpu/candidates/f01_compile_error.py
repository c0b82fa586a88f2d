"""A CUDA source that nvcc rejects."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
__global__ void broken(float* y) { y[0] = undeclared_name; }
extern "C" void run(const float* x, float* y, long n, cudaStream_t stream) { broken<<<1, 1, 0, stream>>>(y); }
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
