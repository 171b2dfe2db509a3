"""`weft.explain(f, *args)`: what the compiler makes of a call, as data, as text and as HTML.

In:  a function and arguments (arrays, or ShapeDtypeStructs with shardings).
Out: an `Explanation`; printing it shows the same in a terminal, and a notebook shows its table.
"""

import html
from typing import Any

import weft
from weft.tools.report import Collective, as_table, collectives
from weft.util.record import record


@record
class Explanation:
    """What one call of a compiled function does."""

    name: str
    collectives: list[Collective]
    kernel_count: int
    matmul_count: int
    peak_bytes: int
    seconds: dict[str, float]
    text: str

    def __str__(self) -> str:
        return "\n".join([*self._facts(), as_table(self.collectives)])

    def _facts(self) -> list[str]:
        slowest = sorted(self.seconds.items(), key=lambda entry: -entry[1])
        stages = ", ".join(f"{name} {1e3 * s:.1f} ms" for name, s in slowest if name != "total")
        return [
            f"{self.name}: {self.kernel_count} kernels, {self.matmul_count} matmuls, at most {self.peak_bytes:,} B live",
            f"compiled in {1e3 * self.seconds.get('total', sum(self.seconds.values())):.1f} ms ({stages})",
        ]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("collective", "axes", "bytes", "line", "why"))
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td>{html.escape(c)}</td>" for c in (r.kind, ", ".join(r.axes), f"{r.bytes:,}", r.source, r.reason)
            )
            + "</tr>"
            for r in self.collectives
        )
        facts = "".join(f"<div>{html.escape(line)}</div>" for line in self._facts())
        return f"{facts}<table><tr>{head}</tr>{rows}</table>"


def explain(fun: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fun` for these arguments and tell what it does: collectives with their lines, kernels, bytes, times."""
    jitted = fun if hasattr(fun, "lower") else weft.jit(fun)
    compiled = jitted.lower(*args, **kwargs).compile()
    executable = compiled.runtime_executable()
    return Explanation(
        compiled.stages.name,
        collectives(compiled),
        executable.kernel_count,
        compiled.stages.scheduled.gemm_count if compiled.stages.scheduled else 0,
        executable.peak_bytes,
        dict(compiled.stages.seconds),
        compiled.as_text(),
    )
