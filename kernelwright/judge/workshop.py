"""A candidate's text comes in; folders and workers in which it can be run, one after the other, go out."""

import contextlib
import copy
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from kernelwright.flags import arch_list
from kernelwright.judge import folders
from kernelwright.judge.candidate import Candidate, Facts, imported_names
from kernelwright.judge.case import Case
from kernelwright.judge.contestant import Contestant, Entry, Layout, Shape, plan_layout
from kernelwright.judge.policy import Policy
from kernelwright.judge.pool import Planner, Pool, make_pool
from kernelwright.judge.process import Cell, Ended, Limits, Zygote, available_bytes
from kernelwright.judge.shortage import CURE
from kernelwright.judge.verdict import Failed, Label, Verdict
from kernelwright.load import Problem

__all__ = ["POISON", "SOURCE", "Arena", "Workshop", "open_arena", "open_workshop"]

SOURCE = "source"  # importable, so that nothing else may lie in it: a cache called triton would be a package
PROBE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
KEPT_BYTES, MOST_KEEPSAKES = 512 << 20, 8
POISON = 0x80  # fresh memory then holds 0x7F bytes: 3.4e38 as float32, NaN as float16


class Arena:
    """A pool and where everything lies in it."""

    def __init__(self, pool: Pool, layout: Layout) -> None:
        self.pool = pool
        self.layout = layout


