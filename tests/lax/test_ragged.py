"""Products of matrices with ragged groups against a loop over groups; algorithms of products by their dtypes; small compositions."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RANDOM = np.random.default_rng(3)
LHS, RHS, SIZES = [RANDOM.normal(size=shape).astype(np.float32) for shape in ((8, 3), (4, 3, 5))] + [np.array([2, 0, 3, 1], np.int32)]
GROUP = np.repeat(np.arange(4), SIZES)


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def by_group(lhs=LHS, rhs=RHS, sizes=SIZES):
    out = np.zeros((lhs.shape[0], rhs.shape[-1]), np.float32)
    for row, group in enumerate(np.repeat(np.arange(len(sizes)), sizes)):
        out[row] = lhs[row] @ rhs[group]
    return out


def test_each_group_of_rows_meets_its_matrix():
    close(weft.jit(lax.ragged_dot)(LHS, RHS, SIZES), by_group())
    mesh = weft.make_mesh((2, 2), ("i", "j"))
    spread = [weft.device_put(x, NamedSharding(mesh, PartitionSpec(*spec))) for x, spec in ((LHS, "i"), (RHS, (None, None, None)))]
    close(weft.jit(lax.ragged_dot)(*spread, SIZES), by_group())
    sizes = np.stack([SIZES, SIZES[::-1]])
    mapped = weft.vmap(lax.ragged_dot, (None, 0, 0))(LHS, np.stack([RHS, 2 * RHS]), sizes)
    close(mapped, np.stack([by_group(), by_group(LHS, 2 * RHS, SIZES[::-1])]))
    check_grads(lambda x, y: lax.ragged_dot(x, y, SIZES), (LHS, RHS), 1)


def test_contracted_groups_and_batches():
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    other = RANDOM.normal(size=(8, 2)).astype(np.float32)
    expected = [sum((np.outer(LHS[k], other[k]) for k in np.flatnonzero(GROUP == g)), np.zeros((3, 2))) for g in range(4)]
    close(lax.ragged_dot_general(LHS, other, SIZES, numbers), expected)
    batched = lax.RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (1,))), (1,), (0,))
    lhs, rhs, sizes = np.stack([LHS, -LHS]), np.stack([RHS, 3 * RHS], 1), np.stack([SIZES, SIZES[::-1]])
    expected = np.stack([by_group(), by_group(-LHS, 3 * RHS, SIZES[::-1])])
    close(lax.ragged_dot_general(lhs, rhs, sizes, batched), expected)


@pytest.mark.parametrize("sizes, ragged, group, message", [
    (SIZES[:2], (0,), (0,), "group dimension size"), (SIZES, (0, 1), (0,), "exactly one lhs ragged"), (SIZES, (0,), (1,), "distinct"),
    (SIZES, (1,), (0,), "zero group dimensions"), (SIZES[None], (0,), (0,), "expected group_sizes to have shape"),
    (SIZES, (2,), (0,), "number of axes")])
def test_shapes_that_do_not_fit(sizes, ragged, group, message):
    with pytest.raises(TypeError, match=message):
        lax.ragged_dot_general(LHS, RHS, sizes, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), ragged, group))


def test_algorithms_of_products():
    x, presets = RANDOM.normal(size=(4, 4)).astype(np.float32), lax.DotAlgorithmPreset
    narrow = np.asarray(lax.convert_element_type(x, "bfloat16"), np.float32)
    close(lax.dot(x, x, precision=presets.BF16_BF16_F32), narrow @ narrow)
    close(lax.dot(x, x, precision="F32_F32_F32"), x @ x)
    close(lax.dot(x, x, precision=lax.DotAlgorithm(np.float16, np.float16, np.float32)), x.astype(np.float16).astype(np.float32) @
          x.astype(np.float16).astype(np.float32))
    assert lax.dot(x.astype(np.float16), x.astype(np.float16), precision=presets.F32_F32_F32).dtype == np.float16
    assert lax.dot(x, x, precision=presets.F16_F16_F16, preferred_element_type=np.float16).dtype == np.float16
    with pytest.raises(ValueError, match="The dot algorithm"):
        lax.dot(x, x, precision=presets.ANY_F8_ANY_F8_F32)


def test_small_compositions():
    x = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(lax.index_take(x, (np.array([0, 1]), np.array([2, 3])), (0, 2)), x[[0, 1], :, [2, 3]])
    assert lax.broadcast_like(x[0, 0], x).shape == x.shape
    with pytest.raises(TypeError, match="broadcast_like"):
        lax.broadcast_like(x, x[0])
    for dtype in (np.int8, np.uint32, np.int32):
        limits = np.iinfo(dtype)
        a, b = RANDOM.integers(limits.min, limits.max, (2, 50), dtype, endpoint=True)
        a[:2], b[:2] = limits.min, (limits.min, limits.max)
        exact = [int(i) * int(j) >> 8 * a.itemsize for i, j in zip(a, b)]
        assert lax.mulhi(a, b).tolist() == exact
    cube = lax.composite(lambda x, *, power: x**power, "test.cube")
    assert float(weft.grad(lambda x: cube(x, power=3))(2.0)) == 12.0
    assert "test.cube" in weft.jit(lambda x: cube(x, power=3)).lower(x).as_text()
    with pytest.raises(TypeError, match="attribute power"):
        cube(x, power=wnp.ones(2))
    loop = weft.jit(lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x, unroll=0)[0])
    assert float(loop(np.arange(4.0, dtype=np.float32))) == 6.0
