// What goes on beside a thread: copies to shared memory and the barriers they arrive at, and the tensor cores.
//
// Layouts of fragments, swizzles and descriptors are those of the PTX ISA. Matrix products add exact products in
// float64 and round once an instruction.
//
// Everything asynchronous is done as late as it may be: cp.async and wgmma when the thread waits for them, the copy
// engine's copies when no thread can go on without them. Whoever does not wait reads what was there before.
#include "ptx.hpp"
#include "sixteen_bits.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>

namespace emulator {
namespace {

using Arguments = std::vector<Argument>;

[[noreturn]] void unknown(const Frame& frame) {
    fault("runs '%s', a form that is not emulated: add it to asynchronous.cpp", frame.statement->text.c_str());
}

uint32_t address_of(const Frame& frame, const Argument& argument) { return (uint32_t)frame.get(argument.inner[0]); }
uint8_t* shared_at(const Frame& frame, const Argument& argument) {
    return shared_pointer(address_of(frame, argument), self->rank);
}

std::string line(const Frame& frame) { return "line " + std::to_string(frame.site.line()); }

// --- mbarriers: they count arrivals and bytes, and go to their next phase when both are complete

struct Mbarrier {
    int arrivals = 0, pending = 0;
    int64_t bytes = 0;
    uint32_t phase = 0;
    Clock clock[2];  // of odd and even phases
};
std::map<const uint8_t*, Mbarrier> mbarriers;

Mbarrier& mbarrier_at(const uint8_t* place) {
    const auto found = mbarriers.find(place);
    if (found == mbarriers.end()) fault("uses %s as an mbarrier, which has not been initialised", where(place).c_str());
    return found->second;
}

Clock& clock_of(Mbarrier& barrier) { return barrier.clock[barrier.phase & 1]; }

void settle(Mbarrier& barrier) {
    if (barrier.pending < 0)
        fault("arrives at an mbarrier more often than the %d times it waits for", barrier.arrivals);
    if (barrier.pending > 0 || barrier.bytes != 0) return;
    barrier.phase++, barrier.pending = barrier.arrivals;
    clock_of(barrier).forget();
}

void mbarrier_init(Frame& frame, const Arguments& to) {
    uint8_t* place = shared_at(frame, to[0]);
    touch_aligned(place, 8, Access::write);
    std::memset(place, 0, 8);
    const int count = (int)frame.get(to[1]);
    if (count < 1 || count >= 1 << 20) fault("initialises an mbarrier for %d arrivals", count);
    Mbarrier& made = mbarriers[place] = Mbarrier();
    made.arrivals = made.pending = count;
}

void mbarrier_inval(Frame& frame, const Arguments& to) { mbarriers.erase(shared_at(frame, to[0])); }

// mbarrier.arrive[.expect_tx].shared::cta|cluster.b64 _, [barrier]{, count or bytes}
void mbarrier_arrive(Frame& frame, const Arguments& to) {
    if (to[0].kind != Argument::sink) unknown(frame);
    uint8_t* place = shared_at(frame, to[1]);
    const unsigned block = address_of(frame, to[1]) >> 24;
    if (block && cluster->blocks[block - 1].live == 0) fault("arrives at an mbarrier of a block that has ended");
    touch_aligned(place, 8, Access::atomic);
    Mbarrier& barrier = mbarrier_at(place);
    const int64_t given = to.size() > 2 ? (int64_t)(uint32_t)frame.get(to[2]) : 1;
    release(fiber(), clock_of(barrier));
    if (frame.has("expect_tx")) barrier.bytes += given, barrier.pending -= 1;
    else barrier.pending -= (int)given;
    settle(barrier);
}

void mbarrier_expect_tx(Frame& frame, const Arguments& to) {
    Mbarrier& barrier = mbarrier_at(shared_at(frame, to[0]));
    barrier.bytes += (uint32_t)frame.get(to[1]);
}

// mbarrier.try_wait.parity done, [barrier], parity: waits until it is true. test_wait only looks.
void mbarrier_wait(Frame& frame, const Arguments& to) {
    if (!frame.has("parity")) unknown(frame);
    uint8_t* place = shared_at(frame, to[1]);
    touch_aligned(place, 8, Access::atomic);
    Mbarrier& barrier = mbarrier_at(place);
    const uint32_t parity = (uint32_t)frame.get(to[2]) & 1;
    if (frame.has("test_wait") && (barrier.phase & 1) == parity) yield();
    while (frame.has("try_wait") && (barrier.phase & 1) == parity) {
        wait_while(&barrier.phase, barrier.phase, "in " + line(frame) + " at the mbarrier in " + where(place));
    }
    const bool done = (barrier.phase & 1) != parity;
    if (done) acquire(fiber(), barrier.clock[parity]);
    frame.set(to[0], done);
}

void mapa(Frame& frame, const Arguments& to) {
    const uint32_t rank = (uint32_t)frame.get(to[2]);
    const size_t blocks = cluster->blocks.size();
    if (rank >= blocks) fault("maps an address to block %u of a cluster of %zu", rank, blocks);
    frame.set(to[0], (rank + 1) << 24 | ((uint32_t)frame.get(to[1]) & 0xffffff));
}

void cluster_barrier(Frame& frame, const Arguments&) {
    Fiber& me = fiber();
    Barrier& barrier = cluster->barrier;
    if (frame.has("arrive")) {
        me.cluster_generation = barrier.generation;
        arrive(barrier);
        if (barrier.arrived == (int)cluster->live) settle(barrier);
    } else await(barrier, me.cluster_generation, "in " + line(frame) + " at the barrier of its cluster");
}

// --- cp.async: the thread's own copies, in groups

struct SmallCopy {
    uint8_t* to;
    const uint8_t* from;
    uint32_t bytes, read;
};
struct SmallCopies {
    std::vector<SmallCopy> open;
    std::deque<std::vector<SmallCopy>> groups;
};
std::vector<SmallCopies> small_copies;  // by thread of the cluster

SmallCopies& own_copies() {
    if (small_copies.size() <= fiber().unit) small_copies.resize(fiber().unit + 1);
    return small_copies[fiber().unit];
}

void make(const SmallCopy& copy) {
    if (copy.read) touch_aligned(copy.from, copy.bytes, Access::read);
    touch_aligned(copy.to, copy.bytes, Access::write);
    std::memset(copy.to, 0, copy.bytes);
    std::memcpy(copy.to, copy.from, copy.read);
}

void cp_async(Frame& frame, const Arguments& to) {
    const uint32_t bytes = (uint32_t)frame.get(to[2]), read = to.size() > 3 ? (uint32_t)frame.get(to[3]) : bytes;
    if ((bytes != 4 && bytes != 8 && bytes != 16) || read > bytes || (frame.has("cg") && bytes != 16)) unknown(frame);
    const uint8_t* from = reinterpret_cast<const uint8_t*>(frame.get(to[1].inner[0]));
    own_copies().open.push_back({shared_at(frame, to[0]), from, bytes, read});
}
void cp_async_commit(Frame&, const Arguments&) {
    SmallCopies& mine = own_copies();
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}
void cp_async_wait(Frame& frame, const Arguments& to) {
    SmallCopies& mine = own_copies();
    const size_t pending = frame.has("wait_all") ? 0 : frame.get(to[0]);
    if (frame.has("wait_all")) cp_async_commit(frame, to);
    for (; mine.groups.size() > pending; mine.groups.pop_front())
        for (const SmallCopy& copy : mine.groups.front()) make(copy);
}

// --- the copy engine

// What the driver's CUtensorMap is to us; as large as it, at most.
struct TensorMap {
    uint64_t mark;
    const uint8_t* base;
    uint64_t strides[4];  // in bytes, of axes 1 and on
    uint32_t sizes[5];
    uint16_t box[5];
    uint8_t rank, element_bytes, swizzle;
};
constexpr uint64_t map_mark = 0x70616d726f736e74;
static_assert(sizeof(TensorMap) <= 128);

constexpr int element_sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // by CUtensorMapDataType

// cuTensorMapEncodeTiled, with the driver's conditions.
int encode_tiled(TensorMap* map, int type, uint32_t rank, void* base, const uint64_t* sizes, const uint64_t* strides,
                 const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int, int) {
    if (rank < 1 || rank > 5 || type < 0 || type >= (int)std::size(element_sizes) || interleave != 0) return 1;
    const uint32_t bytes = element_sizes[type];
    if (reinterpret_cast<uintptr_t>(base) % 16 || reinterpret_cast<uintptr_t>(map) % 64) return 1;
    const uint32_t widest[] = {UINT32_MAX, 32, 64, 128};
    if (box[0] * bytes % 16 || box[0] * bytes > widest[swizzle]) return 1;
    TensorMap made = {};
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0 || sizes[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 || steps[i] != 1) return 1;
        made.sizes[i] = (uint32_t)sizes[i], made.box[i] = (uint16_t)box[i];
        if (i == 0) continue;
        if (strides[i - 1] % 16 || strides[i - 1] == 0 || strides[i - 1] >= 1ull << 40) return 1;
        made.strides[i - 1] = strides[i - 1];
    }
    made.mark = map_mark, made.base = static_cast<const uint8_t*>(base);
    made.rank = rank, made.element_bytes = bytes, made.swizzle = swizzle;
    std::memset(static_cast<void*>(map), 0, 128);
    std::memcpy(static_cast<void*>(map), &made, sizeof made);
    return 0;
}

struct Line {  // of a box, in memory: bytes `first` to `last` of it are in the tensor
    const uint8_t* begin;
    int64_t first, last;
};
struct Asked {  // a box of a tensor
    TensorMap map;
    int32_t at[5];

