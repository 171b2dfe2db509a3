"""Implementations of weft's own primitives: queried, replaced, and restored."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.extend import core
from weft.extend.core.primitives import cos_p, scan_p, sin_p
from weft.interpreters import ad

X = np.linspace(0.0, 1.0, 3).astype(np.float32)


@pytest.fixture
def calls():
    """Yield the list of arguments of the replaced implementation of sine."""
    seen, before = [], sin_p.impl

    def impl(x, **params):
        seen.append(x)
        return before(x, **params)

    assert sin_p.def_impl(impl) is impl and sin_p.impl is impl
    yield seen
    sin_p.def_impl(before)


def test_implementation_computes():
    assert np.allclose(sin_p.impl(X, accuracy=None), np.sin(X)) and np.allclose(
        cos_p.impl(wnp.asarray(X), accuracy=None), np.cos(X)
    )
    body = weft.make_jaxpr(lambda x: lax.scan(lambda c, v: (c + v, c), np.float32(0), x))(X).eqns[0]
    assert (
        body.primitive is scan_p
        and float(scan_p.impl(np.float32(0), X, **body.params)[0]) == X.sum()
    )


def test_operations_on_values_ask_a_replaced_implementation(calls):
    assert np.allclose(lax.sin(X), np.sin(X)) and len(calls) == 1
    assert np.allclose(
        weft.grad(lambda x: lax.cos(lax.sin(x)))(np.float32(0.5)),
        -np.sin(np.sin(0.5)) * np.cos(0.5),
    )
    assert len(calls) > 1


def test_compiled_programs_do_not(calls):
    assert np.allclose(weft.jit(lambda x: lax.sin(x) * 2)(X), 2 * np.sin(X)) and not calls
    assert np.allclose(lax.cos(X), np.cos(X)) and not calls


def test_what_was_put_back_is_as_before(calls):
    own = sin_p.impl
    sin_p.def_impl(lambda x, **_: wnp.zeros_like(x))
    assert lax.sin(X).tolist() == [0.0, 0.0, 0.0]
    sin_p.def_impl(own)
    assert np.allclose(lax.sin(X), np.sin(X)) and len(calls) == 1


@pytest.fixture
def counted():
    """Return an operation with an implementation and no lowering, and the calls of it."""
    seen: list = []
    twice_p = core.Primitive("twice")
    twice_p.def_impl(lambda x: seen.append(1) or x * 2)
    twice_p.def_abstract_eval(lambda x: x)
    ad.primitive_jvps[twice_p] = lambda primals, tangents: (
        twice_p.bind(*primals),
        tangents[0] * twice_p.bind(*primals),
    )
    return twice_p.bind, seen


def test_checkpoint_evaluates_ops_without_lowering_one_by_one(counted):
    twice, seen = counted
    inner = weft.checkpoint(twice)
    f = weft.checkpoint(lambda x: twice(inner(x)))
    assert f(3.0) == 12.0 and len(seen) == 2
    seen.clear()
    _, pullback = weft.vjp(f, 3.0)
    assert len(seen) == 2
    seen.clear()
    pullback(1.0)
    assert len(seen) == 3  # two for the outer function again, one for the inner
    with pytest.raises(NotImplementedError, match="MLIR translation rule"):
        weft.jit(f)(3.0)


def test_checkpointed_operations_ask_a_replaced_implementation(calls):
    f = weft.checkpoint(lambda x: lax.sin(lax.sin(x)))
    assert np.isclose(f(np.float32(0.5)), np.sin(np.sin(0.5))) and len(calls) == 2


def test_checkpointed_operations_in_jit_are_compiled(calls):
    f = weft.jit(lambda x: weft.checkpoint(lambda x: lax.sin(x) * x)(x))
    assert np.isclose(weft.grad(f)(np.float32(0.5)), np.cos(0.5) * 0.5 + np.sin(0.5)) and not calls
