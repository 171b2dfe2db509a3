"""Propagation: given layouts of some variables determine a layout of every variable.

In:   a global Jaxpr (with the bodies of its loops and branches), sizes of the mesh axes, given specs of some inputs and
      outputs; `sharding_constraint` equations give specs of intermediates.
Out:  a target spec for every variable: per dim the axes that should split it. The partitioner may compute an equation
      under another layout where that is cheaper, and reshards.
Laws: a given spec is never changed; a spec only grows; an axis splits at most one dim of a value; arguments and results of
      the program are split only by axes whose sizes divide them, other values also if little padding is needed.
How:  specs are converted to axes per factor of each equation's rule, and back to specs of the other operands and results,
      forward and backward, to a fixpoint: first through elementwise and layout ops, then through all ops, and finally
      from values to their broadcasts and parts. If operands conflict about a factor, or use one axis for two factors,
      factors of the result have precedence over contracted ones; then `ConflictRule` decides, and earlier operands have
      precedence over later ones.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import ModuleType
from typing import Any, Protocol

from weft._engine.core.primitive import (
    BarrierOp,
    ConstraintOp,
    CustomOp,
    ElementwiseOp,
    LayoutOp,
    RegionOp,
    has_rule,
)
from weft._engine.ir.factors import (
    FactorAxes,
    FactorRule,
    OperandFactors,
    axes_of_factors,
    dims_of_factors,
    joint_dims,
)
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.rewrite import params_key
from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.partition.padding import worth_splitting
from weft._engine.partition.propagation.reach import reach_of_dims
from weft._engine.partition.reshard import is_even
from weft._engine.util.record import field, record

#: ops through which specs pass first, because results have the layouts of operands
PASS_THROUGH = (ElementwiseOp, LayoutOp, ConstraintOp)


class ConflictRule(Enum):
    """The rule for conflicts between layouts that remain after results have had precedence over contracted dims."""

    BY_SIZE = auto()  # the layout of the larger value has precedence; inner programs come first
    BY_REACH = auto()  # the layout of dims with the larger reach (`reach`) has precedence; outer programs come first


def factor_rule(eqn: Eqn) -> FactorRule | None:
    """Return the factor rule of an equation; None if its primitive has none, so that specs do not pass through it."""
    if not has_rule(eqn.primitive.factors):
        return None
    key = (eqn.primitive, tuple(a.aval for a in eqn.invars), tuple(v.aval for v in eqn.outvars))
    rule = eqn.primitive.factors(key[1], key[2], **eqn.params)
    if rule is not None and any(mark != "offset" for mark in rule.special.values()):
        _load_splits()
    return rule


@functools.cache
def _load_splits() -> tuple[ModuleType, ...]:
    """Load the modules that fill `SPLIT_RULES`; programs without special factors do not need them."""
    from weft._engine.partition.rules import counters, indexing, windows

    return counters, indexing, windows


@record(frozen=False)
class Propagation:
    """The state of propagation: the target specs so far, and the given ones among them."""

    sizes: Mapping[Any, int]
    dims: dict[Var, list[DimSpec]] = field(default_factory=dict)
    fixed: set[Var] = field(default_factory=set)  # variables whose spec is given
    # axes whose dims the variable's type determines
    explicit: dict[Var, frozenset[Any]] = field(default_factory=dict)
    # axes that should be refined, and the sizes of their major parts
    cuts: set[tuple[Any, int]] = field(default_factory=set)
    # bytes of the largest value from which the spec comes
    carried: dict[Atom, int] = field(default_factory=dict)
    # variables changed since the last transfer began
    changed: set[Var] = field(default_factory=set)
    rules: dict[Eqn, FactorRule | None] = field(default_factory=dict)
    # rules of equal equations, by op, parameters and types
    shared: dict[tuple[Any, ...], FactorRule | None] = field(default_factory=dict)
    facts: dict[tuple[Any, ...], _RuleFacts] = field(default_factory=dict)
    # axes over which a variable is, or should be, a partial sum
    terms: dict[Var, frozenset[Any]] = field(default_factory=dict)
    boundary: set[Var] = field(default_factory=set)  # arguments and results of the program
    meshes: Any = None  # the mesh of the axes, and the coarser given mesh
    last_round: bool = False  # True if specs pass from values to their broadcasts and parts
    settling: ConflictRule = ConflictRule.BY_SIZE
    # the reach of each dim, if it decides conflicts
    reach: dict[Var, tuple[int, ...]] = field(default_factory=dict)
    conflicts: bool = False  # True if any specs conflicted
    slices_split: bool = False  # True if a loop or an equation takes slices along a split dim
    # True if the axes of a sliced dim may split other dims of the slices
    splits_slices: bool = False

    def rule(self, eqn: Eqn) -> FactorRule | None:
        """Return the factor rule of an equation; equations with equal ops, parameters and types have one rule object."""
        if eqn not in self.rules:
            params = params_key(eqn.params)
            if params is None:
                self.rules[eqn] = factor_rule(eqn)
            else:
                key = (
                    eqn.primitive,
                    params,
                    *[a.aval for a in eqn.invars],
                    None,
                    *[v.aval for v in eqn.outvars],
                )
                if key not in self.shared:
                    self.shared[key] = factor_rule(eqn)
                self.rules[eqn] = self.shared[key]
        return self.rules[eqn]

    def spec(self, atom: Any) -> Spec:
        """Return the axes per dim of a variable; no axes for literals."""
        if type(atom) is Literal:
            return ((),) * atom.aval.ndim
        dims = self.dims.get(atom)
        return tuple(dims) if dims is not None else ((),) * atom.aval.ndim

    def fix(self, var: Any, spec: Spec) -> None:
        """Set the spec of a variable and make it unchangeable."""
        if type(var) is not Literal:
            self.dims[var] = list(spec)
            self.fixed.add(var)
            self.carried[var] = var.aval.nbytes

    def fix_explicit(self, var: Var, spec: Spec, axes: frozenset[Any]) -> None:
        """Set the dims of a variable that the explicit `axes` split; other axes may be added."""
        self.dims[var] = list(spec)
        self.explicit[var] = axes
        self.carried[var] = var.aval.nbytes

    def conflict_rank(self, var: Var, factors: OperandFactors, f: int) -> tuple[int, ...]:
        """Return the rank of `var` in conflicts about factor `f`; the greatest has precedence, the earlier of equal ranks."""
        if self.settling is ConflictRule.BY_SIZE:
            return (self.carried[var],)
        return max(
            reach for reach, of_dim in zip(self.reach[var], factors) if f in of_dim
        ), var.aval.nbytes

    def is_fixed(self, atom: Any) -> bool:
        """Return whether the layout of a variable is given, completely or by explicit axes."""
        return atom in self.fixed or atom in self.explicit

    def extend(self, atom: Any, spec: Spec, carried: int = 0) -> None:
        """Extend the spec of a variable by compatible axes of `spec`, which comes from a value of `carried` bytes."""
        if type(atom) is Literal or atom in self.fixed or not atom.aval.ndim:
            return
        mine = self.dims.setdefault(atom, [()] * atom.aval.ndim)
        closed = self.explicit.get(atom, ())
        for d, axes in enumerate(spec):
            have = mine[d]
            if len(axes) <= len(have) or axes[: len(have)] != have:
                continue
            for a in axes[len(have) :]:
                longer, size = (*mine[d], a), atom.aval.shape[d]
                fits = (
                    is_even(size, longer, self.sizes)
                    if atom in self.boundary
                    else worth_splitting(size, longer, self.sizes)
                )
                if a in closed or any(a in other for other in mine) or not fits:
                    break
                mine[d] = (*mine[d], a)
                self.changed.add(atom)
                self.carried[atom] = max(carried, self.carried.get(atom, 0), atom.aval.nbytes)

    def of_slices(self, spec: Spec, sliced: Collection[int], shape: Sequence[int]) -> Spec:
        """Return the layout of slices with dims `shape`, taken along the dims `sliced` of a value that `spec` splits.

        With `splits_slices`, the axes of these dims split a divisible dim of the slices: the same dim, a split dim, or the first. They
        become its major axes, as before a reshape that split off the sliced dims.
        """
        self.slices_split |= any(spec[d] for d in sliced)
        if not self.splits_slices:
            return spec
        dims = [() if d in sliced else axes for d, axes in enumerate(spec)]
        for d in (d for d in sliced if spec[d]):
            for t in sorted(range(len(dims)), key=lambda t: (t != d, not dims[t])):
                if is_even(shape[t], (*spec[d], *dims[t]), self.sizes):
                    dims[t] = (*spec[d], *dims[t])
                    break
        return tuple(dims)


def propagate(
    jaxpr: Jaxpr,
    sizes: Mapping[Any, int],
    in_specs: Sequence[Spec | None],
    out_specs: Sequence[Spec | None],
    constraint_spec: Any,
    type_spec: Any,
    meshes: Any = None,
    layouts: Iterable[tuple[Var, Spec]] = (),
    settling: ConflictRule = ConflictRule.BY_SIZE,
    splits_slices: bool = False,
    like: Propagation | None = None,
) -> Propagation:
    """Return a spec for every variable of `jaxpr` and of its inner programs.

    `constraint_spec(eqn)` returns, per dim, the axes that a constraint requests, None for dims left open. `type_spec(aval)` returns the
    layout of an explicitly sharded type, its explicit axes, and its unreduced axes. `layouts` has other specs to try for some
    variables. `settling` is the rule for conflicts. With `splits_slices`, axes of a dim along which slices are taken split another
    dim of the slices. `like` is an earlier propagation of `jaxpr`, whose rules are reused.
    """
    state = Propagation(sizes, meshes=meshes, settling=settling, splits_slices=splits_slices)
    if like is not None:
        state.rules, state.shared = like.rules, like.shared
    state.boundary.update(a for a in (*jaxpr.invars, *jaxpr.outvars) if type(a) is Var)
    _fix_types(state, jaxpr, type_spec)
    for var, spec in zip(jaxpr.invars, in_specs):
        if spec is not None:
            state.fix(var, spec)
    sweep = list(_sweep(jaxpr, enter=settling is ConflictRule.BY_REACH))
    eqns = list(dict.fromkeys(sweep))
    if settling is ConflictRule.BY_REACH:
        state.reach = reach_of_dims(eqns, state.rule, region_links)
    if state.terms:
        _trace_terms(state, eqns)
    _fix_constraints(state, eqns, constraint_spec)
    for var, spec in layouts:
        if not state.is_fixed(var):
            state.fix(var, spec)
    for atom, spec in zip(jaxpr.outvars, out_specs):
        if spec is not None:
            state.extend(atom, spec)
    _settle(state, eqns, sweep)
    return state


def _fix_types(state: Propagation, jaxpr: Jaxpr, type_spec: Any) -> None:
    """Fix the layouts of variables with explicitly sharded types."""
    for var in _all_variables(jaxpr):
        if var.aval.explicit is not None:
            spec, axes, terms = type_spec(var.aval)
            state.fix_explicit(var, spec, axes)
            if terms:
                state.terms[var] = terms


def _fix_constraints(state: Propagation, eqns: Sequence[Eqn], constraint_spec: Any) -> None:
    """Fix the layouts that constraints request, and mark the boundary values of per-device programs."""
    for eqn in eqns:
        if eqn.primitive.per_device:  # its values are blocks of the operands and results
            body = eqn.params["jaxpr"]
            state.boundary.update(
                a for a in (*body.invars, *body.outvars) if type(a) is not Literal
            )
        if isinstance(eqn.primitive, ConstraintOp):
            _fix_constraint(state, eqn, constraint_spec(eqn))


def _settle(state: Propagation, eqns: Sequence[Eqn], sweep: Sequence[Eqn]) -> None:
    """Run the transfers of equations to a fixpoint: first of pass-through ops, then of all, finally for broadcasts and parts."""
    transfers_by_eqn = {
        eqn: transfer for eqn in eqns if (transfer := _transfer(state, eqn)) is not None
    }
    transfers = [transfers_by_eqn[eqn] for eqn in sweep if eqn in transfers_by_eqn]
    simple = {
        transfer
        for eqn, transfer in transfers_by_eqn.items()
        if isinstance(eqn.primitive, PASS_THROUGH)
    }
    _run(state, [t for t in transfers if t in simple], simple)
    _run(state, transfers, [t for t in transfers if t not in simple])
    state.last_round = True
    last = [t for t in transfers if type(t) is _FactorTransfer and t.has_last_round]
    _run(state, transfers, last)


def _trace_terms(state: Propagation, eqns: Sequence[Eqn]) -> None:
    """Propagate required unreduced axes from a value without other readers to the operands of its equation."""
    uses = Counter(a for eqn in eqns for a in eqn.invars if type(a) is not Literal)
    for eqn in reversed(eqns):
        terms = (
            state.terms.get(eqn.outvars[0])
            if len(eqn.outvars) == 1 and len(eqn.invars) == 1
            else None
        )
        if not terms:
            continue
        atom = eqn.invars[0]
        if type(atom) is Literal or atom.aval.explicit is not None or uses[atom] != 1:
            continue
        rule = state.rule(eqn)
        if rule is not None and rule.linear_ins == (0,):
            state.terms[atom] = terms


def _run(
    state: Propagation, transfers: list[SpecTransfer], first: Collection[SpecTransfer]
) -> None:
    """Sweep forward and backward over transfers whose variables changed, beginning with `first`, until nothing changes."""
    users: dict[Var, list[int]] = {}
    for i, transfer in enumerate(transfers):
        for var in transfer.variables:
            users.setdefault(var, []).append(i)
    begin = set(first)
    waiting = {i for i, transfer in enumerate(transfers) if transfer in begin}
    order = range(len(transfers))
    while waiting:
        for i in order:
            if i in waiting:
                waiting.discard(i)
                state.changed.clear()
                transfers[i](state)
                for var in state.changed:
                    waiting.update(users.get(var, ()))
        order = order[::-1]


def _fix_constraint(state: Propagation, eqn: Eqn, axes_of_dims: Sequence[DimSpec | None]) -> None:
    (out,) = eqn.outvars
    spec = tuple(axes or () for axes in axes_of_dims)
    if any(axes is None for axes in axes_of_dims):
        state.extend(out, spec)
    else:
        state.fix(out, spec)


def _sweep(jaxpr: Jaxpr, enter: bool) -> Iterable[Eqn]:
    """Yield the equations of a program and of its inner programs in the order of a sweep.

    An equation with inner programs follows their equations. With `enter` it also precedes them, so that its operands' specs reach
    them in the same sweep.
    """
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive, RegionOp):
            if enter:
                yield eqn
            for _, inner in subjaxprs(eqn.params):
                yield from _sweep(inner, enter)
        yield eqn


def _all_variables(jaxpr: Jaxpr) -> Iterable[Var]:
    """Yield the variables of a program and of its inner programs."""
    yield from jaxpr.invars
    for eqn in jaxpr.eqns:
        yield from eqn.outvars
        if isinstance(eqn.primitive, RegionOp):
            for _, inner in subjaxprs(eqn.params):
                yield from _all_variables(inner)


# --- equations --------------------------------------------------------------------------------------------------------


def _transfer(state: Propagation, eqn: Eqn) -> SpecTransfer | None:
    """Return the transfer of specs through one equation, forward and backward; None if specs do not pass."""
    if eqn.primitive.per_device:
        return _ShardMapTransfer(eqn)
    if isinstance(eqn.primitive, (RegionOp, BarrierOp)):
        return _LinkTransfer(eqn)
    rule = state.rule(eqn)
    if (
        rule is None
        and isinstance(eqn.primitive, CustomOp)
        and eqn.params["rule"].infer is not None
    ):
        from weft._engine.partition.propagation.layout_rule import (
            InferTransfer,  # rarely needed
        )

        return InferTransfer(eqn)
    return None if rule is None else _FactorTransfer(eqn, rule, state.facts)


class _RuleFacts:
    """Facts shared by equations with one factor rule and the same literal operands, and cached transfers for values with equal layouts,
    as in equal layers."""

    __slots__ = ("closed", "in_result", "joint", "parts", "sliced", "broadcasts", "transfers")

    def __init__(self, eqn: Eqn, rule: FactorRule):
        self.closed = frozenset(f for f, mark in rule.special.items() if mark == "replicate")
        self.in_result = frozenset(f for out in rule.outs for dim in out for f in dim)
        self.joint = joint_dims(rule)
        self.parts = list(_parts(eqn, rule))
        self.sliced = _sliced_dims(eqn)
        self.broadcasts = isinstance(eqn.primitive, LayoutOp) and eqn.outvars[0].aval.size > max(
            (a.aval.size for a in eqn.invars), default=0
        )
        self.transfers: dict[tuple[Any, ...], tuple[list[tuple[int, Spec]], int]] = {}


class _FactorTransfer:
    """The transfer of specs through an equation by its factor rule."""

    __slots__ = ("rule", "eqn", "values", "variables", "facts")

    def __init__(self, eqn: Eqn, rule: FactorRule, facts: dict[tuple[Any, ...], _RuleFacts]):
        self.rule, self.eqn = rule, eqn
        values = [*zip(eqn.invars, rule.ins), *zip(eqn.outvars, rule.outs)]
        self.values = [
            (a, factors) for a, factors in values if type(a) is not Literal and a.aval.ndim
        ]
        self.variables = [a for a, _ in self.values]
        key = (id(rule), *[type(a) is Literal for a in eqn.invars])
        known = facts.get(key)
        self.facts = known if known is not None else facts.setdefault(key, _RuleFacts(eqn, rule))

    @property
    def has_last_round(self) -> bool:
        """True if the equation has broadcasts or parts, which transfer specs in the last round."""
        return self.facts.broadcasts or bool(self.facts.parts)

    def __call__(self, state: Propagation) -> None:
        if self.facts.sliced and self.eqn.invars[0] in state.dims:
            (source, *_), (result,) = self.eqn.invars, self.eqn.outvars
            spec = state.of_slices(state.spec(source), self.facts.sliced, result.aval.shape)
            if state.splits_slices:
                state.extend(result, spec, state.carried.get(source, 0))
        layouts = [tuple(state.dims.get(a, ())) for a in self.variables]
        determined_by = state.reach or state.carried
        key = (state.last_round, *layouts, *[determined_by.get(a) for a in self.variables])
        cached = self.facts.transfers.get(key)
        if cached is None:
            agreed, carried = self.agree(state)
            specs = (
                [
                    dims_of_factors(factors, agreed, self.rule, state.sizes)
                    for _, factors in self.values
                ]
                if agreed
                else []
            )
            cached = (
                [(i, spec) for i, (spec, dims) in enumerate(zip(specs, layouts)) if spec != dims],
                carried,
            )
            self.facts.transfers[key] = cached
        for i, spec in cached[0]:
            state.extend(self.variables[i], spec, cached[1])
        if state.last_round:
            for operand, from_dim, result, dim in self.facts.parts:
                source, target = self.eqn.invars[operand], self.eqn.outvars[result]
                dims: list[DimSpec] = [()] * target.aval.ndim
                dims[dim] = state.spec(source)[from_dim]
                state.extend(target, tuple(dims), state.carried.get(source, 0))

    def agree(self, state: Propagation) -> tuple[FactorAxes, int]:
        """Return the axes per factor after conflicts are resolved by rank, and the bytes of the largest value from which they come."""
        best = self.best(state)
        used_axes: set[Any] = set()
        agreed: FactorAxes = {}
        for f, (_, axes, _) in sorted(best.items(), key=lambda item: item[1][0], reverse=True):
            own_axes: list[Any] = []
            joint = any(f in dim for dim in self.facts.joint)
            for a in axes:
                state.conflicts |= a in used_axes
                if a in used_axes or (
                    joint and not is_even(self.rule.sizes[f], (*own_axes, a), state.sizes)
                ):
                    break
                own_axes.append(a)
            if own_axes:
                agreed[f] = tuple(own_axes)
                used_axes.update(own_axes)
        return agreed, max((best[f][2] for f in agreed), default=0)

    def best(self, state: Propagation) -> dict[int, tuple[tuple[Any, ...], DimSpec, int]]:
        """Return (rank, axes, bytes of the largest value from which they come) of the axes of highest rank, by factor."""
        facts = self.facts
        best: dict[int, tuple[tuple[Any, ...], DimSpec, int]] = {}
        for atom, factors in self.values:
            dims = state.dims.get(atom)
            waits = facts.broadcasts and not state.last_round and atom in self.eqn.invars
            if dims is None or not any(dims) or waits:
                continue
            axes, cuts = axes_of_factors(factors, dims, self.rule, state.sizes)
            state.cuts |= cuts
            for f in axes.keys() - facts.closed:
                rank = f in facts.in_result, state.conflict_rank(atom, factors, f)
                candidate = rank, axes[f], state.carried[atom]
                best[f] = _better(state, best[f], candidate) if f in best else candidate
        return best


def _better(
    state: Propagation, have: tuple[Any, ...], candidate: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the candidate for a factor that has precedence; longer axes extend shorter ones."""
    if _extends(candidate[1], have[1]):
        return (max(candidate[0], have[0]), *candidate[1:])
    if _extends(have[1], candidate[1]):
        return have
    state.conflicts = True
    return candidate if candidate[0] > have[0] else have


