"""The kernels of docs/pallas.md have the results shown on the page."""

import numpy as np
import pytest

import weft
from tests.harness.pages import blocks, needs_pages


@pytest.fixture(scope="module")
def page() -> dict:
    scope: dict = {}
    for block in blocks("docs/pallas.md"):
        exec(block, scope)
    return scope


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@needs_pages
def test_softmax(page):
    x = random(100, 30)
    np.testing.assert_allclose(page["softmax"](x), softmax(x), rtol=1e-5)


@needs_pages
def test_matmul(page):
    x, y = random(64, 32), random(32, 48, seed=1)
    np.testing.assert_allclose(page["matmul"](x, y, 16, 16, 8), x @ y, rtol=1e-4, atol=1e-4)


@needs_pages
def test_attention(page):
    q, k, v = random(2, 64, 8), random(2, 128, 8, seed=1), random(2, 128, 8, seed=2)
    want = softmax(q @ k.swapaxes(1, 2) / np.sqrt(8)) @ v
    result = weft.vmap(lambda q, k, v: page["attention"](q, k, v, 16, 32))(q, k, v)
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
