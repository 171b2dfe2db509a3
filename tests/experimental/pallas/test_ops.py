"""Attention and products of groups under the names that libraries import from `pallas.ops`."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.errors import ShapeError
from weft.experimental.pallas.ops.gpu import attention
from weft.experimental.pallas.ops.tpu import flash_attention as flash
from weft.experimental.pallas.ops.tpu.megablox import gmm, tgmm

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype("f4")


def by_rows(lhs, rhs, sizes, first_group=0):
    out, row = np.zeros((lhs.shape[0], rhs.shape[2]), "f4"), 0
    for group, size in enumerate(sizes):
        if first_group <= group < first_group + rhs.shape[0]:
            out[row : row + size] = lhs[row : row + size] @ rhs[group - first_group]
        row += size
    return out


@pytest.mark.parametrize("sizes", [(3, 0, 5, 2), (1, 2, 3, 1), (0, 0, 0, 0)], ids=str)
def test_rows_meet_the_matrix_of_their_group(sizes):
    lhs, rhs = draw(10, 6), draw(4, 6, 5)
    np.testing.assert_allclose(
        gmm(lhs, rhs, np.array(sizes)), by_rows(lhs, rhs, sizes), rtol=1e-5, atol=1e-5
    )
    transposed = gmm(lhs, rhs.swapaxes(1, 2), np.array(sizes), transpose_rhs=True)
    np.testing.assert_allclose(transposed, by_rows(lhs, rhs, sizes), rtol=1e-5, atol=1e-5)


def test_a_part_of_the_groups():
    lhs, rhs, sizes = draw(10, 6), draw(2, 6, 5), (3, 2, 4, 1)
    want = by_rows(lhs, rhs, sizes, 1)
    out = weft.jit(gmm, static_argnums=(3, 4))(
        lhs, rhs, np.array(sizes), np.float32, (8, 8, 8), np.array([1], "i4")
    )
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    before = draw(10, 5)
    product = gmm(lhs, rhs, np.array(sizes), group_offset=np.array([1]), existing_out=before)
    own = (np.arange(10) >= 3) & (np.arange(10) < 9)
    np.testing.assert_allclose(product, np.where(own[:, None], want, before), rtol=1e-5, atol=1e-5)


def test_a_product_for_each_group():
    lhs, rhs, sizes = draw(6, 10), draw(10, 5), (3, 2, 4, 1)
    ends = np.cumsum(sizes)
    want = np.stack([lhs[:, e - n : e] @ rhs[e - n : e] for e, n in zip(ends, sizes)])
    np.testing.assert_allclose(tgmm(lhs, rhs, np.array(sizes)), want, rtol=1e-5, atol=1e-5)
    some = tgmm(
        lhs,
        rhs,
        np.array(sizes),
        group_offset=np.array([1]),
        num_actual_groups=2,
        existing_out=np.ones((2, 6, 5), "f4"),
    )
    np.testing.assert_allclose(some, want[1:3] + 1, rtol=1e-5, atol=1e-5)


def test_the_derivative_of_products_of_groups():
    lhs, rhs, sizes, direction = draw(10, 6), draw(4, 6, 5), np.array((3, 0, 5, 2)), draw(4, 6, 5)
    loss = lambda rhs: wnp.sum(wnp.sin(gmm(lhs, rhs, sizes)))
    slope = np.vdot(weft.grad(loss)(rhs), direction)
    assert slope == pytest.approx(
        (loss(rhs + 1e-2 * direction) - loss(rhs - 1e-2 * direction)) / 2e-2, rel=1e-2
    )


def test_bad_shapes_are_refused():
    with pytest.raises(ShapeError, match="lhs has two dims"):
        gmm(draw(2, 3, 4), draw(1, 3, 4), np.array([2]))
    with pytest.raises(ShapeError, match="size for each group"):
        gmm(draw(2, 3), draw(2, 3, 4), np.array([2]))
    with pytest.raises(ShapeError, match="existing_out"):
        gmm(draw(2, 3), draw(1, 3, 4), np.array([2]), existing_out=draw(3, 4))


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("segments", [False, True], ids=["one", "segments"])
def test_attention(causal, segments):
    q, k, v, ab = draw(2, 3, 8, 4), draw(2, 3, 8, 4), draw(2, 3, 8, 4), draw(2, 3, 8, 8)
    ids = np.sort(RNG.integers(0, 3, (2, 8)))
    segment_ids = flash.SegmentIds(ids, ids) if segments else None
    scores = (np.einsum("bhtd,bhsd->bhts", q, k) + ab) * 0.5
    allowed = np.tril(np.ones((8, 8), bool)) if causal else np.ones((8, 8), bool)
    if segments:
        allowed = allowed & (ids[:, None, :, None] == ids[:, None, None, :])
    weights = np.where(allowed, np.exp(scores), 0)
    want = np.einsum("bhts,bhsd->bhtd", weights / weights.sum(-1, keepdims=True), v)
    for function in (flash.flash_attention, flash.mha_reference):
        got = function(q, k, v, ab, segment_ids, causal=causal, sm_scale=0.5)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    last = [x.swapaxes(1, 2) for x in (q, k, v)]
    out, total = attention.mha(*last, ids if segments else None, 0.5, causal, return_residuals=True)
    weights = np.where(allowed, np.exp(np.einsum("bhtd,bhsd->bhts", q, k) * 0.5), 0)
    np.testing.assert_allclose(total, np.log(weights.sum(-1)), rtol=1e-4, atol=1e-5)
    want = np.einsum("bhts,bhsd->bthd", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


def test_the_names_are_found_as_in_jax():
    code = (
        "from jax.experimental.pallas.ops.tpu.megablox import gmm\n"
        "from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, SegmentIds, flash_attention\n"
        "from jax.experimental.pallas.ops.gpu import attention\nassert attention.mha and gmm and flash_attention and SegmentIds\n"
        "assert BlockSizes.get_default(1, 1, 128, 128, 64).has_backward_blocks"
    )
    subprocess.run(
        [sys.executable, "-c", "import weft.compat; weft.compat.install_as_jax()\n" + code],
        check=True,
    )
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("weft.experimental.pallas.ops.tpu.nothing")
