"""The emitted file of every example: runs in a fresh process and in a notebook, is clean, and is always the same."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kernelwright.emit.original import original_of
from tests.stages import EXAMPLES, NAMES, emitted, problem_of

ROOT = EXAMPLES.parent
SCRIPT = Path(__file__).parent / "fresh_process.py"

# It makes its tensors on a GPU.
NEEDS_GPU = ("cuda_inputs",)
ON_CPU = tuple(name for name in NAMES if name not in NEEDS_GPU)

DEVICES = ("cpu", "h200")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The examples' emitted files for the CPU."""
    folder = tmp_path_factory.mktemp("examples")
    made = {name: folder / f"{name}.py" for name in ON_CPU}
    for name, path in made.items():
        path.write_text(emitted(name, "cpu"))
    return made


@pytest.fixture(scope="session")
def outcomes(
    files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, dict[str, object]]]:
    """What a process that cannot import kernelwright says of each file, imported under -W error."""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", SCRIPT, *files.values()]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=elsewhere, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("name", ON_CPU)
def test_the_file_gives_the_originals_answers_in_a_fresh_process(
    name: str, outcomes: dict[str, dict[str, dict[str, object]]]
) -> None:
    row = outcomes[name]
    assert not row["wrong"]
    assert row["launches"]["as planned"]
    assert not row["launches"]["smaller batch"]
    assert not row["launches"]["double"] or name == "double_precision"


def test_every_file_runs_in_a_notebook(files: dict[str, Path], outcomes: object) -> None:
    """Cell by cell in one notebook, where each file's names replace those of the one before."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    check = (
        "new, x = ModelNew(*get_init_inputs()), get_inputs()\n"
        "with torch.no_grad():\n    y = new(*x)\nassert not ModelNew.warned\nprint(ModelNew.__doc__)"
    )
    cells = [nbformat.v4.new_code_cell(text) for path in files.values() for text in (path.read_text(), check)]
    book = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    printed = [out["text"] for cell in book.cells for out in cell.outputs if out.get("name") == "stdout"]
    assert sum("Model" in text for text in printed) == len(files)


def test_the_same_problem_gives_the_same_bytes_in_another_process() -> None:
    """Hashes of strings differ from process to process, and with them the order of sets."""
    code = (
        "import hashlib\nfrom tests.stages import NAMES, emitted\n"
        "for name in NAMES:\n    for device in ('cpu', 'h200'):\n"
        "        print(name, device, hashlib.sha256(emitted(name, device).encode()).hexdigest())"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    here = [
        f"{name} {device} {hashlib.sha256(emitted(name, device).encode()).hexdigest()}"
        for name in NAMES
        for device in DEVICES
    ]
    assert done.stdout.splitlines() == here


def test_emitting_twice_gives_the_same_bytes() -> None:
    for name in ("mlp_block", "batchnorm_residual", "mixed_dtypes"):
        for device in DEVICES:
            assert emitted.__wrapped__(name, device) == emitted(name, device)


# --- what stands in the file


def our_part(name: str, device: str) -> str:
    """The emitted text without the user's own."""
    text = emitted(name, device)
    own = original_of(problem_of(name).source).text
    assert own in text, "the original is kept as it is"
    return text.replace(own, "")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_the_file_holds_none_of_the_words_that_static_checks_reject(name: str, device: str) -> None:
    """KernelBench looks for these words anywhere in the text, comments and strings too."""
    ours = our_part(name, device)
    for word in (r"\btry\s*:", r"\bexcept\b", r"\bpass\b"):
        assert not re.search(word, ours), f"{word} in {name} for {device}"
    assert "load_inline" in ours


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_clean_python_and_imports_nothing_of_ours(name: str, device: str) -> None:
    text = emitted(name, device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(text, f"{name}.py", "exec")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    modules = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    modules |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    allowed = {"collections", "ctypes", "inspect", "math", "sys", "torch", "warnings", "weakref", "__future__"}
    assert {module.partition(".")[0] for module in modules} <= allowed
    assert [c.name for c in tree.body if isinstance(c, ast.ClassDef)][-1] == "ModelNew"


# What our own code may call of PyTorch: all of it is in PyTorch 2.0.
OF_PYTORCH_2_0 = frozenset(
    """
    torch._C torch._C._functorch torch._C._functorch.peek_interpreter_stack torch.autograd torch.autograd.forward_ad
    torch.autograd.forward_ad._current_level torch.Tensor torch.nn.Parameter torch.nn torch.strided
    torch.channels_last torch.device torch.float16 torch.bfloat16 torch.float32 torch.float64 torch.int8 torch.int16
    torch.int32 torch.int64 torch.uint8 torch.bool torch.empty torch.full torch.tensor torch.is_grad_enabled
    torch.get_default_dtype torch.is_autocast_enabled torch.is_autocast_cpu_enabled torch.jit torch.jit.is_tracing
    torch.ops torch.ops.loaded_libraries torch.cuda torch.cuda.is_available torch.cuda.get_device_capability
    torch.cuda.current_stream torch.cuda.device torch.cuda.is_current_stream_capturing torch.backends
    torch.backends.cuda torch.backends.cudnn torch.sum torch.mean torch.prod torch.amax torch.amin torch.max
    torch.min torch.argmax torch.argmin torch.any torch.all torch.std torch.var torch.logsumexp torch.softmax
    torch.log_softmax torch.cumsum torch.cumprod torch.cummax torch.cat torch.stack torch.flip torch.gather
    torch.index_select torch.sort torch.topk torch.bmm torch.mm torch.matmul torch.addmm torch.roll torch.tril
    torch.triu torch.arange torch.repeat_interleave torch.take_along_dim torch.scatter torch.outer torch.linalg
    torch.linalg.vector_norm torch.rand torch.randn torch.bernoulli torch.rand_like torch.randn_like
    torch.searchsorted torch.bucketize torch.masked_select torch.where torch.einsum F.linear F.conv1d F.conv2d
    F.conv3d F.conv_transpose1d F.conv_transpose2d F.conv_transpose3d F.layer_norm F.group_norm F.batch_norm
    F.dropout F.embedding F.max_pool1d F.max_pool2d F.max_pool3d F.avg_pool1d F.avg_pool2d F.avg_pool3d
    F.adaptive_avg_pool1d F.adaptive_avg_pool2d F.adaptive_avg_pool3d F.pixel_shuffle F.pixel_unshuffle F.one_hot
    F.scaled_dot_product_attention F.pad
    """.split()
)


def torch_names(text: str) -> set[str]:
    """Every dotted name under torch and F in the code, without what is an operator by its ATen name."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if re.fullmatch(r"(torch|F)(\.\w+)+", dotted) and not dotted.startswith("torch.ops.aten"):
                found.add(dotted)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_only_functions_of_pytorch_2_0_are_called(device: str) -> None:
    for name in NAMES:
        text = emitted(name, device)
        start = text.index("# --- The kernels, and the model that runs them.")
        assert torch_names(text[start:]) <= OF_PYTORCH_2_0


def test_every_function_emit_knows_is_in_pytorch_2_0() -> None:
    from kernelwright.emit.expressions import PUBLIC, WITHOUT_BACKEND

    assert {*PUBLIC.values(), *(name for name, _ in WITHOUT_BACKEND.values())} <= OF_PYTORCH_2_0
