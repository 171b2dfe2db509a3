"""The decision graph of a program: the equations with several layouts, and the values that connect them.

In:   a Jaxpr, with programs in its equations.
Out:  nodes. An equation is one; elementwise equations of one shape that read each other are one, since they are split alike; so
      are products over the same dims (a product and its derivatives). Arguments, results, and values that loops or calls link
      are nodes as well. A node reads variables and makes variables.
Laws: every variable that is read has one maker. The program of a loop is in the graph once, and counts as often as it runs.
Next: `choices` lists the ways to lay out a node; `integer_program` chooses.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from weft._engine.core.primitive import (
    BarrierOp,
    CallbackOp,
    CollectiveOp,
    ConstraintOp,
    ContractOp,
    CustomOp,
    ElementwiseOp,
    LayoutOp,
    LoopLike,
    ProductOp,
    RegionOp,
)
from weft._engine.ir.factors import FactorRule
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.rewrite import params_key
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.overlap import hideable_values
from weft._engine.partition.cost import DEFAULT, CostModel
from weft._engine.partition.partial_sums import live_eqns
from weft._engine.partition.propagation.propagate import Propagation, region_links
from weft._engine.util.record import record

#: a product is cheap if computing all of it costs less than this part of sending its largest operand or result
_CHEAP = 0.01
#: maximal number of equations between a value and the sum over devices that it comes from
_PARTIAL_DEPTH = 3
#: the share of a program between two reads of a value, and the bytes of a value, from which forms of it may be made twice
LONG_TIME, LARGE = 0.1, 1 << 15


class Kind(Enum):
    """The kind of decision that a node stands for."""

    INPUT = auto()
    OUTPUT = auto()
    LINK = auto()  # values inside and outside of a loop or call that have one layout
    EQUATION = auto()
    MAP = auto()  # elementwise equations of one shape
    PRODUCTS = auto()  # products over the same dims
    FIXED = auto()  # an equation whose operands and results have given layouts


@record
class Read:
    """A variable that a node reads: how often, and when (the position of the equation in the program)."""

    var: Var
    count: int
    time: int


class DecisionNode:
    """One decision. Nodes with equal keys have equal choices."""

    __slots__ = (
        "count",
        "eqns",
        "index",
        "key",
        "kind",
        "leads",
        "makes",
        "reads",
        "shared_factors",
        "time",
    )

    def __init__(self, kind: Kind, count: int, time: int, key: Hashable = None):
        self.kind, self.count, self.time, self.key = kind, count, time, key
        self.eqns: list[Eqn] = []
        self.reads: list[Read] = []
        self.makes: list[Var] = []
        #: of a link: the number of leading loop dims of each variable
        self.leads: dict[Var, int] = {}
        #: of products over the same dims: for each equation, the number of each factor among these dims
        self.shared_factors: list[dict[int, int]] = []
        self.index = 0

    @property
    def is_map(self) -> bool:
        return self.kind is Kind.MAP

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape of the value that is laid out, without loop dims."""
        if self.kind is Kind.LINK:
            var, lead = next(iter(self.leads.items()))
            return tuple(var.aval.shape[lead:])
        var = self.makes[0] if self.makes else self.reads[0].var
        return tuple(var.aval.shape)


@record
class GivenSpecs:
    """The given specs of arguments and results (None: open), and the results that have the layout of an argument."""

    in_specs: tuple[Spec | None, ...]
    out_specs: tuple[Spec | None, ...]
    ties: Mapping[int, int]


