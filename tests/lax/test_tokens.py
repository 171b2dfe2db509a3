"""Tokens pass through programs and transformations as trees without leaves."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.extend.core import Token

X = np.arange(3.0, dtype=np.float32)


def test_tokens_are_arguments_results_and_captured_values():
    token = lax.create_token()
    y, out = weft.jit(lambda x, t: (x + 1, t))(X, token)
    assert type(out) is Token and out is not token and y.tolist() == [1.0, 2.0, 3.0]
    assert type(weft.jit(lambda x: (x, token))(X)[1]) is Token
    assert type(weft.jit(lax.create_token)(1.0)) is Token
    assert token.block_until_ready() is token


def test_tokens_pass_through_transformations():
    def step(carry, x):
        token, total = carry
        return (lax.after_all(token, lax.create_token()), total + x), token

    (token, total), tokens = lax.scan(step, (lax.create_token(), np.float32(0)), X)
    assert type(token) is type(tokens) is Token and float(total) == 3.0
    y, token = weft.vmap(lambda x, t: (2 * x, t))(X, lax.create_token())
    assert type(token) is Token and y.tolist() == [0.0, 2.0, 4.0]
    grads, token = weft.grad(lambda x, t: ((x * x).sum(), t), has_aux=True)(X, lax.create_token())
    assert type(token) is Token and np.allclose(grads, 2 * X)
    assert (
        type(lax.cond(True, lambda t: t, lambda t: lax.after_all(t), lax.create_token())) is Token
    )


def test_after_all_wants_tokens():
    assert type(lax.after_all()) is Token
    with pytest.raises(TypeError, match=r"after_all.*optimization_barrier"):
        lax.after_all(lax.create_token(), wnp.ones(2))
