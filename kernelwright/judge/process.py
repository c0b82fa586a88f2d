"""A description of a worker comes in; a running, confined process that answers the judge goes out.

`Worker` is the judge's end: it sends commands, waits with a limit, stops and continues the whole tree of processes
(a candidate runs only while it is its turn), and kills it. `Zygote` is where workers come from.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import itertools
import json
import math
import mmap
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelwright.errors import EnvironmentProblem, InternalError
from kernelwright.judge import cell, folders, wire
from kernelwright.judge.pool import sealed_memory
from kernelwright.judge.wire import Op, Status
from kernelwright.judge.zygote import REPORT, SWEEP
from kernelwright.settings import read_settings

__all__ = [
    "Cell",
    "Ended",
    "Limits",
    "Others",
    "Reply",
    "Worker",
    "Zygote",
    "available_bytes",
    "borrowed_zygote",
    "machine_is_busy",
    "printable",
    "shared_workers",
]

LOG_BYTES = 1 << 20
START_LIMIT_S = 120.0
STOP_LIMIT_S = 20.0
MOST_FILES = 1 << 14  # open ones that are looked at, of all its processes
GIB = 1 << 30
READ_TRIES, READ_PAUSE_S = 20, 0.001
MOST_PIECES = 1024  # that one system call reads: UIO_MAXIOV
FOLDERS, OWNER = "kernelwright-judge-", "owner"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker may use."""

    memory_bytes: int
    disk_bytes: int
    scratch_bytes: int = 1 * GIB
    processes: int = 512


@dataclass(frozen=True, slots=True)
class Cell:
    """Where and under what restrictions a worker runs.

    folder     its private, writable folder: sources, builds, temporary files
    hidden     files it must not see although they lie in a folder it may read
    perturb    the byte that fresh memory is filled with; 0 for none
    raised     run it before other users' processes, if we may: less noise in times
    environment  variables beyond those that every worker has
    program    run this instead of waiting for commands
    """

    folder: Path
    limits: Limits
    threads: int
    gpu: bool
    level: str
    hidden: tuple[Path, ...] = ()
    perturb: int = 0
    raised: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()


class Ended(Exception):
    """A worker gave no answer.

    how     "exit", "signal", "timeout", "memory", "disk"; "unasked": it answered what nobody had asked; "restless": it
            cannot be stopped; or "awake": it ran on although it had been stopped
    code    exit status, signal number, or the seconds after which it was over
    building  whether a compiler was running in its tree
    """

    def __init__(self, how: str, code: int = 0, building: bool = False) -> None:
        super().__init__(f"{how} {code}")
        self.how = how
        self.code = code
        self.building = building


@dataclass(frozen=True, slots=True)
class Reply:
    """A status byte, when it came on the judge's clock, and the worker's words."""

    status: Status
    at_s: float
    message: str = ""


