"""The cache of builds: made once, never half made, never waited for."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.build.cache import KEPT_S, cached, content_key
from kernelwright.errors import BuildError, EnvironmentProblem
from kernelwright.settings import read_settings


@pytest.fixture
def settings(tmp_path):
    return read_settings({"KERNELWRIGHT_CACHE_DIR": str(tmp_path), "PATH": os.environ["PATH"]})


def writes(text):
    return lambda folder: (folder / "artifact").write_text(text)


def forbidden(folder):
    raise AssertionError("built again")


@given(st.lists(st.text()), st.lists(st.text()))
def test_different_parts_have_different_keys(parts, others):
    assert (content_key(*parts) == content_key(*others)) == (parts == others)


def test_what_was_made_is_not_made_again(settings):
    path = cached("key", "artifact", writes("made"), settings)
    assert path.read_text() == "made"
    assert cached("key", "artifact", forbidden, settings) == path


def test_nothing_but_the_entry_is_left(settings):
    cached("key", "artifact", writes("made"), settings)
    assert [path.name for path in (settings.cache_dir / "build").iterdir()] == ["key"]


def test_an_interrupted_build_leaves_nothing_and_the_next_one_succeeds(settings):
    def interrupted(folder):
        (folder / "artifact").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached("key", "artifact", interrupted, settings)
    assert list((settings.cache_dir / "build").iterdir()) == []
    assert cached("key", "artifact", writes("whole"), settings).read_text() == "whole"


KILLED = """
import time
from kernelwright.build.cache import cached
from kernelwright.settings import read_settings

def slow(folder):
    (folder / "artifact").write_text("half")
    print("building", flush=True)
    time.sleep(60)

cached("key", "artifact", slow, read_settings())
"""


def test_a_killed_build_does_not_stand_in_the_way(settings):
    environ = {**os.environ, "KERNELWRIGHT_CACHE_DIR": str(settings.cache_dir)}
    with subprocess.Popen([sys.executable, "-c", KILLED], env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGKILL)
    began = time.monotonic()
    assert cached("key", "artifact", writes("whole"), settings).read_text() == "whole"
    assert time.monotonic() - began < 5


def test_what_a_killed_build_left_is_swept_away_a_day_later(settings):
    folder = settings.cache_dir / "build"
    old, recent = folder / "a.partial-old", folder / "a.partial-recent"
    for leftover in (old, recent):
        leftover.mkdir(parents=True)
    long_ago = time.time() - KEPT_S - 1
    os.utime(old, (long_ago, long_ago))
    cached("key", "artifact", writes("made"), settings)
    assert not old.exists()
    assert recent.exists()


def test_many_builders_of_one_thing_all_get_a_whole_one(settings):
    def slow(folder):
        time.sleep(0.02)
        (folder / "artifact").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: cached("key", "artifact", slow, settings), range(8)))
    assert {path.read_text() for path in paths} == {"whole"}
    assert [path.name for path in (settings.cache_dir / "build").iterdir()] == ["key"]


def test_an_entry_that_lost_its_artifact_is_made_again(settings):
    path = cached("key", "artifact", writes("made"), settings)
    path.unlink()
    (path.parent / "something else").write_text("")
    assert cached("key", "artifact", writes("again"), settings).read_text() == "again"


def test_a_rejected_source_is_kept_for_reading_and_its_place_is_told(settings):
    def rejects(folder: Path) -> None:
        (folder / "kernel.cu").write_text("the source")
        raise BuildError("no")

    for _ in range(2):
        with pytest.raises(BuildError) as failure:
            cached("key", "artifact", rejects, settings)
    kept = settings.cache_dir / "build" / "key.failed"
    assert str(kept) in failure.value.cure
    assert (kept / "kernel.cu").read_text() == "the source"


def test_a_cache_that_cannot_be_written_is_told_with_the_cure(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    settings = read_settings({"KERNELWRIGHT_CACHE_DIR": str(in_the_way)})
    with pytest.raises(EnvironmentProblem, match="KERNELWRIGHT_CACHE_DIR"):
        cached("key", "artifact", forbidden, settings)
