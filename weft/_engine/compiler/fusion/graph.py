"""The fusion graph: the depth of each value, the operands that kernels inline, and the values that must be in memory.

In:   a simplified jaxpr, and the rules that decide which operands are inlined.
Out:  `FusionGraph`.

The *depth* of a value is the number of kernels that must run before a kernel with all its producers inlined can compute it. A
kernel loads values of smaller depth and inlines values of its own depth. A *root* may have a buffer: it is needed in memory, or
it is expensive and used more than once. Consumers of the root's depth inline it, deeper consumers load it, and a root that is
never loaded is not stored. A value that is cheap to compute from roots is not a root.

A reduction opens a *reduction domain* (shape S, reduced dims). Consumers that index its result by row stay in the kernel, as do
values of shape S computed from it; any other access needs the value in memory, one depth further. A reduction over the rows
themselves (`compiler.fusion.column_reduction`) shares the pass but can be read by deeper kernels only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

from weft._engine.compiler.fusion.classify import (
    LoweringKind,
    View,
    dilation_of,
    eqn_cost,
    eqn_statements,
    is_dense,
    joins_rows,
    lowering_kind,
    moves,
    view_of,
)
from weft._engine.compiler.fusion.column_reduction import (
    ColumnReduction,
    before_reshape,
    column_reduction_of,
)
from weft._engine.compiler.fusion.reduction_domain import (
    Domain,
    fits_domain,
    keeps_order,
    may_follow,
    reduced_dims,
)
from weft._engine.compiler.fusion.rounding import find_rounded_values
from weft._engine.compiler.fusion.window_analysis import windows
from weft._engine.core.primitive import ElementwiseOp, MovementOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: minimal cost of a value that is stored if it is used twice
EXPENSIVE = 12
#: maximal cost of a value that is inlined into its interior padding
MOST_SPREAD = 256
#: maximal length of a chain of equations that are inlined into one another
LONGEST_CHAIN = 48
#: number of statements from which values are much code for one kernel
_MUCH_CODE = 1536


# alignments of a value with its reduction domain
WHOLE = "whole"  # the value has the shape of the domain
RESHAPED = "reshaped"  # the value has the same number of elements in another shape
COLUMN_REDUCED = "column reduced"  # the value is a reduction over the rows
#: one of the names above, or for each dim of a value the corresponding dim of the domain (None if there is none)
Alignment = str | tuple[int | None, ...]
_MOST_COST = 1 << 30


class FusionUse(NamedTuple):
    """The read of an operand by an equation, as the input of fusion rules.

    `view`: the address map if the equation only moves elements. `pointwise`: each element of the result reads the element at its
    own position. `alignment`: the alignment of the result with the operand's reduction domain if the operand is inlined, None if
    that is impossible. `in_domain`: whether any operand of the equation has a domain. `dilated_cost`: the cost of dilated values
    in the operands `inlined` before."""

    graph: "FusionGraph"
    eqn: Eqn
    operand: Var
    view: View | None
    pointwise: bool
    alignment: Alignment | None
    in_domain: bool
    dilated_cost: int
    inlined: Sequence[Var]


@record
class FusionRule:
    """A rule of fusion: the first rule in a list that `applies` decides by `fuses`, a bool or a function. `why` is the reason."""

    name: str
    why: str
    applies: Callable[[Any], bool]
    fuses: bool | Callable[[Any], bool]


def decide(rules: Sequence[FusionRule], candidate: object) -> bool:
    """Return the decision of the first rule that applies to a candidate."""
    for rule in rules:
        if rule.applies(candidate):
            fuses = rule.fuses
            return fuses if fuses is True or fuses is False else fuses(candidate)
    raise ValueError(f"no rule of fusion applies to {candidate}")


@record(frozen=False)
class ComputeCost:
    """The cost of computing a value in a kernel."""

    cost: int  # the cost from values that are certainly in memory
    recompute_cost: int  # the cost from roots, assuming that they are in memory
    inlined: int = 1  # the length of the longest chain of inlined equations
    dilation: int = 1  # the number of results with separate code in an unrolled iteration
    dilated_cost: int = 0  # the cost of operands with interior padding
    statements: int = 0  # the number of statements if no inlined value is shared, an upper bound

    def load(self) -> None:
        """Add the cost of loading an operand."""
        self.cost += 1
        self.recompute_cost += 1
        self.statements += 1

    def inline(self, operand: ComputeCost) -> None:
        """Add the cost of computing an operand in the kernel."""
        self.cost = min(self.cost + operand.cost, _MOST_COST)
        self.recompute_cost += operand.recompute_cost
        self.inlined = max(self.inlined, operand.inlined + 1)
        self.dilation = max(self.dilation, operand.dilation)
        self.dilated_cost += operand.dilated_cost
        self.statements = min(self.statements + operand.statements, _MOST_COST)

    def copy(self) -> ComputeCost:
        return replace(self)


class FusionGraph:
    """The fusion of one program body."""

    def __init__(self, jaxpr: Jaxpr, rules: Sequence[FusionRule]):
        self.jaxpr, self.rules = jaxpr, rules
        self.producer: dict[Var, Eqn] = {}
        self.order: dict[Var, int] = {}
        self.depth: dict[Var, int] = {}
        self.domain: dict[Var, Domain] = {}
        self.alignment: dict[Var, Alignment] = {}
        self.costs: dict[Var, ComputeCost] = {}
        self.column_reductions: dict[Var, ColumnReduction] = {}
        self.roots: set[Var] = set()
        # values that must be in memory; their order is the same in every process
        self.demanded: dict[Var, None] = {}
        self.non_fusible: list[tuple[int, Eqn]] = []
        self.non_fusible_outs: dict[Var, Eqn] = {}
        self.uses: dict[Var, int] = {}
        self.rounded = find_rounded_values(jaxpr)
        self.stored: dict[Var, None] = {}
        self._resolved: dict[Var, tuple[Var, View | None]] = {}
        self._statement_counts: dict[tuple[Var, ...], int] = {}
        for var in (*jaxpr.constvars, *jaxpr.invars):
            self.depth[var] = -1
        for eqn in jaxpr.eqns:
            for atom in dict.fromkeys(eqn.invars):
                if type(atom) is not Literal:
                    self.uses[atom] = self.uses.get(atom, 0) + 1
        self.materialized = _find_materialized_values(jaxpr)
        self.reduction_inputs = _reduction_inputs(jaxpr)
        self.windows = windows(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            self._visit(eqn, number)
        for atom in jaxpr.outvars:
            self.demand(atom)

    # ---- the forward pass

    def can_inline(self, atom: Atom) -> TypeGuard[Var]:
        """Return whether a kernel could inline the value."""
        return type(atom) is not Literal and atom in self.producer

    def _visit(self, eqn: Eqn, number: int) -> None:
        kind = lowering_kind(eqn)
        for var in eqn.outvars:
            self.order[var] = number
        if kind is LoweringKind.PULL:
            self._inline_value(eqn)
        elif kind is LoweringKind.REDUCE:
            self._reduce(eqn)
        else:
            depth = 0
            if kind is LoweringKind.SCATTER:
                eqn = self._with_known_updates(eqn)
            for place, atom in enumerate(eqn.invars):
                strided = (
                    kind is LoweringKind.CONTRACT
                    or (kind is LoweringKind.SCATTER and place == 2)
                    or (kind is LoweringKind.GROUPED and place < 2)
                )
                depth = max(
                    depth, (self._demand_strided(atom) if strided else self.demand(atom)) + 1
                )
            for var in eqn.outvars:
                self.depth[var] = depth
                self.non_fusible_outs[var] = eqn
            self.non_fusible.append((number, eqn))

    def _with_known_updates(self, eqn: Eqn) -> Eqn:
        """Return a scatter whose updates all equal one literal with that literal as its updates, so that no buffer is read."""
        updates = eqn.invars[2]
        producer = None if type(updates) is Literal else self.producer.get(updates)
        if producer is None or moves(producer) != "repeat":
            return eqn
        number = producer.invars[0]
        if type(number) is not Literal:
            return eqn
        return eqn.replace(invars=(*eqn.invars[:2], Literal(number.val, updates.aval)))

    def _inline_value(self, eqn: Eqn) -> None:
        view, pointwise = view_of(eqn), isinstance(eqn.primitive, ElementwiseOp)
        costs = ComputeCost(eqn_cost(eqn), eqn_cost(eqn), statements=eqn_statements(eqn, view))
        depth, domain, alignment = 0, None, None
        inlined: list[Var] = []
        operands = [atom for atom in eqn.invars if type(atom) is not Literal]
        in_domain = any(atom in self.domain for atom in operands)
        for atom in operands:
            if atom in self.producer:
                its_domain = self.domain.get(atom)
                its_alignment = self._align_to_domain(eqn, atom, view, pointwise)
                if domain is not None and (domain, alignment) != (its_domain, its_alignment):
                    its_alignment = None
                use = FusionUse(
                    self,
                    eqn,
                    atom,
                    view,
                    pointwise,
                    its_alignment,
                    in_domain,
                    costs.dilated_cost,
                    inlined,
                )
                if decide(self.rules, use):
                    if its_domain is not None:
                        domain, alignment = its_domain, its_alignment
                    depth = max(depth, self.depth[atom])
                    costs.inline(self.costs[atom])
                    inlined.append(atom)
                    continue
            depth = max(depth, self.demand(atom) + 1)
            costs.load()
        own_dilation = dilation_of(eqn)
        if own_dilation > 1:
            costs.dilation *= own_dilation
            costs.dilated_cost += self.distinct_cost(eqn.invars[0])
        if domain is not None and alignment == WHOLE:
            self._sink_reductions(eqn, depth, domain)
        self._add_computed(eqn, depth, costs, domain, alignment)

    def _add_computed(
        self,
        eqn: Eqn,
        depth: int,
        costs: ComputeCost,
        domain: Domain | None,
        alignment: Alignment | None,
    ) -> None:
        """Record the results of an equation; expensive results that are used again become roots."""
        view = view_of(eqn)
        for var in eqn.outvars:
            self.producer[var], self.depth[var], self.costs[var] = eqn, depth, costs.copy()
            if domain is not None and alignment is not None:
                self.domain[var], self.alignment[var] = domain, alignment
            is_recomputed = self.uses.get(var, 0) > 1 and alignment != RESHAPED
            if is_recomputed and costs.recompute_cost >= EXPENSIVE:
                self.roots.add(var if view is None else self._find_unreshaped_value(var))
                self.costs[var].recompute_cost = 1

    def _find_unreshaped_value(self, var: Var) -> Var:
        """Return `var`, or the computed value that it reshapes; readers of both share one buffer."""
        base, view = self.resolve(var)
        is_same_order = (
            view is not None
            and base in self.producer
            and base.aval.size == var.aval.size
            and is_dense(view, var.aval.shape)
        )
        return base if is_same_order else var

    def _sink_reductions(self, eqn: Eqn, depth: int, domain: Domain) -> None:
        """Move reductions over the same domain that only `eqn` reads into its kernel, which passes over the rows anyway."""
        stack = [a for a in eqn.invars if type(a) is not Literal]
        while stack:
            atom = stack.pop()
            if (
                self.domain.get(atom) != domain
                or self.depth[atom] >= depth
                or self.uses.get(atom) != 1
                or atom in self.demanded
            ):
                continue
            maker = self.producer[atom]
            if lowering_kind(maker) is LoweringKind.REDUCE:
                source = maker.invars[0]
                if self.can_inline(source) and (source in self.roots or self.depth[source] > 0):
                    continue
            else:
                stack.extend(a for a in maker.invars if type(a) is not Literal)
            self.depth[atom] = depth

    def _align_to_domain(
        self, eqn: Eqn, atom: Var, view: View | None, pointwise: bool
    ) -> Alignment | None:
        """Return the alignment of the result if `eqn` can read `atom` inside its reduction domain; else None."""
        domain = self.domain.get(atom)
        if domain is None:
            return None
        shape, alignment, whole = eqn.outvars[0].aval.shape, self.alignment[atom], domain[0]
        if alignment in (RESHAPED, COLUMN_REDUCED):
            return None
        if pointwise:
            if atom.aval.shape == shape:
                return alignment
            return WHOLE if shape == whole and may_follow(domain) else None
        if isinstance(alignment, str):
            return RESHAPED if before_reshape(eqn.outvars[0], eqn) is atom else None
        dims = None if view is None else _dims_in_domain(alignment, view, shape, whole)
        return None if dims is None else _alignment_of(dims, shape, domain)

    def distinct_cost(self, atom: Atom) -> int:
        """Return the cost of a value if each inlined value is computed once; a lower bound if it exceeds `MOST_SPREAD`."""
        total, seen = 0, {atom}
        stack: list[Var] = []
        if type(atom) is not Literal and atom not in self.demanded:
            stack.append(atom)
        while stack and total <= MOST_SPREAD:
            eqn = self.producer.get(stack.pop())
            if eqn is not None:
                total += eqn_cost(eqn)
                fresh = [
                    a
                    for a in eqn.invars
                    if type(a) is not Literal and a not in seen and a not in self.demanded
                ]
                seen.update(fresh)
                stack += fresh
        return total

    def statement_count(self, *values: Var) -> int:
        """Return the approximate number of statements that compute values at one position, with all inlined values.

        A value is computed once for each position at which it is read. Values with a reduction domain and values with one element
        have one position only. Other values that are moved have a position of their own for each movement."""
        if values in self._statement_counts:
            return self._statement_counts[values]
        total, region, stack = 0, set(values), list(values)
        while stack:
            eqn = self.producer[stack.pop()]
            total += eqn_statements(eqn, view_of(eqn))
            keeps_position = _keeps_position(eqn)
            for atom in eqn.invars:
                if type(atom) is Literal:
                    continue
                is_shared = keeps_position or atom in self.domain or atom.aval.size == 1
                if is_shared and atom in region:
                    continue
                if is_shared:
                    region.add(atom)
                if not self.can_inline(atom) or atom in self.demanded:
                    total += 1
                elif is_shared:
                    stack.append(atom)
                else:
                    total += self.statement_count(atom)
        self._statement_counts[values] = total
        return total

    def has_much_code(self, values: Sequence[Var]) -> bool:
        """Return whether computing values at one position takes many statements."""
        # The upper bound takes no search.
        return (
            sum(self.costs[value].statements for value in values) >= _MUCH_CODE
            and self.statement_count(*values) >= _MUCH_CODE
        )

    def _reduce(self, eqn: Eqn) -> None:
        (atom,), out = eqn.invars, eqn.outvars[0]
        self.producer[out] = eqn
        self.roots.add(out)
        sums = self._column_reduction(eqn, atom)
        if sums is not None:
            source = sums.source
            self.add_column_reduction(out, sums, self.domain[source])
            self.depth[out] = self.depth[source]
            operand = self.costs[source]
            self.costs[out] = ComputeCost(operand.cost + 20, 1, statements=operand.statements + 1)
            return
        shape, axes = atom.aval.shape, reduced_dims(eqn)
        domain = (shape, axes)
        depth, costs = 0, ComputeCost(20, 1, statements=2)
        if self.can_inline(atom):
            alignment = (
                WHOLE if self.domain.get(atom) == domain and self.alignment[atom] == WHOLE else None
            )
            if decide(self.rules, FusionUse(self, eqn, atom, None, False, alignment, True, 0, ())):
                operand = self.costs[atom]
                depth = self.depth[atom]
                costs = ComputeCost(
                    20 + operand.cost,
                    1,
                    operand.inlined + 1,
                    statements=operand.statements + 1,
                )
            else:
                depth = self.demand(atom) + 1
        elif type(atom) is not Literal:
            depth = self.depth[atom] + 1
        self.depth[out], self.costs[out], self.domain[out] = depth, costs, domain
        self.alignment[out] = tuple(d for d in range(len(shape)) if d not in axes)

    def _column_reduction(self, eqn: Eqn, atom: Atom) -> ColumnReduction | None:
        """Return the reduction as a column reduction over the rows of its operand's domain; None if it is not one."""
        if (
            type(atom) is Literal
            or self.alignment.get(atom) not in (WHOLE, RESHAPED)
            or self.costs[atom].inlined >= LONGEST_CHAIN
        ):
            return None
        source = (
            before_reshape(atom, self.producer[atom]) if self.alignment[atom] == RESHAPED else atom
        )
        sums = column_reduction_of(eqn, source)
        return sums if sums is not None and fits_domain(sums, self.domain[source]) else None

    def add_column_reduction(self, out: Var, sums: ColumnReduction, domain: Domain) -> None:
        """Have a kernel over the rows of `domain` compute `out`."""
        self.column_reductions[out] = sums
        self.domain[out], self.alignment[out] = domain, COLUMN_REDUCED
        self.demanded[out] = None

    # ---- memory demands

    def demand(self, atom: Atom) -> int:
        """Require the value, dense, in memory; return the depth of its kernel."""
        if type(atom) is Literal:
            return -1
        if atom in self.producer:
            base, view = self.resolve(atom)
            if (
                view is not None
                and is_dense(view, atom.aval.shape)
                and (base.aval.size == atom.aval.size or base not in self.producer)
            ):
                atom = base
        if atom in self.producer:
            self.roots.add(atom)
            self.demanded[atom] = None
        return self.depth[atom]

    def _demand_strided(self, atom: Atom) -> int:
        """Require the value in memory with any strides (a matmul's operand, updates of a scatter); return the depth of its kernel."""
        if type(atom) is Literal:
            return -1
        base, _ = self.resolve(atom)
        return self.demand(base)

    def resolve(self, var: Var) -> tuple[Var, View | None]:
        """Return the viewed value and the view if `var` is a view; (var, None) if `var` is computed."""
        resolved = self._resolved.get(var)
        if resolved is None:
            resolved = self._resolved[var] = self._resolve(var)
        return resolved

    def _resolve(self, var: Var) -> tuple[Var, View | None]:
        if (
            type(var) is Literal
            or var not in self.producer
            or (var in self.domain and self.alignment[var] != RESHAPED)
        ):
            return var, None
        eqn = self.producer[var]
        view = view_of(eqn)
        if view is None or any(s < 0 for s in view.strides):
            return var, None
        source = eqn.invars[0]
        if type(source) is Literal or (
            source in self.domain
            and source not in self.demanded
            and source.aval.size < var.aval.size
        ):
            return var, None
        base, inner = self.resolve(source)
        if inner is None:
            return source, view
        joined = (
            view.after_dense(inner.offset)
            if is_dense(inner, source.aval.shape)
            else view.compose(inner)
        )
        return (source, view) if joined is None else (base, joined)

    def loads(self, atom: Var, depth: int) -> bool:
        """Return whether a kernel of `depth` reads the value from memory."""
        return atom not in self.producer or (atom in self.roots and self.depth[atom] < depth)

    def producers_and_leaves(
        self, atoms: Sequence[Atom], loaded: Callable[[Var], bool], dot: Eqn | None = None
    ) -> tuple[list[Eqn], list[Var]]:
        """Return the equations that compute `atoms`, in order, and the loaded values that they read."""
        eqns: dict[Eqn, int] = {}
        leaves: dict[Var, None] = {}
        stack = [a for a in atoms if type(a) is not Literal]
        seen = set(stack)
        while stack:
            var = stack.pop()
            eqn = dot if dot is not None and var is dot.outvars[0] else self.producer.get(var)
            if loaded(var) or eqn is None:
                leaves[var] = None
                continue
            if eqn not in eqns:
                eqns[eqn] = self.order[var]
                unseen = [a for a in eqn.invars if type(a) is not Literal and a not in seen]
                seen.update(unseen)
                stack += reversed(unseen)
        return sorted(eqns, key=eqns.__getitem__), list(leaves)

    def memory_of(self, var: Var) -> Var:
        """Return the stored value whose buffer contains `var`."""
        if var not in self.producer or var in self.stored:
            return var
        base = self.resolve(var)[0]
        return base if base is var else self.memory_of(base)


