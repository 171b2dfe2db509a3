"""`sparsify` by programs and by tracers, values in an environment, and convolutions, against the same on dense arrays."""

import operator
from functools import partial

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import sparse
from weft.experimental.sparse import transform


@pytest.fixture(params=[False, True], ids=["program", "tracers"])
def sparsify(request):
    return partial(sparse.sparsify, use_tracer=request.param)


M = wnp.array([[0.0, 2.0, 0.0], [3.0, 0.0, -4.0]])


@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR])
def test_functions_of_one_argument_keep_the_format(sparsify, kind):
    for fun in (
        wnp.sin,
        wnp.negative,
        lambda x: x**3,
        lambda x: 2 * x,
        lambda x: x / 4,
        weft.jit(wnp.sqrt),
    ):
        result = sparsify(fun)(kind.fromdense(abs(M)))
        assert type(result) is kind
        np.testing.assert_allclose(result.todense(), fun(abs(M)), rtol=1e-6)


def test_control_flow_calls_and_derivatives(sparsify):
    def loop(m):
        return lax.fori_loop(0, 3, lambda i, x: 2 * x, m)

    def branch(m):
        return lax.cond(m.sum() > 0, lambda x: x, lambda x: -x, m)

    @weft.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda p, t: (p[0] ** 3, 3 * p[0] ** 2 * t[0]))

    for fun in (
        loop,
        branch,
        weft.jit(loop),
        cube,
        weft.grad(lambda m: cube(m).sum()),
        weft.grad(lambda m: (m**2).sum()),
    ):
        np.testing.assert_allclose(
            sparsify(fun)(sparse.BCOO.fromdense(M)).todense(), fun(M), rtol=1e-6
        )


@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR])
def test_todense_inside(sparsify, kind):
    def fun(m):
        return sparse.todense(m) + 1

    for each in (fun, weft.jit(fun), lambda m: lax.cond(True, fun, fun, m)):
        np.testing.assert_array_equal(sparsify(each)(kind.fromdense(M)), M + 1)
        np.testing.assert_array_equal(weft.jit(sparsify(each))(kind.fromdense(M)), M + 1)
        np.testing.assert_array_equal(sparsify(each)(M), M + 1)
    np.testing.assert_array_equal(weft.grad(lambda x: sparse.todense(x).sum())(M), wnp.ones_like(M))


def test_tracers_are_seen_only_if_asked_for():
    seen = []
    for use_tracer in (False, True):
        sparse.sparsify(
            lambda *xs: seen.append([isinstance(x, sparse.SparseTracer) for x in xs]) or xs[0],
            use_tracer,
        )(wnp.arange(3), sparse.BCOO.fromdense(wnp.arange(3)))
    assert seen == [[False, False], [True, True]]


def test_results_that_are_no_arrays(sparsify):
    out = sparsify(lambda x: {"a": x, "b": 1.0, "c": None})(sparse.eye(2))
    assert out["a"].nse == 2 and out["b"].weak_type and out["b"] == 1.0 and out["c"] is None


def test_branches_may_know_different_things_of_their_indices(sparsify):
    m = sparse.BCOO.fromdense(wnp.arange(4.0))
    result = sparsify(lambda p, x: lax.cond(p, lambda x: x[::-1], lambda x: x, x))(True, m)
    assert result.todense().tolist() == [3, 2, 1, 0] and not result.indices_sorted


def test_values_in_an_environment():
    x = sparse.BCOO.fromdense(wnp.arange(5))
    env = transform.SparsifyEnv()
    values = transform.arrays_to_spvalues(
        env, {"a": wnp.arange(5), "b": x, "c": sparse.BCSR.fromdense(M)}
    )
    assert (
        values["c"].is_bcsr()
        and values["b"].is_bcoo()
        and values["a"].is_dense()
        and values["b"].ndim == 1
    )
    assert [
        aval.shape for aval in transform.spvalues_to_avals(env, [values[name] for name in "abc"])
    ] == [(5,), (5,), (2, 3)]
    back = transform.spvalues_to_arrays(env, values)
    assert back["c"].todense().tolist() == M.tolist() and back["b"].indices_sorted
    with pytest.raises(RuntimeError, match="is dense"):
        env.indices(values["a"])


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
@pytest.mark.parametrize("unique_indices", [False, True])
def test_shared_indices_stay_shared(op, unique_indices):
    x = sparse.BCOO.fromdense(wnp.arange(5))
    env = transform.SparsifyEnv([x.indices, x.data, 3 * x.data])
    a, b = (
        env.sparse(x.shape, data_ref=ref, indices_ref=0, unique_indices=unique_indices)
        for ref in (1, 2)
    )
    (value,), _ = transform.sparsify_raw(op)(env, a, b)
    if op is not operator.mul or unique_indices:
        assert value.indices_ref == 0
    assert (
        transform.spvalues_to_arrays(env, value).todense().tolist()
        == op(np.arange(5), 3 * np.arange(5)).tolist()
    )


