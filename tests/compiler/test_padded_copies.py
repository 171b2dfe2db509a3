"""Zero padding of arrays in memory: runs are copied, and no kernel is generated."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from weft._engine.compiler.kernels.padded_copy import PAD_BYTES, PAD_RUN_BYTES
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.program import Gemm, Launch, Pad

RNG = np.random.default_rng(0)


def steps(fun, *args) -> list:
    return schedule(stage(lambda *args: [fun(*args)], [typeof(x) for x in args])).program.steps


SHAPES = [
    ((8, 32, 2048), ((0, 0), (1, 1), (64, 64))),
    ((4, 112, 336), ((0, 0), (2, 3), (6, 9))),
    ((100, 1000), ((0, 0), (0, 24))),
    ((3, 5, 64, 7, 40), ((1, 0), (0, 2), (0, 0), (2, 1), (0, 0))),
    ((7, 9, 300), ((1, 1), (1, 2), (0, 0))),
    ((100000,), ((5, 3),)),
    ((2, 3, 20000), ((0, 0), (0, 0), (1, 1))),
    ((1, 1, 9000), ((2, 1), (0, 3), (0, 0))),
    ((40, 1, 300), ((0, 0), (1, 1), (0, 1))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8, np.float16])
@pytest.mark.parametrize(("shape", "widths"), SHAPES)
def test_runs_are_copied(shape, widths, dtype):
    x = (100 * RNG.normal(size=shape)).astype(dtype)
    pad, want = (lambda x: wnp.pad(x, widths)), np.pad(x, widths)
    (step,) = steps(pad, x)
    inner = next(
        d for d in reversed(range(x.ndim)) if widths[d] != (0, 0)
    )  # from this index on, all of x is one run
    run = math.prod(shape[inner:]) * x.itemsize
    is_large = want.nbytes >= PAD_BYTES and run >= PAD_RUN_BYTES
    assert type(step) is (Pad if is_large else Launch)
    np.testing.assert_array_equal(weft.jit(pad)(x), want)


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((0, 30000), ((1, 0), (1, 1))),
        ((0, 30000), ((2, 1), (1, 1))),
        ((3, 0, 20000), ((0, 1), (0, 1), (2, 0))),
        ((30000, 0), ((1, 1), (0, 1))),
        ((0, 8, 4000), ((1, 0), (0, 0), (0, 0))),
    ],
)
def test_nothing_is_copied_of_what_is_empty(shape, widths):
    np.testing.assert_array_equal(
        weft.jit(lambda x: lax.pad(x, np.float32(0), [(*w, 0) for w in widths]))(
            np.zeros(shape, np.float32)
        ),
        np.pad(np.zeros(shape, np.float32), widths),
    )


def test_rows_of_views_are_read_where_they_are():
    x = RNG.normal(size=(64, 3, 500)).astype(np.float32)
    pad = lambda x: wnp.pad(x[:, 1], ((2, 2), (0, 12)))
    (step,) = steps(pad, x)
    assert (
        type(step) is Pad
        and step.dims == ((68, 2, 64, 6000),)
        and (step.run, step.row) == (2000, 2048)
    )
    np.testing.assert_array_equal(weft.jit(pad)(x), np.pad(x[:, 1], ((2, 2), (0, 12))))
    turned = lambda x: wnp.pad(x[0].T, ((1, 1), (0, 300)))  # runs of one element
    assert [type(step) for step in steps(turned, x)] == [Launch]
    np.testing.assert_array_equal(weft.jit(turned)(x), np.pad(x[0].T, ((1, 1), (0, 300))))


@pytest.mark.parametrize(
    "pad",
    [
        lambda x: wnp.pad(x, 2, constant_values=1),
        lambda x: lax.pad(x, np.float32(-0.0), ((1, 1, 0), (0, 0, 0))),
        lambda x: lax.pad(x, np.float32(0), ((1, 1, 1), (0, 0, 0))),
        lambda x: lax.pad(x, np.float32(0), ((-1, 1, 0), (0, 0, 0))),
        lambda x: wnp.pad(x * 2, 2),
        lambda x: wnp.pad(x[:3, :3], 2),
        lambda x: lax.pad(x, x[0, 0], ((1, 1, 0), (0, 0, 0))),
    ],
)
def test_other_paddings_have_kernels(pad):
    x = RNG.normal(size=(90, 400)).astype(np.float32)
    assert [type(step) for step in steps(pad, x)] == [Launch]
    with weft.disable_jit():
        want = np.asarray(pad(x))
    result = np.asarray(weft.jit(pad)(x))
    np.testing.assert_array_equal(result, want)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(want))


def test_a_convolution_pads_without_a_kernel():
    x, w = (
        RNG.normal(size=(2, 32, 32, 16)).astype(np.float32),
        RNG.normal(size=(3, 3, 16, 16)).astype(np.float32),
    )
    conv = lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    sequence = steps(conv, x, w)
    assert [type(step) for step in sequence] == [Pad, Gemm]
    assert (
        "pad 2048 of 2176 B from 64, 2 of 2 from 0, 32 of 34 from 1"
        in schedule(stage(lambda x, w: [conv(x, w)], [typeof(x), typeof(w)])).text()
    )
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, i : i + 32, j : j + 32] @ w[i, j] for i in range(3) for j in range(3))
    np.testing.assert_allclose(weft.jit(conv)(x, w), want, rtol=1e-4, atol=1e-4)


def test_in_loops_and_branches():
    x = RNG.normal(size=(30, 1000)).astype(np.float32)
    loop = lambda x: lax.fori_loop(0, 3, lambda i, y: wnp.pad(y, ((1, 1), (0, 0)))[:30] + i, x)
    want = x
    for i in range(3):
        want = np.pad(want, ((1, 1), (0, 0)))[:30] + i
    np.testing.assert_array_equal(weft.jit(loop)(x), want)
    choice = lambda p, x: lax.cond(
        p, lambda x: wnp.pad(x, ((0, 1), (0, 8))), lambda x: wnp.pad(x, ((1, 0), (8, 0))), x
    )
    for p, widths in ((True, ((0, 1), (0, 8))), (False, ((1, 0), (8, 0)))):
        np.testing.assert_array_equal(weft.jit(choice)(p, x), np.pad(x, widths))


def test_more_threads_change_nothing():
    text = (
        "import sys, numpy as np, weft, weft.numpy as wnp\nx = np.arange(3000 * 700, dtype='f').reshape(3000, 700)\n"
        "sys.stdout.buffer.write(np.asarray(weft.jit(lambda x: wnp.pad(x, ((3, 2), (1, 0))))(x)).tobytes())\n"
    )
    want = np.pad(np.arange(3000 * 700, dtype="f").reshape(3000, 700), ((3, 2), (1, 0))).tobytes()
    for threads in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", text],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"WEFT_NUM_THREADS": threads},
        ).stdout
        assert output == want


@pytest.mark.parametrize("shape", [(5, 2000), (3, 2835), (10, 33, 33), (7, 5)])
@pytest.mark.parametrize("part", [slice(1, None), slice(None, -1), slice(2, -1)])
def test_scan_reads_padded_gradients(shape, part):
    """A padding is a step that writes a buffer: a loop that reads it does not own that buffer."""
    x = RNG.normal(size=shape).astype(np.float32)
    ema = lambda x: lax.scan(lambda c, v: (c * 0.5 + v,) * 2, wnp.zeros(shape[1:]), x)[1]
    gradient = weft.grad(lambda x: (ema(x)[part] * x[part]).sum())
    with weft.disable_jit():
        want = gradient(wnp.asarray(x))
    np.testing.assert_allclose(weft.jit(gradient)(x), want, rtol=1e-4, atol=1e-4)
