"""Run programs on the peer, in its own environment: `python peer.py IN OUT`, with pickled lists.

IN   a list of (text, arrays): the text defines `main`, which takes the arrays
OUT  for each, a list of (value, dtype name, weak type), one per leaf of the result, or a string: the error
This file imports nothing of the system under test.
"""

import pickle
import sys

import numpy as np


def describe(leaf) -> tuple:
    """Return value, dtype and weak type; floats of at most 16 bits are sent as float32."""
    from jax import numpy as jnp

    array = jnp.asarray(leaf)
    value = np.asarray(array)
    if value.dtype.kind == "V" or value.dtype.name.startswith(("bfloat", "float8")):
        value = value.astype(np.float32)
    return value, array.dtype.name, array.weak_type


def run(text: str, arrays: list):
    import jax
    from jax import numpy as jnp

    scope = {"api": jax, "xp": jnp, "lax": jax.lax, "nn": jax.nn, "random": jax.random}
    try:
        exec(text, scope)
        return [
            describe(leaf) for leaf in jax.tree.leaves(scope["main"](*map(jnp.asarray, arrays)))
        ]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        tasks = pickle.load(file)
    results = [run(*task) for task in tasks]
    with open(sys.argv[2], "wb") as file:
        pickle.dump(results, file)
