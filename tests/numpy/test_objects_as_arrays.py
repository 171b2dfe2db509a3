"""Objects that convert themselves to arrays and hand on every attribute of the array that they hold, as parameters of libraries do."""

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


weft.tree_util.register_pytree_node(Param, lambda p: ((p.value,), None), lambda _, children: Param(*children))
X = np.linspace(0.5, 2.0, 4).astype(np.float32)


@pytest.mark.parametrize("f, derivative", [
    (lambda x, p: (x + p).sum(), np.ones(4)), (lambda x, p: wnp.dot(x, p), X), (lambda x, p: wnp.mean(p), np.full(4, 0.25)),
    (lambda x, p: wnp.sin(p).sum(), np.cos(X)), (lambda x, p: wnp.reshape(p, (4,)).sum(), np.ones(4)),
], ids=["operator", "dot", "mean", "sin", "reshape"])
def test_operations_take_the_array_they_hold(f, derivative):
    x = wnp.array(X)
    value = f(x, x)
    np.testing.assert_allclose(f(x, Param(x)), value, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(f)(x, Param(x)), value, rtol=1e-6)
    np.testing.assert_allclose(weft.grad(lambda t: f(x, Param(t)))(x), derivative, rtol=1e-6)
    rows = wnp.stack([x, 2 * x])
    np.testing.assert_allclose(weft.vmap(lambda t: f(x, Param(t)))(rows), [f(x, x), f(x, 2 * x)], rtol=1e-6)


def test_they_are_no_arrays_even_when_they_hold_a_tracer():
    seen = []
    weft.jit(lambda x: seen.extend([isinstance(Param(x), weft.Array), isinstance(x, weft.Array)]))(1.0)
    assert seen == [False, True]


def test_a_constant_that_converts_itself_is_converted_while_tracing():
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


def test_facts_of_the_array_they_hold():
    class Held:                                  # without the attributes of an array
        def __init__(self, value):
            self.value = value

        def __jax_array__(self):
            return wnp.asarray(self.value)

    matrix = Held(np.ones((2, 3)))
    assert (wnp.shape(matrix), wnp.ndim(matrix), wnp.size(matrix)) == ((2, 3), 2, 6)
    assert wnp.isscalar(Held(1)) and not wnp.isscalar(matrix)
    assert wnp.tril_indices_from(matrix)[0].tolist() == np.tril_indices_from(matrix.value)[0].tolist()
