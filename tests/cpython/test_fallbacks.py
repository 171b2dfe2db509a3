"""The CPython internals that weft relies on: checked on this interpreter, with pure-Python
fallbacks."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft._engine import cpython
from weft._engine.cpython import code_objects, layouts, references

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[True, False], ids=["internals", "fallback"])
def internals(request, monkeypatch):
    monkeypatch.setattr(cpython, "_is_allowed", request.param)
    code_objects.assigned_free_variables.cache_clear()
    yield request.param
    code_objects.assigned_free_variables.cache_clear()


def test_checks_hold_on_this_interpreter():
    checks = (
        references._is_exact,
        code_objects._reads_instructions,
        code_objects._reads_stores,
        code_objects._renames,
        layouts.verify_object_layouts,
    )
    assert [check() for check in checks] == [True] * len(checks)


def test_references_are_counted_or_unknown(internals):
    x = object()
    held = [x]
    count = references.count_references(x)  # `assert` refers to what it compares
    is_held = references.is_held_at_most(held[0], 2), references.is_held_at_most(held[0], 1)
    assert count == (2 if internals else None) and is_held == (internals, False)


def _fail(error):
    if error is None:
        return 1 // 0
    raise error


@pytest.mark.parametrize(
    ("error", "expected"), [(ValueError("x"), True), (None, False)], ids=["raise", "operation"]
)
def test_raise_statements_are_told_from_failures(internals, error, expected):
    try:
        _fail(error)
    except (ValueError, ZeroDivisionError) as caught:
        entry = caught.__traceback__.tb_next
    code, offset = entry.tb_frame.f_code, entry.tb_lasti
    assert code_objects.is_raise_statement(code, offset) is expected


def test_assigned_variables_of_other_functions(internals):
    count = total = limit = 0

    def function():
        nonlocal count

        def inner():
            nonlocal total
            total = limit

        count += 1
        return inner

    assert code_objects.assigned_free_variables(function.__code__) == {"count"}


def test_renamed_functions_take_new_names(internals):
    def function(x, *, accuracy=None):
        return x, accuracy

    renamed = code_objects.rename(function, ("y",), "other", {"__name__": "weft"})
    assert renamed(y=1) == (1, None) and renamed(2, accuracy=3) == (2, 3)
    assert renamed.__name__ == "other" and renamed.__module__ == "weft"
    with pytest.raises(TypeError):
        renamed(x=1)


class Slots:
    __slots__ = ("a", "b")


def test_layouts_are_seen_on_objects(internals):
    sample = Slots()
    sample.b = object()
    expected = object.__basicsize__ + 8 if internals else None
    assert layouts.checked_slot_offset(sample, "b") == expected
    assert (layouts.deallocator(Slots) is not None) is internals


def test_layouts_refuse_other_objects():
    assert layouts.deallocator(dict) is None  # its own destructor
    assert layouts.slot_offset(type("D", (), {"a": property()}), "a") is None
    assert layouts.has_plain_fields(np.arange(6.0).reshape(2, 3))
    assert not layouts.has_plain_fields(np.arange(6.0)[::2])
    assert layouts.has_plain_value(np.float32(2)) and not layouts.has_plain_value(np.complex128(2))


def test_dispatch_passes_without_internals():
    """The tests of dispatch, in a process where every fallback runs; the long loops test native code."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/api/test_dispatch.py", "-k", "not leave_nothing_behind"],
        cwd=ROOT,
        env={**os.environ, "WEFT_CPYTHON_INTERNALS": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
