// Memory: which bytes a kernel may touch, shared memory as instructions address it, and who touched what without order.
//
// g++ -fsanitize=thread calls the __tsan_* functions at the end before every load and store of a kernel, and
// -fsanitize=alignment,bounds the __ubsan_* ones where a pointer or an index is wrong. The sanitizers' own libraries
// are not used.
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <memory>
#include <sys/mman.h>

namespace emulator {
namespace {

// Shared memory of a block, whose addresses fit the 18 bits of a matrix descriptor.
// What the launch asks for comes first and starts at an odd multiple of 16, for more is not promised; then variables.
constexpr uint32_t reserved = 1024, dynamic_from = reserved + 16, most_alignment = 1024, window = 512 << 10;
constexpr unsigned most_static_bytes = 48 << 10, most_blocks = 64;
// What shared memory holds before it is written, from block to block: a large negative number as any float, a large
// positive one, NaN. Some kernels pass over NaN or compute it again; maxima pass over small numbers, minima over large.
constexpr uint8_t poisons[] = {0xfb, 0x7b, 0xff};

struct Epoch {  // one access: by whom, when, to which bytes of the word
    uint32_t cluster = 0, era = 0, step = 0;
    uint16_t unit = 0;
    uint8_t bytes = 0;
    bool atomic = false;
};
struct Word {  // the last write of four bytes of memory, and some of the reads since
    Epoch write, reads[3];
    uint8_t next_read = 0;
};
using Words = std::vector<Word>;

struct Region {
    const uint8_t *begin, *end;
    std::string name;
    Words words;
};
std::vector<Region> regions;
size_t last_region = 0;
bool checks_races = true;

struct Image {
    const uint8_t *begin = nullptr, *end = nullptr;
} image;
Arguments arguments_;

struct Variable {
    const void* key;
    uint32_t at, bytes;
};
std::vector<Variable> variables;
uint32_t first_static, static_end, dynamic_at, dynamic_bytes_;
Words shared_words[most_blocks];

uint8_t* arena() {
    static uint8_t* const mapped = [] {
        void* made = mmap(nullptr, (size_t)most_blocks * window, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                          -1, 0);
        if (made == MAP_FAILED) std::perror("shared memory of the emulator"), std::abort();
        return static_cast<uint8_t*>(made);
    }();
    return mapped;
}

template <class T> bool of(const T& object, const void* p) { return p >= &object && p < &object + 1; }
bool is_built_in(const void* p) {
    return of(threadIdx, p) || of(blockIdx, p) || of(blockDim, p) || of(gridDim, p) || of(self, p) || of(*self, p);
}
bool inside(const uint8_t* p, const uint8_t* begin, const uint8_t* end) { return p >= begin && p < end; }

int image_of(dl_phdr_info* info, size_t, void* kernel) {
    const uint8_t *begin = nullptr, *end = nullptr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        const uint8_t* at = reinterpret_cast<const uint8_t*>(info->dlpi_addr + segment.p_vaddr);
        begin = begin ? std::min(begin, at) : at, end = std::max(end, at + segment.p_memsz);
    }
    if (!inside(static_cast<const uint8_t*>(kernel), begin, end)) return 0;
    image = {begin, end};
    return 1;
}

const char* verb(Access access) {
    return access == Access::read ? "reads" : access == Access::write ? "writes" : "updates";
}

// --- races

bool ordered(const Epoch& before, const Actor& now) {
    if (before.cluster != cluster->number) return now.block->knows_global_order;
    return before.era != cluster->era || before.unit == now.unit || before.step <= now.clock->known(before.unit);
}

void race(const Epoch& before, const char* did, Access access, const uint8_t* pointer) {
    char who[96];
    if (before.unit >= cluster->units)
        std::snprintf(who, sizeof who, "the tensor cores for warp %u", before.unit - cluster->units);
    else if (before.cluster == cluster->number)
        std::snprintf(who, sizeof who, "thread %u of its block",
                      (unsigned)(before.unit % cluster->blocks[0].fibers.size()));
    else std::snprintf(who, sizeof who, "thread %u of block %u", before.unit, before.cluster);
    fault("%s %s, which %s %s with no barrier between them", verb(access), where(pointer).c_str(), who, did);
}

void record(const Actor& me, Word& word, uint8_t bytes, Access access, const uint8_t* pointer) {
    const Epoch now{cluster->number, cluster->era, me.step, (uint16_t)me.unit, bytes, access == Access::atomic};
    const bool both_atomic = now.atomic && word.write.atomic;
    if (word.write.bytes & bytes && !both_atomic && !ordered(word.write, me))
        race(word.write, "wrote", access, pointer);
    if (access == Access::read) {
        for (Epoch& read : word.reads)
            if (!read.bytes || (ordered(read, me) && !(read.bytes & ~bytes))) {
                read = now;
                return;
            }
        word.reads[word.next_read++ % 3] = now;
        return;
    }
    for (Epoch& read : word.reads) {
        if (read.bytes & bytes && !ordered(read, me)) race(read, "read", access, pointer);
        if (!(read.bytes & ~bytes)) read.bytes = 0;
    }
    word.write = now;
}

void record(const Actor& me, Words& words, const uint8_t* base, const uint8_t* pointer, size_t bytes, Access access) {
    if (!checks_races) return;
    const size_t first = pointer - base, last = first + bytes;
    for (size_t word = first / 4; word * 4 < last; word++) {
        const size_t begin = std::max(first, word * 4) - word * 4, end = std::min(last, word * 4 + 4) - word * 4;
        record(me, words[word], (uint8_t)((1u << end) - (1u << begin)), access, base + std::max(first, word * 4));
    }
}

// --- bounds

Region* region_of(const uint8_t* pointer) {
    if (last_region < regions.size() && inside(pointer, regions[last_region].begin, regions[last_region].end))
        return &regions[last_region];
    for (size_t i = 0; i < regions.size(); i++)
        if (inside(pointer, regions[i].begin, regions[i].end)) return &regions[last_region = i];
    return nullptr;
}

void touch_shared(const Actor& me, const uint8_t* pointer, size_t bytes, Access access) {
    const size_t offset = (pointer - arena()) % window, rank = (pointer - arena()) / window;
    const size_t dynamic_end = dynamic_at + dynamic_bytes_;
    const bool in_dynamic = offset >= dynamic_at && offset + bytes <= dynamic_end;
    const auto holds = [&](const Variable& v) { return offset >= v.at && offset + bytes <= v.at + v.bytes; };
    if (rank >= cluster->blocks.size() || (!in_dynamic && std::none_of(variables.begin(), variables.end(), holds)))
        fault("%s %zu bytes at %s", verb(access), bytes, where(pointer).c_str());
    if (!checks_races) return;
    Words& words = shared_words[rank];
    if (words.size() < (offset + bytes + 3) / 4) words.resize((offset + bytes + 3) / 4);
    record(me, words, arena() + rank * window, pointer, bytes, access);
}

void touch_global(const Actor& me, const uint8_t* pointer, size_t bytes, Access access) {
    if (Region* region = region_of(pointer)) {
        if (pointer + bytes > region->end) fault("%s %zu bytes at %s", verb(access), bytes, where(pointer).c_str());
        if (checks_races && region->words.empty()) region->words.resize((region->end - region->begin + 3) / 4);
        record(me, region->words, region->begin, pointer, bytes, access);
        return;
    }
    if (inside(pointer, image.begin, image.end)) return;  // constants and variables of the program
    if (access == Access::read && inside(pointer, arguments_.begin, arguments_.end)) return;
    fault("%s %zu bytes at %s", verb(access), bytes, where(pointer).c_str());
}

}  // namespace

