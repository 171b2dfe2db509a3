"""Explanations of cache misses: differences of the arguments or settings from all earlier calls.

In:   a jitted function and the key without a cached program.
Out:  a report with the source lines of the call and of the function, and a comparison of the key with the nearest earlier one.
"""

from __future__ import annotations

from typing import Any

from weft._engine.util.errors import align
from weft._engine.util.events import report
from weft._engine.util.source import is_internal, user_frame

_seen: set[tuple] = set()  # definition sites of functions that were reported as new


def explain_miss(function: Any, key: tuple) -> None:
    """Report why `function` has no program under `key`, unless it is one of weft's own functions."""
    code = getattr(getattr(function.fun, "func", function.fun), "__code__", None)
    if code is not None and is_internal(code.co_filename):
        return
    place = (function.name, code and code.co_filename, code and code.co_firstlineno)
    name = function.name if code is None else "{} defined at {}:{}".format(*place)
    if function._cache.traces:
        earlier = min(
            reversed(function._cache.traces),
            key=lambda other: sum(a != b for a, b in zip(key, other)),
        )
        lines = [
            f"for {name}",
            "no earlier call had the same key; compared with the nearest one,",
            *_differences(function, key, earlier),
        ]
    else:
        lines = [f"never seen: {name}"]
        if code is not None and place in _seen:
            lines.append(
                "another function was defined on the same line; a function that is created for every call is traced for every call"
            )
        _seen.add(place)
    where = user_frame()
    site = "an unknown place" if where is None else f"{where.file}:{where.line} ({where.function})"
    report("tracing", True, "%s", "\n  ".join([f"TRACING CACHE MISS at {site}:", *lines]))


def _differences(function: Any, now: tuple, before: tuple) -> list[str]:
    """Return a line for each difference between two keys: argument tree, static values, types, context."""
    rows: list[tuple] = []
    paths, old_paths = (function._leaf_names(key[0]) for key in (now, before))
    types, old_types = (
        dict(zip(names, map(_describe_difference, key[2])))
        for names, key in ((paths, now), (old_paths, before))
    )
    for path in dict.fromkeys([*paths, *old_paths]):
        rows.append((f"type of {path}", types.get(path, "none"), old_types.get(path, "none")))
    if paths == old_paths:
        rows.append(("argument structure", now[0], before[0]))
    values_now, values_before = (
        {at: x.value for at, x in (key[1][1] if key[1] else ())} for key in (now, before)
    )
    for at in {**values_now, **values_before}:
        label = at if isinstance(at, str) else f"number {at}"
        rows.append(
            (
                f"static argument {label}",
                *[
                    repr(values[at]) if at in values else "none"
                    for values in (values_now, values_before)
                ],
            )
        )
    rows += now[3].differences(before[3])
    return align(
        [
            (f"* {title}:", f"now {value},", f"before {other}")
            for title, value, other in rows
            if value != other
        ]
    )


def _describe_difference(aval: Any) -> str:
    return aval.str_short().lstrip("~") + " of weak type" * aval.weak_type
