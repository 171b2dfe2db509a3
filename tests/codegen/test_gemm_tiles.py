"""Products in tiles: the kernels for AMX, run on an emulator of its instructions where there is no AMX."""

import itertools
import math
import os
import threading

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.gemm_cases import DTYPES, ORDERS, Case, check, run, values
from tests.codegen.tile_products import check_convolution, random_case
from tests.harness import tile_emulator, tile_machine
from tests.harness.tuning import tune
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.gemm.descriptor import ALONG, PRIVATE, SHARED, Word
from weft._engine.codegen.runtime import pool
from weft._engine.ir.program import BufRef, Gemm

pytestmark = pytest.mark.skipif(bool(tile_machine.reason()), reason=tile_machine.reason())

REFS = BufRef(0), BufRef(1), BufRef(2)
TYPES = [
    ("bf16", "f32", "f32"),
    ("bf16", "f32", "bf16"),
    ("i8", "i32", "i32"),
    ("u8", "i32", "i32"),
]


@pytest.fixture(autouse=True)
def tiles(monkeypatch):
    tile_machine.use(monkeypatch)
    gemm._describe.cache_clear()  # tests change thresholds, and the number of threads
    yield
    gemm._describe.cache_clear()


def is_in_tiles(symbol):
    return symbol.endswith("_tiles_tile")


def plain(m, n, k, types):
    return Gemm(m, n, k, *REFS, (k, 1), (n, 1), (n, 1), *types)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(
    "m,n,k",
    [
        (32, 32, 64),
        (16, 16, 128),
        (33, 31, 65),
        (3, 200, 130),
        (17, 17, 257),
        (48, 50, 31),
        (64, 96, 300),
        (95, 130, 700),
        (200, 33, 1100),
        (40, 3, 900),
        (31, 1000, 40),
    ],
)
def test_sizes(m, n, k, types):
    symbol, _ = check(Case(m, n, k, types))
    assert is_in_tiles(symbol)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(
    "m,n,k",
    [(2, 4096, 192), (5, 1030, 576), (8, 2000, 320), (15, 4099, 448), (16, 4096, 192)],
)
def test_few_rows_read_b_in_place(m, n, k, types):
    for epilogue in (False, True):
        name, words = check(Case(m, n, k, types, epilogue=epilogue))
        assert is_in_tiles(name) and words[Word.B_MODE] == ALONG
        assert words[Word.TILE_PANELS] <= 16, "the buffer of tiles stays in the L1 cache"


def test_few_rows_need_little_stack(monkeypatch):
    """B is interleaved in scratch memory: the stack of a thread may be smaller."""
    monkeypatch.setattr(pool, "num_threads", lambda: 1)
    size = threading.stack_size(128 << 10)
    thread = threading.Thread(target=check, args=[Case(2, 8192, 256, TYPES[0])])
    try:
        thread.start()
    finally:
        threading.stack_size(size)
    thread.join()
    _, words = gemm.describe(plain(2, 8192, 256, TYPES[0]))
    buffer_bytes = words[Word.TILE_PANELS] * 32 * 64
    assert words[Word.B_MODE] == ALONG and words[Word.WORKER_BYTES] > buffer_bytes


