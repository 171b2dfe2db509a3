"""Functions converted for TensorFlow: values, gradients, open sizes, saved models. Needs TensorFlow."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import jax2tf

tf = pytest.importorskip("tensorflow")
X = np.random.RandomState(0).randn(5, 3).astype(np.float32)


def attention(x):
    weights = weft.nn.softmax(x @ x.T / wnp.sqrt(x.shape[1]))
    return weights @ x


FUNCTIONS = {
    "attention": (attention, "b, 3"),
    "flatten": (lambda x: x.reshape(-1)[x.shape[0] :], "b, c"),
    "end": (lambda x: x[-3:] * wnp.arange(3), "b, 3"),
    "pad": (lambda x: wnp.pad(x, ((1, x.shape[0]), (0, 2))), "b, 3"),
    "scan": (lambda x: lax.scan(lambda s, r: (s + r, s * r), wnp.zeros(3), x), "b, 3"),
    "columns": (
        lambda x: lax.scan(lambda s, r: (s + r, s * r), wnp.zeros(x.shape[0]), x.T),
        "b, 3",
    ),
    "cumsum": (lambda x: (wnp.cumsum(x, 0), wnp.cumsum(x, 1)), "b, 3"),
    "sort": (lambda x: (wnp.sort(x, 0), wnp.argmax(x, 0)), "b, 3"),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x), "b, c"),
    "gather": (lambda x: (x[wnp.array([0, 4])], x[:, wnp.array([2, 0])]), "b, 3"),
    "random": (lambda x: weft.random.normal(weft.random.key(1), x.shape), "b, c"),
    "lgamma": (lambda x: lax.lgamma(abs(x)), "b, c"),
}


@pytest.mark.parametrize("sizes", ["open", "fixed"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, sizes):
    function, shape = FUNCTIONS[name]
    converted = jax2tf.convert(function, polymorphic_shapes=shape if sizes == "open" else None)
    signature = tf.TensorSpec(
        [None, 3] if sizes == "open" and shape == "b, 3" else X.shape, tf.float32
    )
    results = tf.function(converted, autograph=False, input_signature=[signature])(X)
    for got, want in zip(tf.nest.flatten(results), weft.tree.leaves(function(X)), strict=True):
        np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", ["b, 3", None])
def test_gradients(shape):
    loss = lambda x, n: (attention(x) * n).sum()
    x, n = tf.Variable(X), tf.constant(2)
    with tf.GradientTape() as tape:
        value = jax2tf.convert(loss, polymorphic_shapes=(shape, None))(x, n)
    np.testing.assert_allclose(
        tape.gradient(value, x).numpy(), weft.grad(loss)(X, 2), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("shape", ["b", None])
def test_gradients_of_gradients(shape):
    cubed = jax2tf.convert(lambda x, n: wnp.sum(x**3) * n, polymorphic_shapes=(shape, None))
    x, n = tf.Variable(X[0]), tf.constant(2)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = cubed(x, n)
        slope = inner.gradient(value, x)
    np.testing.assert_allclose(outer.gradient(slope, x).numpy(), 12 * X[0], rtol=1e-5)


def test_trees_and_integers():
    converted = jax2tf.convert(
        lambda d, *, scale: {"y": d["x"] * scale, "n": d["x"].shape[0]},
        polymorphic_shapes=({"x": "b, ..."},),
    )
    got = converted({"x": np.arange(4)}, scale=3)
    assert (
        got["y"].numpy().tolist() == [0, 3, 6, 9]
        and int(got["n"]) == 4
        and got["y"].dtype == tf.int32
    )


def test_saved_models_keep_open_sizes(tmp_path):
    module = tf.Module()
    signature = [tf.TensorSpec([None, 3], tf.float32)]
    module.call = tf.function(
        jax2tf.convert(attention, polymorphic_shapes="b, 3"),
        autograph=False,
        input_signature=signature,
    )
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    for rows in (1, 4):
        np.testing.assert_allclose(
            restored.call(X[:rows]).numpy(), attention(X[:rows]), rtol=1e-5, atol=1e-6
        )


def test_functions_without_gradients_raise():
    x = tf.Variable(X)
    with tf.GradientTape() as tape:
        value = jax2tf.convert(wnp.sin, with_gradient=False)(x)
    with pytest.raises(LookupError, match="without a gradient"):
        tape.gradient(value, x)


def test_calls_of_libraries_are_refused():
    with pytest.raises(
        NotImplementedError, match=r"weft_qr at run time, which TensorFlow does not have"
    ):
        jax2tf.convert(lambda x: wnp.linalg.qr(x)[1])(X)
