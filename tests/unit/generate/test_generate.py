"""The text of kernels and the steps that launch them: read like code, the same for the same plan."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from kernelwright.build.cpu import build_cpu_library, load_cpu_library
from kernelwright.device import resolve
from kernelwright.generate import Launch, Program, default_choices, generate
from kernelwright.ir.dtypes import bfloat16, float16, float32
from kernelwright.ir.nodes import Broadcast, Const, Map, Node, Slice
from kernelwright.kernels.pointwise import Config, CpuConfig
from kernelwright.kernels.template import inline_with_templates
from kernelwright.pipeline import explained, planned_program
from kernelwright.plan import Plan
from kernelwright.settings import read_settings
from tests.unit.plan.test_plan import cumsum, half, leaf, planned

CPU, H200 = resolve("cpu"), resolve("h200")


def generated(made: Plan, device: str = "cpu") -> Program:
    target = resolve(device)
    return generate(made, default_choices(made, target), target)


def struct_of(*outputs: Node, device: str = "cpu") -> str:
    (source,) = generated(planned(*outputs), device).sources
    return source.struct


def test_a_kernel_reads_like_code() -> None:
    bias = Broadcast(leaf(1, (128,)), (64, 128))
    text = struct_of(Map("relu", (Map("add", (leaf(0), bias)),)))
    assert text == dedent(
        """\
        // y = relu(x0 + x1)
        struct AddRelu {
            using Index = int;
            static constexpr int64_t rows = 64, columns = 128;
            struct Args { const float* x0; const float* x1; float* y; };

            template <int N> struct Operands { kw::Vec<float, N> x0; kw::Vec<float, N> x1; };

            template <int N> KW_DEVICE static Operands<N> load(const Args& a, Index row, Index column) {
                Operands<N> x;
                x.x0 = kw::load<N>(a.x0 + row * columns + column);
                x.x1 = kw::load<N>(a.x1 + column);
                return x;
            }

            template <int N>
            KW_DEVICE static void store(const Args& a, Index row, Index column, const Operands<N>& x) {
                kw::Vec<float, N> y;
                KW_LANES for (int i = 0; i < N; ++i) {
                    const float t0 = x.x0[i] + x.x1[i];
                    const float t1 = kw::relu(t0);
                    y[i] = t1;
                }
                kw::store<N>(a.y + row * columns + column, y);
            }
        };"""
    )


def test_the_struct_is_the_same_for_both_devices() -> None:
    outputs = Map("tanh", (half(leaf(0)),))
    assert struct_of(outputs, device="cpu") == struct_of(outputs, device="h200")


def test_what_all_lanes_share_is_computed_once() -> None:
    scale = Map("exp", (leaf(1, ()),))
    text = struct_of(Map("mul", (leaf(0), scale)))
    assert text.index("kw::exp(") < text.index("KW_LANES")


def test_sixteen_bit_operands_are_widened_once_and_results_rounded() -> None:
    x = leaf(0, dtype=float16)
    wide = Map("cast", (x,), float32)
    text = struct_of(Map("cast", (Map("mul", (Map("tanh", (wide,)), wide)),), bfloat16))
    assert text.count("kw::widen(") == 1
    assert "kw::convert<kw::bfloat16>" in text


def test_a_strided_operand_is_gathered_and_a_single_one_broadcast() -> None:
    strided = Slice(leaf(0, (64, 256)), (0, 0), (1, 2), (64, 128))
    text = struct_of(Map("add", (strided, Broadcast(leaf(1, (64, 1)), (64, 128)))))
    assert "kw::gather<N>(a.x0 + row * 256 + int64_t(column) * 2, 2)" in text.replace("int64_t(row)", "row")
    assert "x.x1 = a.x1[row];" in text


def test_one_buffer_seen_twice_is_one_pointer_and_two_operands() -> None:
    x = leaf(0, (64, 130))
    left, right = (Slice(x, (0, start), (1, 1), (64, 128)) for start in (0, 2))
    text = struct_of(Map("sub", (left, right)))
    assert "struct Args { const float* x0; float* y; }" in text
    assert "x.x0[i] - x.x0_2[i]" in text


def test_consecutive_kernels_are_one_launch_and_a_library_call_parts_them() -> None:
    two = planned(Map("relu", (leaf(0),)), Map("neg", (leaf(1),)))
    assert [len(launch.sources) for launch in generated(two).launches] == [2]
    parted = planned(half(cumsum(half(leaf(0)))))
    assert [launch.entry for launch in generated(parted).launches] == ["run0", "run1"]


def test_memory_that_is_taken_over_is_an_alias_and_not_allocated() -> None:
    first, second = generated(planned(half(cumsum(half(leaf(0)))))).launches
    assert [buffer.name for buffer in first.allocations] == ["mul"]
    assert not second.allocations
    assert [over for _, over in second.aliases] == ["cumsum"]


def test_an_empty_result_is_allocated_and_no_kernel_runs() -> None:
    program = generated(planned(half(leaf(0, (0, 4)))))
    assert not program.launches
    assert program.text == ""
    (step,) = program.steps
    assert isinstance(step, Launch)
    assert [buffer.shape for buffer in step.allocations] == [(0, 4)]


def test_a_program_carries_only_the_functions_it_uses() -> None:
    text = generated(planned(Map("relu", (leaf(0),)))).text
    assert "relu" in text
    assert "tanh" not in text
    assert "half" not in text
    assert "gather" not in text


def test_the_same_plan_gives_the_same_bytes() -> None:
    outputs = Map("where", (Map("lt", (leaf(0), Const(0.0, float32))), half(leaf(0)), leaf(1)))
    texts = {generated(planned(outputs), device).text for device in ("cpu", "h200") for _ in range(3)}
    assert len(texts) == 2


def test_the_choice_is_in_the_call() -> None:
    made = planned(Map("relu", (leaf(0),)))
    (kernel,) = made.kernels
    cpu = generate(made, {kernel.name: CpuConfig(32, 4096)}, CPU)
    assert "kw::pointwise<Relu, 32, 4096>({x0, y})" in cpu.text
    cuda = generate(made, {kernel.name: Config(512, 4, 8)}, H200)
    assert "kw::pointwise<Relu, 4, 8, 512>({x0, y}, stream)" in cuda.text


def test_a_result_that_is_mapped_anew_for_every_call_lies_in_large_pages() -> None:
    x, small = leaf(0, (9 << 20,)), leaf(1, (1 << 20,))
    made = planned(half(x), half(small))
    assert "kw::in_large_pages(mul, 37748736);\n" in generated(made, "cpu").text
    assert generated(made, "cpu").text.count("kw::in_large_pages(") == 1
    assert "in_large_pages" not in generated(made, "h200").text
    assert "in_large_pages" not in generated(planned(half(small)), "cpu").text


def test_memory_is_hinted_at_wherever_it_begins(tmp_path: Path) -> None:
    text = inline_with_templates({"in_large_pages"}, ("memory",), "cpu")
    text += '\nextern "C" void hint(void* p, int64_t bytes) { kw::in_large_pages(p, bytes); }\n'
    library = load_cpu_library(build_cpu_library(text, replace(read_settings(), cache_dir=tmp_path)))
    memory = (ctypes.c_char * (5 << 20))(*b"kept")
    for begin, size in ((0, 5 << 20), (1, 3 << 20), (4097, 1), (4096, 0)):
        library.hint(ctypes.c_void_p(ctypes.addressof(memory) + begin), ctypes.c_int64(size))
    assert memory[:5] == b"kept\0"


def test_a_kernels_launcher_is_found_beside_a_tensor_of_its_name(tmp_path: Path) -> None:
    """The library's 1 x 1 convolution gives a tensor `conv`; the depthwise one behind it is the kernel `conv`."""
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.wide = nn.Conv2d(512, 512, 1, bias=False)\n"
        "        self.deep = nn.Conv2d(512, 512, 3, padding=1, groups=512, bias=False)\n\n"
        "    def forward(self, x):\n        return self.deep(torch.relu(self.wide(x)))\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 512, 28, 28)]\n"
    )
    text = planned_program(model, resolve("h200")).text
    entry = next(line for line in text.splitlines() if line.startswith('extern "C" int run0('))
    assert "const float* conv," in entry
    assert re.search(r"error = ::conv\(", text)


SUITE = Path(__file__).resolve().parents[3] / "benchmarks" / "suite"


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize(
    "name",
    [
        "conv_relu_pool",  # on a CPU no convolution of ours reduces its own result
        "rnn_by_hand",  # the first product multiplies zeros, which lie nowhere
    ],
)
def test_what_a_template_cannot_do_is_left_to_others(name: str, device: str) -> None:
    assert "KERNELS" in explained(SUITE / f"{name}.py", device, "emit")["emit"]
