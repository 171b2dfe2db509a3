"""Call overhead: jitted functions of few and many arrays, and eager operations, with almost no work."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from suite import Case, add, layout, normal, program


def tree(leaf, count):
    """A tree of three levels with `leaf` `count` times."""
    return {
        "a": [leaf] * (count // 4),
        "b": {"c": (leaf,) * (count // 2), "d": [leaf] * (count - count // 4 - count // 2)},
    }


def dispatch(what, devices):
    def setup():
        x = jnp.ones(64)
        if devices > 1:
            x = jax.device_put(x, layout((devices,), ("a",)))
        if what == "array":
            return functools.partial(jax.jit(lambda x: x + 1), x)
        f = jax.jit(lambda t: jax.tree_util.tree_map(lambda v: v + 1, t))
        return functools.partial(f, tree(x, what))

    return setup


for _devices in (1, 8, 64):
    for _what in ("array", 20, 200):
        _name = "one array" if _what == "array" else f"tree of {_what}"
        add(
            Case(
                f"dispatch {_name} on {_devices}",
                "dispatch",
                dispatch(_what, _devices),
                devices=_devices,
                shared=True,
                quick=(_what, _devices)
                in (("array", 1), ("array", 8), (20, 1), (20, 8), ("array", 64)),
            )
        )


class Triple(NamedTuple):
    """Three leaves by name."""

    a: object
    b: object
    c: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Record:
    """Three leaves of a dataclass, and a setting."""

    a: object
    b: object
    c: object
    name: str = dataclasses.field(default="record", metadata={"static": True})


@jax.tree_util.register_pytree_node_class
class Node:
    """Three leaves of a class that says itself how it is taken apart."""

    def __init__(self, a, b, c):
        self.a, self.b, self.c = a, b, c

    def tree_flatten(self):
        return (self.a, self.b, self.c), "node"

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


KINDS = {
    "one dict": lambda x: {f"p{i}": x for i in range(300)},
    "dicts": lambda x: {f"p{i}": {"a": x, "b": x, "c": x} for i in range(100)},
    "named tuples": lambda x: [Triple(x, x, x) for _ in range(100)],
    "dataclasses": lambda x: [Record(x, x, x) for _ in range(100)],
    "nodes": lambda x: [Node(x, x, x) for _ in range(100)],
}


def tree_dispatch(kind, gives_tree):
    """A call with 300 leaves in containers of one kind, which gives one array or the tree itself."""

    def setup():
        tree = KINDS[kind](jnp.ones(4))
        f = jax.jit(
            (lambda t: jax.tree_util.tree_map(lambda v: v + 1, t))
            if gives_tree
            else lambda t: jax.tree_util.tree_leaves(t)[0] + 1
        )
        for _ in range(400):
            f(tree)
        return functools.partial(f, tree)

    return setup


def tree_map(kind):
    """A map over 300 leaves in containers of one kind, with a function that does nothing."""

    def setup():
        return functools.partial(jax.tree_util.tree_map, lambda v: v, KINDS[kind](1.0))

    return setup


for _kind in KINDS:
    add(
        Case(
            f"dispatch 300 leaves in {_kind}", "dispatch", tree_dispatch(_kind, False), shared=True
        )
    )
    add(
        Case(
            f"dispatch 300 leaves in and out of {_kind}",
            "dispatch",
            tree_dispatch(_kind, True),
            shared=True,
        )
    )
    add(Case(f"tree_map of 300 leaves in {_kind}", "dispatch", tree_map(_kind), shared=True))


def eager(name, function, *shape, quick=False, devices=1):
    def setup():
        x = jnp.asarray(
            np.linspace(0.5, 1.5, int(np.prod(shape or (8,))), dtype=np.float32).reshape(
                shape or (8,)
            )
        )
        if devices > 1:
            x = jax.device_put(x, layout((devices,), ("a",)))
        return functools.partial(function, x)

    add(Case(f"eager {name}", "eager", setup, shared=True, quick=quick, devices=devices))


eager("x + x", lambda x: x + x, quick=True)
eager("x * 2.0", lambda x: x * 2.0)
eager("x[:, None] + x", lambda x: x[:, None] + x)
eager("x < 1", lambda x: x < 1)
eager("sin(x)", jnp.sin)
eager("where", lambda x: jnp.where(x < 1, x, 0.0))
eager("x[3]", lambda x: x[3], quick=True)
eager("x[1:5]", lambda x: x[1:5])
eager("x[::-1]", lambda x: x[::-1])
eager("x[index]", lambda x: x[jnp.array([1, 2, 3])])
eager("x[mask]", lambda x: x[x > 1])
eager("x.at[3].set", lambda x: x.at[3].set(1.0), quick=True)
eager("x.at[1:3].add", lambda x: x.at[1:3].add(1.0))
eager("x.sum()", lambda x: x.sum())
eager("x.mean(0)", lambda x: x.mean(0), 8, 8)
eager("x.reshape", lambda x: x.reshape(8, 8), 64)
eager("x.T", lambda x: x.T, 8, 8)
eager("x @ x", lambda x: x @ x, 8, 8)
eager("concatenate", lambda x: jnp.concatenate([x, x]))
eager("astype", lambda x: x.astype(jnp.int32))
eager("float(x)", lambda x: float(x.sum()))
eager("zeros", lambda x: jnp.zeros((8, 8)))
eager("asarray of a list", lambda x: jnp.asarray([1.0, 2.0, 3.0]))
eager("random.split", lambda x: jax.random.split(jax.random.PRNGKey(0)))
eager("grad", lambda x: jax.grad(lambda x: (x * x).sum())(x))
eager("vmap", lambda x: jax.vmap(lambda v: v * 2)(x))
eager("x + x on 8", lambda x: x + x, quick=True, devices=8)
eager("x.sum() on 8", lambda x: x.sum(), devices=8)
eager("x.at[3].set on 8", lambda x: x.at[3].set(1.0), devices=8)

program(
    "call with an array of NumPy",
    "dispatch",
    lambda x: x + 1,
    np.arange(64, dtype=np.float32),
    shared=True,
    quick=True,
)
program(
    "call with a float64 array of NumPy",
    "dispatch",
    lambda x: x + 1,
    np.arange(4096.0),
    shared=True,
)
program(
    "call with a batch of NumPy, 256 KiB",
    "dispatch",
    lambda x: x + 1,
    np.ones((64, 1024), np.float32),
    shared=True,
)
program(
    "jitted value_and_grad, small",
    "dispatch",
    jax.value_and_grad(lambda w, x: jnp.tanh(x @ w).sum()),
    normal(16, 16),
    normal(4, 16),
    shared=True,
)
