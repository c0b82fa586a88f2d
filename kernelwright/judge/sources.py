"""A candidate's text comes in; whether the CUDA sources in it compile goes out. For machines that cannot run them."""

import ast
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelwright.device import Device
from kernelwright.flags import gencode
from kernelwright.judge.verdict import Failed, Verdict
from kernelwright.settings import read_settings

__all__ = ["check_cuda_sources", "cuda_sources", "kernel_names"]

LIMIT_S = 120.0


def check_cuda_sources(text: str, device: Device) -> str:
    """What was checked, in words; a source that nvcc rejects is a COMPILE_ERROR."""
    read = "it is Python and defines ModelNew"
    nvcc = _nvcc()
    sources = [source for source in cuda_sources(text) if not _needs_torch(source)]
    if nvcc is None or not sources:
        return read
    arch = device.arch if device.kind == "cuda" else "sm_90a"
    for source in sources:
        if error := _first_error(nvcc, source, arch):
            raise Failed(Verdict.COMPILE_ERROR, error)
    return f"{read}, and nvcc compiles its CUDA sources for {arch}"


def cuda_sources(text: str) -> list[str]:
    """The string literals that hold kernels."""
    return [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value
    ]


def kernel_names(text: str) -> set[str]:
    """Names of the kernels in a candidate's text."""
    plain = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", "\n".join(cuda_sources(text)))
    return set(re.findall(r"__global__\s[^;{(]*?\bvoid\s+(\w+)\s*\(", plain))


def _needs_torch(source: str) -> bool:
    return re.search(r"#\s*include\s*[<\"](torch|ATen|c10)/", source) is not None


def _nvcc() -> str | None:
    settings = read_settings()
    if settings.cuda_home and (found := settings.cuda_home / "bin" / "nvcc").exists():
        return str(found)
    return shutil.which("nvcc", path=settings.search_path) or shutil.which("nvcc", path="/usr/local/cuda/bin")


def _first_error(nvcc: str, source: str, arch: str) -> str:
    with tempfile.TemporaryDirectory(prefix="kernelwright-nvcc-") as folder:
        file = Path(folder) / "kernels.cu"
        file.write_text(source, encoding="utf-8")
        command = [nvcc, "-std=c++17", gencode(arch), "-c", str(file), "-o", str(file.with_suffix(".o"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(Verdict.COMPILE_TIMEOUT, f"nvcc was still running after {LIMIT_S:.0f} s") from None
        if done.returncode == 0:
            return ""
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return (lines or done.stderr.splitlines() or ["nvcc failed"])[0].replace(folder + "/", "")[:500]
