"""Kernels with one line broken are caught, each by what its mistake does: the emulator sees what it claims to see."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from tests.emulator.build import EmulatedFault, g_plus_plus, library_of, multiprocessors
from tests.emulator.run import Emulation, Pick, compared, emulated_problem, program_of, ran
from tests.emulator.test_beside_products import ASIDE, beside
from tests.emulator.test_products import CASES, HALF, Case
from tests.emulator.test_sent_products import CASES as SENT
from tests.emulator.test_sent_products import sent
from tests.stages import problem_of

pytestmark = pytest.mark.skipif(g_plus_plus() is None, reason="no g++ here")

POINTWISE = Case("pointwise", {}, {"ROWS": 5, "HIDDEN": 52}, source=problem_of("geglu").source)
TILES = Case(
    "pointwise",
    {"levels": 32},
    {"BATCH": 2, "CHANNELS": 32, "HEIGHT": 32, "WIDTH": 36},
    source=problem_of("permuted_operands").source,
)
RACE = "with no barrier between them"
STANDSTILL = "no thread can go on"
WRONG = "are off|infinities or NaNs"


@dataclass(frozen=True)
class Mutant:
    """A program, what of its text is replaced (the nth time it occurs), and what the emulator has to say. `pick`: its
    configs, where they are not the case's own."""

    case: Case
    old: str
    new: str
    said: str
    nth: int = 0
    pick: Pick | None = None


