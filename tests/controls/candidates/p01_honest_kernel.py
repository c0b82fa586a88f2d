"""A fused C++ kernel."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void rectify(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? 2 * x[i] : 0;
}
"""
LIBRARY = ctypes.CDLL(load_inline("rectify", cpp_sources=SOURCE, is_python_module=False, no_implicit_headers=True))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.rectify(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
