"""Sparse arrays against NumPy on the dense ones: every layout of batch, sparse and dense dims, every format, sharded too."""

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import sparse
from weft.experimental.sparse.linalg import lobpcg_standard, spsolve
from weft.sharding import NamedSharding, PartitionSpec as P

LAYOUTS = [((3, 4), 0, 0), ((2, 3, 4), 1, 1)]
layouts = pytest.mark.parametrize(("shape", "n_batch", "n_dense"), LAYOUTS)


def dense(shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.4, rng.standard_normal(shape), 0).astype(np.float32)


def check(result, expected):
    result = result.todense() if isinstance(result, sparse.JAXSparse) else result
    np.testing.assert_allclose(np.asarray(result), expected, atol=1e-5, rtol=1e-5)


@layouts
def test_dims_change_their_kind(shape, n_batch, n_dense):
    x = dense(shape)
    m = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    assert (m.n_batch, m.n_dense, m.shape) == (n_batch, n_dense, shape)
    for batch in range(len(shape) + 1):
        for rest in range(len(shape) + 1 - batch):
            moved = m.update_layout(n_batch=batch, n_dense=rest, on_inefficient=None)
            assert (moved.n_batch, moved.n_dense) == (batch, rest)
            check(moved, x)


@layouts
def test_shapes(shape, n_batch, n_dense):
    x, z = dense(shape), dense(shape, 1)
    m, m2 = (sparse.BCOO.fromdense(each, n_batch=n_batch, n_dense=n_dense) for each in (x, z))
    for axis in range(len(shape)):
        check(sparse.bcoo_reduce_sum(m, axes=(axis,)), x.sum(axis))
        check(sparse.bcoo_rev(m, (axis,)), np.flip(x, axis))
    check(sparse.bcoo_reduce_sum(m, axes=range(len(shape))), x.sum())
    cut = sparse.bcoo_slice(
        m, start_indices=[1] * len(shape), limit_indices=shape, strides=[2] * len(shape)
    )
    check(cut, x[(slice(1, None, 2),) * len(shape)])
    start = [min(1, size - 2) for size in shape]
    check(
        weft.jit(lambda m, s: sparse.bcoo_dynamic_slice(m, [s] * len(shape), [2] * len(shape)))(
            m, 1
        ),
        x[tuple(slice(s, s + 2) for s in start)],
    )
    check(m[0], x[0])
    check(m[1:, None], x[1:, None])
    if n_dense < len(shape):
        check(sparse.bcoo_concatenate([m, m2], dimension=0), np.concatenate([x, z]))
    check(
        sparse.bcoo_broadcast_in_dim(
            m, shape=(2, *shape), broadcast_dimensions=range(1, len(shape) + 1)
        ),
        np.stack([x, x]),
    )


@layouts
def test_elementwise(shape, n_batch, n_dense):
    x, z = dense(shape), dense(shape, 1)
    m, m2 = (sparse.BCOO.fromdense(each, n_batch=n_batch, n_dense=n_dense) for each in (x, z))
    for result, expected in (
        (m + m2, x + z),
        (m - m2, x - z),
        (m * m2, x * z),
        (m * z, x * z),
        (m / 2.0, x / 2),
        (-m, -x),
        (m**2, x**2),
        (sparse.sparsify(wnp.sin)(m + m2), np.sin(x + z)),
        (weft.jit(lambda m: abs(m) * 3)(m), 3 * abs(x)),
    ):
        assert isinstance(result, sparse.BCOO)
        check(result, expected)
    check(m + z, x + z)


@layouts
def test_products(shape, n_batch, n_dense):
    x = dense(shape)
    m = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    n = len(shape)
    for dims in itertools.chain.from_iterable(
        itertools.combinations(range(n), count) for count in range(1, n)
    ):
        y = dense((6, *(shape[d] for d in dims)), 1)
        free = [d for d in range(n) if d not in dims]
        product, batched = (
            np.einsum(x, list(range(n)), y, [20, *dims], [*kept, *free, 20])
            for kept in ([], dims[:1])
        )
        right = tuple(range(1, len(dims) + 1))
        check(sparse.bcoo_dot_general(m, y, dimension_numbers=((dims, right), ((), ()))), product)
        check(
            sparse.bcoo_dot_general(y, m, dimension_numbers=((right, dims), ((), ()))),
            np.moveaxis(product, -1, 0),
        )
        check(
            sparse.bcoo_dot_general(
                m, y, dimension_numbers=((dims[1:], right[1:]), (dims[:1], right[:1]))
            ),
            batched,
        )
        if not n_dense:
            both = sparse.bcoo_dot_general(
                m, sparse.BCOO.fromdense(y), dimension_numbers=((dims, right), ((), ()))
            )
            assert isinstance(both, sparse.BCOO)
            check(both, product)


