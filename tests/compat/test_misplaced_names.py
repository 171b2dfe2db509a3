"""Names that a module does not have: the message has the place of the name."""

import importlib

import pytest

from weft.compat import install_as_jax, uninstall
from weft.compat.spelling import suggest_name

#: module and name -> the place
PLACES = {
    "numpy.softmax": "nn.softmax", "numpy.relu": "nn.relu", "numpy.one_hot": "nn.one_hot",
    "numpy.gelu": "nn.gelu", "numpy.logsumexp": "nn.logsumexp", "numpy.sigmoid": "nn.sigmoid",
    "lax.softmax": "nn.softmax", "lax.where": "numpy.where", "lax.zeros": "numpy.zeros",
    "numpy.scan": "lax.scan", "numpy.cond": "lax.cond", "numpy.fori_loop": "lax.fori_loop",
    "numpy.while_loop": "lax.while_loop", "numpy.top_k": "lax.top_k", "numpy.psum": "lax.psum",
    "numpy.vmap": "vmap", "numpy.grad": "grad", "numpy.jit": "jit", "numpy.device_put": "device_put",
    "numpy.random": "random", "numpy.normal": "random.normal", "numpy.PRNGKey": "random.PRNGKey",
    "numpy.svd": "numpy.linalg.svd", "numpy.norm": "numpy.linalg.norm", "numpy.inv": "numpy.linalg.inv",
    "numpy.cholesky": "numpy.linalg.cholesky", "numpy.erf": "scipy.special.erf", "numpy.gammaln": "scipy.special.gammaln",
    "numpy.rfft": "numpy.fft.rfft", "numpy.segment_sum": "ops.segment_sum", "numpy.randn": "random.normal",
    "numpy.unsqueeze": "numpy.expand_dims", "numpy.cat": "numpy.concatenate", "numpy.clamp": "lax.clamp",
    "nn.glorot_normal": "nn.initializers.glorot_normal", "nn.vmap": "vmap", "random.randint_like": "",
    "numpy.no_such_name": "", "lax.tree_map": "tree_util.tree_map", "numpy.PartitionSpec": "sharding.PartitionSpec",
}  # fmt: skip


@pytest.fixture(params=["weft", "jax"])
def package(request):
    """Import weft under one of its names."""
    if request.param == "jax":
        install_as_jax()
    yield request.param
    if request.param == "jax":
        uninstall()


@pytest.mark.parametrize("misplaced, place", PLACES.items(), ids=PLACES)
def test_a_misplaced_name_is_found(package, misplaced, place):
    path, _, name = misplaced.rpartition(".")
    module = importlib.import_module(f"{package}.{path}")
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    message = str(caught.value)
    assert message.startswith(f"module '{package}.{path}' has no attribute '{name}'")
    assert message.endswith(f"Did you mean {package}.{place}?") == bool(place)
    if place:
        owner, _, own = f"{package}.{place}".rpartition(".")
        assert hasattr(importlib.import_module(owner), own)


def test_imports_of_misplaced_names_have_the_place(package):
    with pytest.raises(ImportError, match=rf"Did you mean {package}\.nn\.softmax\?"):
        exec(f"from {package}.numpy import softmax")


def test_other_names_can_be_probed(package):
    assert not hasattr(importlib.import_module(package), "no_such_name")
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{package}.no_such_module'"):
        importlib.import_module(f"{package}.no_such_module")


def test_private_names_are_not_suggested():
    assert suggest_name("jax.numpy", "_softmax") == suggest_name("jax.lax", "no_name") == ""
