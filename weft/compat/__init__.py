"""Run programs that import jax on weft.

`install_as_jax()` makes `jax` and its modules importable, with weft's objects in them: under today's names, and under those
of older versions that documents still use. `weft run SCRIPT` calls it before the script starts.

Next to read: `resolver` (the import hook), `names` (which weft module holds which JAX name), `older` (functions
of older versions).
"""

from weft.compat.resolver import JAX_VERSION as JAX_VERSION, install_as_jax as install_as_jax, uninstall as uninstall

__all__ = ["JAX_VERSION", "install_as_jax", "uninstall"]