class Zygote:
    """A process with torch imported, from which workers are forked; one lives for as long as its judge.

    It takes seconds to get ready, beside whatever the judge does meanwhile: the first worker waits for it. `expected`
    is the isolation that was found to be the strongest on this machine before; "" for not known. `busy`: whether others
    use the machine, if that is known.
    """

    def __init__(self, expected: str = "", *, busy: bool | None = None) -> None:
        self.expected = expected
        self.busy = machine_is_busy() if busy is None else busy
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = Path(__file__).with_name("zygote.py")
        remove_leftovers(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
        self.folder.chmod(0o711)
        self._claim = claimed(self.folder)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-P", str(program), str(theirs.fileno()), str(self.folder)],
            pass_fds=[theirs.fileno(), self._claim],  # as long as one of the two lives, the folder is somebody's
            env=_base_environment() | _thread_waiting(self.busy),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self.socket = ours
        self.socket.settimeout(START_LIMIT_S)
        self._ready = False

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        folders.remove(self.folder)
        os.close(self._claim)

    def start(self, cell: Cell, pool_fd: int) -> "Worker":
        """A worker that waits for its first command; `pool_fd` is the memory that holds its arguments."""
        return Worker(self, cell, pool_fd)

    def wait_until_ready(self) -> None:
        """At once after the first time."""
        if self._ready:
            return
        if self.socket.recv(16) != b"ready":
            _, complaint = self.process.communicate(timeout=10)
            lines = complaint.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise InternalError(f"the worker process could not be started: {lines[-1]}.", where="judge")
        self._ready = True

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        self.wait_until_ready()
        socket.send_fds(self.socket, [json.dumps(request).encode()], files)
        answer = self.socket.recv(16)
        if len(answer) != 4:
            raise InternalError("the process that forks workers died.", where="judge")
        return int(struct.unpack("<I", answer)[0])

    def strongest_level(self, gpu: bool, works: Callable[[str], bool]) -> str:
        """The strongest isolation in which a worker starts and `works` on this machine; tried once.

        What was found before need only start: that it works takes a GPU some seconds to show.
        """
        if gpu not in _levels:
            known = self.expected in cell.LEVELS and self.starts(self.expected, gpu)
            tried = (level for level in cell.LEVELS if self.starts(level, gpu) and works(level))
            found = self.expected if known else next(tried, "")
            if not found:
                raise EnvironmentProblem(
                    "no worker process starts, not even without isolation.",
                    where="judge",
                    cure="Allow this user to start processes and to read their memory (kernel.yama.ptrace_scope <= 1).",
                )
            _levels[gpu] = found
        return _levels[gpu]

    def starts(self, level: str, gpu: bool) -> bool:
        with tempfile.TemporaryDirectory(prefix="probe-", dir=self.folder) as folder:
            probe = Cell(Path(folder), Limits(memory_bytes=64 * GIB, disk_bytes=GIB), threads=1, gpu=gpu, level=level)
            memory = os.memfd_create("probe")
            try:
                with self.start(probe, memory) as worker:
                    worker.ask(Op.GIVE_STATE, limit_s=20, brief={"state": []})
                    return gpu or worker.can_be_read()
            except Ended:
                return False
            finally:
                os.close(memory)


def claimed(folder: Path) -> int:
    """A lock on it, which goes with the last process that has this file open."""
    new = folder / f"{OWNER}.new"
    file = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / OWNER)  # under this name it is locked from the first moment on
    return file