def _keeps_position(eqn: Eqn) -> bool:
    """Return whether an equation reads its operands at one position: its own, or the position in the loop over the reduced dims."""
    if not isinstance(eqn.primitive, MovementOp):
        return isinstance(eqn.primitive, ElementwiseOp) or lowering_kind(eqn) is LoweringKind.REDUCE
    (out,) = eqn.outvars
    return before_reshape(out, eqn) is not out


def _dims_in_domain(
    alignment: tuple[int | None, ...], view: View, shape: tuple[int, ...], whole: tuple[int, ...]
) -> list[int | None] | None:
    """Return the dim of the domain of each dim of a view; None if the view shows other elements."""
    dims: list[int | None] = [None] * len(shape)
    for dim, index in zip(alignment, view.maps):
        if dim is None:
            continue
        match index:
            # A view of a part of a row has no alignment: the loop over the whole row would store too much.
            case (0, ((d, 1),)) if shape[d] == whole[dim]:
                dims[d] = dim
            case _:
                return None
    return dims


def _alignment_of(
    dims: list[int | None], shape: tuple[int, ...], domain: Domain
) -> Alignment | None:
    """Return the alignment of a view with the given dims of its reduction domain; None if the kernel cannot compute it."""
    if shape == domain[0] and _has_own_dims(dims, domain):
        return WHOLE if may_follow(domain) else None
    is_complete = all(t is not None or n == 1 for t, n in zip(dims, shape))
    return tuple(dims) if is_complete and keeps_order(dims, domain) else None


