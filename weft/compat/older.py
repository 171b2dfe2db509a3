"""Functions of older JAX versions that were removed, or whose calling convention changed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft
from weft._engine.api.calls.call_cache import CompiledCall, FlatCall
from weft._engine.api.calls.options import JitOptions
from weft._engine.api.jit import JitFunction
from weft._engine.api.layouts import replace_none_by_replication
from weft._engine.ir.mesh import Mesh, current_mesh, placement_mesh, use_placement_mesh
from weft._engine.ir.symbolic import SymbolicDim

UNSPECIFIED = object()


def disable_x64() -> Any:
    """Return a context manager that truncates 64-bit dtypes to 32 bits."""
    return weft.enable_x64(False)


def full_lower(x: Any) -> Any:
    """Return `x` unchanged: weft has no tracers of constants."""
    return x


def reset_cache() -> None:
    """Restore the cache of compiled programs to the initial settings, and undo `set_cache_dir`."""
    weft.config.update("compilation_cache_dir", None)


def set_cache_dir(path: Any) -> None:
    """Cache compiled programs in the folder `path`: the setting `compilation_cache_dir`."""
    weft.config.update("compilation_cache_dir", str(path))


def raise_to_shaped(aval: Any, weak_type: bool | None = None) -> Any:
    """Return `aval` unchanged: weft has no types that hold a value."""
    return aval if weak_type is None else aval.update(weak_type=weak_type)


def is_constant_dim(d: Any) -> bool:
    """Return True if a size is a number, not symbolic.

    >>> is_constant_dim(3)
    True
    """
    return not isinstance(d, SymbolicDim)


def is_constant_shape(s: Sequence[Any]) -> bool:
    """Return True if all sizes of a shape are numbers."""
    return all(map(is_constant_dim, s))


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return `weft.numpy.isin` of the flattened array."""
    return weft.numpy.isin(weft.numpy.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def pjit(
    fun: Callable[..., Any],
    in_shardings: Any = UNSPECIFIED,
    out_shardings: Any = UNSPECIFIED,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    abstracted_axes: Any = None,
    compiler_options: dict[str, Any] | None = None,
    *,
    in_axis_resources: Any = UNSPECIFIED,
    out_axis_resources: Any = UNSPECIFIED,
) -> Callable[..., Any]:
    """`weft.jit` under its older name; `*_axis_resources` are today's `*_shardings`.

    None as a sharding means replicated over the mesh in context at the call, and unspecified
    without a mesh.
    """
    options = {
        "in_shardings": in_shardings if in_axis_resources is UNSPECIFIED else in_axis_resources,
        "out_shardings": out_shardings if out_axis_resources is UNSPECIFIED else out_axis_resources,
    }
    if abstracted_axes is not None or not callable(fun):
        return weft.jit(fun, abstracted_axes=abstracted_axes)
    shardings = {
        name: replace_none_by_replication(tree)
        for name, tree in options.items()
        if tree is not UNSPECIFIED
    }
    return _MeshContextJit(
        fun,
        JitOptions(
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            keep_unused=keep_unused,
            device=device,
            backend=backend,
            inline=inline,
            compiler_options=compiler_options,
            **shardings,
        ),
    )


class _MeshContextJit(JitFunction):
    """A jitted function that runs on the devices of the mesh of `with mesh` and moves its arguments
    and results there. The mesh of `set_mesh` does not move them. Specs refer to either mesh."""

    _mesh_of = staticmethod(current_mesh)

    def _execute(self, call: FlatCall) -> Any:
        mesh = current_mesh()
        if not isinstance(mesh, Mesh) or mesh.empty or mesh.manual_axes:
            return super()._execute(call)
        with use_placement_mesh(mesh if placement_mesh() is None else None):
            return super()._execute(call)

    def _install_fast_path(self, compiled: CompiledCall, call: FlatCall, is_first: bool) -> None:
        if current_mesh() is None:  # results depend on the mesh context
            super()._install_fast_path(compiled, call, is_first)
