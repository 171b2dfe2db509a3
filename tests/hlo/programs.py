"""Programs that together use every operation, for texts that other compilers read."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence

import numpy as np

import weft
import weft.lax as lax
import weft.numpy as wnp
from weft._engine import ops
from weft._engine.api.checkpointing import checkpoint_name
from weft._engine.ops import collective_rules, functions
from weft.custom_derivatives import linear_call
from weft.experimental.layout import Layout, with_layout_constraint
from weft.experimental.xla_metadata import set_xla_metadata, xla_metadata_call
from weft.sharding import NamedSharding, PartitionSpec as P, PositionalSharding


@dataclasses.dataclass
class Program:
    """`fn(*args)`; `specs` say how arguments lie on `mesh()`, `tolerance` what results may differ by, relative to the largest."""

    name: str
    fn: Callable
    args: Sequence
    specs: Sequence | None = None
    tolerance: float = 2e-6
    x64: bool = False
    donate: tuple[int, ...] = ()

    def lower(self):
        """Return the program, lowered for its arguments."""
        return weft.jit(self.fn, donate_argnums=self.donate, **self.placement()).lower(*self.args)

    def placement(self) -> dict:
        """Return the shardings of arguments and results."""
        if self.specs is None:
            return {}
        return {
            "in_shardings": tuple(NamedSharding(mesh(), s) for s in self.specs),
            "out_shardings": NamedSharding(mesh(), P()),
        }


def mesh():
    """Eight devices along two axes."""
    return weft.make_mesh((4, 2), ("a", "b"))


PROGRAMS: list[Program] = []


def program(*args, **facts) -> Callable:
    """Decorator: a function is a program on these arguments."""
    return lambda fn: PROGRAMS.append(Program(fn.__name__, fn, args, **facts)) or fn


def f32(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed + math.prod(shape)).uniform(low, high, shape).astype(np.float32)
    )


X, Y, U = f32(3, 4), f32(3, 4, seed=1), f32(3, 4, low=0.1, high=0.9)
INTS = np.array([[-7, 0, 3, 2**31 - 1], [5, -(2**31), 1, 2]], np.int32)
OTHER = np.array([[2, 3, 0, 5], [-1, -1, 31, 40]], np.int32)
WORDS = INTS.view(np.uint32)
BOOLS = np.array([[True, False, True], [False, False, True]])
SPECIALS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-30], np.float32
)  # (XLA takes subnormal numbers for zeros)
Z = (X + 1j * Y).astype(np.complex64)
BF = X.astype(wnp.bfloat16)


# --- elementwise ------------------------------------------------------------------------------------------------------


@program(X, Y)
def arithmetic(x, y):
    return (
        x + y,
        x - y,
        x * y,
        x / y,
        lax.rem(x, y),
        -x,
        lax.sign(x),
        lax.abs(x),
        lax.max(x, y),
        lax.min(x, y),
        lax.square(x),
        lax.clamp(-1.0, x, y),
        lax.clamp(x, y, x),
    )


@program(X)
def integer_powers(x):
    return (
        lax.integer_pow(x, 3),
        lax.integer_pow(x, -2),
        lax.integer_pow(x, 0),
        lax.integer_pow(x, 12),
    )


@program(INTS, OTHER)
def integer_arithmetic(x, y):
    return (
        x + y,
        x * y,
        lax.div(x, y),
        lax.rem(x, y),
        lax.sign(x),
        lax.abs(x),
        lax.max(x, y),
        lax.integer_pow(x, 5),
        lax.square(x),
    )


@program(WORDS, OTHER.view(np.uint32))
def unsigned_arithmetic(x, y):
    return (
        x - y,
        lax.div(x, y),
        lax.rem(x, y),
        lax.sign(x),
        lax.abs(x),
        lax.min(x, y),
        x < y,
        lax.population_count(x),
        lax.clz(x),
    )


@program(INTS, OTHER, BOOLS)
def bits(x, y, b):
    return (
        x & y,
        x | y,
        x ^ y,
        ~x,
        lax.shift_left(x, y),
        lax.shift_right_logical(x, y),
        lax.shift_right_arithmetic(x, y),
        b & b[:, ::-1],
        b | True,
        b ^ b[::-1],
        ~b,
        lax.population_count(x),
        lax.clz(x),
    )


@program(X, Y, INTS, BOOLS)
def comparisons(x, y, i, b):
    return x == y, x != y, x < 0.0, x <= y, x > y, x >= y, i < 0, b == b[:, ::-1], b < b[::-1]


@program(SPECIALS)
def specials(x):
    return (
        lax.max(x, 1.0),
        lax.sign(x),
        lax.is_finite(x),
        lax.exp(x),
        lax.tanh(x),
        x == x,
        lax.nextafter(x, 1.0),
        wnp.sort(x),
        wnp.argmax(x),
        wnp.argmin(x[:4]),
        x.astype(np.int32),
        x.astype(bool),
        lax.round(x),
        lax.logistic(x),
    )


@program(BOOLS, X[:2, :3], Y[:2, :3], np.array([[0, 1, 2], [3, -1, 1]], np.int32))
def selections(b, x, y, which):
    return (
        lax.select_n(b, x, y),
        lax.select_n(which, x, y, x + y),
        wnp.where(x > 0, 1.0, y),
        lax.select_n(b[0, 0], x, y),
    )


@program(Z, X)
def complex_numbers(z, x):
    return (
        lax.real(z),
        lax.imag(z),
        lax.conj(z),
        lax.complex(x, x + 1),
        lax.abs(z),
        lax.sign(z),
        z * z,
        z / (z + 2),
        lax.exp(z),
        lax.log(z),
        lax.sqrt(z),
        lax.tanh(z),
        z == z,
        z.sum(),
        z.astype(bool),
        lax.integer_pow(z, 3),
        lax.sin(z),
        x.astype(np.complex64),
    )


@program(X * 100, INTS, BOOLS)
def casts(x, i, b):
    return (
        x.astype(np.int8),
        x.astype(np.uint8),
        x.astype(wnp.bfloat16),
        x.astype(np.float16),
        i.astype(np.float32),
        b.astype(np.float32),
        b.astype(np.int32),
        i.astype(bool),
        x.astype(wnp.float8_e4m3fn).astype(np.float32),
        x.astype(wnp.float8_e5m2).astype(np.float32),
        lax.bitcast_convert_type(x, np.int32),
        lax.bitcast_convert_type(x, np.uint16),
        lax.reduce_precision(x, 5, 10),
    )


@program(np.arange(6, dtype=np.int32))
def small_integers(i):
    narrow = i.astype(wnp.int4)
    return (
        (narrow + narrow).astype(np.int32),
        i.astype(wnp.uint4).astype(np.int32),
        narrow.astype(np.float32),
    )


@program(X)
def exponentials(x):
    return (
        lax.exp(x),
        lax.exp2(x),
        lax.expm1(x),
        lax.logistic(x),
        lax.sinh(x),
        lax.cosh(x),
        lax.tanh(x),
        lax.asinh(x),
    )


@program(U)
def logarithms(x):
    return (
        lax.log(x),
        lax.log1p(x),
        lax.acosh(1 + x),
        lax.atanh(x),
        wnp.logaddexp(x, 1 - x),
        wnp.log2(x),
        lax.pow(x, 1 - x),
        lax.pow(x, 3),
    )


@program(X, Y)
def trigonometry(x, y):
    return (
        lax.sin(x),
        lax.cos(x),
        lax.tan(x),
        lax.asin(x / 2),
        lax.acos(y / 2),
        lax.atan(x),
        lax.atan2(x, y),
    )


@program(X)
def roots_and_rounding(x):
    y = abs(x)
    return (
        lax.sqrt(y),
        lax.rsqrt(y),
        lax.cbrt(x),
        lax.floor(x),
        lax.ceil(x),
        lax.round(x * 2),
        lax.round(x * 2, lax.RoundingMethod.TO_NEAREST_EVEN),
        wnp.trunc(x),
        lax.is_finite(x),
        lax.nextafter(x, y),
        wnp.copysign(y, x),
    )


@program(X, U, tolerance=4e-6)
def error_functions(x, u):
    return lax.erf(x), lax.erfc(x), lax.erf_inv(u)


@program(U * 4 + 0.1, U[::-1] * 3 + 0.1, tolerance=2e-5)
def gamma_functions(x, y):
    return lax.lgamma(x), lax.digamma(x), lax.polygamma(2.0, x), lax.zeta(1.5 + y, x)


@program(
    np.array([0.3, 1.0, 2.5, 9.0, 30.0, 80.0, 0.0], np.float32),
    np.array([0.2, 1.5, 2.0, 12.0, 31.0, 60.0, 1.0], np.float32),
    tolerance=1e-5,
)
def incomplete_gammas(a, x):
    return (
        lax.igamma(a, x),
        lax.igammac(a, x),
        lax.igamma_grad_a(a, x),
        lax.random_gamma_grad(a, x),
        ops.functions.igamma_grad_x(a, x),
    )


@program(np.linspace(-20, 20, 12, dtype=np.float32), tolerance=4e-6)
def bessel_functions(x):
    return lax.bessel_i0e(x), lax.bessel_i1e(x)


@program(BF, tolerance=2e-2)
def half_precision(x):
    return (
        lax.exp(x),
        x + x,
        x.sum(axis=1),
        wnp.cumsum(x, 0),
        x @ x.T,
        lax.erf(x),
        lax.lgamma(abs(x) + 1),
        x.astype(np.float32),
        x * 1.5,
        x.at[wnp.array([0, 2, 0, 1, 0])].add(x[:1]),
    )


@program(U.astype(np.float64), X.astype(np.float64), tolerance=1e-12, x64=True)
def doubles(u, x):
    return (
        lax.exp(x),
        lax.igamma(u + 1, u),
        lax.nextafter(x, u),
        x @ x.T,
        wnp.cumsum(x),
        wnp.arange(4),
        x.astype(np.int64),
        lax.complex(u, x),
    )


@program(X, Y)
def identities(x, y):
    return (
        lax.stop_gradient(x),
        checkpoint_name(x, "x"),
        lax.optimization_barrier((x, y)),
        lax.copy_p.bind(x),
        wnp.inf,
        np.float32("nan"),
        x[:0],
        lax.add_any(x, y) if hasattr(lax, "add_any") else weft.grad(lambda v: (v * v).sum())(x),
    )


@xla_metadata_call(inlineable="false", level=2)
def called(x):
    return wnp.sin(x) * 2


@program(X, U, np.array([0, 2], np.int32))
def attributes(x, u, i):
    def body(carry, row):
        return set_xla_metadata(carry + row, part="sum"), set_xla_metadata(called(row), part="call")

    with set_xla_metadata(key='a "quoted" value', number=3, ratio=0.5, flag=True):
        total, rows = lax.scan(body, wnp.zeros(4), x)
        chosen = lax.cond(total.sum() > 0, lambda r: r.T, lambda r: -r.T, rows)
        grown = lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2 + 1, u)
        with set_xla_metadata(key=None, number=4):
            others = (
                wnp.argmax(x, 1), wnp.sort(u), wnp.cumsum(x, 0), x[i], x.at[i].add(1.0), lax.erf_inv(u / 4), x > 0, wnp.pad(x, 1),
                lax.conv(x[None, None], wnp.ones((2, 1, 3, 3)), (1, 1), "SAME"), rows @ x.T, wnp.where(x > 0, x, 1), lax.rev(x, (0,)),
                lax.reduce_precision(x, 5, 10), wnp.max(x, 0), lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
                lax.complex(u, u), lax.optimization_barrier((x, u)), lax.dynamic_slice(x, (i[0], 0), (1, 2)), wnp.concatenate([x, x]),
                lax.iota("int32", 3), wnp.fft.fft(u))  # fmt: skip
    return chosen, grown, *others


@program(U)
def attributes_of_calls_of_libraries(u):
    with set_xla_metadata(key="v"):
        return weft.scipy.linalg.cholesky(u @ u.T + wnp.eye(3)), weft.scipy.linalg.solve_triangular(
            u[:, :3] + wnp.eye(3), u
        )


@program(f32(8, 4), specs=(P("a"),))
def attributes_on_devices(x):
    with set_xla_metadata(key="v"):
        inner = weft.shard_map(lambda v: set_xla_metadata(called(lax.psum(v, "a")), part="shard"), mesh=mesh(), in_specs=P("a"),
                               out_specs=P(), check_vma=False)(x)  # fmt: skip
        return inner, lax.with_sharding_constraint(x @ x.T, NamedSharding(mesh(), P("a")))


@program(U, tolerance=2e-5)
def every_function(u):
    """Apply every function that is defined by a formula."""
    ops_ = [f.op for f in functions.every() if f.op is not None]
    operands = lambda op: sum(
        p.kind is not p.KEYWORD_ONLY for p in inspect.signature(op).parameters.values()
    )
    return [op(*[u, u[::-1]][: operands(op)]) for op in ops_]


# --- layout, slices, indexing -----------------------------------------------------------------------------------------


@program(X)
def layouts(x):
    return (
        lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)),
        x.reshape(2, 6),
        x.T,
        lax.rev(x, (0, 1)),
        lax.squeeze(x[:1], (0,)),
        wnp.arange(5),
        lax.broadcasted_iota(np.float32, (2, 3), 1),
        lax.transpose(x.reshape(3, 2, 2), (2, 0, 1)),
        wnp.eye(3),
    )


@program(X, Y)
def slices(x, y):
    return (
        x[1:, ::2],
        lax.pad(x, 0.5, ((1, 2, 1), (-1, 0, 0))),
        wnp.concatenate([x, y], 1),
        wnp.stack([x, y]),
        x[:, 3:1:-1],
    )


@program(X, np.int32(1), np.int32(7))
def dynamic_slices(x, i, j):
    return (
        lax.dynamic_slice(x, (i, j), (2, 2)),
        lax.dynamic_update_slice(x, x[:2, :2] * 2, (i, -i)),
        lax.dynamic_index_in_dim(x, i, 1),
        x[i, j],
        x.at[i].set(0.0),
        lax.dynamic_slice(x, (np.uint8(1), lax.convert_element_type(i, np.uint8)), (1, 1)),
    )


@program(X, np.array([[0, 2], [5, -1]], np.int32))
def gathers(x, i):
    return (
        x[i],
        x[:, i],
        x.at[i].get(mode="fill", fill_value=-1.0),
        x.at[i].get(mode="clip"),
        x[i[0], i[1]],
        wnp.take_along_axis(x, i[:1] % 3, 1),
        weft.vmap(lambda row, k: row[k])(x[:2], i),
        wnp.take(x, i, axis=1, mode="fill"),
        x[i.astype(np.int8)],
    )


@program(X, np.array([0, 2, 5, 2], np.int32), f32(4, 4))
def scatters(x, i, u):
    return (
        x.at[i].add(u),
        x.at[i[:2]].set(u[:2], unique_indices=True),
        x.at[i].mul(u),
        x.at[i].min(u),
        x.at[i].max(u),
        x.at[i].add(u, mode="clip"),
        weft.vmap(lambda row, k: row.at[k].add(1.0))(x, i[:3]),
        x.at[:, i].add(2.0),
        (x > 0).at[i].set(True),
    )


@program(X)
def gradients_of_indexing(x):
    return weft.grad(
        lambda v: (v[wnp.array([0, 2, 2])] ** 2).sum() + wnp.sort(v, 1)[0].sum() + v[1:, ::2].prod()
    )(x)


# --- reductions and sorts ---------------------------------------------------------------------------------------------


@program(X, INTS, BOOLS)
def reductions(x, i, b):
    return (
        x.sum(0),
        x.prod(1),
        x.max(),
        x.min(0),
        b.all(0),
        b.any(),
        lax.reduce_xor(i, (0,)),
        lax.reduce_and(i, (1,)),
        lax.reduce_or(i, (0, 1)),
        wnp.argmax(x, 1),
        wnp.argmin(x, 0),
        i.max(),
        x.mean(),
        x.var(1),
        lax.reduce_xor(b, (0,)),
    )


@program(X, INTS)
def running_reductions(x, i):
    return (
        lax.cumsum(x, 1),
        lax.cumprod(x, 0, reverse=True),
        lax.cummax(x, 1),
        lax.cummin(x, 0),
        lax.cumlogsumexp(x, 1),
        lax.cumsum(i, 1, reverse=True),
        lax.cumlogsumexp(x, 0, reverse=True),
    )


@program(X, Y)
def associative_scans(x, y):
    return lax.associative_scan(
        lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (x, y), axis=1
    ), lax.associative_scan(lax.max, x, reverse=True)


@program(X, INTS[0], Z)
def sorts(x, i, z):
    return (
        wnp.sort(x, 1),
        wnp.argsort(x, 0),
        lax.sort((i, i[::-1]), num_keys=1),
        lax.sort((i % 2, i, i + 1), num_keys=2),
        wnp.sort(z, 0),
        lax.top_k(x, 2),
        lax.top_k(x, 3, axis=0),
        wnp.median(x),
    )


@program(X.reshape(1, 3, 4, 1))
def windows(x):
    fixed = ((1, 2, 2, 1), (1, 1, 2, 1), "SAME")
    return (
        lax.reduce_window(x, 0.0, lax.add, *fixed),
        lax.reduce_window(x, -np.inf, lax.max, *fixed),
        weft.grad(lambda v: lax.reduce_window(v, -np.inf, lax.max, *fixed).sum())(x),
        lax.reduce(x, 1.0, lambda p, q: p * q, (1, 2)),
    )


# --- products ---------------------------------------------------------------------------------------------------------


@program(f32(2, 3, 4), f32(2, 4, 5), INTS[:, :2] % 7, BOOLS)
def products(x, y, i, b):
    return (
        x @ y,
        wnp.einsum("bij,bjk->ki", x, y),
        wnp.tensordot(x, x, ((0, 1), (0, 1))),
        i @ i,
        wnp.dot(x[0, 0], y[0, :, 0]),
        lax.dot_general(b, b, (((1,), (1,)), ((), ()))),
        lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), precision="highest"),
        lax.dot(
            x[0].astype(wnp.bfloat16), y[0].astype(wnp.bfloat16), preferred_element_type=np.float32
        ),
        lax.ragged_dot(x[0], y, wnp.array([1, 2])),
        lax.ragged_dot_general(
            x[0],
            x[1],
            wnp.array([0, 2]),
            lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ()),
        ),
    )


@program(f32(2, 4, 8, 8), f32(6, 2, 3, 3))
def convolutions(x, w):
    return (
        lax.conv_general_dilated(x, w, (2, 1), "SAME", feature_group_count=2),
        lax.conv_general_dilated(
            x, w, (1, 1), ((1, 0), (-1, 2)), rhs_dilation=(2, 1), feature_group_count=2
        ),
        lax.conv_transpose(
            x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)[:, :, :1].repeat(4, 2), (2, 2), "SAME"
        ),
        weft.grad(
            lambda k: lax.conv_general_dilated(x, k, (1, 1), "VALID", feature_group_count=2).sum()
        )(w),
    )


@program(f32(2, 3, 2, 4, 5))
def fourier_transforms(x):
    return (
        wnp.fft.fft(x),
        wnp.fft.rfftn(x, axes=(2, 3, 4)),
        wnp.fft.irfft(wnp.fft.rfft(x)),
        wnp.fft.ifft2(x),
        lax.fft(x, "FFT", (3, 2, 4, 5)),
        lax.fft(x, "RFFT", (3, 2, 4, 5)),
        lax.fft(lax.fft(x, "RFFT", (3, 2, 4, 5)), "IRFFT", (3, 2, 4, 5)),
    )


SPD = (lambda m: m @ m.swapaxes(-1, -2) + 4 * np.eye(4, dtype=np.float32))(f32(2, 4, 4))


@program(SPD, f32(2, 4, 3), Z[:, :3] + 3 * np.eye(3, dtype=np.complex64), tolerance=2e-5)
def triangular_solves(a, b, z):
    lower = wnp.tril(a)
    solve = lax.linalg.triangular_solve
    return (
        lax.linalg.cholesky(a),
        solve(lower, b, left_side=True, lower=True),
        solve(lower, b, left_side=True, lower=True, transpose_a=True),
        solve(a, b.swapaxes(1, 2), unit_diagonal=True),
        solve(z, z, left_side=True, conjugate_a=True),
        solve(z, z, left_side=True, transpose_a=True, conjugate_a=True),
        weft.scipy.linalg.cho_solve((lower, True), b),
    )


@program(SPD)
def factorizations(a):
    return (
        lax.linalg.lu(a),
        lax.linalg.qr(a),
        lax.linalg.eigh(a),
        lax.linalg.svd(a),
        wnp.linalg.eigvals(a),
        wnp.linalg.solve(a, a[0]),
        wnp.linalg.det(a),
        lax.linalg.qr(a, pivoting=True),
    )


@program(SPD, tolerance=2e-5)
def forms_and_reflectors(a):
    packed, taus = lax.linalg.hessenberg(a)
    reflectors = packed[:, 1:, :-1]
    return (
        lax.linalg.schur(a),
        wnp.linalg.qr(a, mode="raw"),
        lax.linalg.tridiagonal(a),
        lax.linalg.householder_product(reflectors, taus),
        lax.linalg.ormqr(reflectors, taus, a[:, 1:]),
        lax.linalg.tridiagonal_solve(a[..., 0] / 9, a[..., 1] + 9, a[..., 2] / 9, a),
    )


@program(np.array([[1, 3, 2, 3]], np.int32))
def pivots(p):
    return lax.linalg.lu_pivots_to_permutation(p, 5)


@program(U, U[::-1])
def incomplete_beta(a, x):
    return weft.value_and_grad(lambda x: lax.betainc(a + 1, 2 * a, x).sum())(x)


# --- random numbers ---------------------------------------------------------------------------------------------------


KEY = weft.random.key(3)


@program(np.uint32(7), tolerance=4e-6)
def random_numbers(seed):
    key = weft.random.key(seed)
    keys = weft.random.split(key, 3)
    return (
        weft.random.bits(key, (5,)),
        weft.random.bits(KEY, (5,)),
        weft.random.normal(keys[0], (2, 3)),
        weft.random.uniform(keys[1], (4,)),
        weft.random.key_data(weft.random.fold_in(keys[2], 9)),
        weft.random.randint(key, (6,), 0, 10),
        weft.random.permutation(keys[0], 7),
        weft.random.bernoulli(key),
    )


@program(np.arange(4, dtype=np.uint32), tolerance=4e-6)
def other_generators(raw):
    key = weft.random.wrap_key_data(raw, impl="rbg")
    blocks = [
        weft.random.wrap_key_data(raw[:n], impl=impl)
        for impl, n in (("philox2x32", 1), ("threefry4x32", 4))
    ]
    return (
        lax.rng_bit_generator(raw, (3, 5)),
        weft.random.normal(key, (4,)),
        weft.random.bits(weft.random.split(key)[1], (2,)),
        *[weft.random.bits(k, (3,)) for k in blocks],
    )


# --- programs in programs ---------------------------------------------------------------------------------------------


@weft.jit
def _inner(x):
    return wnp.sin(x) * 2


@program(X)
def calls(x):
    return (
        _inner(x) + _inner(x + 1),
        weft.jit(lambda v: _inner(v.T), inline=False)(x),
        weft.jit(lambda v: v * 3)(x[0]),
    )


@program(X, np.int32(5), np.int32(-3))
def branches(x, i, j):
    pick = lambda k: lax.switch(k, [lambda v: v + 1, lambda v: v * 2, wnp.cos], x)
    return (
        lax.cond(x.sum() > 0, wnp.sin, lambda v: -v, x),
        pick(i),
        pick(j),
        weft.vmap(lambda p, v: lax.cond(p > 0, lambda: v, lambda: -v))(x[:, 0], x),
    )


@program(f32(5, 3), f32(3))
def scans(xs, c):
    step = lambda c, x: (c + x, (c * x, x.sum()))
    empty = lax.scan(step, c, xs[:0])
    return (
        lax.scan(step, c, xs),
        lax.scan(step, c, xs, reverse=True),
        lax.fori_loop(0, 4, lambda i, v: v * 0.5 + i, c),
        empty,
        lax.map(lambda x: x[::-1] * c, xs),
    )


@program(f32(3), np.int32(10))
def while_loops(x, n):
    collatz = lambda k: lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (wnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
        (k, 0),
    )
    return (
        lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 0.9 + x, s[1] + 3), (x, np.int32(0))),
        collatz(np.int32(7)),
        weft.vmap(collatz)(wnp.arange(1, 6, dtype=np.int32)),
    )


@program(f32(4, 3), f32(3, 3))
def gradients_of_loops(xs, w):
    loss = lambda w: lax.scan(lambda c, x: (wnp.tanh(w @ c + x), c.sum()), xs[0], xs)[0].sum()
    return (
        weft.value_and_grad(loss)(w),
        weft.jvp(loss, (w,), (w,)),
        weft.grad(weft.checkpoint(lambda v: wnp.sin(wnp.sin(v)).sum()))(w),
    )


@weft.custom_jvp
def _cube(x):
    return x * x * x


@_cube.defjvp
def _cube_jvp(primals, tangents):
    return _cube(primals[0]), 3 * primals[0] ** 2 * tangents[0]


@weft.custom_vjp
def _clipped(x):
    return x * 2


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, ct: (wnp.clip(ct, -1, 1) * x,))


@program(X)
def custom_derivatives(x):
    return (
        _cube(x),
        _clipped(x),
        weft.grad(lambda v: (_cube(v) * 3 + _clipped(v)).sum())(x),
        weft.nn.relu(x),
        weft.checkpoint(wnp.sin)(x),
    )


@weft.custom_batching.custom_vmap
def _doubled(x):
    return x + x


@_doubled.def_vmap
def _doubled_batch(size, batched, x):
    return _doubled(x), batched[0]


_kept = weft.custom_vjp(lambda x: wnp.sin(x) * x)
_kept.defvjp(lambda x: (wnp.sin(x) * x, x), lambda x, ct: (ct * x,), optimize_remat=True)


@program(X)
def custom_calls(x):
    scaled = linear_call(lambda r, v: r * v, lambda r, ct: r * ct, 2.0, x)
    solved = lax.custom_linear_solve(lambda v: 4 * v, x, lambda _, b: b / 4, symmetric=True)
    return _doubled(x), scaled, solved, weft.grad(lambda v: _kept(v).sum())(x)


@program(f32(6))
def distributions(x):
    p = weft.nn.sigmoid(x)
    beta = weft.scipy.stats.beta
    logs = lambda p: (beta.logcdf(p, 2.0, 3.0) + beta.logsf(p, 2.0, 3.0)).sum()
    return beta.sf(p, 2.0, 3.0), weft.value_and_grad(logs)(p)


@program(f32(4))
def older_random_bits(x):
    with weft.threefry_partitionable(False):
        return x + weft.random.uniform(weft.random.key(0), (4,))


@program(f32(8, 4), f32(4, 16), f32(16, 4))
def network(x, w1, w2):
    loss = lambda ws: (weft.nn.softmax(weft.nn.gelu(x @ ws[0]) @ ws[1]) ** 2).mean()
    return weft.grad(loss)((w1, w2))


@program(f32(2, 6, 8), f32(8, 24, seed=3), tolerance=4e-6)
def attention(x, w):
    q, k, v = wnp.split(x @ w, 3, axis=-1)
    scores = wnp.where(wnp.tril(wnp.ones((6, 6), bool)), q @ k.swapaxes(1, 2) / 8**0.5, -np.inf)
    return (
        weft.nn.softmax(scores) @ v,
        weft.nn.logsumexp(scores, axis=-1),
        weft.nn.one_hot(wnp.argmax(v, -1), 8),
    )


@program(X, f32(3, 4), donate=(0,))
def donations(x, y):
    return x + y, x.sum()


@program(np.arange(100, dtype=np.float32))
def constants(x):
    return (
        x * np.linspace(0, 1, 100, dtype=np.float32),
        x[:3] + np.array([1, 2.5, np.inf], np.float32),
        np.ones((2, 2), np.int8),
        x.astype(np.complex64)[:2] * np.array([1j, 2], np.complex64),
        wnp.array(BOOLS),
        x[:2].astype(wnp.bfloat16) * np.array([0.1, 3], wnp.bfloat16),
    )


# --- the host ---------------------------------------------------------------------------------------------------------


@program(X)
def callbacks(x):
    shape = weft.ShapeDtypeStruct(x.shape, x.dtype)
    weft.debug.print("{x}", x=x)
    weft.debug.callback(lambda v: None, x)
    weft.debug.inspect_array_sharding(x, callback=lambda s: None)
    return weft.pure_callback(
        np.sin, shape, x, vmap_method="sequential"
    ), weft.experimental.io_callback(np.cos, shape, x)


# --- several devices --------------------------------------------------------------------------------------------------


@program(f32(8, 16), f32(16, 8), specs=(P("a", "b"), P("b")))
def sharded(x, w):
    y = with_layout_constraint(x * 2, Layout((1, 0)))
    y = lax.with_sharding_constraint(y, NamedSharding(mesh(), P(("a", "b"), P.UNCONSTRAINED)))
    return y @ w, weft.jit(wnp.sin, out_shardings=NamedSharding(mesh(), P("b")))(x)


def _positional(fn):
    tiles = PositionalSharding(weft.devices()[:8]).reshape(4, 2)
    return lambda x: fn(lax.with_sharding_constraint(x, tiles))


@program(f32(8, 4))
def tiled(x):
    return _positional(wnp.sin)(x)


def _mapped(fn: Callable, ins: Sequence, outs) -> Callable:
    return lambda *xs: weft.shard_map(
        fn, mesh=mesh(), in_specs=tuple(ins), out_specs=outs, check_vma=False
    )(*xs)


@program(f32(8, 16), specs=(P("a", "b"),))
def reducing_collectives(x):
    def fn(u):
        return (
            lax.psum(u, "a"),
            lax.pmax(u, "b"),
            lax.pmin(u, ("a", "b")),
            lax.psum_scatter(u, "b", scatter_dimension=1, tiled=True),
            lax.psum_scatter(lax.all_gather(u, "a"), "a"),
            lax.pmean(u, ("b", "a")),
        )

    return _mapped(fn, [P("a", "b")], (P(None, "b"), P("a"), P(), P("a", "b"), P("a", "b"), P()))(x)


@program(f32(8, 16), specs=(P("a", "b"),))
def moving_collectives(x):
    def fn(u):
        return (
            lax.all_gather(u, "b", axis=1, tiled=True),
            lax.all_gather(u, ("b", "a")),
            lax.all_to_all(u, "b", 1, 0, tiled=True),
            lax.ppermute(u, "a", [(0, 1), (1, 2), (3, 0)]),
            u + lax.axis_index("a") * 10 + lax.axis_index(("a", "b")),
            collective_rules.own_slice_p.bind(u, axis_name=("b",), axis_size=2, dim=1),
            lax.psum(u, "a", axis_index_groups=[[0, 3], [1, 2]]),
        )

    return _mapped(
        fn,
        [P("a", "b")],
        (P("a"), P(), P(("a", "b")), P("a", "b"), P("a", "b"), P("a", "b"), P("a", "b")),
    )(x)


@program(f32(8, 16), specs=(P("a", "b"),))
def broadcast_collective(x):
    return _mapped(lambda u: lax.pbroadcast(u, "a", 2), [P("a", "b")], P(None, "b"))(x)


@program(f32(8, 16), f32(16, 4), specs=(P("a"), P(None, "b")))
def gradient_in_shard_map(x, w):
    fn = weft.shard_map(
        lambda u, v: lax.psum((wnp.tanh(u @ v) ** 2).sum(), ("a", "b")),
        mesh=mesh(),
        in_specs=(P("a"), P(None, "b")),
        out_specs=P(),
    )
    return (
        weft.grad(fn, argnums=(0, 1))(x, w),
        weft.shard_map(
            lambda u: lax.all_gather_invariant(u, "a", tiled=True),
            mesh=mesh(),
            in_specs=P("a"),
            out_specs=P(),
        )(x),
        weft.shard_map(
            lambda u: u + lax.pvary(wnp.float32(1), "a"),
            mesh=mesh(),
            in_specs=P("a"),
            out_specs=P("a"),
        )(x),
    )


@program(f32(8, 4), specs=(P("a"),))
def ragged_exchange(x):
    def fn(u):
        ones, places = wnp.ones(4, np.int32), wnp.arange(4, dtype=np.int32) % 2
        return lax.ragged_all_to_all(
            u, wnp.zeros((4, 4)), places, ones, lax.axis_index("a") * ones, ones, axis_name="a"
        )

    return _mapped(fn, [P("a")], P("a"))(x)


def _explicit(x):
    with weft.sharding.use_mesh(
        weft.make_mesh((4, 2), ("a", "b"), axis_types=(weft.sharding.AxisType.Explicit,) * 2)
    ):
        y = weft.sharding.reshard(x, P("a", "b"))
        return weft.sharding.auto_axes(wnp.sin, out_sharding=P("a", "b"))(
            y
        ) + weft.sharding.reshard(y, P("a", "b"))


@program(f32(8, 4), specs=(P("a", "b"),))
def explicit_types(x):
    return _explicit(x)
