"""The fusion graph: at which depth each value can be computed, what a kernel inlines, and which values must be in memory.

In:   a simplified jaxpr, and the rules that decide what is inlined.
Out:  `FusionGraph`.

The *depth* of a value is the number of kernels that must run before a kernel with all its producers inlined can compute it. A
kernel loads values of smaller depth and inlines those of its own. A *root* may have a buffer: it is needed in memory, or it is
expensive and used more than once. Consumers of the root's depth inline it, deeper ones load it, and a root that nothing loads is
not stored. What is cheap to compute from roots is not a root.

A reduction opens a *reduction domain* (shape S, reduced dims). Consumers that index its result by row stay in the kernel, as do
values of shape S computed from it; any other access needs the value in memory, one depth further down. A reduction over the rows
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
from weft._engine.compiler.fusion.rounding import rounded_values
from weft._engine.compiler.fusion.window_analysis import windows
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: a value of this cost that is used twice is worth a buffer
EXPENSIVE = 12
#: most cost of a value that is padded between its elements and computed where it is read
MOST_SPREAD = 256
#: equations inlined into one another
LONGEST_CHAIN = 48


WHOLE = "whole"  # the alignment of a value that has the shape of its reduction domain,
RESHAPED = "reshaped"  # the same number of elements in another shape,
COLUMN_REDUCED = "column reduced"  # or is a sum over the rows
#: one of the names above, or for each dim of a value the dim of the domain that it is
Alignment = str | tuple[int | None, ...]
_MOST_COST = 1 << 30


class Use(NamedTuple):
    """An operand that an equation reads, as rules of fusion see it. `view`: how the equation sees it, if it only moves elements;
    `pointwise`: whether it reads the element at its own position; `alignment`: how the result is then aligned with the operand's reduction
    domain; `in_domain`: whether any operand has one; `dilated_cost`: that of the operands inlined before."""

    graph: "FusionGraph"
    eqn: Eqn
    operand: Var
    view: View | None
    pointwise: bool
    alignment: Alignment | None
    in_domain: bool
    dilated_cost: int


@record
class FusionRule:
    """A decision about fusion. Of a list of rules the first that `applies` decides, by what `fuses` is or says; `why` is the reason."""

    name: str
    why: str
    applies: Callable[[Any], bool]
    fuses: bool | Callable[[Any], bool]


def decide(rules: Sequence[FusionRule], candidate: object) -> bool:
    """What the first rule that applies to a candidate says."""
    for rule in rules:
        if rule.applies(candidate):
            fuses = rule.fuses
            return fuses if fuses is True or fuses is False else fuses(candidate)
    raise ValueError(f"no rule of fusion applies to {candidate}")


@record(frozen=False)
class ComputeCost:
    """What it takes to compute a value in a kernel."""

    cost: int  # from values that are certainly in memory
    recompute_cost: int  # from roots, were they in memory
    inlined: int = 1  # the longest chain of equations inlined into one another
    dilation: int = 1  # results for which an unrolled iteration has code of its own
    dilated_cost: int = 0  # of operands that are padded between their elements

    def load(self) -> None:
        """Count an operand in memory."""
        self.cost += 1
        self.recompute_cost += 1

    def inline(self, operand: ComputeCost) -> None:
        """Count an operand that the kernel computes."""
        self.cost = min(self.cost + operand.cost, _MOST_COST)
        self.recompute_cost += operand.recompute_cost
        self.inlined = max(self.inlined, operand.inlined + 1)
        self.dilation = max(self.dilation, operand.dilation)
        self.dilated_cost += operand.dilated_cost

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
        self.demanded: dict[
            Var, None
        ] = {}  # what must be in memory, in the order of demand, the same in every process
        self.non_fusible: list[tuple[int, Eqn]] = []
        self.non_fusible_outs: dict[Var, Eqn] = {}
        self.uses: dict[Var, int] = {}
        self.rounded = rounded_values(jaxpr)
        self.stored: dict[Var, None] = {}
        self._resolved: dict[Var, tuple[Var, View | None]] = {}
        self._code_sizes: dict[Var, int] = {}
        for var in (*jaxpr.constvars, *jaxpr.invars):
            self.depth[var] = -1
        for eqn in jaxpr.eqns:
            for atom in dict.fromkeys(eqn.invars):
                if type(atom) is not Literal:
                    self.uses[atom] = self.uses.get(atom, 0) + 1
        self.materialized = _materialized(jaxpr)
        self.reduction_inputs = _reduction_inputs(jaxpr)
        self.windows = windows(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            self._visit(eqn, number)
        for atom in jaxpr.outvars:
            self.demand(atom)

    # ---- the forward pass

    def computed(self, atom: Atom) -> TypeGuard[Var]:
        """Whether a kernel could inline this value."""
        return type(atom) is not Literal and atom in self.producer

    def _visit(self, eqn: Eqn, number: int) -> None:
        kind = lowering_kind(eqn)
        for var in eqn.outvars:
            self.order[var] = number
        if kind is LoweringKind.PULL:
            self._pull(eqn)
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
        """A scatter of one number knows it: a literal of the updates' type, which its kernels read nowhere."""
        updates = eqn.invars[2]
        made = None if type(updates) is Literal else self.producer.get(updates)
        if made is None or moves(made) != "repeat":
            return eqn
        number = made.invars[0]
        if type(number) is not Literal:
            return eqn
        return eqn.replace(invars=(*eqn.invars[:2], Literal(number.val, updates.aval)))

    def _pull(self, eqn: Eqn) -> None:
        view, pointwise = view_of(eqn), isinstance(eqn.primitive, ElementwiseOp)
        costs = ComputeCost(eqn_cost(eqn), eqn_cost(eqn))
        depth, domain, alignment = 0, None, None
        operands = [atom for atom in eqn.invars if type(atom) is not Literal]
        in_domain = any(atom in self.domain for atom in operands)
        for atom in operands:
            if atom in self.producer:
                its_domain = self.domain.get(atom)
                its_alignment = self._aligned(eqn, atom, view, pointwise)
                if domain is not None and (domain, alignment) != (its_domain, its_alignment):
                    its_alignment = None
                use = Use(
                    self, eqn, atom, view, pointwise, its_alignment, in_domain, costs.dilated_cost
                )
                if decide(self.rules, use):
                    if its_domain is not None:
                        domain, alignment = its_domain, its_alignment
                    depth = max(depth, self.depth[atom])
                    costs.inline(self.costs[atom])
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
        """Enter the results of an equation; expensive ones that are used again become roots."""
        view = view_of(eqn)
        for var in eqn.outvars:
            self.producer[var], self.depth[var], self.costs[var] = eqn, depth, costs.copy()
            if domain is not None and alignment is not None:
                self.domain[var], self.alignment[var] = domain, alignment
            again = self.uses.get(var, 0) > 1 and alignment != RESHAPED
            if again and costs.recompute_cost >= EXPENSIVE:
                self.roots.add(var if view is None else self._computed_shape(var))
                self.costs[var].recompute_cost = 1

    def _computed_shape(self, var: Var) -> Var:
        """The computed value that `var` only gives another shape, or itself: one of them in memory is enough for the readers of both."""
        base, view = self.resolve(var)
        same = (
            view is not None
            and base in self.producer
            and base.aval.size == var.aval.size
            and is_dense(view, var.aval.shape)
        )
        return base if same else var

    def _sink_reductions(self, eqn: Eqn, depth: int, domain: Domain) -> None:
        """Reductions over the same domain that only `eqn` reads run in its kernel, which passes over the rows anyway, though they could
        run before."""
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
                if self.computed(source) and (source in self.roots or self.depth[source] > 0):
                    continue
            else:
                stack.extend(a for a in maker.invars if type(a) is not Literal)
            self.depth[atom] = depth

    def _aligned(self, eqn: Eqn, atom: Var, view: View | None, pointwise: bool) -> Alignment | None:
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
        """The cost of a value where everything is computed once; roughly, where it is above the model's `most_spread`."""
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

    def code_size(self, var: Var) -> int:
        """The cost of the code that computes a value with all that is inlined: once for each position that it reads an operand at."""
        if var not in self._code_sizes:
            total, region, stack = 0, {var}, [var]
            while stack:
                eqn = self.producer[stack.pop()]
                total += eqn_cost(eqn)
                for atom in eqn.invars:
                    if not self.computed(atom) or atom in self.demanded:
                        continue
                    if not isinstance(eqn.primitive, ElementwiseOp):
                        total += self.code_size(atom)
                    elif atom not in region:
                        region.add(atom)
                        stack.append(atom)
            self._code_sizes[var] = total
        return self._code_sizes[var]

    def _reduce(self, eqn: Eqn) -> None:
        (atom,), out = eqn.invars, eqn.outvars[0]
        self.producer[out] = eqn
        self.roots.add(out)
        sums = self._column_reduction(eqn, atom)
        if sums is not None:
            source = sums.source
            self.add_column_reduction(out, sums, self.domain[source])
            self.depth[out] = self.depth[source]
            self.costs[out] = ComputeCost(self.costs[source].cost + 20, 1)
            return
        shape, axes = atom.aval.shape, reduced_dims(eqn)
        domain = (shape, axes)
        depth, costs = 0, ComputeCost(20, 1)
        if self.computed(atom):
            alignment = (
                WHOLE if self.domain.get(atom) == domain and self.alignment[atom] == WHOLE else None
            )
            if decide(self.rules, Use(self, eqn, atom, None, False, alignment, True, 0)):
                operand = self.costs[atom]
                depth = self.depth[atom]
                costs = ComputeCost(20 + operand.cost, 1, operand.inlined + 1)
            else:
                depth = self.demand(atom) + 1
        elif type(atom) is not Literal:
            depth = self.depth[atom] + 1
        self.depth[out], self.costs[out], self.domain[out] = depth, costs, domain
        self.alignment[out] = tuple(d for d in range(len(shape)) if d not in axes)

    def _column_reduction(self, eqn: Eqn, atom: Atom) -> ColumnReduction | None:
        """The reduction as a sum over the rows of the domain of its operand."""
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
        """Let a kernel over the rows of `domain` make `out`."""
        self.column_reductions[out] = sums
        self.domain[out], self.alignment[out] = domain, COLUMN_REDUCED
        self.demanded[out] = None

    # ---- memory demands

    def demand(self, atom: Atom) -> int:
        """The value must be in memory, dense; gives the depth of its kernel."""
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
        """The value must be in memory under some strides (a matmul's operand, the updates of a scatter)."""
        if type(atom) is Literal:
            return -1
        base, _ = self.resolve(atom)
        return self.demand(base)

    def resolve(self, var: Var) -> tuple[Var, View | None]:
        """The value that `var` is only a view of, and the view; (var, None) if it is computed."""
        found = self._resolved.get(var)
        if found is None:
            found = self._resolved[var] = self._resolve(var)
        return found

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
            else view.over(inner)
        )
        return (source, view) if joined is None else (base, joined)

    def loads(self, atom: Var, depth: int) -> bool:
        """Whether a kernel of `depth` reads this value from memory."""
        return atom not in self.producer or (atom in self.roots and self.depth[atom] < depth)

    def memory_of(self, var: Var) -> Var:
        """The stored value whose buffer an equation reads when it reads `var`."""
        if var not in self.producer or var in self.stored:
            return var
        base = self.resolve(var)[0]
        return base if base is var else self.memory_of(base)


