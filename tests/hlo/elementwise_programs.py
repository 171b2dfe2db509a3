"""Programs of elementwise operations and of attributes."""

from __future__ import annotations

import inspect

import numpy as np

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo import program_list
from tests.hlo.program_list import BF, BOOLS, INTS, OTHER, SPECIALS, WORDS, U, X, Y, Z, f32, program
from weft._engine import ops
from weft._engine.api.checkpointing import checkpoint_name
from weft._engine.ops import functions
from weft.experimental.xla_metadata import set_xla_metadata, xla_metadata_call
from weft.sharding import NamedSharding, PartitionSpec as P


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
        inner = weft.shard_map(lambda v: set_xla_metadata(called(lax.psum(v, "a")), part="shard"), mesh=program_list.mesh(), in_specs=P("a"),
                               out_specs=P(), check_vma=False)(x)  # fmt: skip
        return inner, lax.with_sharding_constraint(
            x @ x.T, NamedSharding(program_list.mesh(), P("a"))
        )


@program(U, tolerance=2e-5)
def every_function(u):
    """Apply every function that is defined by a formula."""
    ops_ = [f.op for f in functions.every() if f.op is not None]
    operands = lambda op: sum(
        p.kind is not p.KEYWORD_ONLY for p in inspect.signature(op).parameters.values()
    )
    return [op(*[u, u[::-1]][: operands(op)]) for op in ops_]
