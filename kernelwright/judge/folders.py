"""A folder into which a candidate may have put anything comes in; how much is in it, a plain copy, or nothing goes out.

Pipes, sockets, loops of links, closed folders, folders deeper than a path can be long, files that claim terabytes and
files that vanish while they are looked at: none of it may stop the judge. Loaded in the process that forks workers too;
imports only the standard library.
"""

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MAX_ENTRIES", "copy_plain", "entries", "is_within", "make_folder", "remove"]

MAX_ENTRIES = 50_000  # more files than any build leaves; looking at so many takes a quarter of a second
DEEPEST = 100  # folders in folders


def entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below `folder`, folders before what is in them; links are not followed, what cannot be seen is not."""
    left = [folder]
    while left:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            left.append(Path(entry.path))
                        yield Path(entry.path), status
        except OSError:
            continue


def is_within(folder: Path, most_bytes: int) -> bool:
    """Whether what is in it is no more than that: in bytes, those that a file only claims too; in files; in depth."""
    total, depth = 0, len(folder.parts)
    for number, (path, status) in enumerate(entries(folder)):
        total += max(status.st_size, status.st_blocks * 512)
        if total > most_bytes or number >= MAX_ENTRIES or len(path.parts) - depth > DEEPEST:
            return False
    return True


def copy_plain(source: Path, target: Path) -> None:
    """Files, folders and links of `source`, as far as they can be read; nothing of any other kind."""
    target.mkdir()
    for path, status in entries(source):
        copy = target / path.relative_to(source)
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(status.st_mode):
                copy.mkdir()
            elif stat.S_ISLNK(status.st_mode):
                copy.symlink_to(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                shutil.copyfile(path, copy, follow_symlinks=False)
                # Not its setuid bit: the copy is ours, and may be root's.
                copy.chmod(status.st_mode & 0o777)
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def make_folder(path: Path) -> None:
    """A folder of that name, whatever had it before."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        path.mkdir()


def remove(folder: Path) -> None:
    """All of it. Folders in folders are first moved to the top: no path grows long, and none is walked down twice."""
    numbers = itertools.count()
    left = [folder]
    while left:
        emptied = left.pop()
        with contextlib.suppress(OSError):
            emptied.chmod(0o700)  # its owner may have closed it
            with os.scandir(emptied) as found:
                inside = list(found)
            for entry in inside:
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)  # noqa: PTH108  there may be very many
                        continue
                    os.chmod(entry.path, 0o700)  # noqa: PTH101  a closed folder cannot be moved
                    aside = folder / f".removed-{os.getpid()}-{next(numbers)}"
                    os.rename(entry.path, aside)  # noqa: PTH104
                    left.append(aside)
            if emptied != folder:
                emptied.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()
