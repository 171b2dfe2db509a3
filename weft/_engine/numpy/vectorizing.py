"""`vectorize`: a function of single elements (or core arrays) mapped over broadcast arguments."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.numpy.creation import asarray
from weft._engine.numpy.promote import broadcast_shapes, check_ranks, value
from weft._engine.ops.layout import reshape
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, function_name
from weft._engine.util.tree import is_tree_node

_DIMS = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(rf"{_DIMS}(?:,{_DIMS})*->{_DIMS}(?:,{_DIMS})*")


def _dims(text: str) -> list[tuple[str, ...]]:
    return [tuple(re.findall(r"\w+", group)) for group in re.findall(_DIMS, text)]


def parse_signature(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the core dims of arguments and results.

    >>> parse_signature('(m,n),(n)->(m)')
    ([('m', 'n'), ('n',)], [('m',)])
    """
    signature = re.sub(r"\s", "", signature)
    if not _SIGNATURE.fullmatch(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    arguments_text, gives = signature.split("->")
    return _dims(arguments_text), _dims(gives)


def vectorize(pyfunc: Callable, *, excluded=frozenset(), signature: str | None = None) -> Callable:
    """Return `pyfunc` mapped over the broadcast leading dims of its arguments;

    `signature` names their core dims.
    """
    excluded = _checked_excluded(excluded)
    _check_vectorized(pyfunc, signature)
    name, core_in, core_out = f"vectorize({function_name(pyfunc)})", None, None
    if signature:
        name = f"{name[:-1]}, signature={signature!r})"
        core_in, core_out = parse_signature(signature)

    @api_boundary
    @functools.wraps(pyfunc, updated=())
    def wrapped(*args, **kwargs):
        from weft._engine.api.vmap import vmap

        none = {i for i, x in enumerate(args) if x is None and i not in excluded}
        fixed = {i: x for i, x in enumerate(args) if i in excluded or i in none}
        cores = [()] * (len(args) - len(fixed))
        if core_in is not None:
            cores = _mapped_cores(name, core_in, none, signature)
        mapped = [asarray(x) for i, x in enumerate(args) if i not in fixed]
        leads, sizes = _split_shapes(name, mapped, cores)

        def fun(*xs):
            rest = iter(xs)
            out = pyfunc(
                *[fixed[i] if i in fixed else next(rest) for i in range(len(args))], **kwargs
            )
            if core_out is not None:
                _check_results(name, out, core_out, dict(sizes))
            return out

        check_ranks(name, leads)
        shape = broadcast_shapes(*leads)
        for level in reversed(range(len(shape))):
            axes = [_axis_at(lead, shape, level) for lead in leads]
            fun = vmap(fun, in_axes=tuple(axes))
        return fun(*[_drop_ones(x, lead, shape) for x, lead in zip(mapped, leads)])

    return wrapped


def _check_vectorized(pyfunc, signature) -> None:
    if not callable(pyfunc):
        raise TypeError(f"vectorize: `pyfunc` must be a function, got {pyfunc!r:.60}.")
    if signature is not None and not isinstance(signature, str):
        raise TypeError(
            f"vectorize: `signature` must be a string such as '(n),(n)->()', got {signature!r}."
        )


def _mapped_cores(name: str, core_in: Sequence, none: set[int], signature: str | None) -> list:
    """Return the core dims of the arguments that are not at the positions `none`."""
    if any(core for i, core in enumerate(core_in) if i in none):
        raise ValueError(
            f"{name}: Cannot pass None at locations {none} with signature={signature!r}: it has no core dims."
        )
    return [core for i, core in enumerate(core_in) if i not in none]


def _split_shapes(name: str, arrays: list, cores: list) -> tuple[list, dict[str, int]]:
    """Return the leading dims of each array, and the size of each named core dim."""
    if len(cores) != len(arrays):
        raise TypeError(
            f"{name}: wrong number of positional arguments: expected {len(cores)}, got {len(arrays)}"
        )
    leads = []
    sizes: dict[str, int] = {}
    for x, core in zip(arrays, cores):
        n_lead = x.ndim - len(core)
        if n_lead < 0:
            raise ValueError(
                f"{name}: input with shape {tuple(x.shape)} does not have enough dimensions for all core dimensions "
                f"{core}"
            )
        leads.append(tuple(x.shape[:n_lead]))
        _fit(name, sizes, core, x.shape[n_lead:])
    return leads, sizes


def _checked_excluded(excluded) -> frozenset:
    excluded = frozenset(excluded)
    if not all(isinstance(e, (int, np.integer, str)) for e in excluded):
        raise TypeError(
            f"vectorize: `excluded` holds numbers of arguments or their names, got {set(excluded)}."
        )
    if any(not isinstance(e, str) and e < 0 for e in excluded):
        raise ValueError(
            f"vectorize: excluded={set(excluded)} contains negative numbers; arguments are counted from 0."
        )
    return excluded


def _fit(name: str, sizes: dict[str, int], core: tuple[str, ...], dims) -> None:
    """Record the sizes of core dims; raise ValueError for a conflicting size."""
    for dim, n in zip(core, dims):
        if sizes.setdefault(dim, n) != n:
            raise ValueError(
                f"{name}: inconsistent size for core dimension {dim!r}: {n} vs {sizes[dim]}"
            )


def _check_results(name: str, out, cores: list[tuple[str, ...]], sizes: dict[str, int]) -> None:
    """Raise TypeError or ValueError unless the results of one call fit the signature."""
    if len(cores) > 1 and not isinstance(out, tuple):
        raise TypeError(
            f"{name}: the output must be a tuple of {quantity(len(cores), 'array')}, got {type(out).__name__}."
        )
    results = out if isinstance(out, tuple) else (out,)
    if len(results) != len(cores):
        raise TypeError(
            f"{name}: wrong number of output arguments: expected {len(cores)}, got {len(results)}"
        )
    for result, core in zip(results, cores):
        dims = _shape(result)
        if len(dims) != len(core):
            raise ValueError(
                f"{name}: output shape {tuple(dims)} does not match core dimensions {core}"
            )
        _fit(name, sizes, core, dims)


def _shape(result) -> tuple[int, ...]:
    """Return the shape of a result, an array or a pytree with a shape.

    It is () for other pytrees and numbers.
    """
    shape = getattr(result, "shape", None)
    if shape is not None:
        return tuple(shape)
    return () if is_tree_node(type(result)) else typeof(value(result)).shape


def _axis_at(lead, shape, level: int):
    """Return 0 if the argument has dim `level` of the broadcast shape, else None.

    Dims of size one from which it broadcasts are dropped.
    """
    own_dim = level - (len(shape) - len(lead))
    return 0 if own_dim >= 0 and (lead[own_dim] != 1 or shape[level] == 1) else None


def _drop_ones(x, lead, shape):

    keep = [n for d, n in enumerate(lead) if n != 1 or shape[d + len(shape) - len(lead)] == 1]
    return reshape(x, (*keep, *x.shape[len(lead) :])) if len(keep) < len(lead) else x
