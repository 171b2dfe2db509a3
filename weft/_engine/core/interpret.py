"""Interpreters of jaxprs: `evaluate` binds each equation under the current trace; `run_reference` computes on NumPy.

Transformations apply to a program by `evaluate`, or by `evaluate_with`, which takes a function for the results of each equation.
`run_reference` needs no compiler. Tests of every stage compare with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import CallbackOp
from weft._engine.core.trace import trace_state, with_source
from weft._engine.core.typed_scalars import scalar_of_dtype
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal
from weft._engine.ir.types import ShapedArray


def evaluate(jaxpr: Jaxpr, *args: Any) -> list[Any]:
    """Bind the equations of `jaxpr` in order under the current trace, with inputs `args`; return the flat results."""
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"program takes {len(jaxpr.invars)} arguments, got {len(args)}")
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, jaxpr.consts))
    env.update(zip(jaxpr.invars, args))
    outer_source, outer_allows = trace_state.source, trace_state.allows_unspecified
    trace_state.allows_unspecified = True  # a program was checked when it was traced
    try:
        for eqn in jaxpr.eqns:
            trace_state.source = eqn.source or outer_source
            outs = eqn.primitive.bind(
                *[literal_value(a) if type(a) is Literal else env[a] for a in eqn.invars],
                **eqn.params,
            )
            if eqn.primitive.multiple_results:
                env.update(zip(eqn.outvars, outs))
            else:
                env[eqn.outvars[0]] = outs
    finally:
        trace_state.source, trace_state.allows_unspecified = outer_source, outer_allows
    return [literal_value(a) if type(a) is Literal else env[a] for a in jaxpr.outvars]


def evaluate_with(
    bind: Callable[[Eqn, list[Any]], Sequence[Any]], jaxpr: Jaxpr, args: Sequence[Any]
) -> list[Any]:
    """Return the results of a program; `bind(eqn, operands)` returns the results of each equation."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, jaxpr.consts))
    env.update(zip(jaxpr.invars, args))

    def read(a: Atom) -> Any:
        return literal_value(a) if type(a) is Literal else env[a]

    for eqn in jaxpr.eqns:
        with with_source(eqn.source):
            outs = bind(eqn, [read(a) for a in eqn.invars])
        env.update(zip(eqn.outvars, outs))
    return [read(a) for a in jaxpr.outvars]


def literal_value(atom: Literal) -> Any:
    """Return the value of a literal with exactly its type: a Python scalar if it is weakly typed, else a NumPy scalar of its dtype."""
    return scalar_of_dtype(atom.val, atom.aval.dtype, atom.aval.weak_type or type(atom.val) is bool)


def run_reference(jaxpr: Jaxpr, *args: Any) -> list[np.ndarray]:
    """Run `jaxpr` on NumPy by the `reference` rule of each primitive. Values are NumPy arrays of the avals' dtypes.

    The reference rules of ops with inner jaxprs call this function on them.
    """
    env: dict[Any, Any] = {v: np.asarray(c) for v, c in zip(jaxpr.constvars, jaxpr.consts)}
    for var, arg in zip(jaxpr.invars, args):
        env[var] = np.asarray(arg)

    def read(a: Atom) -> np.ndarray[Any, np.dtype[Any]]:
        return np.asarray(a.val, a.aval.dtype) if type(a) is Literal else env[a]

    for eqn in jaxpr.eqns:
        ins = [read(a) for a in eqn.invars]
        watch = _watch.current
        if watch is not None and isinstance(eqn.primitive, CallbackOp) and eqn.effects:
            if eqn.outvars:
                raise StopInterpretation
            continue
        outs = reference_results(eqn, ins)
        if watch is not None and watch(eqn, ins, outs):
            raise StopInterpretation
        for var, value in zip(eqn.outvars, outs):
            env[var] = _checked_type(eqn, np.asarray(value), var.aval)
    return [read(a) for a in jaxpr.outvars]


