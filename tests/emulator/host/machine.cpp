// The machine: every thread of a block is a fiber that runs until it waits; blocks run one cluster after another.
#include "machine.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

Thread* self = nullptr;
Cluster* cluster = nullptr;
const void* blamed = nullptr;

namespace {

// CUDA's numbers.
constexpr int success = 0, invalid_value = 1, invalid_configuration = 9, launch_failure = 719;
constexpr unsigned most_threads = 1024, most_dynamic_bytes = 232448, dynamic_bytes_by_default = 48 << 10;

constexpr size_t stack_bytes = 256 << 10, guard_bytes = 4096;
constexpr unsigned most_fibers = 4096;
constexpr int most_idle_rounds = 1 << 20;  // of threads that only look again and again

int last_error = success;
std::string failure;  // of the first thread that did something wrong; kept until it is asked for
int multiprocessors = 132;
bool blocks_run_backwards = false, threads_run_backwards = false, blocks_run_at_once = false;
std::map<const void*, int> allowed_dynamic_bytes;

// --- switching between stacks

struct Job {
    Body body;
    void* arguments;
} job;

#if defined(__x86_64__)
extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, . - emulator_switch
)");

void* scheduler_stack;

void leave() { emulator_switch(&fiber().stack_pointer, scheduler_stack); }
void enter(Fiber& to) { emulator_switch(&scheduler_stack, to.stack_pointer); }
void prepare(Fiber& made, void (*entry)()) {
    void** top = reinterpret_cast<void**>(made.stack_end);
    *--top = nullptr;                            // a return address for `entry`, which never returns
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--top = nullptr;  // the registers that emulator_switch restores
    made.stack_pointer = top;
}
#else
ucontext_t scheduler_context;
std::map<Fiber*, ucontext_t> contexts;

void leave() { swapcontext(&contexts[&fiber()], &scheduler_context); }
void enter(Fiber& to) { swapcontext(&scheduler_context, &contexts[&to]); }
void prepare(Fiber& made, void (*entry)()) {
    ucontext_t& context = contexts[&made];
    getcontext(&context);
    context.uc_stack.ss_sp = made.stack_begin, context.uc_stack.ss_size = made.stack_end - made.stack_begin;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}
#endif

uint8_t* stack_of(unsigned number) {
    static uint8_t* const area = [] {
        void* mapped = mmap(nullptr, most_fibers * stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) std::perror("stacks of the emulator"), std::abort();
        return static_cast<uint8_t*>(mapped);
    }();
    static std::vector<bool> guarded(most_fibers);
    uint8_t* begin = area + number * stack_bytes;
    if (!guarded[number]) mprotect(begin, guard_bytes, PROT_NONE), guarded[number] = true;
    return begin;
}

}  // namespace

// --- barriers

// Calls itself complete once as many have come as it waits for.
void settle(Barrier& barrier) {
    barrier.arrived = 0;
    barrier.result = barrier.votes, barrier.votes = 0;
    barrier.generation++;
    barrier.clock[(barrier.generation + 1) & 1].forget();
}

void arrive(Barrier& barrier) {
    release(fiber(), barrier.clock[(barrier.generation + 1) & 1]);
    barrier.arrived++;
}

void await(Barrier& barrier, uint32_t before, std::string why) {
    if (barrier.generation == before) wait_while(&barrier.generation, before, std::move(why));
    acquire(fiber(), barrier.clock[(before + 1) & 1]);
}

namespace {

std::string at(const Site& site) { return "line " + std::to_string(site.line()); }

// All threads of a block have come to __syncthreads.
void settle_all(Block& block) {
    settle(block.barriers[0]);
    if (cluster->blocks.size() == 1) cluster->era++;
}

void exit_thread() {
    Fiber& me = fiber();
    Block& block = *me.home;
    me.done = true;
    block.live--, cluster->live--;
    for (const Gathering& waiting : block.warps[me.linear / 32])
        if (waiting.arrived && waiting.mask >> (me.linear % 32) & 1)
            fault("has ended, and others of its warp wait for it in %s", waiting.name);
    // What has ended is not waited for at __syncthreads.
    Barrier& all = block.barriers[0];
    if (all.arrived && all.expected == 0 && all.arrived == (int)block.live) settle_all(block);
    if (cluster->barrier.arrived && cluster->barrier.arrived == (int)cluster->live) settle(cluster->barrier);
}

void run_thread() {
    job.body(job.arguments);
    exit_thread();
    leave();
    std::abort();
}

std::string named(const Fiber& thread) {
    char text[128];
    std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", thread.thread.x, thread.thread.y,
                  thread.thread.z, thread.block.x, thread.block.y, thread.block.z);
    return text;
}