def remove_leftovers(parent: Path) -> None:
    """Folders of judges that were killed together with the process that would have cleaned up after them."""
    for owner in parent.glob(f"{FOLDERS}*/{OWNER}"):
        with contextlib.suppress(OSError):  # somebody else's, or just going
            file = os.open(owner, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folders.remove(owner.parent)
            finally:
                os.close(file)


_levels: dict[bool, str] = {}
_shared: list[Zygote] = []


@contextlib.contextmanager
def shared_workers(expected: str = "") -> Iterator[Zygote]:
    """While this is open, judgements of this process take their workers from one zygote: torch is imported once.

    No code of a candidate runs in the zygote, so that nothing passes from one judgement to the next. `expected`: the
    isolation that a judgement on this machine said it had.
    """
    with Zygote(expected) as zygote:
        _shared.append(zygote)
        try:
            yield zygote
        finally:
            _shared.remove(zygote)


@contextlib.contextmanager
def borrowed_zygote(*, busy: bool) -> Iterator[Zygote]:
    """The shared zygote, if there is one that lives, else one of one's own, for a machine that is busy or not."""
    living = [zygote for zygote in _shared if zygote.process.poll() is None]
    if living:
        yield living[-1]
    else:
        with Zygote(busy=busy) as zygote:
            yield zygote


def _thread_waiting(busy: bool) -> dict[str, str]:
    """On a busy machine OpenMP threads that spin at a barrier wait for one that is not running: 20 ms instead of 0.1 ms
    were seen for one small matmul. There they sleep; elsewhere they do what they do for the user."""
    return {"OMP_WAIT_POLICY": "PASSIVE"} if busy else {}


def machine_is_busy() -> bool:
    """Whether others use a tenth of the machine or more, looked at for a fifth of a second."""
    others = Others()
    time.sleep(0.2)
    return others.busy()


class Others:
    """What other processes do from now on. This one, which may work meanwhile, must have none of its own."""

    def __init__(self) -> None:
        self._begin = _ticks()
        self._own_s = time.process_time()

    def busy(self) -> bool:
        """Whether they have used a tenth of the machine or more. "No" where the system does not tell."""
        if self._begin is None or (now := _ticks()) is None:
            return False
        used, total = (after - before for before, after in zip(self._begin, now, strict=True))
        own = (time.process_time() - self._own_s) * os.sysconf("SC_CLK_TCK")
        return used - own > 0.1 * total


def _ticks() -> tuple[int, int] | None:
    """Of all cores together: those not idle, and all."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)
    except (OSError, ValueError, IndexError):
        return None


class Worker:
    """The judge's end of one worker process."""

    def __init__(self, zygote: Zygote, cell: Cell, pool_fd: int) -> None:
        self.cell = cell
        self.root_pid = 0
        self.pid = 0
        self.exit_status: int | None = None
        self.unreadable = ""  # why its memory could not be read, the last time
        self._has_init = cell.level == "namespaces" and not cell.gpu
        self._swept = False
        self._stood: dict[int, str] = {}  # threads that stand still -> how often each had run by then
        self._own_root = Path(tempfile.mkdtemp(prefix="root-", dir=zygote.folder))
        command_r, self._commands = os.pipe2(os.O_CLOEXEC)
        self._replies, reply_w = os.pipe2(os.O_CLOEXEC)
        self._reports, report_w = os.pipe2(os.O_CLOEXEC)
        lifeline_r, self._lifeline = os.pipe2(os.O_CLOEXEC)
        log_r, log_w = os.pipe2(os.O_CLOEXEC)
        board_fd = sealed_memory("board", wire.BOARD_BYTES)
        self._shared = [os.fstat(file) for file in (board_fd, pool_fd)]  # what we have in common with it
        self.board = mmap.mmap(board_fd, wire.BOARD_BYTES)
        self._log = _Drain(log_r)
        theirs = [command_r, reply_w, board_fd, pool_fd, log_w, report_w, lifeline_r]
        self.keeper_pid = zygote.fork(_request(cell, self._own_root), theirs)
        for file in theirs:
            if file != pool_fd:
                os.close(file)
        self._open = [self._commands, self._replies, self._reports, self._lifeline]
        self._read_report()  # which process the tree hangs on; nothing, if it could not be confined

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, op: Op, limit_s: float, *, brief: Any = None, slots: range = range(0), seed: int = 0) -> Reply:
        """Send a command and wait for its status byte; raises `Ended` if none comes."""
        self.send(op, brief=brief, slots=slots, seed=seed)
        return self.wait(limit_s)

    def send(self, op: Op, *, brief: Any = None, slots: range = range(0), seed: int = 0) -> None:
        if select.select([self._replies], [], [], 0)[0] and os.read(self._replies, 1):
            raise Ended("unasked")
        length = 0
        if brief is not None:
            encoded = json.dumps(brief).encode()
            length = len(encoded)
            if length > wire.BRIEF_BYTES:
                raise InternalError(f"a brief of {length} bytes does not fit.", where="judge")
            self.board[:length] = encoded
        self.board[wire.MESSAGE_AT] = 0
        with contextlib.suppress(BrokenPipeError):  # it is dead; wait() will say how
            os.write(self._commands, wire.COMMAND.pack(op, slots.start, len(slots), seed, length))

    def wait(self, limit_s: float, stopping: Sequence[int] = (), idle_limit_s: float = math.inf) -> Reply:
        """The answer, when it comes.

        `stopping` are processes that are stopped at that moment: looking up the whole tree takes long enough to finish
        a call or two after having said that all are done. `idle_limit_s` is for the time in which no compiler runs.
        """
        poll = select.poll()
        poll.register(self._replies, select.POLLIN | select.POLLHUP)
        poll.register(self._reports, select.POLLIN | select.POLLHUP)
        deadline = time.perf_counter() + limit_s
        idle_since = time.perf_counter()
        while True:
            remaining = deadline - time.perf_counter()
            ready = {fd for fd, _ in poll.poll(max(0.0, min(remaining, 0.25)) * 1e3)}
            now = time.perf_counter()
            if self._replies in ready and (raw := os.read(self._replies, 1)):
                for pid in stopping:
                    _signal(pid, signal.SIGSTOP)
                return Reply(_status(raw[0]), now, self._message())
            if self._reports in ready and not self._read_report():
                raise self._ended()
            if self._replies in ready and self._reports not in ready:
                time.sleep(0.001)  # the pipe is closed; how it ended comes at once
            if remaining <= 0:
                raise Ended("timeout", round(limit_s), building=self.is_building())
            if not ready:
                self._check_use()
                if idle_limit_s < limit_s and self.is_building():
                    idle_since = now
                if now - idle_since > idle_limit_s:
                    raise Ended("timeout", round(idle_limit_s))

    def has_word(self) -> bool:
        """Whether an answer, or news of its end, is there to be waited for."""
        return bool(select.select([self._replies, self._reports], [], [], 0)[0])

    def stop(self) -> None:
        """Halt every process of the tree where it stands. Outputs then cannot change while they are read.

        It returns when nothing of it runs any more: a long system call, or leaving with much memory, goes on for
        seconds after the signal, and would take a core from whoever comes next.
        """
        begun = time.perf_counter()
        tree = self._sweep(begun + STOP_LIMIT_S) if self._has_init else self._chase(begun + STOP_LIMIT_S)
        while True:
            waited_s = time.perf_counter() - begun
            # One that waits for a disk, or for a child that was stopped, waits on; it takes no core.
            if not any(_has_thread_in(pid, "RD" if waited_s < 0.1 else "R") for pid in tree):
                self._stood = _standing(tree)
                return
            if waited_s > STOP_LIMIT_S:
                raise Ended("restless")
            time.sleep(0.0002)

    def _sweep(self, deadline: float) -> list[int]:
        """Have process 1 of their own ids stop all others at once: none can start another meanwhile."""
        self._swept, gone = False, False
        while select.select([self._reports], [], [], 0)[0] and not gone:
            gone = not self._read_report()  # answers to what was asked twice
        self._swept = gone
        while not self._swept:
            _signal(self.root_pid, SWEEP)
            if select.select([self._reports], [], [], 1.0)[0] and not self._read_report():
                break
            if time.perf_counter() > deadline:
                raise Ended("restless")
        return self.tree()

    def _chase(self, deadline: float) -> list[int]:
        """Stop all that are seen, and what they have started meanwhile, until nothing new is seen three times."""
        stopped: set[int] = set()
        quiet = 0
        while quiet < (3 if len(stopped) > 1 else 1):
            new = set(self.tree()) - stopped
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            stopped |= new
            quiet = 0 if new else quiet + 1
            if time.perf_counter() > deadline:
                raise Ended("restless")
        return sorted(stopped)

    def require_still(self) -> None:
        """Nobody who was stopped has run since: a signal from somewhere may have let it go on."""
        stood, self._stood = self._stood, {}
        now = _standing(self.tree(), "") if stood else {}
        if any(now.get(thread, runs) != runs for thread, runs in stood.items()):
            raise Ended("awake")

    def resume(self, tree: Sequence[int] | None = None) -> None:
        """Let it run; `tree`, if it was looked up before the clock started. What is stopped starts no processes."""
        self._stood = {}
        for pid in self.tree() if tree is None else tree:
            _signal(pid, signal.SIGCONT)

    def read(self, address: int, size: int, into: int) -> bool:
        """Copy `size` bytes at `address` in the worker to `into` here. What fails is tried again: on a machine that is
        short of memory or time it may work the next moment."""
        done = failed = 0
        while done < size:
            local = _Iovec(into + done, size - done)
            remote = _Iovec(address + done, size - done)
            moved = _libc.process_vm_readv(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
            if moved <= 0:
                self.unreadable = os.strerror(ctypes.get_errno())
                failed += 1
                if failed == READ_TRIES:
                    return False
                time.sleep(READ_PAUSE_S)
                continue
            done += moved
        return True

    def gather(self, addresses: Sequence[int], width: int, into: int) -> bool:
        """`width` bytes from each address, one behind the other, in as few system calls as can be."""
        for first in range(0, len(addresses), MOST_PIECES):
            some, start = addresses[first : first + MOST_PIECES], into + first * width
            local = _Iovec(start, len(some) * width)
            remote = (_Iovec * len(some))(*(_Iovec(address, width) for address in some))
            moved = _libc.process_vm_readv(self.pid, ctypes.byref(local), 1, remote, len(some), 0)
            if moved != len(some) * width and not all(
                self.read(address, width, start + number * width) for number, address in enumerate(some)
            ):
                return False
        return True

    def can_be_read(self) -> bool:
        """Whether this machine lets the judge read a worker's memory."""
        word = ctypes.create_string_buffer(8)
        start = _first_mapping(self.pid)
        return start is not None and self.read(start, 8, ctypes.addressof(word))

    def tree(self) -> list[int]:
        """The worker and all its descendants, orphans too; not the processes that guard it."""
        if not self.root_pid:
            return []
        return list(_descendants(self.root_pid))

    def alive(self) -> bool:
        return bool(self._open) and _state(self.pid) not in "ZX"

    def threads(self) -> list[int]:
        return sorted(int(name) for name in _entries(f"/proc/{self.pid}/task"))

    def spread_threads(self) -> None:
        """One core for each thread: on a busy machine the scheduler may leave two of them on one core for seconds."""
        cores = sorted(os.sched_getaffinity(0))
        for number, thread in enumerate(self.threads()):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, {cores[number % len(cores)]})

    def put_ahead(self) -> None:
        """Before other processes from now on, if we may: for one that was started as any other."""
        for thread in self.threads():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, cell.RAISED)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/autogroup").write_text(str(cell.RAISED))

    def is_building(self) -> bool:
        names = {_name(pid) for pid in self.tree()}
        return bool(names & COMPILERS)

    def forked(self) -> bool:
        """Whether a copy of the worker said that it is one."""
        return not self.board.closed and bool(self.board[wire.FORKED_AT])

    def log(self) -> str:
        return self._log.text()

    def kill(self) -> None:
        """End the whole tree. Safe to call twice."""
        if not self._open:
            return
        for pid in self.tree():
            _signal(pid, signal.SIGKILL)
        for file in self._open:
            os.close(file)
        self._open = []
        _wait_until_gone(self.keeper_pid, 30.0)
        self._log.close()
        self.board.close()
        folders.remove(self._own_root)

    def _read_report(self) -> bool:
        """Take in what the keeper says; False once the worker has ended."""
        raw = os.read(self._reports, REPORT.size)
        if len(raw) != REPORT.size:
            return False
        kind, number = REPORT.unpack(raw)
        if kind == b"R":
            self.root_pid = number
            self.pid = _wait_for_child(number)
            return True
        if kind == b"S":
            self._swept = True
            return True
        self.exit_status = number
        return False

    def _ended(self) -> Ended:
        if self.exit_status is None:
            return Ended("exit", 70)
        code = os.waitstatus_to_exitcode(self.exit_status)
        return Ended("signal", -code) if code < 0 else Ended("exit", code)

    def _check_use(self) -> None:
        if not self.root_pid:
            return
        if self._uses_more_than(self.cell.limits.memory_bytes):
            raise Ended("memory")
        if not folders.is_within(self.cell.folder, self.cell.limits.disk_bytes):
            raise Ended("disk")

    def _uses_more_than(self, most_bytes: int) -> bool:
        """Whether its processes together do; memory that they share with each other, or only hold open, counts once."""
        tree = self.tree()
        own = sum(map(_resident_bytes, tree))
        if own > most_bytes:
            return True
        ours = sum(status.st_size for status in self._shared)
        held = _held_open(tree, self._shared)
        # What is mapped takes long to count: only where there is much of it.
        mapped = sum(map(_shared_bytes, tree))
        mapped = sum(map(_share_of_shared, tree)) - ours if own + mapped - ours > most_bytes else 0
        return own + max(held, mapped) > most_bytes

    def _message(self) -> str:
        raw = self.board[wire.MESSAGE_AT : wire.MESSAGE_AT + wire.MESSAGE_BYTES].split(b"\0")[0]
        return printable(raw.decode("utf-8", "replace"))


