"""Models from functions: the layers of a loss function, recognized in its traced program.

In:   a loss function and its arguments: parameters first, then data.
Out:  the `TransformerModel` with the same products.
Laws: nothing is computed. The recognized model has as many parameters as the function, up to a tenth; otherwise the function
      is refused.

A product has a *weight* if one of its operands depends on parameters alone, and is a part of *attention* if no operand does.
A layer's products repeat, in a loop or unrolled; how often they repeat is the number of layers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft._engine.api.arrays import make_jaxpr
from weft._engine.core.primitive import ContractOp, LoopLike
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record, replace
from weft._engine.util.tree import tree_leaves

#: largest relative difference between the numbers of parameters of a function and of the recognized model
_MOST_DIFFERENCE = 0.1


@record
class TracedProduct:
    """A matrix product of a program, `count` times: `batch` products of `rows` x `depth` and `depth` x `columns`.

    `columns` are the weight's if there is one, otherwise the second operand's.
    """

    has_weight: bool
    batch: int
    rows: int
    depth: int
    columns: int
    count: int


def model_from_function(function: Callable[..., Any], *arguments: Any) -> TransformerModel:
    """Return the model that a loss function trains.

    `arguments` are its parameters and the data of a step, as arrays or `ShapeDtypeStruct`s. A function without arguments, without
    repeated layers or attention, or with parameters that the recognized layers do not explain raises `ValueError`.
    """
    name = getattr(function, "__name__", "function")
    if len(arguments) < 2:
        raise ValueError(
            f"plan: {name} needs its arguments to be traced: plan({name}, parameters, data, cluster=...). They can be arrays or "
            "weft.ShapeDtypeStruct."
        )
    program = make_jaxpr(function)(*arguments)
    jaxpr = getattr(program, "jaxpr", program)
    parameters = tree_leaves(arguments[0])
    is_parameter = [i < len(parameters) for i in range(len(jaxpr.invars))]
    products = [*_products(jaxpr, is_parameter, 1)]
    model = _recognize(name, products)
    count = sum(math.prod(getattr(leaf, "shape", ())) for leaf in parameters)
    shared = replace(model, tied=True)
    if abs(shared.parameters - count) < abs(model.parameters - count):
        model = shared
    if not count or abs(model.parameters / count - 1) > _MOST_DIFFERENCE:
        raise ValueError(
            f"plan: {name} has {count:,} parameters, but the recognized layers ({_spell(model)}) have {model.parameters:,}. "
            "Describe the model by a `TransformerModel` instead."
        )
    return model


def _spell(model: TransformerModel) -> str:
    experts = f", {model.experts} experts" if model.experts else ""
    return (
        f"{model.layers} layers of width {model.hidden}, {model.heads} heads, MLP of width {model.feed_forward}{experts}, "
        f"vocabulary of {model.vocab}"
    )


# ---- products


def _products(jaxpr: Jaxpr, is_parameter: Sequence[bool], count: int) -> Iterator[TracedProduct]:
    """Yield the products of a program that runs `count` times, in order."""
    only_parameters = {var for var, flag in zip(jaxpr.invars, is_parameter) if flag}
    only_parameters |= set(jaxpr.constvars)
    for eqn in jaxpr.eqns:
        flags = [isinstance(atom, Literal) or atom in only_parameters for atom in eqn.invars]
        variables = [atom for atom in eqn.invars if not isinstance(atom, Literal)]
        if variables and all(flags):
            only_parameters.update(eqn.outvars)
        if isinstance(eqn.primitive, ContractOp):
            yield _product(eqn, flags, count)
        for _, inner in subjaxprs(eqn.params):
            yield from _products(inner, _inner_flags(eqn, inner, flags), count * _repeats(eqn))


def _repeats(eqn: Eqn) -> int:
    is_counted = isinstance(eqn.primitive, LoopLike) and eqn.primitive.counted
    return eqn.params["length"] if is_counted else 1


def _inner_flags(eqn: Eqn, inner: Jaxpr, flags: Sequence[bool]) -> list[bool]:
    """Return which inputs of an inner program depend on parameters alone: its inputs are the last operands."""
    count = len(inner.invars)
    if count > len(flags):
        return [False] * count
    inner_flags = list(flags[len(flags) - count :])
    if isinstance(eqn.primitive, LoopLike):
        first = eqn.primitive.first_carried(eqn.params)
        carried = range(first, first + eqn.primitive.carried_count(eqn.params))
        inner_flags = [flag and i not in carried for i, flag in enumerate(inner_flags)]
    return inner_flags


def _product(eqn: Eqn, flags: Sequence[bool], count: int) -> TracedProduct:
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left, right = (atom.aval.shape for atom in eqn.invars[:2])
    depth = math.prod(left[d] for d in contracted)
    groups = math.prod(left[d] for d in batch)
    sizes = [math.prod(shape) // (depth * groups) for shape in (left, right)]
    weight_is_left = flags[0] and not flags[1]
    rows, columns = reversed(sizes) if weight_is_left else sizes
    return TracedProduct(flags[0] or flags[1], groups, rows, depth, columns, count)


# ---- recognition


def _recognize(name: str, products: Sequence[TracedProduct]) -> TransformerModel:
    weights = [product for product in products if product.has_weight]
    attention = [product for product in products if not product.has_weight]
    if len(weights) < 3 or not attention:
        raise ValueError(
            f"plan: no transformer is recognized in {name}: it has {len(weights)} products with weights and {len(attention)} without. "
            "A transformer has layers of projections, attention and an MLP, and an output projection. Describe the model by a "
            "`TransformerModel`."
        )
    hidden = _width(weights)
    head = next((p for p in reversed(weights) if p.depth == hidden and p.batch == 1), weights[-1])
    inside = [product for product in weights if product is not head]
    layers = math.gcd(*(_count(inside, product) for product in inside))
    scores = attention[0]
    seq = scores.columns
    tokens = head.rows
    heads = max(1, scores.batch * scores.rows // tokens)
    experts = _experts(inside, tokens)
    fields = _layer_fields(inside, hidden, layers, heads * scores.depth)
    fields |= experts
    kv_heads = max(1, fields.pop("kv_width") // scores.depth)
    return TransformerModel(
        hidden=hidden,
        layers=layers,
        heads=heads,
        seq=seq,
        vocab=head.columns,
        kv_heads=kv_heads if heads % kv_heads == 0 else heads,
        head_dim=scores.depth,
        tied=False,
        flash=False,
        name=name,
        **fields,
    )


def _width(weights: Sequence[TracedProduct]) -> int:
    """Return the model's width: the size that most products with weights have on one of their sides."""
    sizes: Counter[int] = Counter()
    for product in weights:
        for size in {product.depth, product.columns}:
            sizes[size] += product.count
    return sizes.most_common(1)[0][0]