void fail(const std::string& text) {
    if (failure.empty()) failure = text;
    last_error = launch_failure;
}

// What everybody waits for, threads that wait for the same thing together.
std::string standstill() {
    std::map<std::string, std::vector<const Fiber*>> groups;
    for (const Block& block : cluster->blocks)
        for (const Fiber* thread : block.fibers)
            if (!thread->done) groups[thread->waits_for + mbarrier_state(thread->watched)].push_back(thread);
    std::string text = "no thread can go on:";
    for (const auto& [reason, threads] : groups)
        text += "\n  " + std::to_string(threads.size()) + (threads.size() == 1 ? " thread waits " : " threads wait ") +
                reason + ": " + named(*threads.front()) + (threads.size() > 1 ? " and others" : "");
    const std::string copies = engine_backlog();
    return copies.empty() ? text : text + "\n  the copy engine has not done: " + copies;
}

bool can_run(const Fiber& thread) { return !thread.done && (!thread.watched || *thread.watched != thread.seen); }

bool engine_stepped() {
    try {
        return engine_step();
    } catch (const EngineFault& found) {
        fail(found.text);
        return false;
    }
}

// Lets each of these threads run until it waits; gives whether any ran, and whether any did more than look again.
struct Round {
    bool any = false, progress = false;
};
Round run_round(const std::vector<Fiber*>& threads) {
    Round round;
    for (Fiber* next : threads) {
        if (!can_run(*next)) continue;
        const bool looked_again = next->watched == nullptr && !next->waits_for.empty();
        round.any = true, round.progress |= !looked_again;
        next->watched = nullptr;
        self = next;
        threadIdx = next->thread, blockIdx = next->block;
        blockDim = next->block_shape, gridDim = next->grid_shape;
        enter(*next);
        self = nullptr;
        if (!failure.empty()) break;
    }
    return round;
}

// Runs a cluster's threads to their end: one block as far as it can go, then the next.
void run_cluster() {
    std::vector<std::vector<Fiber*>> blocks;
    for (Block& block : cluster->blocks) blocks.push_back(block.fibers);
    if (blocks_run_backwards) std::reverse(blocks.begin(), blocks.end());
    if (threads_run_backwards)
        for (auto& threads : blocks) std::reverse(threads.begin(), threads.end());
    for (int idle = 0; cluster->live && failure.empty();) {
        bool any = false, progress = false;
        for (const auto& threads : blocks) {
            Round round;
            do {
                round = run_round(threads);
                any |= round.any, progress |= round.progress;
            } while (round.progress && failure.empty());
        }
        if (!failure.empty()) return;
        if (!progress && engine_stepped()) continue;  // copies are late: they are made when nothing else can be done
        idle = progress ? 0 : idle + 1;
        if (failure.empty() && (!any || idle > most_idle_rounds)) fail(standstill());
    }
}

uint3 unflattened(unsigned index, dim3 shape) {
    return {index % shape.x, index / shape.x % shape.y, index / shape.x / shape.y};
}

