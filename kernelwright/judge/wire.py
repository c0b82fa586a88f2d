"""The bytes that cross between the judge and a worker: a fixed command goes in, one status byte comes out.

Beside the two pipes both sides map a *board*, host memory of a fixed layout:

    brief    judge -> worker  JSON that belongs to the command: where the candidate lies, shapes, constructor arguments
    message  worker -> judge  text for people, never parsed
    facts    worker -> judge  one integer of hints, for labels only
    pace     both ways        for calls one by one: how many inputs are there; how many answers
    forked   worker -> judge  a byte: a copy of the worker has come back from a call, beside the worker itself
    claims   worker -> judge  where the outputs of the last calls lie, and the buffers that calls change; the judge
                              reads the memory itself

Nothing the worker writes is believed: a false claim can only make the judge read wrong bytes, which then are a wrong
output. Nothing is ever unpickled. This module is loaded in both processes and imports only the standard library.
"""

import struct
from enum import IntEnum, IntFlag

__all__ = [
    "BOARD_BYTES",
    "BRIEF_BYTES",
    "BUFFERS_AT",
    "CLAIM",
    "CLAIMS_AT",
    "COMMAND",
    "FACTS_AT",
    "FORKED_AT",
    "HANDLE_BYTES",
    "MAX_BUFFERS",
    "MAX_CLAIMS",
    "MAX_DIMS",
    "MAX_SEGMENTS",
    "MESSAGE_AT",
    "MESSAGE_BYTES",
    "NUMBER",
    "PACE_AT",
    "SEGMENT",
    "SEGMENTS_AT",
    "Fact",
    "Op",
    "Status",
]


class Op(IntEnum):
    """What the judge asks for."""

    LOAD = 1  # import the file and construct the model with the seed
    TAKE_STATE = 2  # copy weights and buffers from the pool into the model
    GIVE_STATE = 3  # copy weights and buffers of the model into the pool
    MAP = 4  # make fresh argument tensors for the slots that the brief lays out
    CALL = 5  # call the model once for each of some mapped slots, hold the outputs, say where they lie
    TRACE = 6  # call the model on the first mapped slot and note where its output came from
    EXPORT = 7  # on CUDA: say which allocations the held outputs lie in, and their IPC handles
    LEAVE = 8  # end the process
    HAND_OVER = 9  # all that CALL does except the calls: what that costs is no model's time
    CALL_ONE_BY_ONE = 10  # as CALL, each slot only when the board's first pace word says that its input is there
    HAND_OVER_ONE_BY_ONE = 11


class Status(IntEnum):
    """What a worker answers: one byte."""

    DONE = 1
    NO_CLASS = 2  # the file does not define the class
    LOAD_ERROR = 3  # importing or constructing raised
    COMPILE_ERROR = 4  # so did a compiler
    RUNTIME_ERROR = 5  # calling raised
    OUT_OF_MEMORY = 6
    OUT_OF_GPU_MEMORY = 7
    GPU_FAULT = 8  # a sticky CUDA error: this process can do no more
    WRONG_TYPE = 9  # the output has another structure, shape, dtype or device than the reference's
    STATE_BY_NAME = 10  # LOAD succeeded; how weights can be handed over
    STATE_BY_ORDER = 11
    STATE_BY_SEED = 12


class Fact(IntFlag):
    """Hints for labels."""

    FLAGS_CHANGED = 1
    STARTED_THREADS = 2
    STRIDED_OUTPUT = 4
    TRACED = 8  # the next two are known
    OWN_KERNEL = 16
    VENDOR_LIBRARY = 32


COMMAND = struct.Struct("<IIIxxxxQQ")  # op, first slot, number of calls, seed, bytes of brief
MAX_DIMS = 8
HANDLE_BYTES = 64  # CUipcMemHandle
# address; bytes from the first to the last element, 0 if dense; strides in elements
CLAIM = struct.Struct(f"<QQ{MAX_DIMS}q")
# on CUDA, an allocation that outputs lie in: address, bytes, IPC handle
SEGMENT = struct.Struct(f"<QQ{HANDLE_BYTES}s")
NUMBER = struct.Struct("<d")  # a Python number among the outputs stands at the start of its claim

BRIEF_BYTES = 8 << 20
MESSAGE_AT = BRIEF_BYTES
MESSAGE_BYTES = 16 << 10
FACTS_AT = MESSAGE_AT + MESSAGE_BYTES
PACE_AT = FACTS_AT + 2048
FORKED_AT = PACE_AT + 64
CLAIMS_AT = FACTS_AT + 4096
MAX_CLAIMS = 16384
SEGMENTS_AT = CLAIMS_AT + MAX_CLAIMS * CLAIM.size
MAX_SEGMENTS = 2048
BUFFERS_AT = SEGMENTS_AT + (MAX_SEGMENTS + 1) * SEGMENT.size
MAX_BUFFERS = 4096
BOARD_BYTES = BUFFERS_AT + MAX_BUFFERS * CLAIM.size
