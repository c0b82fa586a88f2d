"""A folder of finished builds by content hash: `cached` gives the artifact, making it first if it is not there.

A build happens in a private folder that is renamed into place when it is done. Nobody waits for a lock: of two
processes building the same thing the second to finish throws its copy away, and a killed build leaves a private folder
that nobody looks at and that is swept away a day later.
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelwright.errors import BuildError, EnvironmentProblem
from kernelwright.settings import Settings

__all__ = ["cached", "content_key"]

PARTIAL = ".partial-"
FAILED = ".failed"
KEPT_S = 24 * 3600


def content_key(*parts: str) -> str:
    """A hash of the parts and of where each ends: ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()[:32]


def cached(key: str, artifact: str, make: Callable[[Path], None], settings: Settings) -> Path:
    """The file `artifact` of the build `key`; `make` writes it into the folder it is given if there is none yet."""
    entry = settings.cache_dir / "build" / key
    if (entry / artifact).is_file():
        return entry / artifact
    private = _private_folder(entry)
    try:
        make(private)
        _publish(private, entry, artifact)
    except BuildError as error:
        kept = entry.with_name(key + FAILED)
        shutil.rmtree(kept, ignore_errors=True)
        private.rename(kept)
        error.cure = error.cure or f"The source and the compiler's log are in {kept}."
        raise
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return entry / artifact


def _private_folder(entry: Path) -> Path:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _sweep(entry.parent)
        return Path(tempfile.mkdtemp(prefix=entry.name + PARTIAL, dir=entry.parent))
    except OSError as error:
        raise EnvironmentProblem(
            f"the cache folder cannot be written: {error.strerror}.",
            where=entry.parent,
            cure="Make it writable, or set KERNELWRIGHT_CACHE_DIR to a folder that is.",
        ) from error


def _publish(private: Path, entry: Path, artifact: str) -> None:
    try:
        private.rename(entry)
    except OSError:
        # Another process was first, and its build is as good as ours.
        if (entry / artifact).is_file():
            return
        # Or the entry is there without its artifact, because somebody tidied up by hand.
        shutil.rmtree(entry, ignore_errors=True)
        private.rename(entry)


def _sweep(folder: Path) -> None:
    """Remove what killed and failed builds left more than a day ago."""
    oldest_kept = time.time() - KEPT_S
    for leftover in (*folder.glob(f"*{PARTIAL}*"), *folder.glob(f"*{FAILED}")):
        try:
            stale = leftover.stat().st_mtime < oldest_kept
        except FileNotFoundError:  # another process swept it
            continue
        if stale:
            shutil.rmtree(leftover, ignore_errors=True)
