"""Activations, softmax and related functions, attention and initializers: against NumPy, and their
derivatives."""

import math

import numpy as np
import pytest
from scipy import special

import weft
import weft.numpy as wnp
from weft import nn, random

X = np.linspace(-7, 7, 41).astype(np.float32)
sigmoid = special.expit


def softplus(x):
    return np.logaddexp(x, 0)


ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "softplus": softplus,
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "log_sigmoid": special.log_expit,
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip(x + 1, 0, 2) / 2,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation(name):
    function = getattr(nn, name)
    expected = ACTIVATIONS[name](X.astype(np.float64))
    for apply in (function, weft.jit(function)):
        out = apply(X)
        assert out.dtype == np.float32
        np.testing.assert_allclose(np.asarray(out), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_derivative_of_activation(name):
    """Against a central difference, away from kinks: the grid misses them."""
    x, step = X.astype(np.float64) + 0.013, 1e-5
    expected = (ACTIVATIONS[name](x + step) - ACTIVATIONS[name](x - step)) / (2 * step)
    slopes = weft.vmap(weft.grad(getattr(nn, name)))(x.astype(np.float32))
    np.testing.assert_allclose(np.asarray(slopes), expected, rtol=1e-3, atol=1e-4)


def test_relu_at_zero_has_derivative_zero():
    assert float(weft.grad(nn.relu)(0.0)) == 0.0
    assert np.isnan(float(nn.relu(np.nan)))


def test_large_inputs_have_finite_derivatives():
    for name in ("elu", "selu", "celu", "softplus", "silu", "gelu", "mish", "log_sigmoid"):
        for x in (-200.0, 200.0):
            assert np.isfinite(float(weft.grad(getattr(nn, name))(x))), (name, x)


def test_exact_gelu():
    expected = X * special.ndtr(X.astype(np.float64))
    np.testing.assert_allclose(
        np.asarray(nn.gelu(X, approximate=False)), expected, rtol=2e-5, atol=1e-6
    )


def test_glu():
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(nn.glu(x)), x[:, :4] * sigmoid(x[:, 4:]), rtol=1e-5)
    with pytest.raises(ValueError, match="odd size"):
        nn.glu(x[:, :3])


LOGITS = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(np.float32) * 4


@pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
def test_softmax_and_its_logarithm(axis):
    expected = special.softmax(LOGITS.astype(np.float64), axis)
    np.testing.assert_allclose(np.asarray(nn.softmax(LOGITS, axis)), expected, rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(nn.log_softmax(LOGITS, axis)), np.log(expected), rtol=1e-5, atol=1e-5
    )


def test_softmax_of_huge_values():
    out = nn.softmax(np.array([1e4, 1e4, -1e4], np.float32))
    assert np.asarray(out).tolist() == [0.5, 0.5, 0.0]


