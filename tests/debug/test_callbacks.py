"""Prints and callbacks: once each, in order, in eager and compiled code and under every transformation."""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util import events
from weft.experimental import io_callback

show = weft.debug.print
THREE = np.arange(3, dtype=np.float32)


def lines(capsys) -> list[str]:
    weft.effects_barrier()
    return capsys.readouterr().out.splitlines()


def shown(x, text="x={}"):
    """`sin(x)`, and a print of x."""
    show(text, x)
    return wnp.sin(x)


def add_up(c, x):
    show("{} {}", c, x)
    return c + x, c * x


def count(x):
    return lax.while_loop(lambda i: i < 3, lambda i: (show("{}", i), i + 1)[1], x)


def ruled(x):
    """A function with its own derivative rule; both sides print."""

    @weft.custom_jvp
    def f(x):
        show("primal {}", x)
        return wnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        show("rule {}", primals[0])
        return wnp.sin(primals[0]), wnp.cos(primals[0]) * tangents[0]

    return f(x)


def ruled_backwards(x):
    @weft.custom_vjp
    def f(x):
        show("primal {}", x)
        return wnp.sin(x)

    f.defvjp(
        lambda x: (show("forward {}", x), (wnp.sin(x), x))[1],
        lambda x, ct: (show("backward {}", ct), (ct * wnp.cos(x),))[1],
    )
    return f(x)


def unused(x):
    show("{}", x)
    return x * 0


