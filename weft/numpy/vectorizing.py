"""`vectorize`: a function of single elements (or core arrays) mapped over broadcast arguments."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from weft.numpy.promote import broadcast_shapes, concrete, value
from weft.util.source import api_boundary

_CORE = re.compile(r"\(([^()]*)\)")


def _dims(text: str) -> list[tuple[str, ...]]:
    return [tuple(n.strip() for n in group.split(",") if n.strip()) for group in _CORE.findall(text)]


def parse_signature(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Core dims of arguments and results.

    >>> parse_signature('(m,n),(n)->(m)')
    ([('m', 'n'), ('n',)], [('m',)])
    """
    sides = signature.replace(" ", "").split("->")
    if len(sides) != 2 or not re.fullmatch(r"(\([^()]*\),?)*", sides[0]):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    return _dims(sides[0]), _dims(sides[1])


def vectorize(pyfunc: Callable, *, excluded=frozenset(), signature: str | None = None) -> Callable:
    """`pyfunc` mapped over the broadcast leading dims of its arguments; `signature` names their core dims."""
    excluded = frozenset(excluded)
    if signature is not None and not isinstance(signature, str):
        raise TypeError(f"vectorize: `signature` must be a string such as '(n),(n)->()', got {signature!r}.")

    @functools.wraps(pyfunc, updated=())
    @api_boundary
    def wrapped(*args, **kwargs):
        from weft.api.vmap import vmap
        core_in, core_out = parse_signature(signature) if signature else (None, None)
        none = {i for i, x in enumerate(args) if x is None and i not in excluded}
        if none and core_in and any(core_in[i] for i in none if i < len(core_in)):
            raise ValueError(f"Cannot pass None at locations {none} with signature={signature!r}: it has no core dims.")
        fixed = {i: x for i, x in enumerate(args) if i in excluded or i in none}
        mapped = [concrete(value(x)) for i, x in enumerate(args) if i not in fixed]

        def fun(*xs):
            given = iter(xs)
            out = pyfunc(*[fixed[i] if i in fixed else next(given) for i in range(len(args))], **kwargs)
            if core_out is not None and (len(out) if isinstance(out, tuple) else 1) != len(core_out):
                raise TypeError(f"wrong number of output arguments: expected {len(core_out)}, got "
                                f"{len(out) if isinstance(out, tuple) else 1}")
            return out

        core_in = [()] * len(mapped) if core_in is None else [c for i, c in enumerate(core_in) if i not in none]
        if len(core_in) != len(mapped):
            raise TypeError(f"wrong number of positional arguments: expected {len(core_in)}, got {len(mapped)}")
        leads = []
        sizes: dict[str, int] = {}
        for x, core in zip(mapped, core_in):
            if x.ndim < len(core):
                raise ValueError(f"input with shape {tuple(x.shape)} does not have enough dimensions for all core dimensions {core}")
            leads.append(tuple(x.shape[:x.ndim - len(core)]))
            for name, n in zip(core, x.shape[x.ndim - len(core):]):
                if sizes.setdefault(name, n) != n:
                    raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs {sizes[name]}")
        shape = broadcast_shapes(*leads)
        for level in reversed(range(len(shape))):
            axes = [_axis_at(lead, shape, level) for lead in leads]
            fun = vmap(fun, in_axes=tuple(axes))
        return fun(*[_drop_ones(x, lead, shape) for x, lead in zip(mapped, leads)])
    return wrapped


def _axis_at(lead, shape, level: int):
    """0 if the argument has dim `level` of the broadcast shape (dims of size one it broadcasts from are dropped)."""
    own = level - (len(shape) - len(lead))
    return 0 if own >= 0 and (lead[own] != 1 or shape[level] == 1) else None


def _drop_ones(x, lead, shape):
    from weft.ops.layout import reshape
    keep = [n for d, n in enumerate(lead) if n != 1 or shape[d + len(shape) - len(lead)] == 1]
    return reshape(x, (*keep, *x.shape[len(lead):])) if len(keep) < len(lead) else x
