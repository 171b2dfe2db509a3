"""`custom_partitioning` as an operation: a function with a custom rule for running on many devices.

In:   the program of the function on whole values, and a `PartitionRule`.
Out:  one equation. Propagation reads its rule, and the partitioner replaces it by the rule's
      function for one device.
      On one device, the program of the function replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import CustomOp, declare_unsupported
from weft._engine.ir.factors import FactorRule, RuleBuilder
from weft._engine.ir.jaxpr import Eqn, Jaxpr, subjaxprs
from weft._engine.ir.rewrite import inline_calls, map_jaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import describe
from weft._engine.util.record import field, record

#: the placeholder of an ellipsis in a rule
BATCHING = "…"


class Compound(tuple):
    """The factors of one dim, major to minor."""

    __slots__ = ()


@record
class EinsumRule:
    """Named factors for each dim of operands and results.

    An `Ellipsis` stands for leading dims that all values share.
    """

    ins: tuple[tuple, ...]
    outs: tuple[tuple, ...]
    sizes: tuple[tuple[str, int], ...] = ()  # of factors that are only parts of dims
    reduced: tuple[str, ...] = ()
    replicated: tuple[str, ...] = ()

    def factors(
        self, in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]
    ) -> FactorRule:
        """Return the rule for operands and results of these types. Raise ValueError if it does not fit them."""
        b, numbers = RuleBuilder(), dict[Any, int]()
        groups = (("operand", self.ins, in_avals), ("result", self.outs, out_avals))
        known = self._sizes_of_factors(groups)

        def number(name: Any) -> int:
            if name not in numbers:
                if name not in known:
                    raise ValueError(
                        f"custom_partitioning: the size of factor {name!r} is not known, which is only a part of dims. "
                        f"Give it to def_partition: {name}=<size>."
                    )
                numbers[name] = b.new(known[name])
            return numbers[name]

        def dim(name: Any, size: int) -> tuple:
            parts = tuple(map(number, name)) if isinstance(name, Compound) else (number(name),)
            if math.prod([b.sizes[f] for f in parts]) != size:
                raise ValueError(
                    f"custom_partitioning: the factors {tuple(name)} of the sharding rule do not make up a dim of size "
                    f"{size}."
                )
            return parts

        values = [
            [
                [dim(n, size) for n, size in zip(_expand_ellipsis(dims, a.ndim, ""), a.shape)]
                for dims, a in zip(rules, avals)
            ]
            for _, rules, avals in groups
        ]
        return b.rule(
            *values,
            special={numbers[name]: "replicate" for name in self.replicated if name in numbers},
        )

    def _sizes_of_factors(self, groups: Sequence[tuple]) -> dict[Any, int]:
        """Return the sizes of factors that form a whole dim, and `self.sizes`.

        Raise ValueError if two sizes of a factor differ.
        """
        known: dict[Any, int] = dict(self.sizes)
        for kind, rules, avals in groups:
            if len(rules) != len(avals):
                raise ValueError(
                    f"custom_partitioning: Sharding rule has {len(rules)} {kind}s, but the operation has {len(avals)} "
                    f"{kind}s."
                )
            for i, (dims, aval) in enumerate(zip(rules, avals)):
                for name, size in zip(
                    _expand_ellipsis(dims, aval.ndim, f"{i}th {kind}"), aval.shape
                ):
                    if not isinstance(name, Compound) and known.setdefault(name, size) != size:
                        raise ValueError(
                            f"custom_partitioning: factor {name!r} of the sharding rule has size {known[name]}, and size "
                            f"{size} in the {i}th {kind}, of type {aval.str_short()}."
                        )
        return known


def _expand_ellipsis(dims: Sequence, ndim: int, what: str) -> list:
    """Return the names of the dims of a value, with numbered names for the dims of an ellipsis."""
    if Ellipsis not in dims:
        if len(dims) != ndim:
            raise ValueError(
                f"custom_partitioning: Sharding rule {what} has rank {len(dims)}, but the operation {what} has rank {ndim}."
            )
        return list(dims)
    at, count = dims.index(Ellipsis), ndim - len(dims) + 1
    if count < 0:
        raise ValueError(
            f"custom_partitioning: Sharding rule {what} has rank at least {len(dims) - 1}, but the operation {what} has "
            f"rank {ndim}."
        )
    return [*dims[:at], *[(BATCHING, k) for k in range(count)], *dims[at + 1 :]]


def parse_rule(
    text: str, sizes: dict[str, int], reduced: Sequence[str] = (), replicated: Sequence[str] = ()
) -> EinsumRule:
    """Parse a rule. Raise ValueError if the text is invalid.

    >>> parse_rule("... i k, k j -> ... i j", {}).outs
    ((Ellipsis, 'i', 'j'),)
    """
    if text.count("->") != 1:
        raise ValueError(
            f"custom_partitioning: There is no -> in rule: {text!r}. A rule is like 'i k, k j -> i j'."
        )
    sides = [
        tuple(_value(part, text) for part in side.split(",")) if side.strip() or k else ()
        for k, side in enumerate(text.split("->"))
    ]
    names = {
        n
        for side in sides
        for dims in side
        for d in dims
        for n in (d if isinstance(d, Compound) else (d,))
    }
    unknown = [n for n in (*reduced, *replicated, *sizes) if n not in names]
    if unknown:
        raise ValueError(
            f"custom_partitioning: factor {unknown[0]!r} does not occur in the rule {text!r}."
        )
    return EinsumRule(sides[0], sides[1], tuple(sizes.items()), tuple(reduced), tuple(replicated))


def _value(text: str, rule: str) -> tuple:
    dims: list = []
    group: list | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").replace(BATCHING, "...").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group is not None:
            dims.append(Compound(group))
            group = None
        elif word == "..." and group is None and Ellipsis not in dims:
            dims.append(Ellipsis)
        elif word.isidentifier():
            (dims if group is None else group).append(word)
        else:
            raise ValueError(
                f"custom_partitioning: {word!r} has no meaning at its place in the rule {rule!r}: a dim is a name, several "
                "names in parentheses, or one '...' for leading dims."
            )
    if group is not None:
        raise ValueError(f"custom_partitioning: a parenthesis is not closed in the rule {rule!r}.")
    return tuple(dims)


@record(eq=False)
class PartitionRule:
    """The rule by which a function runs on many devices.

    partition   fn(mesh, arg_shapes, result_shape) -> (mesh, function of blocks, result shardings, argument shardings)
    infer       fn(mesh, arg_shapes, result_shape) -> result shardings, or None
    einsum      the rule for propagation, or None: it is requested when the types are available
    """

    name: str
    partition: Callable
    infer: Callable | None
    einsum: EinsumRule | None
    in_tree: Any = field(default=None)
    out_tree: Any = field(default=None)


#: params: jaxpr (a program without constants), rule (a PartitionRule)
custom_partitioning_p = CustomOp("custom_partitioning", multiple_results=True)
custom_partitioning_p.ref_effects = lambda params: params["jaxpr"].effects


def _factors(
    in_avals: Sequence[ShapedArray],
    out_avals: Sequence[ShapedArray],
    *,
    jaxpr: Jaxpr,
    rule: PartitionRule,
) -> FactorRule | None:
    return None if rule.einsum is None else rule.einsum.factors(in_avals, out_avals)


def _no(what: str) -> Any:
    return declare_unsupported(
        f"{what} rule for 'custom_partitioning' not implemented. Give the function around it a rule of its own, with "
        "weft.custom_vjp or weft.custom_batching.custom_vmap"
    )


custom_partitioning_p.define(
    type=lambda *avals, jaxpr, rule: jaxpr.out_avals,
    reference=lambda *args, jaxpr, rule: run_reference(jaxpr, *args),
    factors=_factors,
    jvp=_no("Differentiation"),
    batch=_no("Batching"),
    transpose=_no("Transpose"),
    lower=_no("Lowering"),
)


def _is_custom(eqn: Eqn) -> bool:
    return eqn.primitive is custom_partitioning_p


def has_partitions(jaxpr: Jaxpr) -> bool:
    """Return True if the program contains a `custom_partitioning` function at any depth."""
    return jaxpr.memo(
        "has partitions",
        lambda: any(
            _is_custom(e) or any(has_partitions(j) for _, j in subjaxprs(e.params))
            for e in jaxpr.eqns
        ),
    )


def without_partitions(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` with `custom_partitioning` functions replaced by their programs.

    They are replaced at every depth.
    """

    def make() -> Jaxpr:
        inside = jaxpr.replace(
            eqns=[e.replace(params=map_jaxprs(e.params, without_partitions)) for e in jaxpr.eqns]
        )
        return inline_calls(inside, _is_custom)

    return jaxpr.memo("without partitions", make) if has_partitions(jaxpr) else jaxpr


def partition_rule_error(
    rule: PartitionRule, fact: str, rows: Sequence[Any], eqn: Eqn
) -> ValueError:
    """Return the error for a rule that does not fit its operation."""
    return ValueError(
        describe(
            "custom_partitioning",
            f"the partition rule of {rule.name} {fact}.",
            rows,
            eqn.source,
            "The rule gives (mesh, function of blocks, result shardings, argument shardings).",
        )
    )
