"""Common mistakes of users: the class and the text of each error, with the names that the program uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import errors
from weft.compat import install_as_jax, uninstall

#: id -> (program, class, texts of the message); NAME stands for jax or weft, J for the module
MISTAKES: dict[str, tuple[str, type[Exception], list[str]]] = {
    "grad-vector": ("J.grad(lambda x: x * 2)(jnp.ones(3))", TypeError, ["scalar-output", "NAME.jacrev / NAME.vjp"]),
    "grad-integer": ("J.grad(lambda x: x)(1)", TypeError, ["real- or complex-valued", "got int32 at argument x"]),
    "grad-complex": ("J.grad(lambda x: x)(1j)", TypeError, ["use NAME.vjp, or holomorphic=True"]),
    "grad-arguments": ("J.grad(lambda x: x)(1.0, 2.0)", TypeError, ["<lambda>() takes 1 positional argument but 2"]),
    "vmap-sizes": ("J.vmap(lambda a, b: a)(jnp.ones(3), jnp.ones(4))", ValueError, ["inconsistent sizes", "size 3", "argument b"]),
    "vmap-axis": ("J.vmap(lambda a: a, in_axes=2)(jnp.ones(3))", ValueError, ["along axis 2", "vmap(<lambda>)"]),
    "jit-string": ("J.jit(lambda x: x)('a')", TypeError, ["argument x of type <class 'str'>", "static_argnames"]),
    "jit-unhashable": ("J.jit(lambda x, y: x, static_argnums=1)(1.0, [1])", ValueError, ["Non-hashable static", "a tuple instead"]),
    "traced-if": ("J.jit(lambda x: 1 if x > 0 else 2)(3)", errors.TracerBoolConversionError, ["NAME.lax.cond", "NAME.numpy.where"]),
    "traced-float": ("J.jit(lambda x: float(x))(3)", errors.ConcretizationTypeError, ["float(...)", "NAME.numpy functions"]),
    "traced-numpy": ("J.jit(lambda x: np.sin(x))(3.0)", errors.TracerArrayConversionError, ["NAME.pure_callback"]),
    "traced-mask": ("J.jit(lambda x: x[x > 0])(jnp.ones(3))", errors.NonConcreteBooleanIndexError, ["NAME.numpy.where(mask, x, y)"]),
    "traced-slice": ("J.jit(lambda x, n: x[:n])(jnp.ones(3), 2)", IndexError, ["NAME.lax.dynamic_slice"]),
    "traced-zeros": ("J.jit(lambda n: jnp.zeros((n, 2)))(3)", TypeError, ["Shapes must be 1D", "in a shape", "static_argnums"]),
    "traced-reshape": ("J.jit(lambda n: jnp.ones(6).reshape(n, -1))(3)", TypeError, ["Shapes must be 1D", "in a shape"]),
    "traced-eye": ("J.jit(lambda n: jnp.eye(n))(3)", TypeError, ["Shapes must be 1D", "in a shape"]),
    "traced-random": ("J.jit(lambda n: J.random.normal(J.random.key(0), (n,)))(3)", TypeError, ["Shapes must be 1D", "in a shape"]),
    "traced-arange": ("J.jit(lambda n: jnp.arange(n))(3)", errors.ConcretizationTypeError, ["NAME.numpy.arange argument 'stop'"]),
    "caught": ("caught(J, np.asarray)", errors.TracerArrayConversionError, ["NAME.pure_callback"]),
    "caught-slice": ("caught(J, lambda v: v[: v[0].astype(int)])", IndexError, ["NAME.lax.dynamic_slice"]),
    "key-values": ("np.asarray(J.random.key(0))", TypeError, ["random keys", "NAME.random.key_data"]),
    "aux": ("J.grad(lambda x: x, has_aux=True)(1.0)", TypeError, ["<lambda> must return a two-element tuple"]),
    "setting": ("J.config.update('jax_enable_x65', True)", AttributeError, ["config has no setting", "enable_x64"]),
    "keyword": ("J.jit(lambda x: x, static_argnum=0)", TypeError, ["'static_argnum'", "Did you mean static_argnums?"]),
    "seed": ("J.random.key('seed')", TypeError, ["random.key: PRNG key seed must be an integer; got 'seed'"]),
    "sample-shape": ("J.random.uniform(J.random.key(0), 3.5)", TypeError, ["Shapes must be 1D", "got 3.5"]),
    "pad": ("jnp.pad(jnp.ones(3), ((1, 2), (3, 4)))", ValueError, ["unsupported shape (2, 2)", "each of the 1 dim."]),
    "checkpoint": ("J.checkpoint(3)", TypeError, ["checkpoint: Expected a callable value, got 3"]),
    "policy": ("J.checkpoint(lambda x: x, policy=3)", TypeError, ["checkpoint: policy: Expected a callable value, got 3"]),
    "wrapped-call": ("J.vmap(custom(J))(jnp.ones(3), jnp.ones(3))", TypeError, ["square() takes 1 positional argument but 2"]),
    "compiled": (
        "J.jit(lambda x: x).lower(jnp.ones(4)).compile()(split(J))",
        ValueError,
        ["argument x of type float32[4]", "NAME.device_put(x, sharding)"],
    ),
    "leak": ("leak(J) + 1", errors.UnexpectedTracerError, ["through its return value", "NAME.checking_leaks()"]),
    "key-number": ("J.random.normal(0, (3,))", TypeError, ["random.normal: the key is a number", "NAME.random.key(number)"]),
    "split-number": ("J.random.split(0)", TypeError, ["random.split: the key is a number", "NAME.random.key(number)"]),
    "key-batch": ("J.random.normal(J.random.split(J.random.key(0), 3))", ValueError, ["a single key", "NAME.vmap"]),
    "tree-keys": ("J.tree.map(max, {'a': 1, 'b': 2}, {'a': 1, 'c': 2})", ValueError, ["'a', 'b' (without 'c')", "rest[0]  dict"]),
    "tree-lengths": ("J.tree.map(max, {'a': [1, 2]}, {'a': [1]})", ValueError, ["at tree['a']", "list of length 2", "list of length 1"]),
    "leaf-count": ("J.tree.unflatten(J.tree.structure(0), [1, 2])", ValueError, ["takes 1 leaf, got 2"]),
    "cond-trees": ("J.lax.cond(True, lambda x: (x, x), lambda x: x, 1.0)", TypeError, ["tuple of length 2", "an array (different types)"]),
    "scan-carry": ("J.lax.scan(lambda c, x: ({'a': c['a']}, x), {'a': 1., 'b': 2.}, jnp.ones(3))", TypeError, ["(without 'b')"]),
    "jvp-trees": ("J.jvp(lambda x: x, (1.0,), (1.0, 2.0))", TypeError, ["arguments to NAME.jvp", "tuple of length 1", "tuple of length 2"]),
    "vjp-trees": ("J.vjp(lambda x: {'a': x}, 1.0)[1]({'b': 1.0})", ValueError, ["cotangent", "(without 'a')"]),
    "transpose-trees": ("J.linear_transpose(lambda x: x * 2, 1.0)((1.0, 2.0))", TypeError, ["linear_transpose: the cotangent", "a leaf"]),
    "no-jvp": ("J.grad(J.custom_jvp(lambda x: x))(1.0)", AttributeError, ["No JVP defined for custom_jvp function <lambda>"]),
    "custom-arguments": ("custom(J)(1.0, 2.0)", TypeError, ["custom_jvp: custom.<locals>.square() takes 1 positional argument"]),
    "custom-rule": ("custom(J, lambda p, t: (p[0], (t[0], t[0])))", TypeError, ["tangent output", "tuple of length 2"]),
    "list": ("jnp.sum([1.0, 2.0])", TypeError, ["requires ndarray or scalar arguments", "NAME.numpy.asarray"]),
    "matmul": ("jnp.ones((2, 3)) @ jnp.ones((2, 3))", TypeError, ["contracting dimensions", "size 3", "matmul(x, y.T)"]),
    "broadcast": ("jnp.ones((2, 3)) + jnp.ones(4)", TypeError, ["incompatible shapes for broadcasting: (2, 3), (4,)"]),
    "assignment": ("jnp.ones(3).__setitem__(0, 1.0)", TypeError, ["immutable", "x = x.at[index].set(y)"]),
    "axis-name": ("J.lax.psum(1.0, 'i')", NameError, ["unbound axis name: i", "`NAME.shard_map`"]),
    "out-specs": (
        "J.shard_map(lambda x: x, mesh=J.make_mesh((2,), ('a',)), in_specs=J.P('a'), out_specs=J.P())(jnp.ones(4))",
        ValueError,
        ["shard_map(<lambda>): out_specs", "lax.psum(x, 'a')"],
    ),
    "uneven": (
        "J.shard_map(lambda x: x, mesh=J.make_mesh((2,), ('a',)), in_specs=J.P('a'), out_specs=J.P('a'))(jnp.ones(3))",
        ValueError,
        ["shard_map(<lambda>): dim 0 of argument x", "size 3", "Pad the dim to 4"],
    ),
    "softmax": ("jnp.softmax(jnp.ones(3))", AttributeError, ["module 'NAME.numpy' has no attribute", "Did you mean NAME.nn.softmax?"]),
}  # fmt: skip

HELPERS = """
def leak(J):
    values = []
    J.jit(lambda x: values.append(x))(1.0)
    return values[0]

