"""Generated pointwise kernels through the compilers: no spills, wide loads on a GPU, packed arithmetic on a CPU."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.build import build_cpu_library, build_cuda_library, find_cuda, find_cxx, library_resources
from kernelwright.build.cuda import nvcc_command
from kernelwright.device import resolve
from kernelwright.errors import EnvironmentProblem
from kernelwright.flags import CPU_COMPILE_FLAGS
from kernelwright.generate import Launch, default_choices, generate
from kernelwright.generate.generate import program_text
from kernelwright.generate.grid import grid_of, work_of
from kernelwright.ir.dtypes import DTYPES, DType, bool_, float16, float32, float64, int32
from kernelwright.ir.nodes import Broadcast, Const, Graph, Input, Map, Node, Permute, Shape
from kernelwright.kernels.choices import Choice
from kernelwright.kernels.pointwise import BrickConfig, Config, CpuConfig, TileConfig, why_not
from kernelwright.plan import Kernel, Plan, plan
from kernelwright.plan.steps import contiguous
from kernelwright.settings import read_settings
from tests.stages import NAMES, planned

H200 = resolve("h200")
CPU = resolve("cpu")
COMPUTED = tuple(dtype for dtype in DTYPES.values() if dtype.kind != "complex")


@pytest.fixture(scope="session")
def cuda() -> None:
    try:
        find_cuda(read_settings())
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def objdump() -> str:
    found = shutil.which("objdump")
    if found is None:
        pytest.skip("no objdump here")
    return found


# --- graphs to compile


def leaf(name: str, shape: Shape, dtype: DType, strides: Shape | None = None) -> Input:
    return Input(name, ord(name) - ord("a"), shape, dtype, contiguous(shape) if strides is None else strides)


def graph_of(*outputs: Node) -> Graph:
    inputs = sorted({n for n in Graph((), outputs, (), 0).nodes() if isinstance(n, Input)}, key=lambda n: n.position)
    return Graph(tuple(inputs), outputs, (), 0)


def chain(x: Node, y: Node) -> Node:
    """A few operators that every dtype has: where(x < y, max(x, y), x) and its like."""
    if x.dtype is bool_:
        return Map("logical_xor", (Map("logical_and", (x, y)), y))
    if x.dtype.is_reduced_float:
        wide = [Map("cast", (v,), float32) for v in (x, y)]
        return Map("cast", (Map("mul", (Map("tanh", (wide[0],)), wide[1])),), x.dtype)
    larger = Map("maximum", (x, y))
    return Map("where", (Map("lt", (x, y)), Map("mul", (larger, y)), x))


def launches_of(made: Plan, choices: dict[str, Choice], label: str) -> Iterable[Launch]:
    """The plan's launches under names of their own, so that many can share a source."""
    steps = tuple(replace(s, name=f"{label}_{s.name}") if isinstance(s, Kernel) else s for s in made.steps)
    renamed = {f"{label}_{name}": choice for name, choice in choices.items()}
    device = CPU if any(isinstance(c, CpuConfig) for c in choices.values()) else H200
    program = generate(replace(made, steps=steps), renamed, device)
    return [replace(launch, entry=f"{label}_{launch.entry}") for launch in program.launches]


def default_launches(made: Plan, label: str) -> Iterable[Launch]:
    return launches_of(made, default_choices(made, H200), label)


def resources(launches: Iterable[Launch]) -> list[str]:
    """Compiles for sm_90a; what uses local memory, by the kernel's mangled name."""
    library = build_cuda_library(program_text(list(launches), "cuda"), "sm_90a")
    found = library_resources(library)
    assert found
    return [r.name for r in found if r.spills or r.stack_bytes]


# --- CUDA


@pytest.mark.parametrize("half", [0, 1])
def test_every_example_compiles_for_hopper_without_spills(cuda: None, half: int) -> None:
    names = NAMES[half::2]
    assert resources(launch for name in names for launch in default_launches(planned(name), name)) == []


def test_every_dtype_compiles_in_every_vector_that_fits_it(cuda: None) -> None:
    launches: list[Launch] = []
    for dtype in COMPUTED:
        made = plan(graph_of(chain(leaf("a", (64, 256), dtype), leaf("b", (64, 256), dtype))))
        (kernel,) = made.kernels
        work = work_of(kernel.region, grid_of(kernel.region, "cuda"))
        for lanes in (1, 2, 4, 8, 16):
            config = Config(256, lanes, 2)
            if why_not(config, work, H200) is None:
                launches += launches_of(made, {kernel.name: config}, f"{dtype.name}_{lanes}")
    assert len(launches) >= 4 * len(COMPUTED)
    assert resources(launches) == []


