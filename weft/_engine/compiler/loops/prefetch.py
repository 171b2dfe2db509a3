"""Software prefetch of accesses that the hardware prefetcher cannot predict, or loses among many streams.

In:   a `LoopNest` under construction, and the index expressions of its dims (`where`).
Out:  buffers and indices for `Prefetch` statements.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import flat_index
from weft._engine.compiler.loops.access_analysis import LoopDim
from weft._engine.compiler.loops.loop_levels import LoopNest, LoopPass
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.loops import Const, Expr
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: operands of at least this size exceed the caches near a core
PREFETCH_FROM_BYTES = 1 << 20
#: bytes between a window and its prefetched elements
_PREFETCH_DISTANCE = 1 << 13
#: bytes: accesses farther apart are not one stream
_PREFETCH_WINDOW = 1 << 22
#: operands of at least this size exceed all caches, so gathered rows are prefetched
PREFETCH_GATHER_FROM_BYTES = 1 << 23
#: bytes of gathered rows between an access and its prefetch
PREFETCH_GATHER_DISTANCE = 4096
#: the maximal number of gathered rows between an access and its prefetch
PREFETCH_GATHER_ROWS = 16


def prefetch_irregular_rows(nest: LoopNest, where: dict[int, Expr]) -> list[tuple[str, Expr]]:
    """Return prefetches of the next rows of operands whose rows are read in irregular order and mostly as a whole.

    The hardware prefetcher cannot predict such rows."""
    low, vector, b = nest.low, nest.vector, nest.b
    if vector is None or vector.column or not nest.next_row:
        return []
    own, prefetches = {id(low.vars[d]) for d in vector.dims}, {}
    for load, access in nest.analysis.loads:
        steps = {id(d): nest.step(access, d) for d in nest.dims if nest.step(access, d)}
        if (
            own.isdisjoint(access.nonaffine)
            or nest.sizes[load.buf] < PREFETCH_FROM_BYTES
            or not steps
            or id(vector) in steps
        ):
            continue
        if not steps.keys() <= nest.next_row.keys():  # a loop within a row moves the address
            continue
        span = min(steps.values())
        if (
            0 < span * access.weight <= vector.extent * MODEL.cache_line
            and span * access.weight <= PREFETCH_FROM_BYTES >> 4
        ):
            first = flat_index(
                b, [nest.next_row[dim] for dim in steps], steps.values(), access.form[1]
            )
            prefetches[load.buf, id(first)] = (
                load.buf,
                b.iadd(first, b.imul(where[id(vector)], -(-span // vector.extent))),
            )
    return list(prefetches.values())


def prefetch_gather(nest: LoopNest, where: dict[int, Expr]) -> list[tuple[str, Expr]]:
    """Return prefetches of the elements that a gather of contiguous elements reads some rows later, by indices in memory."""
    prefetches: dict[tuple, tuple[str, Expr]] = {}
    if nest.vector is None or nest.rows_later is None:
        return []
    own = {id(nest.low.vars[d]) for d in nest.vector.dims}
    for load, access in nest.analysis.loads:
        if (
            access.gathered
            and own.isdisjoint(access.nonaffine)
            and nest.step(access, nest.vector) == 1
            and nest.sizes[load.buf] >= PREFETCH_GATHER_FROM_BYTES
        ):
            rows = min(
                max(2, PREFETCH_GATHER_DISTANCE // (nest.vector.extent * access.weight)),
                PREFETCH_GATHER_ROWS,
            )
            later = Substitution(
                nest.low.builder, nest.b, nest.map_dims({**where, **nest.rows_later(rows)})
            )
            prefetches[load.buf, id(load.index)] = load.buf, later(load.index)
    return list(prefetches.values())


def prefetch_streams(nest: LoopNest, substitute: Substitution) -> list[tuple[str, Expr]]:
    """Return prefetches for operands read at several offsets, and for the only stream of a kernel.

    The stream is prefetched if the results are stored past the caches.

    Among several streams through one array only the furthest misses the caches; the hardware prefetchers do not detect it, and
    they do not run far enough ahead of one stream for a loop of many instructions.
    """
    low, vector, b = nest.low, nest.vector, nest.b
    if vector is None:
        return []
    windows: dict[tuple, list[tuple[int, int]]] = {}
    for load, access in nest.analysis.loads:
        if (
            load.guard is not None
            and type(guard := substitute(load.guard)) is Const
            and not guard.value
        ):
            continue
        if (
            access.affine
            and nest.step(access, vector) == 1
            and nest.sizes[load.buf] >= PREFETCH_FROM_BYTES
        ):
            windows.setdefault((load.buf, *sorted(access.terms.items())), []).append(
                (access.form[1], access.weight)
            )
    prefetches = []
    alone = (
        len(windows) == 1
        and not nest.staged
        and all(out.var.aval.nbytes >= nest.stream_from for out in low.outputs)
    )
    for (buf, *terms), places in windows.items():
        furthest, weight = max(places)
        span = (furthest - min(places)[0]) * weight
        if span <= _PREFETCH_WINDOW and (span or alone):
            at = [substitute(low.builder.base(key)) for key, _ in terms]
            prefetches.append(
                (
                    buf,
                    flat_index(
                        b,
                        at,
                        [step for _, step in terms],
                        furthest + _PREFETCH_DISTANCE // weight,
                    ),
                )
            )
    return prefetches


def between_passes(nest: LoopNest, passes: list[LoopPass], where: dict[int, Expr]) -> None:
    """Have a pass prefetch the operands of the next row, so that memory is busy while a row in the caches is reread.

    The pass with the most computation does so, unless it stores rows."""
    if passes and nest.vector is not None and nest.vector.column:
        passes[0].prefetched += prefetch_gather(nest, where)
    if (
        len(passes) == 1
        and nest.vector is not None
        and any(r.op in ("min", "max") for r in passes[0].reductions)
    ):
        passes[0].prefetched += prefetch_extremes(
            nest, Substitution(nest.low.builder, nest.b, nest.map_dims(where))
        )
    if len(passes) < 2 or not nest.next_row or nest.vector is None:
        return
    free = [p for p, one in enumerate(passes) if all(o.combine is not None for o in one.outputs)]
    busiest = max(free, key=lambda p: (nest.cost(passes[p].roots), p), default=-2)
    substitute = Substitution(nest.low.builder, nest.b, nest.map_dims({**where, **nest.next_row}))
    passes[busiest].prefetched += contiguous_prefetches(
        nest, [d for d in nest.dims if not d.column], substitute
    )


def prefetch_extremes(nest: LoopNest, substitute: Substitution) -> list[tuple[str, Expr]]:
    """Return prefetches, some cache lines ahead, of operands that are only reduced to extremes. An extreme takes three instructions
    where a sum takes one, and more instructions per line leave fewer lines in flight."""
    prefetches: dict[tuple, tuple[str, Expr]] = {}
    for load, access in nest.analysis.loads:
        if (
            access.plain
            and nest.vector_step(access) == 1
            and nest.sizes[load.buf] >= PREFETCH_GATHER_FROM_BYTES
        ):
            prefetches[load.buf, id(load.index)] = (
                load.buf,
                nest.b.iadd(substitute(load.index), _PREFETCH_DISTANCE // access.weight),
            )
    return list(prefetches.values())


def contiguous_prefetches(
    nest: LoopNest, along: list[LoopDim], substitute: Substitution
) -> list[tuple[str, Expr]]:
    """Return the buffers and indices of contiguous reads that vary along the dims, of operands larger than the caches near a core."""
    prefetches: dict[tuple, tuple[str, Expr]] = {}
    for load, access in nest.analysis.loads:
        if (
            access.plain
            and nest.vector_step(access) == 1
            and nest.sizes[load.buf] >= PREFETCH_FROM_BYTES
            and any(nest.step(access, d) for d in along)
        ):
            prefetches[load.buf, id(load.index)] = load.buf, substitute(load.index)
    return list(prefetches.values())
