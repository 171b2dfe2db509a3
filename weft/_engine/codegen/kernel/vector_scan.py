"""Prefix scans in registers: the `PrefixCombine` statement.

In:   a `PrefixCombine`, inside a vector loop or not, and the emitter of its kernel.
Out:  within a vector, log2(lanes) steps that combine each lane with the lane 1, 2, 4, ... before
      it; then each vector is combined with the running total, which all lanes of one register hold.
Laws: no neutral element is needed: lanes without predecessors stay unchanged. The chain between
      vectors is one combination long, since totals are combined separately from results. Masked
      lanes come last.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import REGISTER
from weft._engine.codegen.ir.values import EmittedValue, Uniform, Varying, map_parts
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import PrefixCombine


def scan(emitter: Emission, stmt: PrefixCombine) -> None:
    """Emit a running combination.

    It crosses lanes if its accumulators are declared outside the vector loop.
    """
    values = [emitter.evaluate(value) for value in stmt.values]
    before = [emitter.env[acc] for acc in stmt.accs]
    if emitter.vectorized:
        values = [emitter.replicate_parts(value) for value in values]
    if stmt.accs[0] in emitter.scanned:
        after, results = _across(emitter, stmt, before, values)
    else:
        after = results = _combine(emitter, stmt, before, values)
    emitter.env.update(zip(stmt.accs, after))
    emitter.env.update(zip(stmt.names, results))


def in_all_lanes(emitter: Emission, value: EmittedValue) -> EmittedValue:
    """Return a uniform value as one register with equal lanes, for any number of parts."""
    return map_parts(
        lambda x: Varying(x.type, (emitter.lanes.splat(x.parts[0], REGISTER[x.type]),)), value
    )


def of_first_lane(emitter: Emission, value: EmittedValue) -> EmittedValue:
    """Convert a register with equal lanes back to a uniform value."""
    lanes = emitter.lanes
    return map_parts(
        lambda x: Uniform(
            x.type,
            emitter.b.pure(f"extractelement {lanes.type(x.type)} {x.parts[0]}, i32 0", x.parts[0]),
        ),
        value,
    )


def _combine(
    emitter: Emission, stmt: PrefixCombine, earlier: list[EmittedValue], later: list[EmittedValue]
) -> list[EmittedValue]:
    """Apply the statement's `combine` to two groups of values."""
    emitter.env.update(zip(stmt.accs, earlier))
    emitter.env.update(zip(stmt.names, later))
    emitter.memo.clear()
    results = [emitter.evaluate(expr) for expr in stmt.combine]
    emitter.memo.clear()
    varies = any(not isinstance(value, Uniform) for value in (*earlier, *later))
    return [emitter.replicate_parts(value) for value in results] if varies else results


def _across(
    emitter: Emission, stmt: PrefixCombine, totals: list[EmittedValue], values: list[EmittedValue]
) -> tuple[list, list]:
    """Return the totals after this block, and its running values."""
    step = 1
    while step < emitter.lanes.w:
        combined = _combine(
            emitter,
            stmt,
            [map_parts(lambda x, by=step: _shift_lanes(emitter, x, by), v) for v in values],
            values,
        )
        values = [
            map_parts(lambda new, old, by=step: _select_after_first(emitter, by, new, old), *both)
            for both in zip(combined, values)
        ]
        step *= 2
    parts, rows = emitter.parts, []
    emitter.parts = 1
    for part in range(parts):
        part_values = [
            map_parts(lambda x, at=part: Varying(x.type, x.parts[at : at + 1]), v) for v in values
        ]
        last = [
            map_parts(lambda x, at=part: _broadcast_last_lane(emitter, x, emitter.masks[at]), v)
            for v in part_values
        ]
        rows.append(_combine(emitter, stmt, totals, part_values))
        totals = _combine(emitter, stmt, totals, last)
    emitter.parts = parts
    return totals, [
        map_parts(lambda *one: Varying(one[0].type, tuple([x.parts[0] for x in one])), *column)
        for column in zip(*rows)
    ]


def _permute_lanes(emitter: Emission, x: EmittedValue, order: list[int]) -> EmittedValue:
    """Permute the lanes of each register."""
    return Varying(
        x.type,
        tuple(
            [
                emitter.b.shuffle(emitter.lanes.type(x.type), part, "poison", order)
                for part in x.parts
            ]
        ),
    )


def _shift_lanes(emitter: Emission, x: EmittedValue, by: int) -> EmittedValue:
    """Rotate each register by `by` lanes toward the end; the first `by` lanes are not used."""
    width = emitter.lanes.w
    return _permute_lanes(emitter, x, [(lane - by) % width for lane in range(width)])


def _select_after_first(
    emitter: Emission, step: int, new: EmittedValue, old: EmittedValue
) -> EmittedValue:
    """Return `old` in the first `step` lanes and `new` in all others."""
    lanes = emitter.lanes
    mask = (
        f"<{', '.join(['i1 ' + ('false' if lane < step else 'true') for lane in range(lanes.w)])}>"
    )
    return Varying(
        new.type,
        tuple(
            [lanes.select(mask, lanes.type(new.type), x, y) for x, y in zip(new.parts, old.parts)]
        ),
    )


def _broadcast_last_lane(emitter: Emission, x: EmittedValue, mask: str | None) -> EmittedValue:
    """Broadcast the last lane that a mask selects."""
    lanes, b = emitter.lanes, emitter.b
    if mask is None:
        return _permute_lanes(emitter, x, [lanes.w - 1] * lanes.w)
    bits = lanes.convert("bitcast", lanes.i1, mask, f"i{lanes.w}")
    count = b.intrinsic("ctpop", f"i{lanes.w}", bits)
    at = b.pure(f"sub i{lanes.w} {count}, 1", count)
    one = b.pure(
        f"extractelement {lanes.type(x.type)} {x.parts[0]}, i{lanes.w} {at}", x.parts[0], at
    )
    return Varying(x.type, (lanes.splat(one, REGISTER[x.type]),))