class DecisionGraph:
    """The nodes of a program, in program order, and the makers and readers of variables.

    ties      result number -> number of the argument that has its layout, as donated state has from step to step
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        propagation: Propagation,
        ties: Mapping[int, int],
        cost: CostModel = DEFAULT,
    ):
        self.jaxpr, self.propagation, self.ties = jaxpr, propagation, dict(ties)
        self.cost = cost
        self.maker: dict[Var, DecisionNode] = {}
        self.readers: dict[Var, list[tuple[DecisionNode, int]]] = {}
        self.inputs: list[DecisionNode] = []
        self.outputs: list[DecisionNode | None] = []
        self.equations: dict[int, Eqn] = {}  # by time
        self._time = 0
        nodes = self._collect(jaxpr)
        self._index(nodes)
        nodes = self._merged_products(self._merged_maps(nodes))
        order = {Kind.INPUT: 0, Kind.LINK: 1, Kind.OUTPUT: 3}
        self.nodes = sorted(nodes, key=lambda n: (order.get(n.kind, 2), n.time))
        self._index(self.nodes)

    def late_readers(self, var: Var) -> frozenset[tuple[DecisionNode, int]]:
        """Return the readers of a variable after the longest time without one, if that is long and the variable is large.

        Elementwise readers, such as the update of a parameter, count only if there are no others on both sides.
        """
        readers = sorted(self.readers.get(var, ()), key=lambda reader: _time_of(reader))
        others = [reader for reader in readers if not reader[0].is_map]
        times = [_time_of(reader) for reader in (others if len(others) > 1 else readers)]
        longest, before = max(((b - a, a) for a, b in itertools.pairwise(times)), default=(0, 0))
        if longest < LONG_TIME * self.end or var.aval.nbytes < LARGE:
            return frozenset()
        return frozenset(reader for reader in readers if _time_of(reader) > before)

    def last_early_reader(self, var: Var) -> Eqn | None:
        """Return the equation after which a form may be dropped, to be made again for the late readers."""
        late = self.late_readers(var)
        early = [_time_of(reader) for reader in self.readers.get(var, ()) if reader not in late]
        return self.equations.get(max(early)) if late and early else None

    @functools.cached_property
    def hideable(self) -> frozenset[Var]:
        """The variables whose collectives can run behind computation."""
        return hideable_values(self.jaxpr)

    @property
    def end(self) -> int:
        """The time after the last equation."""
        return self._time + 1

    # --- nodes of a program ---

    def _collect(self, jaxpr: Jaxpr) -> list[DecisionNode]:
        nodes: list[DecisionNode] = []
        tied = set(self.ties.values())
        for i, var in enumerate(jaxpr.invars):
            aval = var.aval
            node = DecisionNode(Kind.INPUT, 1, 0, ("input", aval.shape, aval.dtype.name, i in tied))
            node.makes = [var]
            nodes.append(node)
            self.inputs.append(node)
        self._add_equations(jaxpr, 1, nodes)
        for i, atom in enumerate(jaxpr.outvars):
            if type(atom) is Literal:
                self.outputs.append(None)
                continue
            if i in self.ties:
                node = self.inputs[self.ties[i]]
            else:
                key = ("output", atom.aval.shape, atom.aval.dtype.name)
                node = DecisionNode(Kind.OUTPUT, 1, self.end, key)
                nodes.append(node)
            node.reads.append(Read(atom, 1, self.end))
            self.outputs.append(node)
        return nodes

    def _add_equations(self, jaxpr: Jaxpr, count: int, nodes: list[DecisionNode]) -> None:
        """Add the nodes of the equations of `jaxpr`, which runs `count` times."""
        for var in jaxpr.constvars:
            node = DecisionNode(Kind.FIXED, count, self._time, ("constant", var.aval.shape))
            node.makes = [var]
            nodes.append(node)
        for eqn in live_eqns(jaxpr):
            self._time += 1
            if isinstance(eqn.primitive, RegionOp) and eqn.primitive.per_device:
                nodes.append(self._equation(Kind.FIXED, eqn, count))
            elif isinstance(eqn.primitive, (RegionOp, BarrierOp)):
                self._add_region(eqn, count, nodes)
            elif isinstance(eqn.primitive, (CallbackOp, CollectiveOp, CustomOp)):
                nodes.append(self._equation(Kind.FIXED, eqn, count))
            else:
                nodes.append(self._equation(Kind.EQUATION, eqn, count))

    def _equation(self, kind: Kind, eqn: Eqn, count: int) -> DecisionNode:
        node = DecisionNode(kind, count, self._time, (equation_key(eqn), count))
        node.eqns = [eqn]
        node.reads = [Read(a, count, self._time) for a in eqn.invars if type(a) is not Literal]
        node.makes = list(eqn.outvars)
        self.equations[self._time] = eqn
        return node

    def _add_region(self, eqn: Eqn, count: int, nodes: list[DecisionNode]) -> None:
        """Add the links of an equation that holds programs, and the nodes of these programs."""
        runs = count * trip_count(eqn)
        programs = [jaxpr for _, jaxpr in subjaxprs(eqn.params)]
        inside = [v for jaxpr in programs for v in jaxpr.invars]
        operands = {a for a in eqn.invars if type(a) is not Literal}
        region_vars = {*inside, *eqn.outvars}
        reads = dict.fromkeys(operands, count)
        self.equations[self._time] = eqn
        links = [
            _link_node(group, region_vars, reads, runs, self._time)
            for group in _joined_links(region_links(eqn), region_vars)
        ]
        nodes += [node for node in links if node.leads]
        linked = {v for node in links for v in node.makes}
        for var in dict.fromkeys([*inside, *eqn.outvars]):
            if var not in linked:  # values that have nothing outside: counters, keys
                node = DecisionNode(Kind.FIXED, runs, self._time, ("unlinked", var.aval.shape))
                node.makes = [var]
                nodes.append(node)
        for jaxpr in programs:
            self._add_equations(jaxpr, runs, nodes)

    def _index(self, nodes: Sequence[DecisionNode]) -> None:
        self.maker = {v: node for node in nodes for v in node.makes}
        readers: dict[Var, list[tuple[DecisionNode, int]]] = defaultdict(list)
        for i, node in enumerate(nodes):
            node.index = i
            for r, read in enumerate(node.reads):
                readers[read.var].append((node, r))
        self.readers = dict(readers)

    # --- nodes that are one ---

    def _merged_maps(self, nodes: list[DecisionNode]) -> list[DecisionNode]:
        """Return `nodes`, with connected elementwise equations of one shape merged into one node."""
        maps = {node for node in nodes if self._is_map(node)}
        groups = UnionFind()
        for node in maps:
            for read in node.reads:
                maker = self.maker.get(read.var)
                if maker in maps and maker.count == node.count and maker.shape == node.shape:
                    groups.union(maker, node)
        merged: dict[Any, list[DecisionNode]] = defaultdict(list)
        for node in nodes:
            if node in maps:
                merged[groups.find(node)].append(node)
        other_nodes = [node for node in nodes if node not in maps]
        return other_nodes + [_map_node(members) for members in merged.values()]

    def _is_map(self, node: DecisionNode) -> bool:
        """Return whether a node can be merged with other nodes of its shape."""
        if node.kind is not Kind.EQUATION:
            return False
        (eqn,) = node.eqns
        if not isinstance(eqn.primitive, ElementwiseOp) or not eqn.outvars:
            return False
        shape = eqn.outvars[0].aval.shape
        if not shape or any(a.aval.ndim and a.aval.shape != shape for a in eqn.invars):
            return False
        rule = self.propagation.rule(eqn)
        if rule is None or rule.special:
            return False
        sums = [a for a in eqn.invars if type(a) is not Literal and self._may_be_partial(a)]
        return not (rule.additive and len(sums) >= 2)  # one reduction for both may pay

    def _may_be_partial(self, var: Var, depth: int = _PARTIAL_DEPTH) -> bool:
        """Whether a value can be a sum over devices, as far as the last `depth` equations show."""
        node = self.maker.get(var)
        if node is None or not depth or node.kind is not Kind.EQUATION:
            return False
        (eqn,) = node.eqns
        if isinstance(eqn.primitive, ProductOp):
            return True
        rule = self.propagation.rule(eqn)
        if rule is None:
            return False
        if "add" in rule.reduced.values():
            return True
        passes = isinstance(eqn.primitive, LayoutOp) or rule.additive
        operands = [a for a in eqn.invars if type(a) is not Literal]
        return passes and any(self._may_be_partial(a, depth - 1) for a in operands)

    def _merged_products(self, nodes: list[DecisionNode]) -> list[DecisionNode]:
        """Return `nodes`, with products over the same dims merged: one choice of axes for a product and its derivatives.

        Cheap products stay apart: it may pay to compute one on all devices and to split its derivatives.
        """
        dims = self._equal_dims(nodes)
        groups: dict[Hashable, list[tuple[DecisionNode, dict[int, Hashable]]]] = defaultdict(list)
        merged: list[DecisionNode] = []
        for node in nodes:
            colors = self._factor_colors(node, dims)
            if colors is None:
                merged.append(node)
            else:
                groups[frozenset(colors.values()), node.count].append((node, colors))
        for members in groups.values():
            merged.append(members[0][0] if len(members) == 1 else _products_node(members))
        return merged

    def _equal_dims(self, nodes: Iterable[DecisionNode]) -> UnionFind:
        """The equivalence classes of dims: dims with a common factor, and linked or tied dims."""
        equal = UnionFind()
        for node in nodes:
            previous: list[tuple[Var, int]] | None = None
            for var, lead in node.leads.items():
                dims = [(var, d) for d in range(lead, var.aval.ndim)]
                for a, b in zip(previous or (), dims):
                    equal.union(a, b)
                previous = dims
            for eqn in node.eqns if node.kind is not Kind.FIXED else ():
                self._join_factors(eqn, equal)
        for out, tied in self.ties.items():
            atom, var = self.jaxpr.outvars[out], self.jaxpr.invars[tied]
            if type(atom) is not Literal:
                for d in range(var.aval.ndim):
                    equal.union((atom, d), (var, d))
        return equal

    def _join_factors(self, eqn: Eqn, equal: UnionFind) -> None:
        rule = self.propagation.rule(eqn)
        if rule is None:
            return
        seen: dict[int, tuple[Var, int]] = {}
        for atom, factors in [*zip(eqn.invars, rule.ins), *zip(eqn.outvars, rule.outs)]:
            if not isinstance(atom, Var):
                continue
            for d, of_dim in enumerate(factors):
                if len(of_dim) == 1:
                    first = seen.setdefault(of_dim[0], (atom, d))
                    equal.union(first, (atom, d))

    def _factor_colors(self, node: DecisionNode, equal: UnionFind) -> dict[int, Hashable] | None:
        """A name for each factor of a product; None if the node is no plain product over distinct dims, or cheap."""
        if node.kind is not Kind.EQUATION or not isinstance(node.eqns[0].primitive, ContractOp):
            return None
        (eqn,) = node.eqns
        rule = self.propagation.rule(eqn)
        if rule is None or rule.special or rule.groups or self._is_cheap(eqn, rule):
            return None
        colors: dict[int, Hashable] = {}
        for atom, factors in [*zip(eqn.invars, rule.ins), *zip(eqn.outvars, rule.outs)]:
            for d, of_dim in enumerate(factors) if type(atom) is not Literal else ():
                if len(of_dim) == 1:
                    colors[of_dim[0]] = equal.find((atom, d))
        live = [f for f, size in enumerate(rule.sizes) if size > 1]
        if any(f not in colors for f in live) or len({colors[f] for f in live}) < len(live):
            return None
        return {f: colors[f] for f in live}

    def _is_cheap(self, product: Eqn, rule: FactorRule) -> bool:
        """Whether computing all of a product costs next to nothing, compared to sending its largest operand or result."""
        largest = max(a.aval.nbytes for a in (*product.invars, *product.outvars))
        return 2 * math.prod(rule.sizes) / self.cost.flops_per_byte < _CHEAP * largest


class UnionFind:
    """Disjoint sets of equal elements (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[Any, Any] = {}

    def find(self, x: Any) -> Any:
        """Return the representative of the set of `x`."""
        root = x
        while (parent := self._parent.get(root, root)) is not root:
            root = parent
        while x is not root:
            self._parent[x], x = root, self._parent.get(x, root)
        return root

    def union(self, a: Any, b: Any) -> None:
        """Merge the sets of `a` and `b`."""
        first, second = self.find(a), self.find(b)
        if first is not second:
            self._parent[second] = first


def _time_of(reader: tuple[DecisionNode, int]) -> int:
    node, number = reader
    return node.reads[number].time


def trip_count(eqn: Eqn) -> int:
    """Return the number of runs of an equation's programs per run of the equation; 1 if it is unknown."""
    primitive = eqn.primitive
    counted = isinstance(primitive, LoopLike) and primitive.counted
    return int(eqn.params.get("length", 1)) if counted else 1


def _map_node(members: list[DecisionNode]) -> DecisionNode:
    members.sort(key=lambda n: n.time)
    node = DecisionNode(Kind.MAP, members[0].count, members[0].time)
    node.eqns = [eqn for m in members for eqn in m.eqns]
    node.makes = [v for m in members for v in m.makes]
    own = set(node.makes)
    node.reads = [read for m in members for read in m.reads if read.var not in own]
    names = tuple(sorted(eqn.primitive.name for eqn in node.eqns))
    node.key = ("map", node.shape, names, node.count)
    return node


def _products_node(members: list[tuple[DecisionNode, dict[int, Hashable]]]) -> DecisionNode:
    members.sort(key=lambda member: member[0].time)
    first, colors = members[0]
    node = DecisionNode(Kind.PRODUCTS, first.count, first.time)
    node.eqns = [m.eqns[0] for m, _ in members]
    node.makes = [v for m, _ in members for v in m.makes]
    node.reads = [read for m, _ in members for read in m.reads]
    order = {color: i for i, color in enumerate(colors.values())}
    node.shared_factors = [{f: order[c] for f, c in own.items()} for _, own in members]
    keys = tuple(equation_key(eqn) for eqn in node.eqns)
    shared = tuple(tuple(sorted(own.items())) for own in node.shared_factors)
    node.key = ("products", keys, shared, node.count)
    return node


def _link_node(
    group: Sequence[tuple[Any, int]],
    made_values: Container[Any],
    reads: Mapping[Var, int],
    runs: int,
    time: int,
) -> DecisionNode:
    """Return the node of linked values. Operands are read as often as `reads` says, others as often as the program `runs`."""
    node = DecisionNode(Kind.LINK, runs, time)
    for atom, lead in group:
        if type(atom) is Literal or atom in node.leads:
            continue
        node.leads[atom] = lead
        if atom in made_values:
            node.makes.append(atom)
        else:
            node.reads.append(Read(atom, reads.get(atom, runs), time))
    node.key = ("link", tuple((v.aval.shape, n) for v, n in node.leads.items()), runs)
    return node


def _joined_links(
    groups: Iterable[Sequence[tuple[Any, int]]], made_values: Container[Any]
) -> list[list[tuple[Any, int]]]:
    """Return `groups` of linked values; groups that share a result of the equation are merged."""
    sets, listed = UnionFind(), [list(group) for group in groups]
    for i, group in enumerate(listed):
        for atom, _ in group:
            if type(atom) is not Literal and atom in made_values:
                sets.union(atom, ("group", i))
    joined: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for i, group in enumerate(listed):
        joined[sets.find(("group", i))] += group
    return list(joined.values())


def equation_key(eqn: Eqn) -> Hashable:
    """A name that equations with equal operations, parameters and shapes share."""
    params = params_key(eqn.params)
    types = tuple((a.aval.shape, a.aval.dtype.name) for a in (*eqn.invars, *eqn.outvars))
    literals = tuple(type(a) is Literal for a in eqn.invars)
    return (eqn.primitive.name, id(eqn) if params is None else params, types, literals)


def is_constraint(node: DecisionNode) -> bool:
    """Whether a node is a constraint of the user."""
    return node.kind is Kind.EQUATION and isinstance(node.eqns[0].primitive, ConstraintOp)