def printable(text: str) -> str:
    """Without what would move a terminal's cursor or wipe its lines: a candidate's words must not look like ours."""
    return "".join(char for char in text if char.isprintable() or char == "\n")


COMPILERS = {
    "nvcc",
    "cicc",
    "ptxas",
    "cudafe++",
    "ninja",
    "gcc",
    "g++",
    "cc",
    "c++",
    "x86_64-linux-gn",  # names of processes have 15 letters
    "cc1",
    "cc1plus",
    "as",
    "clang",
    "clang++",
    "ld",
    "collect2",
}


def _request(cell: Cell, root: Path) -> dict[str, Any]:
    environment = _environment(cell)  # makes folders, which the worker's user then gets
    user = _other_user(cell)
    # The limit counts whatever else the user runs; of a user without other processes there is nothing to add.
    others = 0 if user else _processes_of(os.getuid())
    return {
        "root": str(root),
        "folder": str(cell.folder),
        "level": cell.level,
        "gpu": cell.gpu,
        "user": user,
        "readable": [str(path) for path in readable_paths()],
        "hidden": [str(path) for path in cell.hidden],
        "memory_bytes": cell.limits.memory_bytes,
        "file_bytes": cell.limits.disk_bytes,
        "scratch_bytes": cell.limits.scratch_bytes,
        "processes": cell.limits.processes + others,
        "perturb": cell.perturb,
        "raised": cell.raised,
        "program": cell.program,
        "loopback": bool(cell.program),
        "threads": cell.threads,
        "environment": environment,
    }