@pytest.mark.parametrize("which", ["left", "right", "both"])
@pytest.mark.parametrize("options", [
    {"window_strides": (1,), "padding": "SAME"}, {"window_strides": (2,), "padding": [(3, 1)], "rhs_dilation": (2,)},
    {"window_strides": (1,), "padding": "VALID", "lhs_dilation": (3,), "dimension_numbers": ("NHC", "HIO", "NHC")},
])  # fmt: skip
def test_convolutions(which, options):
    rng = np.random.default_rng(0)
    last = "dimension_numbers" in options
    x, kernel = (
        rng.normal(size=(2, 7, 3) if last else (2, 3, 7)),
        rng.normal(size=(3, 3, 4) if last else (4, 3, 3)),
    )
    x, kernel = (
        wnp.array(np.where(rng.random(each.shape) < 0.5, each, 0), np.float32)
        for each in (x, kernel)
    )
    args = [
        sparse.BCOO.fromdense(each, n_batch=1) if which in (side, "both") else each
        for side, each in (("left", x), ("right", kernel))
    ]
    expected = lax.conv_general_dilated(x, kernel, **options)
    convolve = partial(sparse.bcoo_conv_general_dilated, **options)
    for result in (convolve(*args), weft.jit(convolve)(*args)):
        np.testing.assert_allclose(result.todense(), expected, atol=1e-5)


def test_planes_are_convolved():
    x, kernel = wnp.eye(6)[None, None], wnp.arange(4.0).reshape(1, 1, 2, 2)
    fun = partial(lax.conv_general_dilated, window_strides=(1, 2), padding="SAME")
    result = sparse.sparsify(fun)(sparse.BCOO.fromdense(x), kernel)
    np.testing.assert_array_equal(result.todense(), fun(x, kernel))


@pytest.mark.parametrize(("fun", "error", "message"), [
    (lambda m: lax.complex(m, m), NotImplementedError, r"^sparse rule for complex is not implemented\.$"),
    (lambda m: m**-1, NotImplementedError, "integer_pow with non-positive exponent -1"),
    (lambda m: m + 1.0, NotImplementedError, "Addition between a sparse array X and a dense array Y is not implemented"),
    (lambda m: lax.cond(True, lambda x: x, lambda x: sparse.todense(x), m), TypeError, "sparsified true_fun output must have same type"),
    (lambda m: lax.switch(1, [lambda x: x, lambda x: x, lambda x: x + x[::-1]], m), TypeError, "branch 2 output must have same type"),
    (lambda m: lax.conv_general_dilated(m[None], m[:, None], (1,), "SAME", feature_group_count=2), NotImplementedError, "groups"),
])  # fmt: skip
def test_errors(sparsify, fun, error, message):
    with pytest.raises(error, match=message):
        sparsify(fun)(sparse.BCOO.fromdense(M))


def test_keywords_are_static(sparsify):
    cube = sparse.BCOO.fromdense(wnp.arange(12.0).reshape(3, 2, 2))
    for axis in (0, (0, 1)):
        np.testing.assert_array_equal(
            sparsify(wnp.sum)(cube, axis=axis).todense(), cube.todense().sum(axis)
        )
    assert sparsify(lambda x, n: x.reshape(n, n))(
        sparse.BCOO.fromdense(wnp.arange(4.0)), n=2
    ).shape == (2, 2)


def test_keywords_may_be_arrays_and_sparse(sparsify):
    assert sparsify(lambda x, *, y: x.T @ y)(sparse.eye(2), y=wnp.ones(2)).tolist() == [1, 1]
    assert sparsify(lambda x, *, y: y * 2)(wnp.ones(2), y=sparse.eye(2)).todense().tolist() == [
        [2, 0],
        [0, 2],
    ]
    m = sparse.BCOO.fromdense(M)
    total = sparsify(lambda x, *, scale: (x * scale).sum())
    assert (
        weft.grad(lambda s: total(m, scale=s))(2.0)
        == weft.jit(lambda s: total(m, scale=s))(1.0)
        == 1.0
    )


@pytest.mark.parametrize("shape", [(8, 4), (0, 4), (8, 0), (2, 3, 4)])
@pytest.mark.parametrize("n_batch", [1, 2])
@pytest.mark.parametrize("n_dense", [0, 1])
def test_arrays_without_elements_change_their_layout(shape, n_batch, n_dense):
    if n_batch + n_dense > len(shape):
        pytest.skip("more dims than the array has")
    mat = sparse.BCOO.fromdense(
        wnp.zeros(shape), n_batch=n_batch, n_dense=n_dense, nse=0
    ).update_layout(n_batch=0, n_dense=0)
    assert (
        mat.data.shape == (0,) and mat.indices.shape == (0, len(shape)) and not mat.todense().any()
    )