def _checked_type(eqn: Eqn, value: np.ndarray, aval: ShapedArray) -> np.ndarray:
    """Return a result of a reference rule; raise AssertionError if it does not have the type of the type rule."""
    if value.dtype != aval.dtype or value.shape != aval.shape:
        raise AssertionError(
            f"reference rule of {eqn.primitive} returned {value.dtype}{list(value.shape)}, "
            f"its type rule returned {aval.str_short()}"
        )
    return value


def reference_results(eqn: Eqn, ins: Sequence[Any]) -> Sequence[Any]:
    """Return the results of one equation by its `reference` rule, or by the function passed to `override_results`."""
    compute = _watch.compute
    return rule_results(eqn, ins) if compute is None else compute(eqn, ins)


def rule_results(eqn: Eqn, ins: Sequence[Any]) -> Sequence[Any]:
    """Return the results of one equation by its `reference` rule."""
    with np.errstate(all="ignore"):
        out = eqn.primitive.reference(*ins, **eqn.params)
    return out if eqn.primitive.multiple_results else [out]


@contextlib.contextmanager
def override_results(compute: Callable[[Eqn, Sequence[Any]], Sequence[Any]]) -> Generator[None]:
    """Context manager: `compute(eqn, operands)` returns the results of every equation that `run_reference` runs in this thread.

    This includes equations inside loops, branches and calls. `compute` may call `rule_results` for the default results.
    """
    outer, _watch.compute = _watch.compute, compute
    try:
        yield
    finally:
        _watch.compute = outer


class _OneDevice:
    """The `devices` argument of a `lockstep` rule for one device. Operands and results are lists of one value per device."""

    def __len__(self) -> int:
        return 1

    def run(self, jaxpr: Jaxpr, operands: Sequence[Any]) -> list[Any]:
        """Return the results of a program that runs on all devices."""
        return [[y] for y in run_reference(jaxpr, *[x for (x,) in operands])]

    def run_on(self, chosen: Sequence[int], jaxpr: Jaxpr, operands: Sequence[Any]) -> list[Any]:
        """Return the results of a program that runs on the devices `chosen`."""
        return self.run(jaxpr, operands)

    def each(self, fn: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> list[Any]:
        """Return the results of calling `fn` with the values of each device."""
        return [[y] for y in fn(*[x for (x,) in operands])]


def lockstep_rule(primitive: Any) -> Callable[..., Any]:
    """Decorator: set the `lockstep` rule of an op with inner programs, and derive its `reference` rule from it.

    `fn(devices, operands, **params)` runs the op on all devices together; operands and results are lists of one value per device.
    """

    def define(fn: Callable[..., Any]) -> Callable[..., Any]:
        def reference(*args: Any, **params: Any) -> list[Any]:
            return [y for (y,) in fn(_one, [[x] for x in args], **params)]

        primitive.define(lockstep=fn, reference=reference)
        return fn

    return define


_one = _OneDevice()


class _InterpreterHooks(threading.local):
    """The hooks of `run_reference` in this thread: `current` is the observer set by `run_until`, `compute` is set by `override_results`."""

    current: Callable[..., Any] | None = None
    compute: Callable[..., Any] | None = None


_watch = _InterpreterHooks()


class StopInterpretation(Exception):
    """Raised to end `run_until`."""


def run_until(
    watch: Callable[[Eqn, Sequence[Any], Sequence[Any]], bool], run: Callable[[], object]
) -> None:
    """Call `run()`, which calls `run_reference`, and pass each executed equation to `watch(eqn, operands, results)`.

    The run ends when `watch` returns true. Equations inside loops, branches and calls come before the op that contains them.
    Callbacks with effects are not called again: those without results are skipped, and those with results end the run.
    """
    _watch.current = watch
    try:
        run()
    except StopInterpretation:
        pass
    finally:
        _watch.current = None
