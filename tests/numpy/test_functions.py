"""Functions of weft.numpy against NumPy's: one table of calls, values and dtypes compared."""

from __future__ import annotations

import numpy as np
import pytest

import weft.numpy as wnp
from tests.numpy.comparison import compare

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
    result, want = LINALG[name](wnp), LINALG[name](np)
    for f, w in zip(*[v if isinstance(v, tuple) else (v,) for v in (result, want)]):
        np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-3)
