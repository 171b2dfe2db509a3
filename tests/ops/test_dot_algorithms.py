"""Dot algorithms: products by bfloat16 parts keep their algorithm, other algorithms convert their operands."""

import numpy as np
import pytest

import weft
from weft import export, lax, numpy as wnp
from weft._engine.ir.jaxpr import subjaxprs
from weft.lax import DotAlgorithm, DotAlgorithmPreset
from weft.sharding import Mesh, NamedSharding, PartitionSpec

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(4, 4)).astype(np.float32)
IMAGE = RANDOM.normal(size=(1, 2, 6, 6)).astype(np.float32)
KERNEL = RANDOM.normal(size=(3, 2, 3, 3)).astype(np.float32)
X3, X6 = DotAlgorithmPreset.BF16_BF16_F32_X3, DotAlgorithmPreset.BF16_BF16_F32_X6
BY_PARTS = ("BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")


def precisions(jaxpr):
    """Return the precision of every product of a program, those in inner programs last."""
    values = [eqn.params["precision"] for eqn in jaxpr.eqns if "precision" in eqn.params]
    for eqn in jaxpr.eqns:
        for _, inner in subjaxprs(eqn.params):
            values += precisions(inner)
    return values


def traced(f, *args):
    return precisions(weft.make_jaxpr(f)(*args).jaxpr)


def dot(x, y, precision=X3):
    return lax.dot(x, y, precision=precision)


SPELLINGS = {
    "preset": X6,
    "name": "BF16_BF16_F32_X6",
    "algorithm": DotAlgorithm("bfloat16", "bfloat16", np.float32, 3, 3, 6),
}


@pytest.mark.parametrize("precision", SPELLINGS.values(), ids=SPELLINGS)
def test_products_keep_their_algorithm(precision):
    assert traced(lambda x: dot(x, x, precision), X) == [X6]


PROGRAMS = {
    "matmul": (lambda x: wnp.matmul(x, x, precision=X3), 1),
    "einsum": (lambda x: wnp.einsum("ij,jk->ik", x, x, precision="BF16_BF16_F32_X3"), 1),
    "gradient": (weft.grad(lambda x: dot(x, x).sum()), 3),
    "jvp": (lambda x: weft.jvp(lambda y: dot(y, y), (x,), (x,))[1], 3),
    "vmap": (weft.vmap(lambda x: lax.dot(x, x, precision=X3)), 1),
    "jit": (weft.jit(lambda x: dot(x, x)), 1),
    "scan": (lambda x: lax.scan(lambda c, _: (dot(c, x), None), x, None, 2)[0], 1),
    "gradient of convolution": (
        lambda x: weft.grad(
            lambda k: lax.conv(IMAGE + x[0, 0], k, (1, 1), "SAME", precision=X3).sum()
        )(KERNEL),
        2,
    ),
    "gradient of groups": (
        weft.grad(
            lambda x: lax.ragged_dot(x, wnp.stack([x, x]), np.array([1, 3]), precision=X3).sum()
        ),
        3,
    ),
}


@pytest.mark.parametrize("f, count", PROGRAMS.values(), ids=PROGRAMS)
def test_transformations_keep_the_algorithm(f, count):
    assert traced(f, X) == [X3] * count


@pytest.mark.parametrize("name", BY_PARTS)
def test_the_default_names_an_algorithm(name):
    with weft.default_matmul_precision(name):
        values = traced(lambda x: dot(x, x, None), X)
        values += traced(lambda x: lax.conv(x, KERNEL, (1, 1), "SAME"), IMAGE)
        explicit = traced(lambda x: dot(x, x, DotAlgorithmPreset.DEFAULT), X)
    assert values == [DotAlgorithmPreset[name]] * 2
    assert explicit == [None]


def test_the_default_converts_only_floats():
    ints = np.arange(4, dtype=np.int32).reshape(2, 2)
    narrow = np.asarray(lax.convert_element_type(X, "bfloat16"), np.float32)
    with weft.default_matmul_precision("BF16_BF16_F32"):
        np.testing.assert_allclose(dot(X, X, None), narrow @ narrow, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(dot(ints, ints, None), ints @ ints)
    np.testing.assert_allclose(dot(X, X, None), X @ X, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("preset", ["DEFAULT", "F32_F32_F32"])
def test_gradients_do_not_take_the_setting_again(preset):
    """A product with an algorithm of its own ignores the setting, and so does its gradient."""

    def gradient(x):
        return weft.grad(lambda x: (dot(x, X, DotAlgorithmPreset[preset]) ** 2).sum())(x)

    expected = np.asarray(gradient(X))
    with weft.default_matmul_precision("BF16_BF16_F32"):
        np.testing.assert_array_equal(gradient(X), expected)


def test_convolutions_convert_their_operands():
    jaxpr = weft.make_jaxpr(
        lambda x: lax.conv(x, KERNEL, (1, 1), "SAME", precision="BF16_BF16_F32")
    )(IMAGE)
    (eqn,) = [e for e in jaxpr.jaxpr.eqns if e.primitive.name == "conv_general_dilated"]
    assert [a.aval.dtype.name for a in (*eqn.invars, *eqn.outvars)] == [
        "bfloat16",
        "bfloat16",
        "float32",
    ]


def test_exported_programs_keep_the_algorithm():
    exported = export.deserialize(export.export(weft.jit(dot))(X, X).serialize())
    assert precisions(exported._jaxpr) == [X3]
    np.testing.assert_allclose(exported.call(X, X), X @ X, rtol=1e-5, atol=1e-6)


def test_partitioned_programs_keep_the_algorithm():
    mesh = Mesh(np.array(weft.devices()[:2]), ("a",))
    columns = NamedSharding(mesh, PartitionSpec(None, "a"))
    f = weft.jit(dot, in_shardings=(columns, None), out_shardings=columns)
    stages = f.lower(X, X).compile()._executable.stages
    assert precisions(stages.local) == [X3]
    np.testing.assert_allclose(f(X, X), X @ X, rtol=1e-5, atol=1e-6)


def test_texts_show_the_algorithm():
    assert "precision=BF16_BF16_F32_X3" in str(weft.make_jaxpr(dot)(X, X))
    lowered = weft.jit(dot).lower(X, X)
    assert "num_primitive_operations = 3, allow_imprecise_accumulation = false>" in (
        lowered.as_text()
    )
    assert "algorithm=dot_bf16_bf16_f32_x3" in lowered.as_text(dialect="hlo")
    narrow = X.astype(wnp.bfloat16)
    assert "algorithm" not in weft.jit(dot).lower(narrow, narrow).as_text()


CONVOLUTION_PRECISIONS = {X3: "HIGH", X6: "HIGHEST"}


@pytest.mark.parametrize("preset", CONVOLUTION_PRECISIONS, ids=str)
def test_convolutions_have_a_precision_in_texts(preset):
    f = weft.jit(lambda x: lax.conv(x, KERNEL, (1, 1), "SAME", precision=preset))
    expected = f"#stablehlo<precision {CONVOLUTION_PRECISIONS[preset]}>"
    assert f.lower(IMAGE).as_text().count(expected) == 2
