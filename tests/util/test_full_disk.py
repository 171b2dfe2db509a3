"""A full disk under the compilation cache: no temporary files remain, one warning is printed, and
programs run."""

import errno
import os
import subprocess
import sys
import warnings

import pytest

from weft._engine.util import cache

PROGRAM = """
import numpy as np, weft
for k in range(4):
    out = weft.jit(lambda x: weft.numpy.sin(x * k) @ x.T)(np.ones((3, 4), np.float32))
    assert np.allclose(out, 4 * np.sin(k), atol=1e-5)
"""


def files_under(folder):
    return [name for _, _, names in os.walk(folder) for name in names]


def is_temporary(name):
    return name.count(".") > 1


@pytest.fixture
def full_disk(tmp_path):
    folder = str(tmp_path)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_processes_leave_nothing_and_warn_once(full_disk):
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "WEFT_CACHE_DIR": f"{full_disk}/cache"},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert done.stderr.count("RuntimeWarning") == 1 and "No space left on device" in done.stderr
        assert not list(filter(is_temporary, files_under(full_disk)))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_write_that_fails_removes_its_file(tmp_path, monkeypatch, code):
    class Failing:
        def __init__(self, place, *_, **__):
            self.file = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

        def __enter__(self):
            return self

        def write(self, data):
            os.write(self.file, data[:3])

        def __exit__(self, *_):
            os.close(self.file)
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(cache, "open", Failing, raising=False)
    monkeypatch.setattr(cache, "_warned_of", set())
    folder = tmp_path / "cache"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(3):
            cache._put(str(folder / "ab" / f"ab{k}.o"), b"contents")
    assert files_under(folder) == []
    is_full = code in (errno.ENOSPC, errno.EDQUOT)
    assert [str(w.message).count(os.strerror(code)) for w in caught] == [1] * is_full
    if is_full:
        assert "WEFT_CACHE_DIR" in str(caught[0].message) and issubclass(
            caught[0].category, RuntimeWarning
        )


def test_a_disk_with_room_keeps_objects(tmp_path):
    place = tmp_path / "cache" / "ab" / "abc.o"
    cache._put(str(place), b"contents")
    assert files_under(tmp_path) == ["abc.o"] and place.read_bytes().endswith(b"contents")