Cluster made_cluster(const Shape& shape, unsigned number, std::vector<Fiber>& fibers) {
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    const dim3 c = shape.cluster, clusters(shape.grid.x / c.x, shape.grid.y / c.y, shape.grid.z / c.z);
    const unsigned blocks = c.x * c.y * c.z, units = blocks * threads;
    const unsigned clock_size = units + blocks * ((threads + 31) / 32);
    const uint3 first = unflattened(number, clusters);
    Cluster made;
    made.number = number, made.live = made.units = units, made.clock_size = clock_size;
    made.blocks.resize(blocks);
    for (unsigned rank = 0; rank < blocks; rank++) {
        Block& block = made.blocks[rank];
        const uint3 inside = unflattened(rank, c);
        block.index = {first.x * c.x + inside.x, first.y * c.y + inside.y, first.z * c.z + inside.z};
        block.rank = rank, block.live = threads;
        block.warps.resize((threads + 31) / 32);
        for (unsigned t = 0; t < threads; t++) {
            const unsigned unit = rank * threads + t;
            Fiber& thread = fibers[unit];
            thread = Fiber();
            thread.thread = unflattened(t, shape.block), thread.block = block.index;
            thread.block_shape = shape.block, thread.grid_shape = shape.grid;
            thread.linear = t, thread.rank = rank, thread.unit = unit;
            thread.stack_begin = stack_of(unit) + guard_bytes, thread.stack_end = stack_of(unit) + stack_bytes;
            prepare(thread, run_thread);
            block.fibers.push_back(&thread);
        }
    }
    return made;
}

int refused(const Shape& shape, const void* kernel) {
    const dim3 g = shape.grid, b = shape.block, c = shape.cluster;
    const bool empty = !(g.x && g.y && g.z && b.x && b.y && b.z);
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (empty || threads > most_threads || b.z > 64 || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535)
        return invalid_configuration;
    const unsigned most_blocks = shape.at_once ? 64 : 8;
    if (g.x % c.x || g.y % c.y || g.z % c.z || c.x * c.y * c.z > most_blocks) return invalid_configuration;
    const auto raised = allowed_dynamic_bytes.find(kernel);
    const size_t allowed = raised == allowed_dynamic_bytes.end() ? dynamic_bytes_by_default : raised->second;
    return shape.dynamic_bytes > allowed ? invalid_value : success;
}

}  // namespace

std::map<const void*, Clock> published;

void wait_while(const uint32_t* word, uint32_t seen, std::string why) {
    Fiber& me = fiber();
    me.watched = word, me.seen = seen, me.waits_for = std::move(why);
    leave();
    me.waits_for.clear();
}

void yield() {
    Fiber& me = fiber();
    me.watched = nullptr, me.waits_for = "for what it reads to change";
    leave();
    me.waits_for.clear();
}

uint32_t Clock::known(unsigned unit) const { return era == cluster->era ? steps[unit] : 0; }

void Clock::learn(unsigned unit, uint32_t step) {
    if (era != cluster->era) steps.assign(cluster->clock_size, 0), era = cluster->era;
    steps[unit] = std::max(steps[unit], step);
}

void Clock::learn(const Clock& from) {
    if (from.era != cluster->era) return;
    if (era != cluster->era) steps = from.steps, era = from.era;
    else
        for (size_t i = 0; i < steps.size(); i++) steps[i] = std::max(steps[i], from.steps[i]);
}

void fault(const char* format, ...) {
    char text[2048];
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!self) throw EngineFault{std::string("the copy engine ") + text};
    std::string said = named(fiber()) + " " + text;
    Dl_info found;
    if (blamed && dladdr(blamed, &found)) {
        const size_t offset = (const char*)blamed - (const char*)found.dli_fbase;
        std::snprintf(text, sizeof text, "\n  at %s+0x%zx", found.dli_fname, offset);
        said += text;
    }
    fail(said);
    leave();
    std::abort();
}

