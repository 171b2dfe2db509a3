"""Convolutions and factorizations of sharded arrays give what whole arrays give."""

import numpy as np
import pytest

import weft
import weft.numpy
from weft._engine.ops import convolution, linalg
from weft._engine.util.config import enable_x64
from weft._engine.util.tree import tree_leaves
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

rng = np.random.default_rng(0)
IMAGE = rng.standard_normal((8, 4, 6, 6)).astype(np.float32)
KERNEL = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
MATRICES = (IMAGE[:, :, 0] @ IMAGE[:, :, 0].transpose(0, 2, 1) + 4 * np.eye(4)).astype(np.float32)


def conv(image, kernel):
    return convolution.conv_general_dilated(image, kernel, (1, 1), "SAME")


def grouped(image, kernel):
    return convolution.conv_general_dilated(
        image, kernel[:, :2], (1, 1), "SAME", feature_group_count=2
    )


def solve(a, b):
    return linalg.triangular_solve(a, b, left_side=True, lower=True)


CASES = {
    "conv, batch split": (conv, (IMAGE, KERNEL), [P("x"), P()]),
    "conv, batch and output features split": (conv, (IMAGE, KERNEL), [P("x"), P("y")]),
    "conv, input features split": (conv, (IMAGE, KERNEL), [P("x", "y"), P(None, "y")]),
    "conv, images split": (conv, (IMAGE, KERNEL), [P(None, None, "y"), P()]),
    "conv in groups, groups split": (grouped, (IMAGE, KERNEL), [P("x", "y"), P("y")]),
    "gradient of conv": (
        weft.grad(lambda a, w: (conv(a, w) ** 2).sum(), (0, 1)),
        (IMAGE, KERNEL),
        [P("x"), P("y")],
    ),
    "cholesky": (linalg.cholesky, (MATRICES,), [P("x")]),
    "qr": (linalg.qr, (MATRICES,), [P("x")]),
    "lu, rows split": (linalg.lu, (MATRICES,), [P("x", "y")]),
    "eigh": (linalg.eigh, (MATRICES,), [P(("x", "y"))]),
    "svd": (linalg.svd, (MATRICES,), [P("y")]),
    "triangular_solve": (solve, (MATRICES, MATRICES), [P("x"), P("x", None, "y")]),
}


@pytest.mark.parametrize("name", CASES)
def test_sharded_is_whole(name):
    fun, args, specs = CASES[name]
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    wants = tree_leaves(weft.jit(fun)(*args))
    gots = tree_leaves(
        weft.jit(fun)(*[weft.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs)])
    )
    assert len(gots) == len(wants)
    for got, want in zip(gots, wants):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-2, atol=1e-2)


def test_a_batch_of_factorizations_moves_nothing():
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    x = weft.device_put(MATRICES, NamedSharding(mesh, P("x")))
    for fun in (linalg.cholesky, linalg.qr, linalg.eigh):
        for out in tree_leaves(weft.jit(fun)(x)):
            assert out.sharding.spec[0] == "x"


def test_a_place_left_behind_does_not_cut_a_dim_under_its_groups():
    """The kernel's gradient of a grouped convolution: the image's features are groups first, and these stay whole."""
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    image, ct = IMAGE.reshape(4, 8, 36)[..., :8], IMAGE.reshape(4, 16, 18)[..., :4]
    apply = lambda x, w: convolution.conv_general_dilated(
        x, w, (1,), "VALID", feature_group_count=2
    )
    gradient = lambda x, ct: weft.vjp(lambda w: apply(x, w), weft.numpy.zeros((16, 4, 5)))[1](ct)[0]
    sharded = weft.jit(gradient, out_shardings=NamedSharding(mesh, P(None, "x")))
    got = sharded(weft.device_put(image, NamedSharding(mesh, P(None, None, "x"))), ct)
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(weft.jit(gradient)(image, ct)), rtol=1e-4, atol=1e-4
    )


def test_next_rows_are_not_sought_along_dims_within_rows():
    """A spread image in doubles, whose features and places are split."""
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    image, kernel = rng.standard_normal((8, 4, 16, 24)), rng.standard_normal((16, 4, 5, 5))
    apply = lambda x, w: convolution.conv_general_dilated(
        x, w, (1, 1), ((0, 0), (2, 2)), lhs_dilation=(2, 2)
    )
    with enable_x64(True):
        arrays = [
            weft.device_put(a, NamedSharding(mesh, s))
            for a, s in ((image, P(None, "y", None, "x")), (kernel, P("x", "y")))
        ]
        np.testing.assert_allclose(
            np.asarray(weft.jit(apply)(*arrays)),
            np.asarray(apply(image, kernel)),
            rtol=1e-9,
            atol=1e-9,
        )


@pytest.mark.parametrize(
    "rows, strides, spread, padding",
    [(2, 3, 2, (0, 3)), (4, 5, 1, (0, 6)), (4, 8, 2, (9, 0)), (2, 2, 3, (5, 0))],
)
def test_places_at_which_a_device_needs_no_row(rows, strides, spread, padding):
    """The last or the first windows are inside the padding; their device must not use its own rows."""
    mesh = Mesh(np.array(weft.devices()[:2]), ("x",))
    image, kernel = (
        rng.standard_normal((1, rows, 1)).astype(np.float32),
        rng.standard_normal((2, 1, 3)).astype(np.float32),
    )
    apply = lambda x, w: convolution.conv_general_dilated(
        x, w, (strides,), (padding,), (spread,), dimension_numbers=("NWC", "WIO", "NWC")
    )
    for spec in (P(None, "x"), P()):
        sharded = weft.jit(apply, out_shardings=NamedSharding(mesh, P(None, "x")))
        got = sharded(weft.device_put(image, NamedSharding(mesh, spec)), kernel)
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(apply(image, kernel)), rtol=1e-4, atol=1e-4
        )
