"""Objects from memory, disk and compiler, and concurrent compilation."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from weft._engine.codegen.program import program
from weft._engine.codegen.toolchain import objects, target
from weft._engine.codegen.toolchain.objects import ObjectRequest
from weft._engine.util import cache


def text(number: int) -> str:
    return f"define i64 @answer() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def orders(count: int, written: list[int]) -> list[ObjectRequest]:
    def make(i: int) -> ObjectRequest:
        return ObjectRequest(
            cache.key("test", str(i)), lambda: (written.append(i), text(i))[1], quick=i % 2 == 0
        )

    return [make(i) for i in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_prepared_objects_are_their_own(threads):
    written: list[int] = []
    expected = orders(7, written)
    objects.prepare([*expected, expected[3]], threads)
    assert sorted(written) == list(range(7))
    for i, order in enumerate(expected):
        assert objects.take(order) == target.emit_object(
            text(i), target.current(), quick=i % 2 == 0
        )
    assert sorted(written) == list(range(7))


def test_disk_comes_before_the_compiler():
    written: list[int] = []
    [order] = orders(1, written)
    first = objects.take(order)
    assert objects.take(order) == first and written == [0]
    objects.prepare([order], 2)
    assert written == [0]


def test_errors_of_any_thread_are_raised():
    bad = ObjectRequest(cache.key("bad"), lambda: "define nonsense")
    with pytest.raises(RuntimeError):
        objects.prepare([*orders(3, []), bad], 3)
    with pytest.raises(RuntimeError):
        objects.prepare([bad], 1)


def test_the_fingerprint_follows_the_sources_and_is_kept(monkeypatch, tmp_path):
    home = tmp_path / "user" / "cache"
    home.mkdir(parents=True)
    monkeypatch.setattr(cache, "_PACKAGE", str(home.parent))
    for cached in (cache._sources, cache._contents):
        monkeypatch.setattr(cache, cached.__name__, cached.__wrapped__)
    fingerprint = functools.partial(cache.fingerprint.__wrapped__, ("cache",))
    (home / "one.py").write_text("1")
    (home / "two.ll").write_text("2")
    first = fingerprint()
    (home / "notes.txt").write_text("no source")
    count = len(list(tmp_path.rglob("*.o")))
    assert fingerprint() == first and count == len(list(tmp_path.rglob("*.o"))) == 1
    (home / "two.ll").write_text("3")
    changed = fingerprint()
    assert changed != first
    (home / "two.ll").write_text("2")
    assert fingerprint() == first, "equal sources, whenever they were written, have one fingerprint"
    nested = home / "inner" / "innermost" / "three.py"
    nested.parent.mkdir(parents=True)
    nested.write_text("3")
    with_nested = fingerprint()
    assert with_nested != first
    nested.write_text("4")
    assert fingerprint() not in (with_nested, first)


def test_the_fingerprint_covers_code_generator_sources():
    """Routines are found by name: the sources that decide their text are in the fingerprint. (A
    kernel is found by its own digest; formulas of `ops` above the functions become kernels.)"""
    package = Path(cache.__file__).parents[1]
    imported = {
        node.module
        for path in (package / "codegen").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft._engine.")
    }
    modules = {name.removeprefix("weft._engine.").replace(".", "/") for name in imported}
    assert not {name for name in modules if not name.startswith(cache._GENERATOR)}


def test_pending_objects_are_readable_before_they_are_written(tmp_path):
    calls = []
    cache.write_later(name := cache.key("later"), lambda: calls.append(1) or b"data")
    cache.write_later(cache.key("nothing"), lambda: None)
    assert cache.has(name) and cache.read(name) == b"data"
    cache.flush()
    assert cache.read(name) == b"data" and len(calls) <= 2 and len(list(tmp_path.rglob("*.o"))) == 1
    cache.write_later(name, lambda: b"older")
    cache.write(name, b"newer")
    cache.flush()
    assert cache.read(name) == b"newer"


def test_other_threads_may_add_while_some_is_written(monkeypatch):
    """A garbage collection, which any allocation may start, lets other threads run during a loop
    over a dict."""
    adds = threading.Thread(
        target=lambda: [
            cache.write_later(cache.key("added", str(i)), lambda: None) for i in range(300)
        ]
    )
    pause = lambda *_: time.sleep(1e-5)
    thresholds = gc.get_threshold()
    monkeypatch.setattr(cache, "_PAUSE_S", 60)
    gc.callbacks.append(pause)
    gc.set_threshold(1)
    try:
        adds.start()
        while adds.is_alive():
            cache.flush()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(pause)
        adds.join()
    cache.flush()
    assert not cache._waiting


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_leaves_what_waits_to_its_parent():
    """Runs in a separate process, because a thread of an earlier test may write the pending objects
    before the fork."""
    text = """