def split(J):
    mesh = J.make_mesh((2,), ('a',))
    return J.device_put(J.numpy.ones(4), J.NamedSharding(mesh, J.P('a')))

def caught(J, use):
    errors = []
    def f(v):
        try:
            use(v)
        except Exception as error:
            errors.append(error)
        return v
    J.jit(f)(J.numpy.ones(3))
    raise errors[0]

def custom(J, rule=None):
    @J.custom_jvp
    def square(x):
        return x * x
    square.defjvp(rule or (lambda p, t: (p[0] * p[0], 2 * p[0] * t[0])))
    return square if rule is None else J.grad(square)(1.0)
"""


@pytest.fixture(params=["weft", "jax"])
def program(request) -> Any:
    """Return a function that runs a program which imports weft under one of its names."""
    name = request.param
    if name == "jax":
        install_as_jax()
    module, numpy = importlib.import_module(name), importlib.import_module(f"{name}.numpy")

    def run(text: str) -> None:
        namespace = {"J": module, "jnp": numpy, "np": np}
        exec(compile(HELPERS, "program.py", "exec"), namespace)
        eval(compile(text, "program.py", "eval"), namespace)

    yield name, run
    if name == "jax":
        uninstall()


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_name_facts_and_remedies(program: tuple[str, Callable], mistake):
    name, run = program
    text, kind, words = mistake
    with pytest.raises(kind) as caught:
        run(text)
    message = str(caught.value)
    for word in words:
        assert word.replace("NAME", name) in message
    assert ("weft." if name == "jax" else "jax.") not in message


def test_files_that_import_weft_get_its_names_under_the_shim():
    install_as_jax()
    try:
        namespace = {"wnp": importlib.import_module("weft.numpy")}
        with pytest.raises(TypeError, match=r"weft\.numpy\.asarray"):
            exec("wnp.sum([1.0])", namespace)
    finally:
        uninstall()
