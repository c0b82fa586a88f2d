"""A forked process and a description of its cell come in; the same process, shut into that cell, goes out.

Levels, strongest first. What the machine allows is found by trying (process.py), and printed with the verdict.

    namespaces  its own mounts (a read-only root with Python, torch and the compilers; nothing of the judge's), its own
                process ids, no network, no host IPC, a user of its own where we are root, no capabilities, seccomp
    landlock    files outside the same list cannot be opened, no TCP, no signals to others; seccomp
    limits      time, memory, processes and file sizes only

A GPU worker shares process ids, System V IPC and the user with the judge, since CUDA IPC may need that; the rest of its
level stands.
Loaded in the worker's process; imports only the standard library.
"""

import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import signal
import socket
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "LEVELS",
    "RAISED",
    "close_other_files",
    "die_with_parent",
    "enter_namespaces",
    "finish",
    "mount_proc",
    "niceness",
    "set_niceness",
]

LEVELS = ("namespaces", "landlock", "limits")

libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
# Users that no system gives to anyone, for workers that root starts (UIDS-GIDS of systemd calls them unused); and the
# one that every system has, for a container that has few.
STRANGERS = range(0x70000000, 0x7FFFFFFF)
NOBODY = 65534
RAISED = -10  # the niceness of a worker that is timed, and of the judge meanwhile

# From /etc a compiler and the dynamic linker need these and no more.
ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
)
DEVICES = ("null", "zero", "full", "random", "urandom")


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


# --- namespaces


