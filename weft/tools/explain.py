"""`weft.explain(f, *args)`: a report on a compiled call, as data, as text, as a page, and as
assertions for tests.

In:  a function and arguments (arrays, or ShapeDtypeStructs with shardings).
Out: an `Explanation`; printing it shows it in a terminal, a notebook shows its page, `save` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from os import PathLike
from pathlib import Path
from typing import Any

import weft
import weft._engine.ops.ragged_all_to_all  # noqa: F401  (a collective that programs load only on use)
from weft._engine.ir.collective_spec import COLLECTIVES
from weft._engine.util import tree
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record
from weft.tools.report import (
    Collective,
    Exchange,
    as_text,
    collectives_of,
    exchanges_of,
    exchanges_text,
)


@record
class Explanation:
    """An explanation of one call of a compiled function; the attributes are the data of the report."""

    name: str
    collectives: list[Collective]
    kernel_count: int
    matmul_count: int
    peak_bytes: int
    seconds: dict[str, float]
    text: str
    partition: Any = field(default=None, compare=False)
    arg_names: Sequence[str] = ()
    result_names: Sequence[str] = ()
    exchanges: Sequence[Exchange] = ()
    executable: Any = field(default=None, compare=False, repr=False)

    @property
    def process_bytes(self) -> int:
        """The bytes that one process sends to others in a call."""
        return sum(r.bytes for r in self.exchanges)

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs of collectives, by kind."""
        counts: dict[str, int] = {}
        for r in self.collectives:
            counts[r.kind] = counts.get(r.kind, 0) + r.count
        return counts

    @property
    def bytes(self) -> int:
        """The bytes that one device sends in a call."""
        return sum(r.bytes for r in self.collectives)

    def __str__(self) -> str:
        return "\n".join(
            [
                *self.facts(),
                as_text(self.collectives),
                *([exchanges_text(self.exchanges)] if self.exchanges else []),
            ]
        )

    def facts(self) -> list[str]:
        """Return lines on kernels, memory and compile times."""
        slowest = sorted(self.seconds.items(), key=lambda entry: -entry[1])
        stages = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in slowest if name != "total")
        return [
            f"{self.name}: {quantity(self.kernel_count, 'kernel')}, {quantity(self.matmul_count, 'matmul')}, "
            f"at most {self.peak_bytes:,} B live",
            f"compiled in {1e3 * self.seconds.get('total', sum(self.seconds.values())):.1f} ms ({stages})",
        ]

    # --- the page ---

    def to_html(self) -> str:
        """Return a self-contained HTML page of the report, with drawings of the sharding of every
        value."""
        from weft.tools.explain_page import page

        return page(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        from weft.tools.explain_page import fragment

        return fragment(self)

    # --- assertions ---

    def assert_no(self, *kinds: str, axes: str | Sequence[str] | None = None) -> Explanation:
        """Raise AssertionError if there is a collective of one of `kinds` (of any, if none is given), over one of `axes`.

        >>> weft.explain(lambda x: x + 1, np.ones(3)).assert_no("all_gather").assert_no().counts
        {}
        """
        excluded = tuple(map(_kind, kinds))
        among = {axes} if isinstance(axes, str) else None if axes is None else set(axes)
        matches = [
            r
            for r in self.collectives
            if (not excluded or r.kind in excluded)
            and (among is None or not among.isdisjoint(r.axes))
        ]
        where = "" if among is None else f" over {', '.join(sorted(among))}"
        self._demand(f"no {' or '.join(excluded) or 'collective'}{where}", matches, bool(matches))
        return self

    def assert_count(self, total: int | None = None, /, **kinds: int) -> Explanation:
        """Raise AssertionError unless exactly `total` collectives run in all, and the given number
        of each kind."""
        if total is not None:
            self._demand(
                quantity(total, "collective"),
                self.collectives,
                sum(self.counts.values()) != total,
            )
        for name, count in kinds.items():
            kind = _kind(name)
            self._demand(
                f"{count} x {kind}",
                [r for r in self.collectives if r.kind == kind],
                self.counts.get(kind, 0) != count,
            )
        return self

    def assert_bytes(self, *kinds: str, max: int) -> Explanation:
        """Raise AssertionError if a device sends more than `max` bytes in a call, in collectives of `kinds` or in all."""
        counted = tuple(map(_kind, kinds))
        matches = [r for r in self.collectives if not counted or r.kind in counted]
        self._demand(
            f"at most {max:,} B in {' and '.join(counted) or 'all collectives'}",
            matches,
            sum(r.bytes for r in matches) > max,
        )
        return self

    def _demand(self, what: str, found: Sequence[Collective], fails: bool) -> None:
        if fails:
            raise AssertionError(
                f"explain: {self.name} should have {what}; it has {as_text(found)}"
            )


def _kind(name: str) -> str:
    """Return the kind of a collective under any of its names: `psum`, `all_reduce`, `all-reduce`.

    >>> _kind("all-reduce"), _kind("psum_scatter"), _kind("all_gather")
    ('psum', 'reduce_scatter', 'all_gather')
    """
    plain = name.replace("-", "_")
    sent = [spec for spec in COLLECTIVES.values() if not spec.is_local]
    kinds = {spec.counted_as: spec.counted_as for spec in sent}
    for spec in sent:
        for other in (spec.hlo.replace("-", "_"), *spec.aliases):
            kinds.setdefault(other, spec.counted_as)
    if plain not in kinds:
        raise ValueError(
            f"explain: there is no collective {name!r}; kinds are {', '.join(dict.fromkeys(kinds.values()))}."
        )
    return kinds[plain]


def explain(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fun` for these arguments and report on the program: collectives with their lines,
    kernels, bytes, times.

    The result prints; `.collectives`, `.counts` and `.bytes` are its data, `.save("page.html")` draws every value as it
    is sharded, and `.assert_no("all_gather")`, `.assert_count(psum=1)`, `.assert_bytes(max=4096)` are assertions for tests.
    """
    jitted = fun if hasattr(fun, "lower") else weft.jit(fun)
    compiled = methodcaller("lower", *args, **kwargs)(jitted).compile()
    return explanation_of(compiled.runtime_executable(), compiled.as_text())


def explanation_of(executable: Any, text: str = "") -> Explanation:
    """Return the explanation of an executable; `text` is its program."""
    stages, out_tree = executable.stages, executable.out_tree
    places = range(len(executable.out_specs))
    paths = tree.tree_leaves_with_path(
        list(places) if out_tree is None else tree.tree_unflatten(out_tree, places)
    )
    return Explanation(
        stages.name,
        collectives_of(executable),
        executable.kernel_count,
        stages.scheduled.gemm_count if stages.scheduled else 0,
        executable.peak_bytes,
        dict(stages.seconds),
        text,
        stages.partition,
        executable.arg_names,
        ["result" + tree.keystr(path) for path, _ in paths],
        exchanges_of(executable),
        executable,
    )