def _other_user(worker_cell: Cell) -> int:
    """Root gives each worker's folder, and the worker, to a user who has nothing else, if he can read what they need;
    others stay who they are.

    Not one user for all: the limit on processes counts a user's, and one worker's fork bomb would be everybody's.
    """
    if os.getuid() != 0 or worker_cell.gpu:
        return 0
    if worker_cell.level != "namespaces" and not all(_open_to_all(path) for path in readable_paths()):
        return 0
    owner = worker_cell.folder.stat().st_uid  # another process of the same candidate may be at work in it
    user = owner if owner in cell.STRANGERS else _stranger()
    os.chown(worker_cell.folder, user, user)
    for path, _ in folders.entries(worker_cell.folder):
        with contextlib.suppress(OSError):
            os.chown(path, user, user, follow_symlinks=False)
    return user


def _stranger() -> int:
    """A user whom nobody knows; in a container that has few users, the one called nobody."""
    user = secrets.choice(cell.STRANGERS)
    maps = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    known = any(int(first) <= user < int(first) + int(count) for first, _, count in maps)
    return user if known else cell.NOBODY


def _processes_of(user: int) -> int:
    """Threads count as processes."""
    found = 0
    for name in _entries("/proc"):
        with contextlib.suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116  thousands of them
                found += len(_entries(f"/proc/{name}/task"))
    return found


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def readable_paths() -> list[Path]:
    """What a worker may read: the system, Python, torch and what it brings, the compilers."""
    system = [Path(name) for name in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")]
    python = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent]
    packages = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    toolkit = read_settings().cuda_home
    ours = Path(__file__).resolve().parent
    torch_home = importlib.util.find_spec("torch")
    if torch_home is not None and torch_home.origin:
        packages.append(Path(torch_home.origin).parent.parent)
    wanted = [*system, *python, *packages, ours, *([toolkit] if toolkit else []), *_tool_prefixes()]
    found: list[Path] = []
    for path in dict.fromkeys(path for path in wanted if os.access(path, os.R_OK)):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