import os
from weft._engine.util import cache

cache._PAUSE_S = 60
cache.write_later(name := cache.key("forked"), lambda: str(os.getpid()).encode())
child = os.fork()
if not child:
    cache.flush()
    os._exit(int(cache.has(name)))
assert os.waitpid(child, 0)[1] == 0
cache.flush()
assert cache.read(name) == str(os.getpid()).encode()
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_what_waits_is_written_at_the_end_of_the_process():
    text = "from weft._engine.util import cache; cache._PAUSE_S = 60; cache.write_later(cache.key('end'), lambda: b'data')"
    subprocess.run([sys.executable, "-c", text], check=True)
    assert cache.read(cache.key("end")) == b"data"


def test_concurrent_work_runs_once_if_anything_compiles():
    done = []
    expected = orders(3, [])
    objects.prepare(expected, 2, lambda: done.append(1))
    objects.prepare(expected, 2, lambda: done.append(1))
    assert done == [1] and all(map(objects.is_there, expected))


def test_a_damaged_index_counts_as_empty():
    name = cache.key("kernel")
    for data in (b"\xff\xfe", b"", b"../../elsewhere one two", f"{name} one".encode()):
        cache.write(name, data)
        program._load_stored_kernels(name, {})
        assert name not in program._kernels


# ---- permission to write executable code

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no rights of groups")


@pytest.fixture
def reset_warnings(monkeypatch):
    """Reset the state: no folder checked, no warning printed."""
    monkeypatch.setattr(cache, "_safe", {})
    monkeypatch.setattr(cache, "_warned", [])


@posix
def test_others_cannot_write_what_is_kept(tmp_path, reset_warnings, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "above" / "cache"))
    before = os.umask(0)
    try:
        cache.write(name := cache.key("private"), b"data")
    finally:
        os.umask(before)
    [file] = tmp_path.rglob("*.o")
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent, file.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
    assert cache.read(name) == b"data"


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_no_cache(mode, tmp_path, reset_warnings):
    cache.write(name := cache.key("open"), b"data")
    tmp_path.chmod(mode)
    cache._safe.clear()
    with pytest.warns(RuntimeWarning, match="chmod -R go-w"):
        assert cache.directory() is None
    assert cache.read(name) is None and not cache.has(name), "and no second warning"
    cache.write(cache.key("other"), b"data")
    assert len(list(tmp_path.rglob("*.o"))) == 1


@posix
@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_a_file_that_others_may_write_is_not_read(mode, tmp_path, reset_warnings):
    cache.write(name := cache.key("open"), b"data")
    [file] = tmp_path.rglob("*.o")
    file.chmod(mode)
    with pytest.warns(RuntimeWarning, match=file.name):
        assert cache.read(name) is None
    cache.write(name, b"new")
    assert cache.read(name) == b"new", "ours takes its place"


@posix
@pytest.mark.parametrize(
    ("owner", "mode", "safe"),
    [
        (1000, 0o644, True),
        (0, 0o755, True),
        (1001, 0o600, False),
        (65534, 0o700, False),
        (0, 0o775, False),
        (1000, 0o1777, False),
    ],
)
def test_what_another_user_owns_is_not_safe(owner, mode, safe, reset_warnings, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    facts = os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    with contextlib.nullcontext() if safe else pytest.warns(RuntimeWarning, match="another user"):
        assert cache._is_safe(facts, "there") is safe


@posix
@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, lambda place: os.symlink(place, place)],
    ids=["pipe", "folder", "loop"],
)
def test_what_is_no_file_counts_as_missing(make, tmp_path):
    name = cache.key("none")
    (tmp_path / name[:2]).mkdir(mode=0o700)
    make(tmp_path / name[:2] / f"{name}.o")
    assert cache.read(name) is None
