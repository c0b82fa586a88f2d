"""CUDA text becomes C++ text: launches, shared variables and asm are rewritten, and nothing else."""

from __future__ import annotations

import pytest

from tests.emulator.source import host_source, interpreted, split, with_asm, with_launches, with_shared

CALL = "::emulator::configured"
LAUNCHES = {
    "kernel<<<1, 2>>>(x);": f"{CALL}(kernel, 1, 2)(x);",
    "kw::f<A, g<B>><<<dim3(n, 2), 256, 0, s>>>(x, y);": f"{CALL}(kw::f<A, g<B>>, dim3(n, 2), 256, 0, s)(x, y);",
    "if (a) f<1><<<b, c>>>(); else g<<<b >> 3, c>>>();": f"if (a) {CALL}(f<1>, b, c)(); else {CALL}(g, b >> 3, c)();",
}


@pytest.mark.parametrize("cuda", LAUNCHES)
def test_a_launch_is_a_call(cuda: str) -> None:
    assert with_launches(cuda) == LAUNCHES[cuda]


def test_a_shared_variable_is_a_reference_into_the_memory_of_the_block() -> None:
    assert with_shared("__shared__ float tile[32][33];") == (
        "typedef float Shared_tile[32][33]; Shared_tile& tile = ::emulator::shared<Shared_tile, decltype([] {}), 1>();"
    )
    many = with_shared("__shared__ __align__(16) typename Body::template Tile<a, b> x, y[2];")
    assert "typedef typename Body::template Tile<a, b> Shared_x;" in many
    assert "typedef typename Body::template Tile<a, b> Shared_y[2];" in many
    assert many.count("decltype([] {}), 16>()") == 2


def test_shared_memory_of_the_launch_is_a_pointer() -> None:
    assert with_shared("extern __shared__ __align__(128) uint8_t data[];") == (
        "typedef uint8_t Shared_data; "
        "Shared_data* const data = static_cast<Shared_data*>(::emulator::dynamic_shared(128));"
    )


def test_asm_is_interpreted_with_its_operands() -> None:
    made = with_asm('asm volatile("add.u32 %0, %1, %2;" : "=r"(x) : "r"(f(a, b)), "n"(N ? 1 : 2) : "memory");')
    made = made.replace("  ", " ").replace(" ,", ",").replace(" )", ")").replace("{ ::", "{::")
    assert '::emulator::parsed("add.u32 %0, %1, %2;")' in made
    assert (
        "{::emulator::output('r', x), ::emulator::input('r', f(a, b)), ::emulator::input('n', N ? 1 : 2), {}}" in made
    )
    assert "memory" not in made


@pytest.mark.parametrize(
    ("statement", "operands"),
    [
        ('"fence;"', 0),
        ('"fence;" ::: "memory"', 0),
        ('"st.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"', 2),
        ('"" : "+f"(x)::"memory"', 1),
        ('"mov.u32 %0, %%laneid;" : "=r"(kw::split::lane)', 1),
    ],
)
def test_sections_of_asm_may_be_empty(statement: str, operands: int) -> None:
    made = with_asm(f"asm volatile({statement});")
    assert made.count("::emulator::input(") + made.count("::emulator::output(") == operands
    assert '"memory"' not in made


def test_names_with_scopes_are_not_cut() -> None:
    assert split("a ? kw::b : c", ":") == ["a ? kw::b ", " c"]
    assert "kw::split::lane" in interpreted("\"x\" : ::emulator::output('r', kw::split::lane)")


def test_lines_stay_where_they_are() -> None:
    cuda = 'int a;\n__shared__ float x[\n4];\nasm volatile("a;"\n  "b;" ::: "memory");\nf<<<1,\n2>>>();\nint last;'
    assert host_source(cuda).count("\n") == cuda.count("\n")
