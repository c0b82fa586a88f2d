"""The tuning store: remembers, is shared by processes, and outlives damage."""

import json
import os
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest

from kernelwright.settings import read_settings
from kernelwright.tune.store import TuningKey, TuningStore, tuning_store

KEY = TuningKey(kernel="k1", shape="f32[128,256:256,1]", device="NVIDIA H200", template="t1")
CONFIG = json.dumps({"block_m": 128, "stages": 3})


@pytest.fixture
def store(tmp_path):
    return TuningStore(tmp_path / "new" / "tuning.sqlite3")


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_a_result_is_remembered_by_another_store_on_the_same_file(store):
    store.put(KEY, CONFIG, 12.5)
    found = TuningStore(store.path).get(KEY)
    assert (found.key, found.config, found.median_us) == (KEY, CONFIG, 12.5)
    assert found.measured_at > 1.7e9


def test_nothing_is_found_in_an_empty_store(store):
    assert store.get(KEY) is None
    assert store.other_shapes(KEY) == ()


@pytest.mark.parametrize("field", ["kernel", "shape", "device", "template"])
def test_every_part_of_the_key_counts(store, field):
    store.put(KEY, CONFIG, 12.5)
    assert store.get(replace(KEY, **{field: "another"})) is None


def test_a_later_result_replaces_an_earlier_one(store):
    store.put(KEY, CONFIG, 12.5)
    store.put(KEY, "{}", 14.0)
    assert (store.get(KEY).config, store.get(KEY).median_us) == ("{}", 14.0)


def test_other_shapes_of_the_same_kernel_are_found_newest_first(store):
    for number in (1, 2, 3):
        store.put(replace(KEY, shape=f"s{number}"), CONFIG, float(number))
    store.put(replace(KEY, template="t2", shape="s4"), CONFIG, 4.0)
    store.put(replace(KEY, device="cpu", shape="s5"), CONFIG, 5.0)
    assert [result.key.shape for result in store.other_shapes(KEY)] == ["s3", "s2", "s1"]


def test_the_store_lies_in_the_cache_folder(tmp_path):
    settings = read_settings({"KERNELWRIGHT_CACHE_DIR": str(tmp_path)})
    tuning_store(settings).put(KEY, CONFIG, 1.0)
    assert [path.name for path in tmp_path.glob("*.sqlite3")] == ["tuning-2.sqlite3"]


WRITER = """
import sys
from pathlib import Path
from kernelwright.tune.store import TuningKey, TuningStore

store = TuningStore(Path(sys.argv[1]))
for i in range(40):
    store.put(TuningKey("k", f"{sys.argv[2]}-{i}", "d", "t"), "{}", float(i))
"""


def test_processes_that_start_and_write_together_lose_nothing(store):
    environ = {**os.environ, "PYTHONWARNINGS": "error"}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(store.path), str(number)], env=environ)
        for number in range(4)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0, 0]
    assert len(store.other_shapes(TuningKey("k", "", "d", "t"))) == 4 * 40


@pytest.mark.parametrize("damage", [b"this is not a database, and long enough to be read as a header" * 20, b""])
def test_a_damaged_file_is_set_aside_and_the_store_goes_on(store, damage):
    store.path.parent.mkdir()
    store.path.write_bytes(damage)
    with pytest.warns(UserWarning, match="starting afresh"):
        assert store.get(KEY) is None
    store.put(KEY, CONFIG, 12.5)
    assert store.get(KEY).median_us == 12.5
    assert store.path.with_name("tuning.sqlite3.damaged").read_bytes() == damage


def test_a_file_damaged_in_the_middle_is_survived(store):
    for number in range(200):
        store.put(replace(KEY, shape=f"s{number}"), CONFIG * 10, 1.0)
    whole = bytearray(store.path.read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    store.path.write_bytes(whole)
    with pytest.warns(UserWarning, match="starting afresh"):
        store.put(KEY, CONFIG, 12.5)
    assert store.get(KEY).median_us == 12.5


def test_a_result_put_into_a_damaged_file_is_not_lost(store):
    store.path.parent.mkdir()
    store.path.write_bytes(b"junk" * 500)
    with pytest.warns(UserWarning, match="starting afresh"):
        store.put(KEY, CONFIG, 12.5)
    assert store.get(KEY).median_us == 12.5


def test_a_store_that_cannot_be_written_warns_and_does_not_stop_the_tuner(tmp_path):
    (tmp_path / "file").write_text("")
    store = TuningStore(tmp_path / "file" / "tuning.sqlite3")
    with pytest.warns(UserWarning, match="not kept"):
        store.put(KEY, CONFIG, 12.5)
    with pytest.warns(UserWarning, match="not kept"):
        assert store.get(KEY) is None


def test_readers_do_not_wait_for_a_writer(store):
    store.put(KEY, CONFIG, 12.5)
    writer = sqlite3.connect(store.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    try:
        assert store.get(KEY).median_us == 12.5
    finally:
        writer.close()
