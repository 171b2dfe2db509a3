"""Op-by-op evaluation of a program on NumPy, without effects and optionally with noise.

In:   a jaxpr, NumPy arrays, and the log of the callbacks that the compiled program called.
Out:  its results. With a noise number, every input and every rounded value is moved by one unit up
      or down, and products on a tile unit by their largest error (`tile_errors`).
How:  the `reference` rule of each primitive computes its results, also inside loops, branches and
      calls. Callbacks are not called: their results are read from the log.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.core.interpret import override_results, rule_results, run_reference
from weft._engine.core.primitive import CallbackOp, LibraryOp
from weft._engine.core.trace import eval_trace, set_trace
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ops.callback import pure_callback_p, run_callbacks_by
from weft._engine.util import dtypes, lapack
from weft._engine.verification.tile_errors import tile_error_bound
from weft._engine.verification.tolerance import TRIALS, epsilon_of

#: units of noise in later trials
WIDER_UNITS = 4


class UnverifiableError(Exception):
    """A program that cannot be evaluated again, for example because the evaluation needs a callback
    that the compiled program did not call."""


class CallbackLog:
    """The callbacks that one run of a compiled program called, with their results."""

    def __init__(self) -> None:
        self.calls: dict[int, list[tuple[list[np.ndarray], Sequence]]] = {}
        self.alive: list[Any] = []

    @contextlib.contextmanager
    def record_calls(self) -> Iterator[None]:
        """Record the calls of this thread in a block."""
        with run_callbacks_by(self._record):
            yield

    def _record(self, callback: Any, position: tuple, operands: Sequence) -> Sequence:
        with run_callbacks_by(lambda callback, position, operands: callback(position, *operands)):
            copies = [np.array(x) for x in operands]
            results = callback(position, *operands)
        self.alive.append(callback)
        self.calls.setdefault(id(callback), []).append((copies, [np.array(x) for x in results]))
        return results

    def replay(self) -> Replay:
        """Return a replay of the log, which returns each call once."""
        return Replay({key: list(calls) for key, calls in self.calls.items()})


class Replay:
    """The calls of a log that an evaluation has not used yet. `seen` are the operands in the
    evaluation, `logged_operands` the operands in the log."""

    def __init__(self, calls: dict[int, list[tuple[list[np.ndarray], Sequence]]]) -> None:
        self.calls = calls
        self.seen: list[np.ndarray] = []
        self.logged_operands: list[np.ndarray] = []

    def restart(self, log: CallbackLog) -> None:
        """Begin again with all calls."""
        self.__init__(log.replay().calls)

    @contextlib.contextmanager
    def replay_calls(self) -> Iterator[None]:
        """Answer calls of Python from native code with the logged results, in order, in a block."""

        def answer(callback: Any, position: tuple, operands: Sequence) -> Sequence:
            recorded = self._take(id(callback), operands)
            if recorded is None:
                raise UnverifiableError("a callback was not called with operands of these types")
            return recorded[1]

        with run_callbacks_by(answer):
            yield

    def results(self, eqn: Eqn, ins: Sequence) -> Sequence:
        """Return the results of the callback `eqn`."""
        is_pure = eqn.primitive is pure_callback_p
        missing: list[None] = []

        def answer(callback: Any, position: tuple, operands: Sequence) -> Sequence:
            recorded = self._take(id(callback), operands)
            if recorded is None and is_pure:
                return callback(position, *operands)
            if recorded is None:
                missing.append(None)
                return [np.zeros(a.shape, a.dtype) for a in eqn.params.get("result_avals", ())]
            self.seen += [np.array(x) for x in operands]
            self.logged_operands += recorded[0]
            return recorded[1]

        with run_callbacks_by(answer):
            results = rule_results(eqn, ins)
        if missing and eqn.outvars:
            raise UnverifiableError(
                f"{eqn.primitive.name} was not called with operands of these types"
            )
        return results

    def _take(self, key: int, operands: Sequence) -> tuple[list[np.ndarray], Sequence] | None:
        """Return the call with equal operands, or else the first with operands of the same types."""
        calls = self.calls.get(key, [])
        types = [(np.shape(x), np.asarray(x).dtype) for x in operands]
        matching = [
            i
            for i, (logged, _) in enumerate(calls)
            if [(x.shape, x.dtype) for x in logged] == types
        ]
        if not matching:
            return None
        equal = lambda i: all(
            np.asarray(x).tobytes() == y.tobytes() for x, y in zip(operands, calls[i][0])
        )
        return calls.pop(next(filter(equal, matching), matching[0]))


def op_by_op(
    program: Jaxpr,
    args: Sequence[np.ndarray],
    replay: Replay | None = None,
    noise: int | None = None,
    run: Callable[[Sequence[np.ndarray]], Sequence] | None = None,
) -> list[np.ndarray]:
    """Return the results of `program`, or of `run(args)`, evaluated equation by equation."""
    rng = None if noise is None else np.random.default_rng(noise)
    units = 1 if noise is None or noise < TRIALS else WIDER_UNITS

    def compute(eqn: Eqn, ins: Sequence) -> Sequence:
        if isinstance(eqn.primitive, CallbackOp) and replay is not None:
            return replay.results(eqn, ins)
        if rng is None:
            return _results(eqn, ins)
        outs = _results(eqn, ins)
        bound = tile_error_bound(eqn, ins)
        if bound is not None:
            outs = [_move(np.asarray(x), bound, rng) for x in outs]
        return [perturb(np.asarray(x), rng, units) for x in outs] if rounds(eqn) else outs

    if rng is not None:
        args = [perturb(x, rng, units) for x in args]
    with (
        override_results(compute),
        set_trace(eval_trace),
        np.errstate(all="ignore"),
        one_library_thread(),
    ):
        outs = run_reference(program, *args) if run is None else run(args)
    return [np.asarray(x) for x in outs]


def _results(eqn: Eqn, ins: Sequence) -> Sequence:
    """Return the results of an equation without noise."""
    primitive = eqn.primitive
    is_unique = not isinstance(primitive, LibraryOp) or primitive.is_unique
    return rule_results(eqn, ins) if is_unique else _factors(eqn, ins)


def _factors(eqn: Eqn, ins: Sequence) -> Sequence:
    """Return the factors of a matrix, which are unique only up to signs and order, from the routine
    that compiled programs call."""
    ins_vars = [Var(v.aval) for v in eqn.invars]
    alone = expand(Jaxpr((), (), ins_vars, eqn.outvars, (eqn.replace(invars=ins_vars),)))
    with override_results(rule_results):
        return run_reference(alone, *ins)


def rounds(eqn: Eqn) -> bool:
    """Return whether the results of an equation are rounded."""
    if eqn.primitive.computes == "cast":
        return epsilon_of(eqn.outvars[0].aval.dtype) > epsilon_of(eqn.invars[0].aval.dtype) > 0
    return not eqn.primitive.is_exact


@contextlib.contextmanager
def one_library_thread() -> Iterator[None]:
    """Restrict NumPy's linear algebra to one thread, which is faster on small matrices."""
    control = lapack.thread_control()
    if control is None:
        yield
        return
    get, put = (
        ctypes.CFUNCTYPE(ctypes.c_int)(control[0]),
        ctypes.CFUNCTYPE(None, ctypes.c_int)(control[1]),
    )
    threads = get()
    put(1)
    try:
        yield
    finally:
        put(threads)


def perturb(x: np.ndarray, rng: np.random.Generator, units: int = 1) -> np.ndarray:
    """Return floating-point values moved by `units` up or down; other values unchanged."""
    epsilon = units * epsilon_of(x.dtype)
    if not epsilon:
        return x
    sides = np.where(rng.random(x.shape) < 0.5, -epsilon, epsilon)
    with np.errstate(all="ignore"):
        if dtypes.is_native_float(x.dtype) or dtypes.is_complex(x.dtype):
            return x * (1 + sides).astype(np.real(x).dtype)
        return (x.astype(np.float32) * (1 + sides).astype(np.float32)).astype(x.dtype)


def _move(x: np.ndarray, change: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the values moved by `change` up or down."""
    sides = np.where(rng.random(x.shape) < 0.5, -1.0, 1.0)
    with np.errstate(all="ignore"):
        return (x.astype(np.float64) + sides * change).astype(x.dtype)