    Asked() = default;
    Asked(const Frame& frame, const Argument& given) : map(), at() {
        std::memcpy(&map, reinterpret_cast<const void*>(frame.get(given.inner[0])), sizeof map);
        const auto& coordinates = given.inner[1].inner;
        if (map.mark != map_mark)
            fault("gives the copy engine in %s a map that was not encoded", line(frame).c_str());
        if (coordinates.size() != map.rank)
            fault("gives %zu coordinates in %s for a tensor of %d axes", coordinates.size(), line(frame).c_str(),
                  map.rank);
        for (int i = 0; i < map.rank; i++) at[i] = (int32_t)frame.get(coordinates[i]);
    }
    uint32_t rows() const {
        uint32_t count = 1;
        for (int i = 1; i < map.rank; i++) count *= map.box[i];
        return count;
    }
    Line part(uint32_t row) const {
        const uint8_t* begin = map.base + (int64_t)at[0] * map.element_bytes;
        bool inside = true;
        for (int i = 1; i < map.rank; i++) {
            const int64_t there = at[i] + (int64_t)(row % map.box[i]);
            row /= map.box[i];
            inside = inside && there >= 0 && there < map.sizes[i];
            begin += there * (int64_t)map.strides[i - 1];
        }
        const int64_t first = std::max<int64_t>(0, -(int64_t)at[0]),
                      last = std::min<int64_t>(map.box[0], (int64_t)map.sizes[0] - at[0]);
        return {begin, first * map.element_bytes, inside ? last * map.element_bytes : 0};
    }
};

struct Box : Asked {  // one copy that the engine has been asked for
    uint32_t destination, barrier;  // in shared memory, the same in every block it goes to
    uint16_t blocks;
    unsigned unit, step;
    Clock clock;  // of the thread that asked
    const Block* block;
    unsigned line;
};
std::deque<Box> boxes;

// Address bits 4 and on, exchanged with those from bit 7: by 2, 4 or 8 chunks of 16 bytes.
uint8_t* swizzled(uint8_t* base, uint32_t offset, int swizzle) {
    const uint32_t mask = swizzle == 0 ? 0 : (1u << swizzle) - 1;
    return base + (offset ^ ((offset >> 7 & mask) << 4));
}

void make(const Box& copy) {
    const TensorMap& map = copy.map;
    const Actor actor{copy.unit, copy.step, &copy.clock, copy.block};
    const uint32_t row_bytes = map.box[0] * map.element_bytes;
    const uint32_t rows = copy.rows();
    std::vector<uint8_t> line(row_bytes);
    for (uint32_t row = 0; row < rows; row++) {
        const Line inside = copy.part(row);
        std::fill(line.begin(), line.end(), 0);
        if (inside.first < inside.last) {
            touch_as(actor, inside.begin + inside.first, inside.last - inside.first, Access::read);
            std::memcpy(line.data() + inside.first, inside.begin + inside.first, inside.last - inside.first);
        }
        for (unsigned block = 0; block < cluster->blocks.size(); block++) {
            if (!(copy.blocks >> block & 1)) continue;
            uint8_t* base = shared_pointer((block + 1) << 24, 0);
            for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
                uint8_t* to = swizzled(base, copy.destination + row * row_bytes + chunk, map.swizzle);
                touch_as(actor, to, 16, Access::write);
                std::memcpy(to, line.data() + chunk, 16);
            }
        }
    }
    for (unsigned block = 0; block < cluster->blocks.size(); block++) {
        if (!(copy.blocks >> block & 1)) continue;
        if (cluster->blocks[block].live == 0) fault("copies to block %u of a cluster, which has ended", block);
        Mbarrier& barrier = mbarrier_at(shared_pointer((block + 1) << 24 | copy.barrier, 0));
        barrier.bytes -= (int64_t)rows * row_bytes;
        clock_of(barrier).learn(copy.clock);
        clock_of(barrier).learn(copy.unit, copy.step);
        settle(barrier);
    }
}

