"""Advice on how to avoid a collective or make it smaller: one sentence for each cause.

In:  a collective's record from the partitioner.
Out: a sentence; an empty one for explicit collectives inside `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.ir.specs import join_axis_parts


def spell_spec(dims: Any) -> str:
    """Return a layout as the text of a PartitionSpec.

    >>> spell_spec((("a", "b"), (), ("c",))), spell_spec(((), ()))
    ("P(('a', 'b'), None, 'c')", 'P()')
    """
    entries = [
        "None" if not axes else repr(axes[0]) if len(axes) == 1 else repr(axes)
        for axes in map(join_axis_parts, dims)
    ]
    while entries and entries[-1] == "None":
        entries.pop()
    return f"P({', '.join(entries)})"


def spell_placement(place: Any) -> str:
    """Return the text of a layout and of the axes over which its values are partial sums."""
    sums = ", ".join(join_axis_parts(sorted(map(str, place.partial))))
    return spell_spec(place.dims) + (f" with partial sums over {sums}" if sums else "")


def advise(r: Any, argument: str = "") -> str:
    """Return the advice for the record `r`; `argument` is the key path of the argument that it
    moves, if any."""
    rule = _ADVICE.get(r.cause)
    return rule(r, argument) if rule is not None else ""


def _axes(r: Any) -> str:
    return ", ".join(map(str, join_axis_parts(r.axes)))


def _wanted(r: Any, argument: str) -> str:
    after = spell_spec(r.after.dims)
    if argument:
        return f"Give {argument} the sharding {after}."
    return f"Compute the value with the sharding {after}: by lax.with_sharding_constraint, or by other shardings of its operands."


def _constraint(r: Any, argument: str) -> str:
    return f"Ask for {spell_spec(r.before.dims)}, which the value has already, or leave the constraint out."


def _output(r: Any, argument: str) -> str:
    return f"Ask for {spell_spec(r.before.dims)}, which the result has already, in out_shardings."


def _sum(r: Any, argument: str) -> str:
    unsplit = f"No sum is needed if the summed dim is not split over {_axes(r)}."
    if r.kind != "psum" or all(_is_scalar(part) for part in r.parts or (r,)):
        return unsplit
    return f"{unsplit} If the result may be split over {_axes(r)}, ask for that: a reduce_scatter sends half the bytes of a psum."


def _is_scalar(r: Any) -> bool:
    """Return whether the results of the equation have no dim that an axis could split."""
    return r.eqn is not None and not any(v.aval.shape for v in r.eqn.outvars)


def _along(r: Any, argument: str) -> str:
    if r.cause == "reduction" and _is_scalar(r):
        return ""  # all dims are reduced
    return f"Split another dim over {_axes(r)} than the one along which {r.eqn.primitive} works."


_ADVICE: dict[str, Callable[[Any, str], str]] = {
    "operand": _wanted, "enters": _wanted, "loop": _wanted, "read": _wanted, "leaves": _output, "constraint": _constraint,
    "output": _output, "sum": _sum, "reduction": _along, "along": _along, "edges": _along,
}  # fmt: skip
