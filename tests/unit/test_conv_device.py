"""The benchmark of convolutions: a config that hangs does not keep the others from being measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks import conv_device
from benchmarks.conv_device import answered, configs_table, every_choice
from kernelwright.device import resolve

H200 = resolve("h200")
SILENT_AFTER_ONE = "import time; print('{\"good\": true}', flush=True); time.sleep(60)"


def test_a_worker_that_falls_silent_is_ended() -> None:
    worker = subprocess.Popen([sys.executable, "-c", SILENT_AFTER_ONE], stdout=subprocess.PIPE, text=True)
    assert list(answered(worker, 0.3)) == [{"good": True}]
    assert worker.returncode == -9


def test_after_a_config_that_hangs_the_next_one_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of five configs never answers; the worker is started again behind it."""
    started: list[int] = []

    class Worker:
        returncode = -9

        def __init__(self, command: list[str], **_: object) -> None:
            started.append(int(command[command.index("--first") + 1]))

    def answers(_: Worker, patience_s: float) -> Iterator[dict[str, object]]:
        for number in range(started[-1], 5):
            if number == 2:
                return
            yield {"number": number}

    every = every_choice("few channels 8->64", "tf32", ["kept"], 100, H200)[:5]
    monkeypatch.setattr(conv_device, "every_choice", lambda *_: every)
    monkeypatch.setattr(conv_device, "answered", answers)
    monkeypatch.setattr(conv_device.subprocess, "Popen", Worker)
    rows = list(conv_device.configs("few channels 8->64", "tf32", ["kept"], 100, H200, 1.0))
    assert [row.get("number", "hangs") for row in rows] == [0, 1, "hangs", 3, 4]
    assert started == [0, 3]
    assert rows[2]["config"] == str(every[2][2])


def test_every_config_is_a_row_of_the_table_and_at_last_the_best_of_each_kind() -> None:
    row = {"phase": "config", "name": "n", "precision": "tf32", "template": "kept", "config": "c", "model_us": 2.0}
    rows = [row | {"good": True, "us": 1.0, "kind": "sent"}, row | {"good": False, "us": None, "kind": "stored"}]
    peer = {"name": "n", "precision": "tf32", "eager_us": 5.0, "compiled_us": 4.0, "best_us": 1.0}
    table = configs_table(json.loads(json.dumps(rows)), [peer])
    assert table[0] == "n tf32: 2 configs, 1 wrong"
    assert [line.split()[0] for line in table[1:-1]] == ["1.0", "WRONG"]
    found = "sent 1; the model's choice 1 (said 2); in turn with eager 5 and compiled 4; 1, 4.00 x"
    assert table[-1].split(maxsplit=2)[2] == found


def test_the_first_configs_of_each_kind_are_run() -> None:
    for name, kept in (("64->128 3x3", ("stored", "stored, abreast")), ("transposed 1-d /2", ("sent", "stored"))):
        kinds = [conv_device.kind_of(t, c) for t, _, c in every_choice(name, "tf32", ["kept", "mma"], 2, H200)]
        assert Counter(kinds) == dict.fromkeys((*kept, "mma"), 2)
