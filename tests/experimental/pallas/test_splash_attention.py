"""Attention under static masks: masks as objects and arrays, and kernels against the same computation on NumPy."""

import importlib

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.compat import install_as_jax, uninstall
from weft.errors import ShapeError
from weft.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as kernels,
    splash_attention_mask as masks,
)
from weft.sharding import NamedSharding, PartitionSpec as P

RNG = np.random.default_rng(0)
HEADS, T, S, D = 4, 6, 8, 5
RANDOM = RNG.random((T, S)) < 0.6
BY_HEAD = masks.MultiHeadMask(
    [
        masks.CausalMask((T, S)),
        masks.LocalMask((T, S), (3, 2), 1),
        masks.FullMask((T, S)),
        masks.NumpyMask(RANDOM),
    ]
)
CAUSAL = masks.MultiHeadMask([masks.CausalMask((T, S))] * HEADS)
FULL = masks.MultiHeadMask([masks.FullMask((T, S))] * HEADS)


def draw(*shape):
    return RNG.standard_normal(shape).astype("f4")


def expected(mask, q, k, v, segments=None, cap=None, sinks=None):
    """Return the attention and the logarithms of sums, in float64."""
    k, v = (np.repeat(x, len(q) // len(x), axis=0).astype("f8") for x in (k, v))
    scores = np.einsum("htd,hsd->hts", q.astype("f8"), k)
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    if segments is not None:
        mask = mask & (segments.q[:, None] == segments.kv)
    weights = np.exp(np.where(mask, scores, -np.inf))
    sums = weights.sum(-1) + (0 if sinks is None else np.exp(sinks)[:, None])
    return np.einsum("hts,hsd->htd", weights / sums[..., None], v), np.log(sums)


# ---- masks


@pytest.mark.parametrize(
    "mask, rule",
    [
        (masks.CausalMask((T, S)), lambda i, j: j <= i),
        (masks.CausalMask((T, S), 2), lambda i, j: j <= i + 2),
        (masks.LocalMask((T, S), (2, 1), 0), lambda i, j: i - 2 <= j <= i + 1),
        (masks.LocalMask((T, S), (None, 0), -1), lambda i, j: j <= i - 1),
        (masks.LocalMask((T, S), (1, None), 3), lambda i, j: j >= i + 2),
        (masks.LocalMask((T, S), (None, None), 0), lambda i, j: True),
        (masks.ChunkedCausalMask((T, S), 3), lambda i, j: j <= i and i // 3 == j // 3),
        (masks.FullMask((T, S)), lambda i, j: True),
        (masks.NumpyMask(RANDOM), lambda i, j: RANDOM[i, j]),
        (masks.CausalMask((T, S)) | masks.NumpyMask(RANDOM), lambda i, j: j <= i or RANDOM[i, j]),
        (masks.CausalMask((T, S)) & masks.NumpyMask(RANDOM), lambda i, j: j <= i and RANDOM[i, j]),
    ],
)
def test_masks_hold_where_their_rule_does(mask, rule):
    whole = np.array([[bool(rule(i, j)) for j in range(S)] for i in range(T)])
    assert mask.shape == (T, S) and mask[:, :].dtype == bool
    np.testing.assert_array_equal(mask[:, :], whole)
    np.testing.assert_array_equal(mask[1:4, 2:], whole[1:4, 2:])


def test_functions_give_the_same_masks_as_arrays():
    np.testing.assert_array_equal(
        masks.make_causal_mask((T, S), 1), masks.CausalMask((T, S), 1)[:, :]
    )
    np.testing.assert_array_equal(
        masks.make_local_attention_mask((T, S), (1, 2), offset=1),
        masks.LocalMask((T, S), (1, 2), 1)[:, :],
    )
    np.testing.assert_array_equal(
        masks.make_chunk_attention_mask((T, S), 2), masks.ChunkedCausalMask((T, S), 2)[:, :]
    )
    drawn = masks.make_random_mask((200, 100), 0.25, 3)
    assert drawn.dtype == bool and abs(drawn.mean() - 0.75) < 0.02
    np.testing.assert_array_equal(drawn, masks.make_random_mask((200, 100), 0.25, 3))


def test_masks_compare_by_value():
    makers = [
        lambda: masks.CausalMask((T, S)), lambda: masks.CausalMask((T, S), 1), lambda: masks.LocalMask((T, S), (1, 1), 0),
        lambda: masks.LocalMask((T, S), (1, 2), 0), lambda: masks.ChunkedCausalMask((T, S), 2), lambda: masks.FullMask((T, S)),
        lambda: masks.FullMask((S, T)), lambda: masks.NumpyMask(RANDOM.copy()), lambda: masks.NumpyMask(~RANDOM),
        lambda: masks.CausalMask((T, S)) | masks.FullMask((T, S)), lambda: masks.CausalMask((T, S)) & masks.FullMask((T, S)),
        lambda: masks.MultiHeadMask([masks.CausalMask((T, S))] * 2),
    ]  # fmt: skip
    first = [make() for make in makers]
    assert len({*first, *[make() for make in makers]}) == len(makers)
    assert all(a == b for a, b in zip(first, [make() for make in makers]))


def test_masks_of_several_heads():
    assert BY_HEAD.shape == (HEADS, T, S)
    np.testing.assert_array_equal(
        BY_HEAD[1:3, :2, 3:], np.stack([m[:2, 3:] for m in BY_HEAD.masks[1:3]])
    )
    np.testing.assert_array_equal(BY_HEAD[3, :, :], RANDOM)


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: masks.MultiHeadMask([]), ValueError),
        (lambda: masks.MultiHeadMask([BY_HEAD]), ValueError),
        (lambda: masks.MultiHeadMask([masks.FullMask((2, 3)), masks.FullMask((3, 2))]), ValueError),
        (lambda: masks.CausalMask((2, 2)) | masks.CausalMask((2, 3)), ValueError),
        (lambda: masks.NumpyMask(np.ones(3, bool)), ValueError),
        (lambda: masks.NumpyMask(np.ones((3, 3))), ValueError),
        (lambda: masks.make_chunk_attention_mask((2, 2), 0), ValueError),
        (lambda: masks.CausalMask((2, 2)) and 1, NotImplementedError),
        (lambda: masks.CausalMask((2, 2))[:1, :1, :1], NotImplementedError),
    ],
)
def test_wrong_masks_are_refused(make, error):
    with pytest.raises(error):
        make()


