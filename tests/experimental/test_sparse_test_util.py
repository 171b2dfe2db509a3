"""The random sparse arrays and the test case of `weft.experimental.sparse.test_util`."""

import numpy as np
import pytest

import weft.numpy as wnp
from weft.experimental import sparse
from weft.experimental.sparse import test_util


def rng():
    return np.random.RandomState(0)


def test_layouts():
    assert list(test_util.iter_sparse_layouts((2, 3), 1)) == [(1, 0, 1), (1, 1, 0), (2, 0, 0)]
    assert [layout._asdict() for layout in test_util.iter_bcsr_layouts((2, 3, 4))] == [
        {"n_batch": 0, "n_dense": 1, "n_sparse": 2}, {"n_batch": 1, "n_dense": 0, "n_sparse": 2}]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "float16", "float32", "complex64"])
def test_random_arrays(dtype):
    dense = test_util.rand_sparse(rng(), nse=0.25)((4, 5), dtype)
    assert dense.dtype == dtype and np.count_nonzero(dense) <= 5
    for layout in test_util.iter_sparse_layouts((2, 3, 4)):
        mat = test_util.rand_bcoo(rng(), n_batch=layout.n_batch, n_dense=layout.n_dense)(
            (2, 3, 4), dtype
        )
        assert (mat.n_batch, mat.n_dense, mat.n_sparse) == layout and mat.dtype == dtype
        assert mat.todense().shape == (2, 3, 4)
    for layout in test_util.iter_bcsr_layouts((2, 3, 4)):
        mat = test_util.rand_bcsr(rng(), n_batch=layout.n_batch, n_dense=layout.n_dense)(
            (2, 3, 4), dtype
        )
        assert isinstance(mat, sparse.BCSR) and mat.n_batch == layout.n_batch
        np.testing.assert_array_equal(mat.todense(), mat.to_bcoo().todense())


def test_numbers_of_dims_that_do_not_fit():
    with pytest.raises(ValueError, match="do not fit"):
        test_util.rand_bcoo(rng(), n_batch=3)((2, 3), "float32")
    with pytest.raises(ValueError, match="there must be two"):
        test_util.rand_bcsr(rng(), n_batch=1)((2, 3), "float32")


class TestProducts(test_util.SparseTestCase):
    def args(self):
        return test_util.rand_bcoo(self.rng(), n_batch=1)((2, 3, 4), "float32"), wnp.array(
            self.rng().randn(2, 4), "float32"
        )

    def test_equal(self):
        dense = lambda m, v: wnp.einsum("bij,bj->bi", m, v)
        product = lambda m, v: sparse.bcoo_dot_general(
            m, v, dimension_numbers=(((2,), (1,)), ((0,), (0,)))
        )
        self._CheckAgainstDense(dense, product, self.args, tol=1e-5)
        self._CheckGradsSparse(dense, product, self.args, rtol=1e-5, atol=1e-5)
        self._CheckBatchingSparse(
            wnp.negative, sparse.sparsify(wnp.negative), lambda: self.args()[:1], bdims=[0]
        )
        self._CompileAndCheck(product, self.args, tol=1e-5)

    def test_what_differs_is_found(self):
        twice = lambda m: sparse.sparsify(lambda x: 2 * x)(m)
        once = lambda: self.args()[:1]
        for check in (self._CheckAgainstDense, self._CheckGradsSparse, self._CheckBatchingSparse):
            with self.assertRaises(AssertionError):
                check(lambda m: 3 * m, twice, once)
        with self.assertRaises(AssertionError):
            self.assertAllClose([1.0, 2], (1.0, 3))
        with self.assertRaises(AssertionError):
            self.assertArraysEqual(wnp.arange(2), wnp.arange(2.0))
        self.assertAllClose(wnp.float32(1), wnp.float32(1.01), atol={np.float32: 0.1})