void touch(const void* address, size_t bytes, Access access) {
    if (!self) return;
    const Fiber& me = fiber();
    if (inside(static_cast<const uint8_t*>(address), me.stack_begin, me.stack_end) || is_built_in(address)) return;
    touch_as({me.unit, me.step, &me.clock, me.home}, address, bytes, access);
}

void touch_as(const Actor& me, const void* address, size_t bytes, Access access) {
    const uint8_t* pointer = static_cast<const uint8_t*>(address);
    if (inside(pointer, arena(), arena() + (size_t)most_blocks * window)) touch_shared(me, pointer, bytes, access);
    else touch_global(me, pointer, bytes, access);
}

void touch_aligned(const void* address, size_t bytes, Access access) {
    if (self && reinterpret_cast<uintptr_t>(address) % bytes)
        fault("%s %zu bytes at once at %s, which is not a multiple of %zu", verb(access), bytes,
              where(address).c_str(), bytes);
    touch(address, bytes, access);
}

void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

// "element 12 bytes after the end of x", "byte 40 of shared memory".
std::string where(const void* address) {
    const uint8_t* pointer = static_cast<const uint8_t*>(address);
    char text[256];
    if (inside(pointer, arena(), arena() + (size_t)most_blocks * window)) {
        const size_t offset = (pointer - arena()) % window;
        if (offset < first_static)
            std::snprintf(text, sizeof text, "byte %lld of the %u bytes of dynamic shared memory",
                          (long long)offset - dynamic_at, dynamic_bytes_);
        else {
            const Variable* before = nullptr;
            for (const Variable& v : variables)
                if (v.at <= offset && (!before || v.at > before->at)) before = &v;
            std::snprintf(text, sizeof text, "byte %zu of a shared variable of %u bytes",
                          before ? offset - before->at : offset, before ? before->bytes : 0);
        }
        return text;
    }
    const Region* nearest = nullptr;
    size_t least = SIZE_MAX;
    for (const Region& region : regions) {
        const size_t distance = pointer < region.begin  ? region.begin - pointer
                                : pointer >= region.end ? pointer - region.end + 1
                                                        : 0;
        if (distance < least) least = distance, nearest = &region;
    }
    if (!nearest) return "an address that was not given to the kernel";
    if (pointer >= nearest->end)
        std::snprintf(text, sizeof text, "%zu bytes after the end of %s", (size_t)(pointer - nearest->end),
                      nearest->name.c_str());
    else if (pointer < nearest->begin)
        std::snprintf(text, sizeof text, "%zu bytes before the start of %s", (size_t)(nearest->begin - pointer),
                      nearest->name.c_str());
    else
        std::snprintf(text, sizeof text, "byte %zu of %s", (size_t)(pointer - nearest->begin), nearest->name.c_str());
    return text;
}

