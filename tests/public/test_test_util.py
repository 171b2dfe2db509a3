"""The checker of derivatives finds wrong ones and lets right ones pass."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.test_util import check_grads, check_jvp, check_vjp

X = np.array([0.3, -1.2, 2.0], np.float32)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_right_derivatives_pass(order, modes):
    check_grads(lambda x, y: wnp.sin(x) * y, (X, X[::-1].copy()), order, modes)


def test_values_that_are_large_beside_their_differences_pass():
    check_grads(lambda x: wnp.sum(1e3 * x + 5e4), (X,), 1)
    with pytest.raises(AssertionError, match="tangent output of jvp"):
        check_jvp(
            lambda x: wnp.sum(1e3 * x + 5e4),
            lambda xs, ts: (wnp.sum(1e3 * xs[0] + 5e4), 1.02e3 * ts[0].sum()),
            (X,),
        )


def test_trees_and_integers_pass():
    check_grads(lambda p: {"out": p["w"] * wnp.exp(p["b"])}, ({"w": X, "b": X},), 1)


def test_a_wrong_forward_rule_is_found():
    @weft.custom_jvp
    def f(x):
        return wnp.sin(x)

    f.defjvp(lambda primals, tangents: (wnp.sin(primals[0]), 2 * wnp.cos(primals[0]) * tangents[0]))
    with pytest.raises(AssertionError, match="tangent output of jvp"):
        check_grads(f, (X,), 1, ("fwd",))


def test_a_wrong_backward_rule_is_found():
    @weft.custom_vjp
    def f(x):
        return wnp.sin(x)

    f.defvjp(lambda x: (wnp.sin(x), x), lambda x, ct: (2 * wnp.cos(x) * ct,))
    with pytest.raises(AssertionError, match="adjoint of vjp"):
        check_grads(f, (X,), 1, ("rev",))


def test_a_wrong_value_is_found():
    with pytest.raises(AssertionError, match="primal output"):
        check_jvp(wnp.sin, lambda xs, ts: (wnp.cos(xs[0]), wnp.cos(xs[0]) * ts[0]), (X,))
    with pytest.raises(AssertionError, match="primal output"):
        check_vjp(wnp.sin, lambda x: (wnp.cos(x), lambda ct: (wnp.cos(x) * ct,)), (X,))


def test_unknown_modes_are_refused():
    with pytest.raises(ValueError, match="'fwd' and 'rev'"):
        check_grads(wnp.sin, (X,), 1, ("forward",))


def test_steps_are_those_of_the_dtype_that_is_computed_with():
    check_grads(wnp.sin, (np.pi / 2,), 2)  # float64 of the host, float32 here
    check_grads(lambda x: x[::-1], (np.array([30.0, 2.0, 1.0]),), 2, atol=1e-6, rtol=1e-6)
    check_jvp(
        lambda x: wnp.where(x > 1, np.inf, x),
        lambda ps, ts: weft.jvp(lambda x: wnp.where(x > 1, np.inf, x), ps, ts),
        (X,),
    )


@pytest.mark.parametrize("modes", ["fwd", "rev", "fwdrev"])
def test_modes_may_be_a_string(modes):
    check_grads(wnp.sin, (0.5,), order=1, modes=modes)
