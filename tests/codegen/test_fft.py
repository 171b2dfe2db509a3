"""Kernels of Fourier transforms between guard pages: source, result, factors and scratch memory."""

import ctypes
import sys

import numpy as np
import pytest

from tests.codegen.harness import Fenced
from weft._engine.codegen.library import fft as native
from weft._engine.codegen.runtime import pool, routines
from weft._engine.codegen.toolchain.native_library import link
from weft._engine.compiler.kernels import fft_plan
from weft._engine.compiler.kernels.fft_plan import FFT_CONVOLVED_TO, FFT_MOST_LANES
from weft._engine.ir import fft
from weft._engine.ir.program import BufRef, Fft, FftConvolutionPart
from weft._engine.util.primes import prime_factors

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pages are protected by Linux' mprotect"
)
KINDS = {
    "forward": np.fft.fft,
    "inverse": np.fft.ifft,
    "half": np.fft.rfft,
    "all": np.fft.fft,
    "real": np.fft.irfft,
}


def run(
    step: Fft,
    draft: bool,
    at_end: bool,
    x: np.ndarray,
    out: np.ndarray,
    products: fft.FftFactors | None = None,
) -> np.ndarray:
    """Run all tasks of a step, the last one first, with scratch memory that is NaN or infinite
    before it is written."""
    fences: list[Fenced] = []

    def take(nbytes: int) -> int:
        fences.append(Fenced(nbytes, at_end))
        ctypes.memset(fences[-1].ptr, 0xFF, nbytes)
        return fences[-1].ptr

    take_ = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(take)
    give_ = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda ptr: None)
    own = {"weft_scratch_take": take_, "weft_scratch_give": give_}
    symbols = {
        **pool.symbols(),
        **{
            name: ctypes.cast(function, ctypes.c_void_p).value or 0
            for name, function in own.items()
        },
    }
    name = native.symbol(step)
    address = link(native.parts(name, draft), symbols)[name]
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    factors = fft.tables(step.kind, step.n, step.inner, np.dtype(step.type.replace("f", "float")))
    arrays = [x, out, factors.ready(), *([] if products is None else [products.ready()])]
    memory = [Fenced(array.nbytes, at_end) for array in arrays]
    for place, array in zip(memory, arrays):
        place.view(array.dtype)[:] = array.ravel()
    numbers = [*[place.ptr for place in memory], *native.words(step)]
    words = (ctypes.c_int64 * len(numbers))(*numbers)
    for task in reversed(range(native.tasks(step))):
        call(ctypes.addressof(words), task, 0)
    assert fences and memory[0].view(x.dtype).tobytes() == x.tobytes()
    return memory[1].view(out.dtype).reshape(out.shape).copy()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("n", [2, 3, 7, 8, 15, 16, 17, 22, 33, 64, 143, 251, 509, 521, 1042])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_beyond_the_ends_is_touched(kind, n, at_end):
    rng = np.random.default_rng(n)
    columns = [(2, 1), (2, 5), (1, 17)] if kind in ("forward", "inverse") else []
    for part, type_ in ((np.float32, "f32"), (np.float64, "f64")):
        whole = np.dtype(f"c{2 * np.dtype(part).itemsize}")
        for rows, inner in [(1, 1), (7, 1), (17, 1), *columns]:
            x = rng.normal(size=(rows, n // 2 + 1 if kind == "real" else n, inner))
            x = (x if kind in ("half", "all") else x + 1j * rng.normal(size=x.shape)).astype(
                part if kind in ("half", "all") else whole
            )
            want = KINDS[kind](
                x.astype(np.result_type(x, np.float64)), *([n] if kind == "real" else []), axis=1
            )
            out = np.full(want.shape, np.nan, part if kind == "real" else whole)
            step = Fft(kind, type_, n, rows, inner, *[BufRef(0)] * 3)
            results = [run(step, draft, at_end, x, out) for draft in (False, True)]
            assert np.linalg.norm(results[0] - want) <= 4 * np.finfo(part).eps * np.linalg.norm(
                want
            ), (type_, rows, inner)
            assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(("n", "inner"), [(16, 16), (17, 32), (64, 48), (30, 80), (257, 16)])
@pytest.mark.parametrize("kind", fft.CROSSED)
def test_crossed_rows_touch_nothing_beyond_the_ends(kind, n, inner, at_end):
    rng = np.random.default_rng(n)
    sign = 1 if kind == "cross" else -1
    turns = np.exp(-2j * np.pi * sign / (n * inner) * np.outer(np.arange(inner), np.arange(n)))
    for whole, type_ in ((np.complex64, "f32"), (np.complex128, "f64")):
        for rows in (1, 2):
            x = (rng.normal(size=(rows, inner, n)) + 1j * rng.normal(size=(rows, inner, n))).astype(
                whole
            )
            transform = np.fft.fft if kind == "cross" else np.fft.ifft
            want = transform(x.astype(np.complex128) * turns).transpose(0, 2, 1)
            step = Fft(kind, type_, n, rows, inner, *[BufRef(0)] * 3)
            results = [
                run(step, draft, at_end, x, np.full(want.shape, np.nan, whole))
                for draft in (False, True)
            ]
            assert np.linalg.norm(results[0] - want) <= 4 * np.finfo(whole).eps * np.linalg.norm(
                want
            ), (type_, rows)
            assert results[0].tobytes() == results[1].tobytes()
            down = Fft(
                "down" if kind == "cross" else "undown", type_, n, rows, inner, *[BufRef(0)] * 3
            )
            x, want = (
                x.reshape(rows, n, inner),
                transform(x.reshape(rows, n, inner).astype(np.complex128), axis=1),
            )
            results = [
                run(down, draft, at_end, x, np.full(want.shape, np.nan, whole))
                for draft in (False, True)
            ]
            assert native.symbol(down) == native.symbol(step)
            assert np.linalg.norm(results[0] - want) <= 4 * np.finfo(whole).eps * np.linalg.norm(
                want
            ), (type_, rows)
            assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("n", "taken", "given", "column", "row"),
    [
        (521, 521, 521, 32, 48),
        (521, 521, 261, 32, 32),
        (521, 261, 521, 16, 64),
        (512, 512, 512, 32, 32),
        (530, 7, 530, 16, 48),
    ],
)
@pytest.mark.parametrize("inverse", [False, True])
def test_convolutions_touch_nothing_beyond_the_ends(inverse, n, taken, given, column, row, at_end):
    rng = np.random.default_rng(n)
    for whole, part, type_ in (
        (np.complex64, np.float32, "f32"),
        (np.complex128, np.float64, "f64"),
    ):
        for rows in (1, 3):
            x = (rng.normal(size=(rows, taken)) + 1j * rng.normal(size=(rows, taken))).astype(whole)
            want = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128), n)[:, :given]
            results = []
            for draft in (False, True):
                memory = {fft_plan.OPERAND: x}
                for stage in fft_plan.convolution(
                    n, rows, taken, given, column, row, inverse, np.dtype(part)
                ):
                    shape = want.shape if stage.out == fft_plan.RESULT else (rows, column * row)
                    out = memory.get(stage.out, np.full(shape, np.nan, whole))
                    step = Fft(
                        stage.kind,
                        type_,
                        stage.n,
                        rows,
                        stage.inner,
                        *[BufRef(0)] * 3,
                        FftConvolutionPart(*stage.part, BufRef(0)),
                    )
                    memory[stage.out] = run(
                        step, draft, at_end, memory[stage.source], out, stage.factors
                    )
                results.append(memory[fft_plan.RESULT])
            assert np.linalg.norm(results[0] - want) <= 5 * np.finfo(part).eps * np.linalg.norm(
                want
            ), (type_, rows)
            assert results[0].tobytes() == results[1].tobytes()


