// What the parts of the machine know of each other: threads as fibers, blocks, barriers, and clocks for races.
#pragma once

#include "emulator.hpp"
#include <map>
#include <string>
#include <vector>

namespace emulator {

// A vector clock: for each thread of the cluster, and after them for the tensor cores as each warp uses them, the last
// of its steps that is known to have happened before. A barrier of all threads begins a new era, in which all that was
// before it is known; a clock of another era knows nothing of this one.
struct Clock {
    std::vector<uint32_t> steps;
    uint32_t era = 0;

    uint32_t known(unsigned unit) const;
    void learn(unsigned unit, uint32_t step);
    void learn(const Clock&);
    void forget() { era = 0; }
};

struct Barrier {
    int arrived = 0, expected = 0;
    uint32_t generation = 0;
    Clock clock[2];  // of odd and even generations
    Site site;
    int votes = 0, result = 0;
};

struct Gathering {  // lanes of a warp on their way into one instruction
    uint32_t mask = 0, arrived = 0;
    Finish finish = nullptr;
    const char* name = nullptr;
    void* given[32];
};

struct Block;

struct Fiber : Thread {
    void* stack_pointer = nullptr;
    uint8_t *stack_begin = nullptr, *stack_end = nullptr;
    Block* home = nullptr;
    unsigned unit = 0;  // in the cluster
    bool done = false;
    // Waits while *watched == seen.
    const uint32_t* watched = nullptr;
    uint32_t seen = 0;
    std::string waits_for;
    uint32_t released = 0;
    uint32_t step = 1;
    Clock clock;
    uint32_t cluster_generation = 0;  // of the cluster's barrier when it arrived there
};

struct Block {
    uint3 index;
    unsigned rank = 0, live = 0;
    std::vector<Fiber*> fibers;
    Barrier barriers[16];
    std::vector<std::vector<Gathering>> warps;
    bool knows_global_order = false;
};

struct Cluster {
    unsigned units = 0, clock_size = 0;  // threads; threads and warps
    uint32_t era = 1;
    std::vector<Block> blocks;
    unsigned number = 0;  // in the grid
    unsigned live = 0;
    Barrier barrier;
};
extern Cluster* cluster;
extern const void* blamed;  // the instruction whose access to memory is being checked

inline Fiber& fiber() { return *static_cast<Fiber*>(self); }

// Lets others run until *word != seen. `why` is shown if that never happens.
void wait_while(const uint32_t* word, uint32_t seen, std::string why);

// --- the order of what threads do, for races

inline void release(Fiber& from, Clock& into) {
    into.learn(from.clock);
    into.learn(from.unit, from.step++);
}
inline void acquire(Fiber& into, const Clock& from) { into.clock.learn(from); }

// What threads of the cluster have released by words of memory, for those who acquire them.
extern std::map<const void*, Clock> published;

// --- memory.cpp

struct Arguments {
    const uint8_t *begin, *end;
};
void memory_begin_launch(const void* kernel, Arguments, unsigned cluster_blocks, unsigned dynamic_bytes);
void memory_begin_cluster(unsigned cluster_blocks);
void memory_end_launch();
unsigned static_shared_bytes();
std::string where(const void* pointer);  // in words

// One access to memory, made now by a thread or earlier by one that asked for a copy.
struct Actor {
    unsigned unit;
    uint32_t step;
    const Clock* clock;
    const Block* block;
};
void touch_as(const Actor&, const void* pointer, size_t bytes, Access);

// --- barriers, for instructions

void arrive(Barrier&);
void settle(Barrier&);
void await(Barrier&, uint32_t before, std::string why);

// --- asynchronous.cpp: what the copy engine has still to do

void engine_begin_cluster();
bool engine_step();           // does one thing; false if there is nothing
std::string engine_backlog();  // in words; empty if there is nothing
std::string mbarrier_state(const uint32_t* phase);  // what the mbarrier with this phase lacks; empty if there is none

// What the engine does wrong comes to the scheduler as this.
struct EngineFault {
    std::string text;
};

}  // namespace emulator
