"""A naive matmul: one accumulator for each sum of 1024 products."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
extern "C" void multiply(const float* a, const float* b, float* c, long m, long k, long n) {
    for (long i = 0; i < m; ++i)
        for (long j = 0; j < n; ++j) {
            float sum = 0;
            for (long p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}
"""
LIBRARY = ctypes.CDLL(load_inline("naive", cpp_sources=SOURCE, is_python_module=False, no_implicit_headers=True))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty(a.shape[0], b.shape[1])
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
        LIBRARY.multiply(*pointers, *map(ctypes.c_long, (a.shape[0], a.shape[1], b.shape[1])))
        return c
