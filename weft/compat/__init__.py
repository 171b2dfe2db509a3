"""Running programs that say `import jax` on weft.

`install_as_jax()` makes `jax` and its modules importable, answered by weft: today's names, and those of the older
generations that documents still use. `weft run SCRIPT` calls it before the script starts.

Next to read: `resolver` (the import hook), `names` (which weft module answers for which JAX name), `older` (functions
whose calling convention changed since).
"""

from weft.compat.resolver import JAX_VERSION as JAX_VERSION, install_as_jax as install_as_jax, uninstall as uninstall

__all__ = ["JAX_VERSION", "install_as_jax", "uninstall"]