// --- shared memory

void* shared_variable(const void* key, size_t bytes, size_t alignment) {
    const auto is_it = [&](const Variable& v) { return v.key == key; };
    const auto known = std::find_if(variables.begin(), variables.end(), is_it);
    uint8_t* base = arena() + (size_t)self->rank * window;
    if (known != variables.end()) return base + known->at;
    const uint32_t at = (static_end + alignment - 1) / alignment * alignment;
    static_end = at + bytes;
    if (static_end - first_static > most_static_bytes)
        fault("declares %u bytes of shared variables; more than %u have to be dynamic", static_end - first_static,
              most_static_bytes);
    variables.push_back({key, at, (uint32_t)bytes});
    return base + at;
}

void* dynamic_shared(size_t alignment) {
    if (alignment > most_alignment) fault("wants dynamic shared memory at a multiple of %zu", alignment);
    dynamic_at = std::max<uint32_t>(dynamic_at, (dynamic_from + alignment - 1) / alignment * alignment);
    return arena() + (size_t)self->rank * window + dynamic_at;
}

unsigned static_shared_bytes() { return static_end - first_static; }

// An address of the own block, or (by mapa) 1 + rank in the upper byte.
uint32_t shared_address(const void* address) {
    const uint8_t* pointer = static_cast<const uint8_t*>(address);
    if (!inside(pointer, arena(), arena() + (size_t)most_blocks * window))
        fault("takes %s for an address in shared memory", where(address).c_str());
    const uint32_t rank = (pointer - arena()) / window;
    const uint32_t offset = (pointer - arena()) % window;
    return rank == self->rank ? offset : (rank + 1) << 24 | offset;
}
uint8_t* shared_pointer(uint32_t address, unsigned rank) {
    const uint32_t offset = address & 0xffffff, named = address >> 24;
    const uint32_t block = named ? named - 1 : rank;
    if (offset >= window || block >= cluster->blocks.size()) fault("uses %08x as an address in shared memory", address);
    return arena() + (size_t)block * window + offset;
}

// --- a launch

