"""Problems come in on a socket; for each, a keeper goes out, and below it the problem's process, with torch in it.

Importing torch and all that captures a model takes many seconds of a core, as long as everything else a process does
until its turn at a GPU comes; forking a process that has them takes milliseconds. So one process imports, runs nothing,
and only forks:

    suite -- nursery -- keeper -- the problem's process -- whatever it starts

A process that has spoken to a GPU, or has threads that do not expect it, must not be forked. Should an import have done
either, the nursery says so and ends, and each problem's process is started from nothing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from kernelwright.suite import keeper
from kernelwright.suite.cores import move_to
from kernelwright.suite.devices import started

__all__ = ["Nursery", "serve"]

READY, UNFIT = b"ready", b"unfit"
START_LIMIT_S = 300.0
STATUS = struct.Struct("<i")
KILLED = 128 + signal.SIGKILL

# Whatever a problem's process imports on its way, in whichever function; a module that this torch lacks is left out.
IMPORTED = (
    "kernelwright.suite.ahead",
    "kernelwright.suite.memory",
    "kernelwright.pipeline",
    "kernelwright.report.facts",
    "kernelwright.report.boxes",
    "kernelwright.report.picture",
    "torch._dynamo",
    "torch.export",
    "torch.export._trace",
    "torch.fx.experimental.proxy_tensor",
    "torch._functorch.aot_autograd",
)


class Nursery:
    """The suite's end. `program` is the nursery's own; it is started at once and waited for when it is needed."""

    def __init__(self, cores: Sequence[int] = (), program: Sequence[str] = ()) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        self._fit: bool | None = None
        arguments = [str(theirs.fileno()), json.dumps(list(cores))]
        self._process = subprocess.Popen(
            [*(program or started("nursery")), *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def run(self, order: dict[str, Any]) -> int | None:
        """The exit status of a keeper under this order; None if there can be none from here."""
        reading, writing = os.pipe()
        try:
            with self._asking:
                if not self._is_fit():
                    return None
                try:
                    socket.send_fds(self._ours, [json.dumps(order).encode()], [order["leash"], writing])
                except OSError:  # it has died
                    self._fit = False
                    return None
            os.close(writing)
            writing = -1
            answer = os.read(reading, STATUS.size)
        finally:
            for file in (reading, writing):
                if file >= 0:
                    os.close(file)
        return int(STATUS.unpack(answer)[0]) if len(answer) == STATUS.size else KILLED

    def _is_fit(self) -> bool:
        if self._fit is None:
            self._ours.settimeout(START_LIMIT_S)
            try:
                self._fit = self._ours.recv(len(READY)) == READY
            except OSError:
                self._fit = False
            self._ours.settimeout(None)
        return self._fit

    def close(self) -> None:
        """It leaves when nobody can ask it any more; the keepers that it forked have leashes of their own."""
        self._ours.close()
        self._process.kill()  # it may be importing still
        self._process.wait()


def main() -> None:
    move_to(json.loads(sys.argv[2]))  # first: torch counts the cores it may use when it is imported
    import torch  # noqa: F401  numpy comes along, whose threads stop for a fork and start again

    from kernelwright.suite import child

    threads = thread_count()
    for name in IMPORTED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "kernelwright":
                raise
    serve(socket.socket(fileno=int(sys.argv[1])), child.run, threads)


def serve(requests: socket.socket, live: Callable[[str], object], threads: int = 1) -> NoReturn:
    """Fork a keeper for each order that comes; below it `live` is called with the order's last word.

    `threads` are as many as may be there, of which it is known that a fork does them no harm.
    """
    opened = has_opened_gpu()
    if opened or thread_count() > threads:
        what = "opens the GPU" if opened else "starts a thread"
        click.echo(f"an import {what}: each problem imports torch by itself, which takes seconds more", err=True)
        requests.send(UNFIT)
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the suite, which then lets go of us
    gc.collect()
    gc.freeze()  # what was imported is never garbage, and its pages stay shared
    with contextlib.suppress(BrokenPipeError):  # nobody is there any more, as the next line finds
        requests.send(READY)
    while True:
        data, files, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            be_keeper(json.loads(data), files, live)
        for file in files:
            os.close(file)


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def has_opened_gpu() -> bool:
    """Whether the driver was spoken to: it keeps its files open."""
    files = list(Path("/proc/self/fd").iterdir())
    opened = [str(file.readlink()) for file in files if file.is_symlink()]  # the one that listed them is gone
    return any(name.startswith("/dev/nvidia") for name in opened)


def be_keeper(order: dict[str, Any], files: Sequence[int], live: Callable[[str], object]) -> NoReturn:
    leash, answer = files
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def start(job: dict[str, Any], log: IO[bytes]) -> Forked:
        return Forked(lambda: begin(job["command"][-1], log, files, live))

    status = keeper.kept(order | {"leash": leash}, start)
    os.write(answer, STATUS.pack(status))
    os._exit(0)


class Forked:
    """A process of ours that is asked after as subprocess's are."""

    def __init__(self, begin: Callable[[], NoReturn]) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            begin()

    def poll(self) -> int | None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def begin(text: str, log: IO[bytes], files: Sequence[int], live: Callable[[str], object]) -> NoReturn:
    """The problem's own process: nothing of ours is open in it, and it never returns to what the keeper was doing."""
    try:
        keeper.go_with_the_keeper()
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        for target in (1, 2):
            os.dup2(log.fileno(), target)
        for file in (*files, log.fileno()):
            os.close(file)
        live(text)
    finally:
        raised = sys.exc_info()[0] is not None
        if raised:  # it ends this process as it would end an interpreter
            os.write(2, traceback.format_exc().encode())
        os._exit(int(raised))
