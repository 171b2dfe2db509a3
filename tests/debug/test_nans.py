"""debug_nans and debug_infs: the first bad operation and its line at any depth, and no report for
correct programs."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.array([4.0, 1.0, -1.0, 9.0] * 2, np.float32)


def root(x):
    y = wnp.sqrt(x)  # the line
    return y * 2 + 1


def looped(x):
    return lax.scan(lambda c, v: (root(v), c), 0.0, x)


def branched(x):
    return lax.cond(
        x[0] > 0, lambda: wnp.where(x > 0, x, root(x)).sum() + root(x).sum(), lambda: 0.0
    )


def masked(x):
    return wnp.where(x > 0, wnp.sqrt(x), 0.0)


def mesh():
    return weft.make_mesh((4, 2), ("i", "j"))


PROGRAMS = {
    "jit": weft.jit(root),
    "eager": root,
    "grad": weft.grad(lambda x: root(x).sum()),
    "scan": weft.jit(looped),
    "eager scan": looped,
    "cond": weft.jit(branched),
    "vmap": weft.vmap(root),
    "checkpoint": weft.grad(lambda x: weft.checkpoint(root)(x).sum()),
    "while": weft.jit(
        lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, root(s[1])), (0, x))[1]
    ),
    "shard_map": weft.jit(
        weft.shard_map(root, mesh=mesh(), in_specs=P(("i", "j")), out_specs=P(("i", "j")))
    ),
    "sharded": lambda x: weft.jit(root)(weft.device_put(x, NamedSharding(mesh(), P("i")))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_nan_is_found_on_its_line(name):
    program = PROGRAMS[name]
    assert np.isnan(
        np.concatenate([np.ravel(y) for y in weft.tree.leaves(program(X))])
    ).any()  # no check is enabled
    with weft.debug_nans():
        for _ in range(3):
            with pytest.raises(
                FloatingPointError,
                match=r"nvalid value \(nan\) encountered in (sharded computation, in )?sqrt",
            ) as caught:
                program(X)
            assert "test_nans.py:18 in root:  y = wnp.sqrt(x)  # the line" in str(caught.value)
        for y in weft.tree.leaves(program(np.abs(X))):
            assert np.isfinite(y).all()
    program(X)


def test_infinities_are_told_apart():
    f = weft.jit(lambda x: 1 / x)
    with weft.debug_nans():
        assert np.isinf(f(0.0))
    with weft.debug_infs(), pytest.raises(FloatingPointError, match=r"\(inf\) encountered in div"):
        f(0.0)


def test_what_is_masked_inside_a_program_is_no_error():
    with weft.debug_nans():
        np.testing.assert_array_equal(weft.jit(masked)(X), [2, 1, 0, 3] * 2)
        with pytest.raises(FloatingPointError, match="mul"):  # but its gradient is one
            weft.jit(weft.grad(lambda x: masked(x).sum()))(np.zeros(3, np.float32))


def test_prints_are_not_repeated_by_the_search(capsys):
    seen = []

    @weft.jit
    def f(x):
        weft.debug.print("x = {}", x)
        x = x + weft.pure_callback(np.zeros_like, x, x)
        return root(x), weft.debug.callback(seen.append, x)

    with weft.debug_nans(), pytest.raises(FloatingPointError, match="sqrt"):
        f(np.float32(-1))
    assert capsys.readouterr().out == "x = -1.0\n" and len(seen) == 1


def test_a_nan_from_a_callback_with_effects_is_not_searched_for():
    from weft.experimental import io_callback

    calls = []
    f = weft.jit(
        lambda x: io_callback(
            lambda v: (calls.append(1), np.float32("nan"))[1],
            weft.ShapeDtypeStruct((), np.float32),
            x,
        )
    )
    with weft.debug_nans(), pytest.raises(FloatingPointError, match="a callback returned it"):
        f(1.0)
    assert calls == [1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64"])
def test_dtypes(dtype):
    x = wnp.array([1.0, np.nan], dtype)
    with weft.debug_nans():
        with pytest.raises(FloatingPointError, match=r"operand 0 .* has nan"):
            weft.jit(lambda x: x * 2)(x)
        assert weft.jit(lambda x: wnp.isnan(x))(x).tolist() == [False, True]
        assert weft.random.normal(weft.random.key(0), (3,)).shape == (3,)


def test_donated_arguments_are_searched_and_then_gone():
    f = weft.jit(lambda x: wnp.log(x), donate_argnums=0)
    with weft.debug_nans():
        x = wnp.ones(1000)
        f(x)
        assert x.is_deleted()
        with pytest.raises(FloatingPointError, match="log"):
            f(-wnp.ones(1000))


def test_a_sharded_program_says_so_and_a_literal_too():
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    mapped = weft.shard_map(
        lambda x: 0.0 / x, mesh=mesh, in_specs=weft.P("i"), out_specs=weft.P("i")
    )
    with weft.debug_nans(True):
        with pytest.raises(
            FloatingPointError,
            match=r"Invalid value \(nan\) encountered in sharded computation, in div",
        ):
            weft.jit(mapped)(np.float32([1, 0]))
        with pytest.raises(
            FloatingPointError, match="de-optimized function did not compute it, as it is a literal"
        ):
            weft.jit(lambda x: (np.nan, x + 2))(1.0)


def test_what_was_bad_before_is_said_to_be():
    bad, double = wnp.array([np.nan, 1.0]), weft.jit(lambda x: x * 3.0)
    with weft.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"operand 0 .* has nan, and was given to jit"):
            double(bad)
        with pytest.raises(FloatingPointError, match=r"operand 1 .* has nan, and was given to jit"):
            weft.jit(lambda x: wnp.cos(x) * bad)(1.0)
        with pytest.raises(
            FloatingPointError, match=r"encountered in log\n(.*\n)*.*operand 0"
        ) as caught:
            weft.jit(lambda x: wnp.log(x - 3.0))(1.0)
        assert "was given" not in str(caught.value)


# ---- all combinations of transformations, in values and in gradients


def logarithm(x):
    return wnp.log(x) * 2  # forward


def halted(x):
    return wnp.sqrt(wnp.maximum(x, 0)) * 0  # backward


@weft.custom_vjp
def ruled(x):
    return x * 2


def ruled_backward(x, ct):
    return (ct * wnp.log(x),)  # own rule


ruled.defvjp(lambda x: (x * 2, x), ruled_backward)
EXPLICIT = weft.make_mesh((4, 2), ("i", "j"), axis_types=(weft.sharding.AxisType.Explicit,) * 2)
WRAPPERS = {
    "plain": lambda f: f,
    "jit": weft.jit,
    "scan": lambda f: lambda x: lax.scan(lambda c, v: (c, f(v)), 0.0, x)[1],
    "carry": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "cond": lambda f: lambda x: lax.cond(x.ravel()[0] == x.ravel()[0], f, lambda x: x, x),
    "vmap": weft.vmap,
    "checkpoint": weft.checkpoint,
    "shard_map": lambda f: weft.shard_map(f, mesh=mesh(), in_specs=P("i"), out_specs=P("i")),
    "constraint": lambda f: (
        lambda x: f(lax.with_sharding_constraint(x, NamedSharding(mesh(), P("i"))))
    ),
    "auto mesh": lambda f: lambda x: weft.jit(f)(weft.device_put(x, NamedSharding(mesh(), P("i")))),
    "explicit mesh": lambda f: (
        lambda x: weft.jit(f)(weft.device_put(x, NamedSharding(EXPLICIT, P("i"))))
    ),
}
DERIVED = {
    "value": lambda f: f,
    "grad": lambda f: weft.grad(lambda x: f(x).sum()),
    "jit grad": lambda f: weft.jit(weft.grad(lambda x: f(x).sum())),
    "vjp": lambda f: lambda x: weft.vjp(f, x)[1](wnp.ones_like(x)),
    "jvp": lambda f: lambda x: weft.jvp(f, (x,), (wnp.ones_like(x),))[1],
    "hessian": lambda f: weft.jacfwd(weft.grad(lambda x: (f(x) ** 2).sum())),
}
SOURCES = {
    "forward": (logarithm, X, ("value", "hessian", "grad")),
    "backward": (halted, np.zeros(8, np.float32), ("grad", "jit grad", "vjp", "jvp")),
    "own rule": (ruled, -X, ("grad", "jit grad", "vjp")),
}


@pytest.mark.parametrize("inner", ["plain", "jit", "vmap", "checkpoint"])
@pytest.mark.parametrize("outer", WRAPPERS)
def test_every_combination_names_the_line(outer, inner):
    looked_at = 0
    for line, (f, x, derivations) in SOURCES.items():
        x = np.tile(x, (8, 1)) if outer in ("scan", "vmap") or inner == "vmap" else x
        x = np.tile(x, (8, 1, 1)) if outer in ("scan", "vmap") and inner == "vmap" else x
        for name in derivations:
            program = DERIVED[name](WRAPPERS[outer](WRAPPERS[inner](f)))
            if not np.isnan(np.asarray(program(x))).any():
                continue
            looked_at += 1
            with (
                weft.debug_nans(),
                pytest.raises(FloatingPointError, match="encountered in ") as caught,
            ):
                np.asarray(program(x))
            assert f"# {line}" in str(caught.value), (name, line, str(caught.value))
    assert looked_at >= 5