def _parts(eqn: Eqn, rule: FactorRule) -> Iterable[tuple[int, int, int, int]]:
    """Yield (operand, its dim, result, its dim) where the result's dim is a large part or an extension of the operand's dim.

    They share no factor, but a result that is split like the operand keeps later work parallel.
    """
    for n, (atom, ins) in enumerate(zip(eqn.invars, rule.ins)):
        for m, (var, outs) in enumerate(zip(eqn.outvars, rule.outs)):
            if type(atom) is Literal:
                continue
            pairs = [
                (i, o)
                for i, f in enumerate(ins)
                for o, g in enumerate(outs)
                if _runs_along(rule, f, g, i == o)
            ]
            yield from (
                (n, i, m, o) for i, o in pairs if 4 * var.aval.shape[o] >= atom.aval.shape[i]
            )


def _sliced_dims(eqn: Eqn) -> list[int]:
    """Return the dims along which an equation takes at most half of its first operand."""
    if not eqn.primitive.takes_slice:
        return []
    pairs = zip(eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape)
    return [d for d, (size, taken) in enumerate(pairs) if 0 < 2 * taken <= size]


def _runs_along(rule: FactorRule, f: tuple[Any, ...], g: tuple[Any, ...], same_place: bool) -> bool:
    """Return whether a result's dim with factor `g` consists of parts of an operand's dim with factor `f`, in order."""
    if f == g or len(f) != 1 or len(g) != 1:
        return False
    grouped = any(group[0] == g[0] and f[0] in group for group in rule.groups)
    return grouped or (same_place and {rule.special.get(f[0]), rule.special.get(g[0])} == {"index"})