int launch(const Shape& asked, const void* kernel, Body body, void* arguments, size_t argument_bytes) {
    if (!failure.empty()) return last_error;
    Shape shape = asked;
    // As many as have a multiprocessor each may run at once on a GPU, whether or not they ask for that.
    const bool have_places = shape.grid.x <= (unsigned)multiprocessors && shape.grid.y * shape.grid.z == 1;
    if (blocks_run_at_once && have_places && shape.cluster.x * shape.cluster.y * shape.cluster.z == 1)
        shape.cluster = shape.grid, shape.at_once = true;
    if (const int error = refused(shape, kernel)) return last_error = error;
    const dim3 c = shape.cluster;
    const unsigned blocks = c.x * c.y * c.z, threads = shape.block.x * shape.block.y * shape.block.z;
    if (blocks * threads > most_fibers) return fail("a cluster of more threads than are emulated"), launch_failure;
    const unsigned clusters = shape.grid.x * shape.grid.y * shape.grid.z / blocks;
    const uint8_t* packed = static_cast<const uint8_t*>(arguments);
    job = {body, arguments};
    std::vector<Fiber> fibers(blocks * threads);
    memory_begin_launch(kernel, {packed, packed + argument_bytes}, blocks, shape.dynamic_bytes);
    for (unsigned i = 0; i < clusters && failure.empty(); i++) {
        Cluster made = made_cluster(shape, blocks_run_backwards ? clusters - 1 - i : i, fibers);
        cluster = &made;
        for (Block& block : made.blocks)
            for (Fiber* thread : block.fibers) thread->home = &block;
        memory_begin_cluster(blocks);
        engine_begin_cluster();
        published.clear();
        run_cluster();
        const std::string copies = engine_backlog();
        if (!copies.empty()) fail("the block has ended and the copy engine has not done: " + copies);
        if (failure.empty() && static_shared_bytes() + shape.dynamic_bytes > most_dynamic_bytes)
            fail("the block's shared memory is " + std::to_string(static_shared_bytes() + shape.dynamic_bytes) +
                 " bytes, and an H200 has " + std::to_string(most_dynamic_bytes));
        cluster = nullptr;
    }
    memory_end_launch();
    return failure.empty() ? success : launch_failure;
}

int allow_dynamic_bytes(const void* kernel, int bytes) {
    if (bytes < 0 || bytes > (int)most_dynamic_bytes) return last_error = invalid_value;
    allowed_dynamic_bytes[kernel] = bytes;
    return success;
}

int device_attribute(int which) {
    const std::map<int, int> known = {
        {8, dynamic_bytes_by_default}, {16, multiprocessors}, {75, 9}, {76, 0}, {97, most_dynamic_bytes}};
    const auto found = known.find(which);
    return found == known.end() ? -1 : found->second;
}

int peek_last_error() { return last_error; }
int take_last_error() {
    const int error = last_error;
    if (failure.empty()) last_error = success;
    return error;
}

// --- barriers

int sync_threads_voting(Vote vote, bool value, Site site) {
    Block& block = *fiber().home;
    Barrier& barrier = block.barriers[0];
    if (barrier.arrived && barrier.site.line() != site.line())
        fault("is at __syncthreads in %s while others are at the one in %s", at(site).c_str(),
              at(barrier.site).c_str());
    barrier.site = site, barrier.expected = 0;
    barrier.votes += vote == Vote::all ? !value : value;
    const uint32_t before = barrier.generation;
    const bool alone = cluster->blocks.size() == 1;
    if (alone) barrier.arrived++;
    else arrive(barrier);
    if (barrier.arrived == (int)block.live) settle_all(block);
    const std::string why = "at __syncthreads in " + at(site);
    if (alone && barrier.generation == before) wait_while(&barrier.generation, before, why);
    if (!alone) await(barrier, before, why);
    return vote == Vote::count ? barrier.result : vote == Vote::any ? barrier.result > 0 : barrier.result == 0;
}

void sync_threads(Site site) { sync_threads_voting(Vote::count, false, site); }

void named_barrier(int id, int threads, bool waits, Site site) {
    if (id < 0 || id > 15) fault("uses barrier %d; there are 0 to 15", id);
    Block& block = *fiber().home;
    if (threads <= 0) threads = block.fibers.size();
    if (threads % 32) fault("waits at barrier %d for %d threads, which are not whole warps", id, threads);
    Barrier& barrier = block.barriers[id];
    if (barrier.arrived && barrier.expected != threads)
        fault("takes barrier %d for %d threads, others take it for %d", id, threads, barrier.expected);
    barrier.expected = threads;
    const uint32_t before = barrier.generation;
    arrive(barrier);
    if (barrier.arrived == threads) settle(barrier);
    if (waits) await(barrier, before, "at barrier " + std::to_string(id) + " in " + at(site));
}

// --- warps

