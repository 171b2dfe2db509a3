"""Products of operands with a scale for each block, their quantization, and names of lax that are not built."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, nn
from weft.errors import ShapeError
from weft.sharding import NamedSharding, PartitionSpec as P

RNG = np.random.default_rng(0)
BATCHED = (((2,), (2,)), ((0,), (0,)))


def test_scales_multiply_their_blocks():
    x, y = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((2, 3, 8), (2, 8, 5)))
    a, b = (
        2.0 ** RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 3, 4), (2, 2, 5))
    )
    want = (x * np.repeat(a, 2, 2)) @ (y * np.repeat(b, 4, 1))
    small = (
        [wnp.asarray(v).astype("float8_e4m3fn") for v in (x, y)],
        [wnp.asarray(v).astype("float8_e8m0fnu") for v in (a, b)],
    )
    got = lax.scaled_dot(
        *small[0], lhs_scale=small[1][0], rhs_scale=small[1][1], preferred_element_type="float32"
    )
    np.testing.assert_array_equal(got, want)
    assert lax.scaled_dot(x[0], y[0]).dtype.name == "bfloat16"
    with pytest.raises(ValueError, match="lhs_scale has shape"):
        lax.scaled_dot(x, y, lhs_scale=np.ones((2, 1, 8)))
    with pytest.raises(TypeError, match="bfloat16 or float32"):
        lax.scaled_dot(x, y, preferred_element_type="int32")
    with pytest.raises(ValueError, match="2 dims, or 3"):
        lax.scaled_dot(x, y[0])


@pytest.mark.parametrize(
    "lhs, rhs, lhs_scale, message",
    [
        ((2, 3, 8), (3, 8, 5), None, "same batch dimension size: LHS dim 0 has 2, RHS dim 0 3"),
        (
            (3, 8),
            (6, 5),
            None,
            "LHS contracting dim 1 of size 8 does not match RHS contracting dim 0 of size 6",
        ),
        (
            (3, 8),
            (8, 5),
            (3, 8),
            "ratio of LHS contracting dim 1 to its scale's dim size 8 must be at least 2",
        ),
        ((3, 8), (8, 5), (3, 3), "multiple of its scale's"),
        ((3, 8), (8, 5), (1, 4), "LHS dim 0 of size 3 does not match scale dim size 1"),
        ((3, 8), (8, 5), (4,), "same rank"),
    ],
)
def test_operands_and_scales_that_do_not_fit(lhs, rhs, lhs_scale, message):
    with pytest.raises(ShapeError, match=message):
        lax.scaled_dot(
            np.ones(lhs), np.ones(rhs), lhs_scale=None if lhs_scale is None else np.ones(lhs_scale)
        )


def test_scaled_products_of_sharded_operands_and_batches():
    mesh = weft.make_mesh((2, 4), ("data", "model"))
    x, s = RNG.normal(size=(2, 4, 8)).astype(np.float32), np.float32([[[1, 2]] * 4] * 2)
    want = np.einsum("bmk,bnk->bmn", x * np.repeat(s, 4, 2), x * np.repeat(s, 4, 2))
    along = lambda v: weft.device_put(v, NamedSharding(mesh, P("data", "model")))
    for f in (nn.scaled_matmul, weft.jit(nn.scaled_matmul)):
        np.testing.assert_allclose(f(along(x), along(x), along(s), along(s)), want, rtol=1e-5)
    single = lambda a, b: lax.scaled_dot(
        a, b.T, lhs_scale=s[0], rhs_scale=s[0].T, preferred_element_type="float32"
    )
    np.testing.assert_allclose(weft.vmap(single)(x, x), want, rtol=1e-5)


@pytest.mark.parametrize(("mode", "tolerance"), [("mxfp8", 0.06), ("nvfp4", 0.25)])
def test_quantized_products(mode, tolerance):
    x, y = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 3, 64), (2, 5, 64)))
    config = nn.get_scaled_dot_general_config(mode, None if mode == "mxfp8" else wnp.array([0.01]))
    f = lambda x, y, configs=None: nn.scaled_dot_general(x, y, BATCHED, configs=configs)
    got, want = f(x, y, [config] * 3), f(x, y)
    assert got.shape == (2, 3, 5) and 0 < np.abs(got - want).max() < tolerance * 64
    assert np.linalg.norm(got - want) < tolerance * np.linalg.norm(want)


def test_quantized_derivatives_and_exact_numbers():
    config = nn.get_scaled_dot_general_config("mxfp8")
    x, y = (
        RNG.integers(-3, 4, (32, 64)).astype(np.float32) for _ in range(2)
    )  # all of them numbers of float8
    numbers = (((1,), (1,)), ((), ()))
    loss = lambda configs: (
        lambda x, y: (nn.scaled_dot_general(x, y, numbers, configs=configs) * 0.5).sum()
    )
    assert float(loss([config] * 3)(x, y)) == float(loss(None)(x, y))
    with pytest.warns(DeprecationWarning, match="implementation is ignored"):
        nn.scaled_dot_general(x, y, numbers, implementation="cudnn")
    for got, want in zip(
        weft.grad(loss([config] * 3), (0, 1))(x, y), weft.grad(loss(None), (0, 1))(x, y)
    ):
        np.testing.assert_array_equal(got, want)
    four = nn.get_scaled_dot_general_config(
        "nvfp4", wnp.array([1e-4])
    )  # too small: clipped values have no slope
    assert not np.asarray(weft.grad(loss([four] * 3))(x + 1, y)).all()


def test_configurations_that_are_refused():
    with pytest.raises(ValueError, match="Unsupported mode"):
        nn.get_scaled_dot_general_config("fp2")
    with pytest.raises(ValueError, match="no global_scale"):
        nn.get_scaled_dot_general_config("mxfp8", 1.0)
    config = nn.get_scaled_dot_general_config("mxfp8")
    with pytest.raises(ValueError, match="blocks of 32"):
        nn.scaled_dot_general(np.ones((2, 3, 8)), np.ones((2, 3, 8)), BATCHED, configs=[config] * 3)
    with pytest.raises(ValueError, match="got 1"):
        nn.scaled_dot_general(np.ones((2, 3, 32)), np.ones((2, 3, 32)), BATCHED, configs=[config])


def test_stage():
    assert isinstance(lax.stage(2.0), weft.Array)
    assert [e.primitive.name for e in weft.make_jaxpr(lambda: lax.stage(np.float32(1)))().eqns] == [
        "copy"
    ]


def test_sums_of_truth_in_einsum():
    x = RNG.random((3, 4)) > 0.5
    for subscripts, args in (
        ("ij->i", (x,)),
        ("ij,jk->ik", (x, x.T)),
        ("ij->", (x,)),
        ("ij,ik->j", (x, x)),
    ):
        got = wnp.einsum(subscripts, *args)
        assert got.dtype == np.bool_
        np.testing.assert_array_equal(got, np.einsum(subscripts, *args))
