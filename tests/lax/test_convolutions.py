"""Convolutions with a kernel for each place against loops; shapes of convolutions against the convolutions."""

import itertools

import numpy as np
import pytest

import weft
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec
from weft.test_util import check_grads

RANDOM = np.random.default_rng(5)
NUMBERS = ("NHWC", "WHIO", "NCHW")
LHS, RHS = [
    RANDOM.normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 3), (2, 4, 3 * 2 * 3, 4))
]


def local(lhs, rhs):
    """Windows of 3 rows and 2 columns at strides 1 and 2; the kernel's dims are columns, rows."""
    return lax.conv_general_dilated_local(
        lhs, rhs, (2, 1), "VALID", (2, 3), dimension_numbers=NUMBERS
    )


def by_place(lhs, rhs):
    out = np.zeros((2, 4, 4, 2), np.float32)
    for row, column in itertools.product(range(4), range(2)):
        window = lhs[:, row : row + 3, 2 * column : 2 * column + 2]  # N, rows, columns, C
        out[:, :, row, column] = window.transpose(0, 3, 2, 1).reshape(2, -1) @ rhs[column, row]
    return out


def test_each_place_has_its_kernel():
    expected = by_place(LHS, RHS)
    np.testing.assert_allclose(local(LHS, RHS), expected, rtol=1e-5, atol=1e-5)
    mesh = weft.make_mesh((2, 2), ("i", "j"))
    spread = [
        weft.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
        for x, spec in ((LHS, "i"), (RHS, (None, "i", None, "j")))
    ]
    np.testing.assert_allclose(weft.jit(local)(*spread), expected, rtol=1e-5, atol=1e-5)
    mapped = weft.vmap(local, (0, None))(np.stack([LHS, LHS[::-1]]), RHS)
    np.testing.assert_allclose(
        mapped, np.stack([expected, by_place(LHS[::-1], RHS)]), rtol=1e-5, atol=1e-5
    )
    check_grads(local, (LHS, RHS), 1, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("padding", ["SAME", [(1, 0), (2, 1)]])
def test_equal_kernels_are_a_convolution(padding):
    kernel = RANDOM.normal(size=(4, 3, 2, 3)).astype(np.float32)
    options = {
        "window_strides": (1, 2),
        "padding": padding,
        "lhs_dilation": (2, 1),
        "rhs_dilation": (1, 2),
        "precision": "highest",
    }
    image = LHS.transpose(0, 3, 1, 2)
    expected = lax.conv_general_dilated(image, kernel, **options)
    everywhere = np.broadcast_to(kernel.reshape(4, -1, 1, 1), (4, 18, *expected.shape[2:]))
    result = lax.conv_general_dilated_local(image, everywhere, filter_shape=(2, 3), **options)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "rhs, message",
    [
        (RHS[:1], "spatial dims of the result"),
        (RHS[:, :, :9], "18 input features"),
        (RHS[0], "same number"),
    ],
)
def test_kernels_that_do_not_fit(rhs, message):
    with pytest.raises(TypeError, match=message):
        local(LHS, rhs)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (0, 3)]])
def test_shapes_are_those_of_convolutions(padding):
    kernel, names, strides = np.zeros((3, 2, 3, 4), np.float32), ("NHWC", "HWIO", "NCWH"), (2, 3)
    shape = lax.conv_general_shape_tuple(LHS.shape, kernel.shape, strides, padding, names)
    assert (
        shape
        == lax.conv_general_dilated(LHS, kernel, strides, padding, dimension_numbers=names).shape
    )
    shape = lax.conv_transpose_shape_tuple(LHS.shape, kernel.shape, strides, padding, names)
    assert shape == lax.conv_transpose(LHS, kernel, strides, padding, dimension_numbers=names).shape
    lhs, rhs, out = lax.conv_general_permutations(names)
    image, kernel = LHS.transpose(lhs), kernel.transpose(rhs)
    shape = lax.conv_shape_tuple(image.shape, kernel.shape, strides, padding)
    assert shape == lax.conv_general_dilated(image, kernel, strides, padding).shape
    assert out == (0, 1, 3, 2)
    grouped = lax.conv_general_dilated(
        image[:, :1], kernel[:, :1], strides, padding, batch_group_count=2
    )
    assert lax.conv_shape_tuple(image.shape, kernel.shape, strides, padding, 2) == grouped.shape


def test_dimension_numbers_that_do_not_agree():
    with pytest.raises(TypeError, match="three strings"):
        lax.conv_general_permutations(("NHC", "HIO", "NWC"))
    with pytest.raises(TypeError, match="spatial dims"):
        lax.conv_shape_tuple((1, 3, 8, 8), (4, 3, 3, 3), (1,), "VALID")
