"""Symbolic shapes from strings: `symbolic_shape`, and `symbolic_args_specs` for trees of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.api.stages import specified_sharding
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.core.trace import typeof
from weft._engine.ir.symbolic import (
    SymbolicDim,
    SymbolicScope,
)
from weft._engine.util import tree
from weft._engine.util.messages.quantities import quantity


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """Return the sizes in a string: integers, names, and expressions of names, separated by commas.

    `_` is the size of `like` at this position, and a final `...` stands for all sizes of `like` that follow; None stands
    for all of `like`. The names and their `constraints` belong to a new scope, or to `scope`. Raises ValueError for a
    string with invalid syntax, and for one that does not match `like`.

    >>> symbolic_shape("b, 3, 2*b + 1, floordiv(b, 2), ...", like=(4, 3, 9, 2, 7))
    (b, 3, 2*b + 1, floordiv(b, 2), 7)
    """
    if scope is not None and constraints:
        raise ValueError(
            "symbolic_shape: give constraints to the SymbolicScope, or here without a scope; both were given."
        )
    scope = SymbolicScope(constraints) if scope is None else scope
    shape_spec = "..." if shape_spec is None else shape_spec
    if not isinstance(shape_spec, str):
        raise ValueError(
            f"symbolic_shape: shape_spec is a string such as 'b, 3', got {shape_spec!r}."
        )
    words, like_dims = _dim_words(shape_spec, like)
    sizes: list[Any] = []
    for i in range(like_dims):
        known = None if like is None else like[i]
        if i >= len(words) or words[i] == "_":
            if known is None:
                raise ValueError(
                    f"symbolic_shape: a placeholder for dim {i} of {shape_spec!r}, which like={like} does not know."
                )
            sizes.append(known)
            continue
        size = scope.dim(words[i])
        is_fixed = (
            known is not None
            and not isinstance(known, SymbolicDim)
            and not isinstance(size, SymbolicDim)
        )
        if is_fixed and size != known:
            raise ValueError(
                f"symbolic_shape: syntax error in symbolic shape {shape_spec!r} in dimension {i}: different size {known} for "
                f"known dimension; like={tuple(like or ())}."
            )
        sizes.append(size)
    return tuple(sizes)


def _dim_words(shape_spec: str, like: Sequence[int | None] | None) -> tuple[list[str], int]:
    """Return the words for dims in a text, without `...`, and the number of dims. Raises ValueError if `like` does not fit."""
    error = f"syntax error in symbolic shape {shape_spec!r}"
    text = shape_spec.strip()
    if text.startswith("("):
        shape_spec = text.removeprefix("(").removesuffix(")")
    words = _split(shape_spec)
    if "..." in words[:-1]:
        raise ValueError(f"{error}: '...' stands for all that follow, and comes last.")
    open_ended = words[-1:] == ["..."]
    words = words[:-1] if open_ended else words
    if like is None:
        if open_ended or "_" in words:
            raise ValueError(
                f"{error}: no 'like' shape was given, and its placeholders need like=."
            )
        return words, len(words)
    rank = max(len(words), len(like)) if open_ended else len(words)
    if rank == len(like):
        return words, rank
    longer = ""
    if rank > len(like):
        parsed = sum(word != "_" for word in words)
        longer = (
            f" because we parsed {parsed} already and 'like' shape has only {len(like)} dimensions"
        )
    raise ValueError(
        f"{error}{longer}: it has {quantity(len(words), 'dim')}, and like={tuple(like)} has {len(like)}."
    )


def _split(words: str) -> list[str]:
    """Split `words` at the commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in words:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    parts = [part.strip() for part in parts]
    return parts[:-1] if parts[-1] == "" else parts


def symbolic_args_specs(
    args: Any,
    shapes_specs: Any,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """Return the types of `args`, a tree of arrays, with the shapes in `shapes_specs`: a string for all, or a prefix tree of strings and None.

    A list of specs also matches a tuple of arguments. Shardings of arguments are kept. All sizes belong to one scope.

    >>> symbolic_args_specs((wnp.ones((2, 3)),), ("b, ...",))
    (ShapeDtypeStruct(shape=(b, 3), dtype=float32),)
    """
    scope = SymbolicScope(constraints) if scope is None else scope
    leaves, structure = tree.tree_flatten(args)
    shapes_specs = (
        tuple(shapes_specs)
        if isinstance(shapes_specs, list) and isinstance(args, tuple)
        else shapes_specs
    )
    specs = tree.broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    avals = [x if hasattr(x, "shape") and hasattr(x, "dtype") else typeof(x) for x in leaves]
    structs = [
        ShapeDtypeStruct(
            symbolic_shape(spec, like=aval.shape, scope=scope),
            aval.dtype,
            sharding=specified_sharding(x),
        )
        for spec, aval, x in zip(specs, avals, leaves)
    ]
    return tree.tree_unflatten(structure, structs)
