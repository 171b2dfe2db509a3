"""Index maps from equations: the input elements that each element of a result depends on.

In:   a fusion graph and a group of it.
Out:  `EquationMaps`: for elements of a root, the elements of every leaf that the kernel may read
      and that it must read.
How:  sets of flat indices are propagated from the root to the leaves, against the order of the
      equations. The map of an op that moves elements is the result of its NumPy reference on arrays
      of element numbers. An op with data-dependent indices may read all of its operand. Values that
      depend on no input are computed, so that constant masks select elements as they do in kernels.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, lowering_kind
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.fusion.reduction_domain import reduced_dims
from weft._engine.core.primitive import ElementwiseOp, IndexOp, MovementOp
from weft._engine.ir.jaxpr import Atom, Eqn, Literal, Var
from weft._engine.ir.loops import COMPARISONS
from weft._engine.util import dtypes
from weft._engine.util.record import record

#: maximum number of elements of a value whose element numbers are enumerated
LARGEST_VALUE = 1 << 22
#: the first element number; constants that a reference adds, such as zeros, are smaller
_FIRST = 1 << 40


class UncheckedKernelError(Exception):
    """A kernel that the check does not cover; the message is the reason."""


#: bits of a flat index in the code of a pair
BITS = 40
_ELEMENT = (1 << BITS) - 1


class ElementSet(NamedTuple):
    """Pairs of a result element's number and the flat index of an operand's element that it depends
    on, encoded as integers (see `pairs`).

    `may` holds the permitted reads, `must` the required reads. None means every element, for all
    results.
    """

    may: np.ndarray | None
    must: np.ndarray


@record(eq=False)
class KnownValues:
    """The elements of a value that depend on no input. `pure` values have no other elements."""

    values: np.ndarray
    known: np.ndarray
    pure: bool


_NONE = np.zeros(0, np.int64)


class EquationMaps:
    """The index maps of one group. Leaves that are `given` have known values and are not read."""

    def __init__(
        self, graph: Fusion, group: KernelGroup, given: Mapping[Var, np.ndarray] | None = None
    ) -> None:
        self.graph, self.group = graph, group
        self.given = given or {}
        self.readers: dict[Var, Eqn] = {}
        self._known: dict[Atom, KnownValues | None] = {}
        self._constant: dict[Eqn, bool] = {}
        self._maps: dict[tuple[Eqn, bool], np.ndarray] = {}

    def is_leaf(self, atom: Atom) -> bool:
        """Return whether the kernel reads the value from memory."""
        return isinstance(atom, Var) and self.graph.loads(atom, self.group.depth)

    def equations(self, roots: Sequence[Var]) -> Iterator[Eqn]:
        """Yield the equations that the kernel computes."""
        seen, stack = set(roots), list(roots)
        while stack:
            eqn = self.graph.producer[stack.pop()]
            yield eqn
            unseen = [
                a
                for a in eqn.invars
                if isinstance(a, Var) and a not in seen and not self.is_leaf(a)
            ]
            seen.update(unseen)
            stack += unseen

    def find_dependencies(self, root: Var, elements: Sequence[int]) -> dict[Var, ElementSet]:
        """Return the elements of each leaf that elements of `root` depend on."""
        graph = self.graph
        at = pairs(np.arange(len(elements)), np.array(elements, np.int64))
        pending: dict[Var, list[ElementSet]] = {root: [ElementSet(at, at)]}
        queue = [(-graph.order[root], id(root), root)]
        leaves: dict[Var, list[ElementSet]] = {}
        while queue:
            var = heapq.heappop(queue)[2]
            read = _union(pending.pop(var))
            eqn = graph.producer[var]
            for atom, operand_elements in self._operands(eqn, read):
                if self.is_leaf(atom):
                    self.readers[atom] = eqn
                    leaves.setdefault(atom, []).append(operand_elements)
                elif atom in pending:
                    pending[atom].append(operand_elements)
                else:
                    pending[atom] = [operand_elements]
                    heapq.heappush(queue, (-graph.order[atom], id(atom), atom))
        return {var: _union(sets) for var, sets in leaves.items()}

    def _operands(self, eqn: Eqn, elements: ElementSet) -> list[tuple[Var, ElementSet]]:
        """Return the elements of each operand that elements of the result depend on."""
        if lowering_kind(eqn) is LoweringKind.REDUCE:
            elements_read = [self._reduce(eqn, elements)]
        elif isinstance(eqn.primitive, MovementOp):
            elements_read = self._map_reference(eqn, elements)
        elif isinstance(eqn.primitive, IndexOp):
            elements_read = self._map_indexed(eqn, elements)
        elif computes(eqn) == "select":
            elements_read = self._select(eqn, elements)
        else:
            ignored = self._ignores_operand(eqn) or self._may_be_decided(eqn)
            read = ElementSet(elements.may, _NONE) if ignored else elements
            elements_read = [_same_position(a, eqn, read) for a in eqn.invars]
        known = [self.find_constants(a) for a in eqn.invars]
        pairs = zip(eqn.invars, elements_read, known)
        return [
            (a, _without_known(s, k))
            for a, s, k in pairs
            if isinstance(a, Var) and not (k is not None and k.pure)
        ]

    def _ignores_operand(self, eqn: Eqn) -> bool:
        """Return whether the parameters of an elementwise op make it constant, as a power of 0."""
        if len(eqn.invars) != 1 or not eqn.params or not isinstance(eqn.primitive, ElementwiseOp):
            return False
        if eqn not in self._constant:
            dtype = eqn.invars[0].aval.dtype
            probes = np.array(
                [0, 1, 3, 100]
                if dtypes.is_native_integer(dtype) or dtype == np.bool_
                else [-2.5, 0, 3, np.nan]
            )
            results = _run(eqn, [probes.astype(dtype)])
            shape_kept = results.shape == probes.shape
            self._constant[eqn] = shape_kept and bool((results == results[0]).all())
        return self._constant[eqn]

    def _may_be_decided(self, eqn: Eqn) -> bool:
        """Return whether ranges may decide a comparison: one of integers, with a known operand."""
        if computes(eqn) not in COMPARISONS or eqn.invars[0].aval.dtype.kind not in "iub":
            return False
        return any(self.find_constants(a) is not None for a in eqn.invars)

    def _reduce(self, eqn: Eqn, elements: ElementSet) -> ElementSet:
        (operand,), axes = eqn.invars, reduced_dims(eqn)
        key = (eqn, True)
        table = self._maps.get(key)
        if table is None:
            numbers = np.moveaxis(_numbers(operand.aval.shape, 0), axes, range(-len(axes), 0))
            table = self._maps[key] = numbers.reshape(eqn.outvars[0].aval.size, -1)
        return _apply(
            elements,
            lambda codes: pairs((codes >> BITS)[:, None], table[codes & _ELEMENT]).reshape(-1),
        )

    def _map_reference(self, eqn: Eqn, elements: ElementSet) -> list[ElementSet]:
        """Return the map of an op with static parameters: its reference on element numbers."""
        return self._traced(eqn, eqn.invars, elements)

    def _map_indexed(self, eqn: Eqn, elements: ElementSet) -> list[ElementSet]:
        """Return the map of an op whose last operands are indices: exact if these are known."""
        data = 2 if eqn.primitive.overwrites else 1
        known = [self.find_constants(a) for a in eqn.invars[data:]]
        if all(k is not None and k.pure for k in known):
            indices = [k.values for k in known if k is not None]
            return [
                *self._traced(eqn, eqn.invars[:data], elements, indices),
                *[ElementSet(_NONE, _NONE)] * len(indices),
            ]
        return [ElementSet(None, _NONE)] * len(eqn.invars)

    def _traced(
        self,
        eqn: Eqn,
        data: Sequence[Atom],
        elements: ElementSet,
        indices: Sequence[np.ndarray] = (),
    ) -> list[ElementSet]:
        table = self._maps.get((eqn, False))
        starts, at = [], _FIRST
        for atom in data:
            starts.append(at)
            at += atom.aval.size
        _check_size(eqn)
        if table is None:
            numbers = [
                np.zeros((), np.int64) if isinstance(a, Literal) else _numbers(a.aval.shape, n)
                for a, n in zip(data, starts)
            ]
            table = self._maps[eqn, False] = np.asarray(_run(eqn, [*numbers, *indices]))
        shape = table.shape

        def of_operand(codes: np.ndarray, start: int, size: int) -> np.ndarray:
            at = codes & _ELEMENT
            positions = (
                table[np.unravel_index(at, shape)] if shape else table.reshape(1)[at]
            ) - start
            inside = (positions >= 0) & (positions < size)
            return pairs((codes >> BITS)[inside], positions[inside])

        return [
            _apply(elements, lambda at, n=n, a=a: of_operand(at, n, a.aval.size))
            for a, n in zip(data, starts)
        ]

    def _select(self, eqn: Eqn, elements: ElementSet) -> list[ElementSet]:
        """Return the elements of the condition and of the chosen cases; of all cases if the
        condition is not known."""
        mask, *cases = eqn.invars
        which = self.find_constants(mask)
        everywhere = [_same_position(a, eqn, elements) for a in eqn.invars]
        if which is None:
            decider = None if isinstance(mask, Literal) else self.graph.producer.get(mask)
            if decider is not None and not self.is_leaf(mask) and self._may_be_decided(decider):
                return [everywhere[0], *(ElementSet(e.may, _NONE) for e in everywhere[1:])]
            return everywhere
        _check_size(eqn)
        values, known = (
            np.broadcast_to(x, eqn.outvars[0].aval.shape).reshape(-1)
            for x in (which.values, which.known)
        )
        # indices outside of the range choose the first or the last case
        inside = (values >= 0) & (values < len(cases))
        elements_read = [everywhere[0]]
        for number, atom in enumerate(cases):
            must = elements.must & _ELEMENT
            must = elements.must[(~known[must] & inside[must]) | (values[must] == number)]
            may = elements.may
            if may is not None and which.pure:
                may = may[(values[may & _ELEMENT] == number) | ~inside[may & _ELEMENT]]
            elements_read.append(_same_position(atom, eqn, ElementSet(may, must)))
        return elements_read

    # ---- values that depend on no input

    def find_constants(self, atom: Atom) -> KnownValues | None:
        """Return the elements of a value that are the same for all inputs, or None."""
        if isinstance(atom, Literal):
            value = np.asarray(atom.val, atom.aval.dtype)
            return KnownValues(value, np.ones((), bool), True)
        if self.is_leaf(atom) or atom not in self.graph.producer:
            values = self.given.get(atom)
            return (
                None if values is None else KnownValues(values, np.ones(values.shape, bool), True)
            )
        if atom not in self._known:
            eqn = self.graph.producer[atom]
            self._known[atom] = self._compute(eqn) if len(eqn.outvars) == 1 else None
        return self._known[atom]

    def _compute(self, eqn: Eqn) -> KnownValues | None:
        shape = eqn.outvars[0].aval.shape
        operands = [self.find_constants(a) for a in eqn.invars]
        if eqn.outvars[0].aval.size > LARGEST_VALUE or lowering_kind(eqn) is LoweringKind.REDUCE:
            return None
        if None not in operands and all(k.pure for k in operands if k is not None):
            values = np.asarray(_run(eqn, [k.values for k in operands if k is not None]))
            return KnownValues(values, np.ones(shape, bool), True)
        if eqn.outvars[0].aval.dtype != np.dtype(bool) or all(k is None for k in operands):
            return None
        if computes(eqn) in ("and", "or"):
            return _three_valued(computes(eqn) == "or", operands, shape)
        if isinstance(eqn.primitive, MovementOp):
            return _moved_values(eqn, operands)
        return None


def _moved_values(eqn: Eqn, operands: Sequence[KnownValues | None]) -> KnownValues:
    """Return the known elements of the result of an equation that moves elements."""
    filled = [
        k or KnownValues(np.zeros(a.aval.shape, bool), np.zeros(a.aval.shape, bool), False)
        for k, a in zip(operands, eqn.invars)
    ]
    values, known = [
        np.asarray(_run(eqn, xs)) for xs in ([k.values for k in filled], [k.known for k in filled])
    ]
    return KnownValues(values, known, False)


def _three_valued(
    absorbing: bool, operands: Sequence[KnownValues | None], shape: tuple[int, ...]
) -> KnownValues:
    """Return the elements of a conjunction (or disjunction) that are known because one operand
    decides them."""
    decided = np.zeros(shape, bool)
    for operand in operands:
        if operand is not None:
            decided |= operand.known & (operand.values == absorbing)
    return KnownValues(np.full(shape, absorbing), decided, False)


def _run(eqn: Eqn, operands: Sequence[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = eqn.primitive.reference(*operands, **eqn.params)
    return result[0] if isinstance(result, list | tuple) else result


def pairs(results: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """Return one code per pair of a result element and an operand element, given by their numbers."""
    return results << BITS | elements


def elements_of(codes: np.ndarray, result: int) -> np.ndarray:
    """Return the elements that are paired with a result element."""
    return codes[codes >> BITS == result] & _ELEMENT


def _check_size(eqn: Eqn) -> None:
    if eqn.outvars[0].aval.size > LARGEST_VALUE:
        raise UncheckedKernelError("a value has too many elements")


def _numbers(shape: tuple[int, ...], first: int) -> np.ndarray:
    size = math.prod(shape)
    if size > LARGEST_VALUE:
        raise UncheckedKernelError("a value has too many elements")
    return np.arange(first, first + size, dtype=np.int64).reshape(shape)


def _same_position(atom: Atom, eqn: Eqn, elements: ElementSet) -> ElementSet:
    """Return the operand elements that an elementwise op reads: the positions of the results."""
    shape = atom.aval.shape
    if shape == eqn.outvars[0].aval.shape:
        return elements
    if atom.aval.size == 1:
        may = None if elements.may is None else np.unique(elements.may & ~_ELEMENT)
        return ElementSet(may, np.unique(elements.must & ~_ELEMENT))
    return ElementSet(None, _NONE)


def _apply(elements: ElementSet, index_map: Callable[[np.ndarray], np.ndarray]) -> ElementSet:
    must = np.unique(index_map(elements.must)) if elements.must.size else _NONE
    if elements.may is elements.must:
        return ElementSet(must, must)
    return ElementSet(None if elements.may is None else np.unique(index_map(elements.may)), must)


def _union(sets: Sequence[ElementSet]) -> ElementSet:
    if len(sets) == 1:
        return sets[0]
    must = np.unique(np.concatenate([s.must for s in sets]))
    if all(s.may is s.must for s in sets):
        return ElementSet(must, must)
    may_sets = [s.may for s in sets if s.may is not None]
    return ElementSet(
        np.unique(np.concatenate(may_sets)) if len(may_sets) == len(sets) else None, must
    )


def _without_known(elements: ElementSet, known: KnownValues | None) -> ElementSet:
    """Return the set without the requirement to read known elements."""
    if known is None or not elements.must.size:
        return elements
    return ElementSet(
        elements.may, elements.must[~known.known.reshape(-1)[elements.must & _ELEMENT]]
    )
