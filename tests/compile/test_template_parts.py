"""Each part of a template's headers compiles with what it brings along, and with nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.build.cuda import nvcc_command
from kernelwright.build.toolchain import has_cuda
from kernelwright.generate.generate import headers_of
from kernelwright.kernels.template import inline_with_templates, template_parts
from kernelwright.settings import read_settings

pytestmark = pytest.mark.skipif(not has_cuda(read_settings()), reason="no CUDA compiler")

INCLUDE = re.compile(r"^#include.*$", re.MULTILINE)
# What the headers include of CUDA's own, which cannot stand within a namespace.
INCLUDES = "".join(f"#include <{name}>\n" for name in ("cuda.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h"))


def isolated_parts() -> Iterator[str]:
    """Each name with the text it brings along, in a namespace of its own: what is not brought along is not there."""
    headers = headers_of("cuda")
    parts = [part for header in headers for part in template_parts(header, "cuda") if part.namespace]
    for name in dict.fromkeys(name for part in parts for name in sorted(part.names())):
        text = INCLUDE.sub("", inline_with_templates({name}, headers, "cuda"))
        space = f"kw_{name.replace('::', '_')}"
        yield text.replace("namespace kw", f"namespace {space}").replace("kw::", f"{space}::")


def test_each_part_brings_along_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "parts.cu").write_text(INCLUDES + "\n".join(isolated_parts()))
    command = [*nvcc_command("sm_90a", read_settings()), "-cubin", "-o", "parts.cubin", "parts.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, [line for line in done.stderr.splitlines() if "error" in line][:20]