def test_a_grid_beyond_32_bits_is_counted_in_64(cuda: None) -> None:
    large = plan(graph_of(chain(leaf("a", (3, 2**30), float32), leaf("b", (3, 2**30), float32))))
    rows = (40_000, 80_000)
    biased = plan(graph_of(chain(leaf("a", rows, float16), Broadcast(leaf("b", rows[1:], float16), rows))))
    ragged = plan(
        graph_of(
            chain(leaf("a", (50_000, 50_001), float32), Broadcast(leaf("b", (50_001,), float32), (50_000, 50_001)))
        )
    )
    launches = [
        launch
        for label, made in (("a", large), ("b", biased), ("c", ragged))
        for launch in default_launches(made, label)
    ]
    assert all("using Index = int64_t" in source.struct for launch in launches for source in launch.sources)
    assert resources(launches) == []


def test_rows_that_vectors_do_not_divide_and_operands_that_lie_otherwise_compile(cuda: None) -> None:
    ragged = plan(graph_of(chain(leaf("a", (513, 1001), float32), Broadcast(leaf("b", (1001,), float32), (513, 1001)))))
    turned = plan(graph_of(chain(Permute(leaf("a", (512, 640), float32), (1, 0)), leaf("b", (640, 512), float32))))
    strided = plan(graph_of(chain(leaf("a", (64, 100), float64, (300, 3)), leaf("b", (64, 100), float64))))
    scalar = plan(graph_of(chain(leaf("a", (), int32), leaf("b", (), int32))))
    plans = {"ragged": ragged, "turned": turned, "strided": strided, "scalar": scalar}
    walks = [grid_of(k.region, "cuda").walk for made in plans.values() for k in made.kernels]
    assert {"flat", "tiles", "rows"} <= set(walks)
    assert resources(launch for label, made in plans.items() for launch in default_launches(made, label)) == []


def test_tiles_compile_in_every_shape(cuda: None) -> None:
    launches: list[Launch] = []
    for dtype in (float32, float16, float64, bool_):
        made = plan(graph_of(chain(Permute(leaf("a", (512, 640), dtype), (1, 0)), leaf("b", (640, 512), dtype))))
        (kernel,) = made.kernels
        work = work_of(kernel.region, grid_of(kernel.region, "cuda"))
        for number, config in enumerate(
            (TileConfig(256, 4, 32, 128), TileConfig(256, 2, 64, 64), TileConfig(256, 1, 32, 32))
        ):
            if why_not(config, work, H200) is None:
                launches += launches_of(made, {kernel.name: config}, f"{dtype.name}_{number}")
    assert len(launches) >= 8
    assert resources(launches) == []


def in_bricks(x: str, dtype: DType, shape: Shape = (4, 64, 48, 80)) -> Plan:
    """One operand that lies as the result, one along its second axis and one along its third."""
    b, c, h, w = shape
    first = Input(x, 0, shape, dtype, contiguous(shape))
    last = Input("last", 1, (b, h, w, c), dtype, contiguous((b, h, w, c)))
    turned = Input("turned", 2, (b, c, w, h), dtype, contiguous((b, c, w, h)))
    return plan(graph_of(chain(chain(first, Permute(last, (0, 3, 1, 2))), Permute(turned, (0, 1, 3, 2)))))


