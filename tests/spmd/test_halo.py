"""Operations on neighboring elements of a split dim: devices exchange edges, and values equal the unsplit values."""

import itertools

import numpy as np
import pytest

from tests.spmd.harness import P, check, make, random
from weft._engine.core.trace import UndefPrimal, typeof
from weft._engine.ops import arithmetic, convolution, functions, reduce, slicing
from weft._engine.partition.rules.halo import Window, rows_sent, transfers_of
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.transforms.transpose import backward_pass

LINE = make(x=8)
GRID = make(a=4, b=2)


def gradients(fun, args):
    """Return the gradients of the sum of squares of `fun(*args)`."""
    loss = lambda *xs: [
        reduce.reduce_sum(arithmetic.mul(y, y), tuple(range(typeof(y).ndim))) for y in [fun(*xs)]
    ]
    _, program, _ = linearize_flat(loss, args)
    return backward_pass(
        program, [UndefPrimal(v.aval) for v in program.invars], [np.ones((), np.float32)]
    )


#: name -> (strides, padding, lhs_dilation, rhs_dilation)
CONVOLUTIONS = {
    "same": ((1, 1), "SAME", None, None),
    "valid": ((1, 1), "VALID", None, None),
    "full": ((1, 1), [(2, 2), (2, 2)], None, None),
    "strides": ((2, 2), "SAME", None, None),
    "strides, valid": ((2, 3), "VALID", None, None),
    "atrous": ((1, 1), [(2, 2), (2, 2)], None, (2, 2)),
    "transposed": ((1, 1), [(1, 2), (1, 2)], (2, 2), None),
    "strides and dilations": ((2, 1), [(1, 3), (0, 4)], (1, 3), (2, 1)),
    "cut": ((1, 1), [(-1, -1), (0, -2)], None, None),
    "more padding than image": ((1, 1), [(20, 9), (0, 0)], None, None),
}


def convolve(name, groups=1, layout=("NCHW", "OIHW", "NCHW")):
    strides, padding, spread, apart = CONVOLUTIONS[name]
    return lambda x, w: convolution.conv_general_dilated(
        x, w, strides, padding, spread, apart, layout, groups
    )


@pytest.mark.parametrize("height", [16, 13])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, height):
    fun = convolve(name)
    args = [random(2, 4, height, 8), random(4, 4, 3, 3, seed=1)]
    rows, both = (
        (P(None, None, "a"), P(None, None, "a", "b"))
        if height == 16
        else (P(), P(None, None, None, "b"))
    )
    for spec in (rows, both):
        check(lambda *xs: [fun(*xs)], args, GRID, [spec, P()], tolerance=1e-4)
        check(lambda *xs: gradients(fun, xs), args, GRID, [spec, P()], tolerance=1e-3)


@pytest.mark.parametrize(
    "kernel",
    [
        P(None, None, "a"),
        P(None, None, "b"),
        P(None, None, None, "a"),
        P("b", "a"),
        P(None, None, "b", "a"),
    ],
)
def test_convolutions_whose_kernels_are_split(kernel):
    args = [random(2, 4, 16, 8), random(4, 4, 4, 4, seed=1)]
    for spec in (P(None, None, "a"), P(None, None, "a", "b"), P("b", None, None, "a")):
        for name in ("valid", "strides", "strides and dilations"):
            check(
                lambda *xs, name=name: [convolve(name)(*xs)],
                args,
                GRID,
                [spec, kernel],
                tolerance=1e-4,
            )


@pytest.mark.parametrize(
    "kernel", [P(None, None, "a"), P(None, None, None, "a"), P("b", None, "a")]
)
def test_pointwise_convolutions_whose_kernels_are_split(kernel):
    """An axis of one device splits a kernel dim of size 1; the rows of the image stay split."""
    mesh, fun = make(a=1, b=4), convolve("same")
    args = [random(2, 4, 16, 8), random(4, 4, 1, 1, seed=1)]
    for rows in (P(None, None, "b"), P("a", None, "b"), P(None, None, None, "b")):
        check(lambda *xs: [fun(*xs)], args, mesh, [rows, kernel], tolerance=1e-4)
        check(lambda *xs: gradients(fun, xs), args, mesh, [rows, kernel], tolerance=1e-3)


@pytest.mark.parametrize(
    "layout", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NHWC"), ("CNHW", "IOHW", "HWNC")]
)
def test_convolutions_whose_dims_stand_elsewhere(layout):
    fun = convolve("same", 2, layout)
    shapes = [
        [{"N": 2, "C": 4, "H": 16, "W": 8}[c] for c in layout[0]],
        [{"O": 6, "I": 2, "H": 3, "W": 5}[c] for c in layout[1]],
    ]
    args = [random(*shapes[0]), random(*shapes[1], seed=1)]
    spec = P(*("a" if c == "H" else "b" if c == "C" else None for c in layout[0]))
    check(lambda *xs: [fun(*xs)], args, GRID, [spec, P()], tolerance=1e-4)
    check(lambda *xs: gradients(fun, xs), args, GRID, [spec, P()], tolerance=1e-3)


