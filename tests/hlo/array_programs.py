"""Programs of layouts, slices, indexing, reductions, sorts, products, factorizations and random numbers."""

from __future__ import annotations

import numpy as np

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo.program_list import BOOLS, INTS, KEY, SPD, U, X, Y, Z, f32, program

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