def _extends(longer: tuple[Any, ...], shorter: tuple[Any, ...]) -> bool:
    return longer[: len(shorter)] == shorter


# --- programs of one device -------------------------------------------------------------------------------------------


class _ShardMapTransfer:
    """The transfer of specs into and out of a shard_map, whose blocks may be split further by axes that are not manual."""

    def __init__(self, eqn: Eqn):
        p = eqn.params
        pairs = [
            *zip(eqn.invars, p["jaxpr"].invars, p["in_specs"]),
            *zip(eqn.outvars, p["jaxpr"].outvars, p["out_specs"]),
        ]
        self.links = [(outer, inner, spec.dims(outer.aval.ndim)) for outer, inner, spec in pairs]
        self.manual = p["manual_axes"]
        self.variables = [
            a for outer, inner, _ in self.links for a in (outer, inner) if type(a) is not Literal
        ]

    def __call__(self, state: Propagation) -> None:
        for outer, inner, dims in self.links:
            outer_axes = tuple(
                free_axes(mine, have, self.manual) for mine, have in zip(dims, state.spec(outer))
            )
            state.extend(inner, outer_axes, state.carried.get(outer, 0))
            whole = tuple((*mine, *free) for mine, free in zip(dims, state.spec(inner)))
            state.extend(outer, whole, state.carried.get(inner, 0))


