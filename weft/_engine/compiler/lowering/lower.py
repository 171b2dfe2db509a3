"""Lowering of a fused group to scalar code, by evaluating the `lower` rules of its equations at symbolic indices.

In:   a `KernelGroup` and its `Fusion`.
Out:  `LoweredGroup`: expressions at a symbolic position, without loops; `compiler.loops.loop_nest` builds the loops.

Results are functions of the dims of one shape: *row* dims (kept) and *column* dims (reduced). A reduction becomes a reference to
an accumulator that a pass over the columns fills. A pass runs after the passes that fill the accumulators it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from typing import overload

import numpy as np

from weft._engine.compiler.fusion.classify import (
    LoweringKind,
    computes,
    flat_index,
    index_variables,
    lowering_kind,
    row_major,
)
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.fusion.reduction_domain import reduced_dims
from weft._engine.core.primitive import ElementwiseOp, IndexOp
from weft._engine.ir.build import HALVES, LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Atom, Eqn, Literal, Var
from weft._engine.ir.loops import FLOATS, Expr, Load, ScalarOp, ScalarRef
from weft._engine.util.record import field, record

_BOOLEAN = {"add": "or", "max": "or", "mul": "and", "min": "and"}


@record(frozen=False)
class LoweredReduction:
    """An accumulator, filled by pass `level` over the columns.

    For the position of an extreme value, `extreme` is the name of the accumulator of the extreme value and `at` the current
    position; one pass may then fill both.
    """

    name: str
    op: str
    init: Expr
    value: Expr
    level: int
    columns: tuple[int, ...]
    extreme: str | None = None
    at: Expr | None = None


@record(frozen=False)
class Output:
    """A value to store: in pass `level` if it varies over columns, otherwise once per row (level -1).

    With `combine`, the values of each row are combined into the results of its part, which are initialized to `init`. `after` has
    the values of the following elements, which are stored together with `value`."""

    var: Var
    index: Expr
    value: Expr
    level: int
    combine: str | None = None
    init: Expr | None = None
    after: tuple[Expr, ...] = ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """Return the index and the stored values."""
        return (self.index, self.value, *self.after)


@record
class Remainder:
    """The code of elements after the last whole unrolled iteration: `outputs` are stored in rows where `when` is true, and if `once`
    only at the end of the vector dim."""

    outputs: list[Output]
    when: Expr | None
    once: bool


@record(frozen=False)
class LoweredGroup:
    """The scalar program of a kernel.

    `vars[d]` is the index expression of dim d of `shape`. `part` is the index expression of a task's part of the rows, one of
    `parts` (0: rows are not divided into fixed parts)."""

    builder: LoopsBuilder
    shape: tuple[int, ...]
    columns: tuple[int, ...]
    vars: list[Expr]
    reductions: list[LoweredReduction]
    outputs: list[Output]
    leaves: list[Var]
    names: dict[Var, str] = field(default_factory=dict)
    parts: int = 0
    part: Expr | None = None
    remainders: list[Remainder] = field(default_factory=list)


class GroupLowering:
    """The lowering of one group: each value is computed from its index, starting at the roots."""

    def __init__(self, graph: Fusion, group: KernelGroup):
        self.graph, self.group = graph, group
        self.b = LoopsBuilder()
        self.memo: dict = {}
        self.multi: dict = {}
        self.names: dict[Var, str] = {}
        self.reductions: list[LoweredReduction] = []
        self.levels: dict[int, int] = {}
        self.flat = False

    def run(self) -> LoweredGroup:
        shape, domain = self.group.shape, self.group.domain
        columns = () if domain is None else domain[1]
        self.flat = domain is None and len(shape) > 1 and self._is_plain()
        if self.flat:
            shape = (math.prod(shape),)
        b = self.b
        self.vars = index_variables(b, shape)
        part = b.index("part", self.group.parts) if self.group.parts > 1 else b.const(0, "i64")
        strides = row_major(shape)
        outputs = [
            self._column_reduction(root, part, columns, strides)
            if root in self.graph.column_reductions
            else self._output(root, columns, strides)
            for root in self.group.roots
        ]
        return LoweredGroup(
            b,
            shape,
            columns,
            self.vars,
            self.reductions,
            outputs,
            list(self.names),
            self.names,
            self.group.parts,
            part,
        )

    def _output(self, root: Var, columns: tuple[int, ...], strides: tuple[int, ...]) -> Output:
        """Return the output of a root that has one element per position of the group's shape, or per row."""
        b, alignment = self.b, self.graph.alignment.get(root)
        if self.group.domain is None or not isinstance(alignment, tuple):
            value = self.value(root, tuple(self.vars), None, True)
            at = flat_index(b, tuple(self.vars), strides)
            stored = b.storage_form(value, type_name(root.aval.dtype))
            return Output(root, at, stored, self.level(value) if columns else -1)
        index = tuple(b.const(0, "i64") if t is None else self.vars[t] for t in alignment)
        value = self.value(root, index, None, True)
        at = flat_index(b, index, row_major(root.aval.shape))
        return Output(root, at, b.storage_form(value, type_name(root.aval.dtype)), -1)

    def _column_reduction(
        self, root: Var, part: Expr, columns: tuple[int, ...], strides: tuple[int, ...]
    ) -> Output:
        """Return the output of a column reduction: the value that each row adds to the results of its part."""
        b, reduction, spec = (
            self.b,
            self.graph.column_reductions[root],
            self.graph.producer[root].primitive.lower,
        )
        value = self.value(reduction.source, tuple(self.vars), None)
        at = b.iadd(
            b.imul(part, reduction.columns),
            flat_index(b, tuple(self.vars[d] for d in columns), tuple(strides[d] for d in columns)),
        )
        init = b.const(spec.identity(root.aval.dtype), type_name(root.aval.dtype))
        return Output(root, at, value, self.level(value), spec.combine, init)

    def _is_plain(self) -> bool:
        """Return whether all values are read at the position of the result, so that all dims can be one."""
        graph, shape, depth = self.graph, self.group.shape, self.group.depth
        seen = set(self.group.roots)
        stack = list(self.group.roots)
        while stack:
            eqn = graph.producer[stack.pop()]
            if not isinstance(eqn.primitive, ElementwiseOp):
                return False
            for atom in eqn.invars:
                if atom.aval.shape not in (shape, ()):
                    return False
                if type(atom) is Literal or atom in seen:
                    continue
                seen.add(atom)
                if not graph.loads(atom, depth):
                    if not atom.aval.ndim:
                        return False
                    stack.append(atom)
        return True

    # ---- pulling

    def value(self, atom: Atom, index: tuple, guard: Expr | None, own: bool = False) -> Expr:
        """Return the element of `atom` at `index`; unspecified where `guard` is false."""
        b = self.b
        if type(atom) is Literal:
            return b.const(np.asarray(atom.val, atom.aval.dtype).item(), type_name(atom.aval.dtype))
        index = tuple(b.const(i, "i64") if type(i) is int else i for i in index)
        key = (atom, *map(id, index), id(guard))
        element = self.memo.get(key)
        if element is None:
            element = self.memo[key] = self._round_value(atom, self._value(atom, index, guard, own))
        return element

    def _round_value(self, atom: Var, value: Expr) -> Expr:
        """Round a 16-bit value if its readers must read the same bits as from memory (`fusion.rounding`)."""
        return (
            self.b.cast(value, type_name(atom.aval.dtype)) if atom in self.graph.rounded else value
        )

    def _value(self, atom: Var, index: tuple, guard: Expr | None, own: bool) -> Expr:
        graph, b = self.graph, self.b
        if not own and graph.loads(atom, self.group.depth):
            name = self.names.get(atom)
            if name is None:
                name = self.names[atom] = f"x{len(self.names)}"
            flat = (
                index[0]
                if self.flat and index
                else flat_index(b, index, row_major(atom.aval.shape))
            )
            return b.load(name, flat, type_name(atom.aval.dtype), guard)
        eqn = graph.producer[atom]
        if lowering_kind(eqn) is LoweringKind.REDUCE:
            return self._reduce(eqn, index)
        places = 1 if isinstance(eqn.primitive, IndexOp) else None
        readers = [self._reader(a, guard, i == places) for i, a in enumerate(eqn.invars)]
        if len(eqn.outvars) > 1:
            key = (eqn, *map(id, index), id(guard))
            outs = self.multi.get(key)
            if outs is None:
                outs = self.multi[key] = list(self._apply(eqn, index, readers))
            out = outs[eqn.outvars.index(atom)]
        else:
            out = self._apply(eqn, index, readers)
            if isinstance(out, list | tuple):
                out = out[0]
        return out

    def _apply(self, eqn: Eqn, index: tuple, readers: list):
        b = self.b
        if computes(eqn) == "bitcast":
            source = type_name(eqn.invars[0].aval.dtype)
            readers = [
                lambda idx, guard=None, read=readers[0]: b.storage_form(read(idx, guard), source)
            ]
        return eqn.primitive.lower(
            b,
            index,
            *readers,
            in_avals=[a.aval for a in eqn.invars],
            out_avals=[v.aval for v in eqn.outvars],
            **eqn.params,
        )

    def _reader(self, atom: Atom, outer: Expr | None, anywhere: bool = False):
        """Return the function that a lower rule calls to read an operand, under the guard `outer` of the result.

        `anywhere`: omit `outer` if the index is always in bounds, so that the read is shared by elements with different guards.
        """

        def read(index, guard=None):
            if anywhere and guard is None and self._is_inside(tuple(index), atom.aval.shape):
                return self.value(atom, tuple(index), None)
            both = (
                guard
                if outer is None
                else outer
                if guard is None
                else self.b.logical_and(outer, guard)
            )
            return self.value(atom, tuple(index), both)

        return read

    def _is_inside(self, index: tuple, shape: tuple[int, ...]) -> bool:
        ranges = [(i, i) if type(i) is int else self.b.range(i) for i in index]
        return all(0 <= low and high < n for (low, high), n in zip(ranges, shape))

    # ---- reductions

    def _reduce(self, eqn: Eqn, index: tuple) -> Expr:
        b = self.b
        (atom,), spec = eqn.invars, eqn.primitive.lower
        axes = reduced_dims(eqn)
        row_index = iter(index)
        where = tuple(self.vars[d] if d in axes else next(row_index) for d in range(atom.aval.ndim))
        type_ = type_name(atom.aval.dtype)
        acc_type = "f32" if type_ in HALVES else type_
        if spec.combine in ("argmax", "argmin"):
            return self._arg_reduce(eqn, atom, where, axes, acc_type)
        if atom.aval.size == 0:
            return b.const(spec.identity(atom.aval.dtype), acc_type)
        op = combining_operation(spec.combine, type_)
        value = b.cast(self.value(atom, where, None), acc_type)
        return self._accumulate(op, b.const(spec.identity(atom.aval.dtype), acc_type), value, axes)

    def _arg_reduce(
        self, eqn: Eqn, atom: Atom, where: tuple, axes: tuple[int, ...], wide: str
    ) -> Expr:
        """Accumulate the extreme value (NaN wins), then its first position."""
        b, is_minimum = self.b, eqn.primitive.lower.combine == "argmin"
        value = b.cast(self.value(atom, where, None), wide)
        if wide == "bool":
            value, wide = b.cast(value, "i32"), "i32"
        extreme = self._accumulate(
            "min" if is_minimum else "max", b.const(_extreme(wide, is_minimum), wide), value, axes
        )
        hit = b.op("eq", value, extreme)
        if wide in FLOATS:
            hit = b.logical_or(hit, b.op("ne", value, value))
        type_ = type_name(eqn.outvars[0].aval.dtype)
        limits = np.iinfo(eqn.outvars[0].aval.dtype)
        at = b.const(0, "i64")
        for d in axes:
            at = b.iadd(b.imul(at, atom.aval.shape[d]), where[d])
        far, at = b.const(int(limits.max), type_), b.cast(at, type_)
        position = self._accumulate("min", far, b.select(hit, at, far), axes)
        of_extreme, of_place = self.reductions[-2:]
        of_place.extreme, of_place.at = of_extreme.name, at
        return position

    def _accumulate(self, op: str, init: Expr, value: Expr, axes: tuple[int, ...]) -> Expr:
        factors: list[tuple[str, tuple]] = []
        if op == "add" and value.type in FLOATS:
            term, outside = self._factor_out(value, {id(self.vars[d]) for d in axes})
            if self.level(term) < self.level(value):
                value, factors = term, outside
        name = f"a{len(self.reductions)}"
        self.reductions.append(LoweredReduction(name, op, init, value, self.level(value), axes))
        total = self.b.ref(name, value.type)
        for name, others in factors:
            total = self.b.op(name, total, *others)
        return total

    def _factor_out(self, x: Expr, columns: set[int]) -> tuple[Expr, list]:
        """Split `x` into a factor that varies over columns and the invariant factors, as (operation, other operands).

        A sum can be multiplied by the invariant factors afterwards, so that it does not wait for accumulators in them. Of a product
        of two varying factors only one is split, so that the square of a scaled value stays scaled."""
        if type(x) is not ScalarOp:
            return x, []
        if x.op == "neg":
            remaining, factors = self._factor_out(x.args[0], columns)
            return remaining, [*factors, ("neg", ())]
        if x.op not in ("mul", "div"):
            return x, []
        one, other = x.args
        if x.op == "mul" and not self._varies(one, columns):
            one, other = other, one
        if not self._varies(other, columns):
            remaining, factors = self._factor_out(one, columns)
            return remaining, [*factors, (x.op, (other,))]
        if x.op == "div" or self.level(one) == self.level(other):
            return x, []
        low, high = sorted((one, other), key=self.level)
        remaining, factors = self._factor_out(high, columns)
        return (self.b.op("mul", low, remaining), factors) if factors else (x, [])

    def _varies(self, x: Expr, columns: set[int]) -> bool:
        """Return whether the value depends on the index variables `columns`."""
        seen, stack = {id(x)}, [x]
        while stack:
            y = stack.pop()
            if id(y) in columns:
                return True
            unseen = [k for k in children(y) if id(k) not in seen]
            seen.update(map(id, unseen))
            stack += unseen
        return False

    def level(self, expr: Expr) -> int:
        """Return the first pass with complete accumulators for all reads of `expr`."""
        levels = self.levels
        for x in post_order(expr, levels):
            if isinstance(x, ScalarRef):
                levels[id(x)] = {r.name: r.level for r in self.reductions}[x.name] + 1
            else:
                levels[id(x)] = max((levels[id(k)] for k in children(x)), default=0)
        return levels[id(expr)]


