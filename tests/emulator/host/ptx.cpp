// Inline PTX: the text of an asm statement is parsed once and interpreted, one row of a table for each instruction.
//
// Operands, registers and predicates are 64 bits that hold the value in their low end.
#include "machine.hpp"
#include "ptx.hpp"
#include "sixteen_bits.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>

namespace emulator {

// --- parsing

namespace {

std::string stripped(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (char c : text) {
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (c == at && depth == 0) parts.push_back(stripped(part)), part.clear();
        else part += c;
    }
    if (!stripped(part).empty() || !parts.empty()) parts.push_back(stripped(part));
    return parts;
}

struct Parser {
    Code& code;
    std::map<std::string, int> registers, labels;
    std::vector<std::pair<size_t, std::string>> jumps;  // statement -> label

    int local(const std::string& name) {
        return registers.emplace(name, (int)registers.size()).first->second;
    }
    Argument argument(const std::string& text) {
        Argument made;
        if (text == "_") made.kind = Argument::sink;
        else if (text.substr(0, 2) == "%%") made.kind = Argument::special, made.name = text.substr(2);
        else if (text[0] == '%') made.kind = Argument::operand, made.number = std::stoi(text.substr(1));
        else if (text[0] == '{' || text[0] == '[') {
            made.kind = text[0] == '{' ? Argument::vector : Argument::address;
            const std::string inner = text.substr(1, text.size() - 2);
            for (const std::string& part : split(inner, ',')) made.inner.push_back(sum(part));
        } else if (text.substr(0, 2) == "0f" || text.substr(0, 2) == "0F")
            made.kind = Argument::constant, made.constant_ = std::stoul(text.substr(2), nullptr, 16);
        else if (isdigit(text[0]) || text[0] == '-')
            made.kind = Argument::constant, made.constant_ = (uint64_t)std::stoll(text, nullptr, 0);
        else made.kind = Argument::local, made.number = local(text);
        return made;
    }
    Argument sum(const std::string& text) {  // base + constant
        const size_t plus = text.find('+', 1);
        if (text[0] == '{' || plus == std::string::npos) return argument(text);
        Argument made = argument(stripped(text.substr(0, plus)));
        made.offset = std::stoll(stripped(text.substr(plus + 1)), nullptr, 0);
        return made;
    }
    void statement(std::string text) {
        for (size_t colon; (colon = text.find(':')) != std::string::npos && is_label(text.substr(0, colon));)
            labels[stripped(text.substr(0, colon))] = code.statements.size(), text = stripped(text.substr(colon + 1));
        if (text.empty()) return;
        Statement made;
        if (text[0] == '@') {
            made.negated = text[1] == '!';
            const size_t end = text.find_first_of(" \t\n");
            made.guard = local(text.substr(made.negated ? 2 : 1, end - (made.negated ? 2 : 1)));
            text = stripped(text.substr(end));
        }
        const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
        made.text = text;
        made.parts = split(text.substr(0, end), '.');
        const std::string rest = stripped(text.substr(end));
        if (made.parts[0] == "") {  // .reg .b32 name, name;
            const size_t names = rest.find_first_of(" \t\n");
            for (const std::string& name : split(rest.substr(names), ',')) local(name);
            return;
        }
        if (made.parts[0] == "bra") jumps.emplace_back(code.statements.size(), rest);
        else
            for (const std::string& part : split(rest, ',')) {
                // setp and shfl write two registers as a|b
                made.arguments.push_back(argument(part));
            }
        made.handler = handler_of(made.parts);
        code.statements.push_back(std::move(made));
    }
    static bool is_label(const std::string& text) {
        const std::string name = stripped(text);
        const auto may_be_in_one = [](char c) { return isalnum(c) || c == '_' || c == '$'; };
        return !name.empty() && std::all_of(name.begin(), name.end(), may_be_in_one);
    }
};

std::string without_comments(const std::string& text) {
    std::string kept;
    for (size_t i = 0; i < text.size(); i++) {
        if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size());
        if (i < text.size()) kept += text[i];
    }
    return kept;
}

}  // namespace