def _tool_prefixes() -> list[Path]:
    """Where the programs on the search path are installed: for /opt/gcc/bin, /opt/gcc with its headers and parts.

    A folder in somebody's home is shown alone, without what lies beside it.
    """
    homes = {Path.home(), Path("/root"), Path("/home"), Path("/")}
    prefixes = []
    for name in read_settings().search_path.split(os.pathsep):
        folder = Path(name)
        at_home = folder.parent in homes or folder.parent.parent == Path("/home")
        if folder.is_absolute() and os.access(folder, os.R_OK | os.X_OK):
            prefixes.append(folder.parent if folder.name in ("bin", "sbin") and not at_home else folder)
    return prefixes


def _base_environment() -> dict[str, str]:
    """What every worker needs, made from what is known here; nothing of the judge's own environment is handed on."""
    settings = read_settings()
    found = {"PATH": settings.search_path, "LANG": "C.UTF-8", "LD_LIBRARY_PATH": ":".join(_library_folders())}
    if settings.cuda_home:
        found["CUDA_HOME"] = str(settings.cuda_home)
    if settings.cxx:
        found["CXX"] = settings.cxx
    found |= dict(settings.compiler_variables)
    return {name: value for name, value in found.items() if value}


def _library_folders() -> list[str]:
    """Folders outside the system's from which this process has loaded libraries: workers load the same."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = [line.split(maxsplit=5)[5] for line in lines if ".so" in line]
    folders = dict.fromkeys(str(Path(name).parent) for name in files if name.startswith("/"))
    known = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", str(Path(sys.prefix)), str(Path(sys.base_prefix)))
    return [folder for folder in folders if not folder.startswith(known)]


def _environment(cell: Cell) -> Mapping[str, str]:
    private = {
        "HOME": "home",
        "TMPDIR": "tmp",
        "TORCH_EXTENSIONS_DIR": "extensions",
        "TRITON_CACHE_DIR": "triton",
        "CUDA_CACHE_PATH": "cuda",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "XDG_CACHE_HOME": "cache",
    }
    for name in private.values():
        folders.make_folder(cell.folder / name)
    return {
        **_base_environment(),
        **cell.environment,
        **{variable: str(cell.folder / name) for variable, name in private.items()},
        "USER": "worker",  # a user whom nobody knows has no name in the system's list
        "MAX_JOBS": str(read_settings().jobs),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


class _Drain:
    """A thread that reads what a worker prints, keeps the first megabyte and drops the rest."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while data := os.read(self._file, 1 << 16):
            self._kept += data[: max(0, LOG_BYTES - len(self._kept))]
        os.close(self._file)

    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace")

    def close(self) -> None:
        self._thread.join(timeout=5)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


