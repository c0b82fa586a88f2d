// Functions of the bits of integers.
#pragma once

#include "base.cuh"

namespace kw {

// kw: bitwise_not
template <typename T> KW_DEVICE T bitwise_not(T x) { return T(~x); }
KW_DEVICE bool bitwise_not(bool x) { return !x; }

// kw: shift_left
template <typename T> KW_DEVICE T shift_left(T x, T count) {  // shifted out entirely by a count that is out of range
    constexpr int bits = 8 * sizeof(T);
    return (count < 0) | (count >= bits) ? T(0) : T(uint64_t(x) << (count & (bits - 1)));
}

// kw: shift_right
template <typename T> KW_DEVICE T shift_right(T x, T count) {  // only the sign is left by a count that is out of range
    constexpr int bits = 8 * sizeof(T);
    const T empty = T(x < 0 ? -1 : 0);
    return (count < 0) | (count >= bits) ? empty : T(x >> (count & (bits - 1)));
}

}  // namespace kw
