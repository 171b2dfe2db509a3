"""Pattern matching of movements along dims, so that shards exchange only their edges.

- A concatenation of the tail and the head of one value is its *rotation* (`roll`). As two slices, whose sizes no mesh axis
  divides, it would be two exchanges; as one op it keeps the layout.
- A slice of a padded value is a *part* of it (windows of pools, and of stencils with borders). The padded value has different
  blocks than the value; a part of the value's size has the same blocks.
- A matmul with operands of two dtypes and a result of at most 16 bits becomes a matmul in a wider dtype and a conversion, so
  that partial sums are not rounded.

The ops exist only between `match_moves` and the local program: binding them on values binds the original ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.core.primitive import ContractOp, LayoutOp, RegionOp, SliceOp
from weft._engine.core.trace import typeof
from weft._engine.ir.factors import FactorRule, RuleBuilder
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Var
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import slicing
from weft._engine.ops.casting import convert_element_type_p
from weft._engine.ops.contraction import is_whole
from weft._engine.util.promotion import sum_dtype


class _Rotate(LayoutOp):
    """A rotation: element i of the result along `dim` is element (i + start) modulo the size of the operand."""

    def bind(self, *args: Any, dim: int, start: int) -> Any:
        (x,) = args
        size = typeof(x).shape[dim]
        parts = [
            slicing.slice_in_dim(x, start, size, 1, dim),
            slicing.slice_in_dim(x, 0, start, 1, dim),
        ]
        return slicing.concatenate(parts, dim)


rotate_p = _Rotate("rotate", register=False)


@rotate_p.def_type
def _rotate_type(aval: ShapedArray, *, dim: int, start: int) -> ShapedArray:
    return aval


@rotate_p.def_factors
def _rotate_factors(
    in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray], *, dim: int, start: int
) -> FactorRule:
    b = RuleBuilder()
    factors = b.add_factors(in_avals[0].shape)
    return b.rule([factors], [factors], special={factors[dim]: "halo"}, linear_ins=(0,))


class _PaddedSliceOp(SliceOp):
    """The slice `start_indices ... limit_indices` by `strides` of an operand padded by `padding_config`."""

    def bind(self, *args: Any, padding_config: tuple[tuple[int, int, int], ...], **cut: Any) -> Any:
        x, value = args
        return slicing.slice(slicing.pad(x, value, padding_config), **cut)


part_p = _PaddedSliceOp("padded_slice", register=False)


@part_p.def_type
def _part_type(
    aval: ShapedArray,
    value: ShapedArray,
    *,
    padding_config: tuple[tuple[int, int, int], ...],
    **cut: Any,
) -> ShapedArray:
    (padded,) = slicing.pad_p.abstract([aval, value], {"padding_config": padding_config})
    return slicing.slice_p.abstract([padded], cut)[0]


@part_p.def_factors
def _part_factors(
    in_avals: Sequence[ShapedArray],
    out_avals: Sequence[ShapedArray],
    *,
    padding_config: tuple[tuple[int, int, int], ...],
    start_indices: tuple[int, ...],
    **_cut: Any,
) -> FactorRule:
    b = RuleBuilder()
    ins: list[int] = []
    outs: list[int] = []
    special: dict[int, str] = {}
    for size, count, config, start in zip(
        in_avals[0].shape, out_avals[0].shape, padding_config, start_indices
    ):
        ins.append(b.new(size))
        outs.append(ins[-1] if _is_whole(size, count, config, start) else b.new(count))
        if ins[-1] != outs[-1]:
            special[ins[-1]] = special[outs[-1]] = "halo"
    groups = tuple((g, f) for f, g in zip(ins, outs) if f != g)
    return b.rule(
        [ins, []], [outs], special=special, linear_ins=(0, 1), additive=True, groups=groups
    )


def _is_whole(size: int, count: int, config: tuple[int, int, int], start: int) -> bool:
    """Return whether a dim is neither padded nor sliced."""
    return size == count and not any(config) and not start


@part_p.def_localize
def _localize_part(params: dict[str, Any], ins: Any, outs: Any) -> dict[Any, Any]:
    """Return the local parameters: dims that are taken whole end at the end of the local operand."""
    dims = zip(
        ins[0].shape,
        outs[0].shape,
        params["padding_config"],
        params["start_indices"],
        params["limit_indices"],
    )
    return dict(
        params,
        limit_indices=tuple(
            n if _is_whole(n, m, config, start) else end for n, m, config, start, end in dims
        ),
    )


# --- matching ---------------------------------------------------------------------------------------------------------


def match_moves(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` with rotations, parts of padded values and rounded sums replaced by the ops of this module."""
    makers: dict[Atom, Eqn] = {
        eqn.outvars[0]: eqn for eqn in jaxpr.eqns if _is_slice(eqn) or eqn.primitive.moves == "pad"
    }
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        rounded = _as_rounded_sum(eqn)
        eqns += (
            rounded
            if rounded
            else [_as_rotation(eqn, makers) or _as_part(eqn, makers) or _match_nested(eqn)]
        )
    is_unchanged = len(eqns) == len(jaxpr.eqns) and all(
        new is old for new, old in zip(eqns, jaxpr.eqns)
    )
    return jaxpr if is_unchanged else jaxpr.replace(eqns=eqns)