@pytest.mark.parametrize(
    "name, rows", [("same", [1, 1]), ("strides", [1]), ("atrous", [2, 2]), ("transposed", [1])]
)
def test_convolutions_send_edges(name, rows):
    result = check(
        lambda *xs: [convolve(name)(*xs)],
        [random(2, 3, 64, 8), random(3, 3, 3, 3)],
        LINE,
        [P(None, None, "x"), P()],
        tolerance=1e-4,
    )
    assert set(result.counts) == {"ppermute"} and [r.shape[2] for r in result.records] == rows
    assert result.out_specs[0] == P(None, None, "x").dims(4)


def test_gradient_of_a_convolution_sends_edges_and_sums_kernels():
    args = [random(2, 3, 64, 8), random(3, 3, 3, 3)]
    result = check(
        lambda *xs: gradients(convolve("same"), xs),
        args,
        LINE,
        [P(None, None, "x"), P()],
        tolerance=1e-3,
    )
    assert set(result.counts) == {"ppermute", "psum"} and result.counts["psum"] == 1
    assert all(r.shape[2] == 1 for r in result.records if r.kind == "ppermute")
    assert result.out_specs[0] == P(None, None, "x").dims(4)


@pytest.mark.parametrize("parts", [(16, 16), (24, 8), (1, 63), (3, 30, 31), (8, 8, 8)])
def test_concatenations_along_a_split_dim(parts):
    ends = np.cumsum((0, *parts)).tolist()
    join = lambda x: [
        slicing.concatenate(
            [functions.sin(slicing.slice(x, (a, 0), (b, 3))) for a, b in itertools.pairwise(ends)][
                ::-1
            ],
            0,
        )
    ]
    for spec in (P("x"), P()):
        check(join, [random(64, 3)], LINE, [spec], [P("x")] if sum(parts) % 8 == 0 else None)
        check(lambda x: gradients(lambda y: join(y)[0], (x,)), [random(64, 3)], LINE, [spec])


@pytest.mark.parametrize(
    "config",
    [
        (1, 1, 0),
        (3, 5, 0),
        (-2, 2, 0),
        (9, -1, 0),
        (-20, 30, 0),
        (0, 64, 0),
        (1, 0, 1),
        (0, 2, 2),
        (-3, 1, 1),
    ],
)
def test_pads_along_a_split_dim(config):
    pad = lambda x, v: [slicing.pad(x, v, [config, (0, 0, 0)])]
    for shape, spec in [((64, 3), P("x")), ((64, 3), P()), ((48, 3), P("x"))]:
        check(
            lambda x, v: [functions.sin(y) for y in pad(x, v)],
            [random(*shape), np.float32(2)],
            LINE,
            [spec, P()],
        )
        check(
            lambda x: gradients(lambda y: pad(y, np.float32(1))[0], (x,)),
            [random(*shape)],
            LINE,
            [spec],
        )


def test_a_padded_value_of_even_size_sends_edges():
    result = check(
        lambda x: [slicing.pad(x, np.float32(0), [(1, -1, 0), (0, 0, 0)])],
        [random(64, 3)],
        LINE,
        [P("x")],
    )
    assert [(r.kind, r.shape) for r in result.records] == [("ppermute", (1, 3))]


@pytest.mark.parametrize(
    "window, n, size",
    [
        (Window(-1, 4, 6), 4, 16),
        (Window(2, 4, 4), 4, 15),
        (Window(0, 3, 3), 5, 13),
        (Window(11, -4, 4), 4, 15),
        (Window(5, 4, 4, ring=True), 4, 16),
        (Window(-7, 5, 5), 4, 16),
        (Window(-40, 5, 5), 4, 16),
    ],
)
def test_exchanges_give_every_device_its_rows(window, n, size):
    local = -(-size // n)
    home, rounds = transfers_of(window, n, size)
    for pieces in rounds:
        assert len({p.source for p in pieces}) == len({p.target for p in pieces}) == len(pieces)
    got = {p: {} for p in range(n)}
    for piece in [*home, *(p for r in rounds for p in r)]:
        for k in range(piece.count):
            got[piece.target][piece.place + k] = piece.source * local + piece.at + k
    for p in range(n):
        rows = {i: window.of(p) + i for i in range(window.span)}
        expected = {
            i: (r % (n * local) if window.ring else r)
            for i, r in rows.items()
            if window.ring or 0 <= r < size
        }
        assert got[p] == expected
    assert sum(rows_sent(window, n, size)) <= n * window.span