def test_masked_softmax():
    mask = LOGITS > -2
    terms = np.where(mask, np.exp(LOGITS.astype(np.float64)), 0)
    expected = terms / terms.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(nn.softmax(LOGITS, where=mask)), expected, rtol=1e-5)
    log = np.asarray(nn.log_softmax(LOGITS, where=mask))
    assert np.isneginf(log[~mask]).all()
    np.testing.assert_allclose(log[mask], np.log(expected[mask]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [nn.softmax, nn.log_softmax])
def test_masked_softmax_of_empty_rows_and_huge_masked_values(function):
    x, where = (
        wnp.array([[1.0, 2.0, 3e4], [4.0, 5.0, 6.0]]),
        wnp.array([[True, True, False], [False, False, False]]),
    )
    low = 0.0 if function is nn.softmax else -np.inf
    want = function(x[0, :2])
    np.testing.assert_allclose(function(x, where=where), [[*want, low], [low] * 3], rtol=1e-6)
    slope = weft.grad(lambda x: wnp.sum(wnp.where(where, function(x, where=where), 0) * x))(x)
    alone = weft.grad(lambda x: wnp.sum(function(x) * x))(x[0, :2])
    np.testing.assert_allclose(slope, [[*alone, 0], [0, 0, 0]], rtol=1e-5)


def test_activations_of_integers():
    """Those that compose with Python floats give weakly typed floats."""
    loose = [
        "relu6",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "hard_sigmoid",
        "hard_silu",
        "sparse_plus",
        "sparse_sigmoid",
    ]
    for name in [*loose, "soft_sign", "mish", "log_sigmoid", "squareplus", "gelu"]:
        out, x = getattr(nn, name)(wnp.arange(-2, 3)), np.arange(-2.0, 3)
        assert (out.dtype, out.weak_type) == (np.float32, name in loose), name
        want = ACTIVATIONS[name](x) if name in ACTIVATIONS else getattr(nn, name)(wnp.array(x))
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
        assert getattr(nn, name)(2).weak_type == (name != "gelu")


def test_derivative_of_log_softmax():
    x, labels = LOGITS[0], np.eye(6, dtype=np.float32)[[0, 3, 5, 1, 2]]
    gradient = weft.grad(lambda v: -wnp.sum(labels * nn.log_softmax(v)))(x)
    np.testing.assert_allclose(
        np.asarray(gradient), special.softmax(x, -1) - labels, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("axis", [None, 0, (1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp(axis, keepdims):
    x = LOGITS.astype(np.float64)
    expected = special.logsumexp(x, axis, keepdims=keepdims)
    np.testing.assert_allclose(
        np.asarray(nn.logsumexp(LOGITS, axis, keepdims=keepdims)), expected, rtol=1e-5
    )
    count = x.size / np.size(expected)
    mean = np.asarray(nn.logmeanexp(LOGITS, axis, keepdims=keepdims))
    np.testing.assert_allclose(mean, expected - np.log(count), rtol=1e-4, atol=1e-5)


def test_logsumexp_with_weights_and_sign():
    b = np.random.default_rng(2).standard_normal(LOGITS.shape).astype(np.float32)
    expected, sign = special.logsumexp(LOGITS.astype(np.float64), -1, b, return_sign=True)
    result, found_sign = nn.logsumexp(LOGITS, -1, b, return_sign=True)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(np.asarray(found_sign), sign)


def test_logsumexp_of_nothing_and_of_infinities():
    assert float(nn.logsumexp(np.array([-np.inf, -np.inf], np.float32))) == -np.inf
    assert float(nn.logsumexp(np.array([np.inf, 1.0], np.float32))) == np.inf


def test_log1mexp():
    x = np.array([1e-6, 0.1, 0.6931, 0.7, 5.0, 50.0], np.float32)
    exact = x.astype(np.float64)
    expected = np.where(exact < 1, np.log(-np.expm1(-exact)), np.log1p(-np.exp(-exact)))
    np.testing.assert_allclose(np.asarray(nn.log1mexp(x)), expected, rtol=1e-5)


def test_standardize():
    expected = (LOGITS - LOGITS.mean(-1, keepdims=True)) / np.sqrt(
        LOGITS.var(-1, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(np.asarray(nn.standardize(LOGITS)), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis):
    labels = np.array([[0, 3], [2, -1]])
    expected = np.moveaxis((labels[..., None] == np.arange(3)).astype(np.float32), -1, axis)
    result = np.asarray(nn.one_hot(labels, 3, axis=axis))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    assert nn.one_hot(labels, 3, dtype=np.int32).dtype == np.int32


def test_one_hot_over_a_mapped_axis():
    labels = np.array([[0, 3], [2, -1]])
    one = lambda n: weft.vmap(
        lambda x: nn.one_hot(x, n, axis="i"), in_axes=None, axis_name="i", axis_size=3
    )(labels)
    np.testing.assert_array_equal(one(3), nn.one_hot(labels, 3, axis=0))
    with pytest.raises(ValueError, match="match the size of axis i, but 5 != 3"):
        one(5)
    with pytest.raises(NameError, match="i"):
        nn.one_hot(labels, 3, axis="i")


def attention(q, k, v, mask=None, bias=0.0):
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1]) + bias
    weights = special.softmax(np.where(True if mask is None else mask, scores, -1e30), -1)
    return np.einsum("bnts,bsnh->btnh", weights, v)


@pytest.fixture(scope="module")
def qkv():
    rng = np.random.default_rng(3)
    return tuple(rng.standard_normal((2, n, 4, 8)).astype(np.float32) for n in (5, 7, 7))


def test_attention(qkv):
    np.testing.assert_allclose(
        np.asarray(nn.dot_product_attention(*qkv)), attention(*qkv), rtol=1e-4, atol=1e-5
    )
    single = nn.dot_product_attention(*(x[0] for x in qkv))
    np.testing.assert_allclose(np.asarray(single), attention(*qkv)[0], rtol=1e-4, atol=1e-5)


def test_attention_with_masks(qkv):
    t, s = np.arange(5)[:, None], np.arange(7)[None, :]
    lengths = np.array([3, 7])
    cases = [
        ({"is_causal": True}, s <= t),
        ({"local_window_size": (2, 1)}, (t - s <= 2) & (s - t <= 1)),
        ({"key_value_seq_lengths": lengths}, s < lengths[:, None, None, None]),
        ({"mask": (s + t) % 2 == 0}, (s + t) % 2 == 0),
    ]
    for keywords, mask in cases:
        result = np.asarray(nn.dot_product_attention(*qkv, **keywords))
        np.testing.assert_allclose(
            result, attention(*qkv, mask=mask), rtol=1e-4, atol=1e-5, err_msg=str(keywords)
        )


def test_attention_with_shared_heads_and_bias(qkv):
    q, k, v = qkv
    bias = np.random.default_rng(4).standard_normal((4, 5, 7)).astype(np.float32)
    result = np.asarray(nn.dot_product_attention(q, k[:, :, :2], v[:, :, :2], bias))
    whole = attention(q, np.repeat(k[:, :, :2], 2, 2), np.repeat(v[:, :, :2], 2, 2), bias=bias)
    np.testing.assert_allclose(result, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "variance"),
    [
        (nn.initializers.glorot_uniform, 2 / (60 + 90)),
        (nn.initializers.glorot_normal, 2 / (60 + 90)),
        (nn.initializers.lecun_uniform, 1 / 60),
        (nn.initializers.lecun_normal, 1 / 60),
        (nn.initializers.he_uniform, 2 / 60),
        (nn.initializers.he_normal, 2 / 60),
        (lambda: nn.initializers.normal(0.5), 0.25),
        (lambda: nn.initializers.truncated_normal(0.5), 0.25 * 0.87962566103423978**2),
        (lambda: nn.initializers.variance_scaling(3.0, "fan_out", "normal"), 3 / 90),
    ],
)
def test_variance_of_initializers(make, variance):
    values = np.asarray(make()(weft.random.PRNGKey(1), (60, 90)))
    assert values.dtype == np.float32
    assert abs(values.mean()) < 4 * math.sqrt(variance / values.size)
    assert values.var() == pytest.approx(variance, rel=0.08)


def test_fans_of_convolution_weights():
    init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    values = np.asarray(init(weft.random.PRNGKey(0), (3, 3, 32, 64)))
    assert values.var() == pytest.approx(1 / (9 * 32), rel=0.08)


def test_constant_initializers():
    key = weft.random.PRNGKey(0)
    assert (np.asarray(nn.initializers.zeros(key, (2, 3))) == 0).all()
    assert (np.asarray(nn.initializers.ones(key, (2, 3), np.int32)) == 1).all()
    assert (np.asarray(nn.initializers.constant(2.5)(key, (2,))) == 2.5).all()
    assert (np.asarray(nn.initializers.uniform(2.0)(key, (99,))) < 2).all()


def test_a_weight_of_one_dim_has_no_fans():
    with pytest.raises(ValueError, match="two dims"):
        nn.initializers.he_normal()(weft.random.PRNGKey(0), (5,))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 4), (0, 3), (3, 0), (0, 0)])
def test_orthogonal(shape):
    matrix = np.asarray(nn.initializers.orthogonal(2.0)(random.PRNGKey(0), shape)).reshape(
        math.prod(shape[:-1]), shape[-1]
    )
    gram = matrix @ matrix.T if len(matrix) < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_delta_orthogonal():
    kernel = np.asarray(nn.initializers.delta_orthogonal()(random.PRNGKey(0), (3, 3, 2, 4)))
    np.testing.assert_allclose(kernel[1, 1] @ kernel[1, 1].T, np.eye(2), atol=1e-5)
    assert np.count_nonzero(kernel) == 8


def test_attention_gives_the_logarithm_of_its_sums():
    q, k, v = (random.normal(random.key(i), (2, 5, 3, 4)) for i in range(3))
    lengths = wnp.array([5, 2])
    out, residual = nn.dot_product_attention(
        q, k, v, query_seq_lengths=lengths, return_residual=True
    )
    scores = np.einsum("btnh,bsnh->btns", q, k) / 2
    want = np.where(
        np.arange(5)[None, :, None] < np.asarray(lengths)[:, None, None],
        special.logsumexp(scores, -1),
        0,
    )
    np.testing.assert_allclose(residual, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(out, nn.dot_product_attention(q, k, v, query_seq_lengths=lengths))
    one, lse = nn.dot_product_attention(q[0], k[0], v[0], return_residual=True)
    assert one.shape == (5, 3, 4) and lse.shape == (5, 3)


def test_standardize_without_cancellation():
    x = wnp.arange(8.0) * 1e-2 + 1000
    got = nn.standardize(x, algorithm="stable")
    exact = np.asarray(x, np.float64)
    want = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    np.testing.assert_allclose(got, want, atol=2e-3)
    with pytest.raises(ValueError, match="'fast' or 'stable'"):
        nn.standardize(x, algorithm="slow")


def test_initializer_fans_of_vectors_and_float_classes():
    weights = nn.initializers.variance_scaling(1, "fan_in", "normal", in_axis=0, out_axis=[])(
        random.key(0), (3,)
    )
    assert weights.shape == (3,)
    with pytest.raises(ValueError, match="at least two dims"):
        nn.initializers.variance_scaling(1, "fan_in", "normal")(random.key(0), (3,))
    with pytest.warns(DeprecationWarning, match="integer-typed"):
        nn.one_hot(wnp.array([1.0]), 3)


@pytest.mark.parametrize("f", [nn.softmax, nn.log_softmax])
@pytest.mark.parametrize("initial", [-np.inf, 0.0, 9.0])
def test_lower_bound_of_softmax_maximum_keeps_results(f, initial):
    x, mask = wnp.array([5.5, 1.3, -4.2, 0.9]), np.array([True, False, True, True])
    np.testing.assert_allclose(f(x, where=mask, initial=initial), f(x, where=mask), rtol=1e-4)
    slopes = [
        weft.grad(g)(x)
        for g in (lambda x: f(x, -1, mask, initial)[0], lambda x: f(x, where=mask)[0])
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-5)
    assert f(wnp.zeros((0,)), initial=initial).shape == (0,)


def test_a_traced_number_of_classes_is_named():
    with pytest.raises(
        weft.errors.ConcretizationTypeError,
        match="one_hot: the shape of the result depends on the argument `num_classes`",
    ):
        weft.jit(nn.one_hot)(np.arange(3), 5)


def test_leaky_relu_keeps_integers_with_integer_slope():
    assert (
        nn.leaky_relu(wnp.arange(-2, 2), 3).dtype == np.int32
        and nn.leaky_relu(wnp.arange(-2, 2)).dtype == np.float32
    )


def test_initializers_are_instances_of_a_class():
    init = weft.nn.initializers
    initializers = [
        init.zeros,
        init.ones,
        init.constant(1.0),
        init.normal(),
        init.he_normal(),
        init.orthogonal(),
    ]
    assert all(isinstance(each, init.Initializer) for each in initializers)
    assert not isinstance(3, init.Initializer)