def enter_namespaces(cell: dict[str, Any]) -> None:
    """New namespaces and a new root for this process and its children; called with one thread only."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWNET | (0 if cell["gpu"] else CLONE_NEWPID | CLONE_NEWIPC)
    if uid != 0:
        checked(libc.unshare(CLONE_NEWUSER), "unshare(CLONE_NEWUSER)")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    checked(libc.unshare(flags), "unshare")
    if cell["loopback"]:
        _raise_loopback()
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _build_root(cell)
    _pivot(Path(cell["root"]))


def _raise_loopback() -> None:
    """The only network of a program that talks to its own parts: nothing outside can be reached through it."""
    set_flags, up_and_running = 0x8914, 0x41  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, set_flags, struct.pack("16sH14x", b"lo", up_and_running))


def mount_proc() -> None:
    """/proc of the new process ids; the first process in them must do it."""
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)


def _build_root(cell: dict[str, Any]) -> None:
    root = Path(cell["root"])
    _mount("tmpfs", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755")
    for name in ("proc", "dev", "tmp"):
        (root / name).mkdir()
    limit = f"size={cell['scratch_bytes']},nr_inodes=100k,mode=1777"
    _mount("tmpfs", str(root / "tmp"), "tmpfs", MS_NOSUID | MS_NODEV, limit)
    for path in [*cell["readable"], *(f"/etc/{name}" for name in ETC)]:
        _show(root, Path(path))
    for path in cell["hidden"]:
        inside = root / path.lstrip("/")
        if inside.exists():
            _mount("/dev/null", str(inside), None, MS_BIND)
    _build_dev(root, cell["gpu"], limit)
    # A GPU worker keeps it. Others get one of their own on top, which a user who is not root may mount only where one
    # is in sight.
    _mount("/proc", str(root / "proc"), None, MS_BIND | MS_REC)
    folder = root / cell["folder"].lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    _mount(cell["folder"], str(folder), None, MS_BIND)


def _show(root: Path, path: Path) -> None:
    """`path` at its place under `root`, read-only; a symbolic link stays one."""
    inside = root / str(path).lstrip("/")
    if not path.exists() or inside.exists():
        return
    inside.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        inside.symlink_to(path.readlink())
        return
    if path.is_dir():
        inside.mkdir()
    else:
        inside.touch()
    _mount(str(path), str(inside), None, MS_BIND | MS_REC)
    _make_read_only(inside)


def _make_read_only(path: Path) -> None:
    attributes = struct.pack("<QQQQ", 1, 0, 0, 0)  # struct mount_attr: set MOUNT_ATTR_RDONLY
    at_recursive, at_fdcwd, mount_setattr = 0x8000, -100, 442
    if libc.syscall(mount_setattr, at_fdcwd, str(path).encode(), at_recursive, attributes, len(attributes)) == 0:
        return
    kept = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    _mount(None, str(path), None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def _build_dev(root: Path, gpu: bool, limit: str) -> None:
    devices = [Path("/dev") / name for name in DEVICES]
    if gpu:
        devices += [path for path in Path("/dev").glob("nvidia*") if not path.is_symlink()]
    for path in devices:
        inside = root / "dev" / path.name
        if path.is_dir():
            inside.mkdir()
        elif path.exists():
            inside.touch()
        else:
            continue
        _mount(str(path), str(inside), None, MS_BIND | MS_REC)
    (root / "dev" / "shm").mkdir()
    _mount("tmpfs", str(root / "dev" / "shm"), "tmpfs", MS_NOSUID | MS_NODEV, limit)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (root / "dev" / name).symlink_to(target)


def _pivot(root: Path) -> None:
    old = root / ".old"
    old.mkdir()
    pivot_root = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    checked(libc.syscall(pivot_root, str(root).encode(), str(old).encode()), "pivot_root")
    os.chdir("/")
    checked(libc.umount2(b"/.old", MNT_DETACH), "umount")
    Path("/.old").rmdir()
    _mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    result = libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    checked(result, f"mount {source} on {target}")


# --- before others


AUTOGROUP = Path("/proc/self/autogroup")


def set_niceness(process: int, session: int) -> None:
    """Of this process, and of its session: Linux may share the cores among sessions first, sched(7) on autogroups."""
    with contextlib.suppress(OSError):  # not everyone may
        os.setpriority(os.PRIO_PROCESS, 0, process)
    with contextlib.suppress(OSError):
        AUTOGROUP.write_text(str(session))


def niceness() -> tuple[int, int]:
    try:
        session = int(AUTOGROUP.read_text().rpartition("nice")[2])
    except (OSError, ValueError):
        session = 0
    return os.getpriority(os.PRIO_PROCESS, 0), session


# --- the last steps, in the process that will run the candidate


def finish(cell: dict[str, Any]) -> None:
    """Limits, user, capabilities, landlock and seccomp; nothing here can be undone by what runs afterwards."""
    _limit_resources(cell)
    os.umask(0o022)
    if os.getuid() == 0 and cell["user"]:
        os.setgroups([])
        os.setresgid(cell["user"], cell["user"], cell["user"])
        os.setresuid(cell["user"], cell["user"], cell["user"])
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    if cell["level"] == "namespaces":
        _drop_capabilities()
    if cell["level"] == "landlock":
        restrict_files(cell["readable"], cell["folder"], cell["gpu"], tcp=cell["loopback"])
    if cell["level"] != "limits":
        _filter_system_calls(sockets=cell["loopback"] and cell["level"] == "namespaces", gpu=cell["gpu"])
    # The judge reads this process's memory; a change of user clears the flag that allows it.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.chdir(cell["folder"])


def _limit_resources(cell: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: cell["file_bytes"],
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_NPROC: cell["processes"],
    }
    if not cell["gpu"]:  # CUDA reserves address space by the terabyte; there the judge looks at what is resident
        limits[resource.RLIMIT_DATA] = cell["memory_bytes"]
    for what, limit in limits.items():
        _, hard = resource.getrlimit(what)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))


def _drop_capabilities() -> None:
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    checked(libc.capset(header, bytes(24)), "capset")


def die_with_parent(parent: int) -> None:
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked


def close_other_files(kept: Iterable[int]) -> None:
    keep = sorted({0, 1, 2, *kept})
    for low, high in zip(keep, [*keep[1:], 1 << 16], strict=True):
        os.closerange(low + 1, high)


# --- landlock

READ_FILES = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a directory
EVERY_ACCESS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}


def restrict_files(readable: list[str], folder: str, gpu: bool, *, tcp: bool) -> None:
    create, add, enforce = 444, 445, 446
    abi = checked(libc.syscall(create, None, 0, 1), "landlock_create_ruleset")
    access = EVERY_ACCESS[min(abi, 5)]
    refused = 0b11 if abi >= 4 and not tcp else 0  # bind and connect
    scoped = 0b11 if abi >= 6 else 0  # abstract sockets and signals stay inside
    attributes = struct.pack("<QQQ", access, refused, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    rules = checked(libc.syscall(create, attributes, len(attributes), 0), "landlock_create_ruleset")
    devices = [f"/dev/{name}" for name in DEVICES] + (["/dev"] if gpu else [])
    allowed = dict.fromkeys([*readable, "/proc", *(f"/etc/{name}" for name in ETC)], READ_FILES)
    allowed |= dict.fromkeys([folder, *devices], access)
    for path, rights in allowed.items():
        if not Path(path).exists():
            continue
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= (
                1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
            )  # a file has no more: execute, write, read, truncate, ioctl
        rule = struct.pack("<Qi", rights & access, handle)
        checked(libc.syscall(add, rules, 1, rule, 0), f"landlock_add_rule {path}")
        os.close(handle)
    checked(libc.syscall(enforce, rules, 0), "landlock_restrict_self")
    os.close(rules)


# --- seccomp


class Machine(NamedTuple):
    """An audit architecture and its numbers of system calls: those that a model has no use for, and some to look at."""

    audit: int
    socket: int
    fallocate: int
    madvise: int
    refused: tuple[int, ...]


# Calls that are refused: their numbers on x86-64 and on 64-bit ARM.
REFUSED = {
    # other processes' memory and files
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # outputs computed when they are looked at
    "userfaultfd": (323, 282),
    # a process that was stopped and goes on by itself, since a timer's signal may be SIGCONT
    "timer_create": (222, 107),
    # memory and queues that outlive their makers
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # the cell itself
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    # the machine
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "reboot": (169, 142),
}
# What CUDA's driver does without these is not known: where a GPU is used they are not refused.
UNTRIED_WITH_A_GPU = ("timer_create", "shmget", "semget", "msgget", "mq_open")
MACHINES = {
    "x86_64": Machine(0xC000003E, 41, 285, 28, tuple(number for number, _ in REFUSED.values())),
    "aarch64": Machine(0xC00000B7, 198, 47, 233, tuple(number for _, number in REFUSED.values())),
}
OTHER_NUMBERS = 0x3FFFFFFF  # above it x86-64 has every call once more, under numbers of the x32 interface
AF_UNIX = 1
MADV_REMOVE, MADV_PAGEOUT = 9, 21
FALLOC_FL_KEEP_SIZE = 1


def _filter_system_calls(*, sockets: bool, gpu: bool) -> None:
    machine = MACHINES.get(platform.machine())
    if machine is None:
        return
    if gpu:
        spared = {number for name in UNTRIED_WITH_A_GPU for number in REFUSED[name]}
        machine = machine._replace(refused=tuple(number for number in machine.refused if number not in spared))
    program = _program(machine, sockets)
    code = ctypes.create_string_buffer(program, len(program))
    filter_bytes = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    checked(libc.prctl(PR_SET_SECCOMP, 2, filter_bytes, 0, 0), "prctl(PR_SET_SECCOMP)")


def _program(machine: Machine, sockets: bool) -> bytes:
    """Refuse those calls, and some by an argument, with EPERM; another architecture's calls kill."""
    load, equals, above, give = 0x20, 0x15, 0x25, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000

    def line(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("<HBBI", code, yes, no, value)

    def looked_at(number: int, argument: int, test: int, *values: int, wanted: bool) -> list[bytes]:
        """This call only if some test of its argument is true, or if none is; other calls pass on to what follows."""
        none, some = (refuse, allow) if wanted else (allow, refuse)
        return [
            line(equals, number, no=len(values) + 3),
            line(load, 16 + 8 * argument),
            *(line(test, value, yes=len(values) - i) for i, value in enumerate(values)),
            line(give, none),
            line(give, some),
        ]

    by_argument = [
        *([] if sockets else looked_at(machine.socket, 0, equals, AF_UNIX, wanted=True)),
        # Holes in the memory that everybody shares, or pages of it on a disk: a baseline would fault them in again.
        *looked_at(machine.fallocate, 1, above, FALLOC_FL_KEEP_SIZE, wanted=False),
        *looked_at(machine.madvise, 2, equals, MADV_REMOVE, MADV_PAGEOUT, wanted=False),
    ]
    count = len(machine.refused)
    lines = [
        line(load, 4),
        line(equals, machine.audit, yes=1),
        line(give, kill),
        line(load, 0),
        line(above, OTHER_NUMBERS, yes=count + len(by_argument) + 1),
        *(line(equals, number, yes=count - i + len(by_argument)) for i, number in enumerate(machine.refused)),
        *by_argument,
        line(give, allow),
        line(give, refuse),
    ]
    return b"".join(lines)
