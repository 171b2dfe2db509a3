"""Fourier transforms: all frequencies of real values from half of them, and results written in
place."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.compiler.schedule.schedule import schedule
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.fft import can_pass
from weft._engine.ir.program import Fft, HostCallStep
from weft._engine.util import fft_engine
from weft.test_util import check_grads

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 31, 64])
@pytest.mark.parametrize("axes", [(-1,), (0,), (0, 1), (1, 2), (2, 0, 1)])
def test_real_values(n, axes):
    x = RNG.normal(size=(3, 4, n)).astype(np.float32)
    got = np.asarray(wnp.fft.fftn(x, axes=axes))
    np.testing.assert_allclose(got, np.fft.fftn(x, axes=axes), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        wnp.fft.fftn((10 * x).astype(np.int32), axes=axes),
        np.fft.fftn((10 * x).astype(np.int32), axes=axes),
        rtol=1e-3,
        atol=1e-3,
    )


def steps(fun, *args) -> list:
    """Return the steps of a program that are Fourier transforms, native or not."""
    program_steps = schedule(
        stage(lambda *args: [fun(*args)], [typeof(x) for x in args])
    ).program.steps
    return [step for step in program_steps if isinstance(step, Fft | HostCallStep)]


def transforms(rows, n, part):
    """Return each transform of rows of n: its name, the function, an operand, and NumPy's result in
    double precision."""
    x = RNG.normal(size=(rows, n)).astype(part)
    z = x + 1j * RNG.normal(size=x.shape).astype(part)
    half = np.fft.rfft(x.astype(np.float64)).astype(z.dtype)
    for name, a in (("fft", z), ("ifft", z), ("rfft", x), ("fft", x), ("irfft", half)):
        options = {"n": n} if name == "irfft" else {}
        wide = a.astype(np.result_type(a.dtype, np.float64))
        yield (
            name,
            lambda a, name=name, options=options: getattr(wnp.fft, name)(a, **options),
            a,
            getattr(np.fft, name)(wide, **options),
        )


def test_real_values_stay_real():
    names = [
        eqn.primitive.name
        for eqn in stage(lambda x: [wnp.fft.fft2(x)], [typeof(np.ones((4, 8), np.float32))]).eqns
    ]
    assert names == ["fft"]
    assert [step.kind for step in steps(wnp.fft.fft2, np.ones((4, 8), np.float32))] == [
        "all",
        "forward",
    ]


TYPES = [np.float32, np.float64]
#: every radix, each kind of pass in first and last position, and rows shorter than a vector
LENGTHS = [
    *range(2, 36),
    49,
    61,
    77,
    81,
    121,
    127,
    128,
    143,
    200,
    243,
    251,
    341,
    500,
    509,
    1000,
    1023,
    1024,
    1155,
    1331,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n):
    with weft.enable_x64():
        for part, rows in zip([*TYPES, *TYPES], (2, 37, 16, 5)):
            for name, transform, a, want in transforms(rows, n, part):
                assert {type(step) for step in steps(transform, a)} == {Fft}
                got = np.asarray(weft.jit(transform)(a))
                assert got.dtype == (
                    part if name == "irfft" else np.result_type(part, np.complex64)
                )
                bound = (
                    2.5 if part is np.float32 else 4
                )  # double precision meets the errors of the reference
                assert np.linalg.norm(got - want) <= bound * np.finfo(part).eps * np.linalg.norm(
                    want
                ), (name, part, rows)


@pytest.mark.parametrize("n", [256, 272, 400, 1536, 4016, 4096, 10000, 65536])
def test_long_rows_are_matrices(n):
    """Columns are transformed first, then rows, which are transposed: by both cores, one row or a
    few."""
    with weft.enable_x64():
        for part, rows in ((np.float32, 1), (np.float64, 1), (np.float32, 3), (np.float32, 15)):
            z = RNG.normal(size=(rows, n)).astype(part) + 1j * RNG.normal(size=(rows, n)).astype(
                part
            )
            for name in ("fft", "ifft"):
                transform = getattr(wnp.fft, name)
                alone, un = ("forward", "") if name == "fft" else ("inverse", "un")
                pair = [
                    f"{un}down" if n in (256, 4096, 65536) else alone,
                    f"{un}cross",
                ]  # squares of multiples of 16
                assert [step.kind for step in steps(transform, z)] == (
                    pair if n >= 48 * rows else [alone]
                )
                got, want = (
                    np.asarray(weft.jit(transform)(z)),
                    getattr(np.fft, name)(z.astype(np.complex128)),
                )
                assert got.dtype == z.dtype and np.linalg.norm(got - want) <= 4 * np.finfo(
                    part
                ).eps * np.linalg.norm(want)
    assert [step.kind for step in steps(wnp.fft.fft, z[:, :250])] == ["forward"]


def test_many_rows_too_long_to_be_convolved_have_passes():
    z = (RNG.normal(size=(40, 8785)) + 0j).astype(np.complex64)  # 35 * 251
    assert [step.kind for step in steps(wnp.fft.fft, z)] == ["forward"]
    np.testing.assert_allclose(weft.jit(wnp.fft.fft)(z), np.fft.fft(z), atol=3e-5 * 8785**0.5)


@pytest.mark.parametrize("n", [10**6, 1 << 20])
def test_rows_of_a_million_are_matrices(n):
    z = (RNG.normal(size=n) + 1j * RNG.normal(size=n)).astype(np.complex64)
    for transform, exact in ((wnp.fft.fft, np.fft.fft), (wnp.fft.ifft, np.fft.ifft)):
        assert len(steps(transform, z)) == 2
        got, want = np.asarray(weft.jit(transform)(z)), exact(z.astype(np.complex128))
        assert np.linalg.norm(got - want) <= 4 * np.finfo(np.float32).eps * np.linalg.norm(want)


@pytest.mark.parametrize("rows", range(1, 36))
def test_numbers_of_rows(rows):
    x = RNG.normal(size=(rows, 24)).astype(np.float32)
    np.testing.assert_allclose(weft.jit(wnp.fft.rfft)(x), np.fft.rfft(x), atol=2e-5)
    z = (x + 1j * RNG.normal(size=x.shape)).astype(np.complex64)
    np.testing.assert_allclose(
        weft.jit(lambda z: wnp.fft.fft(z.T, axis=0))(z), np.fft.fft(z.T, axis=0), atol=2e-5
    )
    np.testing.assert_allclose(weft.jit(wnp.fft.fft2)(z), np.fft.fft2(z), atol=2e-4)


@pytest.mark.parametrize("inner", [1, 2, 7, 8, 15, 16, 17, 40])
def test_columns(inner):
    z = (RNG.normal(size=(3, 6, 5, inner)) + 1j * RNG.normal(size=(3, 6, 5, inner))).astype(
        np.complex64
    )
    for name in ("fftn", "ifftn"):
        got, want = (np.asarray(getattr(m.fft, name)(z, axes=(1, 2, 3))) for m in (wnp, np))
        np.testing.assert_allclose(got, want, atol=2e-4)
    x = RNG.normal(size=z.shape).astype(np.float32)
    np.testing.assert_allclose(
        wnp.fft.rfftn(x, axes=(1, 2, 3)), np.fft.rfftn(x, axes=(1, 2, 3)), atol=2e-4
    )
    half = np.fft.rfftn(x, axes=(1, 2, 3)).astype(np.complex64)
    copy = half.copy()
    back = weft.jit(lambda half: wnp.fft.irfftn(half, x.shape[1:], axes=(1, 2, 3)))
    np.testing.assert_allclose(back(half), x, atol=1e-5)
    np.testing.assert_array_equal(half, copy)


def test_what_is_not_finite_stays_in_its_row():
    x = RNG.normal(size=(40, 45)).astype(np.float32)
    x[3, 7], x[20, 0], x[39, 44] = np.nan, np.inf, -np.inf
    got = np.asarray(wnp.fft.rfft(x))
    rows = np.isfinite(got).all(1)
    assert rows.tolist() == np.isfinite(x).all(1).tolist()
    np.testing.assert_allclose(got[rows], np.fft.rfft(x[rows]), atol=1e-4)


@pytest.mark.parametrize("n", [4, 15, 16, 24, 251, 521, 1000, 1023, 1042])
def test_frequencies_of_the_largest_numbers(n):
    """Where all frequencies are finite, intermediate results are finite, too."""
    x = np.zeros((17, n), np.float32)
    x[:, 1] = np.finfo(np.float32).max * 0.99
    for name in ("rfft", "fft"):
        got = np.asarray(getattr(wnp.fft, name)(x))
        assert np.isfinite(got).all()
        np.testing.assert_allclose(
            got / x.max(), getattr(np.fft, name)(x / x.max()), atol=3e-7 if can_pass(n) else 1e-6
        )


def test_imaginary_parts_that_do_not_count():
    """The first and the middle frequency of real values are real; their imaginary parts are
    ignored."""
    half = (RNG.normal(size=(20, 7)) + 1j * RNG.normal(size=(20, 7))).astype(np.complex64)
    for n in (12, 13):
        np.testing.assert_allclose(wnp.fft.irfft(half, n), np.fft.irfft(half, n), atol=1e-5)


def test_long_single_rows_are_scipys():
    schedules = [steps(wnp.fft.rfft, np.ones((1, n), np.float32)) for n in (4096, 2 * 131101)]
    assert [[type(s) for s in one] for one in schedules] == [[HostCallStep]] * 2


PRIMES = [(521, 125), (1042, 3), (1009, 1), (3 * 521, 20), (65537, 1)]


@pytest.mark.parametrize("n, rows", PRIMES)
def test_large_primes_are_convolutions(n, rows):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(rows, n)).astype(np.float32)
    z = (x + 1j * rng.normal(size=(rows, n))).astype(np.complex64)
    for name, operand in (("fft", x), ("fft", z), ("ifft", z), ("rfft", x)):
        native, got, want = (
            steps(getattr(wnp.fft, name), operand),
            getattr(wnp.fft, name)(operand),
            getattr(np.fft, name)(operand),
        )
        assert {type(step) for step in native} == {Fft} or (n, rows, name) == (65537, 1, "rfft"), [
            step.kind for step in native
        ]
        assert (got.shape, got.dtype) == (want.shape, np.complex64)
        np.testing.assert_allclose(got, want, atol=4e-7 * np.abs(want).max())
    half = z[:, : n // 2 + 1]
    np.testing.assert_allclose(
        wnp.fft.irfft(half, n),
        np.fft.irfft(half, n),
        atol=4e-7 * np.abs(np.fft.irfft(half, n)).max(),
    )


@pytest.mark.parametrize(("n", "rows"), [(1042, 15), (2003, 3), (4099, 15), (20011, 1)])
def test_few_long_rows_of_large_primes_are_convolved_as_matrices(n, rows):
    with weft.enable_x64():
        for part in TYPES:
            for name, transform, a, want in transforms(rows, n, part):
                assert [step.rows for step in steps(transform, a)] == [rows] * 4
                got = np.asarray(weft.jit(transform)(a))
                assert got.dtype == (
                    part if name == "irfft" else np.result_type(part, np.complex64)
                )
                assert np.linalg.norm(got - want) <= 5 * np.finfo(part).eps * np.linalg.norm(
                    want
                ), (name, part)
            x = RNG.normal(size=(rows, n)).astype(part)
            whole = np.asarray(wnp.fft.fft(x))
            assert (whole[:, 0].imag == 0).all() and (whole[:, 1:] == whole[:, :0:-1].conj()).all()
            z = x + 0j
            z[-1, 5] = np.nan
            assert np.isfinite(np.asarray(wnp.fft.fft(z))[:-1]).all()


@pytest.mark.parametrize("n", [521, 1042])
def test_large_primes_keep_what_holds_of_other_lengths(n):
    """Zero and mirrored imaginary parts of real values bit for bit; gradients; types; rows on
    several devices; float64."""
    x = RNG.normal(size=(40, n)).astype(np.float32)
    whole = np.asarray(wnp.fft.fft(x))
    assert (whole[:, 0].imag == 0).all() and (whole[:, 1:] == whole[:, :0:-1].conj()).all()
    assert (np.asarray(wnp.fft.rfft(x))[:, [0, -1] if n % 2 == 0 else [0]].imag == 0).all()
    check_grads(
        lambda x: wnp.abs(wnp.fft.rfft(x)) ** 2 / n, (x[:20],), 1, ["fwd", "rev"], 2e-2, 2e-2
    )
    np.testing.assert_array_equal(weft.vmap(wnp.fft.fft)(x), whole)
    mesh = weft.make_mesh((8,), ("x",), axis_types=(weft.sharding.AxisType.Auto,))
    split = weft.device_put(x, weft.NamedSharding(mesh, weft.P("x")))
    np.testing.assert_allclose(weft.jit(wnp.fft.fft)(split), whole, atol=1e-4)
    with weft.enable_x64(True):
        wide = x.astype(np.float64)
        np.testing.assert_allclose(wnp.fft.fft(wide), np.fft.fft(wide), atol=1e-12)


def test_more_threads_change_nothing():
    text = (
        "import sys, numpy as np, weft, weft.numpy as wnp\nx = np.random.default_rng(0).normal(size=(300, 360)).astype('f')\n"
        "sys.stdout.buffer.write(np.asarray(weft.jit(wnp.fft.fft2)(x)).tobytes())\n"
    )
    run = lambda threads: (
        subprocess.run(
            [sys.executable, "-c", text],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"WEFT_NUM_THREADS": threads},
        ).stdout
    )
    outputs = [run("1"), run("2")]
    assert len(outputs[0]) == 300 * 360 * 8 and outputs[0] == outputs[1]


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_transformed_transforms(name):
    """A transform is linear: its jvp along a direction equals its transpose."""
    x = RNG.normal(size=(3, 15)).astype(np.float32)
    transform = getattr(wnp.fft, name)
    weight = RNG.normal(size=transform(x).shape).astype(np.float32)
    energy = lambda x: (weight * wnp.abs(transform(x)) ** 2).sum()
    gradient, step = np.asarray(weft.grad(energy)(x)), RNG.normal(size=x.shape).astype(np.float32)
    _, along = weft.jvp(energy, (x,), (step,))
    np.testing.assert_allclose(along, (gradient * step).sum(), rtol=1e-4)
    np.testing.assert_allclose(weft.vmap(transform)(x), transform(x), rtol=1e-5, atol=1e-5)


@pytest.fixture
def engines(request, monkeypatch):
    """Return SciPy's own engine, or one without a registered name."""
    if request.param == "public":
        monkeypatch.setattr(fft_engine, "_ENGINES", ())
    fft_engine._engine.cache_clear()
    yield
    fft_engine._engine.cache_clear()


