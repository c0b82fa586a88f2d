// A parsed asm statement, and what an instruction gets when it runs.
#pragma once

#include "machine.hpp"

namespace emulator {

struct Argument {
    enum Kind { operand, local, constant, special, address, vector, sink } kind = sink;
    int number = 0;
    int64_t offset = 0;
    uint64_t constant_ = 0;
    std::string name;
    std::vector<Argument> inner;
};

struct Frame;
using Handler = void (*)(Frame&, const std::vector<Argument>&);

struct Statement {
    std::string text;
    std::vector<std::string> parts;  // of the opcode
    std::vector<Argument> arguments;
    int guard = -1, target = -1;
    bool negated = false;
    Handler handler = nullptr;
};

struct Code {
    std::vector<Statement> statements;
    int registers = 0;
};

struct Frame {
    const Operand* operands;
    Site site;
    uint64_t locals[16];
    const Statement* statement;

    uint64_t get(const Argument&) const;
    void set(const Argument&, uint64_t bits);
    bool has(const char* part) const;
    uint64_t special(const std::string& name) const;
};

Handler handler_of(const std::vector<std::string>& parts);
Handler asynchronous_handler_of(const std::vector<std::string>& parts);  // of asynchronous.cpp; null if it is not there

}  // namespace emulator
