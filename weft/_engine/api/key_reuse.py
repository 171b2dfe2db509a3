"""Detection of reused random keys, while `debug_key_reuse` is set.

In:   a program whose `random_unwrap` equations mark whether each key is consumed (drawn from, or split) or only read; arrays of keys.
Out:  the keys of its arguments that a program consumes, and those, consumed or not, among its results; a `KeyReuseError`.
How:  every key has a number, and an array of keys an array of numbers. Operations that move keys move their numbers.
Laws: only typed keys have numbers. A key that a loop consumes must be new in every step. Eager operations on arrays of keys, other than
      indexing and functions that are compiled as a whole, produce keys with new numbers. An operation of a library consumes its keys, and
      its results count as consumed.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.extension import ExtensionPrimitive
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ops.dynamic_slicing import dynamic_slice_p
from weft._engine.ops.slicing import concatenate_p, slice_p
from weft._engine.runtime.array import Array
from weft._engine.util import dtypes
from weft._engine.util.errors import KeyReuseError, describe
from weft._engine.util.record import record
from weft._engine.util.source import user_frame

_RULE = "Draws from equal keys are equal."
_count = itertools.count()
_of_arrays: dict[int, tuple[weakref.ref, np.ndarray]] = {}
_used: set[int] = set()


@record
class KeySignature:
    """The effect of a program on keys.

    For each input it has a mask of the consumed keys (None if it has no keys), and for each output the input key of each of its keys as
    (input, position), and whether it is consumed afterwards. `consts` are the arrays among its constants, and the constants of nested
    programs, from which it consumes keys, with their masks.
    """

    uses: tuple
    results: tuple
    consts: tuple


def is_key(x: Any) -> bool:
    return dtypes.is_extended(x.dtype)


def consume_call_keys(name: str, signature: KeySignature, arrays: Sequence[Array]) -> None:
    """Consume the keys of arguments and constants that a program consumes."""
    called = "jit-compiled function" if name.startswith("jit(") else name
    for i, (array, mask) in enumerate(zip(arrays, signature.uses)):
        if mask is not None and mask.any():
            _use(
                _numbers(array)[mask],
                _used,
                user_frame(),
                name,
                f"Previously-consumed key passed to {called} at index {i}",
            )
    for i, (array, mask) in enumerate(signature.consts):
        _use(
            _numbers(array)[mask],
            _used,
            user_frame(),
            name,
            f"Previously-consumed key passed to {called} at index {i} of its closed-over arrays",
        )


def give_results(signature: KeySignature, arrays: Sequence[Array], outs: Sequence[Array]) -> None:
    """Assign numbers to the keys among the results of a program."""
    for out, origins in zip(outs, signature.results):
        if origins is not None:
            known = [
                None if source is None else _numbers(arrays[source[0]]).flat[source[1]]
                for source, _ in origins
            ]
            numbers = np.array([next(_count) if n is None else n for n in known], np.int64)
            _used.update(int(n) for n, (_, used) in zip(numbers, origins) if used)
            _keep(out, numbers.reshape(out.shape))


def _numbers(array: Array) -> np.ndarray:
    entry = _of_arrays.get(id(array))
    return _keep(array, _new(array.shape)) if entry is None else entry[1]


def _keep(array: Array, numbers: np.ndarray) -> np.ndarray:
    place = id(array)
    _of_arrays[place] = weakref.ref(array, lambda _: _of_arrays.pop(place, None)), numbers
    return numbers


def _new(shape: Iterable[int]) -> np.ndarray:
    shape = tuple(shape)
    return np.array([next(_count) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)


def _use(numbers: np.ndarray, used: set[int], where: Any, api: str, fact: str) -> None:
    flat = numbers.ravel().tolist()
    if len(set(flat)) < len(flat) or not used.isdisjoint(flat):
        raise KeyReuseError(
            describe(
                api,
                f"a random key is used for a second time. {fact}.",
                (),
                where,
                _RULE,
                "Use the results of weft.random.split, each once.",
            )
        )
    used.update(flat)


# ---- programs


def signature_of(jaxpr: Jaxpr) -> KeySignature:
    """Return the effect of `jaxpr` on keys; raise KeyReuseError if it consumes one twice."""
    return jaxpr.memo("key signature", lambda: _KeyTracker(jaxpr).signature())


class _KeyTracker:
    """A walk over one program that tracks its keys."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.used: set[int] = set()
        # keys of constants that were already consumed when the program was traced
        self.before: set[int] = set()
        self.constants: list[Array] = []  # including constants of nested programs
        # value -> mask of its keys that slices and concatenations passed to other values
        self.moved: dict[Any, np.ndarray] = {}
        self.numbers: dict[Var, np.ndarray] = {
            v: _new(v.aval.shape) for v in (*jaxpr.constvars, *jaxpr.invars) if is_key(v.aval)
        }
        for v, value in zip(jaxpr.constvars, jaxpr.consts):
            if type(value) is Array and v in self.numbers:
                self.numbers[v] = self.constant(value)
        for eqn in jaxpr.eqns:
            self.follow(eqn)

    def signature(self) -> KeySignature:
        ins = [self.numbers.get(v) for v in self.jaxpr.invars]
        place = {
            int(n): (i, k)
            for i, numbers in enumerate(ins)
            if numbers is not None
            for k, n in enumerate(numbers.ravel())
        }
        masks = [None if n is None else np.isin(n, list(self.used)) for n in ins]
        outs = [
            None
            if type(v) is Literal or v not in self.numbers
            else [(place.get(int(n)), int(n) in self.used) for n in self.numbers[v].ravel()]
            for v in self.jaxpr.outvars
        ]
        spent = [
            (array, np.isin(_numbers(array), list(self.used - self.before)))
            for array in self.constants
        ]
        return KeySignature(
            tuple(masks), tuple(outs), tuple((array, mask) for array, mask in spent if mask.any())
        )

    def constant(self, array: Array) -> np.ndarray:
        """Return the numbers of an array that the program closes over."""
        numbers = _numbers(array)
        self.constants += [array] * all(array is not known for known in self.constants)
        self.before |= _used.intersection(numbers.ravel().tolist())
        self.used |= self.before
        return numbers

    def follow(self, eqn: Eqn) -> None:
        """Track the keys through one equation."""
        ins = [None if type(a) is Literal else self.numbers.get(a) for a in eqn.invars]
        first = ins[0] if ins else None
        if first is not None:
            self.use_first_operand(eqn, first)
        inner = [j for _, j in subjaxprs(eqn.params)]
        keys = [v for v in eqn.outvars if is_key(v.aval)]
        if inner and (keys or any(n is not None for n in ins)):
            self.follow_programs(eqn, ins, inner)
        unknown = isinstance(eqn.primitive, ExtensionPrimitive) and not inner
        if unknown:
            self.use_operands(eqn, ins)
        for v in keys:
            if v not in self.numbers:
                self.number_result(eqn, ins, v, unknown)

    def use_first_operand(self, eqn: Eqn, numbers: np.ndarray) -> None:
        """Consume keys, or check that they are consumed, according to the parameters of the equation."""
        if eqn.params.get("uses"):
            _use(numbers, self.used, eqn.source, "random", _consume(eqn, 0))
        if eqn.params.get("expects"):
            self.check(eqn.invars[0], numbers, eqn)

    def use_operands(self, eqn: Eqn, ins: list) -> None:
        """Consume the keys of all operands."""
        for i, numbers in enumerate(ins):
            if numbers is not None:
                _use(numbers, self.used, eqn.source, "random", _consume(eqn, i))

    def number_result(self, eqn: Eqn, ins: list, v: Var, unknown: bool) -> None:
        """Assign numbers to the keys of a result. Those of an `unknown` operation count as consumed."""
        numbers = _new(v.aval.shape) if unknown else _track_moved_keys(eqn, ins, v.aval.shape)
        self.numbers[v] = numbers
        if unknown:
            self.used.update(numbers.ravel().tolist())
        if eqn.primitive is slice_p or eqn.primitive is concatenate_p:
            self.pass_on(eqn, ins, numbers)

    def pass_on(self, eqn: Eqn, ins: list, passed_keys: np.ndarray) -> None:
        """Record that operands passed keys to a new array, which assertions about the operands count as consumed."""
        for a, numbers in zip(eqn.invars, ins):
            if numbers is not None:
                self.moved[a] = self.moved.get(a, False) | np.isin(numbers, passed_keys)

    def check(self, keys: Any, numbers: np.ndarray, eqn: Eqn) -> None:
        """Raise AssertionError if the consumed or passed-on keys differ from the expectation of an assertion."""
        shape, expected = eqn.params["expects"]
        consumed = np.isin(numbers, list(self.used)) | self.moved.get(keys, False)
        if not np.array_equal(
            consumed, np.broadcast_to(np.reshape(expected, shape), consumed.shape)
        ):
            raise AssertionError(
                f"at {eqn.source}: keys are expected to be used up: {np.reshape(expected, shape)}; they are: {consumed}."
            )

    def follow_programs(self, eqn: Eqn, ins: list, inner: list[Jaxpr]) -> None:
        """Consume what the programs of an operation consume; of branches at most one runs."""
        together: dict[int, np.ndarray] = {}
        if "body_jaxpr" in eqn.params:
            _check_condition(eqn)
        for jaxpr in inner:
            operands, steady = _operands(eqn, jaxpr, len(ins))
            signature = signature_of(jaxpr)
            for array, mask in signature.consts:
                message = "A key that a program closes over is already consumed"
                _use(self.constant(array)[mask], self.used, eqn.source, "random", message)
            for i, mask in zip(operands, signature.uses):
                if mask is not None and mask.any() and ins[i] is not None:
                    if i in steady and eqn.params.get("length") != 1:
                        raise _loop_error(
                            eqn,
                            jaxpr,
                            "every step uses the same random key.",
                            "Split the key into one for each step, or fold_in the step.",
                        )
                    self.use_operand(eqn, jaxpr, i, mask, (ins[i], together))
            if "length" in eqn.params or jaxpr is eqn.params.get("body_jaxpr"):
                _check_carry(eqn, jaxpr, signature)
            elif len(inner) == 1 and len(jaxpr.outvars) == len(eqn.outvars):
                self.take_results(eqn, [ins[i] for i in operands], signature)
        for i, numbers in together.items():
            _use(numbers, self.used, eqn.source, "random", _consume(eqn, i))

    def use_operand(
        self, eqn: Eqn, jaxpr: Jaxpr, i: int, mask: np.ndarray, keys: tuple[np.ndarray, dict]
    ) -> None:
        """Consume the keys of operand `i` that a program consumes; keys of branches are collected, because only one branch runs."""
        numbers, together = keys
        if mask.shape == numbers.shape:
            numbers = numbers[mask]
        if "branches" in eqn.params or jaxpr is eqn.params.get("cond_jaxpr"):
            together[i] = np.union1d(together.get(i, numbers), numbers)
        else:
            _use(numbers, self.used, eqn.source, "random", _consume(eqn, i))

    def take_results(self, eqn: Eqn, ins: list, signature: KeySignature) -> None:
        for v, origins in zip(eqn.outvars, signature.results):
            if origins is not None and len(origins) == int(np.prod(v.aval.shape)):
                known = [
                    None
                    if source is None or ins[source[0]] is None
                    else ins[source[0]].flat[source[1]]
                    for source, _ in origins
                ]
                numbers = np.array(
                    [next(_count) if n is None else n for n in known], np.int64
                ).reshape(v.aval.shape)
                self.used.update(int(n) for n, (_, used) in zip(numbers.ravel(), origins) if used)
                self.numbers[v] = numbers


