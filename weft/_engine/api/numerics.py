"""`debug_nans` and `debug_infs`: the operation that first produced a NaN or an infinity, and its source line.

While a flag is set, every program's results are checked after its run, which may be after the call returned. If one is bad, the program
is evaluated again on its arguments, op by op on NumPy, including loops and branches, until the first bad result; callbacks with effects
are not called again. Bad values inside that are discarded or masked are not reported, because they do not reach a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.core.interpret import run_reference, run_until
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal
from weft._engine.ir.program_mesh import has_shard_map
from weft._engine.ir.shardings import NamedSharding
from weft._engine.runtime.array import Array
from weft._engine.util.config import config
from weft._engine.util.errors import describe
from weft._engine.util.source import SourceLine


def result_check() -> FiniteCheck | None:
    """Return the check of results for programs that are compiled now; None if no flag is set."""
    return (
        FiniteCheck(config.debug_nans, config.debug_infs)
        if config.debug_nans or config.debug_infs
        else None
    )


class FiniteCheck:
    """A check that raises FloatingPointError if a program returns NaN (if `nans`) or an infinity (if `infs`)."""

    def __init__(self, nans: bool, infs: bool):
        self.kinds = [
            *([("nan", np.isnan)] if nans else []),
            *([("inf", np.isinf)] if infs else []),
        ]
        # settings of the call, which may end before another thread checks the results
        self.settings = config.trace_key()

    def __call__(
        self,
        name: str,
        program: Jaxpr,
        args: Sequence[Array],
        outs: Sequence[Array],
        line: SourceLine | None,
    ) -> None:
        for i, out in enumerate(outs):
            kind = self.bad(out._numpy())
            if kind:
                sharded = has_shard_map(program) or any(
                    isinstance(x.sharding, NamedSharding) for x in (*args, *outs)
                )
                with config.as_traced(self.settings):
                    self.explain(name, program, [x._numpy() for x in args], i, kind, sharded, line)

    def bad(self, value: Any) -> str:
        """Return "nan" or "inf" if `value` has one, else ""."""
        value = np.asarray(value)
        if value.dtype.kind not in "fcV":  # V: the narrow floats
            return ""
        return next((kind for kind, test in self.kinds if test(value).any()), "")

    def explain(
        self,
        name: str,
        program: Jaxpr,
        args: list,
        result: int,
        kind: str,
        sharded: bool,
        line: SourceLine | None,
    ) -> None:
        """Raise the error that names the first bad operation; `line` is the source line of the call."""
        bad_op: list = []

        def watch(eqn: Eqn, ins: Sequence, outs: Sequence) -> bool:
            if any(self.bad(y) for y in outs):
                bad_op[:] = [eqn, ins, outs]
            return bool(bad_op)

        run_until(watch, lambda: run_reference(program, *args))
        if not bad_op and type(program.outvars[result]) is Literal:
            raise FloatingPointError(
                describe(
                    name,
                    f"invalid value ({kind}) in result {result}: the de-optimized function did not compute "
                    "it, as it is a literal of the program.",
                    (),
                    line,
                )
            )
        if not bad_op:
            raise FloatingPointError(
                describe(
                    name,
                    f"invalid value ({kind}) in result {result}.",
                    (),
                    line,
                    "It could not be traced to an operation: a callback returned it, or the compiled "
                    "program rounds where the reference does not.",
                )
            )
        eqn, ins, outs = bad_op
        kind = next(k for k in map(self.bad, outs) if k)
        rows = [
            (
                f"operand {i}",
                a.aval.str_short(),
                f"has {k}{_origin(a, program, name)}" if (k := self.bad(x)) else _range(x),
            )
            for i, (a, x) in enumerate(zip(eqn.invars, ins))
        ]
        # an operation that was called eagerly
        is_only_equation = len(program.eqns) == 1 and eqn.primitive.name == name
        raise FloatingPointError(
            describe(
                "",
                f"Invalid value ({kind}) encountered in sharded computation, in {eqn.primitive.name}"
                if sharded
                else f"invalid value ({kind}) encountered in {eqn.primitive.name}",
                rows,
                line if is_only_equation else eqn.source,
                "" if is_only_equation else f"It was found in result {result} of {name}.",
            )
        )


def _origin(atom: Any, program: Jaxpr, name: str) -> str:
    """Return the origin of a bad operand that no operation of the program produced: an argument, a captured array or a literal."""
    if type(atom) is Literal:
        return ", as the program says"
    return (
        f", and was given to {name}" if atom in program.invars or atom in program.constvars else ""
    )


def _range(x: np.ndarray) -> str:
    """Return the range of an operand's values as text."""
    if not x.size or np.iscomplexobj(x):
        return ""
    low, high = x.min(), x.max()
    return f"= {low}" if low == high else f"from {low} to {high}"
