"""Objects from memory, disk and compiler; several compiled at once."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

from weft.codegen.toolchain import cache, objects, target
from weft.codegen.toolchain.objects import CompileRequest


def text(number: int) -> str:
    return f"define i64 @answer() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def orders(count: int, written: list[int]) -> list[CompileRequest]:
    def make(i: int) -> CompileRequest:
        return CompileRequest(cache.key("test", str(i)), lambda: (written.append(i), text(i))[1], quick=i % 2 == 0)

    return [make(i) for i in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_prepared_objects_are_their_own(threads):
    written: list[int] = []
    wanted = orders(7, written)
    objects.prepare([*wanted, wanted[3]], threads)
    assert sorted(written) == list(range(7))
    for i, order in enumerate(wanted):
        assert objects.take(order) == target.emit_object(text(i), target.current(), quick=i % 2 == 0)
    assert sorted(written) == list(range(7))


def test_disk_comes_before_the_compiler():
    written: list[int] = []
    [order] = orders(1, written)
    first = objects.take(order)
    assert objects.take(order) == first and written == [0]
    objects.prepare([order], 2)
    assert written == [0]


def test_errors_of_any_thread_are_raised():
    bad = CompileRequest(cache.key("bad"), lambda: "define nonsense")
    with pytest.raises(RuntimeError):
        objects.prepare([*orders(3, []), bad], 3)
    with pytest.raises(RuntimeError):
        objects.prepare([bad], 1)


def test_the_fingerprint_follows_the_sources_and_is_kept(monkeypatch, tmp_path):
    home = tmp_path / "house" / "room"
    home.mkdir(parents=True)
    monkeypatch.setattr(cache, "_PACKAGE", str(home.parent))
    for cached in (cache._sources, cache._contents):
        monkeypatch.setattr(cache, cached.__name__, cached.__wrapped__)
    fingerprint = functools.partial(cache.fingerprint.__wrapped__, ("room",))
    (home / "one.py").write_text("1")
    (home / "two.ll").write_text("2")
    first = fingerprint()
    (home / "notes.txt").write_text("no source")
    kept = len(list(tmp_path.rglob("*.o")))
    assert fingerprint() == first and kept == len(list(tmp_path.rglob("*.o"))) == 1
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


def test_what_is_to_be_written_is_there_for_readers_at_once_and_on_disk_soon(tmp_path):
    made = []
    cache.later(name := cache.key("later"), lambda: made.append(1) or b"data")
    cache.later(cache.key("nothing"), lambda: None)
    assert cache.has(name) and cache.read(name) == b"data"
    cache.flush()
    assert cache.read(name) == b"data" and len(made) <= 2 and len(list(tmp_path.rglob("*.o"))) == 1
    cache.later(name, lambda: b"older")
    cache.write(name, b"newer")
    cache.flush()
    assert cache.read(name) == b"newer"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_leaves_what_waits_to_its_parent():
    """In a process of its own: here, a thread that earlier tests left may write what waits before the child is made."""
    text = """
import os
from weft.codegen.toolchain import cache

cache._PAUSE_S = 60
cache.later(name := cache.key("forked"), lambda: str(os.getpid()).encode())
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
    text = "from weft.codegen.toolchain import cache; cache._PAUSE_S = 60; cache.later(cache.key('end'), lambda: b'data')"
    subprocess.run([sys.executable, "-c", text], check=True)
    assert cache.read(cache.key("end")) == b"data"


def test_what_is_to_be_done_meanwhile_is_done_once_if_anything_is_compiled():
    done = []
    wanted = orders(3, [])
    objects.prepare(wanted, 2, lambda: done.append(1))
    objects.prepare(wanted, 2, lambda: done.append(1))
    assert done == [1] and all(map(objects.is_there, wanted))