void cp_async_bulk_tensor_to_global(Frame& frame, const Arguments& to);

// cp.async.bulk.tensor.Nd.shared::cluster.global.tile.mbarrier::complete_tx::bytes[.multicast::cluster]
//     [destination], [map, {x, y, ...}], [barrier]{, blocks}
void cp_async_bulk_tensor(Frame& frame, const Arguments& to) {
    if (frame.has("bulk_group")) return cp_async_bulk_tensor_to_global(frame, to);
    if (frame.has("im2col") || !frame.has("mbarrier::complete_tx::bytes")) unknown(frame);
    Box copy = {};
    static_cast<Asked&>(copy) = Asked(frame, to[1]);
    copy.destination = address_of(frame, to[0]), copy.barrier = address_of(frame, to[2]);
    if (copy.destination >> 24 || copy.barrier >> 24) unknown(frame);
    if (copy.destination % 128)
        fault("copies a box in %s to %u, which is not a multiple of 128", line(frame).c_str(), copy.destination);
    mbarrier_at(shared_pointer(copy.barrier, self->rank));
    copy.blocks = frame.has("multicast::cluster") ? (uint16_t)frame.get(to[3]) : (uint16_t)(1u << self->rank);
    Fiber& me = fiber();
    copy.unit = me.unit, copy.step = me.step++, copy.clock = me.clock, copy.block = me.home;
    copy.line = frame.site.line();
    boxes.push_back(std::move(copy));
}

// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [destination], [source], bytes, [barrier]
void cp_async_bulk_to_shared(Frame& frame, const Arguments& to) {
    if (frame.has("multicast::cluster") || !frame.has("mbarrier::complete_tx::bytes")) unknown(frame);
    const uint64_t source = frame.get(to[1].inner[0]);
    const uint32_t bytes = (uint32_t)frame.get(to[2]);
    Box copy = {};
    copy.destination = address_of(frame, to[0]), copy.barrier = address_of(frame, to[3]);
    if (copy.destination >> 24 || copy.barrier >> 24) unknown(frame);
    if (copy.destination % 16 || source % 16 || bytes % 16 || bytes == 0 || bytes / 16 > UINT16_MAX)
        fault("copies %u bytes in %s: addresses and their number must be multiples of 16", bytes, line(frame).c_str());
    mbarrier_at(shared_pointer(copy.barrier, self->rank));
    // A box of one row, 16 bytes an element, not swizzled.
    copy.map.rank = 1, copy.map.element_bytes = 16, copy.map.base = reinterpret_cast<const uint8_t*>(source);
    copy.map.sizes[0] = bytes / 16, copy.map.box[0] = (uint16_t)(bytes / 16);
    copy.blocks = (uint16_t)(1u << self->rank);
    Fiber& me = fiber();
    copy.unit = me.unit, copy.step = me.step++, copy.clock = me.clock, copy.block = me.home;
    copy.line = frame.site.line();
    boxes.push_back(std::move(copy));
}

// --- bytes that the copy engine takes from shared memory to global memory, in groups of the thread that asked for them

struct Piece {
    uint8_t* to;
    const uint8_t* from;
    size_t bytes;
};
struct Sending {
    std::vector<Piece> pieces;
    unsigned unit, step;
    Clock clock;  // of the thread, when it asked
    const Block* block;
};
struct Sendings {
    std::vector<Sending> open;
    std::deque<std::vector<Sending>> groups;
};
std::map<unsigned, Sendings> sendings;  // by thread of the cluster

void make(const Sending& copy) {
    const Actor actor{copy.unit, copy.step, &copy.clock, copy.block};
    for (const Piece& piece : copy.pieces) {
        touch_as(actor, piece.from, piece.bytes, Access::read);
        touch_as(actor, piece.to, piece.bytes, Access::write);
        std::memcpy(piece.to, piece.from, piece.bytes);
    }
}