const Code* parsed(const char* given) {
    Code* code = new Code;
    std::string text = without_comments(given);
    for (size_t at; (at = text.find("%=")) != std::string::npos;) text.replace(at, 2, "0");
    text = stripped(text);
    if (!text.empty() && text.front() == '{') text = stripped(text.substr(1, text.rfind('}') - 1));
    Parser parser{*code, {}, {}, {}};
    for (const std::string& one : split(text, ';')) parser.statement(one);
    for (const auto& [number, label] : parser.jumps) code->statements[number].target = parser.labels.at(label);
    code->registers = parser.registers.size();
    return code;
}

// --- running

uint64_t Frame::get(const Argument& argument) const {
    switch (argument.kind) {
        case Argument::operand: {
            const Operand& operand = operands[argument.number];
            if (!operand.place) return operand.bits + argument.offset;
            uint64_t bits = 0;
            std::memcpy(&bits, operand.place, operand.bytes);
            return bits + argument.offset;
        }
        case Argument::local: return locals[argument.number] + argument.offset;
        case Argument::constant: return argument.constant_;
        case Argument::special: return special(argument.name);
        default: fault("runs '%s', which uses an operand in a way that is not emulated", statement->text.c_str());
    }
}

void Frame::set(const Argument& argument, uint64_t bits) {
    if (argument.kind == Argument::local) locals[argument.number] = bits;
    else if (argument.kind == Argument::operand && operands[argument.number].place)
        std::memcpy(operands[argument.number].place, &bits, operands[argument.number].bytes);
    else if (argument.kind != Argument::sink) fault("runs '%s', which writes to an input", statement->text.c_str());
}

bool Frame::has(const char* part) const {
    return std::find(statement->parts.begin(), statement->parts.end(), part) != statement->parts.end();
}

uint64_t Frame::special(const std::string& name) const {
    const Thread& me = *self;
    static const std::map<std::string, uint64_t (*)(const Thread&)> known = {
        {"tid.x", [](const Thread& t) -> uint64_t { return t.thread.x; }},
        {"tid.y", [](const Thread& t) -> uint64_t { return t.thread.y; }},
        {"ntid.x", [](const Thread& t) -> uint64_t { return t.block_shape.x; }},
        {"ctaid.x", [](const Thread& t) -> uint64_t { return t.block.x; }},
        {"nctaid.x", [](const Thread& t) -> uint64_t { return t.grid_shape.x; }},
        {"laneid", [](const Thread& t) -> uint64_t { return t.linear % 32; }},
        {"warpid", [](const Thread& t) -> uint64_t { return t.linear / 32; }},
        {"cluster_ctarank", [](const Thread& t) -> uint64_t { return t.rank; }},
        {"cluster_nctarank", [](const Thread&) -> uint64_t { return cluster->blocks.size(); }},
        {"lanemask_lt", [](const Thread& t) -> uint64_t { return (1u << t.linear % 32) - 1; }},
        {"lanemask_le", [](const Thread& t) -> uint64_t { return (2u << t.linear % 32) - 1; }},
        {"globaltimer", [](const Thread&) -> uint64_t { return 0; }},
        {"clock", [](const Thread&) -> uint64_t { return 0; }},
        {"clock_hi", [](const Thread&) -> uint64_t { return 0; }},
    };
    const auto found = known.find(name);
    if (found == known.end())
        fault("reads %%%s, which is not emulated: add it to Frame::special in ptx.cpp", name.c_str());
    return found->second(me);
}

void execute(const Code* code, const Operand* operands, int, Site site) {
    if (!self) return;  // only `asm volatile("" ...)` would make sense on the host
    Frame frame{operands, site, {}, nullptr};
    if (code->registers > (int)std::size(frame.locals)) fault("declares %d registers in one asm", code->registers);
    for (size_t next = 0; next < code->statements.size();) {
        const Statement& statement = code->statements[next++];
        frame.statement = &statement;
        if (statement.guard >= 0 && (frame.locals[statement.guard] != 0) == statement.negated) continue;
        if (statement.target >= 0) next = statement.target;
        else statement.handler(frame, statement.arguments);
    }
}

// --- scalar instructions

namespace {

using Arguments = std::vector<Argument>;

float f32(uint64_t bits) { return float_of((uint32_t)bits); }
double f64(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
}
uint64_t bits64(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, 8);
    return bits;
}