MUTANTS = {
    "a pointwise kernel goes one vector too far": Mutant(
        POINTWISE, "if (i < total) operands[u]", "if (i <= total) operands[u]", "after the end of"
    ),
    "a pointwise kernel leaves out its last vector": Mutant(
        POINTWISE, "if (i < total) Body::template store", "if (i < total - 1) Body::template store", WRONG
    ),
    "a turned tile is used before it is whole": Mutant(TILES, "__syncthreads();", "", RACE),
    "a product does not wait for its tile": Mutant(
        CASES["simt, 64 x 64, short sums"], "__syncthreads();", ";", RACE, nth=1
    ),
    "a product overwrites a tile that is being read": Mutant(CASES["simt, 64 x 64, short sums"], "now ^= 1;", "", RACE),
    "a product forgets the columns at the edge": Mutant(
        CASES["simt, turned"], "if (n + i < columns)", "if (true)", "after the end of|" + RACE + "|takes"
    ),
    "cp.async is not waited for": Mutant(CASES["sm80, 64 x 64"], "copies_wait<1>();", "", WRONG + "|" + RACE),
    "cp.async is waited for one group too late": Mutant(
        CASES["sm80, 64 x 64"], "copies_wait<1>();", "copies_wait<2>();", WRONG + "|" + RACE
    ),
    "tiles of cp.async are read without a barrier": Mutant(
        CASES["sm80, 64 x 64"], "__syncthreads();  // chunk c is there", "// chunk c is there", RACE
    ),
    "fragments of mma are in another order": Mutant(
        CASES["sm80, 64 x 64"], "{%4, %5, %6, %7}, {%8, %9}", "{%4, %6, %5, %7}, {%8, %9}", WRONG
    ),
    "wgmma is not waited for": Mutant(CASES["sm90, 64 columns"], "wgmma_wait<0>();", "", WRONG + "|" + RACE),
    "a slot is read before the copy engine has filled it": Mutant(
        CASES["sm90, 64 columns"],
        "for (int i = 0; i < Sizes<Config>::k_slots; i++) ring.wait_full(advance(at, i));",
        "",
        WRONG + "|" + RACE + "|the copy engine has not done",
    ),
    "a slot is freed while wgmma reads it": Mutant(
        CASES["half, pairs of blocks"], "wgmma_wait<1>();", "", RACE + "|" + WRONG
    ),
    "a slot is never freed": Mutant(
        CASES["half, pairs of blocks"], "if (before >= 0) release<Config>(empty, before, lane);", "", STANDSTILL
    ),
    "sums are settled before they are complete": Mutant(
        CASES["half, late"], "wgmma_wait<0>();\n        pin(sum[0]);", "pin(sum[0]);", RACE + "|" + WRONG
    ),
    "a piece leaves with the operands of another": Mutant(
        CASES["half, late"], "left > distance ? n + distance * 16 : n", "left > distance ? n + 16 : n", WRONG
    ),
    "the last tile's second two pieces have the operands of its first": Mutant(
        replace(CASES["half, late"], sizes={"M": 300, "N": 256, "K": 200, "DTYPE": HALF}),
        "n + 32 + i / 2 * 16);",
        "n + i / 2 * 16);",
        WRONG,
    ),
    "the second half of a tile stays in registers": Mutant(
        CASES["half, late"], "if (left != pieces / 2) return;", "if (left != 0) return;", "bytes of dynamic shared"
    ),
    "what waits in shared memory is mistaken for another's": Mutant(
        CASES["half, late"],
        "S::stages * S::stage_bytes + thread * 16",
        "S::stages * S::stage_bytes",
        RACE + "|" + WRONG,
    ),
    "results wait in a stage of the ring": Mutant(
        CASES["half, late"],
        "data + S::stages * S::stage_bytes + thread * 16",
        "data + thread * 16",
        RACE + "|" + WRONG,
    ),
    "the copy engine is told to expect too much": Mutant(
        CASES["half, bfloat16"],
        "barrier_arrive_and_expect(arrived, S::stage_bytes)",
        "barrier_arrive_and_expect(arrived, S::stage_bytes + 16)",
        STANDSTILL + "(.|\n)*lacks 0 arrivals and 16 bytes",
    ),
    "groups of eight rows lie elsewhere than the descriptor says": Mutant(
        CASES["sm90, 64 columns"], "(uint64_t)(1024 >> 4) << 32", "(uint64_t)(512 >> 4) << 32", WRONG
    ),
    "the swizzle is forgotten where threads read": Mutant(
        CASES["sm90, 64 columns"], "(((lane & 3) ^ (row & 7)) << 4)", "((lane & 3) << 4)", WRONG
    ),
    "a tile is taken for another": Mutant(
        CASES["sm90, 64 columns"], "{(uint32_t)work.m, (uint32_t)work.n", "{0, (uint32_t)work.n", WRONG + "|" + RACE
    ),
    "results are written where others still read": Mutant(
        SENT["widest tile"],
        "ring.wait_full(at);\n        } else {\n",
        "\n        } else {\n",
        RACE,
        pick=sent("gemm_sm90", tile_m=128, tile_n=256),
    ),
    "results are written over those that have not left": Mutant(
        SENT["widest tile"],
        "barrier_wait(first_left(ring, group), parity);",
        "",
        WRONG + "|" + RACE,
        pick=sent("gemm_sm90", tile_m=128, tile_n=256),
    ),
    "a slot is lent again before its results have been read": Mutant(
        SENT["widest tile"],
        "send_wait<1>();\n                    has_been_read(consumer, group - 1);",
        "has_been_read(consumer, group - 1);",
        WRONG + "|" + RACE,
        pick=sent("gemm_sm90", tile_m=128, tile_n=256),
    ),
    "a slot is given back before all lanes have read it": Mutant(
        SENT["widest tile"],
        "__syncwarp();\n#pragma unroll\n    for (int i = 0; i < Sizes<Config>::k_slots; i++) ring.template release",
        "\n#pragma unroll\n    for (int i = 0; i < Sizes<Config>::k_slots; i++) ring.template release",
        RACE,
        pick=sent("gemm_sm90", tile_m=128, tile_n=256),
    ),
    "rows are told of before they are stored": Mutant(
        ASIDE["aside"],
        "fence_memory_for_copy_engine();\n            __syncwarp();\n            row--;",
        "row--;",
        RACE,
        pick=beside("gemm_sm90_turned", 0, 1, 99, tile_m=128, tile_n=256),
    ),
    "a block leaves while the other still writes to it": Mutant(
        CASES["half, pairs of blocks"],
        "if constexpr (Config::cluster > 1) cluster_sync();  // no block leaves",
        "// no block leaves",
        "has ended",
    ),
}


def mutated(text: str, mutant: Mutant) -> str:
    places = [match.start() for match in re.finditer(re.escape(mutant.old), text)]
    assert len(places) > mutant.nth, f"{mutant.old!r} is not in the program any more"
    at = places[mutant.nth]
    return text[:at] + mutant.new + text[at + len(mutant.old) :]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    case = mutant.case
    problem = emulated_problem(case.problem, **case.sizes)
    program = program_of(problem, case.device, mutant.pick or case.pick, case.precision)
    emulation = Emulation(problem, program, library_of(mutated(program.text, mutant)))
    with multiprocessors(2), pytest.raises(AssertionError) as raised:
        compared(problem, None, ran(problem, None, emulation), case.precision)
    assert re.search(mutant.said, str(raised.value)), str(raised.value)
    assert isinstance(raised.value, EmulatedFault) or re.search(WRONG, str(raised.value))