def _count(products: Sequence[TracedProduct], like: TracedProduct) -> int:
    """Return how often products with the weight's shape run."""
    shape = like.batch, like.depth, like.columns
    return sum(p.count for p in products if (p.batch, p.depth, p.columns) == shape)


def _layer_fields(
    inside: Sequence[TracedProduct], hidden: int, layers: int, queries: int
) -> dict[str, Any]:
    """Return the widths of keys and of the MLP of a layer, from its products with weights that are no experts'."""
    dense = [product for product in inside if product.batch == 1]
    width = max((p.depth for p in dense if p.columns == hidden), default=hidden)
    columns = sum(p.columns * p.count for p in dense if p.depth == hidden) // layers
    if queries == hidden:
        columns -= hidden  # the output of attention
    has_mlp = width not in (hidden, queries)
    inner = [p for p in dense if p.depth == hidden and p.columns in (width, 2 * width)]
    gates = sum(p.columns * p.count for p in inner) // layers // width if has_mlp else 0
    experts = max((p.batch for p in inside), default=1)
    router = experts if experts > 1 and any(p.columns == experts for p in dense) else 0
    kv_width = (columns - queries - gates * width - router) // 2
    return {"feed_forward": width, "gated": gates >= 2, "kv_width": max(0, kv_width)}


def _experts(inside: Sequence[TracedProduct], tokens: int) -> dict[str, Any]:
    """Return the fields of experts, if products have a weight for each of several groups of rows."""
    grouped = [product for product in inside if product.batch > 1]
    if not grouped:
        return {}
    down = min(grouped, key=lambda p: p.columns)
    up = [p for p in grouped if p is not down]
    experts, width = down.batch, down.depth
    per_token = max(1, min(experts, round(experts * down.rows / tokens)))
    matrices = sum(p.columns * p.count for p in up) // max(1, width * down.count)
    return {
        "experts": experts,
        "experts_per_token": per_token,
        "expert_width": width,
        "gated": matrices >= 2,
    }
