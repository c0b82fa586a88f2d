"""Workers as processes: isolation levels, limits, stopping, killing, and what the judge reads of them."""

import contextlib
import ctypes
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.errors import InternalError
from kernelwright.judge import process
from kernelwright.judge.cell import LEVELS
from kernelwright.judge.process import Cell, Ended, Limits, Reply, Worker, Zygote
from kernelwright.judge.wire import Op, Status

GIB = 1 << 30


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as one:
        yield one


@pytest.fixture
def start(zygote: Zygote, tmp_path: Path):
    """Workers in a folder of the test's, ended with it."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if os.access(parent, os.W_OK) and parent.name.startswith(("pytest", "popen")):
            parent.chmod(0o755)
    started: list[Worker] = []
    memory = os.memfd_create("pool")
    os.ftruncate(memory, 4096)

    def make(code: str = "", level: str = "", memory_bytes: int = 32 * GIB, disk_bytes: int = GIB) -> Worker:
        folder = tmp_path / f"worker{len(started)}"
        folder.mkdir()
        model = "class ModelNew(torch.nn.Module):\n    def forward(self, x): return x\n"
        text = f"import torch, os, sys, time\n{code}\n{model}"
        (folder / "candidate.py").write_text(text)
        limits = Limits(memory_bytes=memory_bytes, disk_bytes=disk_bytes, processes=64)
        cell = Cell(
            folder, limits, threads=1, gpu=False, level=level or zygote.strongest_level(False, lambda level: True)
        )
        started.append(zygote.start(cell, memory))
        return started[-1]

    yield make
    for worker in started:
        worker.kill()
    os.close(memory)


def load(worker: Worker, limit_s: float = 30.0, idle_limit_s: float = math.inf) -> Reply:
    brief = {
        "file": str(worker.cell.folder / "candidate.py"),
        "name": "candidate",
        "entry": "ModelNew",
        "variant": "plain",
        "device": "cpu",
        "arguments": ["(", ["("], ["{"]],
        "tensors": [],
        "state": [],
        "cuda_means_device": False,
    }
    worker.send(Op.LOAD, brief=brief)
    return worker.wait(limit_s, idle_limit_s=idle_limit_s)


CROWD = """
for number in range(100):
    try:
        child = os.fork()
    except OSError:
        break
    if not child:
        time.sleep(60)
        os._exit(0)
else:
    raise SystemExit("a hundred processes")
