"""Programs whose products run in tiles: products, convolutions, gradients and attention, on one device and on a mesh."""

import contextlib

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness import tile_emulator, tile_machine
from weft import lax
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.toolchain import target, tile_permission
from weft.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.skipif(bool(tile_machine.reason()), reason=tile_machine.reason())


@pytest.fixture(autouse=True)
def tiles(monkeypatch):
    tile_machine.use(monkeypatch)


def array(*shape, seed=0):
    return wnp.asarray(np.random.default_rng(seed).standard_normal(shape), "bfloat16")


def attention(q, k, v):
    scores = wnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
    scores = wnp.where(wnp.tril(wnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    weights = weft.nn.softmax(scores.astype("float32"), -1).astype(q.dtype)
    return wnp.einsum("bhqk,bhkd->bhqd", weights, v)


def convolution(*strides, numbers=("NCHW", "OIHW", "NCHW"), **options):
    return lambda image, kernel: lax.conv_general_dilated(
        image, kernel, strides, "SAME", dimension_numbers=numbers, **options
    )


def gradient(function):
    def sum_of(*arguments):
        return function(*arguments).astype("float32").sum()

    return lambda *arguments: weft.grad(sum_of, tuple(range(len(arguments))))(*arguments)


CASES = {
    "product": (lambda x, w: x @ w, (100, 300), (300, 70)),
    "epilogue": (lambda x, w, b: weft.nn.gelu(x @ w + b), (100, 300), (300, 70), (70,)),
    "row sums": (lambda x, w: (x @ w).sum(1), (100, 300), (300, 70)),
    "batched": (lambda x, w: x @ w, (4, 50, 60), (4, 60, 70)),
    "transposed": (lambda x, w: x.T @ w.T, (300, 100), (70, 300)),
    "vmap": (weft.vmap(lambda x, w: x @ w, (0, None)), (3, 40, 50), (50, 60)),
    "scan": (
        lambda x, w: lax.scan(lambda c, wi: (wnp.tanh(c @ wi / 8), None), x, w)[0],
        (40, 64),
        (3, 64, 64),
    ),
    "NCHW": (convolution(1, 1), (2, 16, 20, 20), (32, 16, 3, 3)),
    "NHWC": (
        convolution(2, 2, numbers=("NHWC", "HWIO", "NHWC")),
        (2, 20, 20, 16),
        (3, 3, 16, 32),
    ),
    "groups": (convolution(1, 1, feature_group_count=2), (2, 32, 12, 12), (64, 16, 3, 3)),
    "dilated": (convolution(1, 1, rhs_dilation=(2, 2)), (1, 16, 15, 15), (24, 16, 3, 3)),
    "transposed convolution": (
        convolution(1, 1, lhs_dilation=(2, 2)),
        (1, 16, 9, 9),
        (24, 16, 3, 3),
    ),
    "attention": (attention, *[(2, 4, 64, 64)] * 3),
    "ragged": (
        lambda x, w: lax.ragged_dot(x, w, wnp.array([10, 0, 50, 40])),
        (100, 64),
        (4, 64, 48),
    ),
}


def in_float32(function):
    return lambda *arguments: function(*[x.astype("float32") for x in arguments])


@contextlib.contextmanager
def products_in_tiles():
    """Check that a block multiplies in tiles, if they are emulated and so counted."""
    if tile_machine.has_tiles():
        yield
        return
    tile_emulator.reset()
    yield
    assert tile_emulator.counts()["tdpbf16ps"] > 0


def check(function, arguments):
    """Compare a program in tiles with the same program in float32, which has none."""
    with products_in_tiles():
        results = weft.tree.leaves(weft.jit(function)(*arguments))
        results = [np.asarray(x, np.float64) for x in results]
    wide = weft.tree.leaves(weft.jit(in_float32(function))(*arguments))
    for x, y in zip(results, wide, strict=True):
        y = np.asarray(y, np.float64)
        np.testing.assert_allclose(x, y, rtol=2**-7, atol=2**-6 * np.abs(y).max())


@pytest.mark.parametrize("name", CASES)
def test_programs(name):
    function, *shapes = CASES[name]
    check(function, [array(*shape, seed=i) for i, shape in enumerate(shapes)])


@pytest.mark.parametrize(
    "name", ["epilogue", "NCHW", "NHWC", "groups", "attention", "ragged", "scan"]
)
def test_gradients(name):
    function, *shapes = CASES[name]
    check(gradient(function), [array(*shape, seed=i) for i, shape in enumerate(shapes)])


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_integers_are_exact(kind):
    limits = np.iinfo(kind)
    rng = np.random.default_rng(3)
    x, w = (
        rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        for shape in [(70, 500), (500, 90)]
    )
    program = weft.jit(lambda x, w: lax.dot(x, w, preferred_element_type="int32"))
    np.testing.assert_array_equal(program(x, w), x.astype(np.int32) @ w.astype(np.int32))
    image, kernel = (
        rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        for shape in [(2, 8, 10, 10), (20, 8, 3, 3)]
    )
    program = weft.jit(convolution(1, 1, preferred_element_type=np.int32))
    wide = weft.jit(convolution(1, 1))
    np.testing.assert_array_equal(
        program(image, kernel), wide(image.astype(np.int32), kernel.astype(np.int32))
    )


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("x", "y")])
def test_a_mesh_gives_the_values_of_one_device(spec):
    mesh = weft.make_mesh((2, 2), ("x", "y"))
    x, w = array(160, 256), array(256, 192, seed=1)
    program = weft.jit(lambda x, w: wnp.dot(x, w, preferred_element_type="float32"))
    alone = np.asarray(program(x, w))
    with products_in_tiles():
        sharded = np.asarray(program(weft.device_put(x, NamedSharding(mesh, spec)), w))
    np.testing.assert_allclose(sharded, alone, rtol=1e-5, atol=1e-4)


def test_the_default_level_has_no_tiles(monkeypatch):
    monkeypatch.delenv("WEFT_CPU_FEATURES")
    assert not target.current().has_tiles and not gemm.machine().tile_speeds
    assert target.tile_unit() == "AMX, not in use (choose with WEFT_CPU_FEATURES=amx)"
    x, w = array(100, 300), array(300, 70)
    if not tile_machine.has_tiles():
        tile_emulator.reset()
    weft.jit(lambda x, w: x @ w + 1)(x, w).block_until_ready()
    assert tile_machine.has_tiles() or not tile_emulator.counts()


def test_without_permission_vectors_are_used(monkeypatch):
    assert target.tile_unit() == "AMX, in use"
    monkeypatch.setattr(tile_permission, "request", lambda: False)
    target._make.cache_clear()
    assert not target.current().has_tiles
    assert target.tile_unit() == "AMX, which the system refuses to this process"
