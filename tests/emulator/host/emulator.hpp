// What compiled kernels and the machine that runs them know of each other: threads, launches, collectives, memory.
//
// The machine (machine.cpp, memory.cpp, ptx.cpp) is built once, into a library of its own; kernels include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern uint3 threadIdx, blockIdx;  // of the thread that is running
extern dim3 blockDim, gridDim;

namespace emulator {

using Site = std::source_location;

struct Thread {
    uint3 thread, block;
    dim3 block_shape, grid_shape;
    unsigned linear;  // in its block
    unsigned rank;    // of its block in the cluster
};
extern Thread* self;  // the thread that is running; null on the host

// --- launches

struct Shape {
    dim3 grid, block;
    size_t dynamic_bytes = 0;
    dim3 cluster = {1, 1, 1};
    bool at_once = false;  // the cluster is the whole grid, which may be larger
};

using Body = void (*)(void* arguments);

// Runs all threads to their end. Gives a cudaError_t: what the CUDA runtime would say about the shape, or 719 (launch
// failure) if a thread did something wrong, which is then kept as text until `emulator_failure` is asked.
int launch(const Shape&, const void* kernel, Body, void* arguments, size_t argument_bytes);
int allow_dynamic_bytes(const void* kernel, int bytes);
int take_last_error();
int peek_last_error();
int device_attribute(int which);  // by CUDA's numbers; -1 if it is not known
int fill(void* pointer, int value, size_t bytes);
void* driver_entry_point(const char* name);

template <class... P> struct Configured {
    void (*kernel)(P...);
    Shape shape;

    int run(std::type_identity_t<P>... arguments) const {
        struct Packed {
            void (*kernel)(P...);
            std::tuple<P...> arguments;
        } packed{kernel, {arguments...}};
        const Body body = [](void* given) {
            Packed& packed = *static_cast<Packed*>(given);
            std::apply(packed.kernel, packed.arguments);
        };
        return launch(shape, reinterpret_cast<const void*>(kernel), body, &packed, sizeof packed);
    }
    void operator()(std::type_identity_t<P>... arguments) const { run(arguments...); }
};

// kernel<<<grid, block, dynamic_bytes, stream>>>
template <class... P>
Configured<P...> configured(void (*kernel)(P...), dim3 grid, dim3 block, size_t dynamic_bytes = 0, void* = nullptr) {
    return {kernel, {grid, block, dynamic_bytes}};
}

// --- faults

[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- barriers and what the lanes of a warp do together

void sync_threads(Site);
enum class Vote : int { count, all, any };
int sync_threads_voting(Vote, bool, Site);  // __syncthreads_count, _and, _or
void named_barrier(int id, int threads, bool waits, Site);
void yield();                  // lets all others go on
void global_order_is_known();  // the block has met others through an atomic: memory they wrote may be read

// Waits until every lane in `mask` is here with its own `given`; the last one runs `finish` over those of all lanes.
using Finish = void (*)(uint32_t mask, void** given);
void gather(const char* name, uint32_t mask, void* given, Finish finish, Site);
void sync_warp(uint32_t mask, Site);  // orders memory, which the others do not

struct Shown {  // what a lane shows the others, and what it gets
    uint64_t value;
    int argument;
    uint64_t result;
    uint32_t (*reduce)(uint32_t, uint32_t) = nullptr;
};
void shuffle_finish(uint32_t, void**);  // `argument` is the lane that is asked
void ballot_finish(uint32_t, void**);
void match_finish(uint32_t, void**);
void reduce_finish(uint32_t, void**);

template <class T>
T shown(const char* name, uint32_t mask, T value, int argument, Finish finish, Site site,
        uint32_t (*reduce)(uint32_t, uint32_t) = nullptr) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    Shown shown{0, argument, 0, reduce};
    std::memcpy(&shown.value, &value, sizeof value);
    gather(name, mask, &shown, finish, site);
    std::memcpy(&value, &shown.result, sizeof value);
    return value;
}

// --- memory

enum class Access : int { read, write, atomic };
void touch(const void* pointer, size_t bytes, Access);       // checks and records one access
void touch_aligned(const void* pointer, size_t bytes, Access);
void copy(void* to, const void* from, size_t bytes);         // unseen by the checks, for whoever has made them

// A variable in the shared memory of this thread's block; `key` is the same for all threads of the launch.
void* shared_variable(const void* key, size_t bytes, size_t alignment);
void* dynamic_shared(size_t alignment);
uint32_t shared_address(const void*);              // as instructions take it
uint8_t* shared_pointer(uint32_t address, unsigned rank);  // of the block `rank` of the cluster

template <class T, class Tag, size_t Alignment = alignof(T)> T& shared() {
    static const char key = 0;
    return *static_cast<T*>(shared_variable(&key, sizeof(T), Alignment < alignof(T) ? alignof(T) : Alignment));
}

// --- inline PTX: operands as asm binds them, and a piece of code that is parsed once

struct Operand {
    char constraint;
    void* place;     // of an output
    uint64_t bits;   // of an input
    size_t bytes;
};

template <class T> Operand input(char constraint, T value) {
    Operand operand{constraint, nullptr, 0, sizeof value};
    if constexpr (std::is_integral_v<T> && sizeof(T) < 8) operand.bits = (uint64_t)(int64_t)value;
    else std::memcpy(&operand.bits, &value, sizeof value);
    return operand;
}
template <class T> Operand output(char constraint, T& place) { return {constraint, &place, 0, sizeof place}; }

struct Code;
const Code* parsed(const char* text);  // lives for ever
void execute(const Code*, const Operand* operands, int count, Site = Site::current());

}  // namespace emulator
