"""Devices as data: the table of GPUs, GPUs described by their driver, and the CPU read from /proc and /sys."""

import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from kernelwright import device
from kernelwright.device import Device, Peaks, describe_gpu, known_gpus, read_cpu, resolve
from kernelwright.errors import EnvironmentProblem, UsageError


@dataclass
class Properties:
    """Like torch.cuda.get_device_properties(i)."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_block_optin: int = 232448
    shared_memory_per_multiprocessor: int = 233472
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    L2_cache_size: int = 62914560


@dataclass
class OldProperties:
    """The same from a PyTorch that tells little."""

    name: str
    major: int
    minor: int
    multi_processor_count: int


H200 = Properties("NVIDIA H200", 9, 0, 132)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "_present_gpus", lambda: ())


def with_gpus(monkeypatch, *properties):
    described = tuple(describe_gpu(each, index=i) for i, each in enumerate(properties))
    monkeypatch.setattr(device, "_present_gpus", lambda: described)
    return described


def test_importing_the_module_does_not_import_torch():
    check = "import sys, kernelwright.device; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0


# --- names


def test_an_h200_can_be_planned_for_where_there_is_none(no_gpu):
    h200 = resolve("h200")
    assert (h200.kind, h200.arch, h200.capability, h200.multiprocessors) == ("cuda", "sm_90a", (9, 0), 132)
    assert (h200.smem_per_block_bytes, h200.smem_per_multiprocessor_bytes) == (232_448, 233_472)
    assert h200.basis == "measured"
    assert 4180 <= h200.copy_gbps <= 4300
    assert 49 <= h200.peaks.float32 <= 50
    assert not h200.present
    assert h200.torch_name == "cuda"


@pytest.mark.parametrize("name", known_gpus())
def test_every_row_of_the_table_is_plausible(name, no_gpu):
    gpu = resolve(name)
    assert gpu.kind == "cuda"
    assert not gpu.present
    assert gpu.capability >= (8, 0)
    assert 20 <= gpu.multiprocessors <= 200
    assert 48 * 1024 < gpu.smem_per_block_bytes < gpu.smem_per_multiprocessor_bytes <= gpu.l1_bytes
    assert 200 < gpu.copy_gbps < 8000
    assert 0 < gpu.peaks.float64 <= gpu.peaks.float32 * 1.3
    assert gpu.peaks.float32 <= gpu.peaks.tf32 <= gpu.peaks.float16 == gpu.peaks.bfloat16


def test_ceilings_that_were_not_measured_are_below_the_datasheet(no_gpu):
    h100 = resolve("h100")
    assert h100.basis == "datasheet"
    assert h100.copy_gbps < 3350
    assert h100.peaks.float16 < 989


@pytest.mark.parametrize("spec", ["H200", " h200 ", "H100_PCIe", "rtx 4090"])
def test_names_are_read_as_people_write_them(spec, no_gpu):
    assert resolve(spec).kind == "cuda"


@pytest.mark.parametrize("spec", ["", "tpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "h200:0", "auto:1"])
def test_an_unknown_device_is_refused_with_the_names_that_are_known(spec, no_gpu):
    with pytest.raises(UsageError, match=r"auto, cpu, cuda, cuda:N or one of h200, "):
        resolve(spec)


def test_auto_takes_the_cpu_where_there_is_no_gpu(no_gpu):
    assert resolve("auto") == resolve("cpu")


@pytest.mark.parametrize("spec", ["cuda", "cuda:0"])
def test_asking_for_a_gpu_where_there_is_none_tells_the_ways_out(spec, no_gpu):
    with pytest.raises(EnvironmentProblem) as refusal:
        resolve(spec)
    assert "--device cpu" in refusal.value.cure
    assert "--device h200" in refusal.value.cure


# --- GPUs that are here


def test_a_known_gpu_that_is_here_keeps_its_measured_ceilings_and_takes_its_sizes_from_the_driver(monkeypatch):
    (present,) = with_gpus(monkeypatch, H200)
    for spec in ("auto", "cuda", "cuda:0", "h200"):
        assert resolve(spec) == present
    assert present.present
    assert present.l2_bytes == 62914560
    assert (present.basis, present.peaks.tf32) == ("measured", 382)
    assert present.torch_name == "cuda:0"


def test_gpus_are_numbered_as_torch_numbers_them(monkeypatch):
    a100 = Properties("NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 167936, 2048, 65536, 40 << 20)
    with_gpus(monkeypatch, H200, a100)
    assert resolve("cuda:1").name == "NVIDIA A100"
    assert resolve("cuda:1").arch == "sm_80"
    assert resolve("a100").index == 1
    with pytest.raises(EnvironmentProblem, match="torch sees 2"):
        resolve("cuda:2")


@pytest.mark.parametrize(
    ("driver_name", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_the_drivers_name_finds_its_row_and_no_other(driver_name, row):
    assert device._known_product(driver_name) == device.GPUS[row]


@pytest.mark.parametrize("driver_name", ["NVIDIA A10G", "NVIDIA GeForce RTX 4090D", "Tesla T4", "NVIDIA H2000"])
def test_a_name_that_only_begins_like_a_known_one_is_unknown(driver_name):
    assert device._known_product(driver_name) is None


def test_a_slice_of_a_gpu_has_its_share_of_the_ceilings_and_its_own_name():
    whole = describe_gpu(H200, index=0)
    part = describe_gpu(replace(H200, name="NVIDIA H200 MIG 3g.71gb", multi_processor_count=66), index=0)
    assert part.name == "NVIDIA H200 MIG 3g.71gb"
    assert part.copy_gbps == pytest.approx(whole.copy_gbps / 2)
    assert part.peaks.float16 == pytest.approx(whole.peaks.float16 / 2)
    assert part.basis == "derived"


@pytest.mark.parametrize(("capability", "arch"), [((8, 6), "sm_86"), ((9, 0), "sm_90a"), ((12, 1), "sm_121")])
def test_an_unknown_gpu_is_described_by_what_the_driver_tells(capability, arch):
    unknown = describe_gpu(OldProperties("NVIDIA X1", *capability, 40), index=0)
    assert (unknown.name, unknown.arch, unknown.basis) == ("NVIDIA X1", arch, "derived")
    assert (unknown.multiprocessors, unknown.present) == (40, True)
    assert unknown.copy_gbps > 0
    assert unknown.peaks.float32 > 0
    assert unknown.smem_per_block_bytes >= 99 * 1024


def test_a_gpu_older_than_ampere_is_not_taken_by_auto_and_refused_by_name(monkeypatch):
    with_gpus(monkeypatch, Properties("Tesla T4", 7, 5, 40, 65536, 65536, 1024, 65536, 4 << 20))
    assert resolve("auto").kind == "cpu"
    with pytest.raises(EnvironmentProblem, match="sm_75"):
        resolve("cuda")


# --- the CPU

XEON = """\
processor\t: 0
model name\t: Test Xeon
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse2 avx avx2 avx512f