def free_axes(mine: DimSpec, have: DimSpec, manual: Sequence[Any]) -> DimSpec:
    """Return the axes of `have`, which split a dim, that may further split its blocks under the manual axes `mine`.

    >>> free_axes(("i",), ("i", "a"), "ij"), free_axes((), ("a", "j"), "ij")
    (('a',), ('a',))
    """
    extra = have[len(mine) :] if _extends(have, mine) else ()
    free = next((k for k, a in enumerate(extra) if a in manual), len(extra))
    return extra[:free]


# --- loops, branches and barriers -------------------------------------------------------------------------------------


class _LinkTransfer:
    """The transfer of specs between an op and its inner programs, or between the operands and results of a barrier: linked values have
    the same layout."""

    def __init__(self, eqn: Eqn):
        self.groups = region_links(eqn)
        self.variables = [a for group in self.groups for a, _ in group if type(a) is not Literal]

    def __call__(self, state: Propagation) -> None:
        for group in self.groups:
            for source, lead_source in group:
                shape = (*(1,) * lead_source, *source.aval.shape[lead_source:])
                spec = state.of_slices(state.spec(source), range(lead_source), shape)[lead_source:]
                if any(spec):
                    for target, lead in group:
                        if target is not source:
                            state.extend(
                                target, ((),) * lead + tuple(spec), state.carried.get(source, 0)
                            )