const std::string& type_of(const Frame& frame) { return frame.statement->parts.back(); }

[[noreturn]] void unknown(const Frame& frame) {
    fault("runs '%s', a form that is not emulated: add it to ptx.cpp", frame.statement->text.c_str());
}

// Of zeros, -0 is the lesser. Of a number and NaN: NaN if `nan`, else the number.
float least(float a, float b, bool nan) {
    if (std::isnan(a) || std::isnan(b)) return nan ? NAN : std::isnan(a) ? b : a;
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
}
float most(float a, float b, bool nan) {
    if (std::isnan(a) || std::isnan(b)) return nan ? NAN : std::isnan(a) ? b : a;
    return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}
template <bool Least> float one_of(float a, float b, bool nan) { return Least ? least(a, b, nan) : most(a, b, nan); }

template <bool Least> void min_max(Frame& frame, const Arguments& to) {
    const uint64_t a = frame.get(to[1]), b = frame.get(to[2]);
    const std::string& type = type_of(frame);
    const bool nan = frame.has("NaN");
    uint64_t result;
    if (type == "f32") {
        float value = one_of<Least>(f32(a), f32(b), nan);
        if (to.size() == 4) value = one_of<Least>(value, f32(frame.get(to[3])), nan);
        result = bits_of(value);
    } else if (type == "u32") result = Least ? std::min((uint32_t)a, (uint32_t)b) : std::max((uint32_t)a, (uint32_t)b);
    else if (type == "s32")
        result = (uint32_t)(Least ? std::min((int32_t)a, (int32_t)b) : std::max((int32_t)a, (int32_t)b));
    else unknown(frame);
    frame.set(to[0], result);
}

