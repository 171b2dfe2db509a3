"""Objects that convert themselves to arrays and forward every attribute of their array, as
parameters of libraries do."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax


class Param:
    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "value"), name)


weft.tree_util.register_pytree_node(
    Param, lambda p: ((p.value,), None), lambda _, children: Param(*children)
)
X = np.linspace(0.5, 2.0, 4).astype(np.float32)


@pytest.mark.parametrize(
    "f, derivative",
    [
        (lambda x, p: (x + p).sum(), np.ones(4)),
        (lambda x, p: wnp.dot(x, p), X),
        (lambda x, p: wnp.mean(p), np.full(4, 0.25)),
        (lambda x, p: wnp.sin(p).sum(), np.cos(X)),
        (lambda x, p: wnp.reshape(p, (4,)).sum(), np.ones(4)),
    ],
    ids=["operator", "dot", "mean", "sin", "reshape"],
)
def test_operations_take_the_array_they_hold(f, derivative):
    x = wnp.array(X)
    value = f(x, x)
    np.testing.assert_allclose(f(x, Param(x)), value, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(f)(x, Param(x)), value, rtol=1e-6)
    np.testing.assert_allclose(weft.grad(lambda t: f(x, Param(t)))(x), derivative, rtol=1e-6)
    rows = wnp.stack([x, 2 * x])
    np.testing.assert_allclose(
        weft.vmap(lambda t: f(x, Param(t)))(rows), [f(x, x), f(x, 2 * x)], rtol=1e-6
    )


def test_they_are_no_arrays_even_when_they_hold_a_tracer():
    seen = []
    weft.jit(lambda x: seen.extend([isinstance(Param(x), weft.Array), isinstance(x, weft.Array)]))(
        1.0
    )
    assert seen == [False, True]


def test_convertible_constants_are_converted_while_tracing():
    p = Param(wnp.array(X))
    f = weft.jit(lambda x: lax.add(x, p))
    np.testing.assert_allclose(f(X), 2 * X)
    np.testing.assert_allclose(weft.jit(lambda x: f(x) + lax.mul(x, Param(x)))(X), 2 * X + X * X)


def test_cotangents_that_rules_get_are_arrays():
    seen = []

    @weft.custom_vjp
    def f(x):
        return x * 2

    def bwd(_, ct):
        seen.append(ct)
        return (ct.at[...].set(3.0),)

    f.defvjp(lambda x: (f(x), None), bwd)
    assert float(weft.grad(f)(1.0)) == 3.0 and isinstance(seen[0], weft.Array)


class Held:  # without the attributes of an array
    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return wnp.asarray(self.value)


def test_facts_of_the_array_they_hold():
    matrix = Held(np.ones((2, 3)))
    assert (wnp.shape(matrix), wnp.ndim(matrix), wnp.size(matrix)) == ((2, 3), 2, 6)
    assert wnp.isscalar(Held(1)) and not wnp.isscalar(matrix)
    assert (
        wnp.tril_indices_from(matrix)[0].tolist() == np.tril_indices_from(matrix.value)[0].tolist()
    )
    assert wnp.diag_indices_from(Held(np.ones((3, 3))))[1].tolist() == [0, 1, 2]


M = np.arange(12.0, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "f",
    [
        lambda m, h: m.argwhere(h(M)),
        lambda m, h: m.hsplit(h(M), 2)[1],
        lambda m, h: m.delete(h(M), h(-1), 1),
        lambda m, h: m.delete(M, h(np.array([0, 2])), 0),
        lambda m, h: m.insert(h(M), h(1), h(np.float32(7)), 1),
        lambda m, h: m.insert(M, h(np.array([0, 3])), 7, 0),
        lambda m, h: m.repeat(h(M), 2, axis=1),
        lambda m, h: m.repeat(M, h(np.array([1, 0, 2])), axis=0),
        lambda m, h: m.split(M, h(np.array([1, 2])))[1],
        lambda m, h: m.gradient(M[0], h(np.float32(2))),
        lambda m, h: m.gradient(M[0], h(np.array([0.0, 1, 3, 4], np.float32))),
        lambda m, h: m.searchsorted(M[0, ::-1], 1.5, sorter=h(np.array([3, 2, 1, 0]))),
        lambda m, h: m.max(M, initial=h(np.float32(50))),
        lambda m, h: m.cov(h(M), rowvar=False),
        lambda m, h: m.unravel_index(5, h(np.array([3, 4])))[0],
        lambda m, h: m.roll(M, h(1), 0),
        lambda m, h: m.choose(h(np.array([0, 1])), [h(M[0, :2]), M[1, :2]]),
    ],
    ids=range(17),
)
def test_functions_take_them_in_every_place(f):
    np.testing.assert_allclose(f(wnp, Held), f(np, lambda x: x), rtol=1e-6)