def _loop_error(eqn: Eqn, jaxpr: Jaxpr, what: str, remedy: str) -> KeyReuseError:
    fact = f"{_loop(eqn, jaxpr)} leads to key reuse: {what}"
    return KeyReuseError(describe(eqn.primitive.name, fact, (), eqn.source, _RULE, remedy))


def _check_carry(eqn: Eqn, jaxpr: Jaxpr, signature: KeySignature) -> None:
    """Raise KeyReuseError if a step of a loop passes a consumed key to the next."""
    carried = signature.results[: eqn.params.get("num_carry")]
    gives_used = any(origins and any(used for _, used in origins) for origins in carried)
    if gives_used and eqn.params.get("length") != 1:
        raise _loop_error(
            eqn,
            jaxpr,
            "a step passes a random key that it has used to the next.",
            "Split the key and pass on an unused part.",
        )


def _check_condition(eqn: Eqn) -> None:
    """Raise KeyReuseError if the condition of a loop consumes a key of the carry that the body consumes too, or passes to the next step."""
    params = eqn.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    cond, body = signature_of(params["cond_jaxpr"]), signature_of(params["body_jaxpr"])
    for carried, (mask, body_mask) in enumerate(zip(cond.uses[first:], body.uses[second:])):
        if mask is None or not mask.any():
            continue
        is_carried = any(
            source is not None and source[0] == second + carried and mask.flat[source[1]]
            for origins in body.results
            if origins is not None
            for source, _ in origins
        )
        if is_carried or (body_mask is not None and (mask & body_mask).any()):
            fact = f"{_loop(eqn, params['cond_jaxpr'])} leads to key reuse: it uses a random key that the body uses too, or passes on."
            raise KeyReuseError(
                describe(
                    eqn.primitive.name,
                    fact,
                    (),
                    eqn.source,
                    _RULE,
                    "Carry a separate key for the condition, new in every step.",
                )
            )


