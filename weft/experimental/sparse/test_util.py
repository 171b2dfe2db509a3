"""Test utilities for sparse arrays: random arrays, the possible layouts of a shape, and a test case that compares with dense arrays.

In:   a `numpy.random.RandomState`, shapes and dtypes; functions of sparse arrays and the corresponding dense ones.
Out:  dense arrays with many zeros, BCOO and BCSR arrays; AssertionError where results, derivatives or mapped results differ.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util import dtypes, tree
from weft.experimental.sparse.api import todense
from weft.experimental.sparse.base import is_sparse as is_sparse
from weft.experimental.sparse.bcoo import BCOO, split_shape
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.transform import sparsify

if TYPE_CHECKING:
    from unittest import TestCase as _Base
else:
    try:  # absl's base class makes its decorators for parameterized tests work in subclasses
        from absl.testing.parameterized import TestCase as _Base
    except ImportError:
        from unittest import TestCase as _Base

#: bounds of the error of products of matrices, by dtype
MATMUL_TOL = {np.float32: 1e-5, np.float64: 1e-10, np.complex64: 1e-5, np.complex128: 1e-10}

_TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 1e-2,
    "float32": 1e-6,
    "float64": 1e-15,
    "complex64": 1e-6,
    "complex128": 1e-15,
}


class SparseLayout(NamedTuple):
    """The numbers of dims of each kind of an array."""

    n_batch: int
    n_dense: int
    n_sparse: int


class BatchedDotGeneralProperties(NamedTuple):
    """The parameters of a product of a sparse array and another one."""

    lhs_shape: tuple[int, ...]
    rhs_shape: tuple[int, ...]
    n_batch: int
    n_dense: int
    dimension_numbers: Any


def iter_subsets(s: Sequence) -> Iterator[tuple]:
    """Iterate over all subsequences of a sequence, the shortest first.

    >>> list(iter_subsets("ab"))
    [(), ('a',), ('b',), ('a', 'b')]
    """
    for length in range(len(s) + 1):
        yield from itertools.combinations(s, length)


def iter_sparse_layouts(shape: Sequence[int], min_n_batch: int = 0) -> Iterator[SparseLayout]:
    """Iterate over all layouts of a BCOO array with a given shape.

    >>> [layout[:2] for layout in iter_sparse_layouts((3,))]
    [(0, 0), (0, 1), (1, 0)]
    """
    ndim = len(shape)
    for n_batch in range(min_n_batch, ndim + 1):
        for n_sparse in range(ndim - n_batch, -1, -1):
            yield SparseLayout(
                n_batch=n_batch, n_dense=ndim - n_batch - n_sparse, n_sparse=n_sparse
            )


def iter_bcsr_layouts(shape: Sequence[int], min_n_batch: int = 0) -> Iterator[SparseLayout]:
    """Iterate over all layouts of a BCSR array with a given shape, which have two sparse dims."""
    return (layout for layout in iter_sparse_layouts(shape, min_n_batch) if layout.n_sparse == 2)


# ---- random arrays


def rand_default(rng: np.random.RandomState) -> Callable[..., Any]:
    """Return a function of (shape, dtype) that draws normal values with deviation 3, rounded for integers; half of booleans are True."""

    def draw(shape: Sequence[int], dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        values = np.asarray(3 * rng.standard_normal(tuple(shape)))
        if dtype == np.bool_:
            return np.asarray(values > 0)
        if dtypes.is_complex(dtype):
            return (values + 3j * rng.standard_normal(tuple(shape))).astype(dtype)
        if np.issubdtype(dtype, np.integer):
            is_unsigned = np.issubdtype(dtype, np.unsignedinteger)
            return np.rint(np.abs(values) if is_unsigned else values).astype(dtype)
        return values.astype(dtype)

    return draw


def rand_sparse(
    rng: np.random.RandomState,
    nse: float = 0.5,
    post: Callable[[Any], Any] = lambda x: x,
    rand_method: Callable[..., Any] = rand_default,
) -> Callable[..., Any]:
    """Return a function of (shape, dtype) that draws dense arrays with at most `nse` nonzeros (a fraction of the size if below 1).

    `post` is applied to each array. The returned function takes another `nse` as its third argument.

    >>> int(np.count_nonzero(rand_sparse(np.random.RandomState(0), nse=3)((4, 5), np.float32)))
    3
    """

    def draw(shape: Sequence[int], dtype: Any, nse: float = nse) -> Any:
        values = rand_method(rng)(shape, dtype)
        size = math.prod(shape)
        nonzeros = min(size, int(nse * size if 0 <= nse < 1 else nse))
        values.flat[rng.permutation(size)[nonzeros:]] = 0
        return post(values)

    return draw


def rand_bcoo(
    rng: np.random.RandomState,
    rand_method: Callable[..., Any] = rand_default,
    nse: float = 0.5,
    n_batch: int = 0,
    n_dense: int = 0,
) -> Callable[..., BCOO]:
    """Return a function of (shape, dtype) that draws BCOO arrays with `nse` entries in each batch (a fraction if below 1).

    Indices are unordered and may be equal. The returned function also takes the keywords `nse`, `n_batch` and `n_dense`;
    ValueError for numbers of dims that do not fit the shape.

    >>> rand_bcoo(np.random.RandomState(0), nse=3)((4, 5), np.float32)
    BCOO(float32[4, 5], nse=3)
    """

    def draw(
        shape: Sequence[int],
        dtype: Any,
        nse: float = nse,
        n_batch: int = n_batch,
        n_dense: int = n_dense,
    ) -> BCOO:
        batch, sparse, dense, count = _sizes("rand_bcoo", shape, nse, n_batch, n_dense)
        data = rand_method(rng)((*batch, count, *dense), dtype)
        indices = rng.randint(0, sparse or 1, (*batch, count, len(sparse)), np.int32)
        return BCOO((data, indices), shape=shape)

    return draw


def rand_bcsr(
    rng: np.random.RandomState,
    rand_method: Callable[..., Any] = rand_default,
    nse: float = 0.5,
    n_batch: int = 0,
    n_dense: int = 0,
) -> Callable[..., BCSR]:
    """Return a function of (shape, dtype) that draws BCSR arrays: see `rand_bcoo`. Entries after the end of the last row are padding.

    >>> rand_bcsr(np.random.RandomState(0), nse=3)((4, 5), np.float32)
    BCSR(float32[4, 5], nse=3)
    """

    def draw(
        shape: Sequence[int],
        dtype: Any,
        nse: float = nse,
        n_batch: int = n_batch,
        n_dense: int = n_dense,
    ) -> BCSR:
        batch, sparse, dense, count = _sizes("rand_bcsr", shape, nse, n_batch, n_dense)
        if len(sparse) != 2:
            raise ValueError(
                f"rand_bcsr: shape {tuple(shape)}, n_batch={n_batch} and n_dense={n_dense} leave {len(sparse)} sparse dims;"
                " there must be two."
            )
        data = rand_method(rng)((*batch, count, *dense), dtype)
        columns = rng.randint(0, sparse[1], (*batch, count), np.int32)
        ends = np.sort(rng.randint(0, count + 1, (*batch, sparse[0]), np.int32), axis=-1)
        beginnings = np.concatenate([np.zeros((*batch, 1), np.int32), ends], axis=-1)
        return BCSR((data, columns, beginnings), shape=shape)

    return draw


def _sizes(
    name: str, shape: Sequence[int], nse: float, n_batch: int, n_dense: int
) -> tuple[tuple, tuple, tuple, int]:
    """Return the sizes of the batch, sparse and dense dims, and the number of entries."""
    if min(n_batch, n_dense, len(shape) - n_batch - n_dense) < 0:
        raise ValueError(
            f"{name}: n_batch={n_batch} and n_dense={n_dense} do not fit shape {tuple(shape)}."
        )
    batch, sparse, dense = split_shape(tuple(shape), n_batch, n_dense)
    return batch, sparse, dense, math.ceil(nse * math.prod(sparse)) if 0 <= nse < 1 else int(nse)


# ---- comparisons


class SparseTestCase(_Base):
    """A test case with assertions that compare arrays, trees of arrays, and functions of sparse arrays with functions of dense ones.

    Tolerances are numbers, or dicts from dtypes to numbers; the default is a small multiple of the dtype's precision.
    """

    def setUp(self) -> None:
        """Seed the test's random numbers with its name."""
        super().setUp()
        self._random = np.random.RandomState(zlib.crc32(self._testMethodName.encode()))

    def rng(self) -> np.random.RandomState:
        """The test's random number generator, which is the same in every run."""
        return self._random

    def assertDtypesMatch(self, x: Any, y: Any, *, canonicalize_dtypes: bool = True) -> None:
        """Assert that dtype_pair are equal, by default after canonicalization to 32 bits if x64 is disabled."""
        dtype_pair = [
            weft.dtypes.result_type(each) if np.isscalar(each) else np.dtype(each.dtype)
            for each in (x, y)
        ]
        if canonicalize_dtypes:
            dtype_pair = [weft.dtypes.canonicalize_dtype(each) for each in dtype_pair]
        self.assertEqual(*dtype_pair)

    def assertArraysEqual(
        self, x: Any, y: Any, *, check_dtypes: bool = True, err_msg: str = "", **_: Any
    ) -> None:
        """Assert that shapes, elements and, with `check_dtypes`, dtypes are equal."""
        if check_dtypes:
            self.assertDtypesMatch(x, y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=err_msg)

    def assertArraysAllClose(
        self,
        x: Any,
        y: Any,
        *,
        check_dtypes: bool = True,
        atol: Any = None,
        rtol: Any = None,
        err_msg: str = "",
    ) -> None:
        """Assert that shapes and, with `check_dtypes`, dtypes are equal, and elements are within the tolerances."""
        self._close(x, y, check_dtypes, atol, rtol, True, err_msg)

    def assertAllClose(
        self,
        x: Any,
        y: Any,
        *,
        check_dtypes: bool = True,
        atol: Any = None,
        rtol: Any = None,
        canonicalize_dtypes: bool = True,
        err_msg: str = "",
    ) -> None:
        """Apply `assertArraysAllClose` to trees of arrays; a list and a tuple of equal values are equal."""
        xs, ys = (tree.tree_leaves(each) for each in (x, y))
        self.assertEqual(len(xs), len(ys), err_msg)
        for a, b in zip(xs, ys):
            self._close(a, b, check_dtypes, atol, rtol, canonicalize_dtypes, err_msg)

    def _close(
        self,
        x: Any,
        y: Any,
        check_dtypes: bool,
        atol: Any,
        rtol: Any,
        canonicalize_dtypes: bool,
        err_msg: str,
    ) -> None:
        if check_dtypes:
            self.assertDtypesMatch(x, y, canonicalize_dtypes=canonicalize_dtypes)
        x, y = np.asarray(x), np.asarray(y)
        self.assertEqual(x.shape, y.shape, err_msg)
        atol, rtol = (max(_bound(each, x.dtype), _bound(each, y.dtype)) for each in (atol, rtol))
        if min(x.dtype.itemsize, y.dtype.itemsize) <= 2 and x.dtype.kind not in "iub":
            # NumPy has no rule for some of these
            x, y = x.astype(np.float32), y.astype(np.float32)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=err_msg)

    def assertSparseArraysEquivalent(
        self,
        x: Any,
        y: Any,
        *,
        check_dtypes: bool = True,
        atol: Any = None,
        rtol: Any = None,
        canonicalize_dtypes: bool = True,
        err_msg: str = "",
    ) -> None:
        """Assert that trees have the same structure, and their sparse arrays the same entries up to the tolerances."""
        (xs, of_x), (ys, of_y) = tree.tree_flatten(x), tree.tree_flatten(y)
        self.assertEqual(of_x, of_y, err_msg)
        self.assertAllClose(
            xs,
            ys,
            check_dtypes=check_dtypes,
            atol=atol,
            rtol=rtol,
            canonicalize_dtypes=canonicalize_dtypes,
            err_msg=err_msg,
        )

    def _CheckAgainstDense(
        self,
        dense_op: Callable,
        sparse_op: Callable,
        args_maker: Callable[[], Sequence],
        check_jit: bool = True,
        check_dtypes: bool = True,
        tol: Any = None,
        atol: Any = None,
        rtol: Any = None,
        canonicalize_dtypes: bool = True,
    ) -> None:
        """Assert that `sparse_op` returns the results of `dense_op` on the densified arguments; with `check_jit`, also under `jit`."""
        args = args_maker()
        bounds = {"atol": atol or tol, "rtol": rtol or tol}
        result = sparse_op(*args)
        self.assertAllClose(
            dense_op(*_made_dense(args)),
            _made_dense(result),
            check_dtypes=check_dtypes,
            canonicalize_dtypes=canonicalize_dtypes,
            **bounds,
        )
        if check_jit:
            self.assertSparseArraysEquivalent(result, weft.jit(sparse_op)(*args), **bounds)

    def _CheckGradsSparse(
        self,
        dense_fun: Callable,
        sparse_fun: Callable,
        args_maker: Callable[[], Sequence],
        *,
        argnums: Sequence[int] | None = None,
        modes: Sequence[str] = ("fwd", "rev"),
        atol: Any = None,
        rtol: Any = None,
    ) -> None:
        """Assert that Jacobians with respect to the data of arguments are equal, in forward and reverse mode."""
        transforms = {"fwd": weft.jacfwd, "rev": weft.jacrev}
        if not set(modes) <= set(transforms):
            raise ValueError(f"modes are 'fwd' and 'rev', got {sorted(modes)}.")
        args = args_maker()
        leaves, structure = tree.tree_flatten(args)
        first = np.cumsum(
            [0, *(len(tree.tree_leaves(arg)) for arg in args)]
        ).tolist()  # the data are the first leaf of a sparse array
        chosen = [first[i] for i in (range(len(args)) if argnums is None else argnums)]
        dense = lambda *leaves: dense_fun(*_made_dense(tree.tree_unflatten(structure, leaves)))
        sparse = lambda *leaves: _made_dense(sparse_fun(*tree.tree_unflatten(structure, leaves)))
        for mode in modes:
            expected, actual = (
                transforms[mode](fun, argnums=chosen)(*leaves) for fun in (dense, sparse)
            )
            self.assertAllClose(expected, actual, atol=atol, rtol=rtol)

    def _random_bdims(self, *args: int) -> list[int]:
        """Draw a random position for a new dim, for each number of dims."""
        return [int(self.rng().randint(0, arg + 1)) for arg in args]

    def _CheckBatchingSparse(
        self,
        dense_fun: Callable,
        sparse_fun: Callable,
        args_maker: Callable[[], Sequence],
        *,
        batch_size: int = 3,
        bdims: Sequence[int | None] | None = None,
        check_jit: bool = False,
        check_dtypes: bool = True,
        tol: Any = None,
        atol: Any = None,
        rtol: Any = None,
        canonicalize_dtypes: bool = True,
    ) -> None:
        """Assert that the two functions are equal under `vmap`, over dims `bdims`, by default random ones."""
        if bdims is None:
            bdims = self._random_bdims(
                *(
                    arg.n_batch if isinstance(arg, BCOO | BCSR) else np.ndim(arg)
                    for arg in args_maker()
                )
            )

        def batched_args() -> list:
            examples = list(zip(*(args_maker() for _ in range(batch_size))))
            return [
                each[0] if dim is None else _stack(each, dim)
                for each, dim in zip(examples, bdims, strict=True)
            ]

        self._CheckAgainstDense(
            weft.vmap(dense_fun, list(bdims)),
            weft.vmap(sparse_fun, list(bdims)),
            batched_args,
            check_jit,
            check_dtypes,
            tol,
            atol,
            rtol,
            canonicalize_dtypes,
        )

    def _CompileAndCheck(
        self,
        fun: Callable,
        args_maker: Callable[[], Sequence],
        *,
        check_dtypes: bool = True,
        tol: Any = None,
        atol: Any = None,
        rtol: Any = None,
        **_: Any,
    ) -> None:
        """Assert that a function returns the same under `jit`, for two draws of arguments."""
        compiled = weft.jit(fun)
        for args in (args_maker(), args_maker()):
            self.assertAllClose(
                fun(*args),
                compiled(*args),
                check_dtypes=check_dtypes,
                atol=atol or tol,
                rtol=rtol or tol,
            )

    def _CheckAgainstNumpy(
        self,
        numpy_reference_op: Callable,
        op: Callable,
        args_maker: Callable[[], Sequence],
        check_dtypes: bool = True,
        tol: Any = None,
        atol: Any = None,
        rtol: Any = None,
        canonicalize_dtypes: bool = True,
    ) -> None:
        """Assert that a function returns the results of its reference."""
        args = args_maker()
        self.assertAllClose(
            op(*args),
            numpy_reference_op(*args),
            check_dtypes=check_dtypes,
            atol=atol or tol,
            rtol=rtol or tol,
            canonicalize_dtypes=canonicalize_dtypes,
        )


def _made_dense(args: Any) -> Any:
    return tree.tree_map(todense, args, is_leaf=is_sparse)


def _stack(arrays: Sequence, dim: int) -> Any:
    """Stack arrays, dense or sparse, along a new dim."""
    wider = [sparsify(lambda x: lax.expand_dims(x, [dim]))(array) for array in arrays]
    return sparsify(lambda arrays: wnp.concatenate(arrays, axis=dim))(wider)


def _bound(tolerance: Any, dtype: np.dtype) -> float:
    if tolerance is not None and not isinstance(tolerance, Mapping):
        return float(tolerance)
    bounds = {np.dtype(key): value for key, value in (tolerance or {}).items()}
    return bounds.get(dtype, _TOLERANCE.get(dtype.name, 0.0))
