"""What would make a collective unnecessary, or smaller: one sentence for each cause.

In:  the record of a collective that partitioning made.
Out: a sentence; none for what the user's program for one device asks for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def spell_spec(dims: Any) -> str:
    """A layout as one writes it.

    >>> spell_spec((("a", "b"), (), ("c",))), spell_spec(((), ()))
    ("P(('a', 'b'), None, 'c')", 'P()')
    """
    entries = ["None" if not axes else repr(axes[0]) if len(axes) == 1 else repr(tuple(axes)) for axes in dims]
    while entries and entries[-1] == "None":
        entries.pop()
    return f"P({', '.join(entries)})"


def spell_placement(place: Any) -> str:
    """A layout, and the axes over which it holds the terms of a sum."""
    return spell_spec(place.dims) + (f" with terms over {', '.join(sorted(map(str, place.partial)))}" if place.partial else "")


def advise(r: Any, argument: str = "") -> str:
    """The sentence for the record `r`; `argument` names the argument that it moves, if it is one."""
    rule = _ADVICE.get(r.cause)
    return rule(r, argument) if rule is not None else ""


def _axes(r: Any) -> str:
    return ", ".join(map(str, r.axes))


def _wanted(r: Any, argument: str) -> str:
    after = spell_spec(r.after.dims)
    if argument:
        return f"Pass {argument} laid out as {after}."
    return f"Let the value be {after} where it is made: lax.with_sharding_constraint, or other layouts of what it is made of."


def _constraint(r: Any, argument: str) -> str:
    return f"Ask for {spell_spec(r.before.dims)}, as it lies there, or leave the constraint out."


def _output(r: Any, argument: str) -> str:
    return f"Take the result as it lies, {spell_spec(r.before.dims)}, in out_shardings."


def _sum(r: Any, argument: str) -> str:
    gone = f"There is nothing to add up where the summed dim is not split over {_axes(r)}."
    if r.kind != "psum":
        return gone
    return f"{gone} If the result may be split over {_axes(r)}, say so: the sum becomes a reduce_scatter of half the bytes."


def _along(r: Any, argument: str) -> str:
    return f"Split another dim than the one along which {r.eqn.primitive} works over {_axes(r)}."


_ADVICE: dict[str, Callable[[Any, str], str]] = {
    "operand": _wanted, "enters": _wanted, "loop": _wanted, "read": _wanted, "leaves": _output, "constraint": _constraint,
    "output": _output, "sum": _sum, "reduction": _along, "along": _along, "edges": _along,
}  # fmt: skip
