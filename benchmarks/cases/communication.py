"""Between devices: resharding between all pairs of shardings, collectives by size, transfers to and from NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from suite import Case, Step, add, layout, mesh, normal

LAYOUTS = (
    (),
    ("a",),
    ("b",),
    (None, "a"),
    (None, "b"),
    ("a", "b"),
    ("b", "a"),
    (("a", "b"),),
    (None, ("a", "b")),
)
SIZE = 1024


def text(spec):
    return (
        "P("
        + ", ".join("None" if s is None else s if isinstance(s, str) else "ab" for s in spec)
        + ")"
    )


def reshard(before, after):
    def setup():
        x = jax.device_put(normal(SIZE, SIZE).numpy(), layout((4, 2), before))
        f = jax.jit(lambda x: x, out_shardings=layout((4, 2), after))
        return Step(f, (x,))

    return setup


for _before, _after in itertools.permutations(LAYOUTS, 2):
    add(
        Case(
            f"reshard {text(_before)} to {text(_after)}",
            "resharding",
            reshard(_before, _after),
            devices=8,
            shared=True,
            budget_s=0.2,
            quick=(_before, _after)
            in ((("a",), (None, "a")), (("a", "b"), ()), (("a", "b"), ("b", "a"))),
        )
    )

COLLECTIVES = {
    "psum": (lambda x: lax.psum(x, "a"), P()),
    "all_gather": (lambda x: lax.all_gather(x, "a", tiled=True), P("a")),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "a", tiled=True), P("a")),
    "all_to_all": (lambda x: lax.all_to_all(x.reshape(8, -1), "a", 0, 0).reshape(-1), P("a")),
    "ppermute": (lambda x: lax.ppermute(x, "a", [(i, (i + 1) % 8) for i in range(8)]), P("a")),
}


def collective(name, size):
    def setup():
        body, out = COLLECTIVES[name]
        x = jax.device_put(normal(size // 4).numpy(), layout((8,), ("a",)))
        f = jax.jit(jax.shard_map(body, mesh=mesh((8,)), in_specs=P("a"), out_specs=out))
        return Step(f, (x,))

    return setup


for _name in COLLECTIVES:
    for _size, _text in (
        (1 << 10, "1 KiB"),
        (1 << 15, "32 KiB"),
        (1 << 20, "1 MiB"),
        (1 << 23, "8 MiB"),
        (1 << 26, "64 MiB"),
    ):
        add(
            Case(
                f"{_name} {_text}",
                "collectives",
                collective(_name, _size),
                devices=8,
                shared=True,
                quick=_size == 1 << 20,
            )
        )


def transfer(name, setup, quick=False, devices=8):
    add(Case(name, "transfers", setup, devices=devices, quick=quick))


def put(spec, devices=8, n=2048):
    def setup():
        x = normal(n, n).numpy()
        if devices == 1:
            return lambda: jax.block_until_ready(jax.device_put(x))
        where = layout((4, 2), spec)
        return lambda: jax.block_until_ready(jax.device_put(x, where))

    return setup


def fetch(spec, n=2048):
    def setup():
        x = jax.device_put(normal(n, n).numpy(), layout((4, 2), spec))
        f = jax.jit(lambda x: x + 1)
        return lambda: np.asarray(f(x))  # a new array each time: an array may cache its NumPy value

    return setup


transfer("device_put 16 MiB", put((), 1), devices=1, quick=True)
transfer("device_put 16 MiB to P(a, b)", put(("a", "b")), quick=True)
transfer("device_put 16 MiB replicated", put(()))
transfer("device_put 16 MiB to P(None, ab)", put((None, ("a", "b"))))
transfer("device_put 4 KiB to P(a, b)", put(("a", "b"), n=32))
transfer("asarray of P(a, b)", fetch(("a", "b")), quick=True)
transfer("asarray of P(None, ab)", fetch((None, ("a", "b"))))
transfer("asarray of a replicated array", fetch(()))


@lambda setup: transfer("device_put between shardings, eager", setup, quick=True)
def _between():
    x = jax.device_put(normal(SIZE, SIZE).numpy(), layout((4, 2), ("a", "b")))
    there = layout((4, 2), ("b", "a"))
    return lambda: jax.block_until_ready(jax.device_put(x, there))


@lambda setup: transfer("device_put of a tree of 20", setup)
def _tree():
    xs = [normal(64, 64).numpy()] * 20
    where = layout((8,), ("a",))
    return lambda: jax.block_until_ready(jax.device_put(xs, where))


@lambda setup: transfer("shards of an array to NumPy", setup)
def _shards():
    x = jax.device_put(jnp.ones((64, 64)), layout((8,), ("a",)))
    return lambda: [np.asarray(s.data) for s in x.addressable_shards]
