"""`explain_cache_misses`: it names each reason for another trace, with the lines of the call and of
the function."""

import functools
import inspect
import logging

import numpy as np
import pytest

import weft
import weft.numpy as wnp


def explained(caplog, *calls) -> list[str]:
    """Return the reports of the calls after the first."""
    with weft.explain_cache_misses(), caplog.at_level(logging.WARNING, "weft"):
        for call in calls:
            caplog.clear()
            call()
    return [r.getMessage() for r in caplog.records if "TRACING CACHE MISS" in r.getMessage()]


def f(x, scale=2, *, shift=0):
    return weft.tree.map(lambda v: v * scale + shift, x)


ONES = np.ones(3, np.float32)
CASES = {
    "shape": (
        lambda g: g(ONES),
        lambda g: g(np.ones(4, np.float32)),
        "* type of x:  now float32[4],  before float32[3]",
    ),
    "dtype": (
        lambda g: g(ONES),
        lambda g: g(np.ones(3, np.int32)),
        "* type of x:  now int32[3],  before float32[3]",
    ),
    "weak type": (
        lambda g: g(np.float32(1)),
        lambda g: g(1.0),
        "* type of x:  now float32[] of weak type,  before float32[]",
    ),
    "tree": (
        lambda g: g({"a": ONES}),
        lambda g: g({"a": ONES, "b": ONES}),
        "* type of x['b']:  now float32[3],  before none",
    ),
    "kind of tree": (lambda g: g([ONES]), lambda g: g((ONES,)), "* argument structure:"),
    "static by number": (
        lambda g: g(ONES, 2),
        lambda g: g(ONES, 3),
        "* static argument number 1:  now 3,  before 2",
    ),
    "static by name": (
        lambda g: g(ONES, shift=2),
        lambda g: g(ONES, shift=3),
        "* static argument shift:  now 3,  before 2",
    ),
    "setting": (
        lambda g: g(ONES),
        lambda g: weft.enable_x64(True)(g)(ONES),
        "* setting enable_x64:  now True,  before False",
    ),
    "mesh": (lambda g: g(ONES), lambda g: in_mesh(g), "* mesh in context:"),
    "axes": (
        lambda g: g(ONES),
        lambda g: weft.vmap(g, axis_name="rows")(np.ones((2, 3), np.float32)),
        "* named axes around the call:",
    ),
}


def in_mesh(g):
    with weft.sharding.use_mesh(weft.make_mesh((8,), ("d",))):
        g(ONES)


@pytest.mark.parametrize("name", CASES)
def test_reasons(caplog, name):
    first, second, expected = CASES[name]
    static = (
        {"static_argnums": 1}
        if "number" in name
        else {"static_argnames": "shift"}
        if "name" in name
        else {}
    )
    jitted = weft.jit(functools.partial(f), **static)
    (text,) = explained(caplog, lambda: first(jitted), lambda: second(jitted))
    assert expected in text and text.startswith(f"TRACING CACHE MISS at {__file__}:")
    assert len(text.splitlines()) == 4


def test_the_nearest_earlier_key_is_compared(caplog):
    @weft.jit
    def g(x, y):
        return x + y

    far = lambda: weft.enable_x64(True)(g)(np.float64(1), {"a": 1}["a"])
    (text,) = explained(caplog, lambda: g(ONES, ONES), far, lambda: g(ONES, 1.0))
    assert (
        "* type of y:  now float32[] of weak type,  before float32[3]" in text
        and "enable_x64" not in text
    )
    assert f"for g defined at {__file__}:{inspect.getsourcelines(inspect.unwrap(g))[1]}" in text


def test_a_function_made_anew_is_told_so(caplog):
    call = lambda: weft.jit(lambda x: x + 41)(ONES)
    (first,) = explained(caplog, call)
    (again,) = explained(caplog, call)
    assert "never seen: <lambda> defined at" in first and "same line" not in first
    assert "same line" in again


def test_equal_calls_and_weft_itself_are_not_reported(caplog):
    g = weft.jit(lambda x: x - 1)
    assert not explained(caplog, lambda: g(ONES), lambda: g(ONES))
    assert not explained(caplog, lambda: wnp.linspace(0, 1, 77))