@pytest.mark.parametrize("kind", [sparse.BCOO, sparse.BCSR, sparse.COO, sparse.CSR, sparse.CSC])
def test_formats(kind):
    x, b = dense((5, 6)), dense((6, 3), 1)
    m = kind.fromdense(x)
    assert m.nse == np.count_nonzero(x)
    check(m, x)
    check(m.T, x.T)
    check(weft.jit(lambda m, b: m @ b)(m, b), x @ b)
    check(b.T @ m.T, b.T @ x.T)
    check(m @ b[:, 0], x @ b[:, 0])
    check(kind.fromdense(np.pad(x, 1), nse=30), np.pad(x, 1))
    check(sparse.eye(3, 4, k=-1, sparse_format=kind.__name__.lower()), np.eye(3, 4, -1))
    check(sparse.empty((2, 3), sparse_format=kind.__name__.lower()), np.zeros((2, 3)))


def test_entries_that_are_equal_or_out_of_range():
    m = sparse.BCOO(
        (wnp.array([1.0, 2.0, 4.0, 9.0]), wnp.array([[1, 1], [0, 2], [1, 1], [3, 3]])), shape=(3, 3)
    )
    expected = np.array([[0, 0, 2], [0, 5, 0], [0, 0, 0]], np.float32)
    check(m, expected)
    assert m.sum_duplicates().nse == 2
    for each in (
        m.sum_duplicates(),
        weft.jit(lambda m: m.sum_duplicates(nse=4))(m),
        m.sort_indices(),
        m.T.T,
        m.sum(0).reshape(1, 3),
    ):
        check(each, expected if each.shape == (3, 3) else expected.sum(0, keepdims=True))
    check(m @ np.eye(3, dtype=np.float32), expected)
    check(m * m, expected**2)
    check(m.reshape(9), expected.reshape(9))
    assert sparse.bcoo_extract(m, expected, assume_unique=False).data.tolist() == [
        5.0,
        2.0,
        0.0,
        0.0,
    ]


