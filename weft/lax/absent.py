"""Names of JAX's lax that are not built, each with its reason. Calling one raises NotImplementedError.

`NOT_BUILT` is the list that the documentation shows.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.util.source import named

#: name -> why it is not there, and what to use
NOT_BUILT: dict[str, str] = {
    "precv": "receiving apart from sending serves GPUs that communicate by NCCL. Use lax.ppermute, which does both.",
    "psend": "sending apart from receiving serves GPUs that communicate by NCCL. Use lax.ppermute, which does both.",
    "rng_uniform": "it draws from a state that is hidden, so that equal calls differ. Use random.uniform with a key.",
}


def _absent(name: str) -> Callable:
    def fun(*args, **kwargs):
        raise NotImplementedError(f"lax.{name} is not supported: {NOT_BUILT[name]}")
    return named(fun, name, f"Raises NotImplementedError: {NOT_BUILT[name]}")


precv, psend, rng_uniform = map(_absent, NOT_BUILT)
