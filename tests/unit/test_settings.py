"""Settings come from the environment that is given, and from nowhere else."""

from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.settings import read_settings


@pytest.mark.parametrize(
    ("environ", "cache_dir"),
    [
        ({"KERNELWRIGHT_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/kernelwright"),
        ({"HOME": "/c"}, "/c/.cache/kernelwright"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/kernelwright"),
        ({"KERNELWRIGHT_CACHE_DIR": "", "HOME": "/c"}, "/c/.cache/kernelwright"),
    ],
)
def test_the_cache_folder_is_the_first_that_is_set(environ, cache_dir):
    assert read_settings(environ).cache_dir == Path(cache_dir)


def test_our_own_job_count_goes_before_torchs():
    assert read_settings({"KERNELWRIGHT_JOBS": "3", "MAX_JOBS": "7"}).jobs == 3
    assert read_settings({"MAX_JOBS": "7"}).jobs == 7
    assert read_settings({}).jobs >= 1


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²"])
def test_a_job_count_that_is_no_positive_number_is_refused_with_a_cure(value):
    with pytest.raises(UsageError, match=r"KERNELWRIGHT_JOBS: .* positive whole number") as refusal:
        read_settings({"KERNELWRIGHT_JOBS": value})
    assert "Unset KERNELWRIGHT_JOBS" in refusal.value.cure


def test_cuda_home_goes_before_cuda_path_and_empty_means_unset():
    assert read_settings({"CUDA_HOME": "/x", "CUDA_PATH": "/y"}).cuda_home == Path("/x")
    assert read_settings({"CUDA_HOME": "", "CUDA_PATH": "/y"}).cuda_home == Path("/y")
    assert read_settings({}).cuda_home is None
    assert read_settings({"CXX": ""}).cxx is None