@pytest.mark.parametrize("of_data", [(1, 1), (2, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("of_indices", [(1, 1), (2, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("n_dense", [0, 1])
def test_sums_keep_batches_of_size_1(of_data, of_indices, n_dense):
    """Data and indices are repeated over batch dims of size 1, and so are sums. They have the sizes that the sums need, and no others."""
    indices = np.random.default_rng(0).integers(0, 4, (*of_indices, 5, 1), np.int32)
    data = (
        np.random.default_rng(1).integers(0, 4, (*of_data, 5) + (2,) * n_dense).astype(np.float32)
    )
    m = sparse.BCOO((data, indices), shape=(2, 3, 4) + (2,) * n_dense)
    expected = np.zeros(m.shape, np.float32)
    for i, j, k in np.ndindex(2, 3, 5):
        at = (i % of_indices[0], j % of_indices[1], k, 0)
        expected[i, j, indices[at]] += data[i % of_data[0], j % of_data[1], k]
    slice_all = lambda m: sparse.bcoo_slice(m, start_indices=(0,) * m.ndim, limit_indices=m.shape)
    results = {
        "sum": sparse.bcoo_sum_duplicates(m),
        "traced": weft.jit(lambda m: sparse.bcoo_sum_duplicates(m, nse=4))(m),
        "nonzero": m.sum_duplicates(),
        "slice": slice_all(m),
    }
    for name, result in results.items():
        check(result, expected)
        batches = (np.broadcast_shapes(of_data, of_indices), of_indices)
        assert (result.data.shape[:2], result.indices.shape[:2]) == batches, name


def test_transformations():
    x = dense((3, 4, 5))
    m = sparse.BCOO.fromdense(x, n_batch=1)
    assert weft.vmap(lambda m: m.sum(0).todense())(m).shape == (3, 5)
    assert weft.vmap(lambda m: m)(m).shape == (3, 4, 5)
    flat, v = sparse.BCOO.fromdense(x[0]), np.arange(5, dtype=np.float32)
    by_data = sparse.grad(lambda m, v: wnp.sum(wnp.sin(m @ v)))(flat, v)
    expected = weft.grad(lambda x: wnp.sum(wnp.sin(x @ v)))(x[0])
    assert isinstance(by_data, sparse.BCOO)
    check(by_data, np.where(x[0] != 0, expected, 0))
    check(
        weft.grad(lambda v: wnp.sum(wnp.sin(flat @ v)))(v),
        weft.grad(lambda v: wnp.sum(wnp.sin(x[0] @ v)))(v),
    )
    for jacobian in (sparse.jacfwd, sparse.jacrev):
        assert jacobian(lambda m: m @ v)(flat).shape == (4, 4, 5)


def test_sparsify_enters_control_flow():
    x = dense((5, 5))

    @sparse.sparsify
    def run(m, v):
        twice = lax.cond(v[0] > 0, lambda m: m * 2.0, lambda m: m, m)
        return lax.fori_loop(0, 3, lambda i, v: m @ v, v), twice, weft.jit(lambda m: m @ m)(m)

    powers, twice, square = run(sparse.BCOO.fromdense(x), wnp.ones(5))
    check(powers, x @ (x @ (x @ np.ones(5))))
    check(twice, 2 * x)
    check(square, x @ x)


def test_sampled_products():
    a, b, at = dense((3, 4), 1), dense((4, 5), 2), np.array([[0, 1], [2, 4], [1, 0]])
    sampled = sparse.bcoo_dot_general_sampled(a, b, at, dimension_numbers=(((1,), (0,)), ((), ())))
    check(sampled, (a @ b)[tuple(at.T)])


def test_sharded_is_whole():
    mesh = weft.make_mesh((8,), ("x",))
    x, b = dense((16, 24)), dense((24, 32), 1)
    m = sparse.BCOO.fromdense(x, nse=160)
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    by_entries = sparse.BCOO(
        (weft.device_put(m.data, rows), weft.device_put(m.indices, rows)), shape=m.shape
    )
    product = weft.jit(lambda m, b: m @ b)
    for left, right in (
        (by_entries, weft.device_put(b, whole)),
        (m, weft.device_put(b, NamedSharding(mesh, P(None, "x")))),
        (by_entries, weft.device_put(b, rows)),
    ):
        check(product(left, right), x @ b)
    batched = sparse.BCOO.fromdense(dense((8, 4, 5)), n_batch=1)
    spread = sparse.BCOO(
        (weft.device_put(batched.data, rows), weft.device_put(batched.indices, rows)),
        shape=batched.shape,
    )
    check(weft.jit(lambda m: m.todense())(spread), dense((8, 4, 5)))


def test_random_entries():
    m = sparse.random_bcoo(
        weft.random.key(0), (4, 5, 2), nse=0.5, n_batch=1, n_dense=1, sorted_indices=True
    )
    assert (m.shape, m.nse, m.n_batch, m.n_dense) == ((4, 5, 2), 3, 1, 1)
    assert m.sum_duplicates(remove_zeros=False).nse == 3


def test_systems_and_eigenvalues():
    x = np.diag(np.arange(1.0, 7.0, dtype=np.float32)) + dense((6, 6)) * 0.1
    m, b = sparse.CSR.fromdense(x), np.arange(6, dtype=np.float32)
    solve = lambda data, b: spsolve(data, m.indices, m.indptr, b)
    with pytest.raises(ValueError, match="reorder=4 is not valid"):
        spsolve(m.data, m.indices, m.indptr, b, reorder=4)
    check(weft.jit(solve)(m.data, b), np.linalg.solve(x, b))
    weft.test_util.check_grads(solve, (m.data, b), order=2, rtol=2e-2, atol=2e-2)
    check(weft.vmap(solve, (None, 0))(m.data, np.stack([b, 2 * b]))[1], np.linalg.solve(x, 2 * b))
    symmetric = dense((30, 30)) + dense((30, 30)).T
    values, vectors, _ = lobpcg_standard(
        symmetric, np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    )
    np.testing.assert_allclose(values, np.linalg.eigvalsh(symmetric)[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(
        symmetric @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values), atol=1e-2
    )


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: sparse.BCOO((wnp.ones(3), wnp.zeros((2, 1), int)), shape=(4,)), ValueError, r"data of shape \(3,\) and indices"),
    (lambda: sparse.BCOO((wnp.ones(3), wnp.zeros((3, 1))), shape=(4,)), TypeError, "must be integers"),
    (lambda: weft.jit(sparse.bcoo_fromdense)(wnp.ones(3)), weft.errors.ConcretizationTypeError, "Give nse="),
    (lambda: sparse.eye(3).update_layout(n_batch=1), sparse.SparseEfficiencyError, "on_inefficient=None"),
    (lambda: sparse.sparsify(wnp.cos)(sparse.eye(2)), NotImplementedError, "cos .* would result in dense output"),
    (lambda: sparse.sparsify(wnp.sort)(sparse.eye(2)), NotImplementedError, "sparse rule for sort is not implemented"),
    (lambda: np.asarray(sparse.eye(2)), TypeError, "todense"),
    (lambda: lobpcg_standard(wnp.eye(9), wnp.ones((9, 0))), ValueError, "search dim > 0"),
    (lambda: lobpcg_standard(wnp.eye(9), wnp.ones((9, 2))), ValueError, "search dim . 5 < matrix dim"),
    (lambda: lobpcg_standard(wnp.ones((9, 8)), wnp.ones((9, 1))), ValueError, r"A must be \(9, 9\)"),
    (lambda: lobpcg_standard(lambda x: x[:8], wnp.ones((9, 1))), ValueError, "to itself"),
    (lambda: lobpcg_standard(lambda x: x.astype("int32"), wnp.ones((9, 1))), ValueError, "same dtypes"),
    (lambda: sparse.BCOO.fromdense(wnp.ones((2, 3)), n_batch=1).reshape(3, 2), ValueError, "cannot mix batch and sparse"),
    (lambda: sparse.empty((2, 2), sparse_format="lil"), ValueError, "must be one of"),
    (lambda: sparse.bcoo_dot_general(sparse.eye(2), wnp.ones(3), dimension_numbers=(((1,), (0,)), ((), ()))), TypeError, "do not belong"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("axis", [0, 1])
def test_any_batch_dim_is_mapped_over(axis):
    m = wnp.arange(120.0).reshape(2, 3, 4, 5) % 7
    mat = sparse.BCOO.fromdense(m, n_batch=2)
    shapes = []

    def double(x):
        shapes.append(x.shape)
        return x.update_layout(n_batch=0) * 2, x * 2

    whole, same = weft.vmap(double, in_axes=axis, out_axes=(0, axis))(mat)
    assert shapes == [m.shape[:axis] + m.shape[axis + 1 :]] and same.shape == m.shape
    np.testing.assert_array_equal(same.todense(), 2 * m)
    np.testing.assert_array_equal(whole.todense(), np.moveaxis(2 * m, axis, 0))
    shared = sparse.BCOO((mat.data, mat.indices[:, :1]), shape=m.shape)
    again = (
        weft.vmap(lambda x: x * 2, in_axes=axis, out_axes=axis)(shared) if axis == 0 else shared * 2
    )
    np.testing.assert_array_equal(again.todense(), 2 * shared.todense())


@pytest.mark.parametrize(
    ("index", "n_batch"),
    [((None,), 2), ((slice(None), None), 2), ((slice(None), slice(None), None), 1)],
)
def test_new_dims_before_the_end_of_the_batch_belong_to_it(index, n_batch):
    mat = sparse.BCOO.fromdense(M := wnp.eye(3), n_batch=1)
    assert mat[index].n_batch == n_batch
    np.testing.assert_array_equal(mat[index].todense(), M[index])
    assert sparse.BCSR.fromdense(M)[None].todense().shape == (1, 3, 3)
    joined = sparse.sparsify(wnp.vstack)(
        [sparse.BCOO.fromdense(wnp.arange(3.0)), sparse.BCOO.fromdense(M)]
    )
    assert joined.todense().shape == (4, 3)


def test_slices_have_no_more_entries_than_places():
    mat = sparse.BCOO(
        (wnp.ones(6), wnp.array([[0, 0], [1, 1], [1, 1], [2, 2], [0, 1], [1, 1]])), shape=(3, 3)
    )
    for cut in (
        lambda x: x[1:2, 1:3],
        lambda x: lax.dynamic_slice(x, (1, 1), (1, 2)),
        lambda x: x[1:1],
    ):
        result = sparse.sparsify(cut)(mat)
        assert result.nse <= result.size
        np.testing.assert_array_equal(result.todense(), cut(mat.todense()))


def test_shared_indices_are_sorted_once():
    indices = wnp.array([[[3], [1], [0]]])
    mat = sparse.BCOO((wnp.arange(6.0).reshape(2, 3), indices), shape=(2, 4))
    for sort in (sparse.bcoo_sort_indices, weft.jit(sparse.bcoo_sort_indices)):
        result = sort(mat)
        assert result.indices.tolist() == [[[0], [1], [3]]] and result.data.tolist() == [
            [2, 1, 0],
            [5, 4, 3],
        ]


def test_what_is_no_array_can_be_shown():
    mat = sparse.eye(2)
    mat.indices = wnp.array([])
    assert repr(mat) == "BCOO(<invalid>)"
