"""Special functions on the peer, in its own environment: `python peer.py IN OUT`, with pickled lists.

IN   a list of (name below jax.scipy, arguments, dtype, arguments to differentiate by, further arguments)
OUT  for each, the value and the slopes as float64; NaN where the peer raises
This file imports nothing of the system under test.
"""

import importlib
import pickle
import sys

import numpy as np


def run(name, args, dtype, by, fixed):
    import jax
    *path, last = name.split(".")
    module = importlib.import_module(".".join(["jax.scipy", *path]))

    def fun(*args):
        return getattr(module, last)(*args, *fixed)
    args = [jax.numpy.asarray(x).astype(dtype) for x in args]
    out = []
    for f in (fun, *[jax.grad(lambda *args: fun(*args).sum(), i) for i in by]):
        try:
            out.append(np.asarray(jax.jit(f)(*args)).astype(np.float64))
        except (NotImplementedError, TypeError, ValueError):
            out.append(np.full(args[0].shape, np.nan))
    return out


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    with open(sys.argv[1], "rb") as file:
        tasks = pickle.load(file)
    results = [run(*task) for task in tasks]
    with open(sys.argv[2], "wb") as file:
        pickle.dump(results, file)
