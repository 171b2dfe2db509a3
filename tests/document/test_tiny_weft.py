"""The miniature of weft in `docs/tiny_weft.py`: its size, its values, its programs and its collectives."""

import ast
import importlib.util
import re
import sys
from collections import Counter

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.pages import needs_pages
from tests.harness.processes import ROOT

pytestmark = needs_pages
PATH = ROOT / "docs" / "tiny_weft.py"
N = 4


@pytest.fixture(scope="module")
def tiny():
    spec = importlib.util.spec_from_file_location("tiny_weft", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_weft"] = module  # where dataclasses look for its names
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["tiny_weft"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X, W1, B1, W2 = normal(8, 4), normal(4, 8, seed=1), normal(8, seed=2), normal(8, 4, seed=3)


# --- size -------------------------------------------------------------------------------------------------------------


def test_has_at_most_600_executable_lines():
    """Count the lines on which statements begin, with imports and fields, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(PATH.read_text())) if isinstance(node, ast.stmt)]
    is_docstring = lambda node: isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    lines = {node.lineno for node in nodes if not is_docstring(node)}
    assert 300 < len(lines) <= 600


def test_imports_nothing_but_numpy():
    tree = ast.parse(PATH.read_text())
    names = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names}
    assert tops - set(sys.stdlib_module_names) == {"numpy"}


# --- values and programs, compared with weft --------------------------------------------------------------------------

#: name -> (function of the module and of the array functions, arguments); the module is tiny_weft or weft
FUNCTIONS = {
    "layer": (lambda m, f: lambda x, w, b: f.tanh(x @ w + b).sum(1), (X, W1, B1)),
    "scalar operands": (lambda m, f: lambda x: 2.0 * x - 1.0 / f.exp(x), (X,)),
    "exp log": (lambda m, f: lambda x: f.log(f.exp(x) + 1.0), (X,)),
    "sin cos": (lambda m, f: lambda x: f.sin(x) * f.cos(-x), (X,)),
    "sum": (lambda m, f: lambda x: f.square(x).sum(), (X,)),
    "vector product": (lambda m, f: lambda x, w: x @ w, (X[0], W1)),
    "gradient": (
        lambda m, f: m.grad(lambda w, x: f.square(f.tanh(x @ w)).sum()),
        (W1, X),
    ),
    "gradient of a tree": (
        lambda m, f: m.grad(lambda p, x: (f.tanh(x @ p[0] + p[1]) @ p[2]).sum()),
        ((W1, B1, W2), X),
    ),
    "quotient": (lambda m, f: m.grad(lambda x: (f.exp(x) / (x + 5.0)).sum()), (X,)),
    "second derivative": (
        lambda m, f: m.grad(lambda s: m.grad(lambda t: f.sin(t) * t)(s)),
        (np.float32(0.5),),
    ),
    "vmap of grad": (
        lambda m, f: m.vmap(m.grad(lambda v, w: f.tanh(v @ w).sum()), in_axes=(0, None)),
        (X, W1),
    ),
    "grad of vmap": (
        lambda m, f: m.grad(lambda w, x: m.vmap(lambda v: f.sin(v @ w).sum())(x).sum()),
        (W1, X),
    ),
    "vmap of products": (
        lambda m, f: m.vmap(lambda x, y: x @ y),
        (normal(3, 2, 4), normal(3, 4, 5)),
    ),
    "vmap over columns": (lambda m, f: m.vmap(lambda x: x @ W1, in_axes=1), (normal(4, 3),)),
    "scaled rows": (lambda m, f: m.vmap(lambda v, s: v * s), (X, X[:, 0])),
}


def both(tiny, name):
    build, args = FUNCTIONS[name]
    return build(tiny, tiny), build(weft, wnp), args


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_weft(tiny, name):
    mine, real, args = both(tiny, name)
    expected = [np.asarray(x) for x in weft.tree.leaves(real(*args))]
    for f in (mine, tiny.jit(mine)):
        results = tiny.tree_flatten(f(*args))[0]
        assert [np.asarray(x).dtype for x in results] == [x.dtype for x in expected]
        for x, y in zip(results, expected):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


def words(text):
    """Return the words of a program, without parameters that the miniature does not have."""
    text = re.sub(r"\b(precision|preferred_element_type)=\w+", "", text)
    return text.replace("[", " [ ").replace("]", " ] ").split()


#: weft leaves the batch dim of a product where it is; the miniature moves it to the front
MOVES_BATCH_DIM = "vmap over columns"


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != MOVES_BATCH_DIM])
def test_programs_read_like_those_of_weft(tiny, name):
    mine, real, args = both(tiny, name)
    expected = weft.make_jaxpr(real)(*args).pretty_print(custom_pp_eqn_rules=False)
    assert words(str(tiny.make_jaxpr(mine)(*args))) == words(expected)


# --- derivatives and batches ------------------------------------------------------------------------------------------


def loss(weights, x):
    tiny = sys.modules["tiny_weft"]
    w1, b1, w2 = weights
    return tiny.square(tiny.tanh(x @ w1 + b1) @ w2).sum()


def test_gradients_equal_finite_differences(tiny):
    weights, x = [w.astype(np.float64) for w in (W1, B1, W2)], X.astype(np.float64)
    for k, gradient in enumerate(tiny.grad(loss)(weights, x)):
        direction = normal(*weights[k].shape, seed=9).astype(np.float64)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [*weights[:k], weights[k] + step * direction, *weights[k + 1 :]]
            ends.append(loss(moved, x))
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6)


def test_derivatives_nest_to_any_order(tiny):
    f = lambda x: x * x * x * x
    for order, factor in enumerate((1.0, 4.0, 12.0, 24.0, 24.0)):
        assert float(f(2.0)) == factor * 2.0 ** (4 - order)
        f = tiny.jit(tiny.grad(f)) if order % 2 else tiny.grad(f)


def test_vmap_equals_a_loop(tiny):
    f = tiny.grad(lambda v, w: tiny.tanh(v @ w).sum())
    rows = np.stack([f(v, W1) for v in X])
    np.testing.assert_allclose(tiny.vmap(f, in_axes=(0, None))(X, W1), rows, rtol=1e-5)
    nested = tiny.vmap(tiny.vmap(lambda x, y: x * y, in_axes=(0, None)), in_axes=(None, 0))
    np.testing.assert_array_equal(nested(X[0], X[:, 0]), X[:, 0, None] * X[0])


def test_a_jitted_closure_sees_outer_tracers(tiny):
    outer = tiny.grad(lambda w: tiny.jit(lambda v: (v * w).sum())(X[0]))
    np.testing.assert_array_equal(outer(X[1]), X[0])


# --- compilation ------------------------------------------------------------------------------------------------------


def test_traces_once_per_types_and_compiles_per_sharding(tiny):
    runs = []

    def f(x):
        runs.append(x.aval)
        return tiny.exp(x).sum()

    jitted = tiny.jit(f)
    for x in (X, X + 1, X[:4], X.astype(np.float64), X):
        np.testing.assert_allclose(jitted(x), np.exp(x).sum(), rtol=1e-5)
    assert len(runs) == len(jitted.traces) == len(jitted.calls) == 3
    rows = tiny.device_put(X, tiny.NamedSharding(tiny.Mesh(N, "d"), tiny.P("d", None)))
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(jitted(rows)), np.exp(X).sum(), rtol=1e-5)
    assert (len(runs), len(jitted.calls)) == (3, 4)


def test_elementwise_operations_share_one_kernel(tiny):
    stages = tiny.jit(lambda x, b: tiny.tanh(tiny.sin(x) * 2.0 + b)).lower(X, X[0])[0]
    assert stages["kernels"] == (
        "kernel k0(in x0: f32[8,4], in x1: f32[4], out y: f32[8,4]) {\n"
        "    serial i in 8 {\n"
        "        vector j in 4 {\n"
        "            y[i, j] = tanh(add(mul(sin(x0[i, j]), 2.0), x1[j]))\n"
        "        }\n"
        "    }\n"
        "}"
    )
    assert stages["source"].count("np.empty") == 1


def test_a_value_with_two_readers_is_stored(tiny):
    stages = tiny.jit(lambda x: (tiny.exp(x) + 1.0) * tiny.square(tiny.exp(x))).lower(X)[0]
    assert stages["kernels"].count("exp") == 2
    f = lambda x: (lambda y: tiny.sin(y) * tiny.cos(y))(tiny.exp(x))
    stages = tiny.jit(f).lower(X)[0]
    assert stages["kernels"].count("kernel") == 2 and stages["kernels"].count("exp") == 1


def test_unused_equations_are_dropped(tiny):
    stages = tiny.jit(tiny.grad(lambda x: tiny.sin(x).sum())).lower(X)[0]
    names = [[e.primitive.name for e in stages[s].eqns] for s in ("traced", "simplified")]
    assert "reduce_sum" in names[0] and names[1] == ["cos", "broadcast_in_dim", "mul"]


# --- sharding ---------------------------------------------------------------------------------------------------------


def placed(tiny, x, *spec):
    return tiny.device_put(x, tiny.NamedSharding(tiny.Mesh(N, "d"), tiny.P(*spec)))


def collectives(tiny, jitted, *args):
    eqns = jitted.lower(*args)[0]["local"].eqns
    names = [e.primitive.name for e in eqns if isinstance(e.primitive, tiny.CollectiveOp)]
    return dict(Counter(names))


def sgd(weights, x):
    gradients = sys.modules["tiny_weft"].grad(loss)(weights, x)
    return [w - 0.01 * g for w, g in zip(weights, gradients)]


BATCH, COLUMNS, ROWS = ("d", None), (None, "d"), ("d", None)
#: layout of (w1, b1, w2) and x -> the collectives of a training step
LAYOUTS = {
    "data parallel": (((), (), ()), BATCH, {"psum": 3}),
    "tensor parallel": ((COLUMNS, ("d",), ROWS), (), {"psum": 1}),
    "fully sharded": ((ROWS, ("d",), ROWS), BATCH, {"all_gather": 3, "reduce_scatter": 3}),
    "replicated": (((), (), ()), (), {}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_training_step_has_the_expected_collectives(tiny, layout):
    weight_specs, x_spec, expected = LAYOUTS[layout]
    weights = [placed(tiny, w, *s) for w, s in zip((W1, B1, W2), weight_specs)]
    x, step = placed(tiny, X, *x_spec), tiny.jit(sgd)
    assert collectives(tiny, step, weights, x) == expected
    for new, old, whole in zip(step(weights, x), weights, step([W1, B1, W2], X)):
        assert new.sharding.dim == old.sharding.dim
        np.testing.assert_allclose(np.asarray(new), whole, rtol=1e-5, atol=1e-5)


#: name -> (function of the module, per argument its value and spec, collectives)
MOVES = {
    "columns then rows": (
        lambda m: lambda w1, w2, x: m.tanh(x @ w1) @ w2,
        [(W1, COLUMNS), (W2, ROWS), (X, ())],
        {"psum": 1},
    ),
    "terms share one reduction": (
        lambda m: lambda x, w: x @ w + m.square(x) @ w,
        [(X, COLUMNS), (W1, ROWS)],
        {"psum": 1},
    ),
    "elementwise": (lambda m: lambda x: m.sin(x) * 2.0, [(X, BATCH)], {}),
    "transpose": (lambda m: lambda x: m.transpose(x, (1, 0)), [(X, BATCH)], {}),
    "sum over the split dim": (lambda m: lambda x: x.sum(0), [(X, BATCH)], {"psum": 1}),
    "sum along it": (lambda m: lambda x: x.sum(1), [(X, BATCH)], {}),
    "vmap over the split dim": (lambda m: m.vmap(lambda v: m.exp(v).sum()), [(X, BATCH)], {}),
    "two layouts": (
        lambda m: lambda x, y: x + y,
        [(X, BATCH), (X, COLUMNS)],
        {"all_gather": 1, "own_slice": 1},
    ),
    "replicated operand": (
        lambda m: lambda x, y: x * y,
        [(X, BATCH), (X, ())],
        {"own_slice": 1},
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_sharded_values_and_collectives(tiny, name):
    build, operands, expected = MOVES[name]
    f = tiny.jit(build(tiny))
    args = [placed(tiny, x, *spec) for x, spec in operands]
    assert collectives(tiny, f, *args) == expected
    whole = f(*[x for x, _ in operands])
    np.testing.assert_allclose(np.asarray(f(*args)), whole, rtol=1e-5, atol=1e-5)


def test_local_shapes_are_those_of_shards(tiny):
    f = tiny.jit(lambda x, w: tiny.tanh(x @ w))
    local = f.lower(placed(tiny, X, *BATCH), W1)[0]["local"]
    assert [v.aval.shape for v in local.invars] == [(8 // N, 4), (4, 8)]
    assert local.outvars[0].aval.shape == (8 // N, 8)


def test_equal_shards_sum_to_the_same_bits_on_all_devices(tiny):
    total = tiny.jit(lambda x: x.sum(0))(placed(tiny, X, *BATCH))
    assert len(total.shards) == N and len({s.tobytes() for s in total.shards}) == 1


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_name_the_op_and_the_types(tiny):
    with pytest.raises(TypeError, match=r"dot_general: dims differ: f32\[8,4\], f32\[8\]"):
        tiny.jit(lambda x, b: x @ b)(X, B1)
    with pytest.raises(TypeError, match=r"add: operands differ: f32\[8,4\], f64\[8,4\]"):
        tiny.make_jaxpr(tiny.add)(X, X.astype(np.float64))
    with pytest.raises(TypeError, match="must return a scalar"):
        tiny.grad(tiny.sin)(X)
    with pytest.raises(NotImplementedError, match="'exp' has no lower rule"):
        tiny.exp.lower
    with pytest.raises(NotImplementedError, match="dims of size 1"):
        tiny.make_jaxpr(lambda x, y: x + y)(X, B1[:1])
    with pytest.raises(TypeError, match="no elements"):
        tiny.jit(np.asarray)(X)