@overload
def combining_operation(combine: str, type_: str) -> str: ...
@overload
def combining_operation(combine: None, type_: str) -> None: ...
def combining_operation(combine: str | None, type_: str) -> str | None:
    """Return the operation of Loops that combines elements of a type: `add` of bools is `or`, for example."""
    return _BOOLEAN.get(combine, combine) if combine is not None and type_ == "bool" else combine


def children(x: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions of an expression."""
    if type(x) is ScalarOp:
        return x.args
    if type(x) is Load:
        return (x.index,) if x.guard is None else (x.index, x.guard)
    return ()


def post_order(
    root: Expr, known: Container[int], parts: Callable[[Expr], Sequence[Expr]] = children
) -> Iterator[Expr]:
    """Yield the subexpressions of `root` and `root` itself in post-order, except those whose ids are in `known`.

    The caller must add the id of each yielded expression to `known` before it continues."""
    stack = [(root, False)]
    while stack:
        x, is_ready = stack.pop()
        if id(x) in known:
            continue
        if not is_ready:
            waiting = [(part, False) for part in parts(x) if id(part) not in known]
            if waiting:
                stack += [(x, True), *waiting]
                continue
        yield x


def reachable(roots: list[Expr]) -> list[Expr]:
    """Return the roots and all their subexpressions, each once, in the order of a depth-first search from the roots."""
    seen: set[int] = set()
    out: list[Expr] = []
    stack = list(roots)
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            out.append(x)
            stack.extend(children(x))
    return out


def _extreme(type_: str, is_minimum: bool):
    if type_ in FLOATS:
        return float("inf") if is_minimum else float("-inf")
    bits = int(type_[1:])
    low, high = (
        (0, (1 << bits) - 1) if type_[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    )
    return high if is_minimum else low