void send(std::vector<Piece> pieces) {
    Fiber& me = fiber();
    Sending copy = {std::move(pieces), me.unit, me.step++, me.clock, me.home};
    sendings[me.unit].open.push_back(std::move(copy));
}

// cp.async.bulk.global.shared::cta.bulk_group [destination], [source], bytes
void cp_async_bulk_to_global(Frame& frame, const Arguments& to) {
    if (!frame.has("shared::cta") || !frame.has("bulk_group")) unknown(frame);
    const uint64_t destination = frame.get(to[0].inner[0]);
    const uint32_t source = address_of(frame, to[1]), bytes = (uint32_t)frame.get(to[2]);
    if (destination % 16 || source % 16 || bytes % 16 || bytes == 0)
        fault("sends %u bytes in %s: both addresses and their number must be multiples of 16", bytes, line(frame).c_str());
    send({{reinterpret_cast<uint8_t*>(destination), shared_at(frame, to[1]), bytes}});
}

// cp.async.bulk.tensor.Nd.global.shared::cta[.tile].bulk_group [map, {x, y, ...}], [source]: what is outside of the
// tensor is left out.
void cp_async_bulk_tensor_to_global(Frame& frame, const Arguments& to) {
    if (frame.has("im2col") || !frame.has("shared::cta")) unknown(frame);
    const Asked asked(frame, to[0]);
    const TensorMap& map = asked.map;
    const uint32_t source = address_of(frame, to[1]), row_bytes = map.box[0] * map.element_bytes;
    if (source >> 24) unknown(frame);
    if (source % 128)
        fault("sends a box in %s from %u, which is not a multiple of 128", line(frame).c_str(), source);
    std::vector<Piece> pieces;
    for (uint32_t row = 0; row < asked.rows(); row++) {
        const Line inside = asked.part(row);
        for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
            const int64_t first = std::max<int64_t>(chunk, inside.first),
                          last = std::min<int64_t>(chunk + 16, inside.last);
            if (first >= last) continue;
            uint8_t* from = swizzled(shared_pointer(0, self->rank), source + row * row_bytes + chunk, map.swizzle);
            uint8_t* there = const_cast<uint8_t*>(inside.begin) + first;
            pieces.push_back({there, from + (first - chunk), (size_t)(last - first)});
        }
    }
    send(std::move(pieces));
}
void cp_async_bulk_commit(Frame&, const Arguments&) {
    Sendings& mine = sendings[fiber().unit];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}
void cp_async_bulk_wait(Frame& frame, const Arguments& to) {
    Sendings& mine = sendings[fiber().unit];
    for (; mine.groups.size() > frame.get(to[0]); mine.groups.pop_front())
        for (const Sending& copy : mine.groups.front()) make(copy);
}

// --- matrices of 8 x 8 halves

struct Matrices {
    const uint8_t* row;
    uint32_t result[4];
};

template <bool Transposed> void matrices_finish(uint32_t, void** given) {
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                const int along = lane % 4 * 2 + i, across = lane / 4;
                const int row = Transposed ? along : across, column = Transposed ? across : along;
                const uint8_t* from = static_cast<Matrices*>(given[matrix * 8 + row])->row;
                if (from) std::memcpy(&pair[i], from + column * 2, 2);
            }
            std::memcpy(&static_cast<Matrices*>(given[lane])->result[matrix], pair, 4);
        }
}

void ldmatrix(Frame& frame, const Arguments& to) {
    const int count = frame.has("x4") ? 4 : frame.has("x2") ? 2 : 1;
    Matrices mine = {};
    if ((int)self->linear % 32 < 8 * count) {
        mine.row = shared_at(frame, to[1]);
        touch_aligned(mine.row, 16, Access::read);
    }
    gather("ldmatrix", ~0u, &mine, frame.has("trans") ? matrices_finish<true> : matrices_finish<false>, frame.site);
    for (int i = 0; i < count; i++) frame.set(to[0].inner[i], mine.result[i]);
}

// --- mma: D[16, 8] = A[16, k] B[8, k]^T + C by a warp

using Element = float (*)(uint32_t word, int which);
float half_in(uint32_t word, int which) { return half_to_float((uint16_t)(word >> 16 * which)); }
float bfloat16_in(uint32_t word, int which) { return bfloat16_to_float((uint16_t)(word >> 16 * which)); }
float tf32_in(uint32_t word, int) { return float_of(word & ~0x1fffu); }

struct Mma {
    uint32_t a[4], b[2];
    float c[4];
    float d[4];
};