def region_links(eqn: Eqn) -> list[list[tuple[Any, int]]]:
    """Return groups of values, inside and outside of inner programs, that have the same layout; each with its number of leading
    loop dims."""
    if isinstance(eqn.primitive, BarrierOp):
        pairs = [[(a, 0), (v, 0)] for a, v in zip(eqn.invars, eqn.outvars)]
        return [[link for pair in pairs for link in pair]] if eqn.params.get("alike") else pairs
    links = eqn.primitive.links
    if links is not None:
        return links(eqn)
    inner = call_jaxpr(eqn)
    if inner is None:
        return []
    return [[(a, 0), (v, 0)] for a, v in zip(eqn.invars, inner.invars)] + [
        [(a, 0), (v, 0)] for a, v in zip(inner.outvars, eqn.outvars)
    ]


def call_jaxpr(eqn: Eqn) -> Jaxpr | None:
    """Return the program of an op that only calls it with its operands; None for other ops."""
    for value in eqn.params.values():
        if (
            isinstance(value, Jaxpr)
            and len(value.invars) == len(eqn.invars)
            and len(value.outvars) == len(eqn.outvars)
        ):
            return value
    return None


class SpecTransfer(Protocol):
    """A function that transfers specs through one equation."""

    @property
    def variables(self) -> Sequence[Var]: ...
    def __call__(self, state: Propagation) -> None: ...
