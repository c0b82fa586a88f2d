// A product whose exact result is known: operands, what the kernel stored, and what was wrong with it.
#pragma once

#include "cuda_on_cpu.hpp"

enum class Values { integers, normal, special };  // special: normal, with one Inf in A and one NaN in W

struct Store {  // an epilogue that also counts how often every element was stored
    struct Args {
        float* c;
        int* stores;
        int64_t pitch;
    };
    template <int N> static void store(const Args& args, const float (&sums)[N], int64_t m, int64_t n) {
        for (int i = 0; i < N; i++) {
            args.c[m * args.pitch + n + i] = sums[i];
            __atomic_fetch_add(&args.stores[m * args.pitch + n + i], 1, __ATOMIC_RELAXED);
        }
    }
};

template <class T> struct Matrix {  // [batches][rows][k], rows or k contiguous; 16-byte aligned, poisoned around
    std::vector<T> memory;
    T* data;
    int64_t row_pitch, k_pitch, batch_pitch;

    T& at(int batch, int row, int k) { return data[batch * batch_pitch + row * row_pitch + k * k_pitch]; }
};

template <class T = float> struct Product {
    int m, n, k, batches, w_batches;
    Values values;
    Matrix<T> a, w;
    std::vector<float> c;
    std::vector<int> stores;

    Product(Values kind, int m, int n, int k, int batches = 1, int w_batches = 1, int round_pitch = 1,
            bool a_along_k = true, bool w_along_k = true)
        : m(m), n(n), k(k), batches(batches), w_batches(w_batches), values(kind), c((size_t)batches * m * n, NAN),
          stores((size_t)batches * m * n, 0) {
        std::mt19937 random(m + n + k);
        fill(a, random, batches, m, round_pitch, a_along_k);
        fill(w, random, w_batches, n, round_pitch, w_along_k);
        if (kind == Values::special) a.at(0, 3, 5) = T(INFINITY), w.at(0, 7, 1) = T(NAN);
    }
    void fill(Matrix<T>& matrix, std::mt19937& random, int batches, int rows, int round_pitch, bool along_k) {
        const int length = ((along_k ? k : rows) + round_pitch - 1) / round_pitch * round_pitch;
        const int64_t lines = along_k ? rows : k;
        matrix.memory.assign((size_t)(batches * lines * length) + 16, T(1e4f));
        matrix.data = (T*)(((uintptr_t)matrix.memory.data() + 15) & ~(uintptr_t)15);
        matrix.row_pitch = along_k ? length : 1, matrix.k_pitch = along_k ? 1 : length;
        matrix.batch_pitch = lines * length;
        std::normal_distribution<float> normal;
        for (int b = 0; b < batches; b++)
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < k; i++)
                    matrix.at(b, r, i) = T(values == Values::integers ? float(int(random() % 17) - 8) : normal(random));
    }
    typename Store::Args args() { return {c.data(), stores.data(), n}; }

    // Prints what is wrong; integers must be exact, others within float32's own error, Inf and NaN where they belong.
    bool right(const char* name, double limit = 3e-7) {
        int wrong = 0;
        double error = 0, size = 0;
        for (int b = 0; b < batches; b++)
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    double exact = 0;
                    for (int p = 0; p < k; p++) exact += (double)(float)a.at(b, i, p) * (float)w.at(w_batches == 1 ? 0 : b, j, p);
                    const size_t at = ((size_t)b * m + i) * n + j;
                    const bool same = std::isnan(exact) ? std::isnan(c[at]) : c[at] == (float)exact;
                    wrong += stores[at] != 1 || (!same && (values == Values::integers || !isfinite(exact)));
                    if (isfinite(exact)) error += (c[at] - exact) * (c[at] - exact), size += exact * exact;
                }
        const double relative = std::sqrt(error / size);
        const bool good = wrong == 0 && relative <= limit;
        std::printf("%s %s: %d x (%d x %d x %d), %d wrong, error %.1e\n", good ? "right" : "WRONG", name, batches, m, n, k,
                    wrong, relative);
        return good;
    }
};