def test_sides_of_matrices_have_few_different_radices():
    """Covers all lengths that fill vectors and have generated radices: one or two kinds, as in the
    table."""
    lengths = range(FFT_MOST_LANES, 1025, FFT_MOST_LANES)
    few = [
        n
        for n in lengths
        if prime_factors(n)[-1] < fft.WRITTEN_OUT and len(set(fft.radices(n))) <= 2
    ]
    assert tuple(few) == fft_plan._SIDES
    for n in (2 * 1009 - 1, 2 * 4099 - 1, 2 * 65537 - 1, FFT_CONVOLVED_TO):
        column, row = fft_plan.convolution_matrix_sides(n)
        assert n <= column * row <= 1.3 * n and len({*fft.radices(column), *fft.radices(row)}) <= 2


@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_factors_are_as_exact_as_their_type(type_):
    for n in [*range(1, 71), 509, 1000, 4096, 6000]:
        re, im = fft._roots_of_unity(n, np.dtype(type_)).astype(np.longdouble)
        angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * np.arange(n) / n
        assert (
            max(np.abs(re - np.cos(angle)).max(), np.abs(im + np.sin(angle)).max())
            < 0.8 * np.finfo(type_).eps
        ), n


@pytest.mark.parametrize(
    ("n", "inner"), [(64, 64), (1000, 1000), (1024, 1024), (48, 97), (2048, 512)]
)
def test_factors_of_crossed_rows_are_as_exact(n, inner):
    for type_ in (np.float32, np.float64):
        roots = (
            fft.tables("cross", n, inner, np.dtype(type_))
            .ready()[-2 * n * inner - 1 : -1]
            .reshape(n, 2, inner)
        )
        number, k = np.ix_(np.arange(n), np.arange(inner))
        angle = (
            number
            * k
            % (n * inner)
            * (2 * np.longdouble("3.14159265358979323846264338327950288") / (n * inner))
        )
        assert np.abs(roots[:, 0] - np.cos(angle)).max() < 0.8 * np.finfo(type_).eps
        assert np.abs(roots[:, 1] + np.sin(angle)).max() < 0.8 * np.finfo(type_).eps


def test_what_transforms_share_is_linked_once(monkeypatch):
    linked = []

    def counted(parts, *imports):
        linked.append([part.name for part in parts])
        return link(parts, *imports)

    monkeypatch.setattr(native.ROUTINES, "_addresses", {})
    monkeypatch.setattr(native.ROUTINES, "_linked", {})
    monkeypatch.setattr(routines, "link", counted)
    short, long = "weft_fft_forward_f32_64", "weft_fft_forward_f32_512"
    addresses = {
        native.ROUTINES.ensure(name, draft=draft)
        for name, draft in [(short, True), (long, True), (short, False), (long, False)] * 2
    }
    shared = ["fft_transpose_f32", "fft_pass_8_f32"]
    assert (
        linked == [[*(f"{name} draft" for name in shared), short], [long], [*shared, short], [long]]
        and len(addresses) == 4
    )