# ---- kernels


def make(mask=BY_HEAD, **options):
    return kernels.make_splash_mha(mask, head_shards=1, q_seq_shards=1, **options)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize(
    "mask",
    [BY_HEAD, CAUSAL, FULL, BY_HEAD[:, :, :]],
    ids=["by head", "equal heads", "full", "array"],
)
def test_kernels_compute_attention(key_heads, cap, mask):
    q, k, v = draw(HEADS, T, D), draw(key_heads, S, D), draw(key_heads, S, 3)
    whole = mask if isinstance(mask, np.ndarray) else mask[:, :, :]
    out, sums = expected(whole, q, k, v, cap=cap)
    kernel = make(mask, attn_logits_soft_cap=cap)
    np.testing.assert_allclose(kernel(q, k, v), out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weft.jit(kernel)(q, k, v), out, rtol=1e-4, atol=1e-5)
    got, (residual,) = make(mask, attn_logits_soft_cap=cap, save_residuals=True)(q, k, v)
    np.testing.assert_allclose(got, out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(residual, sums, rtol=1e-4, atol=1e-5)


def test_segments_and_sinks():
    q, k, v, sinks = draw(HEADS, T, D), draw(HEADS, S, D), draw(HEADS, S, D), draw(HEADS)
    segments = kernels.SegmentIds(np.arange(T) // 4, np.arange(S) // 4)
    kernel, mask = make(CAUSAL), CAUSAL[:, :, :]
    np.testing.assert_allclose(
        kernel(q, k, v, segments), expected(mask, q, k, v, segments)[0], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        kernel(q, k, v, sinks=sinks), expected(mask, q, k, v, sinks=sinks)[0], rtol=1e-4, atol=1e-5
    )


def test_one_head_of_keys_without_its_dim():
    q, k, v = draw(HEADS, T, D), draw(S, D), draw(S, D)
    kernel = kernels.make_splash_mqa_single_device(BY_HEAD)
    np.testing.assert_allclose(
        kernel(q, k, v), expected(BY_HEAD[:, :, :], q, k[None], v[None])[0], rtol=1e-4, atol=1e-5
    )


def test_one_head_alone():
    q, k, v = draw(T, D), draw(S, D), draw(S, D)
    out, (sums,) = kernels.attention_reference(
        RANDOM | (np.arange(S) == 0), q, k, v, None, save_residuals=True
    )
    want, logs = expected((RANDOM | (np.arange(S) == 0))[None], q[None], k[None], v[None])
    np.testing.assert_allclose(out, want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, logs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_results_have_the_dtype_of_the_queries(dtype):
    q, k, v = (wnp.asarray(draw(HEADS, n, D), dtype) for n in (T, S, S))
    out = make()(q, k, v)
    want = expected(BY_HEAD[:, :, :], *(np.asarray(x, "f8") for x in (q, k, v)))[0]
    assert out.dtype == q.dtype
    np.testing.assert_allclose(np.asarray(out, "f8"), want, atol=0.02)


def test_derivatives_and_batches():
    q, k, v = draw(3, HEADS, T, D), draw(3, HEADS, S, D), draw(3, HEADS, S, D)
    segments = kernels.SegmentIds(np.zeros((3, T), int), np.zeros((3, S), int))
    kernel = make(attn_logits_soft_cap=3.0)
    batched = weft.vmap(kernel)(q, k, v, segment_ids=segments)
    np.testing.assert_allclose(
        batched, np.stack([kernel(*args) for args in zip(q, k, v)]), rtol=1e-5, atol=1e-6
    )
    weft.test_util.check_grads(kernel, (q[0], k[0], v[0]), order=1, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("mask", [BY_HEAD, CAUSAL, FULL], ids=["by head", "equal heads", "full"])
def test_kernels_are_split_by_shard_map(mask):
    mesh = weft.make_mesh((2, 2), ("heads", "queries"), devices=weft.devices()[:4])
    kernel = kernels.make_splash_mha(mask, head_shards=2, q_seq_shards=2)
    spec = kernel.manual_sharding_spec(NamedSharding(mesh, P("heads", "queries")))
    q, k, v = draw(HEADS, T, D), draw(HEADS, S, D), draw(HEADS, S, D)
    split = weft.shard_map(
        lambda kernel, q, k, v: kernel(q, k, v),
        mesh=mesh,
        in_specs=(spec, P("heads", "queries"), P("heads"), P("heads")),
        out_specs=P("heads", "queries"),
    )
    np.testing.assert_allclose(split(kernel, q, k, v), kernel(q, k, v), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [
        ((HEADS, T, D), (3, S, D), (3, S, D)),
        ((HEADS, T, D), (4, S, D), (4, T, D)),
        ((HEADS, S, D), (4, S, D), (4, S, D)),
        ((3, T, D), (3, S, D), (3, S, D)),
    ],
    ids=["heads of keys", "values", "queries", "heads"],
)
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(ShapeError, match="do not fit a mask"):
        make()(*[draw(*shape) for shape in shapes])


def test_names_under_the_shim():
    install_as_jax()
    try:
        module = importlib.import_module("jax.experimental.pallas.ops.tpu.splash_attention")
        assert (
            module.make_splash_mha
            is module.splash_attention_kernel.make_splash_mha
            is kernels.make_splash_mha
        )
        assert module.CausalMask is module.splash_attention_mask.CausalMask is masks.CausalMask
    finally:
        uninstall()
