"""What every test stands on: private caches, the same random examples each run, and what a missing GPU means."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run, so that a red build is red again; the failing example is printed.
settings.register_profile(
    "calm",
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
settings.load_profile("calm")

# So many cases of a slow test run by default.
FEW = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.addoption
    add("--require", action="append", default=[], choices=["gpu"], help="a test that skips for lack of it fails")
    add("--cases", type=float, default=1.0, metavar="N", help="try N times as many random cases; other ones if N > 1")
    add("--thorough", action="store_true", help="run every case of the slow tests, not a few of each")
    add("--update-golden", action="store_true", help="write the golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cases") > 1:
        settings.register_profile("searching", settings.get_profile("calm"), derandomize=False)
        settings.load_profile("searching")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked gpu skip where there is none, unless one is required: then they run, and fail. Of a slow test with
    many cases, a few run."""
    if not config.getoption("--thorough"):
        left_out = cases_left_out(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    marked = [item for item in items if "gpu" in item.keywords]
    if marked and "gpu" not in config.getoption("--require") and not gpu_is_there():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


def cases_left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of each slow test all cases but FEW, which lie evenly among them."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "slow" in item.keywords:
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {family[i * len(family) // FEW] for family in families.values() if len(family) > FEW for i in range(FEW)}
    return [item for family in families.values() if len(family) > FEW for item in family if item not in kept]


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> None:
    """For a test that runs where there is time for it."""
    if not request.config.getoption("--thorough"):
        pytest.skip("runs with --thorough")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Under --require gpu a gpu test that skips itself fails."""
    report = yield
    if report.skipped and "gpu" in item.keywords and "gpu" in item.config.getoption("--require"):
        report.outcome = "failed"
        report.longrepr = f"a GPU is required, and this test was skipped: {report.longrepr}"
    return report


def gpu_is_there() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def private_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Builds of this run start from nothing and leave nothing behind; processes that tests start inherit this."""
    folder = tmp_path_factory.mktemp("caches")
    before = dict(os.environ)
    os.environ["KERNELWRIGHT_CACHE_DIR"] = str(folder / "kernelwright")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "torch_extensions")
    yield folder
    for name in ("KERNELWRIGHT_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


@pytest.fixture(autouse=True)
def same_random_tensors() -> None:
    """Each test draws the same tensors on every run, by whatever came before it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> float:
    """How many times the usual number of random cases to try."""
    times: float = request.config.getoption("--cases")
    return times
