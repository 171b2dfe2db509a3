"""Types that the peer gives to programs on explicitly sharded arrays: `python peer.py IN OUT`, with JSON lists.

IN   program texts: expressions over the arrays of `SETUP`
OUT  for each, the types of its results, or a string: the class of the error
This file imports nothing of the system under test.
"""

import json
import sys

#: arrays by name: shape and spec, over a mesh of axes a (2) and b (4)
SETUP = {
    "x": ((8, 16), ("a", "b")),
    "rows": ((8, 16), ("a", None)),
    "columns": ((8, 16), (None, "b")),
    "turned": ((8, 16), ("b", "a")),
    "w": ((16, 8), ("b", None)),
    "v": ((16, 8), (None, "b")),
    "k": ((8,), ("a",)),
    "row": ((16,), ("b",)),
    "image": ((8, 2, 8, 8), ("a", None, None, None)),
    "heads": ((4, 8, 4, 2), ("a", None, "b", None)),
}


def scope_of(api, xp, put) -> dict:
    """Return the names that programs use; `put(shape, spec)` makes an array."""
    arrays = {name: put(shape, spec) for name, (shape, spec) in SETUP.items()}
    return {
        "api": api,
        "xp": xp,
        "lax": api.lax,
        "nn": api.nn,
        "random": api.random,
        "P": api.P,
        "reshard": api.sharding.reshard,
        "auto_axes": api.sharding.auto_axes,
        **arrays,
    }


def types(text: str, scope: dict, api) -> list | str:
    """Return the types of the results of a program, by dims and axes."""
    try:
        return [
            str(api.typeof(leaf))
            .removeprefix("ShapedArray(")
            .removesuffix(")")
            .replace("~", "")
            .split(", weak")[0]
            for leaf in api.tree.leaves(eval(text, scope))
        ]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    import jax
    import numpy as np

    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    jax.set_mesh(mesh)
    put = lambda shape, spec: jax.device_put(
        np.ones(shape, np.float32), jax.NamedSharding(mesh, jax.P(*spec))
    )
    scope = scope_of(jax, jax.numpy, put)
    with open(sys.argv[1]) as file:
        texts = json.load(file)
    with open(sys.argv[2], "w") as file:
        json.dump([types(text, scope, jax) for text in texts], file)


if __name__ == "__main__":
    main()