processor\t: 1
model name\t: Test Xeon
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu sse2 avx avx2 avx512f
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


def fake_machine(root, cpuinfo, caches=()):
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(cpuinfo)
    for i, (level, kind, size) in enumerate(caches):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{i}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    return root


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(device, "_usable_cpus", lambda: frozenset({0, 1}))


def test_two_hardware_threads_of_a_core_are_one_core(tmp_path, two_threads):
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "105M")]
    cpu = read_cpu(fake_machine(tmp_path, XEON, caches))
    assert (cpu.name, cpu.multiprocessors, cpu.max_threads_per_multiprocessor) == ("Test Xeon", 1, 2)
    assert (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes) == (48 << 10, 2 << 20, 105 << 20)
    assert cpu.vector_bytes == 64


def test_an_arm_cpu_is_read(tmp_path, two_threads):
    cpu = read_cpu(fake_machine(tmp_path, ARM))
    assert (cpu.name, cpu.vector_bytes, cpu.multiprocessors) == ("Arm CPU part 0xd0c", 16, 2)


def test_a_system_without_proc_gets_typical_values(tmp_path, two_threads):
    cpu = read_cpu(tmp_path)
    assert (cpu.kind, cpu.arch, cpu.name) == ("cpu", "native", "CPU")
    assert cpu.l1_bytes > 0
    assert cpu.copy_gbps > 0


def test_the_cpu_of_this_machine_is_the_same_each_time():
    cpu = resolve("cpu")
    assert isinstance(cpu, Device)
    assert isinstance(cpu.peaks, Peaks)
    assert cpu == resolve("cpu")
    assert cpu.present
    assert cpu.torch_name == "cpu"
    assert cpu.capability == (0, 0)


@pytest.mark.gpu
def test_the_gpu_of_this_machine_can_be_used_by_the_name_it_is_given():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    gpu = resolve("cuda")
    assert torch.ones(3, device=gpu.torch_name).sum().item() == 3
    assert gpu.multiprocessors == torch.cuda.get_device_properties(0).multi_processor_count