def _consume(eqn: Eqn, i: int) -> str:
    called = str(eqn.params.get("name", ""))
    return f"In {called if called.startswith('random_') else eqn.primitive.name}, argument {i} is already consumed"


def _loop(eqn: Eqn, jaxpr: Jaxpr) -> str:
    """Return the name of the loop function that `jaxpr` is."""
    loop = "scan" if "length" in eqn.params else "while_loop"
    return f"{loop} {'cond' if jaxpr is eqn.params.get('cond_jaxpr') else 'body'} function"


def _operands(eqn: Eqn, jaxpr: Jaxpr, n: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the operand number of each input of a program of `eqn`, and the operands that are the same in every step of a loop."""
    params = eqn.params
    if "branches" in params:
        return range(n - len(jaxpr.invars), n), ()
    if "length" in params:
        return range(n), range(params["num_consts"])
    if "body_jaxpr" in params:
        first, second = params["cond_nconsts"], params["body_nconsts"]
        carry = range(first + second, n)
        if jaxpr is params["body_jaxpr"]:
            return [*range(first, first + second), *carry], range(first, first + second)
        return [*range(first), *carry], range(first)
    return range(n), ()


def _track_moved_keys(eqn: Eqn, ins: list, shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers of the keys that an operation moves; new numbers if it creates keys, or moves them by unknown values."""
    if all(n is not None or type(a) is Literal for n, a in zip(ins, eqn.invars)) and any(
        n is not None for n in ins
    ):
        try:
            operands = [a.val if isinstance(a, Literal) else n for n, a in zip(ins, eqn.invars)]
            numbers = np.asarray(eqn.primitive.reference(*operands, **eqn.params))
            if numbers.shape == shape:
                return numbers.astype(np.int64)
        except (
            Exception
        ):  # the reference rejects key numbers in place of keys; the resulting keys count as new
            pass
    if eqn.primitive is dynamic_slice_p and ins[0] is not None and ins[0].shape == shape:
        return ins[0]  # the slice is the whole array
    return _new(shape)