void memory_begin_launch(const void* kernel, Arguments arguments, unsigned, unsigned dynamic_bytes) {
    image = {};
    dl_iterate_phdr(image_of, const_cast<void*>(kernel));
    arguments_ = arguments;
    variables.clear();
    dynamic_at = dynamic_from, dynamic_bytes_ = dynamic_bytes;
    // Apart, so that neither runs into the other unseen.
    first_static = static_end = (dynamic_from + dynamic_bytes + most_alignment + 127) / 128 * 128;
    for (Region& region : regions) region.words.clear();
}

void memory_begin_cluster(unsigned blocks) {
    for (unsigned rank = 0; rank < blocks; rank++) {
        uint8_t* base = arena() + (size_t)rank * window;
        std::memset(base + reserved, poisons[cluster->number % 3], first_static + most_static_bytes - reserved);
        shared_words[rank].clear();
    }
}

void memory_end_launch() {}

// As a kernel's writes would be, but by the host: a fault here is an error code.
int fill(void* address, int value, size_t bytes) {
    uint8_t* pointer = static_cast<uint8_t*>(address);
    const Region* region = bytes ? region_of(pointer) : nullptr;
    if (bytes && (!region || pointer + bytes > region->end)) return 1;
    std::memset(pointer, value, bytes);
    return 0;
}

}  // namespace emulator

using emulator::Access;

extern "C" {

// --- for Python: the tensors of the calls that follow

void emulator_register(const void* begin, size_t bytes, const char* name) {
    const uint8_t* pointer = static_cast<const uint8_t*>(begin);
    for (auto& region : emulator::regions)
        if (region.begin == pointer) {
            region.end = std::max(region.end, pointer + bytes);
            return;
        }
    emulator::regions.push_back({pointer, pointer + bytes, name, {}});
}
void emulator_forget_all() { emulator::regions.clear(); }
void emulator_check_races(int on) { emulator::checks_races = on; }

// --- for the compiler

// Before and after each access, the place in the program that makes it is kept for messages.
static void checked(void* pointer, size_t bytes, Access access, const void* caller) {
    emulator::blamed = caller;
    emulator::touch(pointer, bytes, access);
    emulator::blamed = nullptr;
}
static void checked_volatile(void* pointer, size_t bytes, const void* caller) {
    if (emulator::self) emulator::yield();
    checked(pointer, bytes, Access::atomic, caller);
}
#define CALLER __builtin_return_address(0)
#define ACCESSES(BYTES)                                                                                      \
    void __tsan_read##BYTES(void* p) { checked(p, BYTES, Access::read, CALLER); }                            \
    void __tsan_write##BYTES(void* p) { checked(p, BYTES, Access::write, CALLER); }                          \
    void __tsan_unaligned_read##BYTES(void* p) { checked(p, BYTES, Access::read, CALLER); }                  \
    void __tsan_unaligned_write##BYTES(void* p) { checked(p, BYTES, Access::write, CALLER); }                \
    void __tsan_volatile_read##BYTES(void* p) { checked_volatile(p, BYTES, CALLER); }                        \
    void __tsan_volatile_write##BYTES(void* p) { checked(p, BYTES, Access::atomic, CALLER); }                \
    void __tsan_unaligned_volatile_read##BYTES(void* p) { checked_volatile(p, BYTES, CALLER); }              \
    void __tsan_unaligned_volatile_write##BYTES(void* p) { checked(p, BYTES, Access::atomic, CALLER); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES
void __tsan_read_range(void* p, size_t bytes) { checked(p, bytes, Access::read, CALLER); }
void __tsan_write_range(void* p, size_t bytes) { checked(p, bytes, Access::write, CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind, information;
    char name[1];
};
struct MismatchData {
    SourceLocation at;
    TypeDescriptor* type;
    unsigned char log_alignment, kind;
};
struct BoundsData {
    SourceLocation at;
    TypeDescriptor *array, *index;
};
void __ubsan_handle_type_mismatch_v1(MismatchData* data, const void* pointer) {
    if (!emulator::self) return;
    emulator::fault("takes %s for a %s in line %u, which has to be at a multiple of %u bytes",
                    emulator::where(pointer).c_str(), data->type->name, data->at.line, 1u << data->log_alignment);
}
void __ubsan_handle_out_of_bounds(BoundsData* data, uint64_t index) {
    if (!emulator::self) return;
    emulator::fault("takes element %lld of %s in line %u", (long long)index, data->array->name, data->at.line);
}

}  // extern "C"