def _dims_in_domain(
    alignment: tuple[int | None, ...], view: View, shape: tuple[int, ...], whole: tuple[int, ...]
) -> list[int | None] | None:
    """Return for each dim of a view the one of the domain that it is; None if it shows other elements."""
    dims: list[int | None] = [None] * len(shape)
    for dim, index in zip(alignment, view.maps):
        if dim is None:
            continue
        match index:
            # Only part of a row would be read: a loop over all of it would write too much.
            case (0, ((d, 1),)) if shape[d] == whole[dim]:
                dims[d] = dim
            case _:
                return None
    return dims


def _alignment_of(
    dims: list[int | None], shape: tuple[int, ...], domain: Domain
) -> Alignment | None:
    """Return the alignment of a view with these dims of its reduction domain, if its kernel can compute it."""
    if shape == domain[0] and _has_own_dims(dims, domain):
        return WHOLE if may_follow(domain) else None
    every = all(t is not None or n == 1 for t, n in zip(dims, shape))
    return tuple(dims) if every and keeps_order(dims, domain) else None


def _has_own_dims(dims: list[int | None], domain: Domain) -> bool:
    """Return whether each dim is the same one of the domain, is reduced there, or has size 1."""
    shape, axes = domain
    return all(t == d or (t is None and (d in axes or shape[d] == 1)) for d, t in enumerate(dims))


def _materialized(jaxpr: Jaxpr) -> set[Var]:
    """Results, and values that equations without kernels of their own read: they are in memory whatever else reads them."""
    found = {a for a in jaxpr.outvars if type(a) is not Literal}
    for eqn in reversed(jaxpr.eqns):
        if lowering_kind(eqn) not in (LoweringKind.PULL, LoweringKind.REDUCE) or (
            eqn.outvars[0] in found and before_reshape(eqn.outvars[0], eqn) is not eqn.outvars[0]
        ):
            found.update(a for a in eqn.invars if type(a) is not Literal)
    return found


def _reduction_inputs(jaxpr: Jaxpr) -> set[Var]:
    """Values that reductions are made of: passes over their rows, which are not cut where parts of a row were joined. Empty where no
    rows are joined."""
    found: set[Var] = set()
    if not any(map(joins_rows, jaxpr.eqns)):
        return found
    for eqn in reversed(jaxpr.eqns):
        kind = lowering_kind(eqn)
        if kind is LoweringKind.REDUCE or (
            kind is LoweringKind.PULL and not found.isdisjoint(eqn.outvars)
        ):
            found.update(a for a in eqn.invars if type(a) is not Literal)
    return found
