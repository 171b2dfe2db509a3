"""Convolutions and products with empty dims, split along any dim: every layout gives what one device gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from tests.spmd.harness import check, make
from weft.lax import conv_general_dilated, dot_general, ragged_dot, scan
from weft.sharding import PartitionSpec as P

NUMBERS = ("NHC", "HIO", "NHC")
IMAGES = [P(), P("x"), P(None, "x"), P(None, None, "x")]
KERNELS = [P(), P("x"), P(None, "x"), P(None, None, "x"), P("x", "y"), P("y", None, "x")]


def numbers(*shape):
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


def conv(**params):
    settings = {"window_strides": (1,), "padding": [(0, 0)], "dimension_numbers": NUMBERS} | params
    return lambda x, w: [conv_general_dilated(x, w, **settings)]


def fits(shape, spec, sizes):
    return all(
        n % np.prod([sizes[a] for a in axes], dtype=int) == 0
        for n, axes in zip(shape, spec.dims(len(shape)))
    )


def check_layouts(fun, shapes, images=IMAGES, kernels=KERNELS, mesh=None):
    mesh = mesh or make(x=4, y=2)
    tried = 0
    for specs in itertools.product(images, kernels):
        if all(fits(shape, spec, mesh.shape) for shape, spec in zip(shapes, specs)):
            check(fun, [numbers(*shape) for shape in shapes], mesh, list(specs))
            tried += 1
    assert tried > 3


#: sizes of the image's and of the kernel's spatial dim; the result has no places but where `places` are counted
WINDOWS = {
    "kernel longer than the image": (conv(), 2, 4),
    "stride longer than the result": (conv(window_strides=(3,)), 3, 4),
    "negative padding": (conv(padding=[(-2, 0)]), 4, 4),
    "image without rows": (conv(), 0, 4),
    "spread kernel": (conv(rhs_dilation=(3,)), 8, 4),
    "spread image": (conv(padding=[(-1, 0)], lhs_dilation=(2,)), 2, 4),
    "padding around nothing": (conv(padding=[(3, 4)]), 0, 4),
    "kernel without taps": (conv(padding=[(0, 3)]), 4, 0),
    "one place": (conv(), 4, 4),
    "places": (conv(), 8, 4),
    "places, stride, spread": (
        conv(window_strides=(2,), padding=[(1, 3)], lhs_dilation=(2,), rhs_dilation=(3,)),
        8,
        4,
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_kernel_split_along_a_spatial_dim(name):
    fun, rows, taps = WINDOWS[name]
    check_layouts(fun, [(4, rows, 4), (taps, 4, 4)])


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_of_split_kernels(name):
    fun, rows, taps = WINDOWS[name]
    gradient = lambda x, w: weft.grad(lambda x, w: (fun(x, w)[0] ** 2).sum(), (0, 1))(x, w)
    check_layouts(
        lambda x, w: list(gradient(x, w)),
        [(4, rows, 4), (taps, 4, 4)],
        kernels=[P("x"), P("y", "x"), P(None, "x")],
    )


MAPPED = {"both": (0, 0), "image": (0, None), "kernel": (None, 0)}


@pytest.mark.parametrize("axes", MAPPED)
@pytest.mark.parametrize("rows", [0, 2, 5])
def test_mapped_convolutions_of_split_kernels(axes, rows):
    mapped = MAPPED[axes]
    fun = weft.vmap(lambda x, w: conv(window_strides=(2,), padding=[(0, 1)])(x, w)[0], mapped)
    shapes = [(4, 4, rows, 4)[axes == "kernel" :], (4, 4, 4, 4)[axes == "image" :]]
    specs = [P(), P("x"), P(None, "x"), P(None, None, "y"), P("y", "x")]
    check_layouts(lambda x, w: [fun(x, w)], shapes, specs, specs)


EMPTY = {
    "batch": (0, 8, 4, 4, 4),
    "features": (4, 8, 0, 4, 4),
    "output features": (4, 8, 4, 4, 0),
    "image": (4, 0, 4, 4, 4),
    "kernel": (4, 8, 4, 0, 4),
}


@pytest.mark.parametrize("dim", EMPTY)
def test_any_dim_of_a_convolution_may_be_empty(dim):
    batch, rows, features, taps, outs = EMPTY[dim]
    check_layouts(conv(padding=[(2, 3)]), [(batch, rows, features), (taps, features, outs)])


@pytest.mark.parametrize(
    "shapes", [((0, 4), (4, 4)), ((4, 0), (0, 4)), ((4, 4), (4, 0))], ids=["rows", "sum", "columns"]
)
def test_products_with_an_empty_dim(shapes):
    specs = [P(), P("x"), P(None, "x"), P("x", "y")]
    check_layouts(lambda x, y: [dot_general(x, y, (((1,), (0,)), ((), ())))], shapes, specs, specs)


def test_grouped_products_with_an_empty_dim():
    fun = lambda x, y: [ragged_dot(x, y, np.array([1, 3], np.int32))]
    specs = [P(), P("x"), P(None, "x")]
    for shapes in (((4, 0), (2, 0, 4)), ((4, 4), (2, 4, 0))):
        check_layouts(fun, shapes, specs, [P(), P(None, "x"), P(None, None, "x")])


def test_scanned_convolutions_without_a_result():
    fun = lambda x, w: [scan(lambda carry, row: (carry, conv()(row, w)[0]), 0, x)[1]]
    check_layouts(fun, [(2, 4, 2, 4), (4, 4, 4)], [P(), P(None, "x"), P(None, None, "y")])