template <Element In, int PerWord> void mma_finish(uint32_t, void** given) {
    constexpr int eighth = 4 * PerWord;  // of k, in the registers of four lanes
    for (int lane = 0; lane < 32; lane++) {
        Mma& mine = *static_cast<Mma*>(given[lane]);
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4, column = lane % 4 * 2 + e % 2;
            double sum = mine.c[e];
            for (int k = 0; k < 2 * eighth; k++) {
                const int owner = k % eighth / PerWord, which = k % PerWord, upper = k / eighth;
                const uint32_t a = static_cast<Mma*>(given[row * 4 + owner])->a[e / 2 + upper * 2];
                const uint32_t b = static_cast<Mma*>(given[column * 4 + owner])->b[upper];
                sum += (double)In(a, which) * In(b, which);
            }
            mine.d[e] = (float)sum;
        }
    }
}

void mma(Frame& frame, const Arguments& to) {
    Finish finish = nullptr;
    if (frame.has("m16n8k16") && frame.has("f16") && !frame.has("bf16")) finish = mma_finish<half_in, 2>;
    if (frame.has("m16n8k16") && frame.has("bf16")) finish = mma_finish<bfloat16_in, 2>;
    if (frame.has("m16n8k8") && frame.has("tf32")) finish = mma_finish<tf32_in, 1>;
    const auto& parts = frame.statement->parts;
    if (!finish || parts.back() != "f32" || !frame.has("row") || !frame.has("col")) unknown(frame);
    Mma mine;
    for (int i = 0; i < 4; i++) mine.a[i] = (uint32_t)frame.get(to[1].inner[i]);
    for (int i = 0; i < 4; i++) mine.c[i] = float_of((uint32_t)frame.get(to[3].inner[i]));
    for (int i = 0; i < 2; i++) mine.b[i] = (uint32_t)frame.get(to[2].inner[i]);
    gather("mma.sync", ~0u, &mine, finish, frame.site);
    for (int i = 0; i < 4; i++) frame.set(to[0].inner[i], bits_of(mine.d[i]));
}

// --- wgmma: D[64, n] (+)= A[64, k] B[n, k]^T by a warpgroup; a warp has 16 rows of A and D

struct Wgmma {  // of one warp
    int n = 0;
    Element element = nullptr;
    bool accumulates = false, a_in_registers = false;
    float sign = 1.f;
    uint32_t a[32][4];
    uint64_t a_descriptor = 0, b_descriptor = 0;
    int first_row = 0;
    std::vector<float*> d[32];
    Clock clock;  // what the lanes knew when they asked
};
struct Multiplying {  // the tensor cores, as one warp uses them
    unsigned unit = 0;
    uint32_t step = 1;
    std::vector<std::unique_ptr<Wgmma>> open;
    std::deque<std::vector<std::unique_ptr<Wgmma>>> groups;
    bool fenced = false;
};
std::map<std::pair<unsigned, unsigned>, Multiplying> multiplying;  // by block and warp

Multiplying& of_warp() {
    Multiplying& mine = multiplying[{self->rank, self->linear / 32}];
    const unsigned warps = cluster->blocks[self->rank].warps.size();
    mine.unit = cluster->units + self->rank * warps + self->linear / 32;
    return mine;
}

// A tile in shared memory as a descriptor tells it: rows of 8 elements of 2 bytes that lie together.
struct Tile {
    uint32_t start, leading, stride;
    int swizzle;

    explicit Tile(uint64_t descriptor)
        : start((uint32_t)(descriptor & 0x3fff) << 4), leading((uint32_t)(descriptor >> 16 & 0x3fff) << 4),
          stride((uint32_t)(descriptor >> 32 & 0x3fff) << 4) {
        if (descriptor >> 49 & 7) fault("multiplies a tile with a base offset, which is not emulated");
        const int layouts[] = {0, 3, 2, 1};
        swizzle = layouts[descriptor >> 62];
    }
    // Eight neighbours along k of a row, k a multiple of 8.
    const uint8_t* eight(int row, int k) const {
        const uint32_t width = swizzle ? 16u << swizzle : 16;
        const uint32_t inside = swizzle ? (uint32_t)k * 2 : (uint32_t)(k / 8) * leading;
        return swizzled(shared_pointer(0, self->rank), start + row / 8 * stride + row % 8 * width + inside, swizzle);
    }
};

