"""Names of the leaves of a call, from the function that the user called.

In:   the leaves of a call of a jitted function, and the Python stack of this call.
Out:  a name for each leaf: parameter and key path, such as `model.layers[0].weight`.
How:  libraries wrap jit. Their wrappers are objects with `__wrapped__` that are called with `*args` and `**kwargs`, and pass
      leaves on in an order of their own. The arrays are the same objects, so the outermost wrapper gives their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from weft._engine.api.flat import argument_names, signature_of
from weft._engine.util import tree

#: leaves that are equal objects wherever they occur, and tell nothing
_SHARED = (bool, int, float, complex, str)


def names_of_call(leaves: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return names of the leaves for the outermost wrapper on the stack that has them; those in `names` for others."""
    leaf_names = list(names)
    for names_by_id in _wrapper_calls(inspect.currentframe()):
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, _SHARED):
                leaf_names[i] = names_by_id.get(id(leaf), leaf_names[i])
    return leaf_names


def _wrapper_calls(frame: FrameType | None) -> Iterator[Mapping[int, str]]:
    """Yield the names of leaves by identity for each call of a wrapper on the stack, from the innermost."""
    while frame is not None:
        code = frame.f_code
        has_rest = code.co_flags & inspect.CO_VARARGS and code.co_flags & inspect.CO_VARKEYWORDS
        if has_rest and code.co_argcount == 1 and not code.co_kwonlyargcount:
            wrapper, args, kwargs = (frame.f_locals.get(name) for name in code.co_varnames[:3])
            if hasattr(wrapper, "__wrapped__"):
                yield _names_by_id(wrapper, args, kwargs)
        frame = frame.f_back


def _names_by_id(wrapper: Any, args: Any, kwargs: Any) -> Mapping[int, str]:
    try:
        leaves = tree.tree_leaves((args, {name: kwargs[name] for name in sorted(kwargs)}))
        return dict(zip(map(id, leaves), argument_names(signature_of(wrapper), args, kwargs)))
    except Exception:  # a node of the user's type that cannot be taken apart
        return {}