@pytest.mark.parametrize("engines", ["own", "public"], indirect=True)
@pytest.mark.parametrize("lengths", [(6,), (5,), (4, 6), (3, 4, 5)])
def test_there_and_back(lengths, engines):
    x = RNG.normal(size=(2, *lengths)).astype(np.float32)
    axes = range(1, 1 + len(lengths))
    half = np.empty((*x.shape[:-1], lengths[-1] // 2 + 1), np.complex64)
    back, full = np.empty_like(x), x.astype(np.complex64)
    fft_engine.forward_of_real(x, axes, half)
    fft_engine.backward_to_real(half, axes, back)
    np.testing.assert_allclose(back, x, atol=1e-5)
    fft_engine.forward(full, axes, out := np.empty_like(full))
    np.testing.assert_allclose(out, np.fft.fftn(x, axes=axes), atol=1e-4)
    fft_engine.backward(out, axes, again := np.empty_like(full))
    np.testing.assert_allclose(again, x, atol=1e-5)


def test_the_engine_comes_without_its_package_and_goes_with_it():
    text = (
        "import sys, numpy as np\nfrom weft._engine.util import fft_engine\nx, out = np.ones(4, 'c8'), np.empty(4, 'c8')\n"
        "fft_engine.forward(x, [0], out)\nassert out[0] == 4 and 'scipy.fft' not in sys.modules\n"
        "import scipy.fft\nassert scipy.fft.fft(x)[0] == 4\nfft_engine.forward(x, [0], out)\nassert out[0] == 4\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_derivative():
    x = RNG.normal(size=(3, 9)).astype(np.float32)
    energy = lambda x: (wnp.abs(wnp.fft.fft(x)) ** 2).sum()
    np.testing.assert_allclose(weft.grad(energy)(x), 18 * x, rtol=1e-3, atol=1e-3)


def test_transforms_of_nothing_and_misuse():
    assert (
        wnp.fft.fft(wnp.zeros(0)).shape == (0,)
        and wnp.fft.ifft(wnp.zeros((2, 0))).dtype == np.complex64
    )
    x = np.ones((3, 3))
    for call, message in (
        (
            lambda: wnp.fft.fft(x, axis=[1, 1]),
            "^weft.numpy.fft.fft does not support multiple axes",
        ),
        (
            lambda: wnp.fft.ihfft(x, axis=(0, 1)),
            "^weft.numpy.fft.ihfft does not support multiple axes",
        ),
        (lambda: wnp.fft.fft2(x, axes=[1]), "only supports 2 axes"),
        (lambda: wnp.fft.fftn(x, axes=[1, -1]), "repeated axes"),
        (lambda: wnp.fft.fftfreq([1, 2]), "only takes an int"),
        (lambda: wnp.fft.rfftfreq(4, [1, 2]), "single value"),
        (lambda: weft.lax.fft(x, "fft", (2, 3, 4)), "as many input dimensions"),
        (lambda: weft.lax.fft(x, "irfft", (4, 4)), "all except the last"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
