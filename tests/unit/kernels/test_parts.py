"""An emitted file carries the parts of headers that it uses: how headers are cut, and what then comes along."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelwright.device import resolve
from kernelwright.generate.generate import headers_of
from kernelwright.generate.literals import names_in
from kernelwright.kernels import gemm_pairs
from kernelwright.kernels.parts import Part, join, mentions, split
from kernelwright.kernels.template import FOLDER, included, inline_with_templates, used_parts
from kernelwright.pipeline import planned_program
from tests.stages import EXAMPLES

HEADER = """\
// kw: near::walk
// What it is all about.
#pragma once

#include "other.cuh"

namespace kw::near {

// --- ways to go

// kw: walk
inline void walk() { step(); far::step(); }

// kw: step
inline void step() {}
// kw: run
// Faster.
template <class step> void run() { step::go(); }

// --- on the host
// and nowhere else

#ifndef __CUDACC_RTC__
// kw: launch
int launch() {
#if CUDART_VERSION
    return 1;
#endif
}

// kw: again
int again() { return launch(); }
#endif

}  // namespace kw::near
"""


def parts_of(header: str) -> dict[str, Part]:
    return {part.provides[0]: part for part in split("cuda/near.cuh", header, "cuda")}


def test_names_of_a_namespace_are_qualified() -> None:
    parts = parts_of(HEADER)
    assert parts["walk"].names() == {"near::walk"}
    assert {"near::step", "far::step"} <= mentions(parts["walk"])


def test_what_a_template_calls_its_parameter_is_nothing_else() -> None:
    assert "near::step" not in mentions(parts_of(HEADER)["run"])


def test_a_section_goes_with_the_first_of_its_parts() -> None:
    parts = parts_of(HEADER)
    text = join([parts["step"], parts["run"]])
    assert text.count("// --- ways to go") == 1
    assert "on the host" not in text
    assert "inline void step() {}\n// Faster.\ntemplate" in text, "as close together as in the header"


def test_a_condition_is_around_each_of_its_parts() -> None:
    parts = parts_of(HEADER)
    for chosen in ([parts["launch"]], [parts["again"]], [parts["launch"], parts["again"]]):
        text = join(chosen)
        assert text.count("#ifndef __CUDACC_RTC__") == 1
        assert len(re.findall("^#if", text, re.MULTILINE)) == text.count("#endif")
        assert "// --- on the host\n// and nowhere else\n" in text


def test_a_part_does_not_end_within_a_condition_that_it_begins() -> None:
    with pytest.raises(ValueError, match="the part of walk ends within an #if"):
        list(split("cuda/near.cuh", "// kw: walk\n#if X\nint walk();\n// kw: run\nint run();\n#endif\n", "cuda"))


def test_the_comment_above_a_header_goes_with_the_part_it_names() -> None:
    chosen = used_parts(list(split("cuda/split.cuh", HEADER, "cuda")), frozenset({"near::walk"}))
    assert join(chosen).startswith("// --- cuda/split.cuh\n// What it is all about.\n")
    assert "#pragma" not in join(chosen)
    assert "#include" not in join(chosen)


def test_only_names_of_headers_that_are_included_are_meant() -> None:
    """Results of a product are sent, too: not as reduce_ring.cuh sends rows."""
    assert "cuda/split.cuh" in included("cuda/gemm_sm90.cuh")
    assert "device/base.cuh" in included("cuda/gemm_sm90.cuh")
    assert "cuda/reduce_ring.cuh" not in included("cuda/gemm_sm90_sent.cuh")
    text = inline_with_templates({"gemm_sm90", "gemm_sm90_sent"}, headers_of("cuda"), "cuda")
    assert "cuda/reduce_ring.cuh" not in text


def test_generated_text_names_what_it_uses() -> None:
    assert {"split", "split::pack_by", "split::ByRows"} <= names_in("kw::split::pack_by<2, kw::split::ByRows>(w)")


CUT = [path for path in sorted((FOLDER / "cuda").glob("*.cuh")) if "// kw: " in path.read_text()]
DEFINITION = re.compile(
    r"^(?:template <.*> )?(?:KW_DEVICE .*?(\w+)\(|struct (?:alignas\(\d+\) )?(\w+)(?!.*<.*> \{))", re.MULTILINE
)


@pytest.mark.parametrize("header", CUT, ids=lambda path: path.stem)
def test_what_a_part_defines_it_provides(header: Path) -> None:
    """Else nobody finds it: a function that was added behind another one needs a line of its own."""
    for part in split(f"cuda/{header.name}", header.read_text(), "cuda"):
        defined = {function or struct for function, struct in DEFINITION.findall(part.text)}
        assert defined <= set(part.provides), f"{header.name}: the part of {part.provides}"


# --- what emitted files carry


def emitted(example: str) -> str:
    return planned_program(EXAMPLES / f"{example}.py", resolve("h200")).text


def test_a_product_has_the_one_way_of_packing_that_it_takes() -> None:
    text = emitted("linear_relu_divide")
    assert "struct ByWarps" in text
    assert "pack_held" in text
    for other in (
        "ByWarpgroups",
        "ByBlocks",
        "ByRows",
        "ByParts",
        "ByColumns",
        "ByPanels",
        "pack_rows",
        "copy_rows",
        "rounded_pair_bf16",
    ):
        assert other not in text, other


def test_a_convolution_has_nothing_of_a_product_but_pairs() -> None:
    text = emitted("conv_divide_leakyrelu")
    assert "split::to_pairs" in text
    for other in ("struct Packed", "pack_held", "ByWarps", "AsItLies", "store_four", "encode_map", "load_matrices"):
        assert other not in text, other


@pytest.mark.parametrize("streamed", [0, 4])
def test_only_weights_that_stream_bring_what_streams_them(streamed: int) -> None:
    names = {"conv_sm90_kept", "conv_sm90_kept::launch"} | ({"conv_sm90_kept::pack"} if streamed else set())
    text = inline_with_templates(names, headers_of("cuda"), "cuda")
    assert ("stream_weights" in text) == bool(streamed)
    assert ("Given<C, true>" in text) == bool(streamed)
    assert "struct Given" in text


# --- how a weight is packed


@pytest.mark.parametrize(
    ("k_pitch", "rows", "k", "way"),
    [
        (1, 8192, 1024, "ByWarps"),
        (1, 8192, 4096, "ByWarpgroups"),
        (1, 8192, 8192, "ByBlocks"),
        (1, 8192, 8193, "ByRows"),
        (1, 64, 32767, "ByRows"),
        (1, 64, 32768, "ByParts"),
        (8192, 8192, 64, "ByColumns"),
    ],
)
def test_the_way_of_packing_follows_from_sizes(k_pitch: int, rows: int, k: int, way: str) -> None:
    assert gemm_pairs.way_of(k_pitch, rows, k, 1) == f"kw::split::{way}"
