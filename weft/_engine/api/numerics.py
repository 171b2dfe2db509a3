"""`debug_nans` and `debug_infs`: which operation first gave a value that is not a number, or infinite, and on which line.

While a flag is on, every program's results are looked at when it has run, which may be after its call. If one is bad, the program runs
again on its arguments, operation by operation on NumPy, loops and branches included, until the first bad result; callbacks with
effects are not called again. What is computed inside and then discarded or masked is not reported, for nobody saw it.
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
    """What programs compiled now have to check their results with."""
    return (
        FiniteCheck(config.debug_nans, config.debug_infs)
        if config.debug_nans or config.debug_infs
        else None
    )


class FiniteCheck:
    """Raises FloatingPointError where a program gives NaN (if `nans`) or an infinity (if `infs`)."""

    def __init__(self, nans: bool, infs: bool):
        self.kinds = [
            *([("nan", np.isnan)] if nans else []),
            *([("inf", np.isinf)] if infs else []),
        ]
        self.settings = (
            config.trace_key()
        )  # of the calls, which end before another thread may look at the results

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
        """ "nan" or "inf" if `value` has one, else ""."""
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
        """Raise the error that names the first bad operation; `line` is that of the call."""
        found: list = []

        def watch(eqn: Eqn, ins: Sequence, outs: Sequence) -> bool:
            if any(self.bad(y) for y in outs):
                found[:] = [eqn, ins, outs]
            return bool(found)

        run_until(watch, lambda: run_reference(program, *args))
        if not found and type(program.outvars[result]) is Literal:
            raise FloatingPointError(
                describe(
                    name,
                    f"invalid value ({kind}) in result {result}: the de-optimized function did not compute "
                    "it, as it is a literal of the program.",
                    (),
                    line,
                )
            )
        if not found:
            raise FloatingPointError(
                describe(
                    name,
                    f"invalid value ({kind}) in result {result}.",
                    (),
                    line,
                    "It could not be traced to an operation: a callback gave it, or the compiled "
                    "program rounds where the reference does not.",
                )
            )
        eqn, ins, outs = found
        kind = next(k for k in map(self.bad, outs) if k)
        rows = [
            (
                f"operand {i}",
                a.aval.str_short(),
                f"has {k}{_origin(a, program, name)}" if (k := self.bad(x)) else _range(x),
            )
            for i, (a, x) in enumerate(zip(eqn.invars, ins))
        ]
        alone = (
            len(program.eqns) == 1 and eqn.primitive.name == name
        )  # an operation called by itself
        raise FloatingPointError(
            describe(
                "",
                f"Invalid value ({kind}) encountered in sharded computation, in {eqn.primitive.name}"
                if sharded
                else f"invalid value ({kind}) encountered in {eqn.primitive.name}",
                rows,
                line if alone else eqn.source,
                "" if alone else f"It was found in result {result} of {name}.",
            )
        )


def _origin(atom: Any, program: Jaxpr, name: str) -> str:
    """Where a bad operand is from, if no operation of the program made it: an argument, or an array that is closed over."""
    if type(atom) is Literal:
        return ", as the program says"
    return (
        f", and was given to {name}" if atom in program.invars or atom in program.constvars else ""
    )


def _range(x: np.ndarray) -> str:
    """The values of an operand, briefly."""
    if not x.size or np.iscomplexobj(x):
        return ""
    low, high = x.min(), x.max()
    return f"= {low}" if low == high else f"from {low} to {high}"
