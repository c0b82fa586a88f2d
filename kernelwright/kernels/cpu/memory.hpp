// Results in memory that is new for every call: large pages, where the system has them.
#pragma once

#include "../device/base.cuh"

// kw: madvise
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace kw {

// kw: in_large_pages
// Memory of this size comes fresh from the system, a fault for each page of 4 kB, and those take longer than to write
// it. Only a hint: what the system makes of it changes no value.
inline void in_large_pages(void* p, int64_t bytes) {
#ifdef MADV_HUGEPAGE
    const int64_t page = sysconf(_SC_PAGESIZE), before = reinterpret_cast<intptr_t>(p) % page;
    madvise(static_cast<char*>(p) - before, size_t(bytes + before), MADV_HUGEPAGE);
#endif
}

}  // namespace kw
