"""Programs for all sizes: made from traces of a function at several sizes, and made concrete for one.

In:   traces of one function at different samples of sizes, which differ in numbers alone.
Out:  a program whose sizes are `Dim`s where the traces differ; `instantiate` gives the program for sizes.
How:  two traces are walked side by side. A number that is the same in all stays; one that differs becomes an expression of the sizes
      that gives it in every trace: one that was computed while tracing, or a polynomial. One trace more than an expression has unknowns
      reveals a coincidence. Small sizes, at which the function need not be defined, tell apart what is one number at all large ones.
Laws: what does not differ in numbers alone, or has no such expression, is refused with the operation and the line. The program for the
      sizes of a trace is that trace.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.stage import stage
from weft.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft.ir.symbolic import Dim, Polynomial, SymbolicScope, add, constant, evaluate, multiply, variable, variables
from weft.ir.types import ShapedArray
from weft.ops.layout import broadcast_in_dim, reshape
from weft.ops.slicing import concatenate
from weft.util.errors import describe

#: how many samples are traced: one more than the largest number of unknowns of an expression
TRACES = 4
#: how many numbers an array may have that are computed one by one
_FEW = 64
_SMALL = (7, 2, 3, 5, 11, 17, 29, 53, 97, 1)
_PRIMES = (1009, 2003, 3001, 4001, 1301, 2309, 3307, 4327, 1511, 2521, 3517, 4523, 1709, 2707, 3709, 4703)


class Mismatch(Exception):
    """Two traces differ in more than numbers, or in a number that no expression gives."""


@dataclass
class Unifier:
    """Traces at `samples`, walked side by side."""
    scope: SymbolicScope
    samples: Sequence[Mapping[str, int]]
    _fitted: dict[tuple[int, ...], Any] = field(default_factory=dict)
    _line: Any = None

    def value(self, values: Sequence[Any]) -> Any:
        """What stands for these values, one of each trace."""
        first = values[0]
        kind = type(first)
        if isinstance(first, (bool, str, bytes, type(None))) or callable(first) or isinstance(first, np.dtype):
            return first
        if any(type(v) is not kind for v in values):
            raise Mismatch(f"{first!r} is {kind.__name__} at some sizes, and something else at others")
        if isinstance(first, (int, np.integer)):
            return self.number([int(v) for v in values], first)
        if kind in (tuple, list):
            if len({len(v) for v in values}) > 1:
                raise Mismatch(f"a sequence of {len(first)} entries has another length at other sizes")
            return kind([self.value(parts) for parts in zip(*values)])
        if kind is dict:
            return {key: self.value([v[key] for v in values]) for key in first}
        if isinstance(first, ShapedArray):
            return first.update(shape=self.value([v.shape for v in values]))
        if isinstance(first, Jaxpr):
            return self.program(values)
        if not _equal(values):
            raise Mismatch(f"{first!r} is something else at other sizes ({values[1]!r})")
        return first

    def number(self, values: Sequence[int], given: Any) -> Any:
        if len(set(values)) == 1:
            return given
        key = tuple(values)
        if key not in self._fitted:
            self._fitted[key] = self._fit(values)
        return self._fitted[key]

    def _fit(self, values: Sequence[int]) -> Any:
        """The expression with these values at the samples."""
        columns = {p: column for p in self._candidates() if (column := self._column(p)) is not None}
        for p, column in columns.items():
            if column == list(values):
                return self.scope.dim(p)
        for chosen in [*[(p,) for p in columns], *itertools.combinations(columns, 2)]:
            found = _solution([columns[p] for p in chosen], values)
            if found is not None:
                total = constant(found[0])
                for p, c in zip(chosen, found[1:]):
                    total = add(total, multiply(p, constant(c)))
                return self.scope.dim(total)
        raise Mismatch(f"a number is {list(values)} for the sizes {[dict(s) for s in self.samples]}, which no expression gives")

    def _candidates(self) -> list[Polynomial]:
        """Monomials up to the third degree, and what was computed while tracing."""
        found: list[Polynomial] = []
        for degree in (1, 2, 3):
            for names in itertools.combinations_with_replacement(sorted(self.samples[0]), degree):
                found.append(functools.reduce(multiply, map(variable, names)))
        return list(dict.fromkeys([*found, *self.scope.seen]))

    def _column(self, p: Polynomial) -> list[int] | None:
        """The values of an expression at the samples."""
        try:
            return [evaluate(p, sizes) for sizes in self.samples]
        except KeyError:                                         # of another function that was exported with these sizes
            return None

    def program(self, programs: Sequence[Jaxpr]) -> Jaxpr:
        """The program that stands for programs."""
        first = programs[0]
        shapes = {(len(p.constvars), len(p.invars), len(p.outvars), tuple(e.primitive for e in p.eqns)) for p in programs}
        if len(shapes) > 1:
            raise Mismatch("another list of operations is traced at other sizes")
        made: dict[Var, Var] = {}

        def define(variables: Sequence[Var]) -> Var:
            made[variables[0]] = Var(self.value([v.aval for v in variables]))
            return made[variables[0]]

        def atom(atoms: Sequence[Atom]) -> Atom:
            if isinstance(atoms[0], Var):
                return made[atoms[0]]
            return self.literal(atoms)

        constvars, consts, eqns = [], [], []
        for same, values in zip(zip(*[p.constvars for p in programs]), zip(*[p.consts for p in programs])):
            if _equal(values):
                constvars.append(define(same))
                consts.append(values[0])
            else:
                computed = self.constant(values)
                eqns += computed.eqns
                (made[same[0]],) = computed.outvars
        invars = [define(vs) for vs in zip(*[p.invars for p in programs])]
        for same in zip(*[p.eqns for p in programs]):
            self._line = same[0]
            params = self.value([e.params for e in same])
            ins = [atom(atoms) for atoms in zip(*[e.invars for e in same])]
            outs = [define(vs) for vs in zip(*[e.outvars for e in same])]
            eqns.append(Eqn(same[0].primitive, ins, outs, params, same[0].source, same[0].effects))
        self._line = None
        outvars = [atom(atoms) for atoms in zip(*[p.outvars for p in programs])]
        return Jaxpr(constvars, consts, invars, outvars, eqns, first.effects, first.name)

    def constant(self, values: Sequence[Any]) -> Jaxpr:
        """The program of an array of few numbers, each of which an expression of the sizes gives."""
        arrays = [np.asarray(v) for v in values]
        shape, dtype = arrays[0].shape, arrays[0].dtype
        if any(a.shape != shape for a in arrays) or arrays[0].size > _FEW or any((a != np.trunc(a.real)).any() for a in arrays):
            raise Mismatch("a constant of the program has other values at other sizes: an array that was computed in NumPy from a size")
        scalar = ShapedArray((), dtype)
        together = lambda *xs: [reshape(concatenate([broadcast_in_dim(x, (1,), ()) for x in xs], 0), shape)]
        stacked = stage(together, [scalar] * arrays[0].size, "sizes")
        numbers = [Literal(self.number([int(v.real) for v in same], same[0]), scalar) for same in zip(*[a.ravel() for a in arrays])]
        place = dict(zip(stacked.invars, numbers))
        return stacked.replace(eqns=[e.replace(invars=[place.get(a, a) for a in e.invars]) for e in stacked.eqns])

    def literal(self, atoms: Sequence[Atom]) -> Atom:
        first = atoms[0]
        if any(not isinstance(a, Literal) for a in atoms):
            raise Mismatch("an operand is a number at some sizes, and computed at others")
        values = [a.val for a in atoms]
        if _equal(values):
            return first
        if any(complex(v) != int(v.real) for v in values):
            raise Mismatch(f"a number is {values}, which is not an integer expression of a size")
        return Literal(self.number([int(v) for v in values], None), first.aval)


def _solution(columns: Sequence[Sequence[int]], values: Sequence[int]) -> list[int] | None:
    """Integers c0, c1, ... with c0 + c1 * column1 + ... = values; None if there are none."""
    matrix = np.array([[1, *row] for row in zip(*columns)], dtype=float)
    n = matrix.shape[1]
    if n > len(values):
        return None
    scale = np.abs(matrix).max(axis=0)
    found, *_ = np.linalg.lstsq(matrix / scale, np.array(values, float), rcond=None)
    whole = [round(c) for c in (found / scale).tolist()]
    if all(whole[0] + sum(c * x for c, x in zip(whole[1:], row)) == v for row, v in zip(zip(*columns), values)):
        return whole
    return None


def _equal(values: Sequence[Any]) -> bool:
    first = values[0]
    if hasattr(first, "shape") and hasattr(first, "dtype"):
        if any(np.shape(v) != np.shape(first) for v in values):
            return False
        try:
            return all(np.array_equal(np.asarray(v), np.asarray(first), equal_nan=np.asarray(first).dtype.kind in "fc") for v in values)
        except TypeError:                                # elements that are not numbers
            return all(v is first for v in values)
    return all(v == first or (v != v and first != first) for v in values)


def unify(scope: SymbolicScope, samples: Sequence[Mapping[str, int]], programs: Sequence[Jaxpr], name: str) -> Jaxpr:
    """The program for all sizes of which `programs` are those for `samples`; NotImplementedError if there is none."""
    unifier = Unifier(scope, samples)
    try:
        return unifier.program(programs)
    except Mismatch as error:
        eqn = unifier._line
        rows = [("operation", eqn.primitive.name)] if eqn is not None else []
        raise NotImplementedError(describe(
            "export", f"{name} cannot be exported for all sizes {sorted(samples[0])}: {error}.", rows, getattr(eqn, "source", None),
            "The function was traced at several sizes, and an exported program has one list of operations for all of them.",
            "Compute with weft.numpy from x.shape instead of with NumPy, leave out small sizes by constraints, or export it for fixed "
            "sizes.")) from None


def samples_of(scope: SymbolicScope, names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes to trace at: far from other sizes of programs, and as the constraints allow."""
    found: list[dict[str, int]] = []
    pools = [_PRIMES, tuple(p * k for p in _PRIMES for k in (8, 64, 6, 128)), tuple(range(3, 64)), tuple(range(1, 3))]
    choices = [n for pool in pools for n in pool]
    rng = np.random.default_rng(0)
    for attempt in range(20_000):
        last = len(_PRIMES) if attempt < 200 else len(choices)
        sizes = {name: choices[int(i)] for name, i in zip(names, rng.integers(0, last, len(names)))}
        new = all(sizes[n] != other[n] for other in found for n in names)
        if new and len(set(sizes.values())) == len(names) and scope.admits(sizes) is None:
            found.append(sizes)
            if len(found) == TRACES:
                return found
    raise NotImplementedError(f"export: {TRACES} different samples of the sizes {list(names)} were not found under the constraints "
                              f"{list(scope.constraints)}. Write sizes that follow from others as expressions of them.")


