"""What a terminal and an emitted file say of a judgement."""

from __future__ import annotations

import io

from rich.console import Console

from kernelwright.judge.verdict import Interval, Judgement, Speed, Verdict
from kernelwright.report.measured import measured_lines
from kernelwright.report.tables import judgement_view

JUDGED = Judgement(
    verdict=Verdict.CORRECT,
    speed=Speed.FASTER,
    labels=(),
    detail="",
    errors=None,
    speedup={"compile": Interval(1.5, 1.4, 1.6), "eager": Interval(3.0, 2.9, 3.1)},
    times_us={
        "compile": Interval(1500.0, 1400.0, 1600.0),
        "candidate": Interval(1000.0, 990.0, 1010.0),
        "eager": Interval(3000.0, 2900.0, 3100.0),
        "eager again": Interval(3010.0, 2900.0, 3100.0),
    },
    kill_rate=None,
    shortage=False,
    isolation="namespaces",
    environment={"device": "a CPU", "torch": "2.13.0"},
    record={},
)


def test_the_candidate_comes_first_and_each_ratio_says_what_it_is_beside_whom() -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as printed:
        console.print(judgement_view(JUDGED))
    head, candidate, eager, again, compiled = (line.strip() for line in printed.get().splitlines()[1:6])
    assert head.endswith("the candidate is")
    assert candidate.startswith("candidate")
    assert candidate.endswith("990.0 us to 1.01 ms")
    assert eager.endswith("3.00x as fast (2.90 to 3.10)")
    assert again.startswith("eager again")
    assert compiled.startswith("torch.compile")
    assert compiled.endswith("1.50x as fast (1.40 to 1.60)")


def test_an_emitted_file_says_where_it_was_measured_and_beside_whom() -> None:
    lines = measured_lines(JUDGED, ())
    assert lines[0] == "verdict CORRECT, FASTER on a CPU, PyTorch 2.13.0"
    assert "1.50x as fast as torch.compile (95% interval 1.40 to 1.60)" in lines