class Workshop:
    """Private folders: the baselines', and the candidate's, where only what it built outlives a worker."""

    def __init__(self, folder: Path, zygote: Zygote, case: Case, policy: Policy) -> None:
        self.folder = folder / "candidate"
        self.baseline_folder = folder / "baseline"
        self._kept = folder / "kept"
        self._sources: dict[str, str] = {}
        self._zygote = zygote
        self._case = case
        self._policy = policy
        self.level = zygote.strongest_level(case.gpu, lambda level: not case.gpu or self._reaches_gpu(folder, level))
        for path in (self.folder, self.baseline_folder):
            (path / SOURCE).mkdir(parents=True)

    def with_workers_of(self, zygote: Zygote) -> "Workshop":
        """The same folders; workers come from another process."""
        other = copy.copy(self)
        other._zygote = zygote
        return other

    def write(self, candidate: Candidate, facts: Facts) -> None:
        files = {"model.py": self._case.problem.source, **_siblings(self._case.problem)}
        self._sources = {"candidate.py": candidate.text, **(files if facts.imports_reference else {})}
        _write_sources(self.folder, self._sources)
        _write_sources(self.baseline_folder, files)

    def keep(self) -> None:
        """Remember the candidate's folder as the build left it."""
        if not folders.is_within(self.folder, self._policy.disk_bytes):
            raise Failed(Verdict.OOM, "the build left more in its folder than is allowed")
        folders.copy_plain(self.folder, self._kept)

    def restore(self) -> None:
        """As the build left it: what a later worker wrote is gone before the next one starts.

        The sources are the ones that were handed in, whatever a worker made of them: those are judged.
        """
        folders.remove(self.folder)
        folders.copy_plain(self._kept, self.folder)
        _write_sources(self.folder, self._sources)

    def candidate(self, arena: Arena, *, poison: bool = False, raised: bool = False, build: bool = False) -> Contestant:
        """A fresh worker with the candidate loaded in it."""
        keepsakes = self._most_keepsakes()
        contestant = self._start("candidate", self.folder, arena, poison=poison, raised=raised, keepsakes=keepsakes)
        if build:
            contestant.load_limit_s = contestant.call_limit_s = self._policy.build_limit_s
            contestant.idle_limit_s = max(self._policy.load_limit_s, self._policy.call_limit_s)
        return self._loaded(contestant, self.folder / SOURCE / "candidate.py", "ModelNew", "plain")

    def unloaded_baseline(self, name: str, variant: str, arena: Arena, *, raised: bool) -> tuple[Contestant, Entry]:
        """A fresh worker for the problem's own model, through the same door, still empty; and what is to be loaded."""
        contestant = self._start(name, self.baseline_folder, arena, poison=False, raised=raised)
        return contestant, self._case.entry(self.baseline_folder / SOURCE / "model.py", "Model", variant)

    def run(self, command: list[str], limit_s: float, environment: dict[str, str]) -> tuple[int | None, str]:
        """A program in the candidate's cell: its exit code, None if it was killed or took too long; what it said."""
        cell = replace(self._cell(self.folder, poison=False, raised=False), program=tuple(command))
        cell = replace(cell, environment={**cell.environment, **environment})
        nothing = os.memfd_create("pool", os.MFD_CLOEXEC)
        try:
            with self._zygote.start(cell, nothing) as worker:
                try:
                    worker.wait(limit_s)
                except Ended as ended:
                    return (ended.code if ended.how == "exit" else None), worker.log()
                return None, worker.log()
        finally:
            os.close(nothing)

    def _start(
        self, name: str, folder: Path, arena: Arena, *, poison: bool, raised: bool, keepsakes: int = 0
    ) -> Contestant:
        worker = self._zygote.start(self._cell(folder, poison=poison, raised=raised), arena.pool.fd)
        limits = self._policy.load_limit_s, self._policy.call_limit_s
        return Contestant(name, worker, arena.pool, arena.layout, *limits, keepsakes, self._case.watched())

    def _most_keepsakes(self) -> int:
        """Outputs that are held for long: of large ones fewer, and none where they may change with something else."""
        case = self._case
        if case.hands_out_state or Label.ALIASES_INPUT not in self._policy.forbid - case.habits:
            return 0
        room = min(KEPT_BYTES, available_bytes() // 16)
        return min(MOST_KEEPSAKES, room // max(case.output_bytes, 1))

    def _cell(self, folder: Path, *, poison: bool, raised: bool, level: str = "") -> Cell:
        return Cell(
            folder=folder,
            limits=Limits(self._policy.memory_bytes or available_bytes() * 4 // 5, self._policy.disk_bytes),
            threads=self._case.threads,
            gpu=self._case.gpu,
            level=level or self.level,
            hidden=(self._case.problem.path.resolve(),),
            perturb=POISON if poison else 0,
            raised=raised,
            environment=_gpu_environment(self._case),
        )

    def _reaches_gpu(self, folder: Path, level: str) -> bool:
        """Whether a worker at this level and the judge see each other's device memory: one call, there and back."""
        device = self._case.torch_device
        x = torch.arange(8.0, device=device)
        home = folder / f"probe-{level}"
        (home / SOURCE).mkdir(parents=True)
        file = home / SOURCE / "candidate.py"
        file.write_text(PROBE)
        planner = Planner()
        layout = plan_layout(planner, [x], 1, [], spare=False)
        pool = make_pool(planner, device)
        try:
            worker = self._zygote.start(self._cell(home, poison=False, raised=False, level=level), pool.fd)
            with contextlib.closing(Contestant("probe", worker, pool, layout, 60.0, 30.0)) as contestant:
                contestant.load(Entry(file, "ModelNew", "plain", ((), {}), ()), 0, self._case.worker_device)
                contestant.map(Shape.of((x,), x, self._case.worker_device), [0])
                pool.view(layout.slots[0][0]).copy_(x)
                contestant.call(range(1), 0)
                return torch.equal(contestant.outputs(0)[0], x + 1)
        except Failed as failed:
            if failed.shortage:  # it would be the same at every level
                words = f"a worker process does not fit on the GPU: {failed.detail}. {CURE}"
                raise Failed(Verdict.JUDGE_ERROR, words, shortage=True) from failed
            return False
        finally:
            pool.close()

    def _loaded(self, contestant: Contestant, file: Path, name: str, variant: str) -> Contestant:
        try:
            contestant.load(self._case.entry(file, name, variant), self._case.model_seed, self._case.worker_device)
        except BaseException:
            contestant.close()
            raise
        return contestant


def _write_sources(folder: Path, sources: dict[str, str]) -> None:
    folders.make_folder(folder / SOURCE)
    for name, text in sources.items():
        path = folder / SOURCE / name
        if path.is_dir() and not path.is_symlink():
            folders.remove(path)
        path.unlink(missing_ok=True)  # a link there may lead anywhere
        path.write_text(text, encoding="utf-8")


def _siblings(problem: Problem) -> dict[str, str]:
    """Modules beside the problem's file that it imports, directly or not; nothing else of that folder is handed on."""
    found: dict[str, str] = {}
    left = [problem.source]
    while left:
        for name in imported_names(left.pop()):
            path = problem.path.resolve().parent / f"{name}.py"
            if path.name not in found and path.is_file() and path != problem.path.resolve():
                found[path.name] = path.read_text(encoding="utf-8")
                left.append(found[path.name])
    return found


def _gpu_environment(case: Case) -> dict[str, str]:
    """The one GPU that is judged on, by its own name: numbers depend on an environment that workers do not have."""
    if not case.gpu:
        return {}
    uuid = str(torch.cuda.get_device_properties(case.torch_device).uuid)
    return {
        "CUDA_VISIBLE_DEVICES": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}",
        "TORCH_CUDA_ARCH_LIST": arch_list(case.device),
    }


@contextlib.contextmanager
def open_workshop(zygote: Zygote, case: Case, policy: Policy) -> Iterator[Workshop]:
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=zygote.folder))
    folder.chmod(0o711)
    try:
        yield Workshop(folder, zygote, case, policy)
    finally:
        folders.remove(folder)


@contextlib.contextmanager
def open_arena(case: Case, slots: int, *, spare: bool = False) -> Iterator[Arena]:
    planner = Planner()
    layout = plan_layout(planner, case.tensors, slots, list(case.state.values()), spare=spare)
    pool = make_pool(planner, case.torch_device)
    try:
        yield Arena(pool, layout)
    finally:
        pool.close()