def test_few_rows_are_packed_unless_k_is_whole_tiles():
    for m, k, mode in [(16, 320, ALONG), (17, 320, PRIVATE), (16, 321, PRIVATE)]:
        name, words = check(Case(m, 4096, k, TYPES[0]))
        assert is_in_tiles(name) and words[Word.B_MODE] == mode, (m, k)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_layouts(types):
    for orders, spread, epilogue in itertools.product(ORDERS, (1, 3), (False, True)):
        orders = (*orders[:2], "mn") if epilogue else orders
        case = Case(45, 61, 37, types, orders=orders, spread=spread, epilogue=epilogue)
        assert is_in_tiles(check(case)[0])


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("epilogue", [False, True])
def test_batch_and_outer_dims(types, epilogue):
    for case in [
        Case(35, 36, 37, types, batch=(3,), epilogue=epilogue),
        Case(35, 36, 37, types, batch=(3, 2), broadcast=("b",), epilogue=epilogue),
        Case(33, 34, 35, types, batch=(2, 3), orders=("km", "nk", "mn"), epilogue=epilogue),
        Case(40, 70, 31, types, outer=(5,), epilogue=epilogue),
        Case(21, 30, 17, types, outer=(3, 5), orders=("km", "nk", "mn"), epilogue=epilogue),
        Case(21, 30, 200, types, outer=(3,), batch=(2,), spread=2, epilogue=epilogue),
        Case(50, 40, 513, types, outer=(4,), epilogue=epilogue),
    ]:
        assert is_in_tiles(check(case)[0]), str(case)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_windows(types):
    """Rows of A, or columns of B, are windows of an image."""
    rng = np.random.default_rng(2)
    in_type, acc_type, out_type = types
    wide = np.float64 if acc_type == "f32" else np.int64
    for images, high, across, features, taps, out in [(2, 9, 12, 5, 3, 40), (1, 20, 20, 16, 3, 33)]:
        image = values(rng, (images, high, across, features), in_type)
        kernel = values(rng, (taps * taps * features, out), in_type)
        oh, ow = high - taps + 1, across - taps + 1
        s = tuple(x // image.itemsize for x in image.strides)
        windows = np.lib.stride_tricks.as_strided(
            image,
            (images, oh, ow, taps, taps, features),
            [x * image.itemsize for x in (*s[:3], *s[1:])],
        )
        m, run_length = images * oh * ow, taps * features
        want = windows.reshape(m, taps * run_length).astype(wide) @ kernel.astype(wide)
        dims, step = ((images, s[0]), (oh, s[1])), ((taps, s[1], run_length * out),)
        c = np.empty((m, out), DTYPES[out_type])
        symbol, _ = run(
            Gemm(m, out, run_length, *REFS, (s[2], 1), (out, 1), (out, 1), *types, (), step, a_rows=dims),
            image, kernel, c,
        )  # fmt: skip
        close = {"f32": 1e-4, "bf16": 0.2}.get(out_type, 0)
        assert is_in_tiles(symbol)
        np.testing.assert_allclose(c.astype(wide), want, rtol=close / 10, atol=close)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_a_band_of_results(types):
    rng = np.random.default_rng(7)
    m, n, k, far = 150, 170, 70, 1 << 39
    a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[0])
    whole = np.zeros((m, n), DTYPES[types[2]])
    run(plain(m, n, k, types), a, b, whole)
    apart = np.arange(n) - np.arange(m)[:, None]
    for low, high in [(-far, 0), (0, far), (-40, 37), (5, 5), (-far, -90)]:
        c = np.zeros_like(whole)
        step = Gemm(m, n, k, *REFS, (k, 1), (n, 1), (n, 1), *types, band=(low, high))
        run(step, a, b, c)
        inside = (low <= apart) & (apart <= high)
        np.testing.assert_array_equal(c[inside], whole[inside])
        assert (c == 0).sum() > 0.2 * c.size, "register tiles outside of the band are not computed"


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("shared", [False, True])
def test_b_packed_by_each_task_or_for_all(types, shared, monkeypatch):
    tune(monkeypatch, gemm_shared_gain=0 if shared else 100)
    _, words = check(Case(300, 200, 700, types))
    assert words[Word.B_MODE] == (SHARED if shared else PRIVATE) and words[Word.BLOCKS] > 1
    assert not words[Word.SUMS_IN_C], "tiles of sums are side by side in scratch memory"


def test_a_long_sum_in_parts():
    for epilogue in (False, True):
        _, words = check(Case(32, 30, 20_000, ("bf16", "f32", "f32"), epilogue=epilogue))
        assert words[Word.PARTS] > 1