"""
THREADS = "import threading\nfor _ in range(8): threading.Thread(target=time.sleep, args=(1,)).start()"


def test_a_worker_that_has_all_the_processes_it_may_have_leaves_others_theirs(start) -> None:
    for code in (CROWD, THREADS):
        reply = load(start(code, "namespaces", memory_bytes=1024 * GIB))
        assert reply.status is Status.STATE_BY_NAME, reply.message


def test_a_level_that_is_known_to_work_need_only_start(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_levels", {})
    monkeypatch.setattr(zygote, "expected", "limits")
    assert zygote.strongest_level(False, lambda level: pytest.fail("it was tried again")) == "limits"


@pytest.mark.parametrize("told", ["", "walls of our own", "landlock"])
def test_a_level_that_is_not_known_or_does_not_start_is_looked_for(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setattr(process, "_levels", {})
    monkeypatch.setattr(zygote, "expected", told)
    monkeypatch.setattr(zygote, "starts", lambda level, gpu: level != "landlock")
    assert zygote.strongest_level(False, lambda level: True) == "namespaces"


def test_a_zygote_that_does_not_start_is_missed_when_a_worker_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    with Zygote() as broken, pytest.raises(InternalError, match="could not be started"):
        broken.starts("limits", gpu=False)


def require(zygote: Zygote, level: str) -> None:
    if not zygote.starts(level, gpu=False):
        pytest.skip(f"{level} is not possible on this machine")


@pytest.mark.parametrize("level", LEVELS)
def test_a_worker_runs_at_every_level_that_starts_here(zygote: Zygote, start, level: str):
    require(zygote, level)
    assert load(start(level=level)).status is Status.STATE_BY_NAME


@pytest.mark.parametrize("level", LEVELS[:2])
def test_files_outside_the_cell_cannot_be_read(zygote: Zygote, start, tmp_path: Path, level: str):
    require(zygote, level)
    secret = tmp_path / "secret.txt"
    secret.write_text("42")
    secret.chmod(0o644)
    reply = load(start(f"open('{secret}').read(); raise SystemExit('read it')", level=level))
    assert reply.status is Status.LOAD_ERROR
    assert "PermissionError" in reply.message or "FileNotFoundError" in reply.message


@pytest.mark.parametrize("level", LEVELS[:2])
def test_files_outside_the_cell_cannot_be_written(zygote: Zygote, start, tmp_path: Path, level: str):
    require(zygote, level)
    tmp_path.chmod(0o777)
    load(start(f"open('{tmp_path}/planted', 'w').write('x')", level=level))
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("level", LEVELS[:2])
def test_there_is_no_network(zygote: Zygote, start, level: str):
    require(zygote, level)
    reply = load(start("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM)", level=level))
    assert "PermissionError" in reply.message


@pytest.mark.parametrize("level", LEVELS[:2])
def test_another_process_cannot_be_signalled(zygote: Zygote, start, level: str):
    require(zygote, level)
    reply = load(start(f"os.kill({os.getpid()}, 0)", level=level))
    assert "ProcessLookupError" in reply.message or "PermissionError" in reply.message


def test_the_system_calls_that_would_fool_the_judge_are_refused(start):
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.syscall(323, 0) < 0 and ctypes.get_errno() == 1, 'userfaultfd'\n"
        "assert libc.ptrace(0, 0, 0, 0) < 0 and ctypes.get_errno() == 1, 'ptrace'\n"
    )
    worker = start(code)
    if worker.cell.level == "limits" or os.uname().machine != "x86_64":
        pytest.skip("no seccomp here")
    assert load(worker).status is Status.STATE_BY_NAME


def test_nothing_of_the_judges_environment_is_handed_on(start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_TOKEN", "1")
    reply = load(start("raise SystemExit(' '.join(sorted(os.environ)) + open('/proc/self/environ').read())"))
    assert "PATH" in reply.message
    assert "SECRET_TOKEN" not in reply.message


def test_a_worker_that_exits_is_told_from_one_that_crashes(start):
    with pytest.raises(Ended) as left:
        load(start("os._exit(3)"))
    assert (left.value.how, left.value.code) == ("exit", 3)
    with pytest.raises(Ended) as crashed:
        load(start("os.kill(os.getpid(), 11)"))
    assert (crashed.value.how, crashed.value.code) == ("signal", 11)


def test_a_worker_that_does_not_answer_is_given_up(start):
    began = time.perf_counter()
    with pytest.raises(Ended) as ended:
        load(start("time.sleep(60)"), limit_s=1.0)
    assert ended.value.how == "timeout"
    assert time.perf_counter() - began < 5


def test_killing_a_worker_takes_its_children_and_grandchildren_down(start):
    code = "if os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(100)\n    os._exit(0)"
    worker = start(code)
    load(worker)
    deadline = time.perf_counter() + 10
    while len(family := worker.tree()) < 3 and time.perf_counter() < deadline:
        time.sleep(0.05)
    assert len(family) == 3
    worker.kill()
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.perf_counter() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in family)


def test_a_stopped_worker_stands_still_and_its_helpers_too(start):
    worker = start("if os.fork() == 0:\n    while True: pass")
    load(worker)
    worker.stop()
    time.sleep(0.1)
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in worker.tree()]
    assert states == ["T", "T"]
    worker.resume()
    assert worker.ask(Op.GIVE_STATE, 10, brief={"state": []}).status is Status.DONE


def test_the_judge_reads_a_workers_memory(start):
    worker = start()
    load(worker)
    assert worker.can_be_read()
    assert not worker.read(8, 8, ctypes.addressof(ctypes.create_string_buffer(8)))


def test_memory_beyond_the_limit_is_refused_or_ends_the_worker(start):
    worker = start("kept = []\nwhile True: kept.append(torch.ones(1 << 24))", memory_bytes=GIB)
    with contextlib.suppress(Ended):  # found by the judge before an allocation failed
        assert load(worker).status is Status.OUT_OF_MEMORY


def test_an_answer_that_nobody_asked_for_is_noticed(start):
    code = "for fd in range(3, 64):\n    try: os.write(fd, b'\\x01' * 3)\n    except OSError: pass"
    worker = start(code)
    load(worker)
    with pytest.raises(Ended) as ended:
        worker.ask(Op.GIVE_STATE, 5, brief={"state": []})
    assert ended.value.how == "unasked"


def test_what_a_worker_prints_is_kept_up_to_a_megabyte(start):
    worker = start("os.write(2, b'hello\\n')\nfor _ in range(64): os.write(1, b'x' * (1 << 16))")
    load(worker)
    time.sleep(0.2)
    assert worker.log().startswith("hello")
    assert len(worker.log()) <= 1 << 20


HOPS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile long* hops;
static char* stacks;
static int hop(void* nothing) {
  for (volatile int spin = 0; spin < 20000; spin++) {}
  long n = ++*hops;
  clone(hop, stacks + (n % 64 + 1) * 65536, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_PARENT, 0);
  syscall(SYS_exit, 0);
  return 0;
}
int main(int count, char** words) {
  hops = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(words[1], O_RDWR), 0);
  stacks = malloc(65 * 65536);
  clone(hop, stacks + 65536, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_PARENT, 0);
  pause();
}
"""
STARTS_HOPPING = f"""
import mmap, subprocess
open('hop.c', 'w').write({HOPS!r})
open('count', 'wb').write(bytes(4096))
subprocess.run(['gcc', '-O1', '-o', 'hop', 'hop.c'], check=True)
subprocess.Popen(['./hop', 'count'])
count = mmap.mmap(os.open('count', os.O_RDWR), 4096)
while count[:8] == bytes(8): time.sleep(0.01)
"""


