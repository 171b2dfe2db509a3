"""Which values get a buffer, and which equations share a kernel.

In:   a simplified jaxpr.
Out:  a `Graph`; `Graph.items()` lists kernels (`Group`) and other equations in order.

The *depth* of a value is the number of kernels that must run before a kernel with all its producers inlined can compute it. A
kernel loads values of smaller depth and inlines those of its own. A *root* may have a buffer: it is needed in memory, or it is
expensive and used more than once. Consumers of the root's depth inline it, deeper ones load it, and a root that nothing loads is
not stored. What is cheap to compute from roots is no root.

A reduction opens a *reduction domain* (shape S, reduced dims). Consumers that index its result by row stay in the kernel, as do
values of shape S computed from it; any other access needs the value in memory, one depth further down. A reduction over the rows
themselves (`compiler.fusion.column_reduction`) shares the pass but can be read by deeper kernels only.
"""

from __future__ import annotations

from weft.compiler.fusion.classify import (
    MOST_APART,
    LoweringKind,
    View,
    eqn_cost,
    is_dense,
    joins_rows,
    lowering_kind,
    rows_apart,
    view_of,
)
from weft.compiler.fusion.column_reduction import Sweep, sweep_of, unfolded
from weft.compiler.fusion.epilogue_fusion import attach_tails
from weft.compiler.fusion.groups import Group, groups_of
from weft.compiler.fusion.reduction_domain import SMALL_DOMAIN, Context, is_trailing, keeps_order, may_follow, reduced_dims, rides
from weft.compiler.fusion.window_analysis import WIDEST_WINDOW, windows
from weft.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft.ir.rewrite import params_key

FULL = "full"              # the tags of a value that has the shape of its row context,
FOLDED = "folded"          # the same number of elements in another shape,
SWEPT = "swept"            # or is a sum over the rows
EXPENSIVE = 12             # cost from which a value that is used twice is worth a buffer
MOST_SPREAD = 256          # cost up to which what is padded between its elements is computed where it is read,
MOST_TURN = 512            # and of all that is added up so
MOST_JOINED = 20           # cost up to which a part of a row that loops go over part by part is computed where it is read
LONGEST_CHAIN = 48         # equations inlined into one another
FEWEST_COLUMNS = 16        # from which what is computed once a row costs little


