"""Run programs that import jax on weft.

`install_as_jax()` makes `jax` and its modules importable, with weft's objects in them: under today's names, and under those
of older versions that documents still use. `weft run SCRIPT` calls it before the script starts. In an environment in which
`weft shim install` was run, `import jax` does the same by itself.

Next to read: `resolver` (the import hook), `names` (which weft module holds which JAX name), `inside` (names of `jax._src`), `older`
(functions of older versions).
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