def test_a_process_that_moves_from_one_id_to_the_next_is_stopped_all_the_same(zygote: Zygote, start):
    """It starts another process and leaves, every few microseconds: whoever looks for it finds it gone."""
    require(zygote, "namespaces")
    worker = start(STARTS_HOPPING, level="namespaces")
    assert load(worker).status is Status.STATE_BY_NAME
    worker.stop()
    seen = (worker.cell.folder / "count").read_bytes()[:8]
    time.sleep(0.05)
    assert (worker.cell.folder / "count").read_bytes()[:8] == seen
    worker.resume()
    worker.stop()


@pytest.mark.parametrize("level", LEVELS[:2])
def test_memory_that_others_share_cannot_be_taken_away(zygote: Zygote, start, level: str):
    require(zygote, level)
    holes = """
import ctypes, mmap
libc = ctypes.CDLL(None)
file = os.memfd_create('shared'); os.ftruncate(file, 4096)
pages = mmap.mmap(file, 4096)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
assert libc.madvise(address, ctypes.c_size_t(4096), 9) == -1
assert libc.madvise(address, ctypes.c_size_t(4096), 21) == -1
assert libc.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(4096)) == -1
assert libc.madvise(address, ctypes.c_size_t(4096), 4) == 0
assert libc.fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(4096)) == 0
"""
    reply = load(start(holes, level=level))
    assert reply.status is Status.STATE_BY_NAME, reply.message


def test_an_exception_that_cannot_be_printed_is_still_named(start):
    reply = load(start("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd"))
    assert reply.status is Status.LOAD_ERROR
    assert "Odd" in reply.message


def test_a_worker_that_hangs_without_compiling_has_less_time_than_a_compiler(start):
    worker = start("time.sleep(1000)")
    with pytest.raises(Ended) as ended:
        load(worker, limit_s=600, idle_limit_s=1)
    assert (ended.value.how, ended.value.code, ended.value.building) == ("timeout", 1, False)


def test_who_runs_on_after_having_been_stopped_is_found_out(start) -> None:
    worker = start()
    load(worker)
    worker.stop()
    worker.require_still()
    worker.resume()
    worker.stop()
    os.kill(worker.pid, signal.SIGCONT)
    time.sleep(0.05)
    with pytest.raises(Ended, match="awake"):
        worker.require_still()


def test_what_a_judge_left_that_was_killed_is_removed_and_nothing_else(tmp_path: Path) -> None:
    living, dead, strange = (tmp_path / f"{process.FOLDERS}{name}" for name in ("living", "dead", "strange"))
    for folder in (living, dead, strange):
        (folder / "case").mkdir(parents=True)
    held = process.claimed(living)
    os.close(process.claimed(dead))
    process.remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == [living, strange]
    os.close(held)


@pytest.mark.parametrize(("own", "busy"), [(380, False), (200, True)])
def test_what_this_process_does_is_not_what_others_do(monkeypatch: pytest.MonkeyPatch, own: int, busy: bool) -> None:
    """Of 1000 ticks 400 were used; how many of them by this process decides."""
    ticks = iter([(0, 0), (400, 1000)])
    seconds = iter([0.0, own / os.sysconf("SC_CLK_TCK")])
    monkeypatch.setattr(process, "_ticks", lambda: next(ticks))
    monkeypatch.setattr(process.time, "process_time", lambda: next(seconds))
    assert process.Others().busy() is busy
