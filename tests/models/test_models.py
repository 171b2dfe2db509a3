"""Compiled training models equal op-by-op execution and float64, also under vmap and on a mesh.

`python -m tests.models.run --size large` runs the same checks on larger sizes.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.models import compare
from tests.models.double_precision import evaluate_in_float64
from tests.models.registry import MODELS
from weft import lax, random
from weft._engine.codegen.program.program import compile_program

NAMES = (
    "mlp",
    "cnn_nchw",
    "cnn_nhwc",
    "resnet_block",
    "vit",
    "unet",
    "lstm",
    "gru",
    "ctc",
    "crf",
    "transformer_encoder",
    "transformer_decoder",
    "mixture_of_experts",
    "vae",
    "diffusion",
    "gan",
    "contrastive",
    "normalizing_flow",
    "graph_network",
    "neural_ode",
    "gaussian_process",
    "hmc",
    "kalman_filter",
    "pinn",
    "quantized_mlp",
    "lora",
)
BATCHED = [name for name in NAMES if MODELS[name].is_batched]
DESCENDING = [name for name in NAMES if name not in ("gan", "hmc")]
PUBLIC = {"weft", "weft.numpy", "weft.scipy.linalg"}


@pytest.fixture
def optimized(monkeypatch):
    """Compile without drafts, so that the optimized kernels run."""
    module = importlib.import_module("weft._engine.backends.cpu.compile")
    monkeypatch.setattr(module, "compile_draft", compile_program)


def test_the_registry_has_all_models():
    assert tuple(MODELS) == NAMES


# ---- the compiled programs


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_model_equals_op_by_op_and_float64(name, optimized):
    """Forward, gradient and one optimizer step."""
    assert compare.check_model(MODELS[name], "small") == []


@pytest.mark.parametrize("name", NAMES)
def test_vmapped_gradients_equal_single_ones(name):
    assert compare.check_vmap(MODELS[name], "small") == []


@pytest.mark.parametrize("name", BATCHED)
def test_step_on_a_mesh_equals_one_device(name):
    assert compare.check_mesh(MODELS[name], "small") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_large_model_equals_op_by_op_and_float64(name, optimized):
    """Sizes on the other side of the compiler's thresholds."""
    model = MODELS[name]
    assert compare.check_model(model, "large") == []
    assert compare.check_vmap(model, "large") == []
    if model.is_batched:
        assert compare.check_mesh(model, "large") == []


@pytest.mark.parametrize("name", DESCENDING)
def test_training_reduces_the_loss(name):
    model = MODELS[name]
    state, batch = model.example()
    step = weft.jit(model.step)
    _, first = step(state, batch)
    for _ in range(20):
        state, last = step(state, batch)
    assert last < first


def test_models_use_public_names_only():
    """Other commits run the models, whose internal modules differ."""
    imported = set()
    for path in Path(__file__).parent.glob("*.py"):
        if path.stem in ("compare", "double_precision", "run", "test_models"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module)
            elif isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
    assert {name for name in imported if name.startswith("weft")} == PUBLIC


# ---- the comparison


def test_an_error_in_one_small_gradient_is_found(monkeypatch):
    """Small gradients are compared relative to their own size."""
    model = MODELS["mlp"]
    function, args = compare.programs_of(model, "small")["gradient"]
    assert compare.mismatches(function, args) == []
    compiled = compare.Comparison.compiled

    def wrong(self):
        loss, *grads = compiled(self)
        smallest = min(range(len(grads)), key=lambda i: np.abs(grads[i]).max())
        grads[smallest] = np.array(grads[smallest])
        grads[smallest].flat[0] += 1e-3 * np.abs(grads[smallest]).max()
        return [loss, *grads]

    monkeypatch.setattr(compare.Comparison, "compiled", wrong)
    texts = compare.mismatches(function, args)
    assert len(texts) == 2 and all("differs in 1 elements" in text for text in texts)


@pytest.mark.parametrize("name", NAMES)
def test_allowed_differences_are_small(name):
    """Noise changes no gradient so much that the comparison could not fail."""
    function, args = compare.programs_of(MODELS[name], "small")["gradient"]
    assert compare.Comparison(function, args).largest_allowed() < 0.05


def test_float64_evaluation_keeps_random_bits():
    def f(x):
        noise = random.normal(random.PRNGKey(3), x.shape)
        total, path = lax.scan(lambda c, v: (c + v / 3, c), 0.0, x + noise)
        return total, path, jnp.argsort(noise)

    x = np.linspace(0, 1, 9, dtype=np.float32)
    comparison = compare.Comparison(f, (x,))
    total, path, order = evaluate_in_float64(comparison.without_keys, [x])
    noise = np.asarray(random.normal(random.PRNGKey(3), x.shape))
    values = x.astype(np.float64) + noise
    assert total.dtype == path.dtype == np.float64
    np.testing.assert_allclose(total, values.sum() / 3, rtol=1e-6)
    np.testing.assert_array_equal(order, np.argsort(noise))


def test_float64_evaluation_is_more_precise():
    f = lambda x: jnp.sum((x + 1.0) ** 2) - jnp.sum(x * x) - 2 * jnp.sum(x)
    x = (np.arange(1, 100) * 1000.1).astype(np.float32)
    (wide,) = evaluate_in_float64(compare.Comparison(f, (x,)).jaxpr, [x])
    assert abs(wide - len(x)) < 1e-3 < abs(float(weft.jit(f)(x)) - len(x))


def test_float64_evaluation_casts_bits_in_float32():
    f = lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) + 1, jnp.float32)
    x = np.array([1.0, 0.1, -2.5], np.float32)
    (got,) = evaluate_in_float64(compare.Comparison(f, (x,)).jaxpr, [x])
    np.testing.assert_array_equal(got, np.nextafter(x, np.copysign(np.inf, x)).astype(np.float64))
