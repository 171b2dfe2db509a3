"""Every public name of JAX is there or has a reason, which the error and docs/missing-names.md say."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
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


@pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of this distribution")
def test_the_page_lists_nothing_that_is_there(absent):
    names_of = re.compile(r"^- ((?:`\w+`(?:,\s+)?)+):", re.MULTILINE)
    sections = re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    listed = {(module, name) for module, section in sections for found in names_of.findall(section) for name in re.findall(r"\w+", found)}
    assert len(listed) > 100
    assert listed <= {(module, name) for module, names_ in absent.items() for name in names_}


def test_the_error_says_the_reason():
    assert missing.why("jax.experimental.pallas.tpu", "emit_pipeline").startswith("pipelines of copies")
    assert missing.why("jax.experimental.pallas.tpu", "TpuInfo").startswith("it drives parts of a TPU's core")
    assert missing.why("jax.lax", "split_p") == missing.why("jax.lax.linalg", "symmetric_product_p")
    assert missing.why("jax.numpy", "sine") is None and missing.why_module("jax.numpy") is None


X, SQUARE = np.arange(4, dtype=np.float32), np.eye(3, dtype=np.float32)
QKV = [np.ones((1, 2, 1, 3), np.float32)] * 3
REFUSED = {
    "jax.jit": lambda: weft.jit(wnp.sin, abstracted_axes=("n",)),
    "jax.grad": lambda: weft.grad(wnp.sin, reduce_axes=("i",)),
    "jax.pmap": lambda: weft.pmap(wnp.sin, global_arg_shapes=((1,),)),
    "jax.new_ref": lambda: weft.new_ref(X, memory_space=weft.sharding.MemorySpace.Host),
    "jax.debug.breakpoint": lambda: weft.debug.breakpoint(backend="web"),
    "jax.profiler.start_server": lambda: weft.profiler.start_server(9999),
    "jax.numpy.reshape": lambda: wnp.reshape(X, 4, order="A"),
    "jax.numpy.array": lambda: wnp.array(SQUARE, order="F"),
    "jax.numpy.take": lambda: wnp.take(X, 0, mode="raise"),
    "jax.numpy.fill_diagonal": lambda: wnp.fill_diagonal(SQUARE, 1.0, wrap=True, inplace=False),
    "jax.numpy.gradient": lambda: wnp.gradient(X, edge_order=2),
    "jax.numpy.quantile": lambda: wnp.quantile(X, 0.5, weights=X),
    "jax.numpy.histogram_bin_edges": lambda: wnp.histogram_bin_edges(X, "auto"),
    "jax.numpy.linalg.svd": lambda: wnp.linalg.svd(SQUARE, full_matrices=False, hermitian=True, subset_by_index=(0, 1)),
    "methods of ufuncs": lambda: wnp.add.reduce(SQUARE, out=SQUARE),
    "jax.nn.dot_product_attention": lambda: weft.nn.dot_product_attention(*QKV, implementation="cudnn"),
    "jax.scipy.fft.dct": lambda: weft.scipy.fft.dct(X, type=3),
    "jax.scipy.linalg.eigh": lambda: weft.scipy.linalg.eigh(SQUARE, SQUARE),
    "jax.scipy.linalg.eigh_tridiagonal": lambda: weft.scipy.linalg.eigh_tridiagonal(X, X[1:], eigvals_only=True, select="v"),
    "jax.scipy.linalg.sqrtm": lambda: weft.scipy.linalg.sqrtm(SQUARE, blocksize=2),
    "jax.scipy.ndimage.map_coordinates": lambda: weft.scipy.ndimage.map_coordinates(X, [X], order=3),
    "jax.scipy.signal.convolve2d": lambda: weft.scipy.signal.convolve2d(SQUARE, SQUARE, boundary="wrap"),
    "jax.scipy.signal.detrend": lambda: weft.scipy.signal.detrend(X, overwrite_data=True),
    "jax.scipy.special.factorial": lambda: weft.scipy.special.factorial(X, exact=True),
    "jax.scipy.stats.mode": lambda: weft.scipy.stats.mode(X, nan_policy="omit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_refused_are_listed(name):
    with pytest.raises(NotImplementedError):
        REFUSED[name]()
    if PAGE.exists():
        assert name in PAGE.read_text().partition("## Options that are refused")[2]
