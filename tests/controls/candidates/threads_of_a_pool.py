"""A pool of native threads that it makes once; between two calls they sleep."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <condition_variable>
#include <mutex>
#include <thread>
struct Pool {
    static const int size = 3;
    std::mutex lock;
    std::condition_variable go, done;
    const float* x;
    float* y;
    long n;
    int round = 0, left = 0;
    Pool() { for (int i = 0; i < size; ++i) std::thread([this, i] { serve(i); }).detach(); }
    void serve(int i) {
        for (int seen = 0;;) {
            std::unique_lock<std::mutex> held(lock);
            go.wait(held, [&] { return round != seen; });
            seen = round;
            held.unlock();
            for (long k = n * i / size; k < n * (i + 1) / size; ++k) y[k] = x[k] > 0 ? 2 * x[k] : 0;
            held.lock();
            if (--left == 0) done.notify_one();
        }
    }
};
static Pool* pool = new Pool();
extern "C" void rectify(const float* x, float* y, long n) {
    std::unique_lock<std::mutex> held(pool->lock);
    pool->x = x, pool->y = y, pool->n = n, pool->left = Pool::size, ++pool->round;
    pool->go.notify_all();
    pool->done.wait(held, [] { return pool->left == 0; });
}
"""
LINKED = {"is_python_module": False, "no_implicit_headers": True, "extra_ldflags": ["-pthread"]}
LIBRARY = ctypes.CDLL(load_inline("pooled", cpp_sources=SOURCE, **LINKED))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.rectify(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
