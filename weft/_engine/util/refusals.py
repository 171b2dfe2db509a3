"""Unsupported names of JAX in weft's modules: they can be imported, and calls raise NotImplementedError.

In:   the public module and the name.
Out:  a function that raises NotImplementedError with the reason, or the error itself for functions with their own signatures.
Next: `compat.missing`, the table of JAX's names that no module of weft has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_MLIR = (
    "weft makes no MLIR. The text of a program as StableHLO is weft.jit(fun).lower(...).as_text(); "
    "weft.export keeps programs."
)
_IFRT = "weft's backends run programs in this process, and have no IFRT interface."
_XLA = (
    "weft does not compile with XLA; give options with "
    "weft.jit(fun).lower(...).compile(compiler_options={...})."
)

#: reason -> module -> names
_REFUSED: dict[str, dict[str, str]] = {
    _MLIR: {
        "weft.extend.mlir": """
            deserialize_portable_artifact hlo_to_stablehlo lower_with_sharding_in_types refine_polymorphic_shapes
            serialize_portable_artifact
        """
    },
    _IFRT: {
        "weft.extend.ifrt_programs": """
            make_colocated_python_compile_options make_colocated_python_program make_hlo_program make_plugin_compile_options
            make_plugin_program make_xla_compile_options
        """
    },
    _XLA: {
        "weft.extend.backend": "get_compile_options",
        "weft.interpreters.pxla": "create_compile_options",
    },
    "backends of other runtimes cannot be added. A backend of weft is a class of weft._engine.backends (docs/adding-a-backend.md).": {
        "weft.extend.backend": "register_backend_factory",
    },
    "it is assembler of a GPU. Write the function with weft.numpy.": {
        "weft.experimental.pallas.triton": "elementwise_inline_asm",
    },
    "no memory outlives a kernel. Pass an array with input_output_aliases.": {
        "weft.experimental.pallas": "get_global",
    },
    "it is not supported. Use start_trace and stop_trace, or `with trace(dir)`.": {
        "weft.profiler": "start_server",
    },
}


def refused_names(module: str) -> list[str]:
    """Return the unsupported names of a module.

    >>> refused_names("weft.profiler")
    ['start_server']
    """
    return [name for modules in _REFUSED.values() for name in modules.get(module, "").split()]


def refusal(module: str, name: str) -> NotImplementedError:
    """Return the error for a call of an unsupported function.

    >>> refusal("weft.experimental.pallas", "get_global")
    NotImplementedError('weft.experimental.pallas.get_global: no memory outlives a kernel. Pass an array with input_output_aliases.')
    """
    for reason, modules in _REFUSED.items():
        if name in modules.get(module, "").split():
            return NotImplementedError(f"{module}.{name}: {reason}")
    raise KeyError(f"{module}.{name}")


def refused_function(module: str, name: str, message: str = "") -> Callable[..., NoReturn]:
    """Return a function of `module` that raises NotImplementedError with `message`, by default the reason in the table.

    >>> refused_function("weft", "f", "f: there is none.")(1, x=2)
    Traceback (most recent call last):
    NotImplementedError: f: there is none.
    """
    message = message or str(refusal(module, name))

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(message)

    refused.__module__, refused.__doc__ = module, f"Raise NotImplementedError: {message}"
    refused.__name__ = refused.__qualname__ = name
    return refused
