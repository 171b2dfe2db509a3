"""Objects from memory, disk and compiler; several compiled at once."""

from __future__ import annotations

import functools

import pytest

from weft.codegen import cache, objects, target
from weft.codegen.objects import Order


def text(number: int) -> str:
    return f"define i64 @answer() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))


def orders(count: int, written: list[int]) -> list[Order]:
    def make(i: int) -> Order:
        return Order(cache.key("test", str(i)), lambda: (written.append(i), text(i))[1], quick=i % 2 == 0)

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
    bad = Order(cache.key("bad"), lambda: "define nonsense")
    with pytest.raises(RuntimeError):
        objects.prepare([*orders(3, []), bad], 3)
    with pytest.raises(RuntimeError):
        objects.prepare([bad], 1)


def test_the_fingerprint_follows_the_sources_and_is_kept(monkeypatch, tmp_path):
    home = tmp_path / "house" / "room"
    home.mkdir(parents=True)
    monkeypatch.setattr(cache, "__file__", str(home / "cache.py"))
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
