"""The GEMM kernels' own source, compiled for the CPU, gives exact products: indices, tails, barriers, special values.

Only the instructions of ptx80.cuh and ptx90.cuh are replaced (gemm_emulation/ has their stand-ins), and a launch is a
host thread for each thread of a block. What this cannot show is how a GPU orders memory: that is for a GPU to show.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import kernelwright
from kernelwright.build.toolchain import find_cuda, has_cuda
from kernelwright.settings import read_settings

KERNELS = Path(kernelwright.__file__).parent / "kernels"
EMULATION = Path(__file__).parent / "gemm_emulation"
STAND_INS = ("ptx80.cuh", "ptx90.cuh")

pytestmark = [
    pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA headers"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
    pytest.mark.slow,
]


def headers(folder: Path) -> Path:
    """The kernels' headers with the stand-ins in place, and shared memory that a launch sizes as an ordinary array."""
    shutil.copytree(KERNELS / "device", folder / "device")
    cuda = folder / "cuda"
    cuda.mkdir()
    for header in (KERNELS / "cuda").glob("*.cuh"):
        (cuda / header.name).write_text(header.read_text().replace("extern __shared__", "extern"))
    for name in STAND_INS:
        shutil.copy(EMULATION / name, cuda / name)
    return cuda


@pytest.mark.parametrize("kernel", ["split", "gemm_simt", "gemm_skinny", "gemm_sm80", "gemm_sm90", "gemm_sm90_half"])
def test_a_kernel_run_on_the_cpu_is_exact(kernel: str, tmp_path: Path) -> None:
    toolkit = find_cuda(read_settings()).nvcc.parent.parent
    includes = [f"-I{headers(tmp_path)}", f"-I{EMULATION}", f"-I{toolkit / 'include'}"]
    command = ["g++", "-std=c++20", "-O1", "-w", "-pthread", *includes, str(EMULATION / f"{kernel}.cpp"), "-o", "run"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(tmp_path / "run")], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "WRONG" not in ran.stdout