def telling_samples(scope: SymbolicScope, names: Sequence[str], samples: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Small sizes at which expressions that were computed while tracing, and have the same values at all `samples`, differ from each other
    or from a number: `(b + 13) // b` is 1 at every large size, and `max(b - 5, 0)` is `b - 5`."""
    def value(p: Polynomial, sizes: Mapping[str, int]) -> int | None:
        try:
            return evaluate(p, sizes)
        except ZeroDivisionError:
            return None

    alike: dict[tuple, list[Polynomial]] = {}
    for p in scope.seen:
        if variables(p) and variables(p) <= set(names):
            column = tuple([value(p, sizes) for sizes in samples])
            alike.setdefault(column, [constant(column[0])] if len(set(column)) == 1 and column[0] is not None else []).append(p)
    found: list[dict[str, int]] = []
    for n in _SMALL:
        sizes = {name: n + k for k, name in enumerate(names)}
        if scope.admits(sizes) is not None:
            continue
        finer: dict[tuple, list[Polynomial]] = {}
        for column, group in alike.items():
            for p in group:
                finer.setdefault((*column, value(p, sizes)), []).append(p)
        if any(None not in column for column in finer) and len(finer) > len(alike):
            found.append(sizes)
            alike = finer
    return found


def instantiate(jaxpr: Jaxpr, sizes: Mapping[str, Any]) -> Jaxpr:
    """The program for these sizes."""
    return _Instance(sizes).program(jaxpr)


@dataclass
class _Instance:
    sizes: Mapping[str, Any]
    done: dict[int, Jaxpr] = field(default_factory=dict)

    def value(self, v: Any) -> Any:
        if isinstance(v, Dim):
            return evaluate(v.expression, self.sizes)
        if type(v) in (tuple, list):
            return type(v)([self.value(part) for part in v])
        if type(v) is dict:
            return {key: self.value(part) for key, part in v.items()}
        if isinstance(v, ShapedArray):
            return v.update(shape=tuple(self.value(n) for n in v.shape)) if any(isinstance(n, Dim) for n in v.shape) else v
        return self.program(v) if isinstance(v, Jaxpr) else v

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        found = self.done.get(id(jaxpr))
        if found is not None:
            return found
        made: dict[Var, Var] = {}

        def define(v: Var) -> Var:
            made[v] = type(v)(self.value(v.aval))
            return made[v]

        def atom(a: Atom) -> Atom:
            if isinstance(a, Var):
                return made[a]
            return Literal(self.number(a), a.aval) if isinstance(a.val, Dim) else a

        constvars, invars = [define(v) for v in jaxpr.constvars], [define(v) for v in jaxpr.invars]
        eqns = []
        for eqn in jaxpr.eqns:
            ins = [atom(a) for a in eqn.invars]
            eqns.append(Eqn(eqn.primitive, ins, [define(v) for v in eqn.outvars], self.value(eqn.params), eqn.source, eqn.effects))
        outvars = [atom(a) for a in jaxpr.outvars]
        found = self.done[id(jaxpr)] = Jaxpr(constvars, jaxpr.consts, invars, outvars, eqns, jaxpr.effects, jaxpr.name)
        return found

    def number(self, a: Literal) -> Any:
        n = evaluate(a.val.expression, self.sizes)
        if isinstance(n, Dim):
            return n
        if a.aval.weak_type:
            return {"f": float, "c": complex}.get(np.dtype(a.aval.dtype).kind, int)(n)
        return np.asarray(n, a.aval.dtype)[()]
