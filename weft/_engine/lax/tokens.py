"""Tokens: values without data that represent the order of effects.

Effects happen in program order, so a token carries nothing: it is a pytree without leaves, which
programs, loops and transformations pass on like any other tree. No operation handles tokens.
"""

from __future__ import annotations

from typing import Any

from weft._engine.util.source import api_boundary
from weft._engine.util.tree import register_pytree_node, tree_leaves


class Token:
    """A token for the order of effects; `buf` is an array that is ready after them, or None."""

    __module__ = "weft.extend.core"

    __slots__ = ("_buf",)

    def __init__(self, buf: Any = None):
        self._buf = buf

    def block_until_ready(self) -> "Token":
        """Wait for the token's array, if there is one."""
        if hasattr(self._buf, "block_until_ready"):
            self._buf.block_until_ready()
        return self

    def __repr__(self) -> str:
        return "Token()"


register_pytree_node(Token, lambda token: ((), None), lambda _aux, _children: Token())


@api_boundary
def create_token(_: Any = None) -> Token:
    """Return a token; the argument is ignored.

    >>> weft.jit(lambda x, token: (x + 1, token))(1.0, weft.lax.create_token())
    (Array(2., dtype=float32, weak_type=True), Token())
    """
    return Token()


@api_boundary
def after_all(*operands: Any) -> Token:
    """Return a token for all tokens in `operands`; raise TypeError for other values.

    >>> weft.lax.after_all(weft.lax.create_token(), weft.lax.create_token())
    Token()
    """
    others = tree_leaves(operands)
    if others:
        raise TypeError(
            f"after_all: operands are tokens, got {others[0]!r} of type {type(others[0])}. lax.optimization_barrier orders "
            "arrays."
        )
    return Token()
