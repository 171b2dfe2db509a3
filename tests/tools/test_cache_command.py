"""`weft cache`: size, list, clear and limit of the compiled programs on disk."""

import os
import time

import pytest

from weft._engine.util import cache
from weft._engine.util.config import config
from weft.tools.cli import main

KIB = 1024


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Use an own folder with three objects of 8 KiB; one is 10 days old."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    for i in range(3):
        cache.write(cache.digest(b"%d" % i), os.urandom(8 * KIB - 100))
    oldest = tmp_path / cache.digest(b"0")[:2] / f"{cache.digest(b'0')}.o"
    os.utime(oldest, (time.time() - 10 * 86400,) * 2)
    return tmp_path


def lines(capsys, *words: str) -> list[str]:
    assert main(["cache", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("words", [(), ("size",)])
def test_the_size_and_the_limit_are_shown(folder, capsys, words):
    assert lines(capsys, *words) == [
        f"folder  {folder}",
        "size    24.0 KiB in 3 files",
        "limit   1.0 GiB",
    ]


def test_the_newest_files_are_listed(folder, capsys):
    listed = lines(capsys, "list", "--top", "2")
    assert [line.split()[2:4] for line in listed[:2]] == [["8.0", "KiB"]] * 2
    assert listed[2] == "and 1 older file"
    assert not any(cache.digest(b"0") in line for line in listed)


def test_old_files_or_all_files_are_deleted(folder, capsys):
    assert lines(capsys, "clear", "--older", "5") == ["1 file deleted, 8.0 KiB freed"]
    assert cache.read(cache.digest(b"0")) is None
    assert cache.read(cache.digest(b"1")) is not None
    assert lines(capsys, "clear") == ["2 files deleted, 16.0 KiB freed"]
    assert lines(capsys, "list") == []


def test_a_limit_is_stored_in_the_folder(folder, capsys):
    assert lines(capsys, "limit") == ["limit   1.0 GiB"]
    assert lines(capsys, "limit", "1.5M") == ["24.0 KiB freed", "limit   1.5 MiB"]
    assert cache.size_limit() == 3 << 19
    assert lines(capsys, "limit") == ["limit   1.5 MiB"]
    config.update("compilation_cache_max_size", 5)
    try:
        assert cache.size_limit() == 5
    finally:
        config.update("compilation_cache_max_size", -1)


def test_a_size_that_is_no_size_is_refused(folder, capsys):
    with pytest.raises(SystemExit):
        main(["cache", "limit", "much"])
    assert "expected a number of bytes such as 500M or 2G, got 'much'" in capsys.readouterr().err


def test_a_disabled_cache_is_reported(monkeypatch, capsys):
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")
    assert main(["cache", "clear"]) == 1
    assert "is disabled" in capsys.readouterr().out