def _status(raw: int) -> Status:
    try:
        return Status(raw)
    except ValueError:
        return Status.RUNTIME_ERROR  # no worker of ours says that


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    """Depth first, the nearest first: the worker itself is stopped before its helpers."""
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    return [int(n) for tid in _entries(f"/proc/{pid}/task") for n in _words(f"/proc/{pid}/task/{tid}/children")]


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208  a stopped clock waits for this
    except OSError:
        return []


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:  # noqa: PTH123  as above
            return file.read().split()
    except OSError:
        return []


def _wait_for_child(pid: int) -> int:
    for _ in range(2000):
        if children := _children(pid):
            return children[0]
        if not Path(f"/proc/{pid}").exists():
            return 0
        time.sleep(0.002)
    return 0


def _name(pid: int) -> str:
    words = _words(f"/proc/{pid}/comm")
    return words[0] if words else ""


def _resident_bytes(pid: int) -> int:
    """Its own memory; pages shared with the process it was forked from, and the pool, count nobody."""
    words = _words(f"/proc/{pid}/statm")
    return max(0, int(words[1]) - int(words[2])) * mmap.PAGESIZE if len(words) > 2 else 0


def _shared_bytes(pid: int) -> int:
    words = _words(f"/proc/{pid}/statm")
    return int(words[2]) * mmap.PAGESIZE if len(words) > 2 else 0


