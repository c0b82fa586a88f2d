"""What the end-to-end tests share: files that are emitted once and used by many tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelwright.build import find_cxx
from kernelwright.errors import EnvironmentProblem
from kernelwright.settings import read_settings
from tests.end_to_end.emitting import Emitted

Emit = Callable[[str], Emitted]


@pytest.fixture(scope="session")
def emit_once(tmp_path_factory: pytest.TempPathFactory) -> Emit:
    """The emitted file of a model's source; the same source is emitted and built once."""
    try:
        find_cxx(read_settings())
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    folder = tmp_path_factory.mktemp("emitted")
    made: dict[str, Emitted] = {}

    def emitted(source: str) -> Emitted:
        if source not in made:
            made[source] = Emitted(source, folder, f"model_{len(made)}")
        return made[source]

    return emitted
