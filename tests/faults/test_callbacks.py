"""Callbacks that fail: the error names the callback and the user's line, and the process continues
as before."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.backends.cpu import buffer
from weft.errors import CallbackError
from weft.experimental import io_callback
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.arange(8, dtype=np.float32)


def mesh():
    return weft.make_mesh((4, 2), ("i", "j"))


def fails_at(limit):
    """Return a callback that raises once its argument reaches `limit`."""

    def check(v):
        if np.max(v) >= limit:
            raise OverflowError(f"{np.max(v)} is too much")

    return check


def looped(x, limit=3):
    def body(c, v):
        weft.debug.callback(fails_at(limit), v)
        return c + v, wnp.sin(c)

    return lax.scan(body, x[0] * 0, x)


def in_shard_map(x, limit=3):
    body = lambda block: lax.fori_loop(
        0, 2, lambda i, b: (weft.debug.callback(fails_at(limit), b), b + 1)[1], block
    )
    return weft.shard_map(body, mesh=mesh(), in_specs=P(("i", "j")), out_specs=P(("i", "j")))(x)


PROGRAMS = {
    "plain": lambda x, limit=3: (weft.debug.callback(fails_at(limit), x), x * 2)[1],
    "pure": lambda x, limit=3: weft.pure_callback(lambda v: (fails_at(limit)(v), v)[1], x, x),
    "io": lambda x, limit=3: io_callback(lambda v: (fails_at(limit)(v), v)[1], x, x, ordered=True),
    "loop": looped,
    "vmap": lambda x, limit=3: weft.vmap(lambda v: (weft.debug.callback(fails_at(limit), v), v)[1])(
        x
    ),
    "while": lambda x, limit=3: lax.while_loop(
        lambda v: v < 100, lambda v: (weft.debug.callback(fails_at(limit), v), v + 1)[1], x[0]
    ),
    "shard_map": in_shard_map,
}


@pytest.mark.parametrize("sharded", [False, True], ids=["one device", "eight devices"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_names_the_callback_and_its_cause(name, sharded):
    program = PROGRAMS[name]
    f = weft.jit(program, static_argnums=1)
    x = weft.device_put(X, NamedSharding(mesh(), P("i"))) if sharded else wnp.asarray(X)
    for _ in range(4):  # by way of the compiler, of Python, and of native dispatch
        with pytest.raises(CallbackError, match=r"OverflowError: .* is too much") as caught:
            weft.block_until_ready(f(x))
        assert isinstance(caught.value.__cause__, OverflowError)
        assert "test_callbacks.py:" in str(caught.value)
    f(x, 1000)  # the same with nothing to complain about
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(weft.jit(lambda x: wnp.sort(-x))(x), np.sort(-X))


@pytest.mark.parametrize("name", ["plain", "loop", "shard_map"])
def test_failing_programs_keep_no_memory(name):
    f = weft.jit(PROGRAMS[name])
    x = weft.device_put(np.arange(1 << 16, dtype=np.float32), NamedSharding(mesh(), P("i")))
    live = []
    for _ in range(8):
        with pytest.raises(CallbackError):
            weft.block_until_ready(f(x))
        gc.collect()
        live.append(buffer.allocated_bytes())
    assert live[4:] == live[4:5] * 4


def test_donated_memory_is_gone_after_a_failure():
    f = weft.jit(
        lambda x, limit: (weft.debug.callback(lambda v, m: fails_at(m)(v), x + 1, limit), x * 2)[1],
        donate_argnums=0,
    )
    for _ in range(3):
        assert float(f(wnp.zeros(1000), 5.0).sum()) == 0
        x = wnp.zeros(1000)
        with pytest.raises(CallbackError):
            f(x, 1.0).block_until_ready()
        assert x.is_deleted()


def test_an_eager_callback_raises_what_it_raises():
    with pytest.raises(OverflowError, match="too much"):
        weft.debug.callback(fails_at(3), wnp.asarray(X))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_requests_to_stop_pass_unchanged(kind):
    def stop(v):
        raise kind

    f = weft.jit(
        lambda x: lax.fori_loop(0, 3, lambda i, v: (weft.debug.callback(stop, v), v)[1], x)
    )
    for _ in range(3):
        with pytest.raises(kind):
            f(X)


def test_errors_of_inner_callbacks_pass_the_outer_program():
    inner = weft.jit(lambda v: (weft.debug.callback(fails_at(3), v), v)[1])
    outer = weft.jit(lambda x: weft.pure_callback(lambda v: inner(v), x, x))
    with pytest.raises(CallbackError) as caught:
        outer(X)
    assert isinstance(caught.value.__cause__, CallbackError)
    assert isinstance(caught.value.__cause__.__cause__, OverflowError)
