"""conv_general_dilated: every rule, against a loop over the definition."""

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.harness.rule_checks import check_all, close
from weft import lax, nn, numpy as wnp
from weft._engine.core.trace import typeof
from weft._engine.ops import convolution as conv
from weft._engine.ops.convolution import (
    ConvDimensionNumbers,
    conv_general_dilated,
    conv_general_dilated_p,
    expand_conv,
)
from weft._engine.util.config import Override, enable_x64
from weft._engine.util.errors import ShapeError

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


def slow_conv(lhs, rhs, p):
    """Compute the definition element by element."""
    n = p["dimension_numbers"]
    x, w = lhs.transpose(n.lhs_spec), rhs.transpose(n.rhs_spec)
    groups, batch_groups = p["feature_group_count"], p["batch_group_count"]
    span = lambda size, d: 0 if size == 0 else (size - 1) * d + 1
    sizes = [
        max((span(a, ld) + lo + hi - span(k, rd)) // s + 1, 0)
        for a, (lo, hi), ld, k, rd, s in zip(
            x.shape[2:],
            p["padding"],
            p["lhs_dilation"],
            w.shape[2:],
            p["rhs_dilation"],
            p["window_strides"],
        )
    ]
    batch, features, per_in = x.shape[0] // batch_groups, w.shape[0], w.shape[1]
    out = np.zeros((batch, features, *sizes))
    for b, f, *place in np.ndindex(out.shape):
        group = f // (features // groups)
        row = b + batch * (f // (features // batch_groups))
        for c, *tap in np.ndindex(per_in, *w.shape[2:]):
            at = []
            for q, s, t, rd, (lo, _), ld, a in zip(
                place,
                p["window_strides"],
                tap,
                p["rhs_dilation"],
                p["padding"],
                p["lhs_dilation"],
                x.shape[2:],
            ):
                i = q * s + t * rd - lo
                at.append(i // ld if i % ld == 0 and 0 <= i // ld < a else None)
            if None not in at:
                out[(b, f, *place)] += x[(row, group * per_in + c, *at)] * w[(f, c, *tap)]
    return out.transpose(np.argsort(n.out_spec))


def params(spatial, **changes):
    iota = tuple(range(spatial + 2))
    base = {
        "window_strides": (1,) * spatial,
        "padding": ((0, 0),) * spatial,
        "lhs_dilation": (1,) * spatial,
        "rhs_dilation": (1,) * spatial,
        "dimension_numbers": ConvDimensionNumbers(iota, iota, iota),
        "feature_group_count": 1,
        "batch_group_count": 1,
        "precision": None,
        "preferred_element_type": None,
    }
    return {**base, **changes}


NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
CASES = {
    "plain": ((2, 3, 5), (4, 3, 3), params(1)),
    "strided": ((2, 2, 7), (2, 2, 3), params(1, window_strides=(2,), padding=((1, 2),))),
    "dilated kernel": ((1, 2, 8), (2, 2, 3), params(1, rhs_dilation=(2,), padding=((2, 1),))),
    "dilated image": (
        (1, 2, 4),
        (2, 2, 3),
        params(1, lhs_dilation=(3,), padding=((2, 2),), window_strides=(2,)),
    ),
    "negative padding": ((1, 1, 7), (2, 1, 2), params(1, padding=((-1, -2),))),
    "mixed padding": ((1, 1, 5), (1, 1, 2), params(1, padding=((-2, 3),), lhs_dilation=(2,))),
    "two dims": (
        (2, 2, 4, 5),
        (3, 2, 2, 3),
        params(2, window_strides=(1, 2), padding=((1, 0), (1, 1))),
    ),
    "image layout": (
        (2, 4, 5, 2),
        (2, 3, 2, 3),
        params(
            2,
            dimension_numbers=NHWC,
            window_strides=(2, 1),
            padding=((0, 1), (1, 1)),
            rhs_dilation=(1, 2),
        ),
    ),
    "feature groups": ((2, 4, 5), (6, 2, 2), params(1, feature_group_count=2, padding=((1, 0),))),
    "depthwise": (
        (1, 3, 4, 4),
        (6, 1, 2, 2),
        params(2, feature_group_count=3, window_strides=(2, 2)),
    ),
    "batch groups": ((4, 2, 5), (6, 2, 2), params(1, batch_group_count=2, window_strides=(2,))),
    "pointwise": ((2, 3, 4), (2, 3, 1), params(1)),
    "no spatial dims": ((2, 3), (4, 3), params(0)),
    "odd layout": (
        (5, 3, 2),
        (3, 4, 3),
        params(1, dimension_numbers=ConvDimensionNumbers((2, 1, 0), (1, 0, 2), (1, 2, 0))),
    ),
    "kernel larger than image": ((1, 1, 2), (1, 1, 4), params(1)),
    "few output features": ((2, 6, 5), (2, 6, 3), params(1, padding=((1, 1),), rhs_dilation=(2,))),
    "few output features, spread": (
        (2, 6, 5),
        (2, 6, 2),
        params(1, padding=((2, -1),), lhs_dilation=(3,)),
    ),
    "few output features, nowhere": ((2, 6, 2), (1, 6, 4), params(1)),
    "empty batch": ((0, 2, 4), (3, 2, 2), params(1)),
}


@pytest.mark.parametrize("case", CASES)
def test_convolution(case):
    left, right, p = CASES[case]
    lhs, rhs = rng.standard_normal(left), rng.standard_normal(right)
    want = slow_conv(lhs, rhs, p)
    close(conv_general_dilated_p.bind(lhs, rhs, **p), want, 1e-10)
    close(expand_conv(lhs, rhs, **p), want, 1e-10)
    check_all(conv_general_dilated_p, [lhs, rhs], p, linear=[(0,), (1,)], lower=False)


IMAGES = {"NCHW": ((0, 1, 2, 3), (0, 1, 2, 3)), "NHWC": ((0, 3, 1, 2), (3, 2, 0, 1))}
COMPILED = {
    "3x3": ((3, 3), 5, 7, {}),
    "3x3 same": ((3, 3), 16, 20, {"padding": ((1, 1), (1, 1))}),
    "pointwise": ((1, 1), 19, 6, {}),
    "pointwise strided": ((1, 1), 9, 6, {"window_strides": (2, 2)}),
    "strided": ((3, 3), 3, 17, {"window_strides": (2, 2), "padding": ((1, 1), (0, 1))}),
    "more stride than window": ((2, 1), 3, 17, {"window_strides": (3, 2)}),
    "wide stem": ((7, 7), 3, 8, {"window_strides": (2, 2), "padding": ((3, 3), (3, 3))}),
    "apart": ((3, 2), 6, 8, {"rhs_dilation": (2, 3), "padding": ((2, 2), (0, 0))}),
    "spread": ((3, 2), 6, 8, {"lhs_dilation": (2, 3), "padding": ((2, 1), (0, 3))}),
    "spread and strided": ((3, 2), 6, 8, {"lhs_dilation": (2, 3), "window_strides": (2, 1)}),
    "groups": ((3, 3), 12, 8, {"feature_group_count": 4}),
    "depthwise": ((3, 3), 18, 18, {"feature_group_count": 18, "padding": ((1, 1), (1, 1))}),
    "depthwise strided": ((3, 3), 6, 12, {"feature_group_count": 6, "window_strides": (2, 2)}),
    "batch groups": ((3, 3), 12, 8, {"batch_group_count": 2}),
    "few output features": ((3, 3), 20, 3, {"padding": ((1, 1), (1, 1))}),
    "few output features, apart": (
        (3, 2),
        20,
        2,
        {"rhs_dilation": (2, 3), "padding": ((2, 2), (0, 1))},
    ),
    "few output features, spread": (
        (3, 2),
        20,
        3,
        {"lhs_dilation": (2, 3), "padding": ((2, 1), (-1, 3))},
    ),
}


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_with_gradients(case, layout):
    """Native code against NumPy: the result through an activation, and both cotangents."""
    window, features, out, changes = COMPILED[case]
    image, kernel = IMAGES[layout]
    numbers = ConvDimensionNumbers(image, kernel, image)
    groups = changes.get("feature_group_count", 1)
    place = lambda shape, spec: tuple(shape[i] for i in np.argsort(spec))
    x = rng.standard_normal(place((4, features, 13, 11), image)).astype(np.float32)
    w = rng.standard_normal(place((out, features // groups, *window), kernel)).astype(np.float32)
    bias = rng.standard_normal(place((1, out, 1, 1), image)).astype(np.float32)
    p = params(2, **changes, dimension_numbers=numbers)
    layer = lambda x, w: wnp.tanh(conv_general_dilated_p.bind(x, w, **p) / 5 + bias)
    value = lambda x, w: (layer(x, w) ** 2).sum()
    got = weft.jit(layer)(x, w), *weft.jit(weft.grad(value, (0, 1)))(x, w)
    with Override(backend="reference"):
        want = layer(x, w), *weft.grad(value, (0, 1))(x, w)
    for g, v in zip(got, want):
        np.testing.assert_allclose(g, v, rtol=1e-4, atol=2e-5 * max(1, np.abs(v).max()))


def test_one_matmul_and_no_patches():
    """A layer is one matmul that reads its padded image; no value of the size of its patches is
    ever in memory."""
    x, w, b = (
        np.ones((4, 20, 20, 32), np.float32),
        np.ones((3, 3, 32, 40), np.float32),
        np.ones(40, np.float32),
    )
    layer = lambda x, w, b: nn.relu(
        lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        + b
    )
    scheduled = weft.jit(layer).lower(x, w, b).compile().stages.scheduled
    assert (scheduled.kernel_count, scheduled.gemm_count, len(scheduled.epilogues)) == (1, 1, 1)
    assert scheduled.program.arena_bytes < 1.3 * x.nbytes
    valid = lambda x, w: lax.conv_general_dilated(
        x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    scheduled = weft.jit(valid).lower(x, w).compile().stages.scheduled
    assert (scheduled.kernel_count, scheduled.gemm_count, scheduled.program.arena_bytes) == (
        0,
        1,
        0,
    )


@pytest.mark.parametrize(
    "shape, spec", [((2, 9, 11, 3), "NHWC"), ((2, 3, 9, 11), "NCHW"), ((2, 11, 3), "NWC")], ids=str
)
def test_an_image_is_padded_by_rows(shape, spec):
    """Features move together with the positions before them: no element is copied individually."""
    kernel, spatial = "".join(x for x in spec if x not in "NC") + "IO", len(shape) - 2
    run = lambda x, w: lax.conv_general_dilated(
        x, w, (2,) * spatial, [(2, 3), (1, 0)][:spatial], dimension_numbers=(spec, kernel, spec)
    )
    x, w = (
        rng.standard_normal(shape).astype(np.float32),
        rng.standard_normal((*(4, 3)[:spatial], 3, 8)).astype(np.float32),
    )
    compiled = weft.jit(run).lower(x, w).compile()
    text = compiled.stages.scheduled.text()
    assert "kernel k0" in text and "interleave" not in text
    with Override(backend="reference"):
        want = run(x, w)
    np.testing.assert_allclose(compiled(x, w), want, rtol=1e-4, atol=1e-4)


def test_few_output_features_are_one_matmul():
    """Pixels are multiplied by the whole kernel at once; one kernel per phase of the result adds
    the taps."""
    cases = [
        ((2, 12, 12, 32), (3, 3, 32, 3), {}, 2),
        ((2, 12, 12, 64), (4, 4, 64, 2), {"lhs_dilation": (2, 2)}, 6),
    ]
    for image, kernel, changes, most in cases:
        run = lambda x, w, changes=changes: lax.conv_general_dilated(
            x, w, (1, 1), [(1, 1), (1, 1)], **changes, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        scheduled = (
            weft.jit(run)
            .lower(np.ones(image, np.float32), np.ones(kernel, np.float32))
            .compile()
            .stages.scheduled
        )
        assert scheduled.gemm_count == 1 and scheduled.kernel_count <= most


def test_a_depthwise_layer_is_one_kernel():
    x, w = np.ones((2, 12, 12, 32), np.float32), np.ones((3, 3, 1, 32), np.float32)
    layer = lambda x, w: nn.relu(
        lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=32
        )
    )
    scheduled = weft.jit(layer).lower(x, w).compile().stages.scheduled
    assert scheduled.gemm_count == 0 and scheduled.kernel_count <= 2


def test_halves_accumulate_in_float32():
    x = np.ones((1, 1, 4097), ml_dtypes.bfloat16)
    out = conv_general_dilated(x, x, (1,), "VALID", preferred_element_type=np.float32)
    assert out.dtype == np.float32 and np.asarray(out)[0, 0, 0] == 4097
    assert conv_general_dilated(x, x, (1,), "VALID").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_gradients_of_a_wider_result_have_the_operands_types(dtype):
    p = params(2, preferred_element_type=np.dtype(np.float32))
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 3, 7, 8), (4, 3, 3, 3)))
    ct = rng.standard_normal(conv_general_dilated_p.bind(x, w, **p).shape).astype(
        np.float32
    )  # more digits than the operands have
    out, pullback = weft.vjp(lambda x, w: conv_general_dilated_p.bind(x, w, **p), x, w)
    dx, dw = pullback(ct)
    assert out.dtype == np.float32 and dx.dtype == dw.dtype == dtype
    wide = dict(p, preferred_element_type=None)
    exact = weft.vjp(
        lambda x, w: conv_general_dilated_p.bind(x, w, **wide),
        x.astype(np.float32),
        w.astype(np.float32),
    )[1](ct)
    for got, want in zip((dx, dw), exact):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want).astype(dtype))


def test_gradients_of_a_wider_result_need_no_promotion():
    x, w = np.ones((1, 3, 8), ml_dtypes.bfloat16), np.ones((2, 3, 3), ml_dtypes.bfloat16)
    with weft.numpy_dtype_promotion("strict"):
        f = lambda x, w: weft.lax.conv_general_dilated(
            x, w, (1,), "VALID", preferred_element_type=np.float32
        ).sum()
        dx, dw = weft.grad(f, (0, 1))(x, w)
    assert dx.dtype == dw.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(dw, np.float32), 6)


@pytest.mark.parametrize(
    "groups", [{}, {"feature_group_count": 2}, {"batch_group_count": 2}], ids=str
)
@pytest.mark.parametrize("spatial", [(), (5,)])
def test_of_booleans(spatial, groups):
    """True if any product is true; also without spatial dims, and with one feature per group."""
    rng = np.random.default_rng(0)
    parts = groups.get("batch_group_count", 1), groups.get("feature_group_count", 1)
    x = rng.random((2 * parts[0], parts[1] * 2, *spatial)) < 0.4
    for features in (1, 3):
        w = rng.random((features * parts[0] * parts[1], 2, *[2] * len(spatial))) < 0.4
        f = lambda x, w: weft.lax.conv_general_dilated(x, w, (1,) * len(spatial), "VALID", **groups)
        result = weft.jit(f)(x, w)
        assert result.dtype == bool
        np.testing.assert_array_equal(
            result, np.asarray(f(x.astype(np.float32), w.astype(np.float32))) > 0
        )


def test_padding_by_name():
    x, w = rng.standard_normal((1, 1, 6)), rng.standard_normal((1, 1, 4))
    for stride in (1, 2, 3):
        out = conv_general_dilated(x, w, (stride,), "SAME")
        assert out.shape == (1, 1, -(-6 // stride))
    assert conv.padtype_to_pads((5, 6), (3, 2), (2, 2), "SAME") == [(1, 1), (0, 0)]
    assert conv.padtype_to_pads((6,), (4,), (1,), "SAME_LOWER") == [(2, 1)]
    with pytest.raises(ValueError, match="not understood"):
        conv.padtype_to_pads((5,), (3,), (1,), "FULL")


def test_conv_transpose_is_the_gradient_of_conv():
    x, w = rng.standard_normal((2, 7, 3)), rng.standard_normal((3, 3, 4))  # WIO
    numbers = ("NWC", "WIO", "NWC")
    forward = lambda v: np.asarray(
        conv_general_dilated(v, w, (2,), "VALID", dimension_numbers=numbers)
    )
    ct = rng.standard_normal(forward(x).shape)
    back = np.asarray(
        conv.conv_transpose(ct, w, (2,), "VALID", dimension_numbers=numbers, transpose_kernel=True)
    )
    np.testing.assert_allclose(np.vdot(forward(x), ct), np.vdot(x, back), rtol=1e-10)


def test_patches_hold_the_windows():
    x = rng.standard_normal((2, 3, 5, 4))
    out = np.asarray(conv.conv_general_dilated_patches(x, (2, 3), (1, 1), "VALID"))
    assert out.shape == (2, 18, 4, 2)
    for i, j in np.ndindex(4, 2):
        np.testing.assert_allclose(out[:, :, i, j], x[:, :, i : i + 2, j : j + 3].reshape(2, -1))


def test_dimension_numbers_in_every_form():
    assert conv.conv_dimension_numbers((1, 2, 3, 3), (1, 2, 3, 3), ("NHWC", "HWIO", "NHWC")) == NHWC
    assert conv.conv_dimension_numbers((1, 2, 3), (1, 2, 3), None).out_spec == (0, 1, 2)
    for wrong in [
        ("NHWC", "HWIO"),
        ("NHWC", "HWIO", "NHC"),
        ("NHWC", "HWII", "NHWC"),
        ("NHWC", "XWIO", "NHWC"),
    ]:
        with pytest.raises(ValueError, match="conv_general_dilated"):
            conv.conv_dimension_numbers((1, 2, 3, 3), (1, 2, 3, 3), wrong)


@pytest.mark.parametrize(
    ("left", "right", "changes", "message"),
    [
        ((2, 3, 5), (4, 2, 3), {}, "takes 2 in each"),
        ((2, 3, 5), (4, 3), {}, "same number of dims"),
        ((2, 4, 5), (3, 2, 3), {"feature_group_count": 2}, "do not divide"),
        ((3, 4, 5), (4, 4, 3), {"batch_group_count": 2}, "do not divide"),
        ((2, 3, 5), (4, 3, 3), {"window_strides": (1, 1)}, "one entry for each"),
        ((2, 3, 5), (4, 3, 3), {"window_strides": (0,)}, "at least 1"),
        ((2, 3, 5), (4, 3, 3), {"padding": ((-3, -3),)}, "larger than the image"),
        ((2, 4, 5), (4, 2, 3), {"batch_group_count": 2, "feature_group_count": 2}, "cannot both"),
    ],
)
def test_what_does_not_fit(left, right, changes, message):
    avals = [typeof(np.zeros(s, np.float32)) for s in (left, right)]
    with pytest.raises(ShapeError, match=message):
        conv_general_dilated_p.abstract(avals, params(1, **changes))


def test_padding_is_pairs():
    with pytest.raises(ValueError, match=r"the padding argument must be .* got \(3, 3\)"):
        lax.conv_general_dilated_patches(
            np.ones((1, 10, 10, 5), np.float32), (5, 5), window_strides=(1, 1), padding=(3, 3)
        )
