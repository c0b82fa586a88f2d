"""Requests of the judge come in on a socket; for each, a worker process that already has torch goes out.

Importing torch takes seconds, forking a process that has it takes milliseconds. This program imports torch, holds no
secret, starts no thread, and only forks. For each worker it leaves two more processes: a *keeper*, which waits for the
worker and takes everything down when the judge lets go of it (or dies), and under process-id namespaces an *init*.

    judge -- zygote -- keeper -- [init, process 1 of its namespace] -- worker -- whatever the candidate starts
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import types
from pathlib import Path
from typing import Any, NoReturn

PR_SET_CHILD_SUBREAPER = 36
SWEEP = signal.SIGUSR1  # to process 1 of a worker's ids: stop all others
# What the judge is told: R and the process that the tree hangs on, S once all were stopped, X and the exit status.
REPORT = struct.Struct("<cI")


def main() -> None:
    # The package's own __init__ files import the whole judge; a worker shall not carry it.
    here = Path(__file__).resolve().parent
    packages = {"kernelwright": here.parent, "kernelwright.judge": here, "kernelwright.load": here.parent / "load"}
    for name, folder in packages.items():
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package

    import torch  # noqa: F401  the reason for this process

    # Everything is imported before the first fork: what lies on disk may change while this process lives.
    import kernelwright.judge.cell
    import kernelwright.judge.channel_cuda
    import kernelwright.judge.folders
    import kernelwright.judge.worker
    import kernelwright.load.elsewhere  # noqa: F401

    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the judge, which then lets go of us
    gc.collect()
    gc.freeze()  # what torch brought is never garbage: collections in workers skip it, and its pages stay shared
    requests.send(b"ready")
    while True:
        data, files, _, _ = socket.recv_fds(requests, 1 << 20, 16)
        if not data:
            leave(Path(sys.argv[2]))
        child = os.fork()
        if child == 0:
            requests.close()
            keep(json.loads(data), files)
        for file in files:
            os.close(file)
        requests.send(struct.pack("<I", child))


def leave(folder: Path) -> NoReturn:
    """The judge is gone, perhaps killed: its workers go (their keepers see to that), and what lies on disk."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    from kernelwright.judge import folders

    folders.remove(folder)
    os._exit(0)


def keep(cell: dict[str, Any], files: list[int]) -> NoReturn:
    """The keeper: enters the cell, forks the worker, waits for it or for the judge to let go."""
    from kernelwright.judge import cell as walls

    command, reply, board, pool, log, report, lifeline = files
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if cell["raised"]:
            walls.set_niceness(walls.RAISED, walls.RAISED)
        walls.die_with_parent(os.getppid())
        walls.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for target in (1, 2):
            os.dup2(log, target)
        if cell["level"] == "namespaces":
            walls.enter_namespaces(cell)
            walls.die_with_parent(os.getppid())  # a change of user or capabilities takes it away
        own_ids = cell["level"] == "namespaces" and not cell["gpu"]
        me = os.getpid()
        child = os.fork()
        if child == 0:
            # In a new namespace the parent's number reads as 0.
            walls.die_with_parent(0 if own_ids else me)
            if own_ids:
                walls.mount_proc()
                child = os.fork()
                if child:
                    walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0)
                    walls.close_other_files([report])
                    be_init(child, report)
                walls.die_with_parent(1)
            walls.close_other_files([command, reply, board, pool])
            work(cell, command, reply, board, pool)
    except BaseException as error:  # noqa: BLE001  whatever failed here is the judge's affair, not the candidate's
        os.write(2, f"keeper: {type(error).__name__}: {error}\n".encode())
        os._exit(70)
    walls.libc.prctl(walls.PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.write(report, REPORT.pack(b"R", child if own_ids else me))
    walls.close_other_files([report, lifeline])
    status = wait_for(child, lifeline)
    if status is not None and not own_ids:
        os.write(report, REPORT.pack(b"X", status))
    take_down(child)
    os._exit(0)


def work(cell: dict[str, Any], command: int, reply: int, board: int, pool: int) -> NoReturn:
    """The worker's own process: the last walls, its environment, then the command loop."""
    from kernelwright.judge import cell as walls
    from kernelwright.judge import heap, worker

    code = 0
    try:
        with open(os.devnull) as nothing:  # noqa: PTH123  a path object would serve nobody here
            os.dup2(nothing.fileno(), 0)
        os.environ.clear()
        os.environ.update(cell["environment"])
        heap.set_up_malloc(cell["perturb"])
        walls.finish(cell)
        if cell["program"]:
            os.execve(cell["program"][0], cell["program"], cell["environment"])
        worker.serve(command, reply, board, pool, cell["threads"])
    except BaseException as error:  # noqa: BLE001  a candidate's leftovers may raise anything on the way out
        os.write(2, f"worker: {type(error).__name__}: {error}\n".encode())
        code = 71
    os._exit(code)


def be_init(child: int, report: int) -> NoReturn:
    """Process 1: adopts orphans; stops everybody when asked; ends, and with it the namespace, when the worker does."""

    def sweep(number: int, frame: Any) -> None:
        with contextlib.suppress(ProcessLookupError):  # nobody is there any more
            os.kill(-1, signal.SIGSTOP)  # in one go: nobody is between two processes then
        os.write(report, REPORT.pack(b"S", 0))

    signal.signal(SWEEP, sweep)
    while True:
        pid, status = os.wait()
        if pid == child:
            os.write(report, REPORT.pack(b"X", status))
            os._exit(0)


def wait_for(child: int, lifeline: int) -> int | None:
    """The child's wait status; None if the judge let go first.

    Orphans that come to us meanwhile are waited for too: those who have left would otherwise use up the system's ids.
    """
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(woken, select.POLLIN)
    while True:
        pid = -1
        while pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
        if lifeline in {fd for fd, _ in poll.poll()}:
            return None
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)


def take_down(child: int) -> None:
    """Kill the worker's tree. Orphans come to us, the subreaper, so that none is missed."""
    while children := _children(os.getpid()):
        for pid in {child, *children}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main()