def _is_slice(eqn: Eqn) -> bool:
    return isinstance(eqn.primitive, SliceOp) and eqn.primitive.takes_slice


def _match_nested(eqn: Eqn) -> Eqn:
    """Match the moves in the inner programs of `eqn`."""
    if not isinstance(eqn.primitive, RegionOp):
        return eqn
    params = map_jaxprs(eqn.params, match_moves)
    return eqn if params is eqn.params else eqn.replace(params=params)


def _as_rounded_sum(eqn: Eqn) -> list[Eqn] | None:
    """Return a matmul of two dtypes with a narrow result as a matmul in a dtype that represents both, and a conversion."""
    if not isinstance(eqn.primitive, ContractOp):
        return None
    (left, right), out = (atom.aval.dtype for atom in eqn.invars), eqn.outvars[0]
    if left == right or out.aval.dtype.itemsize > 2 or is_whole(left, right, out.aval.dtype):
        return None
    acc_dtype = sum_dtype(left, right, out.aval.dtype)
    total = Var(out.aval.update(dtype=acc_dtype))
    product = eqn.replace(
        outvars=[total], params=dict(eqn.params, preferred_element_type=acc_dtype)
    )
    params = {"new_dtype": out.aval.dtype, "weak_type": out.aval.weak_type, "sharding": None}
    return [product, eqn.replace(primitive=convert_element_type_p, invars=[total], params=params)]


def _as_part(eqn: Eqn, makers: dict[Atom, Eqn]) -> Eqn | None:
    padded = makers.get(eqn.invars[0]) if _is_slice(eqn) else None
    if padded is None or padded.primitive.moves != "pad":
        return None
    return eqn.replace(
        primitive=part_p, invars=padded.invars, params={**padded.params, **eqn.params}
    )


def _as_rotation(eqn: Eqn, makers: dict[Atom, Eqn]) -> Eqn | None:
    if eqn.primitive.moves != "concatenate" or len(eqn.invars) != 2:
        return None
    tail, head = (makers.get(a) for a in eqn.invars)
    if (
        tail is None
        or head is None
        or not (_is_slice(tail) and _is_slice(head))
        or tail.invars[0] is not head.invars[0]
    ):
        return None
    (x,), dim = tail.invars, eqn.params["dimension"]
    shape, start = x.aval.shape, tail.params["start_indices"][dim]
    origin = tuple(start if d == dim else 0 for d in range(len(shape)))
    until = tuple(start if d == dim else n for d, n in enumerate(shape))
    if _bounds(tail) != (origin, shape) or _bounds(head) != ((0,) * len(shape), until):
        return None
    return eqn.replace(primitive=rotate_p, invars=(x,), params={"dim": dim, "start": start})


def _bounds(eqn: Eqn) -> tuple[Any, ...] | None:
    """Return the start and limit indices of a slice without strides; None for other equations."""
    strides = eqn.params["strides"]
    if strides is not None and any(s != 1 for s in strides):
        return None
    return tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"])