void read_eight(float (&values)[8], const Actor& actor, const Tile& tile, int row, int k, Element element) {
    const uint8_t* from = tile.eight(row, k);
    touch_as(actor, from, 16, Access::read);
    for (int i = 0; i < 4; i++) {
        uint32_t word;
        std::memcpy(&word, from + 4 * i, 4);
        values[2 * i] = element(word, 0), values[2 * i + 1] = element(word, 1);
    }
}

void multiply(const Wgmma& job, const Multiplying& cores) {
    const Actor actor{cores.unit, cores.step, &job.clock, fiber().home};
    float a[16][16];
    if (job.a_in_registers) {
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k++)
                a[row][k] = job.element(job.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
    } else {
        const Tile tile(job.a_descriptor);
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k += 8) {
                float values[8];
                read_eight(values, actor, tile, job.first_row + row, k, job.element);
                std::copy(values, values + 8, a[row] + k);
            }
    }
    const Tile tile(job.b_descriptor);
    for (int column = 0; column < job.n; column++) {
        float b[16];
        for (int k = 0; k < 16; k += 8) {
            float values[8];
            read_eight(values, actor, tile, column, k, job.element);
            std::copy(values, values + 8, b + k);
        }
        for (int row = 0; row < 16; row++) {
            float& d = *job.d[row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row / 8 * 2 + column % 2];
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += (double)a[row][k] * b[k];
            d = (float)((job.accumulates ? (double)d : 0.0) + job.sign * sum);
        }
    }
}

struct WgmmaLane {
    Fiber* thread;
    std::vector<float*> d;
    bool accumulates, a_in_registers;
    uint32_t a[4];
    uint64_t a_descriptor, b_descriptor;
    int n;
    Element element;
    float sign;
};

void wgmma_finish(uint32_t, void** given) {
    auto job = std::make_unique<Wgmma>();
    const WgmmaLane& first = *static_cast<WgmmaLane*>(given[0]);
    job->n = first.n, job->element = first.element, job->accumulates = first.accumulates, job->sign = first.sign;
    job->a_in_registers = first.a_in_registers;
    job->a_descriptor = first.a_descriptor, job->b_descriptor = first.b_descriptor;
    job->first_row = (int)(self->linear / 32 % 4) * 16;
    for (int lane = 0; lane < 32; lane++) {
        WgmmaLane& mine = *static_cast<WgmmaLane*>(given[lane]);
        if (mine.accumulates != first.accumulates || mine.b_descriptor != first.b_descriptor || mine.n != first.n ||
            (!first.a_in_registers && mine.a_descriptor != first.a_descriptor))
            fault("multiplies with wgmma what lane %d does not", lane);
        std::copy(mine.a, mine.a + 4, job->a[lane]);
        release(*mine.thread, job->clock);
        job->d[lane] = std::move(mine.d);
    }
    of_warp().open.push_back(std::move(job));
}

// wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16
//     {d...}, a or {a...}, b, keep, scale-a, scale-b, [transpose-a,] transpose-b
void wgmma_mma_async(Frame& frame, const Arguments& to) {
    const auto& parts = frame.statement->parts;
    WgmmaLane mine = {};
    mine.thread = &fiber();
    mine.n = std::stoi(parts[4].substr(4));
    mine.element = parts.back() == "f16" ? half_in : parts.back() == "bf16" ? bfloat16_in : nullptr;
    const bool known = mine.element && parts[4].find("k16") != std::string::npos && parts[5] == "f32";
    mine.a_in_registers = to[1].kind == Argument::vector;
    const size_t transposes = mine.a_in_registers ? 1 : 2;
    if (!known || to.size() != 6 + transposes || (int)to[0].inner.size() != mine.n / 2) unknown(frame);
    for (size_t i = 6; i < to.size(); i++)
        if (frame.get(to[i])) unknown(frame);
    if ((int64_t)frame.get(to[5]) != 1) unknown(frame);
    mine.sign = (int64_t)frame.get(to[4]) == 1 ? 1.f : -1.f;
    if (!of_warp().fenced) fault("multiplies with wgmma in %s before any wgmma.fence", line(frame).c_str());
    for (const Argument& place : to[0].inner) mine.d.push_back(static_cast<float*>(frame.operands[place.number].place));
    if (mine.a_in_registers)
        for (int i = 0; i < 4; i++) mine.a[i] = (uint32_t)frame.get(to[1].inner[i]);
    else mine.a_descriptor = frame.get(to[1]);
    mine.b_descriptor = frame.get(to[2]), mine.accumulates = frame.get(to[3]) != 0;
    gather("wgmma.mma_async", ~0u, &mine, wgmma_finish, frame.site);
}