@pytest.mark.skipif(tile_machine.has_tiles(), reason="only the emulator counts instructions")
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("m,n,k", [(64, 64, 256), (70, 90, 400), (5, 40, 1000)])
def test_instructions(m, n, k, types):
    """Every pair of tiles is multiplied once, each operand is loaded once for two products, and ragged
    edges take one more configuration each, which is then set back."""
    symbol, words = gemm.describe(plain(m, n, k, types))
    rng = np.random.default_rng(1)
    a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[0])
    tile_emulator.reset()
    run(plain(m, n, k, types), a, b, np.empty((m, n), DTYPES[types[2]]))
    done = tile_emulator.counts()
    per_tile = 64 // a.itemsize
    steps = words[Word.BLOCK_STEPS] * (4 // a.itemsize)
    blocks = [min(steps, k - at) for at in range(0, k, steps)]
    along_k = sum(-(-size // per_tile) for size in blocks)
    down, across = -(-m // 16), -(-n // 16)
    name = {"bf16": "tdpbf16ps", "i8": "tdpbssd", "u8": "tdpbuud"}[types[0]]
    assert done[name] == down * across * along_k
    assert done["tilestored"] == down * across * len(blocks)
    sums = down * across * (len(blocks) - 1)
    operands = along_k * (down * -(-across // 2) + -(-down // 2) * across)
    assert done["tileloadd"] == operands + sums
    tasks = words[Word.ROW_TILES] * math.ceil(math.ceil(n / 32) / words[Word.TILE_PANELS])
    edges = -(-m // 32) * -(-n // 32) - (m // 32) * (n // 32)
    # half a register tile with whole tiles is no edge
    edges -= (m % 32 == 16) * (n // 32) + (n % 32 == 16) * (m // 32)
    assert done["tilerelease"] == tasks
    assert done["ldtilecfg"] == tasks + 2 * edges * len(blocks)
    assert words[Word.BLOCK_STEPS] % 16 == 0, "no block but the last is padded"
    assert is_in_tiles(symbol)


@pytest.mark.skipif(tile_machine.has_tiles(), reason="only the emulator counts instructions")
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_instructions_of_few_rows(types):
    """Each tile of B is loaded once, and each tile of sums for every tile along k."""
    m, n, k = 7, 2040, 576
    symbol, words = gemm.describe(plain(m, n, k, types))
    assert is_in_tiles(symbol) and words[Word.B_MODE] == ALONG
    rng = np.random.default_rng(1)
    a, b = values(rng, (m, k), types[0]), values(rng, (k, n), types[0])
    tile_emulator.reset()
    run(plain(m, n, k, types), a, b, np.empty((m, n), DTYPES[types[2]]))
    done = tile_emulator.counts()
    along_k, across = k // (64 // a.itemsize), -(-n // 16)
    tasks = math.ceil(math.ceil(n / 32) / words[Word.TILE_PANELS])
    name = {"bf16": "tdpbf16ps", "i8": "tdpbssd", "u8": "tdpbuud"}[types[0]]
    assert done[name] == done["tilestored"] == along_k * across
    assert done["tileloadd"] == 2 * along_k * across + tasks * along_k
    assert done["ldtilecfg"] == 2 * tasks and done["tilerelease"] == tasks


def test_special_values():
    """Infinities and NaNs stay in their rows and columns; numbers below the normal ones are zeros."""
    types, (m, n, k) = ("bf16", "f32", "f32"), (40, 50, 70)
    rng = np.random.default_rng(0)
    a, b = values(rng, (m, k), "bf16"), values(rng, (k, n), "bf16")
    a[3, 5], a[7, 1], b[9, 11] = np.inf, np.nan, -np.inf
    c = np.empty((m, n), np.float32)
    run(plain(m, n, k, types), a, b, c)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(c), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(c), np.isinf(want))
    np.testing.assert_array_equal(np.sign(c[np.isinf(c)]), np.sign(want[np.isinf(want)]))
    tiny = np.full((m, k), 2.0**-130, ml_dtypes.bfloat16)
    run(plain(m, n, k, types), tiny, np.ones((k, n), ml_dtypes.bfloat16), c)
    assert not c.any()


def test_small_products_take_vectors():
    for m, n, k in [(2, 64, 512), (8, 8, 8), (64, 1, 600), (1, 4096, 512), (2, 4096, 513)]:
        symbol, _ = check(Case(m, n, k, ("bf16", "f32", "f32")))
        assert not is_in_tiles(symbol)


def test_other_types_take_vectors():
    for types in [("f32",) * 3, ("f16", "f32", "f32"), ("i16", "i32", "i32"), ("f64",) * 3]:
        assert not is_in_tiles(check(Case(64, 64, 64, types))[0])


def test_threads_give_equal_bits(monkeypatch):
    m, n, k = 200, 300, 900
    rng = np.random.default_rng(0)
    a, b = values(rng, (m, k), "bf16"), values(rng, (k, n), "bf16")
    results = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(pool, "num_threads", lambda threads=threads: threads)
        gemm._describe.cache_clear()
        c = np.empty((m, n), np.float32)
        run(plain(m, n, k, ("bf16", "f32", "f32")), a, b, c)
        results.append(c)
    for c in results:
        np.testing.assert_array_equal(c, results[0])


def test_hyperthreads_share_a_unit(monkeypatch):
    monkeypatch.setattr(pool, "allowed_threads", lambda: 4)
    monkeypatch.setattr(pool, "cores", lambda: {"0,2", "1,3"})
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    count = pool.num_threads.__wrapped__
    assert count() == 2
    monkeypatch.setenv("WEFT_NUM_THREADS", "4")
    assert count() == 4
    monkeypatch.delenv("WEFT_NUM_THREADS")
    monkeypatch.setenv("WEFT_CPU_FEATURES", "avx512")
    assert count() == 4


def test_cores_of_this_process():
    assert 1 <= len(pool.cores()) <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("seed", range(60))
def test_random_products(seed):
    check(random_case(seed))


@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions(seed):
    check_convolution(seed)