def test_bricks_compile_in_every_shape(cuda: None) -> None:
    shapes = ((512, 16, 16, 32), (256, 8, 16, 64), (256, 32, 8, 16), (256, 8, 8, 32))
    launches: list[Launch] = []
    for dtype in (float32, float16, float64, bool_):
        made = in_bricks("a", dtype)
        (kernel,) = made.kernels
        work = work_of(kernel.region, grid_of(kernel.region, "cuda"))
        for number, (threads, *edges) in enumerate(shapes):
            lanes = min(16 // dtype.itemsize, *edges)
            config = BrickConfig(threads, lanes, *edges)
            if why_not(config, work, H200) is None:
                launches += launches_of(made, {kernel.name: config}, f"{dtype.name}_{number}")
    assert len(launches) >= 12
    assert resources(launches) == []


def test_a_brick_reads_sixteen_bytes_at_a_time_all_before_the_first_is_kept(cuda: None, tmp_path: Path) -> None:
    made = in_bricks("a", float32)
    (kernel,) = made.kernels
    text = ptx_of(launches_of(made, {kernel.name: BrickConfig(256, 4, 16, 16, 16)}, "brick"), tmp_path)
    entry = next(part for part in text.split(".entry") if "Li4ELi16ELi16ELi16ELi256E" in part.split("(")[0])
    loads = [m.start() for m in re.finditer(r"ld\.global(\.nc)?\.v4", entry)]
    assert len(loads) == 3 * 16 * 16 * 16 // 4 // 256
    assert max(loads) < entry.index("st.shared")


AWKWARD = tuple(
    "a b e i p q r R at x y t0 y0 i1 tile level layer product row column N P Q Args Tile args stream kw".split()
)


@pytest.mark.usefixtures("thorough")
def test_operands_may_be_called_like_anything_in_the_templates(cuda: None) -> None:
    shape, ragged = (640, 512), (513, 1001)
    launches: list[Launch] = []
    for number, name in enumerate(AWKWARD):
        wide = Map("cast", (Input(name, 0, shape, float16, contiguous(shape)),), float32)
        turned = Permute(Input("first", 1, shape[::-1], float32, contiguous(shape[::-1])), (1, 0))
        dense, bias = Input("first", 1, ragged, float32, contiguous(ragged)), Input(name, 0, ragged[1:], float32, (1,))
        plans = {
            "tiles": plan(graph_of(Map("mul", (turned, wide)))),
            "flat": plan(graph_of(Map("mul", (dense, Broadcast(bias, ragged))))),
            "rows": plan(graph_of(Map("abs", (wide,)), Map("neg", (wide,)))),
            "bricks": in_bricks(name, float32),
        }
        for walk, made in plans.items():
            if walk != "tiles" and number % 4 and name not in ("R", "at", "layer"):
                continue  # only there are operands variables of their own
            assert {grid_of(kernel.region, "cuda").walk for kernel in made.kernels} == {walk}
            launches += default_launches(made, f"{walk}{number}")
    assert resources(launches) == []


def ptx_of(launches: Iterable[Launch], folder: Path) -> str:
    source = folder / "kernel.cu"
    source.write_text(program_text(list(launches), "cuda"))
    command = [part for part in nvcc_command("sm_90a", read_settings()) if "gencode" not in part]
    made = [*command, "-arch=compute_90a", "-ptx", str(source), "-o", str(folder / "kernel.ptx")]
    subprocess.run(made, check=True, capture_output=True, timeout=120, cwd=folder)
    return (folder / "kernel.ptx").read_text()


@pytest.mark.parametrize(("dtype", "lanes"), [(float32, 4), (float16, 8), (float64, 2), (bool_, 16)], ids=str)
def test_sixteen_bytes_are_one_instruction(cuda: None, tmp_path: Path, dtype: DType, lanes: int) -> None:
    made = plan(graph_of(chain(leaf("a", (1 << 20,), dtype), leaf("b", (1 << 20,), dtype))))
    (kernel,) = made.kernels
    text = ptx_of(launches_of(made, {kernel.name: Config(256, lanes, 2)}, "wide"), tmp_path)
    # Two kernels: in whole vectors, and element by element for operands that are not aligned.
    entries = text.split(".entry")[1:]
    wide = [e for e in entries if re.search(r"ld\.global\S*\.v[24]", e)]
    assert len(wide) == 1
    assert len(re.findall(r"ld\.global\S*\.v(?:4\.\w*32|2\.\w*64)", wide[0])) == 2 * 2, "two operands, two vectors each"
    assert len(re.findall(r"st\.global\S*\.v(?:4\.\w*32|2\.\w*64)", wide[0])) == 2
    assert not re.search(r"ld\.global\S*\.[usbf]\d+\s", re.sub(r"ld\.global\S*\.v[24]\S*", "", wide[0]))


def test_loads_stand_before_the_first_store(cuda: None, tmp_path: Path) -> None:
    """All vectors of a thread are in flight at once: their latencies overlap."""
    made = plan(graph_of(Map("relu", (leaf("a", (1 << 22,), float32),))))
    (kernel,) = made.kernels
    text = ptx_of(launches_of(made, {kernel.name: Config(256, 4, 8)}, "deep"), tmp_path)
    (wide,) = [e for e in text.split(".entry")[1:] if ".v4" in e]
    order = re.findall(r"\b(ld|st)\.global", wide)
    assert order == ["ld"] * 8 + ["st"] * 8


# --- CPU


def instructions_of(made: Plan, objdump: str, config: CpuConfig) -> str:
    (kernel,) = made.kernels
    library = build_cpu_library(program_text(list(launches_of(made, {kernel.name: config}, "only")), "cpu"))
    done = subprocess.run([objdump, "-d", "--no-show-raw-insn", library], check=True, capture_output=True, text=True)
    return done.stdout


def arithmetic(x: Node, y: Node) -> Node:
    """(x * y + x) / y, maxed: arithmetic that a vector unit has."""
    return Map("maximum", (Map("div", (Map("add", (Map("mul", (x, y)), x)), y)), y))


SHAPE = (512, 768)


def broadcast_row(dtype: DType) -> Node:
    return Broadcast(leaf("b", SHAPE[1:], dtype), SHAPE)


def broadcast_column(dtype: DType) -> Node:
    return Broadcast(leaf("b", (SHAPE[0], 1), dtype), SHAPE)


def whole(dtype: DType) -> Node:
    return leaf("b", SHAPE, dtype)


@pytest.mark.parametrize("other", [whole, broadcast_row, broadcast_column])
@pytest.mark.parametrize(("dtype", "suffix"), [(float32, "ps"), (float64, "pd")], ids=str)
def test_arithmetic_is_packed_on_the_cpu(objdump: str, dtype: DType, suffix: str, other: object) -> None:
    assert callable(other)
    made = plan(graph_of(arithmetic(leaf("a", SHAPE, dtype), other(dtype))))
    code = instructions_of(made, objdump, CpuConfig(64, 16384))
    for operation in ("mul", "add", "div"):
        packed = re.findall(rf"\bv?{operation}{suffix}\b.*", code)
        assert packed, f"no {operation}{suffix}"
        widest = "ymm" if re.search(r"\bymm|\bzmm", code) else "xmm"
        assert any(widest in line or "zmm" in line for line in packed)


@pytest.mark.parametrize("fn", ["exp", "tanh", "sigmoid", "gelu_erf", "gelu_tanh", "silu", "mish", "log", "erf"])
def test_elementary_functions_are_packed_on_the_cpu(objdump: str, fn: str) -> None:
    code = instructions_of(plan(graph_of(Map(fn, (leaf("a", SHAPE, float32),)))), objdump, CpuConfig(64, 16384))
    assert len(re.findall(r"\bv?(?:mul|fn?m(?:add|sub)\d*)ps\b", code)) >= 4
    assert f"<{fn}f@plt>" not in code


@pytest.mark.parametrize(
    "dtype",
    [
        float16,
        DTYPES["bfloat16"],
    ],
    ids=str,
)
def test_sixteen_bit_floats_are_packed_on_the_cpu(objdump: str, dtype: DType) -> None:
    code = instructions_of(
        plan(graph_of(chain(leaf("a", SHAPE, dtype), leaf("b", SHAPE, dtype)))), objdump, CpuConfig(64, 16384)
    )
    assert len(re.findall(r"\bv?(?:mul|fn?m(?:add|sub)\d*)ps\b", code)) >= 4
    assert re.search(r"\bv?pslld|\bvpmovzxwd|\bv?punpck[lh]wd", code), "halves are widened in vectors"


def test_truth_values_and_choices_are_packed_on_the_cpu(objdump: str) -> None:
    a, b, c = leaf("a", SHAPE, float32), leaf("b", SHAPE, float32), leaf("c", SHAPE, bool_)
    made = plan(
        graph_of(Map("where", (Map("logical_and", (Map("lt", (a, b)), c)), a, Map("mul", (b, Const(2.0, float32))))))
    )
    code = instructions_of(made, objdump, CpuConfig(64, 16384))
    assert re.search(r"\bv?cmp\w*ps\b", code)
    assert re.search(r"\bv?(?:mul|add)ps\b", code)


def test_a_vector_never_goes_through_words_narrower_than_the_registers(tmp_path: Path) -> None:
    """With AVX2 g++ copies structures by 16 bytes, or through integers, and the load of 32 that follows waits."""
    compiler = find_cxx(read_settings())
    if compiler.family != "gcc" or platform.machine() != "x86_64":
        pytest.skip("how g++ copies on x86")
    (kernel,) = (made := plan(graph_of(chain(leaf("a", SHAPE, float32), leaf("b", SHAPE, float32))))).kernels
    (launch,) = launches_of(made, {kernel.name: CpuConfig(32, 16384)}, "only")
    (tmp_path / "kernel.cpp").write_text(program_text([launch], "cpu"))
    flags = [flag for flag in CPU_COMPILE_FLAGS if flag != "-march=native"]
    command = [*compiler.command, *flags, "-march=haswell", "-S", "-o", "-", "kernel.cpp"]
    code = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    loop = code[code.index("_omp_fn.0:") : code.index(".cfi_endproc", code.index("_omp_fn.0:"))]
    assert re.search(r"vmulps\s.*%ymm", loop)
    assert not re.search(r"vpinsrq|vmov\w+\s+%xmm\d+, -?\d*\(%rsp\)", loop)
