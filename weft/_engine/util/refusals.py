"""Functions for names of JAX that weft refuses: they can be imported, and say why when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def refused_function(module: str, name: str, message: str) -> Callable[..., NoReturn]:
    """Return a function of `module` that raises NotImplementedError.

    >>> refused_function("weft", "f", "f: there is none.")(1, x=2)
    Traceback (most recent call last):
    NotImplementedError: f: there is none.
    """

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(message)

    refused.__module__, refused.__doc__ = module, f"Raise NotImplementedError: {message}"
    refused.__name__ = refused.__qualname__ = name
    return refused