def _has_own_dims(dims: list[int | None], domain: Domain) -> bool:
    """Return whether each dim is the same dim of the domain; a dim may be None if it is reduced or has size 1."""
    shape, axes = domain
    return all(t == d or (t is None and (d in axes or shape[d] == 1)) for d, t in enumerate(dims))


def _find_materialized_values(jaxpr: Jaxpr) -> set[Var]:
    """Return the values that are in memory in any case: results, and operands of equations that are not fused."""
    materialized = {a for a in jaxpr.outvars if type(a) is not Literal}
    for eqn in reversed(jaxpr.eqns):
        if lowering_kind(eqn) not in (LoweringKind.PULL, LoweringKind.REDUCE) or (
            eqn.outvars[0] in materialized
            and before_reshape(eqn.outvars[0], eqn) is not eqn.outvars[0]
        ):
            materialized.update(a for a in eqn.invars if type(a) is not Literal)
    return materialized


def _reduction_inputs(jaxpr: Jaxpr) -> set[Var]:
    """Return the values from which reductions are computed; loops over their rows are not split at boundaries of concatenated parts.

    The set is empty if the program does not concatenate rows."""
    inputs: set[Var] = set()
    if not any(map(joins_rows, jaxpr.eqns)):
        return inputs
    for eqn in reversed(jaxpr.eqns):
        kind = lowering_kind(eqn)
        if kind is LoweringKind.REDUCE or (
            kind is LoweringKind.PULL and not inputs.isdisjoint(eqn.outvars)
        ):
            inputs.update(a for a in eqn.invars if type(a) is not Literal)
    return inputs