// cvt[.rn].to.from: between float32 and the 16-bit floats; two values to one register with x2.
void cvt(Frame& frame, const Arguments& to) {
    const auto& parts = frame.statement->parts;
    const std::string from = parts[parts.size() - 1], into = parts[parts.size() - 2];
    const uint64_t x = frame.get(to[1]);
    if (from == "f32" && into == "f16") frame.set(to[0], float_to_half(f32(x)));
    else if (from == "f32" && into == "bf16") frame.set(to[0], float_to_bfloat16(f32(x)));
    else if (from == "f32" && into == "f16x2")
        frame.set(to[0], (uint32_t)float_to_half(f32(x)) << 16 | float_to_half(f32(frame.get(to[2]))));
    else if (from == "f32" && into == "bf16x2")
        frame.set(to[0], (uint32_t)float_to_bfloat16(f32(x)) << 16 | float_to_bfloat16(f32(frame.get(to[2]))));
    else if (from == "f16" && into == "f32") frame.set(to[0], bits_of(half_to_float(x)));
    else if (from == "bf16" && into == "f32") frame.set(to[0], bits_of(bfloat16_to_float(x)));
    else if (from == "f32" && into == "tf32") {
        const uint32_t bits = (uint32_t)x;  // rna: to nearest, ties away from zero
        frame.set(to[0], (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu);
    } else if (from == "u64" && into == "u32") frame.set(to[0], (uint32_t)x);
    else if (from == "u32" && into == "u64") frame.set(to[0], (uint32_t)x);
    else unknown(frame);
}

int bytes_of(const Frame& frame) {
    const std::string& type = type_of(frame);
    return std::stoi(type.substr(type.find_first_of("0123456789"))) / 8;
}

uint8_t* place(const Frame& frame, const Argument& address) {
    const uint64_t bits = frame.get(address.inner[0]);
    const auto& parts = frame.statement->parts;
    const auto names_shared = [](const std::string& part) { return part.compare(0, 6, "shared") == 0; };
    const bool shared = std::any_of(parts.begin(), parts.end(), names_shared);
    return shared ? shared_pointer((uint32_t)bits, self->rank) : reinterpret_cast<uint8_t*>(bits);
}

int lanes_of(const Frame& frame) { return frame.has("v4") ? 4 : frame.has("v2") ? 2 : 1; }

bool meets_others(const Frame& frame) {
    return frame.has("acquire") || frame.has("release") || frame.has("relaxed") || frame.has("volatile");
}

void ld(Frame& frame, const Arguments& to) {
    const int bytes = bytes_of(frame), lanes = lanes_of(frame);
    uint8_t* from = place(frame, to[1]);
    if (meets_others(frame)) yield(), global_order_is_known();
    touch_aligned(from, bytes * lanes, meets_others(frame) ? Access::atomic : Access::read);
    if (const auto found = published.find(from); frame.has("acquire") && found != published.end())
        acquire(fiber(), found->second);
    for (int i = 0; i < lanes; i++) {
        uint64_t bits = 0;
        std::memcpy(&bits, from + i * bytes, bytes);
        frame.set(lanes == 1 ? to[0] : to[0].inner[i], bits);
    }
}

void st(Frame& frame, const Arguments& to) {
    const int bytes = bytes_of(frame), lanes = lanes_of(frame);
    uint8_t* into = place(frame, to[0]);
    touch_aligned(into, bytes * lanes, meets_others(frame) ? Access::atomic : Access::write);
    if (frame.has("release")) published.erase(into), release(fiber(), published[into]);
    for (int i = 0; i < lanes; i++) {
        const uint64_t bits = frame.get(lanes == 1 ? to[1] : to[1].inner[i]);
        std::memcpy(into + i * bytes, &bits, bytes);
    }
}

// red[.release].gpu.global.add.u32 [word], value
void red(Frame& frame, const Arguments& to) {
    if (!frame.has("add") || !frame.has("u32")) unknown(frame);
    uint8_t* word = place(frame, to[0]);
    yield();
    touch_aligned(word, 4, Access::atomic);
    if (frame.has("release")) release(fiber(), published[word]);
    uint32_t value;
    std::memcpy(&value, word, 4);
    value += (uint32_t)frame.get(to[1]);
    std::memcpy(word, &value, 4);
}

// atom[.relaxed].gpu.global.add.u32 before, [word], value
void atom(Frame& frame, const Arguments& to) {
    if (!frame.has("add") || !frame.has("u32") || frame.has("acquire")) unknown(frame);
    uint8_t* word = place(frame, to[1]);
    yield();
    touch_aligned(word, 4, Access::atomic);
    uint32_t value;
    std::memcpy(&value, word, 4);
    frame.set(to[0], value);
    value += (uint32_t)frame.get(to[2]);
    std::memcpy(word, &value, 4);
}

void mov(Frame& frame, const Arguments& to) { frame.set(to[0], frame.get(to[1])); }

template <class Result> void integer(Frame& frame, const Arguments& to, Result result) {
    const uint64_t a = frame.get(to[1]), b = frame.get(to[2]), mask = bytes_of(frame) == 8 ? ~0ull : 0xffffffffull;
    frame.set(to[0], result(a & mask, b & mask) & mask);
}
// Two sums of 16-bit floats, each rounded once: in float32 first, whose bits are more than twice as many, is the same.
template <float (*widen)(uint16_t), uint16_t (*narrow)(float)> void add_pairs(Frame& frame, const Arguments& to) {
    const uint32_t a = (uint32_t)frame.get(to[1]), b = (uint32_t)frame.get(to[2]);
    frame.set(to[0], (uint32_t)narrow(widen(a >> 16) + widen(b >> 16)) << 16 | narrow(widen(a) + widen(b)));
}
void add(Frame& frame, const Arguments& to) {
    if (type_of(frame) == "f16x2") add_pairs<half_to_float, float_to_half>(frame, to);
    else if (type_of(frame) == "bf16x2") add_pairs<bfloat16_to_float, float_to_bfloat16>(frame, to);
    else if (type_of(frame) == "f32") frame.set(to[0], bits_of(f32(frame.get(to[1])) + f32(frame.get(to[2]))));
    else if (type_of(frame) == "f64") frame.set(to[0], bits64(f64(frame.get(to[1])) + f64(frame.get(to[2]))));
    else integer(frame, to, [](uint64_t a, uint64_t b) { return a + b; });
}
void mul(Frame& frame, const Arguments& to) {
    if (type_of(frame) == "f32") frame.set(to[0], bits_of(f32(frame.get(to[1])) * f32(frame.get(to[2]))));
    else if (frame.has("lo")) integer(frame, to, [](uint64_t a, uint64_t b) { return a * b; });
    else unknown(frame);
}
void fma(Frame& frame, const Arguments& to) {
    if (type_of(frame) != "f32") unknown(frame);
    frame.set(to[0], bits_of(std::fmaf(f32(frame.get(to[1])), f32(frame.get(to[2])), f32(frame.get(to[3])))));
}
void and_(Frame& frame, const Arguments& to) { frame.set(to[0], frame.get(to[1]) & frame.get(to[2])); }
void or_(Frame& frame, const Arguments& to) { frame.set(to[0], frame.get(to[1]) | frame.get(to[2])); }

// The approximations as the exact functions: the last bits are the GPU's own.
template <float (*Function)(float)> void of_float(Frame& frame, const Arguments& to) {
    if (type_of(frame) != "f32") unknown(frame);
    frame.set(to[0], bits_of(Function(f32(frame.get(to[1])))));
}
float reciprocal(float x) { return 1.f / x; }
float reciprocal_root(float x) { return 1.f / std::sqrt(x); }

void setp(Frame& frame, const Arguments& to) {
    const std::string& compare = frame.statement->parts[1];
    const uint32_t a = frame.get(to[1]), b = frame.get(to[2]);
    if (compare == "ne") frame.set(to[0], a != b);
    else if (compare == "eq") frame.set(to[0], a == b);
    else if (compare == "lt" && type_of(frame) == "u32") frame.set(to[0], a < b);
    else if (compare == "lt" && type_of(frame) == "s32") frame.set(to[0], (int32_t)a < (int32_t)b);
    else unknown(frame);
}
void selp(Frame& frame, const Arguments& to) { frame.set(to[0], frame.get(frame.get(to[3]) ? to[1] : to[2])); }

void nothing(Frame&, const Arguments&) {}
void trap(Frame&, const Arguments&) { fault("runs into a trap"); }

void bar(Frame& frame, const Arguments& to) {
    const bool waits = !frame.has("arrive");
    const int id = (int)frame.get(to[0]), threads = to.size() > 1 ? (int)frame.get(to[1]) : 0;
    if (frame.has("warp")) sync_warp((uint32_t)frame.get(to[0]), frame.site);
    else if (id == 0 && threads == 0) sync_threads(frame.site);
    else named_barrier(id, threads, waits, frame.site);
}

// Any lane may be elected; the first one is.
void elect(Frame& frame, const Arguments& to) {
    const uint32_t mask = (uint32_t)frame.get(to.back());
    gather("elect.sync", mask, nullptr, nullptr, frame.site);
    frame.set(to[0], (int)(self->linear % 32) == __builtin_ctz(mask));
}

const std::map<std::string, Handler> instructions = {
    {"min", min_max<true>},
    {"max", min_max<false>},
    {"cvt", cvt},
    {"ld", ld},
    {"st", st},
    {"red", red},
    {"atom", atom},
    {"mov", mov},
    {"add", add},
    {"mul", mul},
    {"fma", fma},
    {"and", and_},
    {"or", or_},
    {"rcp", of_float<reciprocal>},
    {"rsqrt", of_float<reciprocal_root>},
    {"sqrt", of_float<std::sqrt>},
    {"ex2", of_float<std::exp2>},
    {"lg2", of_float<std::log2>},
    {"tanh", of_float<std::tanh>},
    {"setp", setp},
    {"selp", selp},
    {"bra", nothing},
    {"bar", bar},
    {"barrier", bar},
    {"elect", elect},
    {"trap", trap},
    {"fence", nothing},
    {"membar", nothing},
    {"prefetch", nothing},
    {"setmaxnreg", nothing},
    {"nanosleep", nothing},
    {"griddepcontrol", nothing},
};

void not_emulated(Frame& frame, const Arguments&) { unknown(frame); }

}  // namespace

Handler handler_of(const std::vector<std::string>& parts) {
    if (const Handler found = asynchronous_handler_of(parts)) return found;
    const auto found = instructions.find(parts[0]);
    return found == instructions.end() ? not_emulated : found->second;
}

}  // namespace emulator