PROGRAMS = {
    "plain": (unused, (2.0,), ["2.0"]),
    "scan": (lambda x: lax.scan(add_up, 0.0, x), (THREE,), ["0.0 0.0", "0.0 1.0", "1.0 2.0"]),
    "scan without results": (
        lambda x: lax.scan(lambda c, v: (show("{}", v), (c, None))[1], 0, x)[0],
        (THREE,),
        ["0.0", "1.0", "2.0"],
    ),
    "reversed scan": (
        lambda x: lax.scan(add_up, 0.0, x, reverse=True)[0],
        (THREE,),
        ["0.0 2.0", "2.0 1.0", "3.0 0.0"],
    ),
    "while": (count, (1,), ["1", "2"]),
    "while condition": (
        lambda x: lax.while_loop(lambda i: (show("{}", i), i < 2)[1], lambda i: i + 1, x),
        (0,),
        ["0", "1", "2"],
    ),
    "fori": (
        lambda n: lax.fori_loop(0, n, lambda i, c: (show("{}", i), c + i)[1], 0),
        (2,),
        ["0", "1"],
    ),
    "map": (lambda x: lax.map(shown, x), (THREE,), ["x=0.0", "x=1.0", "x=2.0"]),
    "cond": (
        lambda x: lax.cond(x > 0, lambda: show("yes {}", x), lambda: show("no {}", x)),
        (1.0,),
        ["yes 1.0"],
    ),
    "cond, other branch": (
        lambda x: lax.cond(x > 0, lambda: show("yes"), lambda: show("no {}", x)),
        (-1.0,),
        ["no -1.0"],
    ),
    "switch": (
        lambda i: lax.switch(i, [lambda: show("zero"), lambda: show("one"), lambda: None]),
        (1,),
        ["one"],
    ),
    "nested jit": (weft.jit(lambda x: weft.jit(shown)(x)), (1.0,), ["x=1.0"]),
    "twice the same": (lambda x: (show("{}", x), show("{}", x))[0], (1.0,), ["1.0", "1.0"]),
    "vmap": (weft.vmap(shown), (THREE,), ["x=0.0", "x=1.0", "x=2.0"]),
    "vmap of some operands": (
        weft.vmap(lambda x, y: show("{} {}", x, y), (0, None)),
        (THREE[:2], 7.0),
        ["0.0 7.0", "1.0 7.0"],
    ),
    "vmap twice": (
        weft.vmap(weft.vmap(lambda x: show("{}", x)), 1),
        (np.arange(4.0, dtype=np.float32).reshape(2, 2),),
        ["0.0", "2.0", "1.0", "3.0"],
    ),
    "vmap of scan": (
        weft.vmap(lambda x: lax.scan(add_up, 0.0, x)[0]),
        (np.ones((2, 2), np.float32),),
        ["0.0 1.0", "0.0 1.0", "1.0 1.0", "1.0 1.0"],
    ),
    "vmap of cond": (
        weft.vmap(lambda x: lax.cond(x > 0.5, lambda: show("high {}", x), lambda: None)),
        (THREE,),
        ["high 1.0", "high 2.0"],
    ),
    "vmap of nested cond": (
        weft.vmap(
            lambda x: lax.cond(
                x > 0,
                lambda: lax.cond(x > 1, lambda: show("2: {}", x), lambda: show("1: {}", x)),
                lambda: None,
            )
        ),
        (THREE,),
        ["1: 1.0", "2: 2.0"],
    ),
    "vmap of scan in cond": (
        weft.vmap(
            lambda x: lax.cond(
                x > 1,
                lambda: lax.scan(lambda c, i: (show("{} {}", x, i), (c, i))[1], 0, np.arange(2))[0],
                lambda: 5,
            )
        ),
        (THREE,),
        ["2.0 0", "2.0 1"],
    ),
    "vmap of while": (weft.vmap(count), (np.array([0, 2, 3]),), ["0", "2", "1", "2"]),
    "vmap of while condition": (  # called twice per step, also for finished examples
        weft.vmap(
            lambda n: lax.while_loop(lambda i: (show("{}", i), i < 2)[1], lambda i: i + 1, n)
        ),
        (np.array([1, 2]),),
        ["1", "2", "1", "2", "2", "2"],
    ),
    "vmap of while condition in order": (  # called once per step, then for the examples that continue
        weft.vmap(
            lambda n: lax.while_loop(
                lambda i: (weft.debug.print("{}", i, ordered=True), i < 2)[1], lambda i: i + 1, n
            )
        ),
        (np.array([1, 2, 0]),),
        ["1", "2", "0", "2", "1", "2"],
    ),
    "jvp": (lambda x: weft.jvp(shown, (x,), (x,)), (1.0,), ["x=1.0"]),
    "grad": (weft.grad(shown), (1.0,), ["x=1.0"]),
    "grad of jit": (weft.grad(weft.jit(shown)), (1.0,), ["x=1.0"]),
    "grad twice": (weft.grad(weft.grad(shown)), (1.0,), ["x=1.0"]),
    "grad of vmap": (
        weft.grad(lambda x: weft.vmap(shown)(x).sum()),
        (THREE[:2],),
        ["x=0.0", "x=1.0"],
    ),
    "grad of scan": (
        weft.grad(
            lambda x: lax.scan(
                lambda c, v: (show("{} {}", c, v), (wnp.sin(c) + v, None))[1], 0.0, x
            )[0]
        ),
        (THREE[:2],),
        ["0.0 0.0", "0.0 1.0"],
    ),
    "grad of scan of a counter": (
        weft.grad(lambda x: lax.fori_loop(0, 2, lambda i, c: (show("{}", i), c * x)[1], x)),
        (1.0,),
        ["0", "1"],
    ),
    "grad of cond": (
        weft.grad(lambda x: lax.cond(x > 0, shown, lambda x: x, x)),
        (1.0,),
        ["x=1.0"],
    ),
    "grad of checkpoint": (weft.grad(weft.checkpoint(shown)), (1.0,), ["x=1.0"]),
    "grad of checkpoint in scan": (
        weft.grad(
            lambda x: lax.scan(
                weft.checkpoint(lambda c, v: (show("{}", v), (wnp.sin(c * v), None))[1]), 1.0, x
            )[0]
        ),
        (THREE,),
        ["0.0", "1.0", "2.0"],
    ),
    "linearize while": (
        lambda x: weft.linearize(
            lambda y: lax.while_loop(
                lambda s: s[1] < 2, lambda s: (show("{}", s[1]), (s[0] * 2, s[1] + 1))[1], (y, 0)
            )[0],
            x,
        )[1](x),
        (1.0,),
        ["0", "1"],
    ),
    "custom_jvp": (ruled, (1.0,), ["primal 1.0"]),
    "grad of custom_jvp": (weft.grad(ruled), (1.0,), ["rule 1.0"]),
    "custom_vjp": (ruled_backwards, (1.0,), ["primal 1.0"]),
    "grad of custom_vjp": (weft.grad(ruled_backwards), (1.0,), ["forward 1.0", "backward 1.0"]),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_effect_happens_once_and_in_order(name, compiled, capsys):
    fun, args, want = PROGRAMS[name]
    fun = weft.jit(fun) if compiled else fun
    for _ in range(
        3
    ):  # the first call compiles, the second teaches native dispatch, the third uses it
        fun(*args)
        assert lines(capsys) == want


def test_results_are_those_of_the_program_without_prints(capsys):
    with_prints = weft.jit(
        weft.vmap(lambda n: lax.cond(n > 1, lambda: (show("{}", n), n * 10)[1], lambda: count(n)))
    )
    without = weft.jit(weft.vmap(lambda n: wnp.where(n > 1, n * 10, 3)))
    x = np.array([0, 1, 2, 3], np.int32)
    assert with_prints(x).tolist() == without(x).tolist()
    assert lines(capsys) == ["0", "1", "1", "2", "2", "2", "3"]  # branch by branch


@pytest.mark.parametrize(
    "fmt, args, kwargs, want",
    [
        ("plain", (), {}, "plain"),
        ("{} {}", (THREE, "text"), {}, "[0. 1. 2.] text"),
        ("{a:.2f}|{b:>4}", (), {"a": np.float32(1.5), "b": 3}, "1.50|   3"),
        ("{0} {0} {1[k]}", (1, {"k": 2}), {}, "1 1 2"),
        ("{:{w}}", (1,), {"w": 3}, "  1"),
        ("{{}} {}", (None,), {}, "{} None"),
        ("{d}", (), {"d": {"x": np.float32(1)}}, "{'x': Array(1., dtype=float32)}"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_formats(fmt, args, kwargs, want, compiled, capsys):
    arrays = {k: v for k, v in kwargs.items() if not isinstance(v, int)}
    spare = {k: v for k, v in kwargs.items() if k not in arrays}
    if compiled:
        weft.jit(lambda kw: show(fmt, *args, **kw, **spare))(arrays)
    else:
        show(fmt, *args, **weft.tree.map(wnp.asarray, arrays), **spare)
    assert capsys.readouterr().out == want + "\n"


@pytest.mark.parametrize(
    "fmt, args, kwargs, error",
    [
        ("{} {}", (1,), {}, IndexError),
        ("{a}", (), {}, KeyError),
        ("{}", (1, 2), {}, ValueError),
        ("x", (), {"x": 1}, ValueError),
        (3, (), {}, TypeError),
    ],
)
def test_wrong_formats_are_refused_while_tracing(fmt, args, kwargs, error):
    with pytest.raises(error, match=r"debug\.print"):
        weft.jit(lambda: show(fmt, *args, **kwargs)).lower()


def test_unchecked_formats_and_the_log(capsys, caplog):
    show("100% {{}}", THREE, skip_format_check=True)
    assert lines(capsys) == ["100% {{}} [0. 1. 2.]"]
    with caplog.at_level(logging.INFO, "weft.debug"):
        weft.jit(lambda x: weft.debug.log("x = {}", x))(1.0)
    assert caplog.messages == ["x = 1.0"] and lines(capsys) == []


def test_random_keys_are_shown_as_keys(capsys):
    weft.jit(lambda k: show("{}", k))(weft.random.key(0))
    assert lines(capsys)[0] == "Array((), dtype=key<fry>) overlaying:"


def test_settings_without_a_function():
    seen = []
    weft.jit(lambda x: weft.debug.callback(ordered=True)(seen.append, x))(1)
    assert [int(v) for v in seen] == [1]


def test_callbacks_get_arrays_of_their_own_and_static_arguments():
    calls = []
    f = weft.jit(
        lambda x: weft.debug.callback(lambda v, *, name: calls.append((name, v)), x + 1, name="y")
    )
    for i in range(3):
        f(wnp.full(4, i))
    assert [(n, v.tolist()) for n, v in calls] == [("y", [i + 1.0] * 4) for i in range(3)]
    assert all(isinstance(v, weft.Array) for _, v in calls)


def test_a_callback_may_use_weft_again():
    seen = []
    inner = weft.jit(lambda v: (show("inner"), wnp.sort(v))[1])
    f = weft.jit(
        lambda x: (weft.debug.callback(lambda v: seen.append(inner(v).tolist()), x), wnp.sort(-x))[
            1
        ]
    )
    assert f(wnp.array([2, 1])).tolist() == [-2, -1] and seen == [[1, 2]]


def test_effects_keep_program_order_among_each_other():
    seen = []

    @weft.jit
    def f(x):
        weft.debug.callback(lambda v: seen.append(("a", int(v))), x.sum())
        y = wnp.sort(x)
        got = io_callback(
            lambda v: (seen.append(("b", v.tolist())), np.int32(7))[1],
            weft.ShapeDtypeStruct((), np.int32),
            y,
        )
        weft.debug.callback(lambda: seen.append(("c",)))
        return got

    assert int(f(np.array([2, 1], np.int32))) == 7
    assert seen == [("a", 3), ("b", [1, 2]), ("c",)]


# --- pure and io callbacks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, shapes",
    [
        ("sequential", [((), ())] * 3),
        ("sequential_unrolled", [((), ())] * 3),
        ("expand_dims", [((3,), (1,))]),
        ("broadcast_all", [((3,), (3,))]),
        ("legacy_vectorized", [((3,), ())]),
    ],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_ways_to_map_a_pure_callback(method, shapes, compiled):
    seen = []

    def add(a, b):
        seen.append((a.shape, b.shape))
        return np.add(a, b)

    def f(x, y):
        return weft.pure_callback(
            add, weft.ShapeDtypeStruct((), np.float32), x, y, vmap_method=method
        )

    mapped = weft.vmap(f, (0, None))
    assert (weft.jit(mapped) if compiled else mapped)(THREE, 1.0).tolist() == [1.0, 2.0, 3.0]
    assert seen == shapes


def test_pure_callbacks_are_dropped_when_unused():
    seen = []
    call = lambda x: weft.pure_callback(lambda v: (seen.append(1), v)[1], x, x)
    weft.jit(lambda x: (call(x), x)[1])(THREE)
    assert not seen
    assert weft.jit(lambda x: {"a": call(x) + 1})(THREE)["a"].tolist() == [
        1.0,
        2.0,
        3.0,
    ] and seen == [1]


def test_unused_io_callbacks_run_per_example():
    seen = []
    call = lambda x: io_callback(
        lambda v: (seen.append(float(v)), v)[1], weft.ShapeDtypeStruct((), np.float32), x
    )
    weft.jit(lambda x: (call(x), x)[1])(1.0)
    assert seen == [1.0]
    assert weft.vmap(call)(THREE).tolist() == THREE.tolist() and seen == [1.0, *THREE.tolist()]


def test_an_ordered_io_callback_is_not_mapped():
    """The order of two calls in a batch would be ambiguous: example by example, or call by call."""
    seen = []
    note = lambda x: io_callback(
        lambda v: (seen.append(float(v)), v)[1],
        weft.ShapeDtypeStruct((), np.float32),
        x,
        ordered=True,
    )
    for mapped in (
        weft.vmap(note),
        weft.jit(weft.vmap(note)),
        weft.vmap(lambda x: lax.cond(x > 1, note, lambda x: x, x)),
        weft.vmap(lambda x: lax.while_loop(lambda y: y < 3, lambda y: note(y) + 1, x)),
    ):
        with pytest.raises(ValueError, match="Cannot `vmap` an ordered callback"):
            mapped(THREE)
    assert seen == []
    assert weft.vmap(lambda x: x + note(2.0))(THREE).tolist() == [2.0, 3.0, 4.0] and seen == [2.0]
    assert lax.map(note, THREE).tolist() == THREE.tolist() and seen == [2.0, *THREE.tolist()]


def test_results_in_trees():
    want = {
        "a": weft.ShapeDtypeStruct((2,), np.int32),
        "b": (weft.ShapeDtypeStruct((), np.float32),),
    }
    out = weft.jit(
        lambda x: weft.pure_callback(
            lambda v, k: {"a": np.array([1, 2], np.int32), "b": (v * k,)}, want, x, k=2
        )
    )(3.0)
    assert out["a"].tolist() == [1, 2] and float(out["b"][0]) == 6.0


@pytest.mark.parametrize(
    "wrong, match",
    [
        (lambda v: np.zeros(4, np.float32), r"float32\[4\] as result 0, promised was float32\[3\]"),
        (lambda v: np.zeros(3, np.int32), r"int32\[3\]"),
        (lambda v: (v, v), "structure"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_broken_promises(wrong, match, compiled):
    call = lambda x: weft.pure_callback(wrong, x, x)
    with pytest.raises((TypeError, weft.errors.CallbackError), match=match):
        (weft.jit(call) if compiled else call)(THREE)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (
            lambda x: weft.vmap(lambda v: weft.pure_callback(np.sin, v, v))(x),
            NotImplementedError,
            "vmap_method",
        ),
        (
            lambda x: weft.pure_callback(np.sin, x, x, vmap_method="parallel"),
            ValueError,
            "vmap_method",
        ),
        (lambda x: weft.pure_callback(np.sin, 3, x), TypeError, "without shape and dtype"),
        (lambda x: weft.pure_callback(np.sin, weft.random.key(0), x), TypeError, "random keys"),
        (lambda x: weft.pure_callback(3, x, x), TypeError, "callable"),
        (
            lambda x: weft.grad(lambda v: weft.pure_callback(np.sin, v, v).sum())(x),
            ValueError,
            "custom_jvp",
        ),
        (
            lambda x: weft.grad(lambda v: io_callback(np.sin, v, v).sum())(x),
            ValueError,
            "custom_jvp",
        ),
    ],
)
def test_misuse_is_explained(call, error, match):
    with pytest.raises(error, match=match):
        call(THREE)


# --- breakpoints ------------------------------------------------------------------------------------------------------


def stop_in(x, commands, **options):
    double = x * 2
    names = {"value": double, "other": "text"}
    out = io.StringIO()
    weft.debug.breakpoint(stdin=io.StringIO(commands), stdout=out, **options)
    return names["value"], out


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "command, want",
    [
        ("p double", "4.0"),
        ("p names['other']", "text"),
        ("pp names", "{'other': 'text', 'value': Array(4., dtype=float32)}"),
        ("double + 1", "Array(5., dtype=float32)"),
        ("nothing", "NameError: name 'nothing' is not defined"),
        ("p THREE.sum()", "3.0"),
        ("z = 5\nz", "5"),
        ("l", "weft.debug.breakpoint("),
        ("a", "double = Array(4., dtype=float32)"),
        ("w", "in stop_in"),
        ("u\np here", "outer"),
        ("d", "There is no frame beyond this one."),
        ("h", "print the frames"),
    ],
)
def test_commands_of_a_breakpoint(command, want, compiled):
    outs = []

    def outer(x):
        here = "outer"
        y, out = stop_in(x, command + "\nc\n")
        outs.append((here, out))
        return y

    run = weft.jit(outer) if compiled else outer
    assert float(run(wnp.float32(2))) == 4.0
    text = outs[0][1].getvalue()
    assert text.startswith("Entering weft debugger:\n(wdb) ") and want in text


def test_breakpoints_stop_each_iteration_and_quit_with_error():
    out = io.StringIO()
    body = lambda c, x: (weft.debug.breakpoint(stdin=feed, stdout=out, num_frames=1), (c, x))[1]
    feed = io.StringIO("p x\nc\np x\nq\n")
    with pytest.raises(weft.errors.CallbackError, match="breakpoint") as caught:
        weft.jit(lambda x: lax.scan(body, 0, x))(THREE)
    assert type(caught.value.__cause__).__name__ == "BreakpointQuit"
    assert [line for line in out.getvalue().splitlines() if line[:1].isdigit()] == ["0.0", "1.0"]


def test_a_breakpoint_goes_on_at_the_end_of_input():
    out = io.StringIO()
    weft.debug.breakpoint(stdin=io.StringIO(""), stdout=out)
    assert out.getvalue() == "Entering weft debugger:\n(wdb) \n"


def test_texts_show_callbacks_as_calls_of_something_else():
    f = weft.jit(lambda x: (show("{}", x), weft.pure_callback(np.sin, x, x))[1])
    lowered = f.lower(1.0)
    assert (
        "stablehlo.custom_call @weft_debug_print(%arg0) {has_side_effect = true"
        in lowered.as_text()
    )
    assert "= stablehlo.custom_call @weft_pure_callback(%arg0)" in lowered.as_text()
    lines = lowered.compile().as_text().splitlines()
    (printing,) = [line for line in lines if 'custom_call_target="weft_debug_print"' in line]
    assert "custom_call_has_side_effect=true" in printing and "test_callbacks.py" in printing
    assert "fmt={}" in str(weft.make_jaxpr(f)(1.0))


def test_promises_and_errors_are_those_of_compiled_calls():
    with pytest.raises(ValueError, match="cannot specify 64-bit types, such as float64"):
        weft.jit(lambda x: weft.pure_callback(np.sin, np.zeros(3), x))(THREE)

    def fails(v):
        raise OverflowError("too much")

    for api in (weft.pure_callback, io_callback):
        with pytest.raises(
            weft.errors.CallbackError, match=r"callback: .*raised OverflowError: too much"
        ):
            api(fails, THREE, THREE)
    promised = {
        "y": [weft.ShapeDtypeStruct((3,), np.float32)]
    }  # the promised tree decides how results are nested
    assert (
        weft.jit(lambda x: weft.pure_callback(lambda v: ((v + 1,),), promised, x))(THREE)["y"][
            0
        ].tolist()
        == (THREE + 1).tolist()
    )


def test_print_options_are_those_of_the_call(capsys):
    @weft.jit
    def f(x):
        with np.printoptions(precision=2, suppress=True):
            weft.debug.print("{}", x)
        weft.debug.print("{}", x)

    f(np.float32([1.2345, 1e-7]))
    assert capsys.readouterr().out == "[1.23 0.  ]\n[1.2345e+00 1.0000e-07]\n"


@pytest.mark.parametrize(
    "call",
    [
        lambda: weft.debug.print(None, 1),
        lambda: weft.debug.print(a=1, ordered=True),
        lambda: weft.debug.callback(None, 1),
        lambda: weft.debug.callback(a=1),
    ],
)
def test_settings_come_without_values(call):
    with pytest.raises(TypeError, match="unexpected arguments in the two-call form"):
        call()


@pytest.mark.parametrize("callback", [weft.pure_callback, io_callback])
def test_what_failed_is_logged(callback, caplog):
    def fail(x):
        raise RuntimeError("no")

    with pytest.raises(Exception, match="no"):
        weft.jit(lambda x: callback(fail, weft.ShapeDtypeStruct((), "float32"), x))(
            1.0
        ).block_until_ready()
    (record,) = [r for r in caplog.records if r.name == "weft.callback"]
    assert (
        record.getMessage() == f"jax.{callback.__name__} failed"
        and record.exc_text.endswith("RuntimeError: no")
        and not record.exc_info
    )


def test_failures_are_logged_under_jax_in_the_shim(caplog, monkeypatch):
    monkeypatch.setattr(events, "above", ["jax"])

    def fail(x):
        raise RuntimeError("no")

    with pytest.raises(Exception, match="no"):
        weft.jit(lambda x: weft.pure_callback(fail, weft.ShapeDtypeStruct((), "float32"), x))(
            1.0
        ).block_until_ready()
    assert [r.getMessage() for r in caplog.records if r.name == "jax._src.callback"] == [
        "jax.pure_callback failed"
    ]


@pytest.mark.parametrize(
    "call, kind", [(weft.pure_callback, "Pure"), (weft.experimental.io_callback, "IO")]
)
def test_callbacks_have_no_adjoint(call, kind):
    f = lambda x: call(lambda x: x, weft.ShapeDtypeStruct((), np.float32), x)
    with pytest.raises(ValueError, match=f"{kind} callbacks do not support transpose"):
        weft.linear_transpose(f, 1.0)(1.0)


def test_options_are_words_of_the_format_in_the_second_call(capsys):
    weft.debug.print(ordered=True)("{} {ordered}", 1, ordered=2)
    assert lines(capsys) == ["1 2"]
    with pytest.raises(ValueError, match=r"\['partitioned'\]"):
        weft.debug.print(ordered=True)("{}", 1, partitioned=True)