class Graph:
    """The fusion of one program body."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.producer: dict[Var, Eqn] = {}
        self.order: dict[Var, int] = {}
        self.depth: dict[Var, int] = {}
        self.context: dict[Var, Context] = {}
        self.tags: dict[Var, object] = {}
        self.cost: dict[Var, int] = {}              # of computing it from what lies in memory for certain,
        self.recompute_cost: dict[Var, int] = {}            # and from roots, were they in memory
        self.chain: dict[Var, int] = {}
        self.turn: dict[Var, int] = {}               # elements that are computed in ways of their own, where there are several,
        self.spread: dict[Var, int] = {}             # and the cost of what is padded between them
        self.swept: dict[Var, Sweep] = {}
        self.roots: set[Var] = set()
        self.needed: dict[Var, None] = {}            # in the order in which they were asked for, the same in every process
        self.hard: list[tuple[int, Eqn]] = []
        self.hard_outs: dict[Var, Eqn] = {}
        self.uses: dict[Var, int] = {}
        self.stored: dict[Var, None] = {}
        self._resolved: dict[Var, tuple[Var, View | None]] = {}
        for var in (*jaxpr.constvars, *jaxpr.invars):
            self.depth[var] = -1
        for eqn in jaxpr.eqns:
            for atom in dict.fromkeys(eqn.invars):
                if type(atom) is not Literal:
                    self.uses[atom] = self.uses.get(atom, 0) + 1
        self.wanted = _wanted(jaxpr)
        self.reduced = _reduced(jaxpr)
        self.windows = windows(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            self._visit(eqn, number)
        for atom in jaxpr.outvars:
            self.demand(atom)

    # ---- the forward pass

    def computed(self, atom: Atom) -> bool:
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
            for place, atom in enumerate(eqn.invars):
                strided = kind is LoweringKind.CONTRACT or (kind is LoweringKind.SCATTER and place == 2)
                depth = max(depth, (self._demand_strided(atom) if strided else self.demand(atom)) + 1)
            for var in eqn.outvars:
                self.depth[var] = depth
                self.hard_outs[var] = eqn
            self.hard.append((number, eqn))

    def _pull(self, eqn: Eqn) -> None:
        out = eqn.outvars[0]
        shape = out.aval.shape
        depth, cost, chain, turn, spread = 0, eqn_cost(eqn), 1, 1, 0
        recompute_cost = cost
        context, tags = None, None
        view = view_of(eqn)
        same_kind = eqn.primitive.kind == "elementwise" or (
            eqn.primitive.kind == "random" and all(a.aval.shape in (shape, ()) for a in eqn.invars))
        in_rows = any(type(atom) is not Literal and atom in self.context for atom in eqn.invars)
        for atom in eqn.invars:
            if type(atom) is Literal:
                continue
            if atom not in self.producer:
                depth = max(depth, self.depth[atom] + 1)
                cost, recompute_cost = cost + 1, recompute_cost + 1
                continue
            inline = self.chain[atom] < LONGEST_CHAIN
            its_context = self.context.get(atom)
            if inline and its_context is not None:
                its_tags = self._tags_through(eqn, atom, view, same_kind, its_context)
                if its_tags is None or (context is not None and (context, tags) != (its_context, its_tags)):
                    inline = False
                else:
                    context, tags = its_context, its_tags
            elif inline:
                inline = self._worth_inlining(eqn, atom, view, same_kind)
            if inline and spread + self.spread.get(atom, 0) <= MOST_TURN and not (in_rows and self._in_turns(atom)):
                depth = max(depth, self.depth[atom])
                cost += self.cost[atom]
                recompute_cost += self.recompute_cost[atom]
                chain, turn = max(chain, self.chain[atom] + 1), max(turn, self.turn.get(atom, 1))
                spread += self.spread.get(atom, 0)
            else:
                depth = max(depth, self.demand(atom) + 1)
                cost, recompute_cost = cost + 1, recompute_cost + 1
        apart = rows_apart(eqn)
        if apart > 1:
            turn, spread = turn * apart, spread + self._distinct(eqn.invars[0])
        if tags == FULL:
            self._lift(eqn, depth, context)
        for var in eqn.outvars:
            self.producer[var] = eqn
            self.depth[var], self.cost[var], self.chain[var] = depth, min(cost, 1 << 30), chain
            if context is not None:
                self.context[var], self.tags[var] = context, tags
            self.recompute_cost[var] = recompute_cost
            if turn > 1:
                self.turn[var], self.spread[var] = turn, spread
            if recompute_cost >= EXPENSIVE and self.uses.get(var, 0) > 1 and tags != FOLDED:
                self.roots.add(var if view is None else self._unshaped(var))
                self.recompute_cost[var] = 1

    def _unshaped(self, var: Var) -> Var:
        """The computed value that `var` only gives another shape, or itself: one of them in memory serves the readers of both."""
        base, view = self.resolve(var)
        same = view is not None and base in self.producer and base.aval.size == var.aval.size and is_dense(view, var.aval.shape)
        return base if same else var

    def _lift(self, eqn: Eqn, depth: int, context: Context) -> None:
        """Reductions of the same rows that only `eqn` reads run in its kernel, which goes over them anyway, though they could
        run before."""
        stack = [a for a in eqn.invars if type(a) is not Literal]
        while stack:
            atom = stack.pop()
            if self.context.get(atom) != context or self.depth[atom] >= depth or self.uses.get(atom) != 1 \
                    or atom in self.needed:
                continue
            maker = self.producer[atom]
            if lowering_kind(maker) is LoweringKind.REDUCE:
                source = maker.invars[0]
                if self.computed(source) and (source in self.roots or self.depth[source] > 0):
                    continue
            else:
                stack.extend(a for a in maker.invars if type(a) is not Literal)
            self.depth[atom] = depth

    def _tags_through(self, eqn: Eqn, atom: Var, view: View | None, same_kind: bool, context: Context):
        """Tags of the result if `eqn` can read `atom`, which is in a row context, inside that context; else None."""
        shape, tags, whole = eqn.outvars[0].aval.shape, self.tags[atom], context[0]
        if tags in (FOLDED, SWEPT):
            return None
        if same_kind:
            if atom.aval.shape == shape:
                return tags
            return FULL if shape == whole and may_follow(context) else None
        if tags == FULL:
            return FOLDED if unfolded(eqn.outvars[0], eqn) is atom else None
        if view is None:
            return None
        fresh: list[int | None] = [None] * len(shape)
        for tag, found in zip(tags, view.maps):
            if tag is None:
                continue
            if found is None or found[0] or len(found[1]) != 1 or found[1][0][1] != 1:
                return None
            d = found[1][0][0]
            if shape[d] != whole[tag]:          # the beginning of the rows only: a loop over all would write too much
                return None
            fresh[d] = tag
        if shape == whole and all(t is None or t == d for d, t in enumerate(fresh)) and all(
                t is not None or d in context[1] or shape[d] == 1 for d, t in enumerate(fresh)):
            return FULL if may_follow(context) else None
        if all(t is not None or n == 1 for t, n in zip(fresh, shape)) and keeps_order(fresh, context):
            return tuple(fresh)
        return None

    def _worth_inlining(self, eqn: Eqn, atom: Var, view: View | None, same_kind: bool) -> bool:
        if same_kind:
            return True
        out, size = eqn.outvars[0].aval, atom.aval.size
        expensive = self.cost[atom] >= EXPENSIVE
        if view is not None:
            if atom in self.needed:
                return False
            inner, extent = next(((s, n) for s, n in zip(reversed(view.strides), reversed(out.shape)) if n > 1), (0, 1))
            return not expensive or size == 1 or out.size <= size or (inner == 0 and extent >= FEWEST_COLUMNS)
        apart = rows_apart(eqn)
        if apart > 1 and atom not in self.needed and self.windows[eqn.outvars[0]] <= WIDEST_WINDOW \
                and self.spread.get(atom, 0) + self._distinct(atom) <= MOST_SPREAD:
            return apart * self.turn.get(atom, 1) <= MOST_APART
        if joins_rows(eqn) and atom not in self.needed and eqn.outvars[0] not in self.reduced and self._distinct(atom) < MOST_JOINED:
            return True
        joined = eqn.primitive.kind in ("layout", "slice") and out.size < 2 * size      # each element is read about once
        if atom in self.needed or expensive or (self.producer[atom].primitive.kind == "index" and not joined):
            return size == 1 and atom not in self.needed
        return True

    def _distinct(self, atom: Atom) -> int:
        """The cost of a value where everything is computed once, as far as it is above `MOST_SPREAD` only roughly."""
        total, seen, stack = 0, {atom}, [atom] if atom not in self.needed else []
        while stack and total <= MOST_SPREAD:
            eqn = self.producer.get(stack.pop())
            if eqn is not None:
                total += eqn_cost(eqn)
                fresh = [a for a in eqn.invars if type(a) is not Literal and a not in seen and a not in self.needed]
                seen.update(fresh)
                stack += fresh
        return total

    def _in_turns(self, atom: Atom) -> bool:
        """Whether a value is computed in turns, and costs much in a kernel that goes over rows."""
        return self.spread.get(atom, 0) >= EXPENSIVE

    def _reduce(self, eqn: Eqn) -> None:
        (atom,), out = eqn.invars, eqn.outvars[0]
        self.producer[out] = eqn
        self.roots.add(out)
        self.recompute_cost[out] = 1
        sweep = self._sweep_in_context(eqn, atom)
        if sweep is not None:
            source = sweep.source
            self.sweeps(out, sweep, self.context[source])
            self.depth[out], self.cost[out], self.chain[out] = self.depth[source], self.cost[source] + 20, 1
            return
        shape = atom.aval.shape
        axes = reduced_dims(eqn)
        context = (shape, axes)
        depth, cost, chain = 0, 20, 1
        if self.computed(atom):
            theirs = self.context.get(atom)
            inline = self.chain[atom] < LONGEST_CHAIN and not self._in_turns(atom) and (
                theirs is None or (theirs == context and self.tags[atom] == FULL))
            if theirs is None and not is_trailing(shape, axes) and atom.aval.size > SMALL_DOMAIN and any(
                    v in kept for v in (atom, unfolded(atom, self.producer[atom])) for kept in (self.wanted, self.needed, self.roots)):
                inline = False
            if inline:
                depth, cost, chain = self.depth[atom], cost + self.cost[atom], self.chain[atom] + 1
            else:
                depth = self.demand(atom) + 1
        elif type(atom) is not Literal:
            depth = self.depth[atom] + 1
        self.depth[out], self.cost[out], self.chain[out] = depth, cost, chain
        self.context[out] = context
        self.tags[out] = tuple(d for d in range(len(shape)) if d not in axes)

    def _sweep_in_context(self, eqn: Eqn, atom: Atom) -> Sweep | None:
        """The reduction as a sum over the rows in whose context its operand is."""
        if self.tags.get(atom) not in (FULL, FOLDED) or self.chain[atom] >= LONGEST_CHAIN:
            return None
        source = unfolded(atom, self.producer[atom]) if self.tags[atom] == FOLDED else atom
        sweep = sweep_of(eqn, source)
        return sweep if sweep is not None and rides(sweep, self.context[source]) else None

    def sweeps(self, out: Var, sweep: Sweep, context: Context) -> None:
        self.swept[out] = sweep
        self.context[out], self.tags[out] = context, SWEPT
        self.needed[out] = None

    # ---- memory demands

    def demand(self, atom: Atom) -> int:
        """The value must be in memory, dense; gives the depth of its kernel."""
        if type(atom) is Literal:
            return -1
        if atom in self.producer:
            base, view = self.resolve(atom)
            if base is not atom and is_dense(view, atom.aval.shape) and (
                    base.aval.size == atom.aval.size or base not in self.producer):
                atom = base
        if atom in self.producer:
            self.roots.add(atom)
            self.needed[atom] = None
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
        if type(var) is Literal or var not in self.producer or (var in self.context and self.tags[var] != FOLDED):
            return var, None
        eqn = self.producer[var]
        view = view_of(eqn)
        if view is None or any(s < 0 for s in view.strides):
            return var, None
        source = eqn.invars[0]
        if source in self.context and source not in self.needed and source.aval.size < var.aval.size:
            return var, None
        base, inner = self.resolve(source)
        if inner is None:
            return source, view
        joined = view.after_dense(inner.offset) if is_dense(inner, source.aval.shape) else view.over(inner)
        return (source, view) if joined is None else (base, joined)

    # ---- groups

    def loads(self, atom: Var, depth: int) -> bool:
        """Whether a kernel of `depth` reads this value from memory."""
        return atom not in self.producer or (atom in self.roots and self.depth[atom] < depth)

    def items(self) -> list:
        """Kernels and other equations in an order that respects what each reads."""
        by_depth: dict[int, list[Var]] = {}
        deepest = max((self.depth[v] for v in self.roots), default=-1)
        groups: list[Group] = []
        for root in self.needed:
            by_depth.setdefault(self.depth[root], []).append(root)
        for depth in range(deepest, -1, -1):
            roots = by_depth.get(depth)
            if not roots:
                continue
            for group in groups_of(self, sorted(roots, key=self.order.__getitem__), depth):
                groups.append(group)
                for leaf in group.leaves:
                    if leaf in self.producer and leaf not in self.needed:
                        self.needed[leaf] = None
                        by_depth.setdefault(self.depth[leaf], []).append(leaf)
        self.stored = self.needed
        attach_tails(self, groups)
        return self._ordered(groups)

    def signature(self, group: Group) -> tuple[tuple | None, list[Var]]:
        """A key that equal kernels share, whatever program they stand in, and the leaves in the order of the key."""
        numbers: dict[Var, int] = {}
        leaves: dict[Var, None] = {}
        parts: list = [group.shape, group.context, group.parts, len(group.roots)]
        done: set[int] = set()
        stack = list(reversed(group.roots))
        own = set(group.roots)
        while stack:
            var = stack.pop()
            if group.dot is not None and var is group.dot.outvars[0]:
                leaves[var] = None
                parts.append((numbers.setdefault(var, len(numbers)), var.aval))    # (its type may show nowhere else)
                continue
            eqn = self.producer[var]
            if id(eqn) in done:
                continue
            done.add(id(eqn))
            params = params_key(eqn.params) if eqn.params else ()
            if params is None:
                return None, []
            parts.append(eqn.primitive)
            parts.append(params)
            for var in eqn.outvars:
                parts.append((numbers.setdefault(var, len(numbers)), var in own))
            for atom in eqn.invars:
                if type(atom) is Literal:
                    parts.append((repr(atom.val), atom.aval))
                    continue
                number = numbers.setdefault(atom, len(numbers))
                if atom not in own and self.loads(atom, group.depth):
                    leaves[atom] = None
                    parts.append((number, atom.aval))
                else:
                    parts.append(number)
                    stack.append(atom)
        parts.extend(numbers[v] for v in group.roots)
        return tuple(parts), list(leaves)

    def _ordered(self, groups: list[Group]) -> list:
        maker: dict[Var, object] = {v: g for g in groups for v in g.roots}
        inside = {id(g.dot) for g in groups}
        jobs = [(min(self.order[v] for v in g.roots), g) for g in groups]
        jobs += [job for job in self.hard if id(job[1]) not in inside]
        jobs.sort(key=lambda job: job[0])
        done: set[int] = set()
        out: list = []
        effects: Eqn | None = None
        previous: dict[int, Eqn] = {}
        for _, job in jobs:
            if isinstance(job, Eqn) and job.effects:
                if effects is not None:
                    previous[id(job)] = effects
                effects = job

        def needs(job) -> list:
            found = []
            if isinstance(job, Group):
                reads = self.read_by(job)
            else:
                reads = [self.memory_of(a) for a in job.invars if type(a) is not Literal]
                if id(job) in previous:
                    found.append(previous[id(job)])
            for var in reads:
                made = maker.get(var) or self.hard_outs.get(var)
                if made is not None and made is not job:
                    found.append(made)
            return found

        for _, job in jobs:
            stack = [(job, False)]
            while stack:
                current, ready = stack.pop()
                if id(current) in done:
                    continue
                if ready:
                    done.add(id(current))
                    out.append(current)
                else:
                    stack.append((current, True))
                    stack.extend((n, False) for n in needs(current) if id(n) not in done)
        return out

    def read_by(self, group: Group) -> list[Var]:
        """The stored values that a kernel reads, those of its matmul included."""
        if group.dot is None:
            return list(group.leaves)
        result = group.dot.outvars[0]
        operands = [self.memory_of(a) for a in group.dot.invars if type(a) is not Literal]
        return [*(v for v in group.leaves if v is not result), *operands]

    def memory_of(self, var: Var) -> Var:
        """The stored value whose buffer an equation reads when it reads `var`."""
        if var not in self.producer or var in self.stored:
            return var
        base = self.resolve(var)[0]
        return base if base is var else self.memory_of(base)


def _wanted(jaxpr: Jaxpr) -> set[Var]:
    """Values that equations without kernels of their own read, and results: they are in memory whatever else reads them."""
    wanted = {a for a in jaxpr.outvars if type(a) is not Literal}
    for eqn in reversed(jaxpr.eqns):
        if lowering_kind(eqn) not in (LoweringKind.PULL, LoweringKind.REDUCE) or (
                eqn.outvars[0] in wanted and unfolded(eqn.outvars[0], eqn) is not eqn.outvars[0]):
            wanted.update(a for a in eqn.invars if type(a) is not Literal)
    return wanted


def _reduced(jaxpr: Jaxpr) -> set[Var]:
    """Values of which sums, or other reductions, are made: passes over their rows, which are not cut into parts. Nobody asks where
    no rows are joined."""
    reduced: set[Var] = set()
    if not any(map(joins_rows, jaxpr.eqns)):
        return reduced
    for eqn in reversed(jaxpr.eqns):
        kind = lowering_kind(eqn)
        if kind is LoweringKind.REDUCE or (kind is LoweringKind.PULL and not reduced.isdisjoint(eqn.outvars)):
            reduced.update(a for a in eqn.invars if type(a) is not Literal)
    return reduced
