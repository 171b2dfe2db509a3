"""associative_scan: functions of elements as one operation, others by halves; sharded, mapped, differentiated."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.config import Override

RNG = np.random.default_rng(0)
A, B = RNG.random((2, 64, 6)).astype(np.float32)
FLAGS = RNG.random((64, 6)) < 0.2


def affine(x, y):
    """Maps s -> x0 * s + x1, one after the other: they do not commute."""
    return x[0] * y[0], y[0] * x[1] + y[1]


def segments(x, y):
    return x[0] | y[0], wnp.where(y[0], y[1], x[1] + y[1])


def expected(fn, *xs, reverse=False):
    if reverse:
        return [y[::-1] for y in expected(fn, *[x[::-1] for x in xs])]
    rows = [tuple(x[0] for x in xs)]
    for i in range(1, len(xs[0])):
        rows.append(tuple(np.asarray(v) for v in fn(rows[-1], tuple(x[i] for x in xs))))
    return [np.array(column) for column in zip(*rows)]


def close(got, want):
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=5e-5)


@pytest.mark.parametrize(
    "shape, axis", [((3,), 0), ((70,), 0), ((65, 2), 0), ((33, 40), 0), ((1, 300_000), 1)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_values(shape, axis, reverse):
    a, b = (1 - 0.1 * RNG.random((2, *shape))).astype(np.float32)
    got = weft.jit(lambda a, b: lax.associative_scan(affine, (a, b), axis=axis, reverse=reverse))(
        a, b
    )
    wide = [np.moveaxis(x.astype(np.float64), axis, 0) for x in (a, b)]
    for g, w in zip(got, expected(affine, *wide, reverse=reverse)):
        np.testing.assert_allclose(np.moveaxis(g, axis, 0), w, rtol=5e-5, atol=1e-30)


def test_one_operation_one_kernel():
    program = weft.make_jaxpr(lambda a, b: lax.associative_scan(affine, (a, b)))(A, B)
    assert [eqn.primitive.name for eqn in program.jaxpr.eqns] == ["associative_scan"]
    compiled = weft.jit(lambda a, b: lax.associative_scan(affine, (a, b))).lower(A, B).compile()
    assert compiled.stages.scheduled.kernel_count == 1


@pytest.mark.parametrize("spec, gathers", [(("i",), 2), ((), 0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_shards_exchange_their_totals(spec, gathers, reverse):
    mesh = weft.make_mesh((8,), ("i",))
    arrays = [
        weft.device_put(x, weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec(*spec)))
        for x in (A, B)
    ]
    f = weft.jit(lambda a, b: lax.associative_scan(affine, (a, b), reverse=reverse))
    close(f(*arrays), expected(affine, A, B, reverse=reverse))
    text = f.lower(*arrays).compile().as_text()
    assert text.count("all-gather(") == gathers
    assert all("[8,6]" in line for line in text.splitlines() if "all-gather(" in line)


def test_shards_of_uneven_length():
    mesh = weft.make_mesh((8,), ("i",))
    a = weft.device_put(A, weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("i")))
    got = weft.jit(lambda a, b: lax.associative_scan(affine, (a[:61], b[:61]), reverse=True))(a, B)
    close(got, expected(affine, A[:61], B[:61], reverse=True))


def test_mapped():
    got = weft.vmap(lambda a, b: lax.associative_scan(affine, (a, b)), in_axes=(2, None))(
        np.stack([A, B], 2), B
    )
    for k, x in enumerate((A, B)):
        close([y[k] for y in got], expected(affine, x, B))


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_beside_flags(reverse):
    sums = lambda v: lax.associative_scan(segments, (FLAGS, v), reverse=reverse)[1]
    close([sums(A)], expected(segments, FLAGS, A, reverse=reverse)[1:])
    got = weft.grad(lambda v: (sums(v) * B).sum())(A)
    tangent = RNG.random(A.shape).astype(np.float32)
    pushed = weft.jvp(sums, (A,), (tangent,))[1]
    np.testing.assert_allclose((got * tangent).sum(), (pushed * B).sum(), rtol=1e-5)
    np.testing.assert_allclose(pushed, sums(tangent), rtol=1e-4)


def test_whole_matrices_and_captured_values_go_by_halves():
    m = RNG.standard_normal((9, 3, 3)).astype(np.float32)
    want = [m[0]]
    for x in m[1:]:
        want.append(x @ want[-1])
    np.testing.assert_allclose(
        weft.jit(lambda m: lax.associative_scan(lambda x, y: y @ x, m))(m),
        want,
        rtol=1e-3,
        atol=1e-3,
    )
    sums = weft.jit(lambda a, c: lax.associative_scan(lambda x, y: x + y + c * 0, a))(A, 2.0)
    np.testing.assert_allclose(sums, np.cumsum(A, 0), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 17, 300_000])
def test_running_logsumexp(size):
    x = RNG.standard_normal(size).astype(np.float32)
    np.testing.assert_allclose(
        weft.jit(lax.cumlogsumexp)(x),
        np.logaddexp.accumulate(x.astype(np.float64)),
        rtol=3e-6,
        atol=3e-6,
    )
    assert np.isneginf(lax.cumlogsumexp(wnp.full(size, -np.inf))).all()


@pytest.mark.parametrize("axis, reverse", [(0, False), (1, True), (2, False)])
def test_the_numpy_engine_scans_rows(axis, reverse):
    """A function of single elements runs on rows of any shape."""
    x = RNG.random((4, 3, 5)).astype(np.float32)
    scale = lambda a, b: wnp.where(
        b > 2.0, b, a * b * 0.5
    )  # a factor and a choice: operations of literals and arrays
    with Override(backend="reference"):
        sums = lax.associative_scan(wnp.add, x, axis=axis, reverse=reverse)
        scaled = lax.associative_scan(scale, x, axis=axis)
    turn = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    np.testing.assert_allclose(sums, turn(np.cumsum(turn(x), axis)), rtol=1e-5)
    np.testing.assert_allclose(
        scaled,
        np.cumprod(x, axis)
        * 0.5 ** np.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(3)]),
        rtol=1e-5,
    )


@pytest.mark.parametrize("shape, axis", [((), 0), ((3, 4), 2), ((3, 4), -3)])
def test_an_axis_that_is_not_there_is_refused(shape, axis):
    with pytest.raises(
        ValueError, match=r"associative_scan: axis -?\d is out of bounds for an array of shape"
    ):
        lax.associative_scan(wnp.add, wnp.ones(shape), axis=axis)


@pytest.mark.parametrize("form", [weft.custom_jvp, weft.custom_vjp], ids=["jvp", "vjp"])
def test_a_rule_of_the_function_is_its_derivative(form):
    """The rule gives products slope 10 in both factors."""

    @form
    def fn(x, y):
        return x * y

    if form is weft.custom_jvp:
        fn.defjvp(lambda primals, tangents: (fn(*primals), 10.0 * (tangents[0] + tangents[1])))
    else:
        fn.defvjp(lambda x, y: (fn(x, y), None), lambda _, ct: (10.0 * ct, 10.0 * ct))
    last = lambda x: lax.associative_scan(fn, x)[2]
    np.testing.assert_array_equal(weft.grad(last)(wnp.array([2.0, 3.0, 5.0])), [100.0, 100.0, 10.0])
    np.testing.assert_array_equal(
        weft.jit(weft.grad(last))(wnp.array([2.0, 3.0, 5.0])), [100.0, 100.0, 10.0]
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 9, 1000])
def test_running_logarithms_of_sums_of_complex_numbers(size, reverse):
    rng = np.random.RandomState(size)
    z = (3 * rng.randn(size, 2) + 1j * rng.uniform(-6, 6, (size, 2))).astype(np.complex64)
    f = lambda z: lax.cumlogsumexp(z, 0, reverse=reverse)
    turned = (lambda a: a[::-1]) if reverse else (lambda a: a)
    sums = turned(np.cumsum(turned(np.exp(z.astype(np.complex128))), axis=0))
    for out in (
        f(z),
        weft.jit(f)(z),
        weft.vmap(lambda c: lax.cumlogsumexp(c, reverse=reverse), 1, 1)(z),
    ):
        assert out.dtype == np.complex64 and (np.abs(np.imag(out)) <= 3.1416).all()
        np.testing.assert_allclose(
            np.exp(np.asarray(out, np.complex128)), sums, rtol=2e-3, atol=1e-3 * np.abs(sums).max()
        )
    _, tangent = weft.jvp(f, (z,), (np.ones_like(z),))
    if size < 100:
        np.testing.assert_allclose(
            tangent, np.ones_like(z), rtol=1e-3, atol=1e-3
        )  # it grows as all of its terms do
        slope = weft.jacrev(f, holomorphic=True)(z[:, 0])
        shares = np.exp(z[:, 0].astype(np.complex128)) / sums[:, :1]
        expected = np.triu(shares) if reverse else np.tril(shares)
        np.testing.assert_allclose(slope, expected, rtol=2e-2, atol=2e-3 * np.abs(expected).max())
