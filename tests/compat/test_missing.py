"""Every public name of JAX is there or has a reason, which the error and docs/missing-names.md say."""

import importlib
from pathlib import Path

import pytest

from weft.compat import install_as_jax, missing, names, uninstall
from weft.compat.resolver import is_offered

PAGE = Path(__file__).parents[2] / "docs" / "missing-names.md"


@pytest.fixture(scope="module")
def absent():
    """Module -> the public names that it lacks here."""
    install_as_jax()
    found = {}
    for module, listed in names.public_names().items():
        lacks = lambda name, module=module: not hasattr(importlib.import_module(module), name)
        found[module] = sorted(filter(lacks, listed)) if is_offered(module) else sorted(listed)
    yield {module: listed for module, listed in found.items() if listed}
    uninstall()


def test_every_name_that_is_missing_has_a_reason(absent):
    assert [f"{module}.{name}" for module, listed in absent.items() for name in listed if not missing.why(module, name)] == []


@pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of this distribution")
def test_the_page_lists_what_is_missing(absent):
    text = PAGE.read_text()
    for module, listed in absent.items():
        _, found, section = text.partition(f"## `{module}`\n")
        assert found, module
        section = section.partition("\n## ")[0]
        assert [name for name in listed if f"`{name}`" not in section] == [], module


def test_the_error_says_the_reason():
    assert missing.why("jax.experimental.pallas.tpu", "emit_pipeline").startswith("pipelines of copies")
    assert missing.why("jax.experimental.pallas.tpu", "TpuInfo").startswith("it drives parts of a TPU's core")
    assert missing.why("jax.lax", "split_p") == missing.why("jax.lax.linalg", "symmetric_product_p")
    assert missing.why("jax.numpy", "sine") is None and missing.why_module("jax.numpy") is None
