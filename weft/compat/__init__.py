"""Run programs that import jax on weft.

`install_as_jax()` makes `jax` and its modules importable, with weft's objects in them, under the
names of current and older versions of JAX. `weft run SCRIPT` calls it before the script starts.
After `weft shim install` in an environment, `import jax` does the same by itself.

Next to read: `resolver` (the import hook), `names` (the weft module of each JAX name), `inside`
(names of `jax._src`), `older` (functions of older versions).
"""

from weft.compat.resolver import (
    JAX_VERSION as JAX_VERSION,
    become_jax as become_jax,
    install_as_jax as install_as_jax,
    installed_shim as installed_shim,
    is_shim as is_shim,
    uninstall as uninstall,
)

__all__ = ["JAX_VERSION", "become_jax", "install_as_jax", "installed_shim", "is_shim", "uninstall"]