void fence_finish(uint32_t, void**) { of_warp().fenced = true; }
void commit_finish(uint32_t, void**) {
    Multiplying& mine = of_warp();
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
    mine.fenced = false;
}
struct WgmmaWait {
    Fiber* thread;
    size_t pending;
};
void wait_finish(uint32_t, void** given) {
    Multiplying& mine = of_warp();
    const size_t pending = static_cast<WgmmaWait*>(given[0])->pending;
    for (; mine.groups.size() > pending; mine.groups.pop_front())
        for (const auto& job : mine.groups.front()) multiply(*job, mine);
    mine.fenced = false;  // whoever waits may touch registers then
    for (int lane = 0; lane < 32; lane++)
        static_cast<WgmmaWait*>(given[lane])->thread->clock.learn(mine.unit, mine.step);
    mine.step++;
}
void wgmma_fence(Frame& frame, const Arguments&) { gather("wgmma.fence", ~0u, nullptr, fence_finish, frame.site); }
void wgmma_commit(Frame& frame, const Arguments&) {
    gather("wgmma.commit_group", ~0u, nullptr, commit_finish, frame.site);
}
void wgmma_wait(Frame& frame, const Arguments& to) {
    WgmmaWait mine{&fiber(), frame.get(to[0])};
    gather("wgmma.wait_group", ~0u, &mine, wait_finish, frame.site);
}

// By the first words of the opcode, the longest that fits.
const std::map<std::string, Handler> instructions = {
    {"mbarrier.init", mbarrier_init},
    {"mbarrier.inval", mbarrier_inval},
    {"mbarrier.arrive", mbarrier_arrive},
    {"mbarrier.expect_tx", mbarrier_expect_tx},
    {"mbarrier.try_wait", mbarrier_wait},
    {"mbarrier.test_wait", mbarrier_wait},
    {"mapa", mapa},
    {"barrier.cluster", cluster_barrier},
    {"cp.async.ca", cp_async},
    {"cp.async.cg", cp_async},
    {"cp.async.commit_group", cp_async_commit},
    {"cp.async.wait_group", cp_async_wait},
    {"cp.async.wait_all", cp_async_wait},
    {"cp.async.bulk.tensor", cp_async_bulk_tensor},
    {"cp.async.bulk.shared::cluster", cp_async_bulk_to_shared},
    {"cp.async.bulk.global", cp_async_bulk_to_global},
    {"cp.async.bulk.commit_group", cp_async_bulk_commit},
    {"cp.async.bulk.wait_group", cp_async_bulk_wait},
    {"ldmatrix", ldmatrix},
    {"mma", mma},
    {"fence.proxy.async", [](Frame&, const Arguments&) {}},
    {"wgmma.mma_async", wgmma_mma_async},
    {"wgmma.fence", wgmma_fence},
    {"wgmma.commit_group", wgmma_commit},
    {"wgmma.wait_group", wgmma_wait},
};

}  // namespace

Handler asynchronous_handler_of(const std::vector<std::string>& parts) {
    Handler longest = nullptr;
    std::string name;
    for (const std::string& part : parts) {
        name += name.empty() ? part : "." + part;
        const auto found = instructions.find(name);
        if (found != instructions.end()) longest = found->second;
    }
    return longest;
}

void* driver_entry_point(const char* name) {
    return std::strcmp(name, "cuTensorMapEncodeTiled") == 0 ? reinterpret_cast<void*>(encode_tiled) : nullptr;
}

void engine_begin_cluster() {
    mbarriers.clear(), small_copies.clear(), boxes.clear(), sendings.clear(), multiplying.clear();
}

bool engine_step() {
    if (boxes.empty()) return false;
    const Box copy = std::move(boxes.front());
    boxes.pop_front();
    make(copy);
    return true;
}

std::string mbarrier_state(const uint32_t* phase) {
    for (const auto& [place, barrier] : mbarriers)
        if (&barrier.phase == phase)
            return ", which lacks " + std::to_string(barrier.pending) + " arrivals and " +
                   std::to_string(barrier.bytes) + " bytes";
    return "";
}

std::string engine_backlog() {
    if (boxes.empty()) return "";
    return std::to_string(boxes.size()) + " boxes, the first asked for in line " + std::to_string(boxes.front().line);
}

}  // namespace emulator
