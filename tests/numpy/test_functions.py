"""Functions of weft.numpy against NumPy's: one table of calls, values and dtypes compared."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override
from weft.sharding import AxisType, NamedSharding, PartitionSpec

RNG = np.random.RandomState(0)
F = RNG.randn(3, 4).astype(np.float32)
G = RNG.randn(3, 4).astype(np.float32)
P = np.abs(F) + np.float32(0.1)
U = (RNG.rand(3, 4) * 1.8 - 0.9).astype(np.float32)
V = RNG.randn(4).astype(np.float32)
T = RNG.randn(2, 3, 4).astype(np.float32)
I = RNG.randint(-5, 6, (3, 4)).astype(np.int32)
J = RNG.randint(1, 6, (3, 4)).astype(np.int32)
K = np.array([3, 1, 2, 1, 3, 0], np.int32)
U8 = RNG.randint(0, 200, (3, 4)).astype(np.uint8)
I8 = RNG.randint(-100, 100, (3, 4)).astype(np.int8)
B = RNG.rand(3, 4) > 0.5
C = (RNG.randn(3, 4) + 1j * RNG.randn(3, 4)).astype(np.complex64)
N = np.array([[1, np.nan, 3, -1], [np.nan] * 4, [0, 5, np.inf, -np.inf]], np.float32)
SQ = RNG.randn(4, 4).astype(np.float32)
SPD = SQ @ SQ.T + 4 * np.eye(4, dtype=np.float32)
SORTED = np.sort(RNG.randn(7)).astype(np.float32)

UNARY = {
    "abs negative positive sign square conjugate real imag floor ceil rint isfinite isnan isinf logical_not": [
        F,
        I,
        C,
        N,
    ],
    "trunc signbit": [F, P, N],
    "exp exp2 expm1 sqrt sin cos tan sinh cosh tanh arctan arcsinh deg2rad rad2deg cbrt fabs sinc": [
        F,
        P,
        I,
        np.float32(0),
    ],
    "log log2 log10 log1p reciprocal i0 spacing": [P],
    "arcsin arccos arctanh": [U],
    "arccosh": [P + 1],
    "arcsin arccos arctan arcsinh arccosh arctanh exp2 exp log sqrt sin tanh": [C],
    "invert bitwise_count": [I, U8, I8],
    "nan_to_num isposinf isneginf modf frexp": [F, N[2:]],
    "angle iscomplex isreal": [C, F],
}
_COMPLEX_UNDEFINED = {"floor", "ceil", "sign"}
BINARY = {
    "add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal fmax fmin": [
        (F, V),
        (F, 2),
        (2, F),
        (I, J),
        (F, I),
        (U8, U8),
        (I, 3),
        (F[:, :1], V),
        (N, F),
    ],
    "true_divide arctan2 hypot copysign logaddexp logaddexp2 nextafter float_power heaviside": [
        (P, P.T[:, :1].T),
        (P, 2.5),
        (I * 0 + 2, J),
    ],
    "floor_divide remainder fmod": [(F, G), (I, J), (F, 0.5), (7, J), (U8, 3), (I, -3)],
    "power": [(P, G), (F, 2), (F, 3), (F, -1), (J, J), (P, 0.5), (2, J), (U8, U8)],
    "bitwise_and bitwise_or bitwise_xor": [(I, J), (B, ~B), (U8, 7)],
    "left_shift right_shift": [(I, J), (J, 2), (U8, 3)],
    "logical_and logical_or logical_xor": [(B, ~B), (F, I), (N, 0)],
    "gcd lcm": [(I, J), (12, J), (I, I), (J, 0)],
    "ldexp": [(F, J), (F, 3)],
    "isclose": [(F, F + np.float32(1e-6)), (N, N)],
}

REDUCTIONS = """sum prod mean var std max min any all argmax argmin ptp median count_nonzero nansum nanprod nanmean nanmax
nanmin nanstd""".split()


def compare(found, want, exact_dtype: bool = True):
    if isinstance(want, (tuple, list)):
        assert len(found) == len(want)
        for f, w in zip(found, want):
            compare(f, w, exact_dtype)
        return
    want = np.asarray(want)
    value = np.asarray(found)
    assert value.shape == want.shape
    if exact_dtype and hasattr(found, "dtype"):
        assert value.dtype == canonical(want.dtype)
    if want.dtype.kind in "fc":
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=2e-5)
    else:
        np.testing.assert_array_equal(value, want)


def canonical(dtype):
    return {
        "int64": np.dtype("int32"),
        "uint64": np.dtype("uint32"),
        "float64": np.dtype("float32"),
        "complex128": np.dtype("complex64"),
    }.get(dtype.name, dtype)


@pytest.mark.parametrize(
    "name, row, i",
    [
        (n, names, i)
        for names, args in UNARY.items()
        for n in names.split()
        for i in range(len(args))
    ],
    ids=lambda v: v if not isinstance(v, str) or " " not in v else "",
)
def test_unary(name, row, i):
    x = UNARY[row][i]
    if np.iscomplexobj(x) and name in _COMPLEX_UNDEFINED:
        return
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    compare(getattr(wnp, name)(x), want, exact_dtype=name not in ("spacing", "sign"))


@pytest.mark.parametrize(
    "name, i",
    [(n, i) for names, args in BINARY.items() for n in names.split() for i in range(len(args))],
)
def test_binary(name, i):
    args = next(a for names, a in BINARY.items() if name in names.split())
    x, y = args[i]
    with np.errstate(all="ignore"):
        compare(getattr(wnp, name)(x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    if name.startswith("arg") and isinstance(axis, tuple):
        with pytest.raises(TypeError):
            getattr(wnp, name)(T, axis)
        return
    for x in (T, T.astype(np.int32)):
        want = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        compare(getattr(wnp, name)(x, axis=axis, keepdims=keepdims), want, exact_dtype=x is T)


CALLS = {
    "sum where": lambda m: m.sum(F, where=B),
    "max where": lambda m: m.max(F, axis=1, where=B, initial=-9.0),
    "mean where": lambda m: m.mean(F, where=B),
    "var ddof": lambda m: m.var(F, axis=0, ddof=1),
    "sum of small integers": lambda m: m.sum(U8),
    "cumsum": lambda m: m.cumsum(F, axis=1),
    "cumsum of all": lambda m: m.cumsum(I),
    "cumprod": lambda m: m.cumprod(F, axis=0),
    "nancumsum": lambda m: m.nancumsum(N[:2], axis=1),
    "average": lambda m: m.average(F, axis=1, weights=P[0], returned=True),
    "max of nan": lambda m: m.max(N, axis=1),
    "nanargmax": lambda m: m.nanargmax(N[[0, 2]], axis=1),
    "linspace": lambda m: m.linspace(0, 10, 7),
    "linspace without end": lambda m: m.linspace(0, 10, 5, endpoint=False),
    "linspace of arrays": lambda m: m.linspace(V, V + 1, 4, axis=1),
    "logspace": lambda m: m.logspace(0, 2, 5),
    "geomspace": lambda m: m.geomspace(1, 100, 5),
    "arange": lambda m: m.arange(5, 0, -2),
    "arange of floats": lambda m: m.arange(0, 1, 0.25),
    "eye": lambda m: m.eye(3, 4, 1),
    "tri": lambda m: m.tri(3, 4, -1),
    "tril": lambda m: m.tril(T, -1),
    "triu": lambda m: m.triu(F, 1),
    "meshgrid": lambda m: m.meshgrid(V, K),
    "meshgrid ij": lambda m: m.meshgrid(V, K, indexing="ij", sparse=True),
    "indices": lambda m: m.indices((2, 3)),
    "diag of a vector": lambda m: m.diag(V, 1),
    "diag of a matrix": lambda m: m.diag(F, -1),
    "diagonal": lambda m: m.diagonal(T, 1, 1, 2),
    "trace": lambda m: m.trace(T, axis1=1, axis2=2),
    "reshape F": lambda m: m.reshape(F, (2, -1), order="F"),
    "moveaxis": lambda m: m.moveaxis(T, (0, 1), (1, 2)),
    "rollaxis": lambda m: m.rollaxis(T, 2),
    "expand_dims": lambda m: m.expand_dims(F, (0, 2)),
    "concatenate": lambda m: m.concatenate([F, F + 1], 1),
    "concatenate flat": lambda m: m.concatenate([F, V], None),
    "stack": lambda m: m.stack([F, G], 1),
    "block": lambda m: m.block([[F, F], [G, G]]),
    "dstack": lambda m: m.dstack([F, G]),
    "column_stack": lambda m: m.column_stack([V, V]),
    "split": lambda m: m.split(F, [1, 3], axis=1),
    "array_split": lambda m: m.array_split(V, 3),
    "repeat": lambda m: m.repeat(F, np.array([1, 0, 2]), axis=0),
    "repeat by one number": lambda m: m.repeat(F, 2, axis=1),
    "tile": lambda m: m.tile(F, (2, 1, 2)),
    "roll": lambda m: m.roll(F, (1, -2), axis=(0, 1)),
    "roll flat": lambda m: m.roll(F, 3),
    "rot90": lambda m: m.rot90(T, -1, (1, 2)),
    "flip": lambda m: m.flip(F, (0, 1)),
    "pad": lambda m: m.pad(F, ((1, 2), (2, 1)), constant_values=((1, 2), (3, 4))),
    "pad edge": lambda m: m.pad(F, 2, mode="edge"),
    "pad reflect": lambda m: m.pad(V, 5, mode="reflect"),
    "pad symmetric": lambda m: m.pad(V, (1, 6), mode="symmetric"),
    "pad symmetric oddly": lambda m: m.pad(V, (1, 6), mode="symmetric", reflect_type="odd"),
    "pad reflect oddly": lambda m: m.pad(F, ((2, 0), (1, 9)), mode="reflect", reflect_type="odd"),
    "pad wrap": lambda m: m.pad(F, 2, mode="wrap"),
    "pad maximum": lambda m: m.pad(F, 1, mode="maximum", stat_length=2),
    "pad mean": lambda m: m.pad(I, 2, mode="mean"),
    "pad median": lambda m: m.pad(V, 2, mode="median"),
    "pad linear_ramp": lambda m: m.pad(F, 2, mode="linear_ramp", end_values=5),
    "where": lambda m: m.where(B, F, 0),
    "where alone": lambda m: m.where(B),
    "select": lambda m: m.select([F < 0, F > 1], [F, F * 2], 5),
    "clip": lambda m: m.clip(F, -0.5, V),
    "take": lambda m: m.take(F, np.array([2, 0]), axis=1),
    "take wrap": lambda m: m.take(F, np.array([-5, 9]), axis=1, mode="wrap"),
    "take clip": lambda m: m.take(F, np.array([-5, 9]), axis=1, mode="clip"),
    "take_along_axis": lambda m: m.take_along_axis(F, np.argsort(F, 1), 1),
    "delete": lambda m: m.delete(F, np.array([0, 2]), axis=1),
    "insert": lambda m: m.insert(F, 1, V, axis=0),
    "resize": lambda m: m.resize(F, (4, 5)),
    "dot": lambda m: m.dot(T, F.T),
    "matmul": lambda m: m.matmul(T[:, None], np.swapaxes(T, 1, 2)),
    "matmul of vectors": lambda m: m.matmul(V, np.swapaxes(T, 1, 2)),
    "vdot": lambda m: m.vdot(C, C),
    "inner": lambda m: m.inner(T, V),
    "outer": lambda m: m.outer(V, K),
    "kron": lambda m: m.kron(F, F[:2, :2]),
    "tensordot": lambda m: m.tensordot(T, F, ((1, 2), (0, 1))),
    "cross": lambda m: m.cross(F[:, :3], F[:, 1:]),
    "einsum": lambda m: m.einsum("ij,jk,kl->il", F, SQ, SQ),
    "einsum of lists": lambda m: m.einsum(F, (1, 0)),
    "einsum of lists, three": lambda m: m.einsum(SQ, (2, 1), SQ, (1, 7), V, (2,)),
    "einsum diagonal": lambda m: m.einsum("ii->i", SQ),
    "einsum ellipsis": lambda m: m.einsum("...ij,...kj->...ik", T, F),
    "einsum lists": lambda m: m.einsum(F, [0, 1], G, [2, 1], [2, 0]),
    "einsum trace": lambda m: m.einsum("ij,ij->", F, G),
    "round": lambda m: m.round(F, 1),
    "round integers": lambda m: m.round(I * 13, -1),
    "polyval": lambda m: m.polyval(V, F),
    "polyfit": lambda m: m.polyfit(np.arange(4.0, dtype=np.float32), V, 2),
    "polydiv": lambda m: m.polydiv(V, V[:2])[0],
    "polymul": lambda m: m.polymul(V, V[:2]),
    "polyint": lambda m: m.polyint(V, 2),
    "roots": lambda m: m.sort(m.roots(np.array([1.0, -3.0, 2.0]))),
    "vander": lambda m: m.vander(V, 3),
    "convolve": lambda m: m.convolve(V, V[:2], "same"),
    "correlate": lambda m: m.correlate(V, V[:3], "full"),
    "diff": lambda m: m.diff(F, 2, prepend=0),
    "ediff1d": lambda m: m.ediff1d(V, to_end=np.float32(9), to_begin=V[:2]),
    "gradient": lambda m: m.gradient(F, 2.0),
    "gradient by coordinates": lambda m: m.gradient(V, np.array([0, 1, 3, 4], np.float32)),
    "interp": lambda m: m.interp(F, np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 5.0]), left=-9),
    "interp periodic": lambda m: m.interp(
        F, np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 5.0]), period=3.0
    ),
    "trapezoid": lambda m: m.trapezoid(F, axis=0),
    "unwrap": lambda m: m.unwrap(F * 5),
    "sort": lambda m: m.sort(N, axis=1),
    "argsort": lambda m: m.argsort(I, axis=1, stable=True),
    "lexsort": lambda m: m.lexsort((np.arange(6), K)),
    "searchsorted": lambda m: m.searchsorted(SORTED, F, side="right"),
    "searchsorted ties": lambda m: m.searchsorted(np.sort(K), K),
    "digitize": lambda m: m.digitize(F, np.array([1.0, 0.0, -1.0], np.float32)),
    "nonzero": lambda m: m.nonzero(I),
    "argwhere": lambda m: m.argwhere(B),
    "unique": lambda m: m.unique(K, return_index=True, return_inverse=True, return_counts=True),
    "union1d": lambda m: m.union1d(K, np.arange(5, dtype=np.int32)),
    "intersect1d": lambda m: m.intersect1d(K, np.arange(2, dtype=np.int32)),
    "isin": lambda m: m.isin(I, np.array([1, 2], np.int32), invert=True),
    "bincount": lambda m: m.bincount(K, minlength=8),
    "quantile": lambda m: m.quantile(
        T, np.array([0.1, 0.7], np.float32), axis=(0, 2), keepdims=True
    ),
    "quantile nearest": lambda m: m.quantile(F, np.float32(0.3), axis=1, method="nearest"),
    "nanquantile": lambda m: m.nanquantile(N[[0, 2]][:, :2], np.float32(0.3), axis=1),
    "percentile": lambda m: m.percentile(F, np.array([30.0, 50.0], np.float32), axis=0),
    "nanmedian": lambda m: m.nanmedian(N[:1], axis=1),
    "histogram": lambda m: m.histogram(F, bins=5, range=(-2, 2), weights=P),
    "histogram2d": lambda m: m.histogram2d(V, V * 2, bins=3, density=True),
    "cov": lambda m: m.cov(F, rowvar=False),
    "cov with weights": lambda m: m.cov(
        F, fweights=np.array([1, 2, 3, 4]), aweights=np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    ),
    "corrcoef": lambda m: m.corrcoef(F),
    "unravel_index": lambda m: m.unravel_index(np.array([1, 5, 11]), (3, 4)),
    "ravel_multi_index": lambda m: m.ravel_multi_index(
        (np.array([0, 9]), np.array([2, 3])), (3, 4), mode="clip"
    ),
    "tril_indices": lambda m: m.tril_indices(4, -1),
    "ix_": lambda m: m.ix_(np.array([0, 2]), np.array([1, 3])),
    "mgrid": lambda m: m.mgrid[0:3, 0:2],
    "ogrid": lambda m: m.ogrid[0:1:3j, 0:2],
    "r_": lambda m: m.r_[V, 0, 1:3],
    "c_": lambda m: m.c_[V, V],
    "packbits": lambda m: m.packbits(B, axis=1, bitorder="little"),
    "unpackbits": lambda m: m.unpackbits(U8, axis=0, count=11),
    "piecewise": lambda m: m.piecewise(F, [F < 0, F > 1], [-1, lambda x: x * 2, 7]),
    "hanning": lambda m: m.hanning(7),
    "blackman": lambda m: m.blackman(6),
    "kaiser": lambda m: m.kaiser(5, 2.0),
    "nan_to_num": lambda m: m.nan_to_num(N, nan=7, posinf=1),
    "apply_along_axis": lambda m: m.apply_along_axis(lambda x: x.sum(), 1, T),
    "apply_over_axes": lambda m: m.apply_over_axes(m.sum, T, [0, 2]),
    "vectorize": lambda m: m.vectorize(lambda x, y: x @ y, signature="(m,n),(n)->(m)")(T, V),
    "array_equal": lambda m: m.array_equal(N, N, equal_nan=True),
    "allclose": lambda m: m.allclose(F, F + 1),
}
_LOOSE = {
    "linspace of arrays",
    "polyfit",
    "polyint",
    "roots",
    "vander",
    "histogram",
    "histogram2d",
    "cov with weights",
    "searchsorted ties",
    "interp",
    "interp periodic",
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    with np.errstate(all="ignore"):
        want = CALLS[name](np)
    compare(CALLS[name](wnp), want, exact_dtype=name not in _LOOSE)


LINALG = {
    "norm": lambda m: m.linalg.norm(F),
    "norm of rows": lambda m: m.linalg.norm(F, axis=1, ord=1),
    "spectral norm": lambda m: m.linalg.norm(F, ord=2),
    "nuclear norm": lambda m: m.linalg.norm(T, ord="nuc", axis=(0, 2), keepdims=True),
    "infinity norm": lambda m: m.linalg.norm(F, ord=-np.inf),
    "det": lambda m: m.linalg.det(SQ),
    "det of small ones": lambda m: m.linalg.det(T[:, :, :3]),
    "slogdet": lambda m: tuple(m.linalg.slogdet(SQ)),
    "inv": lambda m: m.linalg.inv(T[:, :, :3]),
    "solve": lambda m: m.linalg.solve(SQ, F.T),
    "solve a vector": lambda m: m.linalg.solve(np.stack([SQ, SPD]), V),
    "cholesky": lambda m: m.linalg.cholesky(SPD),
    "eigvalsh": lambda m: m.linalg.eigvalsh(SPD),
    "eigh": lambda m: m.abs(m.linalg.eigh(SPD)[1]),
    "svd": lambda m: m.linalg.svd(T, compute_uv=False),
    "qr": lambda m: m.abs(m.linalg.qr(F)[1]),
    "pinv": lambda m: m.linalg.pinv(F),
    "matrix_rank": lambda m: m.linalg.matrix_rank(np.outer(V, V)),
    "lstsq": lambda m: m.linalg.lstsq(F.T, V)[0],
    "multi_dot": lambda m: m.linalg.multi_dot([V, SQ, F.T]),
    "matrix_power": lambda m: m.linalg.matrix_power(SQ, -2),
    "cond": lambda m: m.linalg.cond(SQ, 1),
    "tensorsolve": lambda m: m.linalg.tensorsolve(SQ.reshape(4, 2, 2), V),
    "fft": lambda m: m.fft.fft(F, 6, axis=1),
    "rfft ortho": lambda m: m.fft.rfft(V, norm="ortho"),
    "irfft": lambda m: m.fft.irfft(C, 5),
    "fft2": lambda m: m.fft.fft2(T),
    "irfftn": lambda m: m.fft.irfftn(C, norm="forward"),
    "hfft": lambda m: m.fft.hfft(C),
    "fftfreq": lambda m: m.fft.fftfreq(5, 0.5),
    "fftshift": lambda m: m.fft.fftshift(F),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name):
    found, want = LINALG[name](wnp), LINALG[name](np)
    for f, w in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, want)]):
        np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-3)


PARTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 50.0, -50.0, 1e-3]
BRANCHES = "arcsin arccos arctan arcsinh arccosh arctanh sqrt log log1p log2 log10 exp expm1 sin cos tan sinh cosh tanh"


@pytest.mark.parametrize("name", BRANCHES.split())
def test_the_sign_of_zero_chooses_the_side_of_a_branch_cut(name):
    z = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(z.astype(np.complex128)).astype(np.complex64)
    found = np.asarray(getattr(wnp, name)(z))
    np.testing.assert_allclose(found.real, want.real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.imag, want.imag, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_remainders_of_integers_by_zero_are_zero(dtype):
    x, y = np.array([5, 0, 7], dtype), np.array([0, 0, 2], dtype)
    for name in ("remainder", "fmod"):
        assert np.asarray(getattr(wnp, name)(x, y)).tolist() == [0, 0, 1]
    assert np.asarray(wnp.divmod(x, y)[1]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_step_to_their_own_neighbours(dtype):
    x, y = (
        wnp.array([0, 1, -2, 5, 3, wnp.nan, wnp.inf, -0.0], dtype),
        wnp.array([3, -2, 2, 0, 3, 1, 0, -1], dtype),
    )
    found, want = np.asarray(wnp.nextafter(x, y)), np.nextafter(np.asarray(x), np.asarray(y))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), want.astype(np.float32))
    assert (np.asarray(wnp.spacing(x[:5])).astype(np.float32) != 0).all()


@pytest.mark.parametrize("jit", [weft.jit, lambda f: f])
def test_python_integers_beyond_a_narrow_type_wrap(jit):
    x = wnp.array([1, 44, 255], np.uint8)
    for f, want in [
        (lambda x: x == 300, [0, 1, 0]),
        (lambda x: x + -1, [0, 43, 254]),
        (lambda x: wnp.where(x > 1, -1, x), [1, 255, 255]),
        (lambda x: wnp.clip(x, 0, 300), [1, 44, 44]),
        (lambda x: 300 - x, [43, 0, 45]),
    ]:
        np.testing.assert_array_equal(jit(f)(x), want)
    with pytest.raises(OverflowError):
        jit(lambda x: x + 2**40)(x)


def test_numpy_integers_are_constant_exponents():
    """As with Python integers, the result has the type of the base."""
    x = wnp.array([1, 2, 3], np.uint8)
    for y in (2, np.int64(2), np.int32(2), np.array(2), wnp.array(2), wnp.int32(2), wnp.uint8(2)):
        assert (x**y).dtype == np.uint8 and (x**y).tolist() == [1, 4, 9]
        assert [e.primitive.name for e in weft.make_jaxpr(lambda x, y=y: x**y)(x).eqns] == [
            "integer_pow"
        ]
        assert weft.jit(lambda x, y: x**y)(np.float32(3), y) == 9
    for y in (-2, np.int8(-2), wnp.array(-2)):
        assert float(2.0 ** wnp.asarray(y)) == float(wnp.power(2.0, y)) == 0.25
        for base in (x, wnp.array([True])):
            with pytest.raises(TypeError, match="negative powers"):
                base**y
    assert (x ** wnp.array([2])).dtype == wnp.result_type(np.uint8, np.int32) and (
        wnp.array(2j) ** True
    ).item() == 2j
    assert (
        float(wnp.power(2.5, np.int64(2)))
        == float(weft.jit(lambda: wnp.power(2.5, True))()) * 2.5
        == 6.25
    )


def test_quantiles_have_the_type_of_the_array():
    x = wnp.array([1.5, 2.5, -3, 4], "bfloat16")
    for method in ("linear", "lower", "higher", "nearest", "midpoint"):
        out = wnp.quantile(x, wnp.array([0.0, 0.5, 1.0]), method=method)
        assert out.dtype == x.dtype and out.astype(float).tolist()[::2] == [-3.0, 4.0]
    assert wnp.quantile(wnp.array([1, 2]), wnp.array(0.5, np.float16)).dtype == np.float32
    assert wnp.quantile(wnp.array([0.0, 1, 2, 3]), 0.5, method="nearest") == 1.0


def test_cumulative_sums_of_narrow_integers_are_wide():
    assert wnp.cumulative_sum(wnp.array([100, 100], np.int8)).tolist() == [100, 200]
    assert (
        wnp.cumulative_sum(wnp.array([200, 100], np.uint8), include_initial=True).dtype == np.uint32
    )


def test_places_that_are_always_narrow():
    with Override(enable_x64=True):
        x = wnp.arange(5.0)
        assert {
            wnp.searchsorted(x, x).dtype,
            wnp.digitize(x, x).dtype,
            wnp.argpartition(x, 2).dtype,
        } == {np.dtype("i4")}
        assert wnp.argsort(x).dtype == np.int64


def test_dtypes_that_do_not_widen():
    bools = np.array([True, False])
    for x64 in (False, True):
        with Override(enable_x64=x64):
            assert wnp.tri(3).dtype == np.float32
            assert [
                str(wnp.angle(wnp.ones(2, name), deg).dtype)
                for name in ("bfloat16", "float16")
                for deg in (False, True)
            ] == ["bfloat16", "bfloat16", "float16", "float16"]
            found = [
                *wnp.divmod(bools, bools),
                wnp.fmod(bools, bools),
                wnp.square(bools),
                wnp.left_shift(bools, bools),
                wnp.power(bools, bools),
                wnp.power(bools, 3),
                wnp.power(True, bools),
            ]
            assert {x.dtype for x in found} == {np.dtype("i4")}
            widest = wnp.power(2.0, bools)
            assert widest.weak_type and widest.dtype == (np.float64 if x64 else np.float32)
            assert not wnp.power(2, bools).weak_type


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 50])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_digitize_on_edges_of_rising_and_falling_bins(dtype, count, right):
    rng = np.random.default_rng(count)
    edges = np.sort(rng.integers(-20, 20, count)).astype(dtype)
    for size in (0, 1, 7, 70):
        x = rng.integers(-25, 26, size).astype(dtype)
        for bins in (edges, edges[::-1]):
            got = weft.jit(lambda x, bins: wnp.digitize(x, bins, right))(x, bins)
            np.testing.assert_array_equal(got, np.digitize(x, bins, right))


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 4), (70,), (2, 3, 4), (400, 257)])
@pytest.mark.parametrize("size", [0, 1, 3, 200, 70_000])
@pytest.mark.parametrize("fill", [None, -5, 7])
def test_positions_of_a_given_number(shape, size, fill):
    x = np.random.default_rng(1).random(shape) > 0.5
    found = weft.jit(lambda x: wnp.nonzero(x, size=size, fill_value=fill))(x)
    for got, where in zip(found, np.nonzero(x)):
        want = np.full(size, 0 if fill is None else fill, np.int32)
        want[: len(where)] = where[:size]
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.int32


def test_an_array_of_no_dims_has_no_positions():
    for call in (
        lambda x: wnp.nonzero(x),
        lambda x: x.nonzero(),
        lambda x: wnp.where(x),
        lambda x: wnp.nonzero(x, size=2),
    ):
        with pytest.raises(ValueError, match="no dims has no positions"):
            call(wnp.array(3))
    assert (
        wnp.flatnonzero(3).tolist() == [0]
        and wnp.argwhere(3).shape == (1, 0)
        and wnp.argwhere(0).shape == (0, 0)
    )


@pytest.mark.parametrize("full_like", [wnp.full_like, weft.lax.full_like])
def test_filled_arrays_are_where_their_example_is(full_like):
    x = weft.device_put(wnp.ones((4, 2)), weft.devices()[1])
    for shape in (None, (), (5,)):
        y = full_like(x, 3.0, shape=shape)
        assert (
            y.shape == (x.shape if shape is None else shape)
            and y.sharding == x.sharding
            and float(y.sum()) == 3 * y.size
        )


def test_filled_arrays_are_where_a_holder_or_a_type_says():
    rows = NamedSharding(
        weft.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,), devices=weft.devices()[:2]),
        PartitionSpec("i"),
    )

    class Holder:
        """An array that is exposed as libraries expose variables."""

        shape, dtype, sharding = (4, 2), np.dtype("float32"), rows

    for example in (Holder(), weft.ShapeDtypeStruct((4, 2), "float32", sharding=rows)):
        assert wnp.zeros_like(example).sharding == rows
        assert wnp.ones_like(example, shape=(3,)).sharding != rows
    traced = weft.jit(lambda x: wnp.zeros_like(x))(weft.device_put(wnp.ones((4, 2)), rows))
    assert traced.tolist() == [[0, 0]] * 4


@pytest.mark.parametrize("ends", [(0, 25), (0, 1), (1, 10), (-3, 7), (0.5, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_evenly_spaced_values_are_rounded_once(ends, dtype):
    for num in range(2, 40):
        np.testing.assert_array_equal(
            wnp.linspace(*ends, num, dtype=dtype), np.linspace(*ends, num).astype(dtype)
        )
    assert weft.jit(lambda a, b: wnp.linspace(a, b, 6))(0.0, 25.0).tolist() == [
        0,
        5,
        10,
        15,
        20,
        25,
    ]


@pytest.mark.parametrize(
    "ends", [(-3e38, 3e38), (1e38, 3.4e38), (0, 3e38), (1e-38, 3e-38), (2 + 1j, -4 + 3j)]
)
def test_evenly_spaced_values_near_the_ends_of_a_type(ends):
    np.testing.assert_allclose(wnp.linspace(*ends, 7), np.linspace(*ends, 7), rtol=3e-7)


def test_geometric_progressions_have_exact_ends():
    for start, stop, num in ((1, 1000, 4), (3, 1e-5, 9), (-2, -64, 6), (5, 7, 1)):
        got = np.asarray(wnp.geomspace(start, stop, num))
        np.testing.assert_allclose(got, np.geomspace(start, stop, num), rtol=1e-6)
        assert got[0] == np.float32(start) and (num == 1 or got[-1] == np.float32(stop))


def test_functions_of_indices_are_mapped_over_elements():
    seen = []

    def of_one(i, j, scale=1):
        seen.append((i.shape, j.shape))
        return {"sum": i + j, "row": scale * i * wnp.arange(4)}

    found = wnp.fromfunction(of_one, (2, 3), dtype=int, scale=3)
    assert (
        seen == [((), ())]
        and found["sum"].tolist() == [[0, 1, 2], [1, 2, 3]]
        and found["row"].shape == (2, 3, 4)
    )
    assert found["row"][1, 2].tolist() == [0, 3, 6, 9] and wnp.fromfunction(
        lambda: wnp.ones(2), ()
    ).shape == (2,)
    assert wnp.fromfunction(lambda i: i, (0,)).shape == (0,)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 3), (2, 3)),
        ((2, 3), (1, 3)),
        ((2, 3), (1,)),
        ((1,), (2, 3)),
        ((2, 3), (2, 1)),
        ((2, 1), (3, 2)),
    ],
)
def test_sums_of_stacks_of_polynomials(shapes):
    a, b = (np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes)
    n = max(len(a), len(b))
    full = [
        np.concatenate([np.zeros((n - len(x), *x.shape[1:]), x.dtype), x]) if len(x) < n else x
        for x in (a, b)
    ]
    full = [x if x.ndim == 2 else x[:, None] for x in full]
    np.testing.assert_array_equal(wnp.polyadd(a, b), full[0] + full[1])
    np.testing.assert_array_equal(wnp.polysub(a, b), full[0] - full[1])


def test_stacks_of_polynomials_that_do_not_fit():
    with pytest.raises(ValueError, match="polyadd"):
        wnp.polyadd(np.ones(3), np.ones((2, 3)))


@pytest.mark.parametrize(
    "coefficients", [[0, 1, 2], [0, 0, 1, 2], [1, 2, 0], [0, 1, -3, 2, 0], [0, 0, 0], [2, -6, 4]]
)
@pytest.mark.parametrize("jit", [False, True])
def test_roots_with_leading_zeros_kept(coefficients, jit):
    roots = lambda p: wnp.roots(p, strip_zeros=False)
    got = np.asarray((weft.jit(roots) if jit else roots)(wnp.array(coefficients)))
    want = np.roots(coefficients)
    assert (
        got.shape == (len(coefficients) - 1,)
        and np.isnan(got[len(want) :].real).all()
        and np.isnan(got[len(want) :].imag).all()
    )
    np.testing.assert_allclose(np.sort(got[: len(want)]), np.sort(want.astype(complex)), atol=1e-5)


@pytest.mark.parametrize(
    "arguments", [(0, 5, 0.5), (1.5, 5, 1.2), (5, 0, -0.7), (0.5, 3), (2.7,), (3, 3, 0.5)]
)
def test_integer_ranges_of_floats_step_as_numpy_does(arguments):
    compare(wnp.arange(*arguments, dtype="int32"), np.arange(*arguments, dtype="int32"))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5],
        [[1, 2], [3, 4.5]],
        [True, 1],
        [1, 2j],
        [[True], [False]],
        [],
        [[], []],
        [(1, 2), [3, 4]],
    ],
)
def test_nested_lists_of_numbers(values):
    want = np.asarray(values)
    narrow = {"i": np.int32, "f": np.float32, "c": np.complex64, "b": np.bool_}[want.dtype.kind]
    compare(wnp.array(values), want.astype(narrow))


@pytest.mark.parametrize(
    "values", [[1, [2]], [[1, 2], [3]], [1, None], ["a"], [1, "a"], [[1], 2.0]]
)
def test_lists_that_are_no_arrays(values):
    with pytest.raises((TypeError, ValueError), match="array"):
        wnp.array(values)


def test_logarithms_of_numbers_have_a_type_of_their_own():
    half = wnp.ones(2, "bfloat16")
    assert (wnp.log2(8.0) * half).dtype == (wnp.log10(8) * half).dtype == np.float32 and (
        wnp.log(8.0) * half
    ).dtype == half.dtype


def test_differences_between_ends_keep_their_dtype():
    got = wnp.ediff1d(wnp.array([1, 4, 2]), to_end=0.5, to_begin=wnp.array([7.9, 2]))
    assert got.tolist() == [7, 2, 3, -2, 0] and got.dtype == np.int32


@pytest.mark.parametrize(
    "arguments", [(5, None, 2), (-4, None, -1), (5.0, None, 2), (3.5e9, None, 2.0**50), (1, 5, 3)]
)
def test_ranges_that_end_by_their_first_argument(arguments):
    start, stop, step = arguments
    compare(
        wnp.arange(start, stop, step),
        np.arange(0 if stop is None else start, start if stop is None else stop, step),
        exact_dtype=False,
    )


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"])
@pytest.mark.parametrize("jit", [False, True])
def test_inverse_functions_at_complex_infinities(name, jit):
    """Annex G of the C standard, which NumPy follows, including the signs of zeros."""
    parts = [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.0, -3.0]
    z = np.array(
        [complex(a, b) for a in parts for b in parts if np.isinf(a) or np.isinf(b)], np.complex64
    )
    f = getattr(wnp, name)
    with np.errstate(invalid="ignore"):
        got, want = np.asarray(weft.jit(f)(z) if jit else f(z)), getattr(np, name)(z)
    for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
        settled = ~(np.isnan(z.real) | np.isnan(z.imag))  # where a part is NaN signs are anyone's
        np.testing.assert_allclose(np.abs(mine), np.abs(theirs), rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(mine[settled]), np.signbit(theirs[settled]))


@pytest.mark.parametrize(
    "f, weak",
    [
        (lambda: wnp.equal(1, 1), True),
        (lambda: wnp.less(wnp.asarray(1.0), 2), True),
        (lambda: wnp.less(np.float32(1), 2), False),
        (lambda: wnp.isnan(1.0), True),
        (lambda: wnp.isfinite(1.0), True),
        (lambda: wnp.logical_not(2), True),
        (lambda: wnp.iscomplex(2j), True),
        (lambda: weft.lax.lt(1, 2), True),
        (lambda: wnp.isinf(1.0), False),
        (lambda: wnp.isclose(1, 1), False),
        (lambda: wnp.all(1), False),
        (lambda: wnp.isin(1, 1), False),
        (lambda: wnp.array_equal(1, 1), False),
        (lambda: wnp.sinc(0.5), True),
    ],
)
def test_comparisons_of_numbers_give_weak_bools(f, weak):
    assert f().weak_type is weft.eval_shape(f).weak_type is weak


def test_weak_bools_mean_what_bools_do():
    yes = wnp.equal(1, 1)
    assert (
        (yes + yes).dtype == bool
        and (yes * np.int8(3)).dtype == np.int8
        and wnp.where(yes, 1, 2) == 1
    )
    assert weft.lax.while_loop(lambda c: ~c, lambda c: wnp.equal(1, 1), False) and weft.lax.cond(
        yes, lambda: True, lambda: False
    )


@pytest.mark.parametrize("dtype", [wnp.bfloat16, np.float16, wnp.float8_e4m3fn])
@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "exp2",
        "expm1",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arctan",
        "arcsinh",
        "deg2rad",
        "rad2deg",
        "cbrt",
        "fabs",
        "sinc",
        "i0",
        "nan_to_num",
    ],
)
def test_functions_of_narrow_floats(name, dtype):
    x = (
        wnp.linspace(-1, 1, 9).astype(dtype)
        if name != "sqrt"
        else wnp.linspace(0, 1, 9).astype(dtype)
    )
    got, want = getattr(wnp, name)(x), getattr(wnp, name)(x.astype(np.float32))
    assert got.dtype == dtype
    eps = float(wnp.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=4 * eps, atol=4 * eps)
