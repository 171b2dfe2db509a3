"""One program per operation, on operands whose dims divide by the axes of the test mesh."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import weft._engine.ops
from weft import lax
from weft._engine.core.primitive import Primitive, registry
from weft._engine.core.trace import typeof
from weft._engine.ops import functions, indexing, keys, layout, linalg, matrix_forms, sorting
from weft._engine.ops.convolution import conv_general_dilated
from weft._engine.ops.fft import fft
from weft._engine.ops.functions.rounding import RoundingMethod
from weft._engine.ops.reduce import argmax

for module in pkgutil.iter_modules(weft._engine.ops.__path__, "weft._engine.ops."):
    importlib.import_module(module.name)
functions.every()

rng = np.random.default_rng(7)
SHAPE = (4, 8)
X = rng.uniform(0.1, 0.9, SHAPE).astype(np.float32)
Y = rng.uniform(0.1, 0.9, SHAPE).astype(np.float32)
INTS = rng.integers(1, 5, SHAPE).astype(np.int32)
FLAGS = X > 0.5
CUBE = rng.uniform(0.1, 0.9, (4, 8, 4)).astype(np.float32)
SQUARES = (rng.uniform(0.1, 0.5, (4, 4, 4)) + 3 * np.eye(4)).astype(np.float32)
SQUARES = (SQUARES + SQUARES.swapaxes(1, 2)) / 2
ROWS = indexing.GatherDimensionNumbers((1,), (0,), (0,))
ROWS_OF = indexing.ScatterDimensionNumbers((1,), (0,), (0,))
PLACES = (
    np.array([0, 1, 1, 3], np.int32),
    np.array([1, 1, 3, 4], np.int32),
    np.arange(4, dtype=np.int32),
)
PICKS = np.array([[3], [0], [3], [1]], np.int32)


@dataclass(frozen=True)
class Case:
    """`run(*args)` binds the primitive `name`, perhaps among others."""

    name: str
    run: Callable
    args: tuple

    def __str__(self) -> str:
        return self.name


#: parameters of elementwise operations that have some
PARAMS = {
    "bitcast_convert_type": {"new_dtype": np.dtype(np.uint32)},
    "integer_pow": {"y": 3},
    "name": {"name": "x"},
    "xla_metadata_value": {"xla_metadata_kvs": (("key", "v"),)},
    "layout_constraint": {"order": (1, 0)},
    "convert_element_type": {"new_dtype": np.dtype(np.int32), "weak_type": False, "sharding": None},
    "exp2": {},
    "reduce_precision": {"exponent_bits": 5, "mantissa_bits": 10},
    "round": {"rounding_method": RoundingMethod.TO_NEAREST_EVEN},
}


def elementwise_cases() -> Iterator[Case]:
    """Yield elementwise operations on operands of the first accepted dtypes and number."""
    z = (X + 1j * Y).astype(np.complex64)
    choices = [
        (X,),
        (X, Y),
        (INTS,),
        (INTS, INTS),
        (FLAGS,),
        (z,),
        (FLAGS, X, Y),
        (X * 0, X, Y),
        (X, INTS),
    ]
    words = [(INTS.astype(np.uint32),) * n for n in (3, 4, 6, 8)]
    for p in registry.values():
        if p.kind == "elementwise":
            params = PARAMS.get(p.name, {})
            args = next(args for args in (*choices, *words) if takes(p, args, params))
            yield Case(p.name, lambda *xs, p=p, params=params: p.bind(*xs, **params), args)


def takes(p: Primitive, args: tuple, params: dict) -> bool:
    try:
        p.abstract([typeof(x) for x in args], params)
        p.reference(*args, **params)
    except (TypeError, ValueError):
        return False
    return True


def bind(name: str, **params) -> Callable:
    def run(*xs):
        return registry[name].bind(*xs, **params)

    return run


def gather(x, i):
    return indexing.gather(x, i, ROWS, (1, 8), mode="clip")


def scatter(name: str) -> Case:
    fun = getattr(indexing, name.replace("-", "_"))
    return Case(name, lambda x, i, u: fun(x, i, u, ROWS_OF), (X, PICKS, Y))


CASES = [
    *elementwise_cases(),
    Case("broadcast_in_dim", lambda x: layout.broadcast_in_dim(x, (4, 2, 8), (0, 2)), (X,)),
    Case("reshape", lambda x: layout.reshape(x, (4, 4, 2)), (X,)),
    Case("rev", lambda x: layout.rev(x, (1,)), (X,)),
    Case("squeeze", lambda x: layout.squeeze(x, (1,)), (X[:, None],)),
    Case("transpose", lambda x: layout.transpose(x, (2, 0, 1)), (CUBE,)),
    Case(
        "random_unwrap",
        lambda x: keys.random_unwrap(keys.random_wrap(x, keys.THREEFRY)),
        (INTS[:, :2].astype(np.uint32),),
    ),
    Case(
        "random_wrap",
        lambda x: keys.random_unwrap(keys.random_wrap(x, keys.THREEFRY)),
        (INTS[:, :2].astype(np.uint32),),
    ),
    *[
        Case(f"reduce_{n}", bind(f"reduce_{n}", axes=(1,)), (X,))
        for n in ("sum", "max", "min", "prod")
    ],
    *[Case(f"reduce_{n}", bind(f"reduce_{n}", axes=(0,)), (INTS,)) for n in ("and", "or", "xor")],
    Case("argmax", lambda x: argmax(x, 1, np.int32), (X,)),
    Case("argmin", bind("argmin", axes=(0,), index_dtype=np.dtype(np.int32)), (X,)),
    Case(
        "associative_scan",
        lambda x: lax.associative_scan(lambda a, b: a + b + a * b, x, axis=1),
        (X,),
    ),
    *[
        Case(n, bind(n, axis=1, reverse=False), (X,))
        for n in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    ],
    Case("concatenate", bind("concatenate", dimension=0), (X, Y)),
    Case(
        "pad",
        lambda x: registry["pad"].bind(x, np.float32(2), padding_config=((0, 0, 0), (2, 2, 0))),
        (X,),
    ),
    Case("slice", bind("slice", start_indices=(0, 2), limit_indices=(4, 6), strides=None), (X,)),
    Case(
        "dynamic_slice",
        lambda x: registry["dynamic_slice"].bind(x, np.int32(0), np.int32(3), slice_sizes=(4, 4)),
        (X,),
    ),
    Case(
        "dynamic_update_slice",
        lambda x, u: registry["dynamic_update_slice"].bind(x, u, np.int32(0), np.int32(3)),
        (X, Y[:, :4]),
    ),
    Case("gather", gather, (X, PICKS)),
    *map(scatter, ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")),
    Case(
        "dot_general",
        bind(
            "dot_general",
            dimension_numbers=(((2,), (1,)), ((0,), (0,))),
            precision=None,
            preferred_element_type=None,
        ),
        (CUBE, SQUARES),
    ),
    Case(
        "ragged_dot",
        lambda x, y: registry["ragged_dot"].bind(
            x, y, *PLACES, contracted=False, precision=None, preferred_element_type=None
        ),
        (X, CUBE),
    ),
    Case(
        "conv_general_dilated",
        lambda x, k: conv_general_dilated(x, k, (1,), "SAME"),
        (CUBE, rng.uniform(size=(4, 8, 3)).astype("f")),
    ),
    Case("sort", lambda x: sorting.sort(x, 1), (X,)),
    Case("top_k", lambda x: sorting.top_k(x, 4), (X,)),
    Case("cholesky", linalg.cholesky, (SQUARES,)),
    Case("eigh", lambda x: linalg.eigh(x)[1], (SQUARES,)),
    Case("lu", lambda x: linalg.lu(x)[0], (SQUARES,)),
    Case("qr", lambda x: linalg.qr(x)[1], (SQUARES,)),
    Case("svd", lambda x: linalg.svd(x, compute_uv=False), (SQUARES,)),
    Case(
        "triangular_solve",
        lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
        (SQUARES, CUBE[:, :4]),
    ),
    Case("geqrf", lambda x: matrix_forms.geqrf(x)[0], (SQUARES,)),
    Case("hessenberg", lambda x: matrix_forms.hessenberg(x)[0], (SQUARES,)),
    Case("tridiagonal", lambda x: matrix_forms.tridiagonal(x)[1], (SQUARES,)),
    Case("schur", lambda x: matrix_forms.schur(x, compute_schur_vectors=False), (SQUARES,)),
    Case("householder_product", matrix_forms.householder_product, (SQUARES, SQUARES[:, 0] / 4)),
    Case("ormqr", matrix_forms.ormqr, (SQUARES, SQUARES[:, 0] / 4, SQUARES)),
    Case(
        "tridiagonal_solve",
        lax.linalg.tridiagonal_solve,
        (SQUARES[:, 0] / 9, SQUARES[:, 1] + 1, SQUARES[:, 2] / 9, SQUARES),
    ),
    Case("fft", lambda x: fft(x, "FFT", (8,)), ((X + 1j * Y).astype(np.complex64),)),
    Case("polygamma", lambda n, x: registry["polygamma"].bind(n, x), (X * 0 + 1, X)),
    *[
        Case(name, lambda a, x, name=name: registry[name].bind(a, x), (X * X + 1, X * X + 2))
        for name in (
            "igamma",
            "igammac",
            "igamma_grad_a",
            "igamma_grad_x",
            "random_gamma_grad",
            "zeta",
        )
    ],
    Case("regularized_incomplete_beta", functions.betainc, (X * X + 1, X * X + 2, X * 0 + 0.5)),
    Case("beta_density", functions.beta_density, (X * X + 1, X * X + 2, X * 0 + 0.5)),
    Case("betaincc", functions.betaincc, (X * X + 1, X * X + 2, X * 0 + 0.5)),
    *[
        Case(name, getattr(functions, name), (X * X + 1, X * X + 2, X * 0 + 0.5, X * 0 + 0.5))
        for name in ("log_betainc", "betainc_hazard")
    ],
    Case("eig", lambda x: linalg.eig(x)[0], (SQUARES,)),
    Case(
        "lu_pivots_to_permutation",
        lambda x: linalg.lu_pivots_to_permutation(x, 8),
        (np.sort(INTS, 1),),
    ),
    Case("optimization_barrier", lambda x: registry["optimization_barrier"].bind(x), (X,)),
]