void gather(const char* name, uint32_t mask, void* given, Finish finish, Site site) {
    Fiber& me = fiber();
    Block& block = *me.home;
    const unsigned lane = me.linear % 32, first = me.linear - lane;
    if (!(mask >> lane & 1))
        fault("calls %s in %s with the mask %08x, which lacks its own lane", name, at(site).c_str(), mask);
    for (unsigned other = 0; other < 32; other++) {
        if (!(mask >> other & 1)) continue;
        if (first + other >= block.fibers.size()) fault("names lane %u in %s; its warp has no such lane", other, name);
        if (block.fibers[first + other]->done)
            fault("names lane %u in %s in %s, and that lane has ended", other, name, at(site).c_str());
    }
    auto& waiting = block.warps[me.linear / 32];
    Gathering* mine = nullptr;
    for (Gathering& one : waiting) {
        if (!one.arrived || !(one.mask & mask)) continue;
        if (one.mask != mask)
            fault("calls %s with the mask %08x while lanes of it wait in %s with %08x", name, mask, one.name, one.mask);
        if (one.finish != finish || std::strcmp(one.name, name))
            fault("is at %s in %s while others of its warp are at %s", name, at(site).c_str(), one.name);
        mine = &one;
    }
    if (!mine) {
        for (Gathering& one : waiting)
            if (!one.arrived) mine = &one;
        if (!mine) mine = &waiting.emplace_back();
        mine->mask = mask, mine->finish = finish, mine->name = name;
    }
    mine->arrived |= 1u << lane;
    mine->given[lane] = given;
    if (mine->arrived != mask) {
        const uint32_t before = me.released;
        wait_while(&me.released, before, std::string("in ") + name + " in " + at(site));
        return;
    }
    if (finish) finish(mask, mine->given);
    mine->arrived = 0;
    for (unsigned other = 0; other < 32; other++)
        if (mask >> other & 1 && other != lane) block.fibers[first + other]->released++;
}

namespace {
void sync_finish(uint32_t mask, void** given) {
    Clock all;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) release(*static_cast<Fiber*>(given[lane]), all);
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) acquire(*static_cast<Fiber*>(given[lane]), all);
}
Shown& lane_of(void** given, int lane) { return *static_cast<Shown*>(given[lane]); }
}  // namespace

void sync_warp(uint32_t mask, Site site) { gather("__syncwarp", mask, &fiber(), sync_finish, site); }

void shuffle_finish(uint32_t mask, void** given) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Shown& mine = lane_of(given, lane);
        const bool is_here = mask >> mine.argument & 1;  // else what it gets is undefined
        mine.result = is_here ? lane_of(given, mine.argument).value : 0xdeadbeefdeadbeef;
    }
}
void ballot_finish(uint32_t mask, void** given) {
    uint32_t bits = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && lane_of(given, lane).value) bits |= 1u << lane;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) lane_of(given, lane).result = bits;
}
void reduce_finish(uint32_t mask, void** given) {
    const int first = __builtin_ctz(mask);
    uint32_t total = (uint32_t)lane_of(given, first).value;
    for (int lane = first + 1; lane < 32; lane++)
        if (mask >> lane & 1) total = lane_of(given, lane).reduce(total, (uint32_t)lane_of(given, lane).value);
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) lane_of(given, lane).result = total;
}
void match_finish(uint32_t mask, void** given) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        uint32_t bits = 0;
        for (int other = 0; other < 32; other++)
            if (mask >> other & 1 && lane_of(given, other).value == lane_of(given, lane).value) bits |= 1u << other;
        lane_of(given, lane).result = bits;
    }
}

void global_order_is_known() { fiber().home->knows_global_order = true; }

}  // namespace emulator

// --- for Python

extern "C" {

// The fault of the calls since it was last asked, or null.
const char* emulator_failure() {
    static std::string given;
    given = emulator::failure;
    emulator::failure.clear();
    emulator::last_error = 0;
    return given.empty() ? nullptr : given.c_str();
}

void emulator_set_multiprocessors(int count) { emulator::multiprocessors = count; }

void emulator_run_backwards(int blocks, int threads) {
    emulator::blocks_run_backwards = blocks, emulator::threads_run_backwards = threads;
}

void emulator_run_at_once(int blocks) { emulator::blocks_run_at_once = blocks; }

}  // extern "C"