def _share_of_shared(pid: int) -> int:
    """Its share of the memory that is shared and of no file on a disk: of what two have mapped, each has half."""
    words = _words(f"/proc/{pid}/smaps_rollup")
    return int(words[words.index("Pss_Shmem:") + 1]) * 1024 if "Pss_Shmem:" in words else 0


def _held_open(tree: Sequence[int], known: Sequence[os.stat_result]) -> int:
    """Bytes of anonymous files that these processes have open, besides the known ones."""
    found: dict[int, int] = {}
    names = (f"/proc/{pid}/fd/{name}" for pid in tree for name in _entries(f"/proc/{pid}/fd"))
    for name in itertools.islice(names, MOST_FILES):
        with contextlib.suppress(OSError):
            status = os.stat(name)  # noqa: PTH116  as above
            if status.st_dev == known[0].st_dev and status.st_ino not in {other.st_ino for other in known}:
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _first_mapping(pid: int) -> int | None:
    try:
        line = Path(f"/proc/{pid}/maps").read_text().split("\n", 1)[0]
        return int(line.partition("-")[0], 16)
    except (OSError, ValueError):
        return None


def _wait_until_gone(pid: int, limit_s: float) -> bool:
    deadline = time.perf_counter() + limit_s
    while time.perf_counter() < deadline:
        if not Path(f"/proc/{pid}").exists() or _state(pid) in "ZX":
            return True
        time.sleep(0.005)
    return False


def _has_thread_in(pid: int, states: str) -> bool:
    tasks = [_words(f"/proc/{pid}/task/{tid}/stat") for tid in _entries(f"/proc/{pid}/task")]
    return any(_state_of(words) in states for words in tasks if words)


def _standing(tree: Sequence[int], states: str = "T") -> dict[int, str]:
    """Threads in one of these states, any if none is given, and how often each has run; nothing where that is unknown.

    One that waits for a disk is not stopped yet, and runs once more when the disk is done.
    """
    tasks = [f"/proc/{pid}/task/{tid}" for pid in tree for tid in _entries(f"/proc/{pid}/task")]
    found = {}
    for task in tasks:
        if not states or _state_of(_words(f"{task}/stat")) in states:
            found[int(task.rpartition("/")[2])] = "".join(_words(f"{task}/schedstat")[2:])
    return {thread: runs for thread, runs in found.items() if runs}


def _state_of(stat: Sequence[str]) -> str:
    """The letter behind the name, which stands in parentheses and may hold anything."""
    last = max((i for i, word in enumerate(stat) if word.endswith(")")), default=0)
    return stat[last + 1] if last + 1 < len(stat) else "X"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def available_bytes() -> int:
    """Host memory that can be had without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 8 * GIB
