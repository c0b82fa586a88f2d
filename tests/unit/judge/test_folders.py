"""Folders that a candidate has written into: whatever lies there, the judge measures, copies and removes it."""

import os
import socket
from pathlib import Path

import pytest

from kernelwright.judge import folders


@pytest.fixture
def littered(tmp_path: Path) -> Path:
    """Files, a closed folder, and what is neither file nor folder."""
    folder = tmp_path / "home"
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "built.so").write_bytes(b"library")
    (folder / "closed" / "inner" / "note").write_text("kept")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    (folder / "around").symlink_to(".")
    (folder / "nowhere").symlink_to("gone")
    return folder


def deep(folder: Path, levels: int) -> Path:
    """Folders in folders, until a path to the last of them would be too long to be named."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    return folder


def test_a_copy_has_files_folders_and_links_and_nothing_else(littered: Path, tmp_path: Path):
    folders.copy_plain(littered, tmp_path / "copy")
    copied = {str(path.relative_to(tmp_path / "copy")) for path, _ in folders.entries(tmp_path / "copy")}
    assert copied == {"built.so", "closed", "closed/inner", "closed/inner/note", "around", "nowhere"}
    assert (tmp_path / "copy" / "built.so").read_bytes() == b"library"
    assert (tmp_path / "copy" / "around").readlink() == Path()


def test_a_copy_gives_nobody_the_rights_of_its_owner(tmp_path: Path):
    tool = tmp_path / "home" / "tool"
    tool.parent.mkdir()
    tool.write_text("a program")
    tool.chmod(0o6755)
    os.utime(tool, ns=(10**18, 10**18))
    folders.copy_plain(tool.parent, tmp_path / "copy")
    copied = (tmp_path / "copy" / "tool").stat()
    assert copied.st_mode & 0o7777 == 0o755
    assert copied.st_mtime_ns == 10**18, "what is built of it is no older than it"


def test_a_littered_folder_is_removed(littered: Path):
    (littered / "closed").chmod(0)
    folders.remove(littered)
    assert not littered.exists()


def test_a_folder_deeper_than_a_path_is_seen_to_be_too_deep_and_removed(tmp_path: Path):
    folder = deep(tmp_path / "deep", 1500)
    assert not folders.is_within(folder, 1 << 30)
    folders.remove(folder)
    assert not folder.exists()


def test_removing_follows_no_link(tmp_path: Path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("stays")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "precious")
    folders.remove(tmp_path / "folder")
    assert (tmp_path / "precious" / "file").read_text() == "stays"
    assert not (tmp_path / "folder").exists()


def test_bytes_that_a_file_only_claims_count(tmp_path: Path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert folders.is_within(tmp_path, 2 << 30)
    assert not folders.is_within(tmp_path, 1 << 20)


def test_very_many_files_are_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folders, "MAX_ENTRIES", 10)
    for number in range(10):
        (tmp_path / str(number)).touch()
    assert folders.is_within(tmp_path, 1 << 30)
    (tmp_path / "one more").touch()
    assert not folders.is_within(tmp_path, 1 << 30)


@pytest.mark.parametrize("before", ["nothing", "a file", "a link", "a pipe", "a folder"])
def test_a_folder_is_made_whatever_had_its_name(tmp_path: Path, before: str):
    path = tmp_path / "home"
    makers = {
        "a file": path.touch,
        "a link": lambda: path.symlink_to("/nowhere"),
        "a pipe": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
    }
    makers.get(before, lambda: None)()
    folders.make_folder(path)
    assert path.is_dir()
    assert not path.is_symlink()
