"""The `__module__` of array and tracer classes: a module of JAX while `import jax` means weft.

Libraries take the first part of `type(x).__module__` for the package whose functions compute with `x`.

In:   `reports_as` decorates a class with the JAX module to report; subclasses inside weft report the same.
Out:  `report_jax` changes all of these classes, and those that are defined later.
"""

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)

#: class -> (its module in weft, the module that it reports under the shim)
_classes: dict[type, tuple[str, str]] = {}
_is_jax = False


def reports_as(module: str) -> Callable[[C], C]:
    """Decorate a class: its `__module__` is `module` while `import jax` means weft.

    >>> @reports_as("jax.core")
    ... class Traced: ...
    >>> report_jax(True)
    >>> Traced.__module__
    'jax.core'
    >>> report_jax(False)
    """
    def register(cls: C) -> C:
        _classes[cls] = cls.__module__, module
        if _is_jax:
            cls.__module__ = module
        return cls

    return register


def report_jax(is_jax: bool) -> None:
    """Report JAX's modules, or weft's own."""
    global _is_jax
    _is_jax = is_jax
    for cls, (own, public) in _classes.items():
        cls.__module__ = public if is_jax else own
