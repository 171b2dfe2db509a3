"""Under the shim, classes of arrays name JAX's modules, and namespaces list all their names."""

import importlib
import pickle

import numpy as np
import opt_einsum
import pytest

import weft
from weft._engine.core.trace import Tracer
from weft.compat import install_as_jax, uninstall


@pytest.fixture
def jax():
    install_as_jax()
    yield importlib.import_module("jax")
    uninstall()


def _package(x):
    return type(x).__module__.partition(".")[0]


TRANSFORMATIONS = {
    "jit": lambda jax, f: jax.jit(f),
    "grad": lambda jax, f: jax.grad(f),
    "jvp": lambda jax, f: lambda x: jax.jvp(f, (x,), (x,)),
    "vmap": lambda jax, f: lambda x: jax.vmap(f)(x[None]),
    "linearize": lambda jax, f: lambda x: jax.linearize(f, x),
    "make_jaxpr": lambda jax, f: jax.make_jaxpr(f),
    "shard_map": lambda jax, f: jax.shard_map(
        f, mesh=jax.make_mesh((1,), ("a",)), in_specs=jax.P(), out_specs=jax.P()
    ),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_tracers_name_jax(jax, name):
    seen = []

    def f(x):
        seen.append(x)
        return x.sum()

    TRANSFORMATIONS[name](jax, f)(jax.numpy.ones(3))
    assert [_package(x) for x in seen] == ["jax"] and isinstance(seen[0], Tracer)


@pytest.mark.parametrize("make", [
    lambda jax: jax.numpy.ones(3), lambda jax: jax.random.key(0), lambda jax: jax.new_ref(jax.numpy.ones(3)),
], ids=["array", "key", "ref"])  # fmt: skip
def test_arrays_name_jax(jax, make):
    assert _package(make(jax)) == "jax"


def test_tracer_classes_of_modules_loaded_later_name_jax(jax):
    class Late(Tracer):
        __module__ = "weft.later"

    assert Late.__module__ == "jax.core"


def test_tracer_classes_of_users_keep_their_module(jax):
    class Own(Tracer):
        pass

    assert Own.__module__ == __name__


def test_weft_names_its_own_modules_without_the_shim(jax):
    uninstall()
    assert (
        weft.Array.__module__.startswith("weft.") and Tracer.__module__ == "weft._engine.core.trace"
    )


def test_arrays_and_their_class_are_pickled_under_the_shim(jax):
    x = pickle.loads(pickle.dumps(jax.numpy.arange(3)))
    assert pickle.loads(pickle.dumps(jax.Array)) is jax.Array and x.tolist() == [0, 1, 2]


def test_opt_einsum_computes_with_arrays_and_tracers(jax):
    x = jax.numpy.eye(3)
    assert isinstance(opt_einsum.contract("ij,jk->ik", x, x), jax.Array)
    grad = jax.jit(jax.grad(lambda x: opt_einsum.contract("ij,jk,kl->", x, x, x)))
    np.testing.assert_array_equal(grad(x), np.full((3, 3), 3.0))


@pytest.mark.parametrize(
    "module",
    [
        "numpy",
        "numpy.linalg",
        "numpy.fft",
        "lax",
        "random",
        "nn",
        "scipy.special",
        "tree_util",
        "sharding",
    ],
)
def test_vars_lists_every_public_name(jax, module):
    loaded = importlib.import_module(f"jax.{module}")
    names = [name for name in loaded.__all__ if name != "__all__"]
    assert len(names) > 5 and {*names} <= {*vars(loaded)}
    assert all(vars(loaded)[name] is getattr(loaded, name) for name in names)


def test_assigned_names_are_in_vars(jax):
    jax.numpy.of_a_test = 3
    assert vars(jax.numpy)["of_a_test"] == 3
